//! From end to end: a request that makes an event, durable before its answer, and the event's callback, delivered and marked.

use std::cell::Cell;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use countersign_protocol::endpoint::{order_close, order_create};
use serde_json::json;
use tokio::task::JoinSet;

use super::sink::Sink;
use super::{APPLICATIONS, AT_ONCE, DATA};
use crate::measure::cpu_ns;
use crate::patience::until;
use crate::process::{Deployment, Server};
use crate::wire::{Connection, Draft, Signer, once};

/// Events of a round.
pub(super) const EVENTS: usize = 8_000;
const PATIENCE: Duration = Duration::from_secs(60);

/// A server and those who call it.
pub(super) struct Whole {
    pub(super) server: Server,
    signers: Vec<Signer>,
    /// Orders made so far, and events emitted.
    made: Cell<usize>,
}

impl Whole {
    /// On the first core, as everything whose CPU time counts.
    pub(super) async fn open(folder: &Path, url: &str) -> Result<Rc<Self>> {
        let mut deployment = Deployment::init(folder)?;
        deployment.config.push_str("rate_limit_per_s = 0\n");
        let server = deployment.serve_under(&["taskset", "-c", "0"])?;
        let mut signers = Vec::new();
        for n in 0..APPLICATIONS {
            signers.push(server.access.institution(&format!("merchant-{n}"), 0, Some(url)).await?);
        }
        Ok(Rc::new(Self { server, signers, made: Cell::new(0) }))
    }

    /// Orders are closed by signed requests: the server's CPU time for all of it, in ns. That they are made does not count.
    pub(super) async fn closed(self: &Rc<Self>, sink: &Sink) -> Result<u64> {
        let from = self.next();
        let signed = |path: &'static str, rest: &'static str| {
            move |whole: &Self, n: usize| {
                let body = format!(r#"{{"merchantTradeNo":"T-{n:012}"{rest}}}"#);
                whole.signers[n % APPLICATIONS].draft("POST", path, body.as_bytes())
            }
        };
        let make = signed(order_create::PATH, r#","currency":"USDT","orderAmount":"12.5""#);
        self.ask(self.server.listen, from, make).await?;
        let close = signed(order_close::PATH, "");
        self.delivered(sink, async || self.ask(self.server.listen, from, close).await).await
    }

    /// Events are emitted by an operator's calls: the same.
    pub(super) async fn emitted(self: &Rc<Self>, sink: &Sink) -> Result<u64> {
        let from = self.next();
        let emit = |whole: &Self, n: usize| {
            let body = json!({
                "client_id": whole.signers[n % APPLICATIONS].client_id, "bizType": "PAYMENT_ORDER", "bizId": format!("{n:012}"),
                "bizStatus": "SUCCESS", "data": DATA,
            });
            whole.server.access.draft("POST", "/operator/v1/events", Some(&body))
        };
        self.delivered(sink, async || self.ask(self.server.access.address, from, emit).await).await
    }

    fn next(&self) -> usize {
        self.made.replace(self.made.get() + EVENTS)
    }

    /// So many requests, from many callers at once.
    async fn ask(
        self: &Rc<Self>,
        address: SocketAddr,
        from: usize,
        draft: impl Fn(&Self, usize) -> Draft + Copy + 'static,
    ) -> Result<()> {
        let next = Rc::new(Cell::new(from));
        let mut callers = JoinSet::new();
        for _ in 0..AT_ONCE {
            let (whole, next) = (self.clone(), next.clone());
            callers.spawn_local(async move {
                let mut connection = Connection::open(address).await?;
                while next.get() < from + EVENTS {
                    let n = next.replace(next.get() + 1);
                    let answer = connection.send(&draft(&whole, n).bytes()).await?;
                    ensure!(answer.status == 200, "it was answered {}: {}", answer.status, answer.json());
                }
                anyhow::Ok(())
            });
        }
        while let Some(ended) = callers.join_next().await {
            ended??;
        }
        Ok(())
    }

    /// The CPU time until what `act` does has been told and marked.
    async fn delivered(&self, sink: &Sink, act: impl AsyncFnOnce() -> Result<()>) -> Result<u64> {
        let (came, began) = (sink.count(), cpu_ns(self.server.pid()));
        act().await?;
        sink.wait_for(came + EVENTS).await?;
        until("all are marked", PATIENCE, async || Ok((self.in_flight().await? == 0).then_some(()))).await?;
        Ok(cpu_ns(self.server.pid()) - began)
    }

    async fn in_flight(&self) -> Result<usize> {
        let access = &self.server.access;
        let answer = once(access.address, &access.draft("GET", "/metrics", None).bytes()).await?;
        let metrics = String::from_utf8_lossy(&answer.body).into_owned();
        let figure = metrics.lines().find_map(|line| line.strip_prefix("countersign_callbacks_in_flight "));
        Ok(figure.context("a gauge")?.trim().parse()?)
    }
}
