//! Whose look-up hangs, who shares one, and who begins anew.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Condvar, Mutex};

use super::*;

const SHORT: Duration = Duration::from_millis(20);
/// As many threads have begun by then, also where the machine is busy.
const MANY_BEGIN: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

/// A resolver that answers names with `hangs` in them only when the test ends.
#[derive(Clone, Default)]
struct Resolver(Arc<(Mutex<bool>, Condvar, AtomicUsize)>);

impl Resolver {
    fn names(&self) -> LookUps {
        let this = self.clone();
        LookUps::by(move |name, port| {
            let (is_over, over, hanging) = &*this.0;
            if name.contains("hangs") {
                hanging.fetch_add(1, SeqCst);
                let is_over = is_over.lock().expect("is whole");
                drop(over.wait_while(is_over, |is_over| !*is_over).expect("is whole"));
                hanging.fetch_sub(1, SeqCst);
            }
            if name == "none.example" {
                Err(io::ErrorKind::NotFound.into())
            } else {
                Ok(vec![([192, 0, 2, 1], port).into()])
            }
        })
    }

    fn ends(&self) {
        *self.0.0.lock().expect("is whole") = true;
        self.0.1.notify_all();
    }

    fn hanging(&self) -> usize {
        self.0.2.load(SeqCst)
    }

    /// So many hang, and no more: a look-up whose thread has not begun yet has its place all the same.
    async fn comes_to(&self, count: usize) {
        let begun = Instant::now();
        while self.hanging() < count && begun.elapsed() < LONG {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(self.hanging(), count);
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        // Threads that block would keep the runtime, and the test, from ending.
        self.ends();
    }
}

async fn look_up_all(names: &Arc<LookUps>, count: usize, name: impl Fn(usize) -> String) -> Vec<String> {
    let asked = (0..count).map(|n| {
        let (names, name) = (Arc::clone(names), name(n));
        tokio::spawn(async move {
            names.look_up(&name, 443, MANY_BEGIN).await.map_or_else(|why| why.to_string(), |_| "found".to_owned())
        })
    });
    let mut said = Vec::new();
    for asked in asked.collect::<Vec<_>>() {
        said.push(asked.await.expect("ends"));
    }
    said
}

#[tokio::test]
async fn what_hangs_has_places_of_its_own_and_keeps_them_until_the_resolver_ends() {
    let resolver = Resolver::default();
    let names = Arc::new(resolver.names());
    names.look_up("known.example", 443, LONG).await.expect("is found");
    let said = look_up_all(&names, 2 * Standing::New.places(), |n| format!("hangs-{n}.example")).await;
    resolver.comes_to(Standing::New.places()).await;
    let begun = |said: &[String]| said.iter().filter(|said| *said == "the look-up of the name took too long").count();
    assert_eq!(begun(&said), Standing::New.places(), "the others did not begin: {said:?}");
    // Those that hung are looked up beside those that have not been looked up at all.
    let said = look_up_all(&names, 2 * Standing::Hung.places(), |n| format!("hangs-{n}.example")).await;
    assert_eq!(begun(&said), Standing::Hung.places());
    resolver.comes_to(Standing::New.places() + Standing::Hung.places()).await;
    let said = look_up_all(&names, 1, |_| "hangs-0.example".to_owned()).await;
    assert_eq!(said, ["the name was not looked up: too many look-ups wait for the resolver of this machine"]);
    names.look_up("known.example", 443, LONG).await.expect("is found at once");
}

#[tokio::test]
async fn an_answer_says_that_a_name_does_not_hang() {
    let resolver = Resolver::default();
    let names = resolver.names();
    assert_eq!(names.standing("none.example"), Standing::New);
    let why = names.look_up("none.example", 443, LONG).await.expect_err("is not there").to_string();
    assert_eq!(
        (why.as_str(), names.standing("none.example")),
        ("the name cannot be looked up: entity not found", Standing::Answered)
    );
    // Whoever gives up on it finds that it hangs, however little time there was.
    let (answer, _) = names.ask("hangs.example", 443, Some(SHORT)).await;
    timeout_at(Instant::now(), names.hear("hangs.example", answer, Instant::now())).await.expect_err("no answer");
    assert_eq!(names.standing("hangs.example"), Standing::Hung);
    resolver.ends();
    assert_eq!(names.look_up("hangs.example", 8443, LONG).await.expect("is found"), [([192, 0, 2, 1], 8443).into()]);
    assert_eq!(names.standing("hangs.example"), Standing::Answered);
}

#[test]
fn attempts_that_begin_before_a_thread_does_share_a_look_up_and_none_that_has_begun_is_shared() {
    let one_thread = tokio::runtime::Builder::new_current_thread().enable_time().max_blocking_threads(1).build();
    one_thread.expect("a runtime").block_on(async {
        let (resolver, asked) = (Resolver::default(), Arc::new(Mutex::new(Vec::new())));
        let hangs = Arc::new(resolver.names());
        let noting = LookUps::by({
            let (inner, asked) = (Arc::clone(&hangs.resolve), Arc::clone(&asked));
            move |name, port| {
                asked.lock().expect("is whole").push(format!("{name}:{port}"));
                inner(name, port)
            }
        });
        let names = Arc::new(LookUps { shared_for: HOUR, ..noting });
        let look_up = |name: &'static str, port| {
            let names = Arc::clone(&names);
            tokio::spawn(async move { names.look_up(name, port, LONG).await })
        };
        let first = look_up("hangs.example", 1);
        resolver.comes_to(1).await;
        // The one thread has begun that, so this is another one; the others wait for the thread, too.
        let again = look_up("hangs.example", 1);
        let shared: Vec<_> = (1..=5).map(|_| look_up("shop.example", 2)).collect();
        let other = look_up("shop.example", 3);
        let failing: Vec<_> = (1..=2).map(|_| look_up("none.example", 4)).collect();
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        resolver.ends();
        let others = [(1, first), (1, again), (3, other)];
        for (port, one) in others.into_iter().chain(shared.into_iter().map(|one| (2, one))) {
            let found = one.await.expect("ends").expect("is found");
            assert_eq!(found, [([192, 0, 2, 1], port).into()]);
        }
        for one in failing {
            let why = one.await.expect("ends").expect_err("is not there").to_string();
            assert_eq!(why, "the name cannot be looked up: entity not found");
        }
        let asked = asked.lock().expect("is whole").clone();
        let once_each = ["hangs.example:1", "hangs.example:1", "shop.example:2", "shop.example:3", "none.example:4"];
        assert_eq!(asked, once_each);
        assert!(lock(&names.waiting).is_empty());
    });
}

