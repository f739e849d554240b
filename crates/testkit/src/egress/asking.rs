//! What the run asks of the server, and what it must make of it. A thing that is not as it must be is a complaint; the run goes on, so that it
//! ends the same way with the guard off.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::special::why_forbidden;
use super::{OPEN_PORTS, Size, urls};
use crate::dns::zone::Zone;
use crate::operator::OperatorAccess;
use crate::patience::until;
use crate::process::Server;
use crate::wire::{Answer, Connection};

/// Connections that ask at once; fewer than the test callbacks that a server makes at once.
const ASKERS: usize = 12;
/// Applications with names that flip, of each asker.
const FLIPPING_EACH: usize = 4;
/// Attempts that a server makes at an application's endpoint at once, as shipped.
const AT_ONCE: usize = 8;
/// Events of each in a round.
const EVENTS_EACH: usize = 10;
/// For the events of a round to be over.
const PATIENCE: Duration = Duration::from_secs(120);
const MERCHANT: &str = "shop";

/// What came of it all.
#[derive(Clone, Debug, Default)]
pub struct Done {
    /// Hostile URLs given to the operator API.
    pub urls: usize,
    /// Refused there.
    pub refused_form: usize,
    /// Taken there, since they hold a name, and refused at the attempt.
    pub refused_attempt: usize,
    /// URLs that a lenient server had stored.
    pub stored: usize,
    /// Attempts that were compared with the answers of their look-up.
    pub trials: usize,
    /// Attempts of events at names that flip.
    pub attempts: usize,
    /// Of them delivered.
    pub delivered: usize,
    /// Of them refused for their address.
    pub refused: usize,
    /// Of them without any address.
    pub unresolved: usize,
    /// Of them ended otherwise.
    pub other: usize,
    /// What was not as it must be.
    pub complaints: Vec<String>,
}

impl Done {
    /// And what came of more.
    pub(super) fn add(&mut self, other: Self) {
        self.urls += other.urls;
        self.refused_form += other.refused_form;
        self.refused_attempt += other.refused_attempt;
        self.stored += other.stored;
        self.trials += other.trials;
        self.attempts += other.attempts;
        self.delivered += other.delivered;
        self.refused += other.refused;
        self.unresolved += other.unresolved;
        self.other += other.other;
        self.complaints.extend(other.complaints);
    }

    fn demand(&mut self, holds: bool, complaint: impl FnOnce() -> String) {
        if !holds {
            self.complaints.push(complaint());
        }
    }
}

/// A kept connection to the operator API.
#[derive(Debug)]
struct Asker {
    access: OperatorAccess,
    connection: Connection,
}

impl Asker {
    async fn new(access: &OperatorAccess) -> Result<Self> {
        Ok(Self { access: access.clone(), connection: Connection::open(access.address).await? })
    }

    async fn ask(&mut self, method: &str, path: &str, body: Option<Value>) -> Result<Answer> {
        let draft = self.access.draft(method, &format!("/operator/v1{path}"), body.as_ref());
        Ok(self.connection.send(&draft.bytes()).await?)
    }

    /// The JSON of an answer that must be good.
    async fn get(&mut self, method: &str, path: &str, body: Option<Value>) -> Result<Value> {
        let answer = self.ask(method, path, body).await?;
        ensure!(answer.status == 200, "{method} {path}: {} {}", answer.status, answer.json());
        Ok(answer.json())
    }

    /// An application; its ClientId.
    async fn application(&mut self, url: Option<&str>) -> Result<String> {
        let body = json!({"name": "egress", "callback_url": url});
        let made = self.get("POST", &format!("/merchants/{MERCHANT}/applications"), Some(body)).await?;
        Ok(made["client_id"].as_str().context("a client id")?.to_owned())
    }

