//! What is counted, for `/metrics`. Handles are made once, so that a request pays an addition and not a look-up.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use countersign_protocol::code::Code;
use countersign_protocol::endpoint::Endpoint;
use metrics::{Counter, Histogram, counter, gauge, histogram};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

/// Upper bounds of the buckets of request times, in seconds.
const SECONDS: [f64; 13] = [0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.25, 1.0, 5.0, 10.0, 20.0];

/// Of attempts at callbacks: what hangs ends at the deadline, 15 s unless that is set otherwise.
const ATTEMPT_SECONDS: [f64; 12] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0];

/// Of how late callbacks are: endpoints that fail or have a rate keep theirs waiting for long.
const DELAY_SECONDS: [f64; 10] = [0.01, 0.05, 0.25, 1.0, 5.0, 30.0, 60.0, 300.0, 1_800.0, 21_600.0];

/// When the last good backup was begun that is noted in the data folder, in seconds since 1970; 0: none is.
pub const LAST_BACKUP: &str = "countersign_last_backup_timestamp_seconds";

/// Takes the recorder of the process into use, once; a second call gives the same handle.
pub fn install() -> Result<PrometheusHandle, BuildError> {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(handle) = HANDLE.get() {
        return Ok(handle.clone());
    }
    let delay = Matcher::Full(crate::dispatch::DELAY_SECONDS.to_owned());
    let attempt = Matcher::Full(crate::dispatch::ATTEMPT_SECONDS.to_owned());
    let builder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS)?
        .set_buckets_for_metric(delay, &DELAY_SECONDS)?
        .set_buckets_for_metric(attempt, &ATTEMPT_SECONDS)?;
    let handle = builder.install_recorder()?;
    metrics::describe_counter!("countersign_requests_total", "Requests of merchants by endpoint and code");
    metrics::describe_counter!(
        "countersign_operator_requests_total",
        "Calls of the operator API by method, route and code"
    );
    metrics::describe_histogram!("countersign_request_seconds", "From a request's head to its answer");
    metrics::describe_gauge!("countersign_build_info", "Which program this is: always 1");
    gauge!("countersign_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    metrics::describe_gauge!("countersign_ready", "1 while this node takes requests, else 0");
    metrics::describe_gauge!(
        LAST_BACKUP,
        "When the last good backup was begun that is noted in the data folder; 0: none is"
    );
    gauge!(LAST_BACKUP).set(0.0);
    metrics::describe_gauge!("countersign_database_standbys", "Standbys of PostgreSQL that follow, by kind");
    metrics::describe_counter!(crate::app::rates::GONE_STALE, "Rates that became too old to be quoted");
    metrics::describe_counter!(crate::log::LOST, "Lines of the log that could not be written, or that nobody took");
    metrics::describe_counter!(
        crate::listen::EVICTED,
        "Connections that asked for nothing and were closed to make room"
    );
    // There from the start: an alert on their growth sees the first of all, too.
    for name in [crate::app::rates::GONE_STALE, crate::log::LOST, crate::listen::EVICTED] {
        counter!(name).increment(0);
    }
    Ok(HANDLE.get_or_init(|| handle).clone())
}

/// Counters of the merchant listener, by endpoint and code.
pub struct RequestMeters {
    by_code: Vec<OnceLock<Counter>>,
    seconds: Vec<OnceLock<Histogram>>,
}

impl std::fmt::Debug for RequestMeters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestMeters").finish_non_exhaustive()
    }
}

impl Default for RequestMeters {
    fn default() -> Self {
        // One more row for what is no endpoint, one more column for success.
        let rows = Endpoint::ALL.len() + 1;
        let cells = rows * (Code::ALL.len() + 1);
        Self {
            by_code: std::iter::repeat_with(OnceLock::new).take(cells).collect(),
            seconds: std::iter::repeat_with(OnceLock::new).take(rows).collect(),
        }
    }
}

impl RequestMeters {
    /// Counts one answer. `code` is none for success.
    pub fn count(&self, endpoint: Option<Endpoint>, code: Option<Code>, took: Duration) {
        let row = endpoint.and_then(|e| Endpoint::ALL.iter().position(|x| *x == e)).unwrap_or(Endpoint::ALL.len());
        let column = code.and_then(|c| Code::ALL.iter().position(|x| *x == c)).unwrap_or(Code::ALL.len());
        let name = || endpoint.map_or("none", Endpoint::name);
        let cell = row * (Code::ALL.len() + 1) + column;
        self.by_code[cell]
            .get_or_init(|| {
                counter!("countersign_requests_total", "endpoint" => name(), "code" => code.map_or("000000", Code::code))
            })
            .increment(1);
        self.seconds[row]
            .get_or_init(|| histogram!("countersign_request_seconds", "endpoint" => name()))
            .record(took.as_secs_f64());
    }
}
