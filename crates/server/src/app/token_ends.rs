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

/// In how many days the first of the tokens in use ends that are live and not short-lived.
const ENDS: &str = "countersign_operator_token_ends_in_days";
const DAY_MS: i64 = 86_400_000;
/// So long before its end people are told of a token, as of a certificate.
const SOON_MS: i64 = 14 * DAY_MS;
/// Of a token that was made for less, in the last quarter of its life: whoever makes one for a day is not told of it all day.
const SOON_PART: i64 = 4;
/// One that was used within this time is in use. So one that has ended is told of for as long, unless it is revoked.
const LATELY_MS: i64 = 7 * DAY_MS;
/// The longest life of a token, in days.
pub const LIFE_DAYS_MAX: i64 = 366;
/// How often a node looks, and how soon again where the store was away.
const LOOK_EVERY: Duration = Duration::from_secs(3_600);
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// Tokens that are read at once.
const PAGE: u32 = 500;
/// Pages that are read at the most. The store lists the oldest first, so of more tokens in a year the newest are not looked at, and those may be the
/// ones that are called with: whoever looks says so.
const PAGES_MAX: u32 = 20;
/// Tokens that are named at the most of those that end, and as many of those that have ended.
const NAMED_MAX: usize = 20;

/// A token in use that ends, or has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Its id.
    pub token_id: String,
    /// Its name for people.
    pub name: String,
    /// When it was made.
    pub made: UnixMillis,
    /// When it ends.
    pub end: UnixMillis,
}

impl Ending {
    /// Whether people are to be told of it.
    pub fn is_soon(&self, now: UnixMillis) -> bool {
        now >= self.end.plus_ms(-SOON_MS.min(self.life_ms() / SOON_PART))
    }

    fn life_ms(&self) -> i64 {
        self.end.0.saturating_sub(self.made.0)
    }

    /// Whether the gauge is reckoned of it. One that has ended would hide the one that ends tomorrow, and one that was made for days would raise the
    /// alert all its life. What is within the alert's bound is what the log names.
    fn counts(&self, now: UnixMillis) -> bool {
        let is_far = now < self.end.plus_ms(-SOON_MS);
        !self.has_ended(now) && self.life_ms() > SOON_MS && (is_far || self.is_soon(now))
    }

    fn has_ended(&self, now: UnixMillis) -> bool {
        now >= self.end
    }

    /// What people are told of it.
    pub fn told(&self, now: UnixMillis) -> String {
        let Self { token_id, name, end, .. } = self;
        let (ends, then) = if self.has_ended(now) {
            ("ended", "give whoever called with it another one, or revoke it where nobody does")
        } else {
            ("ends", "make its successor, give it to whoever calls with this one, then revoke this one")
        };
        format!("{token_id} ({name}) {ends} at {}: {then}", rfc3339(*end))
    }
}

/// What was seen of the tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Those that were used lately and have an end, the first to end first.
    pub endings: Vec<Ending>,
    /// There are more tokens than are read, and the newest were not looked at.
    pub is_cut_off: bool,
}

impl Seen {
    /// Those that people are to be told of: first those that end, the first to end first; then those that have ended, the last one first.
    pub fn soon(&self, now: UnixMillis) -> impl Iterator<Item = &Ending> {
        let ends = self.endings.iter().filter(move |ending| !ending.has_ended(now) && ending.is_soon(now));
        let ended = self.endings.iter().rev().filter(move |ending| ending.has_ended(now));
        ends.take(NAMED_MAX).chain(ended.take(NAMED_MAX))
    }

    /// What people are told where not all tokens were looked at.
    pub fn cut_off(&self) -> Option<String> {
        let read = PAGE * PAGES_MAX;
        let told = || {
            format!(
                "more than {read} were made within a year: whether one of the newest is about to end was not looked at"
            )
        };
        self.is_cut_off.then(told)
    }
}

