//! Operator tokens that are in use and about to end. Whoever calls with one, such as the platform's back end for each payment, is refused from one
//! moment to the next; so people are told of it days before.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use countersign_domain::ids::{SortedId, prefix};
use countersign_domain::time::{UnixMillis, rfc3339};
use countersign_store::contract::{Cursor, StoreError, TokenRow};
use countersign_store::{AnyStore, Store as _};
use tokio::sync::watch;
use tokio::time::timeout;

use super::{App, uses};

/// In how many days the first of the tokens in use ends.
const ENDS: &str = "countersign_operator_token_ends_in_days";
const DAY_MS: i64 = 86_400_000;
/// So long before its end people are told of a token, as of a certificate.
const SOON_MS: i64 = 14 * DAY_MS;
/// One that was used within this time is in use. So one that has ended is told of for as long, unless it is revoked.
const LATELY_MS: i64 = 7 * DAY_MS;
/// The longest life of a token, in days.
pub const LIFE_DAYS_MAX: i64 = 366;
/// How often a node looks, and how soon again where the store was away.
const LOOK_EVERY: Duration = Duration::from_secs(3_600);
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// Tokens that are read at once.
const PAGE: u32 = 500;
/// Pages that are read at the most: of more tokens in a year the newest are not looked at, which have their ends before them for longer.
const PAGES_MAX: u32 = 20;
/// Tokens that are named at the most, the first to end.
const NAMED_MAX: usize = 20;

/// A token in use that ends, or has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Its id.
    pub token_id: String,
    /// Its name for people.
    pub name: String,
    /// When it ends.
    pub end: UnixMillis,
}

impl Ending {
    /// Whether people are to be told of it.
    pub fn is_soon(&self, now: UnixMillis) -> bool {
        now >= self.end.plus_ms(-SOON_MS)
    }

    fn has_ended(&self, now: UnixMillis) -> bool {
        now >= self.end
    }

    /// What people are told of it.
    pub fn told(&self, now: UnixMillis) -> String {
        let Self { token_id, name, end } = self;
        let (ends, then) = if self.has_ended(now) {
            ("ended", "give whoever called with it another one, or revoke it where nobody does")
        } else {
            ("ends", "make its successor, give it to whoever calls with this one, then revoke this one")
        };
        format!("{token_id} ({name}) {ends} at {}: {then}", rfc3339(*end))
    }
}

/// The tokens that were used lately and have an end, the first to end first. `last_use`: of a token, as far as the caller knows.
pub async fn in_use(
    store: &AnyStore,
    now: UnixMillis,
    last_use: impl Fn(&TokenRow) -> Option<UnixMillis>,
) -> Result<Vec<Ending>, StoreError> {
    // What was made before that is over for longer than it would be told of.
    let oldest = now.plus_ms(-LIFE_DAYS_MAX * DAY_MS - LATELY_MS);
    let mut after = Some(format!("{}{}", prefix::TOKEN, SortedId::new(oldest, 0)));
    let mut endings = Vec::new();
    for _ in 0..PAGES_MAX {
        let rows = store.tokens(Cursor { after: after.take(), limit: PAGE }).await?;
        after = rows.last().filter(|_| rows.len() >= PAGE as usize).map(|row| row.token_id.clone());
        let in_use = rows
            .into_iter()
            .filter(|row| row.revoked_at.is_none() && last_use(row).is_some_and(|at| at >= now.plus_ms(-LATELY_MS)));
        endings.extend(
            in_use.filter_map(|row| row.expires_at.map(|end| Ending { token_id: row.token_id, name: row.name, end })),
        );
        if after.is_none() {
            break;
        }
    }
    endings.sort_by(|a, b| (a.end, &a.token_id).cmp(&(b.end, &b.token_id)));
    Ok(endings)
}

/// Those of them that people are to be told of.
pub fn soon(endings: &[Ending], now: UnixMillis) -> impl Iterator<Item = &Ending> {
    endings.iter().take_while(move |ending| ending.is_soon(now)).take(NAMED_MAX)
}

/// What was last said, by the id of the token: whether it had ended, and when that was said.
type Said = HashMap<String, (bool, UnixMillis)>;

/// Until the end: tells of tokens that end, at once and each day, and keeps the gauge. Every node of several does.
pub async fn watch(app: Arc<App>, mut ended: watch::Receiver<bool>) {
    metrics::describe_gauge!(ENDS, "In how many days the first of the operator tokens that were used lately ends");
    let mut said = Said::default();
    loop {
        let pause = match look(&app, &mut said).await {
            Ok(_) => LOOK_EVERY,
            Err(error) => {
                app.trouble.met(&format!("operator tokens that are about to end could not be looked for: {error}"));
                LOOK_AGAIN
            }
        };
        if timeout(pause, ended.wait_for(|ended| *ended)).await.is_ok() {
            return;
        }
    }
}

