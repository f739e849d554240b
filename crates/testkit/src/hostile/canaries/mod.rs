//! Secrets that are easy to find are made, used, rotated and shown to a crash, and then looked for wherever a thief would look.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use countersign_protocol::signing::SigningKey;
use serde_json::{Value, json};

use crate::backing::{Backing, StoreKind};
use crate::patience::until;
use crate::process::{Deployment, Server, binary};
use crate::receiver::Receiver;
use crate::wire::{Answer, Connection, Signer};

pub mod panicking;
pub mod search;
pub mod signing;

use search::Needles;

/// The most live secrets of an application.
const LIVE: usize = 3;
const PATIENCE: Duration = Duration::from_secs(30);
/// Everything is written to the log, of every library too.
const LOG_LEVEL: &str = "log_level = \"trace\"\nrate_limit_per_s = 0\n";

/// One place that was searched.
#[derive(Clone, Debug)]
pub struct Place {
    /// What it is.
    pub name: &'static str,
    /// How many bytes were looked at.
    pub bytes: u64,
    /// What was found there.
    pub found: Vec<String>,
}

/// What a run found.
#[derive(Clone, Debug)]
pub struct Report {
    /// Payment API Secrets, operator tokens, and keys of the deployment that were looked for.
    pub secrets: (usize, usize, usize),
    /// Where.
    pub places: Vec<Place>,
    /// What the search found where all of it had been put on purpose, and how many forms that were.
    pub control: (usize, usize),
    /// What a crash left of a server that was told to leave a picture of its memory; none where this machine keeps none.
    pub core_of_control: Option<usize>,
}

impl Report {
    /// The same, and an error where this machine could not show what a crash leaves.
    pub fn verdict_of_all(&self) -> Result<()> {
        ensure!(
            self.core_of_control.is_some(),
            "no core dump of the control: set kernel.core_pattern to `core`, and the limit of core files to unlimited"
        );
        self.verdict()
    }

    /// An error that lists what was found.
    pub fn verdict(&self) -> Result<()> {
        let found: Vec<&String> = self.places.iter().flat_map(|place| &place.found).collect();
        ensure!(found.is_empty(), "{} secrets were found: {found:?}", found.len());
        ensure!(
            self.control.0 == self.control.1,
            "the search found {} of {} planted ones",
            self.control.0,
            self.control.1
        );
        ensure!(self.core_of_control != Some(0), "the search found nothing in the memory of a server either");
        ensure!(self.places.iter().all(|place| place.bytes > 0), "a place was empty: {self:?}");
        Ok(())
    }
}

/// What was made and what came back.
struct Gathered {
    needles: Needles,
    secrets: usize,
    tokens: usize,
    /// Every answer but the first one of each call that makes a secret.
    answers: Vec<u8>,
}

impl Gathered {
    fn keep(&mut self, answer: &Answer) {
        self.answers.extend_from_slice(answer.head.as_bytes());
        self.answers.extend_from_slice(&answer.body);
    }
}

