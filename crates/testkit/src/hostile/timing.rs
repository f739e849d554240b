//! Whether a stranger can tell from the time of a refusal if a ClientId exists: two judges try to.
//!
//! In this process, without sockets: a network would only hide what there is to see.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use countersign::edges::IntakeLimits;
use countersign::log::{LogGuard, LogSink};
use countersign::merchant::{Budget, Edge, EdgeSettings};
use countersign::source::Sources;
use countersign_protocol::headers::Prefixes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::Bytes;
use serde_json::json;

use crate::backing::StoreKind;
use crate::dice::Dice;
use crate::wire::{Draft, Signer, fresh_nonce};
use crate::world::World;

/// How far from a coin's throw a judge may be.
pub const AUC_TOLERANCE: f64 = 0.02;
/// What is measured before it counts: caches, pages, branch predictors.
const WARM_UP: usize = 2_000;
/// Steps of time that the second judge tells apart.
const BINS: usize = 64;

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No application has this ClientId.
    Unknown,
    /// It exists, and the signature is another key's.
    Wrong,
    /// It exists and is disabled; the signature is right.
    Disabled,
    /// It exists, nothing is kept of it, and the signature is another key's.
    Forgotten,
}

impl Reason {
    const ALL: [Self; 4] = [Self::Unknown, Self::Wrong, Self::Disabled, Self::Forgotten];

    const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown ClientId",
            Self::Wrong => "wrong signature",
            Self::Disabled => "disabled application",
            Self::Forgotten => "wrong signature, not kept",
        }
    }
}

/// How well two kinds of refusal can be told apart; 0.5 is not at all.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The two.
    pub kinds: [Reason; 2],
    /// The chance that one of the second kind took longer than one of the first.
    pub by_length: f64,
    /// The same of a judge who learned from one half which times are whose, and judged the other half.
    pub by_learning: f64,
    /// How long the middle one of each kind took.
    pub medians: [Duration; 2],
}

/// What a run found.
#[derive(Clone, Debug)]
pub struct Report {
    /// Samples of each kind.
    pub samples: usize,
    /// Every pair of kinds.
    pub verdicts: Vec<Verdict>,
}

/// Somebody who knocks, and the edge that he knocks at.
struct Knocking {
    world: World,
    edge: Edge,
    known: Signer,
    disabled: Signer,
    forgotten: Signer,
    /// The log is written to the end: a line is part of what is measured.
    _log: LogGuard,
}

impl Knocking {
    async fn begin(store: StoreKind) -> Result<Self> {
        let world = World::start_on(store, |_| {}).await?;
        let known = world.access.institution("bank", 0, None).await?;
        let disabled = world.access.application("bank", None).await?;
        let forgotten = world.access.application("bank", None).await?;
        let path = format!("/applications/{}", disabled.client_id);
        world.access.provision("PATCH", &path, json!({"enabled": false})).await?;
        let settings = EdgeSettings {
            prefixes: Prefixes::new(&["X-Service-".to_owned()])?,
            limits: IntakeLimits::default(),
            sources: Sources::default(),
            budget: Budget::default(),
            request_limit: Arc::default(),
        };
        let (log, guard) = LogSink::start(std::io::sink())?;
        let edge = Edge::new(world.running.app.clone(), settings, log).context("the prefix is good")?;
        Ok(Self { world, edge, known, disabled, forgotten, _log: guard })
    }

    fn request(&self, reason: Reason, dice: &mut Dice) -> Result<Request<Full<Bytes>>> {
        let draft = |signer| self.world.draft(signer, "GET", "/v1/pay/events", "");
        let draft = match reason {
            Reason::Disabled => draft(&self.disabled),
            Reason::Wrong => draft(&self.known).with("X-Service-Signature", &nonsense(dice)),
            Reason::Forgotten => {
                // In every case one is forgotten: what that does to the memory is the same for all.
                draft(&self.forgotten).with("X-Service-Signature", &nonsense(dice))
            }
            Reason::Unknown => {
                let stranger: String = self.known.client_id.chars().map(|c| other(c, dice)).collect();
                draft(&self.known)
                    .with("X-Service-Certificate-ClientId", &stranger)
                    .with("X-Service-Signature", &nonsense(dice))
            }
        };
        bytes_of(draft.with("X-Service-Nonce", &fresh_nonce()), reason == Reason::Disabled, &self.disabled)
    }

