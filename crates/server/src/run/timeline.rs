//! Which server of a shared database a node has served with, noted in its data folder. After a failover the server before may come back and take writes, and
//! be the only one that answers when the node starts again: nothing on it tells that another one took over.

use std::sync::Arc;

use countersign_store::AnyStore;
use countersign_store::postgres::{NotedOffice, Office};
use tokio::sync::watch;

use crate::app::App;
use crate::datadir::{DataDir, DataRefused};

/// What is noted in a data folder.
pub(super) fn served(data: &DataDir) -> Result<Option<NotedOffice>, DataRefused> {
    let office = data.timeline_seen()?.map(|(cluster, timeline)| Office { cluster, timeline });
    Ok(office.map(|office| NotedOffice { office, noted_in: data.timeline_file() }))
}

/// Notes the server that is in office now, where another one is noted. Without the note the node serves as well.
fn note(data: &DataDir, store: &AnyStore) {
    let AnyStore::Postgres(store) = store else { return };
    let Some(office) = store.office() else { return };
    let is_noted = matches!(served(data), Ok(Some(served)) if served.office == office);
    if !is_noted && let Err(error) = data.note_timeline(&office.cluster, office.timeline) {
        let error = anyhow::Error::from(error);
        tracing::warn!(
            "The timeline of the database cannot be noted in the data folder: {error:#}. A start after a failover would not know a server that was left behind"
        );
    }
}

/// Notes it, and each one that takes over, until the end.
pub(super) async fn watch(app: Arc<App>, data: DataDir, mut ended: watch::Receiver<bool>) {
    let AnyStore::Postgres(store) = &app.store else { return };
    let mut terms = store.terms();
    loop {
        let (noting, data) = (Arc::clone(&app), data.clone());
        // Nobody waits for the disk here but this.
        let _ = tokio::task::spawn_blocking(move || note(&data, &noting.store)).await;
        tokio::select! {
            _ = ended.wait_for(|ended| *ended) => return,
            changed = terms.changed() => if changed.is_err() { return },
        }
    }
}
