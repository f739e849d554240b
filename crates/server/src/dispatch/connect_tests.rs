//! What a connection is kept for, and who is charged where none can be made.

use std::sync::Condvar;

use tokio::task::JoinSet;

use super::*;
use crate::dispatch::route::Sources;

const LONG: Duration = Duration::from_secs(20);

#[tokio::test]
async fn of_several_addresses_the_one_that_finds_no_end_here_is_told_of_wherever_it_stands() {
    // Of a range for documentation, so none of this machine; and none of the other family.
    let sources = Sources::of(&["192.0.2.77".parse().expect("an address")]).expect("one of a family");
    let route = Route { sources, ..Route::default() };
    let settings = DispatchSettings { allow_private: true, route, ..DispatchSettings::default() };
    let connector = Connector::new(&settings).expect("settings that hold");
    let [v4, v6] = ["127.0.0.1:1", "[::1]:1"].map(|text| text.parse().expect("an address"));
    for vetted in [[v4, v6], [v6, v4]] {
        let error = connector.connect(&vetted).await.expect_err("neither takes it");
        assert_eq!((error.outcome, error.lack), (Outcome::ConnectFailed, Some(Lack::End)));
        let is_told = error.detail.contains("callback_source_address is none of this machine now");
        assert!(is_told && error.detail.starts_with("127.0.0.1:1"), "{}", error.detail);
    }
}

#[tokio::test]
async fn a_name_that_is_not_looked_up_for_those_that_hang_is_charged_with_nothing() {
    let settings = DispatchSettings { connect_timeout: Duration::from_millis(50), ..DispatchSettings::default() };
    let mut connector = Connector::new(&settings).expect("settings that hold");
    let over = Arc::new((Mutex::new(false), Condvar::new()));
    let hangs = Arc::clone(&over);
    connector.look_ups = LookUps::by(move |_, _| {
        let is_over = hangs.0.lock().expect("is whole");
        // No longer than a test that fails should take.
        drop(hangs.1.wait_timeout_while(is_over, LONG, |is_over| !*is_over).expect("is whole"));
        Ok(Vec::new())
    });
    let connector = Arc::new(connector);
    let look_up = |number: usize| {
        let connector = Arc::clone(&connector);
        async move {
            let target = connector.target(&format!("https://shop-{number}.example/")).expect("a good URL");
            connector.vetted(&target, &mut Stopwatch::default()).await.expect_err("nothing is found")
        }
    };
    let ended = (0..200).map(look_up).collect::<JoinSet<_>>().join_all().await;
    let (lacking, hung): (Vec<_>, Vec<_>) = ended.into_iter().partition(|ended| ended.lack == Some(Lack::LookUp));
    assert!(lacking.len() > 50 && hung.len() > 50, "{} and {}", lacking.len(), hung.len());
    assert!(lacking.iter().all(|one| one.detail.contains("too many look-ups wait")), "{lacking:?}");
    assert!(hung.iter().all(|one| one.lack.is_none() && one.detail.contains("took too long")), "{hung:?}");
    // Those have places of their own from now on, and are charged also where these do not suffice.
    let again = (0..200).map(look_up).collect::<JoinSet<_>>().join_all().await;
    let crowded = again.iter().filter(|one| one.lack.is_none() && one.detail.contains("too many look-ups wait"));
    assert!(crowded.count() > 0, "{again:?}");
    *over.0.lock().expect("is whole") = true;
    over.1.notify_all();
}

#[test]
fn a_connection_is_kept_for_less_than_its_endpoint_says() {
    let connector = Connector::new(&DispatchSettings::default()).expect("settings that hold");
    for (said, wanted_ms, is_wanted) in [
        (&[][..], 1_500, false),
        (&["timeout=5, max=100"], 1_500, true),
        (&["timeout=2"], 1_000, true),
        (&["max=7,  TIMEOUT = \"2\""], 1_000, true),
        (&["timeout=60", "timeout=2"], 1_000, true),
        (&["timeout=1"], 0, true),
        (&["timeout=0"], 0, true),
        (&["timeout=99999999999999999999999", "timeout=-1", "max=1", "timeout"], 1_500, false),
    ] {
        let mut head = HeaderMap::new();
        for value in said {
            head.append("keep-alive", value.parse().expect("a value"));
        }
        let wanted = IdleTime { most: Duration::from_millis(wanted_ms), is_said: is_wanted };
        assert_eq!(connector.idle_time(&head), wanted, "{said:?}");
    }
}
