//! How often secrets and tokens are used: counted in memory, noted in the store every few seconds.
//!
//! A request costs two atomic writes and no lock. What is counted is added to what other nodes have noted, so that the store's figures are those
//! of all. A node that is killed loses the uses of its last [`NOTE_EVERY`]; one whose store is away goes on counting and notes it all later.
//!
//! Invariant: a use is counted at least once in what is reported here, never left out: it is taken from the memory only after the store has it.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use countersign_domain::time::{CLOCKS_APART_MS_MAX, UnixMillis};
use countersign_store::Store as _;
use countersign_store::batch::{Batch, Guard, Write};
use countersign_store::contract::{CommitError, SecretRow, SecretUses, TokenRow, TokenUse, Uses as Noted};
use tokio::sync::Mutex as FairMutex;

use super::App;
use super::error::AppError;

/// How often uses are noted.
pub const NOTE_EVERY: Duration = Duration::from_secs(5);
/// A token's use is written at most this often, in ms.
const TOKEN_NOTE_MS: i64 = 60_000;
/// An hour, in minutes and in ms.
const HOUR: i64 = 60;
const HOUR_MS: i64 = 3_600_000;
/// Minutes are kept longer than an hour, so that a clock that is behind still finds them.
const KEPT_MINUTES: i64 = 90;
/// Secrets of one batch.
const SECRETS_PER_BATCH: usize = 500;

/// Uses of one secret by this process.
#[derive(Default)]
pub struct Tally {
    /// Since the start.
    count: AtomicU64,
    /// Of these, what the store has.
    noted: AtomicU64,
    /// The last one, in ms since 1970; 0: none.
    last: AtomicI64,
}

impl fmt::Debug for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tally").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Tally {
    /// A request was signed with it.
    pub fn one_more(&self, now: UnixMillis) {
        // Another of the same moment may be a ms earlier: nobody asks for more than seconds.
        self.last.store(now.0, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Release);
    }

    /// What the store does not have yet.
    fn pending(&self) -> u64 {
        let noted = self.noted.load(Ordering::Acquire);
        self.count.load(Ordering::Acquire).saturating_sub(noted)
    }

    /// The last one, by this process.
    pub fn last(&self) -> Option<UnixMillis> {
        Some(UnixMillis(self.last.load(Ordering::Relaxed))).filter(|at| at.0 > 0)
    }
}

/// The last use of a token by this process, and when it was last written.
#[derive(Clone, Copy, Debug)]
struct TokenMark {
    last: UnixMillis,
    noted: Option<UnixMillis>,
}

/// What this process has counted.
#[derive(Debug, Default)]
pub struct Uses {
    secrets: RwLock<HashMap<Box<str>, Arc<Tally>>>,
    tokens: Mutex<HashMap<Box<str>, TokenMark>>,
    /// One notes at a time.
    noting: FairMutex<()>,
    /// Since when uses are counted, as the store says, in ms since 1970; 0: not known.
    begun_ms: AtomicI64,
}

/// How a secret was used, over all nodes as far as it was noted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The last request that was signed with it.
    pub last_used_at: Option<UnixMillis>,
    /// Requests of the last hour.
    pub last_hour: i64,
    /// Since when uses are counted at all; none: no process has begun yet.
    pub counted_since: Option<UnixMillis>,
}

const fn minute(at: UnixMillis) -> i64 {
    at.0.div_euclid(60_000)
}

impl Uses {
    /// The tally of a secret, to be kept with its key.
    pub fn tally(&self, secret_id: &str) -> Arc<Tally> {
        let known = self.secrets.read().unwrap_or_else(PoisonError::into_inner).get(secret_id).cloned();
        known.unwrap_or_else(|| {
            let mut secrets = self.secrets.write().unwrap_or_else(PoisonError::into_inner);
            secrets.entry(secret_id.into()).or_default().clone()
        })
    }

    /// A call was made with a token.
    pub fn token(&self, token_id: &str, now: UnixMillis) {
        let mut tokens = self.tokens();
        if let Some(mark) = tokens.get_mut(token_id) {
            mark.last = now;
        } else {
            tokens.insert(token_id.into(), TokenMark { last: now, noted: None });
        }
    }

    fn tokens(&self) -> MutexGuard<'_, HashMap<Box<str>, TokenMark>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tallies with something to note. Those that nobody holds any more and that are noted are forgotten.
    fn due(&self) -> Vec<(Box<str>, Arc<Tally>)> {
        let mut secrets = self.secrets.write().unwrap_or_else(PoisonError::into_inner);
        secrets.retain(|_, tally| Arc::strong_count(tally) > 1 || tally.pending() > 0);
        let mut due: Vec<_> =
            secrets.iter().filter(|(_, t)| t.pending() > 0).map(|(id, t)| (id.clone(), t.clone())).collect();
        due.sort_by(|a, b| a.0.cmp(&b.0));
        due
    }