/// Makes, uses and rotates `count` secrets, and looks for them.
pub async fn run(store: StoreKind, count: usize) -> Result<Report> {
    let folder = tempfile::tempdir()?;
    let backing = Backing::fresh(store).await;
    let data = folder.path().join("data");
    let mut deployment = Deployment::init_on(&data, &backing)?;
    LOG_LEVEL.clone_into(&mut deployment.config);
    let receiver = Receiver::start().await?;
    let mut gathered = Gathered { needles: Needles::default(), secrets: 0, tokens: 0, answers: Vec::new() };
    let master = std::fs::read_to_string(data.join("master.key"))?;
    gathered.needles.add(master.trim());
    gathered.needles.add(deployment.operator_token());
    let server = with_cores(&deployment, &place_for(folder.path(), "shipped")?, LOG_LEVEL)?;
    while gathered.secrets < count {
        application(&server, &receiver, &mut gathered).await?;
        if gathered.secrets.is_multiple_of(30) {
            token(&server, &mut gathered).await?;
        }
    }
    for answer in signing::use_it(&server).await? {
        gathered.keep(&answer);
    }
    look_around(&server, &mut gathered).await?;
    let metrics = once_plain(&server, "/metrics").await?;
    let backup = folder.path().join("backup");
    deployment.backup(&backup)?;
    gathered.needles.add(&signing::taken_out(&backup, folder.path(), master.trim())?);
    copy_away(&data, &folder.path().join("copy"))?;
    let panicked = panicking::in_a_process_of_its_own(folder.path(), &mut gathered.needles)?;
    crash(server, folder.path())?;
    let needles = &gathered.needles;
    let found = |name, bytes: &[u8]| Place { name, bytes: bytes.len() as u64, found: told(needles, name, bytes) };
    let under = |name, path: &Path| -> Result<Place> {
        let (found, bytes) = needles.find_under(path, &["master.key", "serve.log"])?;
        Ok(Place { name, bytes, found })
    };
    let mut places = vec![
        found("log at level trace", &std::fs::read(data.join("serve.log"))?),
        found("answers", &gathered.answers),
        found("metrics", metrics.as_bytes()),
        found("what a panic printed", &panicked),
        found("a backup", &std::fs::read(&backup)?),
        under("data folder: database, its log, journals of nonces, and whatever a crash left", &data)?,
        under("a copy of the data folder", &folder.path().join("copy"))?,
    ];
    if let Some(database) = backing.database() {
        let (found, bytes) = needles.find_where_somebody_works(&database.folder())?;
        places.push(Place { name: "every file of the PostgreSQL server", bytes, found });
    }
    let core_of_control = core_of_control(&deployment, &place_for(folder.path(), "control")?, master.trim())?;
    Ok(Report {
        secrets: (gathered.secrets, gathered.tokens + 1, 2),
        places,
        control: control(needles),
        core_of_control,
    })
}

fn told(needles: &Needles, name: &str, bytes: &[u8]) -> Vec<String> {
    needles
        .find(bytes)
        .iter()
        .map(|hit| format!("{name}: secret {} as {} at {}", hit.secret, hit.form, hit.at))
        .collect()
}

/// An application with three secrets, each of which is used well and badly.
async fn application(server: &Server, receiver: &Receiver, gathered: &mut Gathered) -> Result<()> {
    let access = &server.access;
    let merchant = format!("m{}", gathered.secrets);
    access.provision("POST", "/merchants", json!({"name": merchant, "merchant_id": merchant})).await?;
    let made = access
        .provision(
            "POST",
            &format!("/merchants/{merchant}/applications"),
            json!({"name": "a", "callback_url": receiver.url()}),
        )
        .await?;
    let client_id = made["client_id"].as_str().context("a ClientId")?.to_owned();
    let mut secrets = vec![made["payment_api_secret"].as_str().context("a secret")?.to_owned()];
    for n in 1..LIVE {
        secrets.push(rotate(server, &client_id, n, gathered).await?);
    }
    for secret in &secrets {
        gathered.needles.add(secret);
        gathered.secrets += 1;
        use_well_and_badly(server, &client_id, secret, gathered).await?;
    }
    // One ends at once; two are left.
    let listed = access.call("GET", &format!("/operator/v1/applications/{client_id}/secrets"), None).await?;
    let id = listed.json()["items"][LIVE - 1]["secret_id"].as_str().context("a secret's id")?.to_owned();
    gathered.keep(&listed);
    gathered.keep(&access.call("DELETE", &format!("/operator/v1/applications/{client_id}/secrets/{id}"), None).await?);
    let event = json!({"client_id": client_id, "bizType": "PAYMENT_ORDER", "bizId": merchant, "bizStatus": "SUCCESS", "data": {"n": 1}});
    let event = access.provision("POST", "/events", event).await?;
    let path = format!("/operator/v1/events/{}", event["event_id"].as_str().context("an event")?);
    until("the callback is delivered", PATIENCE, async || {
        let answer = access.call("GET", &path, None).await?;
        gathered.keep(&answer);
        Ok((answer.json()["state"] == "delivered").then_some(()))
    })
    .await?;
    Ok(())
}

/// A further secret; the same call once more, which shows none.
async fn rotate(server: &Server, client_id: &str, n: usize, gathered: &mut Gathered) -> Result<String> {
    let path = format!("/operator/v1/applications/{client_id}/secrets");
    let draft =
        server.access.draft("POST", &path, Some(&json!({"overlap_s": 3600}))).with("Idempotency-Key", &format!("k{n}"));
    let mut connection = Connection::open(server.access.address).await?;
    let made = connection.send(&draft.bytes()).await?.json();
    let again = connection.send(&draft.bytes()).await?;
    gathered.keep(&again);
    ensure!(again.json()["payment_api_secret"].is_null(), "an answer shows a secret again");
    made["payment_api_secret"].as_str().map(str::to_owned).with_context(|| format!("a secret: {made}"))
}

