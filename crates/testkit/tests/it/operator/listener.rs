//! An operator listener in process, with a clock that stands still.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::Request;
use countersign::app::events::parse_public_id;
use countersign::app::operators::make_token;
use countersign::app::uses::{self};
use countersign::app::{App, Nodes, Parts, Policy};
use countersign::clock::Clock;
use countersign::config::Config;
use countersign::dispatch::egress::Egress;
use countersign::dispatch::{DispatchSettings, Dispatcher};
use countersign::edges::IntakeLimits;
use countersign::log::{LogGuard, LogSink};
use countersign::merchant::Budget;
use countersign::meters;
use countersign::operator::{Desk, Gate, OperatorSettings, Peer, router};
use countersign::run;
use countersign::run::deployment_settings::MASTER_KEY_ID;
use countersign::source::Sources;
use countersign::vault::Vault;
use countersign_domain::delivery::{DeliveryState, Outcome};
use countersign_domain::lanes::Fence;
use countersign_domain::time::UnixMillis;
use countersign_protocol::headers::Prefixes;
use countersign_store::attempt_log::{AttemptBytes, Phases};
use countersign_store::contract::{Asker, AttemptRow, Role};
use countersign_store::testing::Damage;
use countersign_store::{AnyStore, Batch, ModelStore, Store as _, Write};
use countersign_testkit::backing::Backing;
use countersign_testkit::wire::names_its_part;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tempfile::TempDir;
use tower::ServiceExt as _;
use zeroize::Zeroizing;

use super::foretold;

/// 2026-01-01T00:00:00Z.
pub const START: UnixMillis = UnixMillis(1_767_225_600_000);
pub const DAY_MS: i64 = 86_400_000;

/// The listener with all behind it.
pub struct House {
    pub app: Arc<App>,
    pub router: Router,
    security: String,
    _log: LogGuard,
    folder: TempDir,
    backing: Backing,
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub text: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// A member of the answer that is a text.
    pub fn text_of(&self, name: &str) -> String {
        self.json()[name].as_str().unwrap_or_else(|| panic!("{name} is no text in {}", self.text)).to_owned()
    }

    pub fn ok(self) -> Self {
        assert_eq!(self.status, 200, "{}", self.text);
        self
    }

    /// It is this refusal, a whole problem document, and its sentence names `word`.
    pub fn refused(&self, status: u16, code: &str, word: &str) {
        let problem = self.json();
        assert_eq!((self.status, problem["code"].as_str()), (status, Some(code)), "{}", self.text);
        assert_eq!(self.headers["content-type"], "application/problem+json");
        assert_eq!(problem["status"], status);
        assert_eq!(problem["request_id"], self.headers["x-service-request-id"]);
        for name in ["type", "title", "label", "detail"] {
            assert!(problem[name].as_str().is_some_and(|text| !text.is_empty()), "{name} in {}", self.text);
        }
        assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains(word)), "{word} in {}", self.text);
    }
}

impl House {
    pub async fn open() -> Self {
        Self::open_with(Egress { allow_private: false, allowed_ports: vec![8443] }).await
    }

