//! Who may see and do what: every route of both APIs, as their documents list them, with every kind of key and token.
//!
//! Nobody succeeds with what is another tenant's, no answer names anything of another tenant's, and what is another's is answered byte for
//! byte like what is not there.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::backing::StoreKind;
use crate::dice::Dice;
use crate::wire::{Answer, Connection, Draft};
use crate::world::World;

pub mod cast;
mod merchants;
mod operators;

use cast::Cast;

/// Connections that ask at once.
const ASKERS: usize = 8;
/// Faults that are told; there may be thousands of one kind.
const TOLD_MAX: usize = 40;

/// What a run found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Routes of the merchant API and of the operator API.
    pub routes: (usize, usize),
    /// Requests of merchants and calls of operators.
    pub asked: (usize, usize),
    /// How many merchants' requests were let through.
    pub through: usize,
    /// What is wrong; the first of it.
    pub faults: Vec<String>,
    /// How much is wrong.
    pub faults_in_all: usize,
}

impl Report {
    fn fault(&mut self, text: String) {
        self.faults_in_all += 1;
        if self.faults.len() < TOLD_MAX {
            self.faults.push(text);
        }
    }

    fn add(&mut self, other: Self) {
        self.through += other.through;
        self.asked.0 += other.asked.0;
        self.asked.1 += other.asked.1;
        self.faults_in_all += other.faults_in_all;
        let room = TOLD_MAX.saturating_sub(self.faults.len());
        self.faults.extend(other.faults.into_iter().take(room));
    }

    /// An error that lists the faults, if there are any.
    pub fn verdict(&self) -> Result<()> {
        let told = self.faults.join("\n");
        ensure!(self.faults_in_all == 0, "{} faults, among them:\n{told}", self.faults_in_all);
        ensure!(self.through > 0, "nobody was let through: the matrix shows nothing");
        Ok(())
    }
}

/// Runs every group in which at most one header is wrong, and of the others one in `one_in`, chosen by `seed`; 1 runs them all.
pub async fn run(store: StoreKind, one_in: usize, seed: u64) -> Result<Report> {
    let world = World::start_on(store, |config| {
        config.rate_limit_per_s = 0;
        config.failed_auth_per_s = 0;
    })
    .await?;
    let cast = Cast::make(&world, 4).await?;
    let mut dice = Dice::new(seed);
    let merchant_routes = routes(&serde_json::to_value(countersign::openapi::merchant())?, "")?;
    let operator_routes =
        routes(&serde_json::to_value(countersign::openapi::operator())?, countersign::operator::BASE)?;
    let mut report = Report { routes: (merchant_routes.len(), operator_routes.len()), ..Report::default() };
    let mut groups = merchants::groups(&cast, &merchant_routes)?;
    groups.retain(|group| group.is_telling() || dice.once_in(one_in));
    report.add(ask_merchants(&world, &cast, &groups).await?);
    report.add(operators::run(&world, &cast, &operator_routes, &mut dice, one_in).await?);
    world.running.stop().await?;
    Ok(report)
}

/// Method and path of every operation of a document whose path begins so.
fn routes(document: &Value, begin: &str) -> Result<Vec<(String, String)>> {
    const METHODS: [&str; 7] = ["get", "post", "put", "patch", "delete", "head", "options"];
    let paths = document["paths"].as_object().context("a document has paths")?;
    let mut routes = Vec::new();
    for (path, item) in paths.iter().filter(|(path, _)| path.starts_with(begin)) {
        let item = item.as_object().context("a path has operations")?;
        let methods = item.keys().filter(|name| METHODS.contains(&name.as_str()));
        routes.extend(methods.map(|method| (method.to_uppercase(), path.clone())));
    }
    ensure!(!routes.is_empty(), "the document lists no routes");
    Ok(routes)
}

/// An answer without what differs between any two: request id, date, and the id that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Alike {
    head: Vec<String>,
    body: String,
}

impl Alike {
    pub(crate) fn of(answer: &Answer, asked: &[&str]) -> Self {
        const OWN: [&str; 3] = ["date", "x-service-request-id", "content-length"];
        let line_name = |line: &str| line.split(':').next().unwrap_or_default().to_ascii_lowercase();
        let head = answer.head.lines().filter(|line| !OWN.contains(&line_name(line).as_str())).map(str::to_owned);
        let request_id = answer.header("x-service-request-id").unwrap_or_default().to_owned();
        let mut body = String::from_utf8_lossy(&answer.body).into_owned();
        for word in asked.iter().copied().chain([request_id.as_str()]).filter(|word| !word.is_empty()) {
            body = body.replace(word, "{asked}");
        }
        Self { head: head.collect(), body }
    }
}

