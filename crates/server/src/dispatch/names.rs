//! Look-ups of names, by the system's resolver.
//!
//! The system's resolver blocks a thread, and goes on when nobody waits for it any more: an attempt gives up after seconds, a resolver that
//! gets no answer often later. So what is under way is counted by the threads themselves, and whose name hangs does not use up the places
//! of others.
//!
//! Invariant: all places together are fewer than the threads that may block, which the store's reads need as well.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use foldhash::HashMap;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};

use super::faults::lack_of;

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

/// Why there is no address, in words for people.
#[derive(Debug)]
pub(super) enum Unresolved {
    /// The resolver said so.
    Error(io::Error),
    TookTooLong,
    /// So many look-ups wait for an answer that this one did not begin.
    Crowded,
}

impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(error) => write!(f, "the name cannot be looked up: {error}"),
            Self::TookTooLong => f.write_str("the look-up of the name took too long"),
            Self::Crowded => {
                f.write_str("the name was not looked up: too many look-ups wait for the resolver of this machine")
            }
        }
    }
}

type Resolve = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// Looks names up.
pub(super) struct Names {
    resolve: Arc<Resolve>,
    places: [Arc<Semaphore>; 3],
    standings: Mutex<HashMap<Box<str>, Standing>>,
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Names").finish_non_exhaustive()
    }
}

impl Default for Names {
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

impl Names {
    pub(super) fn by(resolve: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static) -> Self {
        Self {
            resolve: Arc::new(resolve),
            places: Standing::ALL.map(|standing| Arc::new(Semaphore::new(standing.places()))),
            standings: Mutex::default(),
        }
    }

    /// The addresses of a name, with this port, asked for now.
    pub(super) async fn look_up(&self, name: &str, port: u16, within: Duration) -> Result<Vec<SocketAddr>, Unresolved> {
        let end = Instant::now() + within;
        let place = timeout_at(end, self.place(name)).await.map_err(|_| Unresolved::Crowded)?;
        let found = timeout_at(end, self.ask(name, port, place)).await.map_err(|_| Unresolved::TookTooLong)?;
        found.map_err(Unresolved::Error)
    }

    /// The same for whoever has a limit of time around more than this.
    pub(super) async fn look_up_without_limit(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let place = self.place(name).await;
        self.ask(name, port, place).await
    }

    async fn place(&self, name: &str) -> OwnedSemaphorePermit {
        let places = Arc::clone(&self.places[self.standing(name) as usize]);
        places.acquire_owned().await.expect("places are never closed")
    }

    async fn ask(&self, name: &str, port: u16, place: OwnedSemaphorePermit) -> io::Result<Vec<SocketAddr>> {
        let (resolve, wanted) = (Arc::clone(&self.resolve), Box::<str>::from(name));
        let mut note = LookUpNote { names: self, name, came: Standing::Hung };
        let answer = spawn_blocking(move || {
            // Given back by the thread, not by the attempt, which may be gone before.
            let _place = place;
            resolve(&wanted, port)
        });
        let found = answer.await.map_err(io::Error::other).flatten();
        note.came = Standing::Answered;
        found
    }

    fn standing(&self, name: &str) -> Standing {
        let standings = self.standings.lock().unwrap_or_else(PoisonError::into_inner);
        standings.get(name).copied().unwrap_or(Standing::New)
    }

    fn note(&self, name: &str, standing: Standing) {
        let mut standings = self.standings.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(noted) = standings.get_mut(name) {
            *noted = standing;
            return;
        }
        if standings.len() >= NAMES_MAX {
            standings.clear();
        }
        standings.insert(name.into(), standing);
    }
}

/// Notes what came of a look-up, also of one whose attempt gave up before.
struct LookUpNote<'a> {
    names: &'a Names,
    name: &'a str,
    came: Standing,
}

impl Drop for LookUpNote<'_> {
    fn drop(&mut self) {
        self.names.note(self.name, self.came);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::{Condvar, Mutex};

    use super::*;

    const SHORT: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(10);

    /// A resolver that answers names with `hangs` in them only when the test ends.
    #[derive(Clone, Default)]
    struct Resolver(Arc<(Mutex<bool>, Condvar, AtomicUsize)>);

    impl Resolver {
        fn names(&self) -> Names {
            let this = self.clone();
            Names::by(move |name, port| {
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
            *self.0.0.lock().expect("is whole") = true;
            self.0.1.notify_all();
        }
    }

    async fn look_up_all(names: &Arc<Names>, count: usize, name: impl Fn(usize) -> String) -> Vec<String> {
        let asked = (0..count).map(|n| {
            let (names, name) = (Arc::clone(names), name(n));
            tokio::spawn(async move {
                names.look_up(&name, 443, SHORT).await.map_or_else(|why| why.to_string(), |_| "found".to_owned())
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
        *resolver.0.0.lock().expect("is whole") = true;
        resolver.0.1.notify_all();
        assert_eq!(
            names.look_up("hangs.example", 8443, LONG).await.expect("is found"),
            [([192, 0, 2, 1], 8443).into()]
        );
        assert_eq!(names.standing("hangs.example"), Standing::Answered);
    }

    #[test]
    fn threads_are_left_for_others() {
        const THREADS_THAT_MAY_BLOCK: usize = 512;
        let places: usize = Standing::ALL.into_iter().map(Standing::places).sum();
        assert!(places <= THREADS_THAT_MAY_BLOCK * 3 / 4, "{places}");
    }
}