    /// One attempt, at once: outcome, and the address that was connected to.
    async fn attempt(&mut self, client_id: &str) -> Result<(String, Option<SocketAddr>)> {
        let tried = self.get("POST", &format!("/applications/{client_id}/callbacks/test"), None).await?;
        Ok((outcome(&tried), address(&tried)?))
    }

    async fn emit(&mut self, client_id: &str, number: usize) -> Result<String> {
        let body = json!({
            "client_id": client_id, "bizType": "PAYMENT_ORDER", "bizId": number.to_string(), "bizStatus": "SUCCESS", "data": {"n": number}
        });
        let made = self.get("POST", "/events", Some(body)).await?;
        Ok(made["event_id"].as_str().context("an event id")?.to_owned())
    }

    /// The attempts of an event that is over.
    async fn attempts(&mut self, event: &str) -> Result<Vec<Value>> {
        let shown = self.get("GET", &format!("/events/{event}"), None).await?;
        Ok(shown["attempts"].as_array().context("attempts")?.clone())
    }

    async fn until_over(&mut self) -> Result<()> {
        let pending = "/events?state=pending&limit=1";
        let over = until("no event is pending", PATIENCE, async || {
            let page = self.get("GET", pending, None).await?;
            Ok(page["items"].as_array().is_some_and(Vec::is_empty).then_some(()))
        })
        .await;
        let Err(late) = over else { return Ok(()) };
        let left = self.get("GET", pending, None).await?;
        Err(late.context(format!("one of those left: {}", left["items"][0])))
    }
}

fn outcome(attempt: &Value) -> String {
    attempt["outcome"].as_str().unwrap_or_default().to_owned()
}

fn address(attempt: &Value) -> Result<Option<SocketAddr>> {
    attempt["address"].as_str().map(|text| text.parse().context("an address")).transpose()
}

/// Where a server that allows private callbacks lets them go, and no other.
const LENIENT: [&str; 18] = [
    "http://127.0.0.1/",
    "http://127.0.0.1:2375/",
    "https://127.0.0.53:443/",
    "http://10.0.0.1/",
    "https://10.255.255.255:8443/",
    "http://172.16.0.1:6379/",
    "https://172.31.255.255/",
    "http://192.168.0.1:80/",
    "https://192.168.1.1/",
    "https://100.64.0.1/",
    "http://[::1]:9200/",
    "https://[::1]/",
    "https://[fd00::1]/",
    "http://[fd12:3456:789a::1]:8080/",
    "https://[fc00::1]:8443/",
    "http://localhost/",
    "https://localhost:443/",
    "http://ip6-localhost:3000/",
];

/// Applications with such URLs, and some with names of forbidden addresses; their ClientIds.
pub async fn store(server: &Server) -> Result<Vec<String>> {
    server.access.provision("POST", "/merchants", json!({"name": "Shop", "merchant_id": MERCHANT})).await?;
    let mut asker = Asker::new(&server.access).await?;
    let named = urls::names().into_iter().step_by(11).map(|(name, _)| format!("http://{name}:80/"));
    let mut stored = Vec::new();
    for url in LENIENT.map(str::to_owned).into_iter().chain(named) {
        stored.push(asker.application(Some(&url)).await?);
    }
    Ok(stored)
}

/// Who is asked, and who answers its look-ups.
#[derive(Clone, Debug)]
pub(super) struct Work {
    pub(super) access: OperatorAccess,
    pub(super) zone: Arc<Zone>,
}

impl Work {
    /// All of it.
    pub(super) async fn all(&self, size: Size, stored: Vec<String>) -> Result<Done> {
        let mut done = self.stored(stored).await?;
        let urls = urls::hostile(size.urls);
        let mut askers = JoinSet::new();
        let work = self.clone();
        askers.spawn(async move { work.silence().await });
        for (number, share) in shares(&urls).into_iter().enumerate() {
            let (work, trials) = (self.clone(), size.trials.div_ceil(ASKERS));
            askers.spawn(async move {
                let mut done = work.hostile(share).await?;
                done.add(work.trials(&format!("trial{number}"), trials).await?);
                Ok::<_, anyhow::Error>(done)
            });
        }
        while let Some(share) = askers.join_next().await {
            done.add(share??);
        }
        done.add(self.events(size.flips).await?);
        Ok(done)
    }