/// As merchants do, and as merchants do by mistake: the secret where something else belongs.
async fn use_well_and_badly(server: &Server, client_id: &str, secret: &str, gathered: &mut Gathered) -> Result<()> {
    let signer = Signer { client_id: client_id.to_owned(), key: SigningKey::new(secret.as_bytes()), merchant_id: None };
    let draft = || signer.draft("GET", "/v1/pay/events", b"");
    let good = draft();
    let bare = secret.rsplit('_').next().unwrap_or(secret);
    let tries = [
        good.clone(),
        good,
        draft().with("X-Service-Certificate-ClientId", bare),
        draft().with("X-Service-On-Behalf-Of", bare),
        signer.draft("GET", &format!("/nowhere/{bare}"), b""),
        signer.draft("GET", &format!("/{}/{secret}", "x".repeat(225)), b""),
        draft().with("X-Service-Signature", secret),
        draft().with("X-Service-Certificate-ClientId", secret),
        draft().with("Authorization", &format!("Bearer {secret}")).without("X-Service-Signature"),
        draft().with("X-Service-MerchantId", secret),
        draft().with("X-Service-On-Behalf-Of", secret),
        draft().with("X-Service-Timestamp", "1"),
        signer.draft("POST", "/rate/commission_rule/upgrade", format!("{{\"sub_merchant_id\":\"{secret}\"").as_bytes()),
        signer.draft("GET", &format!("/v1/pay/convert/order?orderId={secret}"), b""),
        signer.draft("GET", &format!("/nowhere/{secret}"), b""),
    ];
    let mut connection = Connection::open(server.listen).await?;
    for (n, draft) in tries.into_iter().enumerate() {
        let answer = connection.send(&draft.bytes()).await?;
        ensure!(n > 0 || answer.code() == "000000", "the secret was not used at all: {}", answer.json());
        gathered.keep(&answer);
    }
    let bearer =
        server.access.draft("GET", "/operator/v1/merchants", None).with("Authorization", &format!("Bearer {secret}"));
    let mut operators = Connection::open(server.access.address).await?;
    gathered.keep(&operators.send(&bearer.bytes()).await?);
    let beside = server.access.draft("GET", &format!("/operator/v1/applications/{secret}"), None);
    // Its answer says what was asked for, to whoever asked.
    operators.send(&beside.bytes()).await?;
    Ok(())
}

async fn token(server: &Server, gathered: &mut Gathered) -> Result<()> {
    let made = server.access.provision("POST", "/tokens", json!({"name": "canary", "role": "viewer"})).await?;
    let token = made["token"].as_str().context("a token")?;
    gathered.needles.add(token);
    gathered.tokens += 1;
    let draft =
        server.access.draft("GET", "/operator/v1/audit", None).with("Authorization", &format!("Bearer {token}"));
    let answer = Connection::open(server.access.address).await?.send(&draft.bytes()).await?;
    ensure!(answer.status == 200, "a token is not good: {}", answer.status);
    gathered.keep(&answer);
    Ok(())
}

/// Every list that operators see.
async fn look_around(server: &Server, gathered: &mut Gathered) -> Result<()> {
    for path in ["/merchants", "/applications", "/events", "/audit"] {
        let mut after = String::new();
        loop {
            let answer = server.access.call("GET", &format!("/operator/v1{path}?limit=200{after}"), None).await?;
            gathered.keep(&answer);
            let Value::String(next) = answer.json()["next"].clone() else { break };
            after = format!("&after={next}");
        }
    }
    Ok(())
}

async fn once_plain(server: &Server, path: &str) -> Result<String> {
    let answer = server.access.call("GET", path, None).await?;
    Ok(String::from_utf8_lossy(&answer.body).into_owned())
}

/// All files, as a backup by hand has them, without the key that is kept elsewhere.
fn copy_away(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        if entry.file_type()?.is_file() && name != "master.key" && name != "serve.log" {
            std::fs::copy(entry.path(), to.join(name))?;
        }
    }
    Ok(())
}

