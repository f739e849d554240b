//! Walks over the log that are asked for by calls: each call walks for some seconds, and the next one goes on.
//!
//! Invariant: one walk reads at a time on a node, and a few wait to be gone on with, two for each who asks. So nobody can keep a node busy with
//! them, or keep others from theirs.

use std::time::Duration;

use countersign_protocol::sentence::of_field;
use countersign_store::AnyStore;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::verifying::without_key;
use super::{KeptHead, Portion, Verified, Verifying, key};
use crate::app::error::AppError;
use crate::app::turns::TurnKey;
use crate::app::{Actor, App};

/// How long one call walks.
const CALL_TIME_MAX: Duration = Duration::from_secs(5);
/// How long a call waits for its turn.
const TURN_TIME_MAX: Duration = Duration::from_secs(15);
/// How long a walk is kept for the next call, and how many are.
const KEPT_FOR: Duration = Duration::from_secs(60);
const KEPT_MAX: usize = 4;
/// How many of them are one token's: whoever breaks a walk off may begin another, and leaves places to others.
const OWN_MAX: usize = 2;
/// A walk that nobody has gone on with for so long makes room for a new walk. It is long enough to wait for a turn twice.
const RIPE_AFTER: Duration = Duration::from_secs(40);
const _: () = assert!(2 * TURN_TIME_MAX.as_secs() < RIPE_AFTER.as_secs() && RIPE_AFTER.as_secs() < KEPT_FOR.as_secs());
/// Heads of one walk.
const HEADS_MAX: usize = 100_000;
const ID_BYTES: usize = 16;

/// Walks that go on with the next call.
#[derive(Debug, Default)]
pub struct Walks(Mutex<Vec<Parked>>);

#[derive(Debug)]
struct Parked {
    id: String,
    /// Who began it.
    owner: String,
    since: Instant,
    verifying: Verifying,
}

/// What a call asks for.
#[derive(Debug, Default)]
pub struct VerifyRequest {
    /// Heads that were kept elsewhere.
    pub heads: Vec<KeptHead>,
    /// Whether the next call brings more of them, so that nothing is walked over yet.
    pub more_heads: bool,
    /// `next` of the answer before; none: a new walk.
    pub after: Option<String>,
    /// Lines that this call walks over, at the most.
    pub limit: Option<u64>,
}

impl Walks {
    /// Walks on, or begins.
    pub async fn verify(&self, app: &App, actor: &Actor, asked: VerifyRequest) -> Result<Verified, AppError> {
        // However many calls one makes at once, those of others wait for one of them and not for all.
        let own_turn = app.turns.take_soon(TurnKey::AuditWalk(actor.name.clone())).await;
        let _own_turn = own_turn.map_err(|_| {
            AppError::Crowded("another call of this token walks over the audit log: repeat this one".to_owned())
        })?;
        let Ok(mut parked) = timeout(TURN_TIME_MAX, self.0.lock()).await else { return Err(waited()) };
        let now = Instant::now();
        parked.retain(|walk| now.duration_since(walk.since) < KEPT_FOR);
        let (mut gives_way, goes_on) = (None, asked.after.is_some());
        let mut walk = match asked.after {
            Some(id) => {
                let at = parked.iter().position(|walk| walk.id == id);
                parked.swap_remove(at.ok_or_else(gone)?)
            }
            None => match key(&app.vault, &app.store).await? {
                Some(key) => {
                    gives_way = room(&parked, &actor.name, now)?;
                    let (id, owner) = (app.chance.hex(ID_BYTES), actor.name.clone());
                    Parked { id, owner, since: now, verifying: Verifying::new(key) }
                }
                None => return Ok(without_key()),
            },
        };
        let portion = Portion { lines_max: asked.limit.unwrap_or(u64::MAX), time_max: CALL_TIME_MAX };
        let portion = (!asked.more_heads).then_some(portion);
        let walked = match walk_on(&app.store, &mut walk.verifying, asked.heads, portion).await {
            Ok(true) => walk.verifying.end(&app.store).await.map(Some).map_err(AppError::from),
            Ok(false) => Ok(None),
            Err(error) => Err(error),
        };
        walk.since = Instant::now();
        match walked {
            Ok(Some(verified)) => Ok(verified),
            Ok(None) => {
                if let Some(at) = gives_way {
                    parked.swap_remove(at);
                }
                let so_far = Verified::so_far(walk.verifying.lines(), walk.id.clone());
                parked.push(walk);
                Ok(so_far)
            }
            Err(error) => {
                // The same call again goes on where this one came to nothing.
                if goes_on {
                    parked.push(walk);
                }
                Err(error)
            }
        }
    }
}

