use super::*;
use crate::cli::certify::catalogue::{GOOD, HANGS};

#[test]
fn what_is_not_answered_in_time_was_not_refused_and_the_reason_says_why_that_matters() {
    let late = || Reaction::Late("the deadline passed".to_owned());
    let (silent, taken) = (Reaction::Silent("closed".to_owned()), Reaction::Taken { took: Duration::ZERO });
    let found = |reactions: &[(&str, Reaction)]| {
        let finding = PARTLY.must_refuse_each(reactions);
        (finding.verdict, finding.why)
    };
    assert_eq!(found(&[("a", late()), ("b", silent.clone())]), (Verdict::Fail, HANGS));
    assert_eq!(found(&[("a", late()), ("b", Reaction::Unreached(String::new()))]), (Verdict::Fail, HANGS));
    assert_eq!(found(&[("a", late()), ("b", taken)]), (Verdict::Fail, PARTLY.why));
    assert_eq!(found(&[("a", silent)]), (Verdict::Pass, PARTLY.why));
    assert_eq!(LARGE.must_take(&late()).verdict, Verdict::Fail);
    assert_eq!(ROTATION.had_better_take(&late()).verdict, Verdict::Advice);
    assert_eq!(out_of_time(STALE, late(), late()).verdict, Verdict::Fail);
}

#[test]
fn whoever_refuses_the_same_at_once_is_not_called_hasty() {
    let refused = || Reaction::NotTaken("status 401".to_owned());
    let taken = Reaction::Taken { took: Duration::ZERO };
    let judged = paced(&refused(), &refused());
    assert_eq!(
        (judged.verdict, judged.came.as_str()),
        (Verdict::Untold, "not told: at once the same is not taken: status 401")
    );
    for at_once in [taken, Reaction::Late(String::new()), Reaction::Unreached(String::new())] {
        let judged = paced(&refused(), &at_once);
        assert_eq!((judged.verdict, judged.came.as_str()), (Verdict::Fail, "not taken: status 401"), "{at_once:?}");
    }
}

#[test]
fn unusual_bodies_are_cut_within_letters_and_slow_ones_have_ascii_alone() {
    let body = |member: &str| {
        let body = CallbackBody {
            biz_type: "T".to_owned(),
            biz_id: "b".to_owned(),
            biz_status: "S".to_owned(),
            client_id: "app_1".to_owned(),
            data: "{}".to_owned(),
        };
        with(body, member).to_bytes()
    };
    // Whatever its length: data may be somebody's own.
    for longer in 0..256 {
        let body = unusual(&body(&format!("{},{}", padded(longer), spoken())));
        let cut = CUT.of(body).iter().filter(|piece| std::str::from_utf8(piece).is_err()).count();
        assert!(cut > 1, "{longer}: {cut}");
    }
    assert!(body(&padded(SLOW_BYTES)).is_ascii());
}