/// Ends a server as a fault of its own would, and waits until it is gone.
fn crash(server: Server, folder: &Path) -> Result<()> {
    let pid = server.pid();
    let told = Command::new("kill").args(["-ABRT", &pid.to_string()]).status()?;
    ensure!(told.success(), "kill failed");
    server.wait()?;
    // It stands where its process stood: a core goes there unless the system says otherwise.
    ensure!(cores(folder)?.is_empty(), "a crash left {:?}", cores(folder)?);
    Ok(())
}

/// Files that a crash left in `folder` or in the folder of the data.
fn cores(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for place in [folder.to_owned(), folder.join("shipped"), folder.join("data"), std::env::current_dir()?] {
        for entry in std::fs::read_dir(place)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with("core") && entry.file_type()?.is_file() {
                found.push(entry.path());
            }
        }
    }
    Ok(found)
}

/// A folder for a server to stand in.
fn place_for(folder: &Path, name: &str) -> Result<PathBuf> {
    let place = folder.join(name);
    std::fs::create_dir(&place)?;
    Ok(place)
}

/// A server that stands in `place` and whose system would let it leave a core there.
fn with_cores(deployment: &Deployment, place: &Path, settings: &str) -> Result<Server> {
    std::fs::write(place.join("s.toml"), settings)?;
    let script = format!(
        "ulimit -c unlimited && cd {} && exec {} serve --config s.toml --listen 127.0.0.1:0 --operator-listen 127.0.0.1:0 \
         --allow-private-callbacks --data {}",
        place.display(),
        binary().display(),
        deployment.data.display()
    );
    let mut command = Command::new("sh");
    let log = std::fs::OpenOptions::new().create(true).append(true).open(deployment.data.join("serve.log"))?;
    command.args(["-c", &script]).stderr(log);
    deployment.serve_as(command)
}

/// The same crash of a server that may leave its memory: the search must find the master key there, or it would find nothing anywhere.
fn core_of_control(deployment: &Deployment, place: &Path, master: &str) -> Result<Option<usize>> {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if pattern.trim() != "core" {
        return Ok(None);
    }
    // Nothing but this setting is different.
    let server = with_cores(deployment, place, &format!("{LOG_LEVEL}core_dumps = true\n"))?;
    let told = Command::new("kill").args(["-ABRT", &server.pid().to_string()]).status()?;
    ensure!(told.success(), "kill failed");
    server.wait()?;
    let mut needles = Needles::default();
    needles.add(master);
    let Some(core) =
        std::fs::read_dir(place)?.flatten().find(|entry| entry.file_name().to_string_lossy().starts_with("core"))
    else {
        return Ok(None);
    };
    Ok(Some(needles.find(&std::fs::read(core.path())?).len()))
}

/// Every secret in every form in one text, whole and cut to 61 digits: how many of them the search finds, and how many there are.
fn control(needles: &Needles) -> (usize, usize) {
    const TEXT: &str = "sk_00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    let mut own = Needles::default();
    own.add(TEXT);
    let mut forms = search::forms(&TEXT.as_bytes()[3..]);
    forms.extend(search::forms(&TEXT.as_bytes()[3..64]));
    let found = forms.iter().filter(|(_, bytes)| !own.find(bytes).is_empty() && needles.find(bytes).is_empty()).count();
    (found, forms.len())
}

/// A table for people.
pub fn print(store: StoreKind, report: &Report) {
    let (secrets, tokens, keys) = report.secrets;
    println!(
        "{}: {secrets} Payment API Secrets, {tokens} operator tokens and {keys} keys (master key, evidence), looked for in every form",
        store.name()
    );
    for Place { name, bytes, found } in &report.places {
        println!(
            "  {:>6} found in {:>10.1} KiB: {name}",
            found.len(),
            u32::try_from(bytes / 100).map_or(0.0, f64::from) / 10.24
        );
    }
    println!("  control: {} of {} planted forms found", report.control.0, report.control.1);
    match report.core_of_control {
        Some(hits) => println!(
            "  control: a core dump that was allowed holds the master key {hits} times; the shipped setting left no dump"
        ),
        None => {
            println!(
                "  no control of core dumps: this machine puts them elsewhere; the shipped setting left none here"
            );
        }
    }
}
