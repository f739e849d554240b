//! Look-ups of names, by the system's resolver.
//!
//! The system's resolver blocks a thread, and goes on when nobody waits for it any more: an attempt gives up after seconds, a resolver that
//! gets no answer often later. So what is under way is counted by the threads themselves, and whose name hangs does not use up the places
//! of others.
//!
//! Attempts that begin at one moment share a look-up: whoever asks for a name for which one waits for its thread has the answer of that, which is asked for
//! later than they asked, as one of their own would be. What a thread has begun is shared with nobody.
//!
//! Invariant: all places together are fewer than the threads that may block, which the store's reads need as well.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::HashMap;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};

use super::faults::lack_of;

/// A look-up that has waited for its thread for longer is shared with nobody more: where the system gives no thread, the next one who asks asks for one again.
const SHARED_FOR: Duration = Duration::from_millis(100);
/// Names whose standing is remembered.
const NAMES_MAX: usize = 4_096;

/// What is known of a name. Each kind has places of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// The last look-up had an answer in time, be it that there is no such name.
    Answered,
    /// Nothing.
    New,
    /// The last look-up took too long.
    Hung,
}

impl Standing {
    const ALL: [Self; 3] = [Self::Answered, Self::New, Self::Hung];

    /// Look-ups at once.
    const fn places(self) -> usize {
        match self {
            Self::Answered => 192,
            Self::New => 96,
            Self::Hung => 32,
        }
    }
}

/// Look-ups at once, of all names.
pub const LOOK_UPS_MAX: usize = Standing::Answered.places() + Standing::New.places() + Standing::Hung.places();

/// Why there is no address, in words for people.
#[derive(Debug)]
pub(super) enum Unresolved {
    /// The resolver said so.
    Error(io::Error),
    TookTooLong,
    /// So many look-ups wait for an answer that this one did not begin. `has_hung`: its name is one of those whose look-ups take too long.
    Crowded {
        has_hung: bool,
    },
}

impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(error) => write!(f, "the name cannot be looked up: {error}"),
            Self::TookTooLong => f.write_str("the look-up of the name took too long"),
            Self::Crowded { .. } => {
                f.write_str("the name was not looked up: too many look-ups wait for the resolver of this machine")
            }
        }
    }
}

type Resolve = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// What came of a look-up; none: nothing yet.
type Answer = watch::Receiver<Option<Arc<io::Result<Vec<SocketAddr>>>>>;

/// A name and a port.
type Asked = (Box<str>, u16);

/// Look-ups that no thread has begun, and since when.
type Waiting = Mutex<HashMap<Asked, (Instant, Answer)>>;

/// By name.
type Standings = Mutex<HashMap<Box<str>, Standing>>;

/// Looks names up.
pub(super) struct LookUps {
    resolve: Arc<Resolve>,
    places: [Arc<Semaphore>; 3],
    standings: Arc<Standings>,
    waiting: Arc<Waiting>,
}

impl fmt::Debug for LookUps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LookUps").finish_non_exhaustive()
    }
}

impl Default for LookUps {
    fn default() -> Self {
        Self::by(|name, port| {
            let found = (name, port).to_socket_addrs().map_err(|error| lack().unwrap_or(error))?;
            Ok(found.collect())
        })
    }
}

/// Why no file can be had now, where none can: a look-up that fails for that says what it would say of a resolver that is away.
fn lack() -> Option<io::Error> {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).err().filter(|error| lack_of(error).is_some())
}

impl LookUps {
    pub(super) fn by(resolve: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static) -> Self {
        Self {
            resolve: Arc::new(resolve),
            places: Standing::ALL.map(|standing| Arc::new(Semaphore::new(standing.places()))),
            standings: Arc::default(),
            waiting: Arc::default(),
        }
    }

    /// The addresses of a name, with this port, asked for now.
    pub(super) async fn look_up(&self, name: &str, port: u16, within: Duration) -> Result<Vec<SocketAddr>, Unresolved> {
        let end = Instant::now() + within;
        let crowded = || Unresolved::Crowded { has_hung: self.standing(name) == Standing::Hung };
        let answer = timeout_at(end, self.ask(name, port, Some(within))).await.map_err(|_| crowded())?;
        // Where most of the time has gone by before there was a place, one that has no answer yet says nothing of the name.
        let hung_after = Instant::now() + within / 2;
        match timeout_at(end, self.hear(name, answer, hung_after)).await {
            Ok(found) => found.map_err(Unresolved::Error),
            Err(_) if Instant::now() < hung_after => Err(crowded()),
            Err(_) => Err(Unresolved::TookTooLong),
        }
    }

    /// The same for whoever has a limit of time around more than this.
    pub(super) async fn look_up_without_limit(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let answer = self.ask(name, port, None).await;
        self.hear(name, answer, Instant::now()).await
    }

    /// A look-up that no thread has begun yet: one that waits for its thread, or another one as soon as there is a place for it.
    async fn ask(&self, name: &str, port: u16, within: Option<Duration>) -> Answer {
        let asked: Asked = (name.into(), port);
        if let Some(waits) = shared(&lock(&self.waiting), &asked) {
            return waits;
        }
        let place = Arc::clone(&self.places[self.standing(name) as usize]);
        let place = place.acquire_owned().await.expect("places are never closed");
        let mut waiting = lock(&self.waiting);
        if let Some(waits) = shared(&waiting, &asked) {
            return waits;
        }
        let (tells, answer) = watch::channel(None);
        waiting.insert(asked.clone(), (Instant::now(), answer.clone()));
        drop(waiting);
        let (resolve, standings) = (Arc::clone(&self.resolve), Arc::clone(&self.standings));
        let waits = Waits { waiting: Arc::clone(&self.waiting), asked, answer: answer.clone() };
        spawn_blocking(move || {
            let name = waits.asked.0.clone();
            let begun = Instant::now();
            let found = look_up(&*resolve, waits, place);
            // Nobody may wait for it any more: it was in time all the same, or was not.
            if within.is_none_or(|within| begun.elapsed() < within) {
                note(&standings, &name, Standing::Answered);
            } else if lock(&standings).get(&name).is_none() {
                note(&standings, &name, Standing::Hung);
            }
            tells.send_replace(Some(Arc::new(found)));
        });
        answer
    }

