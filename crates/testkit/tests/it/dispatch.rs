//! The dispatcher against real endpoints on loopback, over the store of this run, with a clock that stands until a test moves it.

use std::sync::Arc;
use std::time::Duration;

use countersign::app::endpoint::{self, Flow};
use countersign::app::events::{self, Happening};
use countersign::app::identity::{self, ApplicationChange, EndpointChange, NewApplication, NewMerchant, Set, Standing};
use countersign::app::redelivery::of_one;
use countersign::app::{Actor, App};
use countersign::clock::Clock;
use countersign::config::Config;
use countersign::dispatch::{DispatchSettings, Dispatcher};
use countersign::run;
use countersign_domain::delivery::{DeliveryState, Outcome, Schedule};
use countersign_domain::ids::SortedId;
use countersign_domain::time::UnixMillis;
use countersign_protocol::callback;
use countersign_protocol::signing::SigningKey;
use countersign_store::contract::{Asker, AttemptRow, EndpointSettings, EventRow};
use countersign_store::testing::Damage;
use countersign_store::{Batch, Store as _, Write};
use countersign_testkit::backing::Backing;
use countersign_testkit::receiver::{Received, Receiver};
use tempfile::TempDir;

mod backlogs;
mod behaviours;
mod damaged;
mod dead_and_disabled;
mod endpoints;
mod few_files;
mod handed;
mod lost_commits;
mod metrics;
mod neighbours;
mod order;
mod outcomes;
mod overdue;
mod queued;
mod routes;
mod running;
mod sent_again;
mod settings;
mod signatures;
mod trials;
mod wire;

/// 2026-01-01T00:00:00Z.
const START: UnixMillis = UnixMillis(1_767_225_600_000);
/// For what must happen: far longer than it takes.
const SOON: Duration = Duration::from_secs(20);
/// For what must not happen in a test: longer than one takes, however often this process stands still.
const LONG: Duration = Duration::from_secs(60);

/// An application over the store of this run and its dispatcher.
struct Bench {
    app: Arc<App>,
    dispatcher: Arc<Dispatcher>,
    clock: Clock,
    folder: TempDir,
    backing: Backing,
}

/// An application of a merchant and its first secret.
struct Owner {
    client_id: String,
    secret: String,
}

fn actor() -> Actor {
    Actor::named("token:tok_test")
}

/// Loopback allowed, and no attempt, kept connection or lane is lost by time.
fn settings() -> DispatchSettings {
    DispatchSettings {
        allow_private: true,
        connect_timeout: LONG,
        deadline: LONG,
        idle_max: LONG,
        lease: LONG,
        ..DispatchSettings::default()
    }
}

impl Bench {
    async fn new() -> Self {
        Self::with(settings()).await
    }

