//! A receiver that says SUCCESS to everything and remembers which events it has seen.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use tokio::net::TcpListener;
use tokio::sync::Notify;

#[derive(Debug, Default)]
struct Seen {
    /// How long each answer takes.
    delay: Duration,
    counts: Mutex<HashMap<String, usize>>,
    changed: Notify,
}

/// The receiver; it ends with the test's runtime.
#[derive(Debug)]
pub struct Inbox {
    address: SocketAddr,
    seen: Arc<Seen>,
}

impl Inbox {
    /// Listens on a free loopback port.
    pub async fn start() -> Result<Self> {
        Self::start_slow(Duration::ZERO).await
    }

    /// The same, but each answer takes so long.
    pub async fn start_slow(delay: Duration) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let seen = Arc::new(Seen { delay, ..Seen::default() });
        let router = axum::Router::new().route("/callback", post(receive)).with_state(seen.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { address, seen })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where callbacks go.
    pub fn url(&self) -> String {
        format!("http://{}/callback", self.address)
    }

    /// Waits until every event of `owed` has come; answers how many callbacks were more than one was owed.
    pub async fn wait_for_all(&self, owed: &HashSet<String>, within: Duration) -> Result<usize> {
        let all = async {
            loop {
                let changed = self.seen.changed.notified();
                if self.missing(owed).is_empty() {
                    return;
                }
                changed.await;
            }
        };
        if tokio::time::timeout(within, all).await.is_err() {
            let missing = self.missing(owed);
            bail!(
                "{} of {} acknowledged events were never delivered, such as {:?}",
                missing.len(),
                owed.len(),
                missing.first()
            );
        }
        let counts = self.seen.counts.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(counts.values().map(|n| n - 1).sum())
    }

    fn missing(&self, owed: &HashSet<String>) -> Vec<String> {
        let counts = self.seen.counts.lock().unwrap_or_else(PoisonError::into_inner);
        owed.iter().filter(|id| !counts.contains_key(*id)).cloned().collect()
    }
}

async fn receive(State(seen): State<Arc<Seen>>, headers: HeaderMap) -> &'static str {
    let id = headers.get("x-service-event-id").and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
    *seen.counts.lock().unwrap_or_else(PoisonError::into_inner).entry(id).or_default() += 1;
    seen.changed.notify_waiters();
    if !seen.delay.is_zero() {
        tokio::time::sleep(seen.delay).await;
    }
    r#"{"returnCode":"SUCCESS","returnMessage":""}"#
}