    /// Tokens whose last use is to be written. Those that have not been used for long are forgotten.
    fn due_tokens(&self, now: UnixMillis) -> Vec<TokenUse> {
        let mut tokens = self.tokens();
        tokens.retain(|_, mark| mark.noted != Some(mark.last) || now.0 - mark.last.0 < TOKEN_NOTE_MS);
        let due = |mark: &TokenMark| {
            // What was noted by a clock that was ahead is not waited for.
            let is_old = |noted: UnixMillis| {
                now.0.saturating_sub(noted.0) >= TOKEN_NOTE_MS || noted > now.plus_ms(CLOCKS_APART_MS_MAX)
            };
            mark.noted.is_none_or(|noted| noted != mark.last && is_old(noted))
        };
        let due = tokens.iter().filter(|(_, mark)| due(mark));
        let mut due: Vec<_> =
            due.map(|(id, mark)| TokenUse { token_id: id.to_string(), last_used_at: mark.last }).collect();
        due.sort_by(|a, b| a.token_id.cmp(&b.token_id));
        due
    }

    /// Secrets with uses that the store does not have.
    pub fn waiting(&self) -> usize {
        let secrets = self.secrets.read().unwrap_or_else(PoisonError::into_inner);
        secrets.values().filter(|tally| tally.pending() > 0).count()
    }

    fn tokens_noted(&self, noted: &[TokenUse]) {
        let mut tokens = self.tokens();
        for of in noted {
            if let Some(mark) = tokens.get_mut(of.token_id.as_str()) {
                mark.noted = Some(of.last_used_at);
            }
        }
    }
}

/// Since when uses are counted, in ms since 1970: written by the first process that counts, and again only where a clock wrote it that was ahead.
pub const COUNTED_SINCE: &str = "uses_counted_since_ms";

/// A text that is no number counts as none: then counting begins anew, which is on the safe side.
fn instant(text: &str) -> Option<UnixMillis> {
    text.parse().ok().map(UnixMillis)
}

async fn counted_since(app: &App) -> Result<Option<UnixMillis>, AppError> {
    Ok(app.store.setting(COUNTED_SINCE).await?.as_deref().and_then(instant))
}