    /// What comes of a look-up. Whoever gives up after that instant has found that it hangs.
    async fn hear(&self, name: &str, mut answer: Answer, hung_after: Instant) -> io::Result<Vec<SocketAddr>> {
        let mut note = LookUpNote { look_ups: self, name, hung_after, has_come: false };
        let found = answer.wait_for(Option::is_some).await.map(|found| found.clone());
        note.has_come = true;
        match found.ok().flatten().as_deref() {
            Some(Ok(found)) => Ok(found.clone()),
            Some(Err(error)) => Err(copied(error)),
            None => Err(io::Error::other("the look-up broke off")),
        }
    }

    fn standing(&self, name: &str) -> Standing {
        let standings = lock(&self.standings);
        standings.get(name).copied().unwrap_or(Standing::New)
    }
}

fn note(standings: &Standings, name: &str, standing: Standing) {
    let mut standings = lock(standings);
    if let Some(noted) = standings.get_mut(name) {
        *noted = standing;
        return;
    }
    if standings.len() >= NAMES_MAX {
        standings.clear();
    }
    standings.insert(name.into(), standing);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The same for one more of those who share it.
fn copied(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

/// The look-up that whoever asks for this now has a part in.
fn shared(waiting: &HashMap<Asked, (Instant, Answer)>, asked: &Asked) -> Option<Answer> {
    let (since, answer) = waiting.get(asked)?;
    (since.elapsed() < SHARED_FOR).then(|| answer.clone())
}

/// A look-up waits for its thread as long as this is there.
struct Waits {
    waiting: Arc<Waiting>,
    asked: Asked,
    answer: Answer,
}

impl Drop for Waits {
    fn drop(&mut self) {
        let mut waiting = lock(&self.waiting);
        // A younger one may have taken its place.
        if waiting.get(&self.asked).is_some_and(|(_, answer)| answer.same_channel(&self.answer)) {
            waiting.remove(&self.asked);
        }
    }
}

/// By a thread that may block. The place is given back by it, not by the attempt, which may be gone before.
fn look_up(resolve: &Resolve, waits: Waits, _place: OwnedSemaphorePermit) -> io::Result<Vec<SocketAddr>> {
    let (name, port) = waits.asked.clone();
    drop(waits);
    resolve(&name, port)
}

/// Notes what came of a look-up, also of one whose attempt gave up before.
struct LookUpNote<'a> {
    look_ups: &'a LookUps,
    name: &'a str,
    hung_after: Instant,
    has_come: bool,
}

impl Drop for LookUpNote<'_> {
    fn drop(&mut self) {
        if self.has_come {
            note(&self.look_ups.standings, self.name, Standing::Answered);
        } else if Instant::now() >= self.hung_after {
            note(&self.look_ups.standings, self.name, Standing::Hung);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::{Condvar, Mutex};

    use super::*;

    const SHORT: Duration = Duration::from_millis(20);
    /// As many threads have begun by then, also where the machine is busy.
    const MANY_BEGIN: Duration = Duration::from_secs(1);
    const LONG: Duration = Duration::from_secs(10);

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
        let begun =
            |said: &[String]| said.iter().filter(|said| *said == "the look-up of the name took too long").count();
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
        names.look_up("hangs.example", 443, SHORT).await.expect_err("takes too long");
        assert_eq!(names.standing("hangs.example"), Standing::Hung);
        resolver.ends();
        assert_eq!(
            names.look_up("hangs.example", 8443, LONG).await.expect("is found"),
            [([192, 0, 2, 1], 8443).into()]
        );
        assert_eq!(names.standing("hangs.example"), Standing::Answered);
    }

    #[test]
    fn attempts_that_begin_before_a_thread_does_share_a_look_up_and_none_that_has_begun_is_shared() {
        let one_thread = tokio::runtime::Builder::new_current_thread().enable_time().max_blocking_threads(1).build();
        one_thread.expect("a runtime").block_on(async {
            let (resolver, asked) = (Resolver::default(), Arc::new(Mutex::new(Vec::new())));
            let hangs = Arc::new(resolver.names());
            let names = Arc::new(LookUps::by({
                let (inner, asked) = (Arc::clone(&hangs.resolve), Arc::clone(&asked));
                move |name, port| {
                    asked.lock().expect("is whole").push(format!("{name}:{port}"));
                    inner(name, port)
                }
            }));
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
            let once_each =
                ["hangs.example:1", "hangs.example:1", "shop.example:2", "shop.example:3", "none.example:4"];
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
        let answer = names.ask("shop.example", 443, None).await;
        assert!(!answer.same_channel(&stuck));
        names.hear("shop.example", answer, Instant::now()).await.expect("is found");
        let (_tells, young) = watch::channel(None);
        lock(&names.waiting).insert(asked, (Instant::now(), young.clone()));
        drop(old);
        assert!(names.ask("shop.example", 443, None).await.same_channel(&young), "it has not taken that along");
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
            async move { names.look_up("hangs-not.example", 443, 20 * SHORT).await }
        });
        tokio::time::sleep(15 * SHORT).await;
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
}