    pub async fn open_with(egress: Egress) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let backing = Backing::of_this_run().await;
        let store = backing.open_store(folder.path()).await.expect("a store");
        Self::over(store, egress, (folder, backing)).await
    }

    /// Over a store that can lose commits.
    pub async fn open_in_memory() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let egress = Egress { allow_private: false, allowed_ports: Vec::new() };
        Self::over(AnyStore::Model(ModelStore::new()), egress, (folder, Backing::sqlite())).await
    }

    /// The store in memory.
    pub fn model(&self) -> &ModelStore {
        let AnyStore::Model(store) = &self.app.store else { panic!("another store") };
        store
    }

    async fn over(store: AnyStore, egress: Egress, (folder, backing): (TempDir, Backing)) -> Self {
        let shipped = Config::default().policy().expect("the default zone is known");
        let policy = Policy { allow_private_callbacks: egress.allow_private, ..shipped };
        let vault = Vault::new(&Zeroizing::new([7; 32]));
        // No heart beats here that would take lanes, on whatever store.
        let app = Arc::new(App::new(Parts { store, clock: Clock::manual(START), vault, policy }, Nodes::One));
        let key = Write::PutSetting { name: MASTER_KEY_ID.to_owned(), value: app.vault.key_id().to_owned() };
        app.store.commit(Batch(vec![key])).await.expect("is written");
        let (log, guard) = LogSink::start(std::io::sink()).expect("a log");
        let dispatch = DispatchSettings {
            allow_private: egress.allow_private,
            allowed_ports: egress.allowed_ports.clone(),
            // Nothing here is about time that runs out.
            deadline: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(60),
            ..DispatchSettings::default()
        };
        let settings = OperatorSettings {
            prefixes: Prefixes::new(&["X-Service-".to_owned()]).expect("a prefix"),
            egress,
            sources: Sources::default(),
            body_bytes_max: 64 * 1024,
            body_timeout: Duration::from_secs(10),
            metrics: meters::install().expect("meters"),
            log,
            limits: IntakeLimits::default(),
            is_tls: false,
            gate: Arc::new(Gate::new(&Budget::default())),
            dispatcher: Arc::new(Dispatcher::new(app.clone(), dispatch).expect("settings that hold")),
        };
        let router = router(&Desk::new(app.clone(), settings).expect("a prefix"));
        let mut house = Self { app, router, security: String::new(), _log: guard, folder, backing };
        house.security = house.token(Role::Security, None).await;
        // As a server does at its start.
        uses::note(&house.app).await.expect("is noted");
        house
    }

    /// Takes the store away: every call of it fails from here on.
    pub async fn take_store_away(&self) {
        match self.backing.database() {
            None => run::close_store(&self.app.store).expect("closes"),
            Some(database) => database.take_away().await,
        }
    }

    /// Makes rows unreadable.
    pub async fn damage(&self, what: &Damage) {
        self.backing.damage(what, self.folder.path()).await;
        let change = Write::PutSetting { name: "damaged".to_owned(), value: format!("{what:?}") };
        self.app.store.commit(Batch(vec![change])).await.expect("is committed");
    }

    /// A token that was written to the store directly, as `init` does.
    pub async fn token(&self, role: Role, expires_at: Option<UnixMillis>) -> String {
        let (row, plain) = make_token(&self.app.chance, self.app.clock.now(), "test", role, expires_at);
        self.app.store.commit(Batch(vec![Write::InsertToken(Box::new(row))])).await.expect("a token is written");
        plain.expose().to_owned()
    }

    pub async fn send(&self, request: Request<Body>) -> Answer {
        let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
        let response = self.router.clone().oneshot(request).await.expect("a router always answers");
        let (head, body) = response.into_parts();
        let bytes: Bytes = body.collect().await.expect("the body is whole").to_bytes();
        let answer = serde_json::from_slice(&bytes).unwrap_or_default();
        names_its_part(head.status.as_u16(), &answer).expect("is told so");
        foretold::check(&method, &path, head.status.as_u16(), &answer);
        let header = |(name, value): (&axum::http::HeaderName, &axum::http::HeaderValue)| {
            (name.as_str().to_owned(), value.to_str().unwrap_or("").to_owned())
        };
        Answer {
            status: head.status.as_u16(),
            headers: head.headers.iter().map(header).collect(),
            text: String::from_utf8_lossy(&bytes).into_owned(),
        }
    }

    /// A request by the security token; `headers` are added.
    pub fn request(&self, method: &str, path: &str, body: Option<&str>, headers: &[(&str, &str)]) -> Request<Body> {
        request_by(&self.security, method, path, body, headers)
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(self.request("GET", path, None, &[])).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(self.request("POST", path, Some(&body.to_string()), &[])).await
    }

    pub async fn patch(&self, path: &str, body: Value) -> Answer {
        self.send(self.request("PATCH", path, Some(&body.to_string()), &[])).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.send(self.request("DELETE", path, None, &[])).await
    }

    /// A POST under an idempotency key.
    pub async fn post_keyed(&self, key: &str, path: &str, body: &str) -> Answer {
        self.send(self.request("POST", path, Some(body), &[("idempotency-key", key)])).await
    }

    /// A plain merchant with an application; its ClientId.
    pub async fn application(&self, merchant_id: &str, callback_url: Option<&str>) -> String {
        self.post("/merchants", json!({"name": "M", "merchant_id": merchant_id})).await.ok();
        let body = json!({"name": "A", "callback_url": callback_url});
        self.post(&format!("/merchants/{merchant_id}/applications"), body).await.ok().text_of("client_id")
    }

    /// Records an attempt at an event as the dispatcher would; `of` says what was special about it. What stays pending is due in 5 s.
    pub async fn record(
        &self,
        event_id: &str,
        state: DeliveryState,
        bytes: Option<AttemptBytes>,
        of: impl FnOnce(AttemptRow) -> AttemptRow,
    ) {
        let id = parse_public_id(event_id).expect("an event id");
        let (row, attempts) = self.app.store.event(Asker::Operator, id).await.expect("a store").expect("the event");
        let at = self.app.clock.now();
        let attempt = Arc::new(of(AttemptRow {
            event: row.no,
            attempt: i64::try_from(attempts.len()).expect("few") + 1,
            at,
            outcome: Outcome::Fail,
            http_status: Some(200),
            duration_ms: 1,
            address: None,
            detail: String::new(),
            fence: Fence(0),
            phases: Phases::default(),
        }));
        let due_at = (state == DeliveryState::Pending).then_some(at.plus_ms(5_000));
        let (tenant, application, bytes) = (row.tenant, row.application, bytes.map(Arc::new));
        let write = Write::RecordAttempt { tenant, application, attempt, bytes, state, due_at };
        self.app.store.commit(Batch(vec![write])).await.expect("an attempt is recorded");
    }

    /// The lines of the audit log, newest first.
    pub async fn audit(&self) -> Vec<Value> {
        let page = self.get("/audit?limit=500").await.ok().json();
        page["items"].as_array().expect("items").clone()
    }
}

/// A request by the bearer of `token`; empty: by nobody. `headers` are added.
pub fn request_by(
    token: &str,
    method: &str,
    path: &str,
    body: Option<&str>,
    headers: &[(&str, &str)],
) -> Request<Body> {
    let path = if path.starts_with("/operator") { path.to_owned() } else { format!("/operator/v1{path}") };
    let mut request = Request::builder().method(method).uri(path).header("host", "localhost");
    if !token.is_empty() {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    if body.is_some() {
        request = request.header("content-type", "application/json");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut request = request.body(Body::from(body.unwrap_or("").to_owned())).expect("a request");
    request.extensions_mut().insert(Peer([192, 0, 2, 7].into()));
    request
}

/// All items of a list, page by page.
pub async fn all_pages(house: &House, path: &str, limit: usize) -> Vec<Value> {
    let mut items = Vec::new();
    let mut after = String::new();
    loop {
        let mark = if path.contains('?') { '&' } else { '?' };
        let page = house.get(&format!("{path}{mark}limit={limit}{after}")).await.ok().json();
        let found = page["items"].as_array().expect("items").clone();
        assert!(found.len() <= limit);
        items.extend(found);
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return items,
        }
    }
}