/// Looks at the tokens. `last_use`: of a token, as far as the caller knows.
pub async fn in_use(
    store: &AnyStore,
    now: UnixMillis,
    last_use: impl Fn(&TokenRow) -> Option<UnixMillis>,
) -> Result<Seen, StoreError> {
    // What was made before that is over for longer than it would be told of.
    let oldest = now.plus_ms(-LIFE_DAYS_MAX * DAY_MS - LATELY_MS);
    let mut endings = Vec::new();
    let is_cut_off = each_since(store, oldest, (PAGE, PAGES_MAX), |row| {
        let is_in_use = row.revoked_at.is_none() && last_use(&row).is_some_and(|at| at >= now.plus_ms(-LATELY_MS));
        if let Some(end) = row.expires_at.filter(|_| is_in_use) {
            endings.push(Ending { token_id: row.token_id, name: row.name, made: row.created_at, end });
        }
    });
    let is_cut_off = is_cut_off.await?;
    endings.sort_by(|a, b| (a.end, &a.token_id).cmp(&(b.end, &b.token_id)));
    Ok(Seen { endings, is_cut_off })
}

/// Takes each token that was made since then, the oldest first, as far as so many pages of so many go. Whether there are more.
async fn each_since(
    store: &AnyStore,
    oldest: UnixMillis,
    (page, pages_max): (u32, u32),
    mut take: impl FnMut(TokenRow),
) -> Result<bool, StoreError> {
    let mut after = Some(format!("{}{}", prefix::TOKEN, SortedId::new(oldest, 0)));
    for _ in 0..pages_max {
        let rows = store.tokens(Cursor { after: after.take(), limit: page }).await?;
        after = rows.last().filter(|_| rows.len() >= page as usize).map(|row| row.token_id.clone());
        rows.into_iter().for_each(&mut take);
        if after.is_none() {
            return Ok(false);
        }
    }
    Ok(!store.tokens(Cursor { after, limit: 1 }).await?.is_empty())
}

/// What was last said, by the id of the token: whether it had ended, and when that was said.
type Said = HashMap<String, (bool, UnixMillis)>;

