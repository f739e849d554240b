//! Which servers of an address take writes. Asked of all of them before the first connection: after a failover the server before may have come back and take
//! writes, too, and nothing on it tells that another one took over.

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::{Client, Config, NoTls};

use super::dial::{Dial, connect};
use super::incumbent::{Office, one_row};
use super::tls::MakeTls;
use super::{PostgresOptions, PostgresStore};
use crate::contract::StoreError;

/// Two addresses may lead to one server: it has started once.
const STARTED: &str = "SELECT extract(epoch FROM pg_postmaster_start_time())";

/// A server that takes writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Writer {
    /// Which host of the address it is.
    pub(super) host: usize,
    place: String,
    pub(super) office: Office,
    started: String,
}

impl Writer {
    fn is(&self, other: &Self) -> bool {
        self.office == other.office && self.started == other.started
    }
}

/// Several servers that take writes, in words; none where a single server does.
fn split(writers: &[Writer]) -> Option<String> {
    let servers =
        writers.iter().enumerate().filter(|(at, writer)| !writers[..*at].iter().any(|before| before.is(writer)));
    let servers: Vec<&Writer> = servers.map(|(_, writer)| writer).collect();
    let (first, others) = servers.split_first()?;
    if others.is_empty() {
        return None;
    }
    let one_cluster = others.iter().all(|other| other.office.cluster == first.office.cluster);
    let words = |Writer { place, office: Office { cluster, timeline }, .. }: &&Writer| {
        if one_cluster {
            format!("{place} on timeline {timeline}")
        } else {
            format!("{place} of the cluster {cluster}")
        }
    };
    let servers: Vec<String> = servers.iter().map(words).collect();
    Some(format!("several servers of the address take writes: {}", servers.join(", ")))
}

/// Which of them to use: the only one, or that on the newest timeline. An error where nobody can tell.
fn newest(writers: &[Writer]) -> Result<Option<&Writer>, String> {
    let Some(newest) = writers.iter().max_by_key(|writer| writer.office.timeline) else { return Ok(None) };
    let rival = |other: &&Writer| {
        !newest.is(other)
            && (other.office.cluster != newest.office.cluster || other.office.timeline == newest.office.timeline)
    };
    match split(writers) {
        Some(split) if writers.iter().any(|other| rival(&other)) => Err(format!(
            "{split}, and none of them is the newer one: stop or fence the one that is not to be used, or name the right one alone"
        )),
        Some(_) | None => Ok(writers.iter().find(|writer| writer.is(newest))),
    }
}

async fn ask(config: &Config, tls: Option<MakeTls>) -> Option<(Office, String)> {
    let (client, _connection): (Client, _) = match tls {
        Some(tls) => connect(config, tls, std::sync::Arc::default()).await,
        None => connect(config, NoTls, std::sync::Arc::default()).await,
    }
    .ok()?;
    Some((Office::of(&client).await?, one_row(&client, STARTED).await?.get(0)?.to_owned()))
}

impl Dial {
    /// Those of its hosts that take writes and say who they are, in its order. When one has answered, the others have a little more time.
    async fn writers(&self) -> Vec<Writer> {
        let mut asking = JoinSet::new();
        for (host, config) in self.hosts().iter().enumerate() {
            let (config, tls) = (config.clone(), self.tls());
            asking.spawn(async move { (host, ask(&config, tls).await) });
        }
        let (mut writers, mut end) = (Vec::new(), Instant::now() + self.patience());
        while let Ok(Some(asked)) = timeout_at(end, asking.join_next()).await {
            let Ok((host, Some((office, started)))) = asked else { continue };
            end = end.min(Instant::now() + self.limits().call());
            writers.push(Writer { host, place: self.place_of(host), office, started });
        }
        writers.sort_by_key(|writer| writer.host);
        writers
    }

    /// The server to begin with, if there are several hosts and one of them takes writes. An error where nobody can tell which. `tells`: whether the log tells of
    /// one that was left behind and takes writes all the same.
    pub(super) async fn look_round(&self, tells: bool) -> Result<Option<Writer>, String> {
        if self.hosts().len() < 2 {
            return Ok(None);
        }
        let writers = self.writers().await;
        let newest = newest(&writers)?;
        if let (Some(newest), Some(split)) = (newest, split(&writers).filter(|_| tells)) {
            tracing::error!(
                "Two servers of the database take writes, and {} is used, on the newer timeline: {split}. Stop or fence the other at once",
                newest.place
            );
        }
        Ok(newest.cloned())
    }
}

impl PostgresStore {
    /// Where several servers of an address take writes: which. `Unfit`: an address that is none.
    pub async fn split(options: &PostgresOptions) -> Result<Option<String>, StoreError> {
        Ok(split(&Dial::of(options)?.writers().await))
    }

    /// Which server is in office, as far as the store has seen; none where it does not say.
    pub fn office(&self) -> Option<Office> {
        self.dial.incumbent().in_office()
    }

    /// Hears when another one takes over.
    pub fn terms(&self) -> watch::Receiver<u64> {
        self.dial.incumbent().terms()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer(host: usize, cluster: &str, timeline: u64, started: &str) -> Writer {
        let office = Office { cluster: cluster.to_owned(), timeline };
        Writer { host, place: format!("h{host}"), office, started: started.to_owned() }
    }

    #[test]
    fn of_servers_that_take_writes_the_one_on_the_newest_timeline_is_used_or_none_at_all() {
        let one = writer(0, "a", 1, "x");
        let alone = std::slice::from_ref(&one);
        assert_eq!((newest(&[]), split(&[])), (Ok(None), None));
        assert_eq!((newest(alone), split(alone)), (Ok(Some(&one)), None));
        let twice = [one.clone(), writer(1, "a", 1, "x")];
        assert_eq!((newest(&twice), split(&twice)), (Ok(Some(&one)), None), "two ways to one server");
        let behind = [one.clone(), writer(1, "a", 3, "y"), writer(2, "a", 2, "z")];
        assert_eq!(newest(&behind), Ok(Some(&behind[1])));
        assert_eq!(
            split(&behind).expect("they are three"),
            "several servers of the address take writes: h0 on timeline 1, h1 on timeline 3, h2 on timeline 2"
        );
        for (other, words) in [
            (writer(1, "a", 1, "y"), "h0 on timeline 1, h1 on timeline 1, and none of them is the newer one"),
            (writer(1, "b", 2, "x"), "h0 of the cluster a, h1 of the cluster b, and none of them is the newer one"),
        ] {
            assert!(newest(&[one.clone(), other]).expect_err("nobody can tell").contains(words), "{words}");
        }
    }
}