    async fn with(settings: DispatchSettings) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let backing = Backing::of_this_run().await;
        let mut config = Config { data: folder.path().join("data"), ..Config::default() };
        backing.lay(&mut config);
        run::initialise(&config).await.expect("a fresh folder takes a deployment");
        let clock = Clock::manual(START);
        let app = run::open_app(&config, clock.clone(), None).await.expect("a fresh deployment opens");
        let app = Arc::new(app);
        let dispatcher = Arc::new(Dispatcher::new(app.clone(), settings).expect("settings that hold"));
        Self { app, dispatcher, clock, folder, backing }
    }

    /// Attempts have so long from here on.
    fn give(&mut self, deadline: Duration) {
        let settings = DispatchSettings { deadline, ..settings() };
        self.dispatcher = Arc::new(Dispatcher::new(self.app.clone(), settings).expect("settings that hold"));
    }

    /// An attempt whose time ran out when it had come so far, and how long that was. Where this process stood still, a short time may be over before:
    /// then another event has a longer one.
    async fn run_out(
        &mut self,
        owner: &Owner,
        name: &str,
        has_come: impl Fn(&AttemptRow) -> bool,
    ) -> (EventRow, AttemptRow, Duration) {
        let mut deadline = Duration::from_millis(500);
        loop {
            self.give(deadline);
            let event = self.emit(owner, &format!("{name} in {deadline:?}")).await;
            assert_eq!(self.deliver().await, 1, "{name} in {deadline:?}");
            let attempt = self.read(event.event_id).await.1.remove(0);
            if has_come(&attempt) || deadline >= SOON {
                return (event, attempt, deadline);
            }
            deadline *= 2;
        }
    }

    async fn owner(&self, url: Option<String>) -> Owner {
        let ask = NewMerchant {
            merchant_id: None,
            name: "A merchant".to_owned(),
            standing: Standing::Merchant,
            user_id: None,
        };
        let merchant = identity::create_merchant(&self.app, &ask, &|_| None, &actor()).await.expect("a merchant");
        let ask = NewApplication {
            merchant_id: merchant.merchant_id,
            name: "An application".to_owned(),
            callback_url: url,
            endpoint: EndpointSettings::default(),
        };
        let made = identity::create_application(&self.app, &ask, &|_| None, &actor()).await.expect("an application");
        Owner { client_id: made.application.client_id, secret: made.plain.expose().to_owned() }
    }

    async fn emit(&self, owner: &Owner, biz_id: &str) -> EventRow {
        self.emit_data(owner, biz_id, r#"{"merchantTradeNo":"M-1"}"#).await
    }

    async fn emit_data(&self, owner: &Owner, biz_id: &str, data: &str) -> EventRow {
        let what = Happening {
            client_id: owner.client_id.clone(),
            biz_type: "PAYMENT_ORDER".to_owned(),
            biz_id: biz_id.to_owned(),
            biz_status: "SUCCESS".to_owned(),
            data: data.to_owned(),
        };
        events::emit(&self.app, &what, &|_| None, &actor()).await.expect("an event")
    }

    async fn change(&self, owner: &Owner, change: ApplicationChange) {
        let changed = identity::update_application(&self.app, &owner.client_id, &change, &|_| None, &actor()).await;
        changed.expect("an application changes");
    }

    async fn set_delays(&self, owner: &Owner, delays: &[&str]) {
        let schedule = Set::To(Schedule::parse(delays).expect("a schedule"));
        let endpoint = EndpointChange { schedule, ..EndpointChange::default() };
        self.change(owner, ApplicationChange { endpoint, ..ApplicationChange::default() }).await;
    }

    async fn set_url(&self, owner: &Owner, url: String) {
        self.change(owner, ApplicationChange { callback_url: Set::To(url), ..ApplicationChange::default() }).await;
    }

    async fn enable(&self, owner: &Owner, enabled: bool) {
        self.change(owner, ApplicationChange { callback_enabled: Some(enabled), ..ApplicationChange::default() }).await;
    }

    /// Whether callbacks go out, or what keeps them.
    async fn flow(&self, owner: &Owner) -> Flow {
        endpoint::look(&self.app, &owner.client_id).await.expect("an endpoint").flow
    }

    /// Attempts made at the clock's instant.
    async fn deliver(&self) -> usize {
        self.dispatcher.deliver_due(self.clock.now()).await
    }

    /// Attempts made when the next one is due, which lies in the future.
    async fn deliver_next(&self, event: &EventRow) -> usize {
        let due_at = self.row(event).await.due_at.expect("a pending event");
        self.clock.advance_ms(due_at.0 - self.clock.now().0);
        self.deliver().await
    }

    async fn read(&self, id: SortedId) -> (EventRow, Vec<AttemptRow>) {
        self.app.store.event(Asker::Operator, id).await.expect("the store reads").expect("the event is there")
    }

    async fn row(&self, event: &EventRow) -> EventRow {
        self.read(event.event_id).await.0
    }

    async fn commit(&self, write: Write) {
        self.app.store.commit(Batch(vec![write])).await.expect("is committed");
    }

    /// Makes rows unreadable, or readable again; whoever reads sees it.
    async fn damage(&self, what: &Damage) {
        self.backing.damage(what, &self.folder.path().join("data")).await;
        self.commit(Write::PutSetting { name: "damaged".to_owned(), value: format!("{what:?}") }).await;
    }

    async fn state(&self, event: &EventRow) -> DeliveryState {
        self.row(event).await.state
    }

    async fn outcomes(&self, event: &EventRow) -> Vec<Outcome> {
        self.read(event.event_id).await.1.into_iter().map(|a| a.outcome).collect()
    }

    /// Checks a callback as its receiver would, with this secret and this header.
    fn verified_by(&self, received: &Received, header: &str, secret: &str) -> bool {
        let (timestamp, nonce) = (received.need("x-service-timestamp"), received.need("x-service-nonce"));
        let key = SigningKey::new(secret.as_bytes());
        let now = self.clock.now().0;
        callback::verify(&key, timestamp, nonce, &received.body, received.need(header), now, 0).is_ok()
    }

    fn is_signed_by(&self, received: &Received, secret: &str) -> bool {
        self.verified_by(received, "x-service-signature", secret)
    }
}

async fn receiver() -> Receiver {
    Receiver::start().await.expect("a loopback port")
}
