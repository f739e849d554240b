//! What a failover of the database could lose, in words: for the log of `serve`, for `doctor`, for `/metrics`.

use std::sync::Arc;
use std::time::Duration;

use countersign_store::AnyStore;
use countersign_store::postgres::Durability;
use metrics::gauge;
use tokio::sync::watch;

use crate::app::App;

/// How often the database is asked.
const PERIOD: Duration = Duration::from_secs(60);

/// What there is to say about one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// As it should be, or a plain fact.
    Fine(String),
    /// Something acknowledged may be lost, or is held up.
    Warning(String),
}

/// What there is to say, the most important first; never empty.
pub fn words(found: &Durability) -> Vec<Word> {
    let mut words = Vec::new();
    if !found.fsync {
        words.push(Word::Warning(
            "fsync is off in the database: acknowledged changes may be lost, and the database with them, when its machine goes down"
                .to_owned(),
        ));
    }
    if !found.full_page_writes {
        words.push(Word::Warning(
            "full_page_writes is off in the database: a crash of its machine may damage it, unless its file system never leaves a page half written"
                .to_owned(),
        ));
    }
    words.push(of_standbys(found));
    if matches!(found.synchronous_commit.as_str(), "off" | "local" | "remote_write") {
        words.push(Word::Fine(format!(
            "synchronous_commit is {} for this role or database; every session here sets it to on",
            found.synchronous_commit
        )));
    }
    words
}

fn of_standbys(found: &Durability) -> Word {
    let Durability { standbys, synchronous, .. } = found;
    let count = if *standbys == 1 { "1 standby".to_owned() } else { format!("{standbys} standbys") };
    if found.is_hidden {
        return Word::Warning(format!(
            "{count} connected, but this role may not see whether commits wait for any: run `GRANT pg_monitor TO` it"
        ));
    }
    match (*standbys, found.is_demanded, *synchronous) {
        (0, false, _) => Word::Fine("there is no standby: what the database's machine loses is lost".to_owned()),
        (0, true, _) => Word::Warning(
            "synchronous_standby_names asks for a standby and none is connected: changes wait until one is".to_owned(),
        ),
        (_, false, _) => Word::Warning(format!(
            "{count} connected and none is synchronous: acknowledged changes may be lost in a failover; \
             set synchronous_standby_names, to 'ANY 1 (*)' for example"
        )),
        (_, true, 0) => Word::Warning(format!(
            "{count} connected and none is synchronous: acknowledged changes may be lost in a failover to it, and changes wait; \
             name it in synchronous_standby_names"
        )),
        (_, true, _) => Word::Fine(format!("{count} connected, {synchronous} of them synchronous")),
    }
}

/// Until the end: asks the database each minute, and logs what changed.
pub(super) async fn watch(app: Arc<App>, mut ended: watch::Receiver<bool>) {
    let AnyStore::Postgres(store) = &app.store else { return };
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut said = Vec::new();
    loop {
        let asked = async {
            ticks.tick().await;
            store.durability().await
        };
        let found = tokio::select! {
            _ = ended.wait_for(|ended| *ended) => return,
            found = asked => found,
        };
        // One that is away is what `/readyz` is for.
        let Ok(found) = found else { continue };
        for (kind, count) in
            [("synchronous", found.synchronous), ("asynchronous", found.standbys.saturating_sub(found.synchronous))]
        {
            gauge!("countersign_database_standbys", "kind" => kind)
                .set(f64::from(i32::try_from(count).unwrap_or(i32::MAX)));
        }
        let words = words(&found);
        for word in words.iter().filter(|word| !said.contains(*word)) {
            match word {
                Word::Fine(text) => tracing::info!("Database: {text}"),
                Word::Warning(text) => tracing::warn!("Database: {text}"),
            }
        }
        said = words;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(standbys: i64, synchronous: i64, is_hidden: bool, is_demanded: bool) -> Word {
        let found = Durability {
            standbys,
            synchronous,
            is_hidden,
            is_demanded,
            fsync: true,
            full_page_writes: true,
            synchronous_commit: "on".to_owned(),
        };
        let mut words = words(&found);
        assert_eq!(words.len(), 1);
        words.remove(0)
    }

    #[test]
    fn a_standby_that_commits_do_not_wait_for_is_a_warning_that_says_what_to_set() {
        for (found, text) in [
            (one(1, 0, false, false), "set synchronous_standby_names"),
            (one(2, 0, false, true), "name it in synchronous_standby_names"),
            (one(0, 0, false, true), "changes wait until one is"),
            (one(1, 0, true, false), "GRANT pg_monitor"),
        ] {
            assert!(matches!(&found, Word::Warning(said) if said.contains(text)), "{found:?}");
        }
    }

    #[test]
    fn a_synchronous_standby_and_none_at_all_are_facts() {
        assert_eq!(one(2, 1, false, true), Word::Fine("2 standbys connected, 1 of them synchronous".to_owned()));
        assert!(matches!(one(0, 0, false, false), Word::Fine(said) if said.contains("there is no standby")));
    }

    #[test]
    fn a_server_that_does_not_wait_for_its_disk_or_keep_its_pages_whole_is_a_warning_and_weak_commits_are_told() {
        let found = Durability {
            standbys: 0,
            synchronous: 0,
            is_hidden: false,
            is_demanded: false,
            fsync: false,
            full_page_writes: false,
            synchronous_commit: "local".to_owned(),
        };
        let words = words(&found);
        assert!(matches!(&words[0], Word::Warning(said) if said.contains("fsync is off")), "{words:?}");
        assert!(matches!(&words[1], Word::Warning(said) if said.contains("full_page_writes is off")), "{words:?}");
        assert!(matches!(&words[3], Word::Fine(said) if said.contains("synchronous_commit is local")), "{words:?}");
    }
}
