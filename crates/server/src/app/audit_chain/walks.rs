//! Walks over the log that are asked for by calls: each call walks for some seconds, and the next one goes on.
//!
//! Invariant: one walk reads at a time on a node, and a few wait to be gone on with. So nobody can keep a node busy with them.

use std::time::Duration;

use countersign_store::StoreError;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::verifying::without_key;
use super::{KeptHead, Portion, Verified, Verifying, key};
use crate::app::App;
use crate::app::error::AppError;

/// How long one call walks.
const CALL_TIME_MAX: Duration = Duration::from_secs(5);
/// How long a call waits for its turn.
const TURN_TIME_MAX: Duration = Duration::from_secs(15);
/// How long a walk is kept for the next call, and how many are.
const KEPT_FOR: Duration = Duration::from_secs(60);
const KEPT_MAX: usize = 4;
/// Heads of one walk.
const HEADS_MAX: usize = 100_000;
const ID_BYTES: usize = 16;

/// Walks that go on with the next call.
#[derive(Debug, Default)]
pub struct Walks(Mutex<Vec<Parked>>);

#[derive(Debug)]
struct Parked {
    id: String,
    since: Instant,
    verifying: Verifying,
}

/// What a call asks for.
#[derive(Debug, Default)]
pub struct Asked {
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
    pub async fn verify(&self, app: &App, asked: Asked) -> Result<Verified, AppError> {
        let Ok(mut parked) = timeout(TURN_TIME_MAX, self.0.lock()).await else { return Err(crowded()) };
        parked.retain(|walk| walk.since.elapsed() < KEPT_FOR);
        let (id, mut verifying) = match asked.after {
            Some(id) => {
                let at = parked.iter().position(|walk| walk.id == id);
                let walk = parked.swap_remove(at.ok_or_else(gone)?);
                (id, walk.verifying)
            }
            None if parked.len() >= KEPT_MAX => return Err(crowded()),
            None => match key(&app.vault, &app.store).await? {
                Some(key) => (app.chance.hex(ID_BYTES), Verifying::new(key)),
                None => return Ok(without_key()),
            },
        };
        if !asked.heads.is_empty() && verifying.has_begun() {
            let why = "heads: send them all before the first line is walked over, with more_heads";
            return Err(AppError::InvalidParameter(why.to_owned()));
        }
        verifying.must_pass(&app.store, asked.heads).await?;
        if verifying.heads() > HEADS_MAX {
            return Err(AppError::InvalidParameter(format!("heads: more than {HEADS_MAX} are too many")));
        }
        let portion = Portion { lines_max: asked.limit.unwrap_or(u64::MAX), time_max: CALL_TIME_MAX };
        if !asked.more_heads && verifying.go_on(&app.store, &portion, |_| {}).await? {
            return Ok(verifying.end(&app.store).await?);
        }
        let so_far = Verified::so_far(verifying.lines(), id.clone());
        parked.push(Parked { id, since: Instant::now(), verifying });
        Ok(so_far)
    }
}

fn gone() -> AppError {
    AppError::InvalidParameter("after: this walk is not known here (any more): begin again without it".to_owned())
}

fn crowded() -> AppError {
    AppError::Store(StoreError::Unavailable("other walks over the audit log are under way".to_owned()))
}