    /// URLs that another server has taken are refused at each attempt.
    async fn stored(&self, stored: Vec<String>) -> Result<Done> {
        let (mut done, mut asker) = (Done::default(), Asker::new(&self.access).await?);
        let mut events = Vec::new();
        for (number, client_id) in stored.iter().enumerate() {
            events.push(asker.emit(client_id, number).await?);
        }
        asker.until_over().await?;
        for event in &events {
            let attempts = asker.attempts(event).await?;
            done.demand(attempts.len() > 1, || format!("{event}: {} attempts", attempts.len()));
            for attempt in attempts {
                let is_refused = outcome(&attempt) == "refused_address" && attempt["address"].is_null();
                done.demand(is_refused, || format!("a stored URL: {attempt}"));
            }
            done.stored += 1;
        }
        Ok(done)
    }

    /// A name server that does not answer costs an attempt, and nothing more.
    async fn silence(&self) -> Result<Done> {
        let (mut done, mut asker) = (Done::default(), Asker::new(&self.access).await?);
        let client_id = asker.application(Some("https://silent.example/")).await?;
        let (outcome, address) = asker.attempt(&client_id).await?;
        done.demand(outcome == "dns_failed" && address.is_none(), || format!("no answer of a name server: {outcome}"));
        Ok(done)
    }

    /// Each URL is refused with one sentence and leaves nothing, or holds a name and is refused at the attempt.
    async fn hostile(&self, urls: Vec<String>) -> Result<Done> {
        let (mut done, mut asker) = (Done::default(), Asker::new(&self.access).await?);
        let client_id = asker.application(None).await?;
        let path = format!("/applications/{client_id}");
        for url in urls {
            done.urls += 1;
            let answer = asker.ask("PATCH", &path, Some(json!({"callback_url": url}))).await?;
            if answer.status == 200 {
                let (outcome, address) = asker.attempt(&client_id).await?;
                let is_refused = matches!(outcome.as_str(), "refused_address" | "dns_failed") && address.is_none();
                done.demand(is_refused, || format!("{url:?}: {outcome} {address:?}"));
                done.refused_attempt += usize::from(is_refused);
                asker.get("PATCH", &path, Some(json!({"callback_url": null}))).await?;
                continue;
            }
            let said = answer.json();
            let sentence = said["detail"].as_str().unwrap_or_default();
            let is_clear =
                answer.status == 400 && sentence.starts_with("field callback_url: ") && !sentence.contains('\n');
            done.demand(is_clear, || format!("{url:?}: {} {said}", answer.status));
            let kept = asker.get("GET", &path, None).await?;
            done.demand(kept["callback_url"].is_null(), || {
                format!("{url:?} was refused and left {}", kept["callback_url"])
            });
            done.refused_form += 1;
        }
        Ok(done)
    }

    /// Attempts at one name that flips, each beside what its own look-up was told.
    pub(super) async fn trials(&self, name: &str, count: usize) -> Result<Done> {
        let (mut done, mut asker) = (Done::default(), Asker::new(&self.access).await?);
        let host = format!("{name}.flip.example");
        let client_id = asker.application(Some(&format!("https://{host}/"))).await?;
        for _ in 0..count {
            let before = self.zone.asked(&host);
            let (outcome, address) = asker.attempt(&client_id).await?;
            let given = self.zone.given(&host);
            done.trials += 1;
            done.demand(self.zone.asked(&host) > before, || format!("{host}: {outcome} without a look-up of its own"));
            let is_hostile = given.addresses.iter().any(|address| why_forbidden(*address).is_some());
            let as_it_must = if is_hostile {
                address.is_none() && (outcome == "refused_address" || given.had_fault && outcome == "dns_failed")
            } else if given.addresses.is_empty() || given.had_fault {
                address.is_none_or(|address| given.addresses.contains(&address.ip()))
            } else {
                outcome == "delivered" && address.is_some_and(|address| given.addresses.contains(&address.ip()))
            };
            done.demand(as_it_must, || format!("{host} was {given:?}: {outcome} {address:?}"));
        }
        Ok(done)
    }