/// Takes heads, and walks over a portion, if one is asked for: whether it is at the end.
async fn walk_on(
    store: &AnyStore,
    verifying: &mut Verifying,
    heads: Vec<KeptHead>,
    portion: Option<Portion>,
) -> Result<bool, AppError> {
    if !heads.is_empty() && verifying.has_begun() {
        let why = "must all be sent before the first line is walked over, with more_heads";
        return Err(AppError::InvalidParameter(of_field("heads", why)));
    }
    if verifying.heads() + heads.len() > HEADS_MAX {
        return Err(AppError::InvalidParameter(of_field("heads", format_args!("must have at most {HEADS_MAX} lines"))));
    }
    verifying.must_pass(store, heads).await?;
    match portion {
        Some(portion) => Ok(verifying.go_on(store, &portion, |_| {}).await?),
        None => Ok(false),
    }
}

fn gone() -> AppError {
    AppError::InvalidParameter(of_field(
        "after",
        "names a walk that is not known here, or no longer: begin again without it",
    ))
}

/// Which walk makes room for one more of `owner`, if a walk has to: among the owner's walks where the owner has as many as allowed, else among all
/// walks where every place is taken; the walk that was left alone longest. An error where that walk was not left alone for long enough.
fn room(parked: &[Parked], owner: &str, now: Instant) -> Result<Option<usize>, AppError> {
    let own = || parked.iter().enumerate().filter(|(_, walk)| walk.owner == owner);
    let (longest, refused): (_, fn() -> AppError) = if own().count() >= OWN_MAX {
        (own().min_by_key(|(_, walk)| walk.since), has_enough)
    } else if parked.len() >= KEPT_MAX {
        (parked.iter().enumerate().min_by_key(|(_, walk)| walk.since), crowded)
    } else {
        return Ok(None);
    };
    let ripe = longest.filter(|(_, walk)| now.duration_since(walk.since) >= RIPE_AFTER);
    ripe.map(|(at, _)| Some(at)).ok_or_else(refused)
}

fn has_enough() -> AppError {
    let why = format!(
        "{OWN_MAX} walks of this token over the audit log are under way already: go on with one by its next, or begin another"
    );
    AppError::CrowdedFor { why, room_in_s: RIPE_AFTER.as_secs() }
}

fn waited() -> AppError {
    AppError::Crowded("other walks over the audit log have their turn: repeat this call".to_owned())
}

fn crowded() -> AppError {
    let why = format!("{KEPT_MAX} walks over the audit log are under way already: begin yours");
    AppError::CrowdedFor { why, room_in_s: RIPE_AFTER.as_secs() }
}

#[cfg(test)]
mod tests {
    use countersign_store::chain::{ChainKey, LINK_BYTES};

    use super::*;

    fn parked(now: Instant, ages: &[u64]) -> Vec<Parked> {
        let of = |age: &u64| Parked {
            id: age.to_string(),
            owner: format!("of {age}"),
            since: now - Duration::from_secs(*age),
            verifying: Verifying::new(ChainKey::new(&[1; LINK_BYTES])),
        };
        ages.iter().map(of).collect()
    }

    fn left(ages: &[u64]) -> Option<Vec<String>> {
        left_to("somebody else", ages)
    }

    fn left_to(owner: &str, ages: &[u64]) -> Option<Vec<String>> {
        let now = Instant::now() + KEPT_FOR;
        let mut parked = parked(now, ages);
        if let Some(at) = room(&parked, owner, now).ok()? {
            parked.swap_remove(at);
        }
        let mut left: Vec<_> = parked.into_iter().map(|walk| walk.id).collect();
        left.sort();
        Some(left)
    }

    #[test]
    fn a_new_walk_takes_the_place_of_the_one_that_was_left_alone_longest_and_of_no_other() {
        assert_eq!(left(&[1, 2, 3]).expect("there is room"), ["1", "2", "3"]);
        assert_eq!(left(&[1, 45, 50, 3]).expect("one has waited long enough"), ["1", "3", "45"]);
        assert_eq!(left(&[40, 1, 2, 3]).expect("just long enough"), ["1", "2", "3"]);
        assert_eq!(left(&[39, 18, 17, 16]), None);
    }

    #[test]
    fn whoever_finds_no_room_is_told_when_there_is_some() {
        let now = Instant::now() + KEPT_FOR;
        for (owner, ages) in [("somebody else", &[39, 18, 17, 16][..]), ("of 3", &[3, 3])] {
            let refused = room(&parked(now, ages), owner, now).expect_err("no room");
            assert_eq!(refused.room_in_s(), Some(40), "{owner}");
            assert!(refused.sentence().ends_with(" in 40 seconds"), "{owner}: {}", refused.sentence());
        }
    }

    #[test]
    fn nobody_has_three_walks_and_ones_own_gives_way_when_it_was_left_alone() {
        assert_eq!(
            left_to("of 3", &[1, 3]).expect("there is room"),
            ["1", "3"],
            "whoever broke one off may begin again"
        );
        assert_eq!(left_to("of 3", &[1, 3, 3]), None, "gone on with a moment ago");
        assert_eq!(left_to("of 39", &[50, 39, 39]), None, "an older one of somebody else stays");
        assert_eq!(left_to("of 40", &[50, 40, 40]).expect("left alone"), ["40", "50"]);
        assert_eq!(left_to("of 4", &[1, 2, 3]).expect("there is room"), ["1", "2", "3"]);
    }
}