/// Looks once. How many tokens the log was told of.
async fn look(app: &App, said: &mut Said) -> Result<usize, StoreError> {
    let now = app.clock.now();
    let endings = in_use(&app.store, now, |row| uses::of_token(app, row)).await?;
    // Where none is in use, as if one had just been made.
    let first = endings.first().map_or(now.plus_ms(LIFE_DAYS_MAX * DAY_MS), |first| first.end);
    metrics::gauge!(ENDS).set(days_between(now, first));
    let mut told = 0;
    let mut still = Said::default();
    for ending in soon(&endings, now) {
        let (Ending { token_id, name, .. }, has_ended) = (ending, ending.has_ended(now));
        let before = said.get(token_id).filter(|(ended, at)| *ended == has_ended && now < at.plus_ms(DAY_MS));
        if before.is_none() {
            tracing::warn!(%token_id, %name, "The operator token {}", ending.told(now));
            told += 1;
        }
        still.insert(token_id.clone(), before.copied().unwrap_or((has_ended, now)));
    }
    *said = still;
    Ok(told)
}

#[expect(clippy::cast_precision_loss, reason = "a gauge of days needs no exact milliseconds")]
fn days_between(now: UnixMillis, end: UnixMillis) -> f64 {
    (end.0 - now.0) as f64 / DAY_MS as f64
}

#[cfg(test)]
mod tests {
    use countersign_store::contract::Role;

    use super::*;
    use crate::app::fixtures::{Deployment, nobody};
    use crate::app::operators::{NewToken, TokenDigest, authenticate, create_token, revoke_token};
    use crate::meters;

    const DAY_S: i64 = DAY_MS / 1_000;

    async fn token(app: &App, name: &str, days: i64) -> (String, TokenDigest) {
        let ask = NewToken { name: name.to_owned(), role: Role::Operator, life_s: days * DAY_S };
        let made = create_token(app, &ask, &|_| None, &nobody()).await.expect("is made");
        (made.row.token_id, TokenDigest::of(made.plain.expose()))
    }

    async fn use_once(app: &App, digest: &TokenDigest) {
        assert!(authenticate(app, digest).await.expect("answers").is_some());
    }

    fn gauge() -> f64 {
        let seen = meters::install().expect("meters").render();
        let value = seen.lines().find_map(|line| line.strip_prefix(ENDS)?.strip_prefix(' ')?.parse().ok());
        value.expect("it is there from the first look on")
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_token_in_use_that_is_about_to_end_is_told_of_each_day_until_it_is_revoked() {
        meters::install().expect("meters");
        for deployment in Deployment::on_each_store().await {
            let (app, mut said) = (deployment.open().await, Said::default());
            let look = async |said: &mut Said| look(&app, said).await.expect("looks");
            token(&app, "unused", 10).await;
            assert_eq!((look(&mut said).await, gauge()), (0, 366.0), "nobody uses one");
            let (id, back_end) = token(&app, "back end", 90).await;
            let (_, other) = token(&app, "till", 200).await;
            use_once(&app, &other).await;
            use_once(&app, &back_end).await;
            assert_eq!((look(&mut said).await, gauge()), (0, 90.0));

            app.clock.advance_ms(76 * DAY_MS - 1);
            use_once(&app, &back_end).await;
            assert_eq!(look(&mut said).await, 0, "two weeks and a moment are left");
            app.clock.advance_ms(1);
            assert_eq!((look(&mut said).await, gauge()), (1, 14.0));
            assert_eq!(look(&mut said).await, 0, "it was said");
            app.clock.advance_ms(DAY_MS);
            assert_eq!((look(&mut said).await, gauge()), (1, 13.0), "and is said each day");
            // As another node, or `doctor`, sees it.
            uses::note(&app).await.expect("noted");
            let now = app.clock.now();
            let seen = in_use(&app.store, now, |row| row.last_used_at).await.expect("reads");
            let [first] = seen.as_slice() else { panic!("the other one was not used lately: {seen:?}") };
            let told = first.told(now);
            assert!(told.starts_with(&format!("{id} (back end) ends at ")), "{told}");

            app.clock.advance_ms(7 * DAY_MS);
            assert_eq!((look(&mut said).await, gauge()), (0, 366.0), "nobody has used it for a week");
            use_once(&app, &back_end).await;
            assert_eq!((look(&mut said).await, gauge()), (1, 6.0));
            app.clock.advance_ms(6 * DAY_MS);
            assert_eq!((look(&mut said).await, gauge()), (1, 0.0), "it has ended");
            revoke_token(&app, &id, &|_| None, &nobody()).await.expect("is revoked");
            assert_eq!((look(&mut said).await, gauge()), (0, 366.0));
            Deployment::close(&app);
        }
    }
}