/// As where the system gives no thread: what was asked for stays where it is.
#[tokio::test]
async fn a_look_up_that_finds_no_thread_keeps_nobody_from_asking_again() {
    let resolver = Resolver::default();
    let (names, asked) = (resolver.names(), (Box::from("shop.example"), 443));
    let (_tells, stuck) = watch::channel(None);
    let since = Instant::now().checked_sub(SHARED_FOR).expect("some time ago");
    lock(&names.waiting).insert(asked.clone(), (since, stuck.clone()));
    let old = Waits { waiting: Arc::clone(&names.waiting), asked: asked.clone(), answer: stuck.clone() };
    let (answer, _) = names.ask("shop.example", 443, None).await;
    assert!(!answer.same_channel(&stuck));
    names.hear("shop.example", answer, Instant::now()).await.expect("is found");
    let (_tells, young) = watch::channel(None);
    // However long this thread stands still, it is young.
    lock(&names.waiting).insert(asked, (Instant::now() + HOUR, young.clone()));
    drop(old);
    assert!(names.ask("shop.example", 443, None).await.0.same_channel(&young), "it has not taken that along");
}

/// As after a restart, where many names are looked up for the first time and the resolver is slow.
#[tokio::test]
async fn whose_look_up_had_hardly_begun_is_not_one_that_hangs() {
    let resolver = Resolver::default();
    let names = Arc::new(resolver.names());
    let held: Vec<_> = (0..Standing::New.places())
        .map(|_| Arc::clone(&names.places[Standing::New as usize]).try_acquire_owned().expect("is free"))
        .collect();
    let late = tokio::spawn({
        let names = Arc::clone(&names);
        // Most of its time has gone by.
        let came = (Instant::now() + 5 * SHORT).checked_sub(HOUR).expect("an instant");
        async move { names.look_up_since(came, "hangs-not.example", 443, HOUR).await }
    });
    // It waits for a place.
    tokio::task::yield_now().await;
    drop(held);
    let why = late.await.expect("ends").expect_err("has no answer yet");
    assert!(matches!(why, Unresolved::Crowded { has_hung: false }), "{why:?}");
    assert_eq!(names.standing("hangs-not.example"), Standing::New);
}

#[test]
fn threads_are_left_for_others() {
    const THREADS_THAT_MAY_BLOCK: usize = 512;
    let places: usize = Standing::ALL.into_iter().map(Standing::places).sum();
    assert!(places <= THREADS_THAT_MAY_BLOCK * 3 / 4, "{places}");
}