/// A connection that is made anew when the server ends it.
pub(crate) struct Asker {
    address: std::net::SocketAddr,
    connection: Option<Connection>,
}

impl Asker {
    pub(crate) const fn new(address: std::net::SocketAddr) -> Self {
        Self { address, connection: None }
    }

    pub(crate) async fn ask(&mut self, draft: &Draft) -> Result<Answer> {
        let connection = match self.connection.take() {
            Some(connection) => self.connection.insert(connection),
            None => self.connection.insert(Connection::open(self.address).await?),
        };
        let answer = connection.send(&draft.bytes()).await;
        if answer.as_ref().map_or(true, |answer| answer.header("connection") == Some("close")) {
            self.connection = None;
        }
        answer.with_context(|| format!("{} {}: no answer", draft.method, draft.target))
    }
}

async fn ask_merchants(world: &World, cast: &Cast, groups: &[merchants::Group]) -> Result<Report> {
    let shares: Vec<_> = groups.chunks(groups.len().div_ceil(ASKERS).max(1)).collect();
    let mut report = Report::default();
    let asking = shares.into_iter().map(|share| ask_share(world, cast, share));
    for part in futures_of(asking).await {
        report.add(part?);
    }
    Ok(report)
}

/// All of them at once, on this task.
async fn futures_of<F: Future>(all: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut pending: Vec<_> = all.map(|one| (Box::pin(one), None)).collect();
    std::future::poll_fn(|context| {
        let mut is_done = true;
        for (future, output) in &mut pending {
            if output.is_none() {
                match future.as_mut().poll(context) {
                    std::task::Poll::Ready(ready) => *output = Some(ready),
                    std::task::Poll::Pending => is_done = false,
                }
            }
        }
        if is_done { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    pending.into_iter().filter_map(|(_, output)| output).collect()
}

async fn ask_share(world: &World, cast: &Cast, share: &[merchants::Group]) -> Result<Report> {
    let mut asker = Asker::new(world.listen());
    let mut report = Report::default();
    for group in share {
        ask_group(world, cast, &mut asker, group, &mut report).await?;
    }
    Ok(report)
}

async fn ask_group(
    world: &World,
    cast: &Cast,
    asker: &mut Asker,
    group: &merchants::Group,
    report: &mut Report,
) -> Result<()> {
    let mut first: Option<(Alike, &'static str)> = None;
    for target in &group.targets {
        let answer = asker.ask(&merchants::draft(world, cast, group, target)?).await?;
        report.asked.0 += 1;
        let place = || {
            let key = &cast.keys[group.key];
            let (merchant_id, other) = (group.merchant_id.what, group.on_behalf_of.what);
            format!(
                "{} {} by {:?} of house {}, MerchantId {merchant_id}, On-Behalf-Of {other}, target {}",
                group.method, group.path, key.kind, key.house, target.what
            )
        };
        let code = answer.code();
        let asked = [Some(target.id.as_str()), group.merchant_id.value.as_deref(), group.on_behalf_of.value.as_deref()];
        let asked: Vec<&str> = asked.into_iter().flatten().collect();
        match merchants::due(cast, group, target)? {
            merchants::Due::Through => {
                report.through += 1;
                if !merchants::BEHIND.contains(&code.as_str()) {
                    report.fault(format!("{}: {} in place of success", place(), answer.json()));
                }
                if let Some(missing) = merchants::missing(cast, group, target, &answer)? {
                    report.fault(format!("{}: {} without {missing}", place(), answer.json()));
                }
            }
            merchants::Due::Refused(wanted) => {
                if code != wanted {
                    report.fault(format!("{}: {code} in place of {wanted}: {}", place(), answer.json()));
                }
                let alike = Alike::of(&answer, &asked);
                match &first {
                    None => first = Some((alike, target.what)),
                    Some((other, what)) if *other != alike => {
                        report.fault(format!("{}: not answered like {what}: {alike:?} and {other:?}", place()));
                    }
                    Some(_) => {}
                }
            }
        }
        // What the caller wrote himself may come back.
        if let Some(word) = cast.leak(group.key, &Alike::of(&answer, &asked).body) {
            report.fault(format!("{}: the answer names {word}, which is another tenant's: {}", place(), answer.json()));
        }
    }
    Ok(())
}

/// In few words.
pub fn print(store: StoreKind, report: &Report) {
    let Report { routes, asked, through, faults_in_all, .. } = report;
    println!("{}: {} merchant routes and {} operator routes", store.name(), routes.0, routes.1);
    println!("  {} requests of merchants, {through} of them let through; {} calls of operators", asked.0, asked.1);
    println!("  faults: {faults_in_all}");
}
