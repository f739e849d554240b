//! What an operator wants to know of an endpoint when its merchant calls: whether callbacks go out, what waits, what is dead.

use countersign_domain::time::UnixMillis;
use countersign_store::Store as _;
use countersign_store::backlog::Backlogs as _;
use countersign_store::contract::{ApplicationView, Portion};

use super::App;
use super::error::AppError;
use super::identity::find_application;

/// Events that are counted; beyond it a count is "at least".
const COUNTED_MAX: i64 = 10_000;

/// Whether callbacks of an application go out, or what keeps them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// They go out.
    Enabled,
    /// Callbacks of the whole deployment are held since a restore.
    HeldSinceRestore,
    /// Its merchant, or the institution over that, is disabled.
    MerchantDisabled,
    /// They are turned off by hand.
    Paused,
    /// They are turned off since the endpoint answered 410, Gone.
    Gone,
    /// There is no URL.
    NoUrl,
    /// No secret is live that could sign them.
    NoSecret,
}

impl Flow {
    /// Its name in answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Enabled => "enabled",
            Self::HeldSinceRestore => "held_since_restore",
            Self::MerchantDisabled => "merchant_disabled",
            Self::Paused => "paused",
            Self::Gone => "gone",
            Self::NoUrl => "no_url",
            Self::NoSecret => "no_secret",
        }
    }

    /// Of an application as it is now.
    pub(crate) fn of(app: &App, view: &ApplicationView) -> Self {
        let row = &view.application;
        if app.bell.is_paused() {
            Self::HeldSinceRestore
        } else if !view.merchant_is_enabled() {
            Self::MerchantDisabled
        } else if !row.callback_enabled {
            if row.gone_at().is_some() { Self::Gone } else { Self::Paused }
        } else if row.callback_url.is_none() {
            Self::NoUrl
        } else if !view.secrets.iter().any(|secret| secret.is_live(app.clock.now())) {
            Self::NoSecret
        } else {
            Self::Enabled
        }
    }
}

/// How many there are; counting has a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// So many.
    pub count: i64,
    /// Whether there may be more.
    pub is_at_least: bool,
}

impl Count {
    /// Of what was counted up to one more than the bound.
    fn of(counted: i64) -> Self {
        Self { count: counted.min(COUNTED_MAX), is_at_least: counted > COUNTED_MAX }
    }
}

/// What is known of an endpoint on every node.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The application.
    pub view: ApplicationView,
    /// Whether its callbacks go out.
    pub flow: Flow,
    /// Events that wait for their next attempt.
    pub pending: Count,
    /// Events that wait for callbacks to go out.
    pub held: Count,
    /// Events whose schedule is used up.
    pub dead: Count,
    /// When the oldest event was written that is pending or held.
    pub oldest_open_at: Option<UnixMillis>,
    /// When the next attempt is due.
    pub next_attempt_at: Option<UnixMillis>,
}

/// Looks at the endpoint of an application.
pub async fn look(app: &App, client_id: &str) -> Result<Endpoint, AppError> {
    let view = find_application(app, client_id).await?;
    let (tenant, of) = (view.application.tenant, view.application.no);
    let most = u32::try_from(COUNTED_MAX + 1).unwrap_or(u32::MAX);
    let backlog = app.store.backlog(tenant, of, most).await?;
    let (open, none) = (Count::of(backlog.open), Count::of(0));
    // What is open goes by its application as it is now: a large backlog is held or released in portions, and some rows are late.
    let goes_out = view.goes_out();
    let next = Portion { of: vec![(tenant, of)], known: Vec::new(), limit: 1 };
    let first = if goes_out { app.store.pending_of(next).await?.whole()? } else { Vec::new() };
    Ok(Endpoint {
        flow: Flow::of(app, &view),
        pending: if goes_out { open } else { none },
        held: if goes_out { none } else { open },
        dead: Count::of(backlog.dead),
        oldest_open_at: backlog.oldest_open,
        next_attempt_at: first.iter().filter_map(|event| event.due_at).min(),
        view,
    })
}