/// Says in the store that counting has begun, unless it says so already. Where it says an instant that is yet to come, counting begins anew.
async fn begin(app: &App) -> Result<(), AppError> {
    let now = app.clock.now();
    let has_come = |since: &UnixMillis| *since <= now.plus_ms(CLOCKS_APART_MS_MAX);
    let known = Some(UnixMillis(app.uses.begun_ms.load(Ordering::Relaxed))).filter(|since| since.0 > 0);
    if known.is_some_and(|since| has_come(&since)) {
        return Ok(());
    }
    let (said, name, value) = (app.store.setting(COUNTED_SINCE).await?, COUNTED_SINCE.to_owned(), now.0.to_string());
    let since = match said.as_deref().and_then(instant) {
        Some(since) if has_come(&since) => since,
        Some(ahead) => {
            // This node's clock may be the one that is wrong, and behind.
            let is_ahead = Guard::Before { instant: ahead.plus_ms(-CLOCKS_APART_MS_MAX), time: app.clock.source() };
            let writes = vec![Write::MoveSetting { name, from: said, to: value }, Write::Guard(is_ahead)];
            match app.store.commit(Batch(writes)).await {
                Ok(_) => now,
                // Or another node was first: the next time shows.
                Err(CommitError::Conflict(_)) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        None => {
            // Two nodes at once: the later instant may stay, which is on the safe side.
            app.store.commit(Batch(vec![Write::PutSetting { name, value }])).await?;
            now
        }
    };
    app.uses.begun_ms.store(since.0, Ordering::Relaxed);
    Ok(())
}

/// Notes what was counted since the last time. What the store did not take is counted on and noted the next time; it does not hold up what
/// comes after it. The error is the first one.
pub async fn note(app: &App) -> Result<(), AppError> {
    let _one = app.uses.noting.lock().await;
    let mut outcome = begin(app).await;
    let now = app.clock.now();
    let tokens = app.uses.due_tokens(now);
    if !tokens.is_empty() {
        let noted = commit(app, batch(&[], &[], &tokens, now)).await;
        if noted.is_ok() {
            app.uses.tokens_noted(&tokens);
        }
        outcome = outcome.and(noted);
    }
    for some in app.uses.due().chunks(SECRETS_PER_BATCH) {
        let counts: Vec<u64> = some.iter().map(|(_, tally)| tally.pending()).collect();
        let noted = commit(app, batch(some, &counts, &[], now)).await;
        if noted.is_ok() {
            for ((_, tally), count) in some.iter().zip(counts) {
                tally.noted.fetch_add(count, Ordering::AcqRel);
            }
        }
        outcome = outcome.and(noted);
    }
    outcome
}

/// Where it is in doubt it was perhaps done; then it is counted twice. A use that is not counted would be worse.
async fn commit(app: &App, noted: Noted) -> Result<(), AppError> {
    app.store.commit(Batch(vec![Write::AddUses(Box::new(noted))])).await?;
    Ok(())
}

fn batch(some: &[(Box<str>, Arc<Tally>)], counts: &[u64], tokens: &[TokenUse], now: UnixMillis) -> Noted {
    let secrets = some.iter().zip(counts).map(|((id, tally), count)| SecretUses {
        secret_id: id.to_string(),
        minute: minute(now),
        uses: i64::try_from(*count).unwrap_or(i64::MAX),
        last_used_at: tally.last().unwrap_or(now),
    });
    let forget_before = minute(now) - KEPT_MINUTES;
    Noted { secrets: secrets.collect(), tokens: tokens.to_vec(), forget_before, noted_at: Some(now) }
}

/// How each of an application's secrets was used, in their order: what the store has and what this process has not noted yet.
/// Another node's uses of the last [`NOTE_EVERY`] are not in it.
pub async fn of_secrets(app: &App, secrets: &[SecretRow], now: UnixMillis) -> Result<Vec<Usage>, AppError> {
    let Some(first) = secrets.first() else { return Ok(Vec::new()) };
    let own: Vec<(u64, Option<UnixMillis>)> = secrets
        .iter()
        .map(|row| {
            let tally = app.uses.tally(&row.secret_id);
            let last = tally.last();
            // What waits for a store that was away for hours is of the last hour only if the last of it is.
            let is_recent = last.is_some_and(|last| now.0.saturating_sub(last.0) < HOUR_MS);
            (if is_recent { tally.pending() } else { 0 }, last)
        })
        .collect();
    let noted: HashMap<String, i64> =
        app.store.secret_uses(first.application, minute(now) - HOUR).await?.into_iter().collect();
    let counted_since = counted_since(app).await?;
    let usages = secrets.iter().zip(own).map(|(row, (pending, last))| Usage {
        counted_since,
        last_used_at: row.last_used_at.max(last),
        last_hour: noted
            .get(&row.secret_id)
            .copied()
            .unwrap_or(0)
            .saturating_add(i64::try_from(pending).unwrap_or(i64::MAX)),
    });
    Ok(usages.collect())
}

/// The last use of a token: what the store has, or what this process has seen since.
pub fn of_token(app: &App, row: &TokenRow) -> Option<UnixMillis> {
    let seen = app.uses.tokens().get(row.token_id.as_str()).map(|mark| mark.last);
    row.last_used_at.max(seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_noted_stays_pending_and_a_tally_that_is_noted_and_let_go_is_forgotten() {
        let uses = Uses::default();
        let tally = uses.tally("sec_1");
        for ms in 1..=3 {
            tally.one_more(UnixMillis(ms));
        }
        assert_eq!(uses.due().len(), 1);
        drop(tally);
        assert_eq!(uses.due().len(), 1, "nobody holds it, and it still has something to tell");
        let again = uses.tally("sec_1");
        assert_eq!((again.pending(), again.last()), (3, Some(UnixMillis(3))));
        again.noted.fetch_add(2, Ordering::AcqRel);
        assert_eq!(again.pending(), 1);
        again.noted.fetch_add(1, Ordering::AcqRel);
        drop(again);
        assert!(uses.due().is_empty());
        assert_eq!(uses.tally("sec_1").last(), None, "it was forgotten: the store knows");
    }

    #[test]
    fn a_tokens_use_is_written_at_once_and_then_at_most_once_a_minute() {
        let uses = Uses::default();
        let mut written = 0;
        for second in 0..300 {
            let now = UnixMillis(1_000_000 + second * 1_000);
            uses.token("tok_1", now);
            let due = uses.due_tokens(now);
            written += due.len();
            uses.tokens_noted(&due);
        }
        assert_eq!(written, 5, "five minutes of one call a second");
        let later = UnixMillis(1_000_000 + 300_000 + TOKEN_NOTE_MS);
        let due = uses.due_tokens(later);
        assert_eq!(due[0].last_used_at, UnixMillis(1_299_000), "the last use is written, too");
        uses.tokens_noted(&due);
        assert!(uses.due_tokens(later).is_empty());
        assert!(uses.tokens().is_empty(), "and then it is forgotten");
    }

    #[test]
    fn a_tokens_use_is_written_when_the_clock_that_noted_the_last_one_was_ahead() {
        let uses = Uses::default();
        for ms in [9_000_000, 1_000_000] {
            uses.token("tok_1", UnixMillis(ms));
            let due = uses.due_tokens(UnixMillis(ms));
            assert_eq!(due.len(), 1, "{ms}");
            uses.tokens_noted(&due);
        }
    }
}