#[test]
fn any_data_is_tampered_with_and_has_room_for_more_and_stays_json() {
    let body = |data: &str| CallbackBody {
        biz_type: "T".to_owned(),
        biz_id: "b".to_owned(),
        biz_status: "S".to_owned(),
        client_id: "app_1".to_owned(),
        data: data.to_owned(),
    };
    for (data, changed, more) in [
        (r#"{"amount":"12.50"}"#, r#"{"amount":"22.50"}"#, r#"{"amount":"12.50","n":1}"#),
        (r#"{"amount":1}"#, r#"{"amount":2}"#, r#"{"amount":1,"n":1}"#),
        (
            r#"{"orderAmount":"3","actualAmount":"3","at":7}"#,
            r#"{"orderAmount":"3","actualAmount":"1","at":7}"#,
            r#"{"orderAmount":"3","actualAmount":"3","at":7,"n":1}"#,
        ),
        (r#"{"amount":null}"#, r#"{"amount":null}"#, r#"{"amount":null,"n":1}"#),
        (r#"{"n":7,"amount":""}"#, r#"{"n":1,"amount":""}"#, r#"{"n":7,"amount":"","n":1}"#),
        ("{ }", "{ }", r#"{"n":1}"#),
        ("[]", "[]", r#"{"n":1}"#),
        // Half a surrogate pair would be no JSON.
        (r#""\ud8aa\udc0a""#, r#""\ud8aa\udc1a""#, r#"{"n":1}"#),
    ] {
        let tampered = tampered(body(data));
        assert_eq!((tampered.data.as_str(), tampered.biz_id == "b1"), (changed, changed == data), "{data}");
        assert_eq!(with(body(data), r#""n":1"#).data, more, "{data}");
    }
    let unusual: CallbackBody = serde_json::from_slice(&unusual(&body("{}").to_bytes())).expect("JSON");
    assert_eq!(unusual, body("{}"));
}

#[test]
fn a_large_callback_has_as_much_data_as_an_event_may_have_and_twice_as_many_bytes() {
    for data in ["{}", r#"{"a":1}"#, "[]"] {
        let [biz_type, biz_id, biz_status, client_id] = ["T", "b", "S", "app_1"].map(str::to_owned);
        let news = CallbackBody { biz_type, biz_id, biz_status, client_id, data: data.to_owned() };
        let large = large(news);
        assert!((DATA_BYTES_MAX - 1..=DATA_BYTES_MAX).contains(&large.data.len()), "{data}: {}", large.data.len());
        serde_json::from_str::<Value>(&large.data).expect("JSON");
        let body = large.to_bytes();
        assert!(body.len() > 127 * 1024, "{data}: {}", body.len());
        assert_eq!(serde_json::from_slice::<CallbackBody>(&body).expect("JSON"), large);
    }
}

#[test]
fn what_did_not_reach_the_receiver_is_told_neither_way() {
    let silent = || Reaction::Silent("closed".to_owned());
    let unreached = || Reaction::Unreached("refused".to_owned());
    let taken = || Reaction::Taken { took: Duration::ZERO };
    assert_eq!(TAMPERED.must_refuse(&silent()).verdict, Verdict::Pass);
    assert_eq!(TAMPERED.must_refuse(&unreached()).verdict, Verdict::Untold);
    let stale = |an_hour, ten_minutes| out_of_time(STALE, an_hour, ten_minutes).verdict;
    assert_eq!([stale(taken(), silent()), stale(taken(), taken())], [Verdict::Fail; 2]);
    assert_eq!([stale(silent(), taken()), stale(silent(), silent())], [Verdict::Advice, Verdict::Pass]);
    assert_eq!([stale(unreached(), silent()), stale(silent(), unreached())], [Verdict::Untold; 2]);
    assert_eq!([stale(unreached(), taken()), stale(taken(), unreached())], [Verdict::Untold, Verdict::Fail]);
    let busy = || Reaction::Busy { what: "status 503".to_owned(), retry_after: None };
    assert_eq!([stale(busy(), taken()), stale(busy(), silent())], [Verdict::Untold; 2]);
    assert_eq!(stale(Reaction::Late("passed".to_owned()), taken()), Verdict::Fail, "it hangs on the farther one");
    assert_eq!(PARTLY.must_refuse_each(&[("a", silent()), ("b", unreached())]).verdict, Verdict::Untold);
    assert_eq!(PARTLY.must_refuse_each(&[("a", taken()), ("b", unreached())]).verdict, Verdict::Fail);
    let told = |reactions: &[(&str, Reaction)]| PARTLY.must_refuse_each(reactions).came;
    assert_eq!(told(&[("a:", silent()), ("b:", silent())]), "all 2: no answer: closed");
    assert_eq!(told(&[("a:", silent()), ("b:", unreached())]), "a: no answer: closed; b: not reached: refused");
    assert_eq!(ROTATION.had_better_take(&unreached()).verdict, Verdict::Untold);
    assert_eq!(ROTATION.had_better_take(&silent()).verdict, Verdict::Advice);
    assert_eq!(GOOD.must_take(&unreached()).verdict, Verdict::Untold);
    assert_eq!(LARGE.must_take(&silent()).verdict, Verdict::Fail);
}

#[test]
fn the_page_for_operators_lists_every_check() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/OPERATING.md");
    let page = std::fs::read_to_string(page).expect("docs/OPERATING.md is there");
    let named = |name: &str| page.lines().filter(|line| line.starts_with(&format!("| `{name}` |"))).count();
    for check in std::iter::once(&GOOD).chain(BEYOND_GOOD) {
        assert_eq!(named(check.name), 1, "{}", check.name);
    }
    let count = format!("{} checks", BEYOND_GOOD.len() + 1);
    assert!(page.contains(&count), "{count}");
}