    /// How long one refusal takes, from the parsed head to the whole answer.
    async fn knock(&self, request: Request<Full<Bytes>>) -> Result<Duration> {
        // Before each knock, whoever knocks: forgetting itself must not be what is measured.
        self.world.running.app.callers.forget(&self.forgotten.client_id);
        let began = Instant::now();
        let answer = self.edge.serve(request, IpAddr::V4(Ipv4Addr::LOCALHOST)).await;
        let took = began.elapsed();
        let body = answer.into_body().collect().await?.to_bytes();
        ensure!(body.windows(6).any(|six| six == b"400002"), "not refused for its signature: {body:?}");
        Ok(took)
    }
}

/// A letter or digit of the same kind; what joins words stays.
fn other(c: char, dice: &mut Dice) -> char {
    match c {
        '0'..='9' | 'a'..='z' => char::from(b"0123456789abcdefghjkmnpqrstvwxyz"[dice.below(32)]),
        'A'..='Z' => char::from(b"ABCDEFGHJKMNPQRSTVWXYZ"[dice.below(22)]),
        c => c,
    }
}

fn nonsense(dice: &mut Dice) -> String {
    (0..128).map(|_| char::from(b"0123456789abcdef"[dice.below(16)])).collect()
}

fn bytes_of(draft: Draft, signs_again: bool, signer: &Signer) -> Result<Request<Full<Bytes>>> {
    // A nonce of one's own changes what is signed.
    let draft = if signs_again {
        let value =
            |name: &str| draft.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone()).unwrap_or_default();
        let timestamp = value("X-Service-Timestamp").parse()?;
        signer.draft_at(&draft.method, &draft.target, &draft.body, timestamp, &value("X-Service-Nonce"))
    } else {
        draft
    };
    let mut request = Request::builder().method(draft.method.as_str()).uri(&draft.target).header("Host", "localhost");
    for (name, value) in draft.headers.iter().filter(|(name, _)| name != "X-Service-MerchantId") {
        request = request.header(name, value);
    }
    Ok(request.body(Full::new(Bytes::new()))?)
}

/// Knocks `samples` times for each reason, in an order that a seed decides.
pub async fn run(store: StoreKind, samples: usize, seed: u64) -> Result<Report> {
    let knocking = Knocking::begin(store).await?;
    let mut dice = Dice::new(seed);
    let mut times = [(); 4].map(|()| Vec::with_capacity(samples));
    for _ in 0..WARM_UP.min(samples) {
        for reason in Reason::ALL {
            knocking.knock(knocking.request(reason, &mut dice)?).await?;
        }
    }
    while times.iter().any(|of| of.len() < samples) {
        let number = dice.below(Reason::ALL.len());
        let request = knocking.request(Reason::ALL[number], &mut dice)?;
        let took = knocking.knock(request).await?;
        if times[number].len() < samples {
            times[number].push(u64::try_from(took.as_nanos())?);
        }
    }
    let Knocking { world, edge, .. } = knocking;
    drop(edge);
    world.running.stop().await?;
    let pairs = [(0, 1), (2, 1), (0, 2), (0, 3), (3, 1)];
    let verdicts = pairs.map(|(a, b)| judge([Reason::ALL[a], Reason::ALL[b]], &times[a], &times[b]));
    Ok(Report { samples, verdicts: verdicts.to_vec() })
}

fn judge(kinds: [Reason; 2], one: &[u64], other: &[u64]) -> Verdict {
    let as_scores = |times: &[u64]| times.iter().map(|ns| f(*ns)).collect::<Vec<f64>>();
    let medians = [one, other].map(|times| {
        let mut sorted = times.to_vec();
        sorted.sort_unstable();
        Duration::from_nanos(sorted.get(sorted.len() / 2).copied().unwrap_or_default())
    });
    Verdict { kinds, by_length: auc(&as_scores(one), &as_scores(other)), by_learning: learned(one, other), medians }
}

#[expect(clippy::cast_precision_loss, reason = "nanoseconds and counts are far below 2^52")]
const fn f(number: u64) -> f64 {
    number as f64
}