/// Until the end: tells of tokens that end, at once and each day, and keeps the gauge. Every node of several does.
pub async fn watch(app: Arc<App>, mut ended: watch::Receiver<bool>) {
    metrics::describe_gauge!(
        ENDS,
        "In how many days the first of the live operator tokens that were used lately ends, but for short-lived ones"
    );
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
    let seen = in_use(&app.store, now, |row| uses::of_token(app, row)).await?;
    if let Some(cut_off) = seen.cut_off() {
        tracing::warn!("Not all operator tokens are looked at: {cut_off}");
    }
    // Where none is in use, as if one had just been made.
    let first = seen.endings.iter().find(|ending| ending.counts(now));
    let first = first.map_or(now.plus_ms(LIFE_DAYS_MAX * DAY_MS), |first| first.end);
    metrics::gauge!(ENDS).set(days_between(now, first));
    let mut told = 0;
    let mut still = Said::default();
    for ending in seen.soon(now) {
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
            let [first] = seen.endings.as_slice() else { panic!("the other one was not used lately: {seen:?}") };
            let told = first.told(now);
            assert!(told.starts_with(&format!("{id} (back end) ends at ")), "{told}");

            app.clock.advance_ms(7 * DAY_MS);
            assert_eq!((look(&mut said).await, gauge()), (0, 366.0), "nobody has used it for a week");
            use_once(&app, &back_end).await;
            assert_eq!((look(&mut said).await, gauge()), (1, 6.0));
            app.clock.advance_ms(6 * DAY_MS);
            assert_eq!((look(&mut said).await, gauge()), (1, 366.0), "it has ended, and is told of still");
            revoke_token(&app, &id, &|_| None, &nobody()).await.expect("is revoked");
            assert_eq!((look(&mut said).await, gauge()), (0, 366.0));
            Deployment::close(&app);
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_short_lived_token_is_told_of_in_its_last_quarter_and_neither_it_nor_an_ended_one_moves_the_gauge() {
        meters::install().expect("meters");
        for deployment in Deployment::on_each_store().await {
            let (app, mut said) = (deployment.open().await, Said::default());
            let look = async |said: &mut Said| look(&app, said).await.expect("looks");
            for (name, days) in [("script", 1), ("long", 15), ("fortnight", 14)] {
                use_once(&app, &token(&app, name, days).await.1).await;
            }
            assert_eq!((look(&mut said).await, gauge()), (0, 15.0), "none is in its last quarter");
            app.clock.advance_ms(DAY_MS * 3 / 4 - 1);
            assert_eq!(look(&mut said).await, 0);
            app.clock.advance_ms(1);
            assert_eq!(look(&mut said).await, 1, "six hours of the day are left");
            app.clock.advance_ms(DAY_MS / 4);
            assert_eq!(
                (look(&mut said).await, gauge()),
                (1, 366.0),
                "it has ended, and none of the others is to be told of"
            );
            let seen = in_use(&app.store, app.clock.now(), |row| uses::of_token(&app, row)).await.expect("reads");
            assert!(!seen.is_cut_off && seen.cut_off().is_none(), "{seen:?}");
            app.clock.advance_ms(8 * DAY_MS);
            assert_eq!((look(&mut said).await, gauge()), (0, 366.0), "none was used for a week");
            let (_, month) = token(&app, "month", 28).await;
            use_once(&app, &month).await;
            assert_eq!((look(&mut said).await, gauge()), (0, 28.0));
            app.clock.advance_ms(14 * DAY_MS);
            use_once(&app, &month).await;
            assert_eq!((look(&mut said).await, gauge()), (0, 366.0), "half of its life is left");
            app.clock.advance_ms(7 * DAY_MS);
            use_once(&app, &month).await;
            assert_eq!((look(&mut said).await, gauge()), (1, 7.0), "what the alert is of is what the log names");
            Deployment::close(&app);
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_does_not_look_at_all_tokens_knows_it() {
        for deployment in Deployment::on_each_store().await {
            let app = deployment.open().await;
            let oldest = app.clock.now().plus_ms(-1);
            for name in ["a", "b", "c", "d"] {
                app.clock.advance_ms(1);
                token(&app, name, 90).await;
            }
            for (pages, wanted) in
                [((2, 1), ("ab", true)), ((2, 2), ("abcd", false)), ((3, 1), ("abc", true)), ((3, 2), ("abcd", false))]
            {
                let mut seen = String::new();
                let is_cut_off = each_since(&app.store, oldest, pages, |row| seen.push_str(&row.name)).await;
                assert_eq!((seen.as_str(), is_cut_off.expect("reads")), wanted, "{pages:?}");
            }
            Deployment::close(&app);
        }
    }

    #[test]
    fn those_that_end_are_named_before_those_that_have_ended_and_neither_crowds_the_others_out() {
        let now = UnixMillis(1_767_225_600_000);
        let ending = |days: i64| {
            let (name, end) = (days.to_string(), now.plus_ms(days * DAY_MS));
            Ending { token_id: format!("t{days}"), name, made: end.plus_ms(-90 * DAY_MS), end }
        };
        let mut seen = Seen { endings: (-30..=15).map(ending).collect(), is_cut_off: true };
        let named = |seen: &Seen| seen.soon(now).map(|ending| ending.name.clone()).collect::<Vec<_>>();
        let wanted = (1..=14).chain((-19..=0).rev()).map(|days| days.to_string());
        assert_eq!(named(&seen), wanted.collect::<Vec<_>>());
        seen.endings = (1..=60).map(|_| ending(3)).collect();
        assert_eq!(named(&seen).len(), NAMED_MAX);
        assert!(seen.cut_off().is_some_and(|told| told.starts_with("more than 10000 were made within a year")));
        // The last quarter of a day.
        let day = Ending { made: now, ..ending(1) };
        let told = [18, 17].map(|hours| day.is_soon(now.plus_ms(hours * 3_600_000)));
        assert_eq!(told, [true, false]);
    }
}
