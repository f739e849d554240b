//! Answers of operator calls, kept for their idempotency keys.

use std::time::{Duration, Instant};

use countersign_domain::time::UnixMillis;
use countersign_store::Store;
use countersign_store::batch::{ANSWERS_FORGOTTEN_MAX, Batch, Write};
use countersign_store::contract::{IdempotencyRow, NewAnswer};
use tokio::time::sleep;

use super::App;
use super::error::AppError;

/// Portions of answers that are forgotten at once: half a million answers, so that nonces do not wait long for their turn.
const ANSWER_PORTIONS_MAX: u32 = 100;
/// Between two portions, so that other writers get their turn.
const ANSWER_PORTIONS_PAUSE: Duration = Duration::from_millis(20);

/// A kept answer for what is made of a `T`; none where the caller sent no key.
pub type Keep<'a, T> = dyn Fn(&T) -> Option<NewAnswer> + Send + Sync + 'a;

/// The write that keeps the answer for `made`, if one is to be kept.
pub fn kept<T>(keep: &Keep<'_, T>, made: &T) -> Option<Write> {
    keep(made).map(|answer| Write::RememberAnswer(Box::new(answer)))
}

/// A write call that may be repeated: who asked what, under which key.
#[derive(Clone, Debug)]
pub struct Keyed {
    /// Token and route.
    pub scope: String,
    /// The caller's key.
    pub key: String,
    /// SHA-256 of the body.
    pub body_digest: [u8; 32],
    /// When it came.
    pub at: UnixMillis,
}

impl Keyed {
    /// What keeps `answer` (its secrets null). A key that has ended does not stand in the way of its next use.
    pub fn answered(&self, app: &App, answer: String) -> NewAnswer {
        let row = IdempotencyRow {
            scope: self.scope.clone(),
            key: self.key.clone(),
            body_digest: self.body_digest,
            status: 200,
            answer,
            created_at: self.at,
        };
        NewAnswer { row, ended_before: self.ended_before(app) }
    }

    /// Answers that were kept before this instant have ended when this call comes.
    fn ended_before(&self, app: &App) -> UnixMillis {
        UnixMillis(self.at.0.saturating_sub(life_ms(app)).saturating_add(1))
    }
}

fn life_ms(app: &App) -> i64 {
    i64::try_from(app.policy.idempotency_life.as_millis()).unwrap_or(i64::MAX).max(1)
}

/// The answer that was kept for the same call; none where it is the first. The same key with another body is refused.
pub async fn recall(app: &App, call: &Keyed) -> Result<Option<IdempotencyRow>, AppError> {
    let found = app.store.remembered(&call.scope, &call.key).await?;
    let Some(row) = found.filter(|row| row.created_at >= call.ended_before(app)) else { return Ok(None) };
    if row.body_digest == call.body_digest { Ok(Some(row)) } else { Err(AppError::IdempotencyKeyReused) }
}

/// Forgets answers whose life was over at `now`, portion by portion; called by housekeeping. What is left then the next call finds.
pub async fn forget_answers(app: &App, now: UnixMillis) -> Result<(), AppError> {
    let kept_before = UnixMillis(now.0.saturating_sub(life_ms(app)));
    for _ in 0..ANSWER_PORTIONS_MAX {
        let began = Instant::now();
        let done = app.store.commit(Batch(vec![Write::ForgetAnswers { kept_before }])).await?;
        if done.answers_forgotten < ANSWERS_FORGOTTEN_MAX {
            break;
        }
        // As long again for the changes of others.
        sleep(began.elapsed().max(ANSWER_PORTIONS_PAUSE)).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use countersign_store::batch::{Conflict, Key};
    use countersign_store::contract::CommitError;

    use super::*;
    use crate::app::fixtures::Deployment;
    use crate::config::Period;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_key_stands_for_its_call_over_midnight_and_a_change_of_the_setting_and_not_longer() {
        const DAY_MS: i64 = 86_400_000;
        // A moment before midnight.
        let midnight = UnixMillis(20_000 * DAY_MS);
        let call = |ms: i64, body| Keyed {
            scope: "tok_1\nPOST /merchants".to_owned(),
            key: "k".to_owned(),
            body_digest: [body; 32],
            at: midnight.plus_ms(ms),
        };
        let mut deployment = Deployment::on_sqlite().await.at(midnight);
        let app = deployment.open().await;
        let keep = async |app: &App, call: &Keyed| {
            let write = Write::RememberAnswer(Box::new(call.answered(app, format!("{}", call.at.0))));
            app.store.commit(Batch(vec![write])).await
        };
        let told = async |app: &App, ms| {
            recall(app, &call(ms, 1)).await.expect("answers").map(|row| row.created_at.0 - midnight.0)
        };
        // It came behind the next one, as it may on another node.
        keep(&app, &call(1, 1)).await.expect("is kept");
        assert_eq!(told(&app, -1).await, Some(1));
        let taken = keep(&app, &call(-1, 1)).await;
        assert!(matches!(taken, Err(CommitError::Conflict(Conflict::Taken(Key::Idempotency)))), "{taken:?}");
        assert!(matches!(recall(&app, &call(2, 9)).await, Err(AppError::IdempotencyKeyReused)));
        assert_eq!([told(&app, DAY_MS).await, told(&app, DAY_MS + 1).await], [Some(1), None]);
        Deployment::close(&app);
        deployment.config.idempotency_life = Period(Duration::from_secs(2 * 86_400));
        let longer = deployment.open().await;
        assert_eq!([told(&longer, 2 * DAY_MS).await, told(&longer, 2 * DAY_MS + 1).await], [Some(1), None]);
        keep(&longer, &call(2 * DAY_MS + 1, 9)).await.expect("its next use");
        assert!(matches!(recall(&longer, &call(2 * DAY_MS + 2, 1)).await, Err(AppError::IdempotencyKeyReused)));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn all_answers_whose_life_is_over_are_forgotten_at_once_and_no_others() {
        const DAY_MS: i64 = 86_400_000;
        let deployment = Deployment::on_sqlite().await.at(UnixMillis(20_000 * DAY_MS));
        let app = deployment.open().await;
        let now = app.clock.now();
        let kept = |n: usize, at: UnixMillis| {
            let scope = "tok_1\nPOST /merchants".to_owned();
            let call = Keyed { scope, key: format!("k{n}"), body_digest: [1; 32], at };
            Write::RememberAnswer(Box::new(call.answered(&app, String::new())))
        };
        let count = 2 * ANSWERS_FORGOTTEN_MAX + 2;
        let old = (0..count).map(|n| kept(n, now.plus_ms(-DAY_MS - 1)));
        let writes = old.chain([kept(count, now.plus_ms(-DAY_MS))]).collect();
        app.store.commit(Batch(writes)).await.expect("are kept");
        forget_answers(&app, now).await.expect("forgets");
        let last = app.store.commit(Batch(vec![Write::ForgetAnswers { kept_before: now }])).await.expect("answers");
        assert_eq!(last.answers_forgotten, 1, "the one whose life ends now was there");
    }
}