/// The chance that a score of `other` is above one of `one`, ties counted half.
fn auc(one: &[f64], other: &[f64]) -> f64 {
    let mut all: Vec<(f64, bool)> = one.iter().map(|s| (*s, false)).chain(other.iter().map(|s| (*s, true))).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut below, mut won) = (0.0, 0.0);
    for tie in all.chunk_by(|a, b| a.0.total_cmp(&b.0).is_eq()) {
        let of_other = f(tie.iter().filter(|(_, is_other)| *is_other).count() as u64);
        let of_one = f(tie.len() as u64) - of_other;
        won += of_other * (below + of_one / 2.0);
        below += of_one;
    }
    won / (f(one.len() as u64) * f(other.len() as u64))
}

/// Learns from the first half how much likelier each step of time is with `other`, and judges the second half by that.
fn learned(one: &[u64], other: &[u64]) -> f64 {
    let ((one_known, one_new), (other_known, other_new)) =
        (one.split_at(one.len() / 2), other.split_at(other.len() / 2));
    let mut known = [one_known, other_known].concat();
    known.sort_unstable();
    let bounds: Vec<u64> = (1..BINS).filter_map(|n| known.get(n * known.len() / BINS).copied()).collect();
    let bin = |ns: &u64| bounds.partition_point(|bound| bound <= ns);
    let count = |times: &[u64]| {
        let mut counts = [1.0; BINS];
        for ns in times {
            counts[bin(ns)] += 1.0;
        }
        counts
    };
    let (ones, others) = (count(one_known), count(other_known));
    let score = |times: &[u64]| times.iter().map(|ns| others[bin(ns)] / ones[bin(ns)]).collect::<Vec<f64>>();
    auc(&score(one_new), &score(other_new))
}

impl Report {
    /// An error where one of the judges does better than a coin.
    pub fn verdict(&self) -> Result<()> {
        for verdict in &self.verdicts {
            for auc in [verdict.by_length, verdict.by_learning] {
                let [one, other] = verdict.kinds.map(Reason::name);
                ensure!((auc - 0.5).abs() <= AUC_TOLERANCE, "{one} and {other} can be told apart: AUC {auc:.4}");
            }
        }
        Ok(())
    }
}

/// A table for people.
pub fn print(report: &Report) {
    println!("{} samples of each kind, interleaved; an AUC of 0.5 is a coin's throw", report.samples);
    for Verdict { kinds, by_length, by_learning, medians } in &report.verdicts {
        let [one, other] = kinds.map(Reason::name);
        println!(
            "  {one:<20} against {other:<20} AUC by length {by_length:.4}, learned {by_learning:.4}   medians {:.2} and {:.2} us",
            medians[0].as_secs_f64() * 1e6,
            medians[1].as_secs_f64() * 1e6
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_area_is_a_half_for_equals_and_one_for_what_is_always_longer() {
        let same = [1.0, 2.0, 2.0, 3.0];
        assert!((auc(&same, &same) - 0.5).abs() < 1e-9);
        assert!((auc(&[1.0, 2.0], &[3.0, 4.0]) - 1.0).abs() < 1e-9);
        assert!(auc(&[3.0, 4.0], &[1.0, 2.0]).abs() < 1e-9);
    }

    #[test]
    fn the_learning_judge_sees_what_has_the_same_middle_and_another_spread() {
        let mut dice = Dice::new(7);
        let narrow: Vec<u64> = (0..20_000).map(|_| 1_000 + dice.bits() % 100).collect();
        let wide: Vec<u64> = (0..20_000).map(|_| 950 + dice.bits() % 200).collect();
        let by_length = judge([Reason::Unknown, Reason::Wrong], &narrow, &wide);
        assert!((by_length.by_length - 0.5).abs() < 0.02, "{by_length:?}");
        assert!(by_length.by_learning > 0.6, "{by_length:?}");
    }

    #[test]
    fn a_difference_of_a_tenth_is_a_fault() {
        let mut dice = Dice::new(8);
        let mut noisy = |least: u64| (0..20_000).map(|_| least + dice.bits() % 500).collect::<Vec<u64>>();
        let verdict = judge([Reason::Unknown, Reason::Wrong], &noisy(1_000), &noisy(1_100));
        assert!(Report { samples: 20_000, verdicts: vec![verdict] }.verdict().is_err());
        let verdict = judge([Reason::Unknown, Reason::Wrong], &noisy(1_000), &noisy(1_000));
        assert!(Report { samples: 20_000, verdicts: vec![verdict] }.verdict().is_ok());
    }
}
