//! Numbers of events and orders that no two nodes of a deployment draw in the same millisecond.
//!
//! A number is a time and some chance, and in its midst the slot of the process that drew it. A shared store counts the starts of processes in a
//! setting, and a process has the slot of its start; one that has seen half a round of others go by takes a new one. So two have the same
//! slot only where so many were started within seconds, and then draw the same number only by chance.

use countersign_store::Store as _;
use countersign_store::batch::{Batch, Write};
use countersign_store::contract::CommitError;

use super::App;
use super::error::AppError;
use crate::chance::SLOTS;

/// How many processes have taken a slot so far. A setting.
const SLOTS_TAKEN: &str = "slots_taken";
/// A slot that nobody counted: farther from every count than half a round.
const BY_CHANCE: u64 = 1 << 63;
/// How often it is tried again because other nodes take one, too.
const TRIES_MAX: usize = 100;

/// Takes a slot before the first number is drawn. Where the store takes no changes just then, it is one by chance until it takes some.
pub async fn begin(app: &App) {
    if let Err(error) = take(app).await {
        app.chance.has_slot(BY_CHANCE | app.chance.bits64());
        tracing::warn!(%error, "No slot of numbers could be taken, so one was drawn; it is tried again shortly");
    }
}

/// Takes the next slot, where others may draw numbers as well.
async fn take(app: &App) -> Result<(), AppError> {
    if !app.store.is_shared() {
        return Ok(());
    }
    for _ in 0..TRIES_MAX {
        let (before, taken) = taken(app).await?;
        let next = Write::MoveSetting { name: SLOTS_TAKEN.to_owned(), from: before, to: (taken + 1).to_string() };
        match app.store.commit(Batch(vec![next])).await {
            Ok(_) => {
                app.chance.has_slot(taken);
                return Ok(());
            }
            Err(CommitError::Conflict(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(AppError::Busy)
}

/// Takes a new one before its own comes round again.
pub async fn renew(app: &App) -> Result<(), AppError> {
    if !app.store.is_shared() {
        return Ok(());
    }
    let (_, taken) = taken(app).await?;
    if taken.wrapping_sub(app.chance.slot()) > SLOTS / 2 { take(app).await } else { Ok(()) }
}

/// What is noted, and how many that says.
async fn taken(app: &App) -> Result<(Option<String>, u64), AppError> {
    let noted = app.store.setting(SLOTS_TAKEN).await?;
    let taken = noted.as_deref().and_then(|noted| noted.parse().ok()).unwrap_or(0);
    Ok((noted, taken))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::app::fixtures::Deployment;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn processes_that_start_at_once_draw_numbers_of_their_own_and_long_lived_ones_make_way() {
        let deployment = Deployment::on_postgres().await;
        let mut apps = Vec::new();
        for _ in 0..4 {
            apps.push(deployment.open().await);
        }
        let taking: Vec<_> = apps.iter().cloned().map(|app| tokio::spawn(async move { take(&app).await })).collect();
        for taken in taking {
            taken.await.expect("ends").expect("has a slot");
        }
        let slots: HashSet<u64> = apps.iter().map(|app| app.chance.slot()).collect();
        assert_eq!(slots.len(), 4, "{slots:?}");

        let [first, other] = [&apps[0], &apps[1]];
        let slot = first.chance.slot();
        renew(first).await.expect("reads");
        assert_eq!(first.chance.slot(), slot, "nobody is near");
        for _ in 0..SLOTS / 2 {
            take(other).await.expect("has a slot");
        }
        renew(first).await.expect("takes another");
        assert_eq!(first.chance.slot(), other.chance.slot() + 1);

        let only = format!("name <> '{SLOTS_TAKEN}' OR value = '{}'", first.chance.slot() + 1);
        deployment.database().refuse_unless("setting", &only).await;
        begin(first).await;
        assert!(first.chance.slot() >= BY_CHANCE, "it serves all the same");
        assert!(renew(first).await.is_err(), "and goes on trying");
        for app in &apps {
            Deployment::close(app);
        }
    }
}
