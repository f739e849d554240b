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
    /// [`SHARED_FOR`].
    shared_for: Duration,
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
            shared_for: SHARED_FOR,
        }
    }

    /// The addresses of a name, with this port, asked for now.
    pub(super) async fn look_up(&self, name: &str, port: u16, within: Duration) -> Result<Vec<SocketAddr>, Unresolved> {
        self.look_up_since(Instant::now(), name, port, within).await
    }

    /// The same, asked for then.
    async fn look_up_since(
        &self,
        came: Instant,
        name: &str,
        port: u16,
        within: Duration,
    ) -> Result<Vec<SocketAddr>, Unresolved> {
        let end = came + within;
        let crowded = || Unresolved::Crowded { has_hung: self.standing(name) == Standing::Hung };
        let asked = timeout_at(end, self.ask(name, port, Some(within))).await;
        let (answer, waited_until) = asked.map_err(|_| crowded())?;
        // Where most of the time has gone by before there was a place, one that has no answer yet says nothing of the name.
        let hung_after = waited_until.unwrap_or(came) + within / 2;
        match timeout_at(end, self.hear(name, answer, hung_after)).await {
            Ok(found) => found.map_err(Unresolved::Error),
            Err(_) if Instant::now() < hung_after => Err(crowded()),
            Err(_) => Err(Unresolved::TookTooLong),
        }
    }

    /// The same for whoever has a limit of time around more than this.
    pub(super) async fn look_up_without_limit(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let (answer, _) = self.ask(name, port, None).await;
        self.hear(name, answer, Instant::now()).await
    }

    /// A look-up that no thread has begun yet: one that waits for its thread, or another one as soon as there is a place for it; and when there was one, where
    /// it was waited for.
    async fn ask(&self, name: &str, port: u16, within: Option<Duration>) -> (Answer, Option<Instant>) {
        let asked: Asked = (name.into(), port);
        if let Some(waits) = self.shared(&lock(&self.waiting), &asked) {
            return (waits, None);
        }
        let places = &self.places[self.standing(name) as usize];
        let (place, waited_until) = if let Ok(place) = Arc::clone(places).try_acquire_owned() {
            (place, None)
        } else {
            let place = Arc::clone(places).acquire_owned().await.expect("places are never closed");
            (place, Some(Instant::now()))
        };
        let mut waiting = lock(&self.waiting);
        if let Some(waits) = self.shared(&waiting, &asked) {
            return (waits, waited_until);
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
        (answer, waited_until)
    }

    /// The look-up that whoever asks for this now has a part in.
    fn shared(&self, waiting: &HashMap<Asked, (Instant, Answer)>, asked: &Asked) -> Option<Answer> {
        let (since, answer) = waiting.get(asked)?;
        (since.elapsed() < self.shared_for).then(|| answer.clone())
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
#[path = "look_ups_tests.rs"]
mod tests;