    /// Events of applications whose names flip, in rounds, until so many answers have flipped.
    async fn events(&self, flips: usize) -> Result<Done> {
        let mut done = Done::default();
        let before = self.zone.tally();
        let mut herds: Vec<(Asker, Vec<String>)> = Vec::new();
        for number in 0..ASKERS {
            let mut asker = Asker::new(&self.access).await?;
            let mut herd = Vec::new();
            for (one, port) in (0..FLIPPING_EACH).zip(OPEN_PORTS.iter().cycle()) {
                herd.push(asker.application(Some(&format!("https://event{number}-{one}.flip.example:{port}/"))).await?);
            }
            herds.push((asker, herd));
        }
        while self.zone.tally().flips - before.flips < flips {
            let look_ups = self.zone.tally().look_ups;
            let mut emitting = JoinSet::new();
            for (asker, herd) in herds.drain(..) {
                emitting.spawn(emit(asker, herd));
            }
            let mut emitted = emitting.join_all().await.into_iter().collect::<Result<Vec<_>>>()?;
            if let Some(first) = emitted.first_mut() {
                first.asker.until_over().await?;
            }
            let mut judging = JoinSet::new();
            for round in emitted {
                judging.spawn(round.judge());
            }
            while let Some(judged) = judging.join_next().await {
                let (asker, herd, round) = judged??;
                done.add(round);
                herds.push((asker, herd));
            }
            if self.zone.tally().look_ups == look_ups {
                done.complaints.push("a whole round of events without a look-up".to_owned());
                break;
            }
        }
        let asked = self.zone.tally().look_ups - before.look_ups;
        let attempts = done.attempts;
        // Each name is one application's, and attempts that begin at one moment share a look-up that begins after them.
        done.demand(asked * AT_ONCE >= attempts, || format!("{attempts} attempts and only {asked} look-ups"));
        Ok(done)
    }
}

/// Events of one asker's applications.
struct Round {
    asker: Asker,
    herd: Vec<String>,
    events: Vec<String>,
}

/// Some events of each.
async fn emit(mut asker: Asker, herd: Vec<String>) -> Result<Round> {
    let mut events = Vec::new();
    for client_id in &herd {
        for number in 0..EVENTS_EACH {
            events.push(asker.emit(client_id, number).await?);
        }
    }
    Ok(Round { asker, herd, events })
}

impl Round {
    /// What became of them, now that they are over.
    async fn judge(self) -> Result<(Asker, Vec<String>, Done)> {
        let Self { mut asker, herd, events } = self;
        let mut done = Done::default();
        for event in &events {
            for attempt in asker.attempts(event).await? {
                let (outcome, address) = (outcome(&attempt), address(&attempt)?);
                done.attempts += 1;
                match outcome.as_str() {
                    "delivered" => done.delivered += 1,
                    "refused_address" => done.refused += 1,
                    "dns_failed" => done.unresolved += 1,
                    _ => done.other += 1,
                }
                let is_public = address.is_none_or(|address| why_forbidden(address.ip()).is_none());
                done.demand(is_public && (outcome == "delivered") == address.is_some(), || {
                    format!("{event}: {attempt}")
                });
            }
        }
        Ok((asker, herd, done))
    }
}

/// The URLs in as many shares as there are askers.
fn shares(urls: &[String]) -> Vec<Vec<String>> {
    (0..ASKERS).map(|at| urls.iter().skip(at).step_by(ASKERS).cloned().collect()).collect()
}
