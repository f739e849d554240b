//! The merchant's own pull of events.

use std::sync::Arc;

use countersign_store::Store as _;
use countersign_store::contract::{ApplicationRow, EventRow};

use super::App;
use super::concurrency_limit::ConcurrencyPermit;
use super::error::AppError;
use super::long_pages::with_room;
use super::turns::{TurnKey, read_in_turn};

/// A page of an application's own events.
#[derive(Debug)]
pub struct Pulled {
    /// In order of `seq`, without a gap.
    pub events: Vec<EventRow>,
    /// What to send as `after` next time.
    pub next: i64,
    /// Of a page that is long, until it is read.
    pub place: Option<Box<ConcurrencyPermit>>,
}

const CROWDED: &str = "other pulls of this application are being read; ask for one after the other";

/// Events of this application with `seq` greater than `after`, delivered or not. However many pulls an application sends, one of them is read at a
/// time, so that another application's pull waits behind one and not behind all.
pub async fn pull(app: &Arc<App>, of: &ApplicationRow, after: i64, limit: u32) -> Result<Pulled, AppError> {
    let (tenant, no) = (of.tenant, of.no);
    let read = move |app: Arc<App>| async move { app.store.events_after(tenant, no, after, limit).await };
    let mut events = read_in_turn(app, TurnKey::Pull(no), CROWDED, read).await?;
    match events.first() {
        // What is missing here is no longer kept, or was lost with what came after a backup.
        Some(first) if first.seq > after.saturating_add(1) => Err(AppError::EventsGone { oldest: first.seq }),
        Some(first) => {
            // Where numbers were left out by a restore the page ends, so that the next one says so.
            let expected = (first.seq..).zip(&events).take_while(|(seq, event)| event.seq == *seq).count();
            events.truncate(expected);
            let place = with_room(app, tenant, &mut events, |event| event.body.len() + event.data.len());
            let next = events.last().map_or(after, |last| last.seq);
            Ok(Pulled { events, next, place })
        }
        None => Ok(Pulled { events, next: after, place: None }),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::task::JoinSet;

    use super::*;
    use crate::app::fixtures::{Deployment, application, happens};

    #[tokio::test]
    async fn who_sends_many_pulls_at_once_has_one_read_at_a_time_and_others_come_between() {
        const MANY: usize = 60;
        let deployment = Deployment::on_sqlite().await;
        let app = deployment.open().await;
        let mut of = Vec::new();
        for name in ["eager", "quiet"] {
            let client_id = application(&app, name, None).await;
            happens(&app, &client_id).await;
            of.push(app.store.application(&client_id).await.expect("reads").expect("is there").application);
        }
        let [eager, quiet] = <[ApplicationRow; 2]>::try_from(of).expect("two applications");
        // One of them is being read.
        let reading = app.turns.take(TurnKey::Pull(eager.no)).await;
        let read = Arc::new(AtomicUsize::new(0));
        let mut pulls = JoinSet::new();
        for _ in 0..MANY {
            let (app, of, read) = (Arc::clone(&app), eager.clone(), Arc::clone(&read));
            pulls.spawn(async move {
                // Who has waited for too long is told so, and asks again.
                loop {
                    match pull(&app, &of, 0, 500).await {
                        Err(AppError::Crowded(_)) => {}
                        found => {
                            read.fetch_add(1, Ordering::Relaxed);
                            return found.expect("it has its turn").events.len();
                        }
                    }
                }
            });
        }
        // All of them have asked.
        tokio::task::yield_now().await;
        let found = pull(&app, &quiet, 0, 500).await.expect("it has a place");
        assert_eq!((found.events.len(), read.load(Ordering::Relaxed)), (1, 0), "one of the others is read at a time");
        drop(reading);
        assert_eq!(pulls.join_all().await, vec![1; MANY]);
        Deployment::close(&app);
    }
}
