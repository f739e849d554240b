//! Renews the certificate of the listeners while they serve: when its files change, or when told to.

use std::sync::Arc;
use std::time::Duration;

use countersign_domain::time::{UnixMillis, rfc3339};
use tokio::sync::{Notify, watch};

use crate::clock::Clock;
use crate::listen::tls::{Certificate, TlsError};

/// How often the files are looked at.
const LOOKED_AT_EVERY: Duration = Duration::from_secs(2);
const DAY_MS: i64 = 86_400_000;
/// So long before the end of a certificate people are told of it.
pub const EARLY_MS: i64 = 14 * DAY_MS;

/// A certificate that is renewed, and the bell for whoever wants that now.
#[derive(Clone, Debug)]
pub(super) struct Renewal {
    pub(super) certificate: Arc<Certificate>,
    pub(super) asked: Arc<Notify>,
}

impl Renewal {
    /// Until the end: a certificate that is no good is told for each change of its files and each day, and the one in use stays.
    pub(super) async fn watch(self, clock: Clock, mut ended: watch::Receiver<bool>) {
        let mut ticks = tokio::time::interval(LOOKED_AT_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (mut reminded, mut refused) = (None, None);
        loop {
            remind(&self.certificate, &clock, &mut reminded);
            let is_told = tokio::select! {
                _ = ended.wait_for(|ended| *ended) => return,
                () = self.asked.notified() => true,
                _ = ticks.tick() => false,
            };
            let is_told = is_told || is_a_day_ago(refused, clock.now());
            let certificate = self.certificate.clone();
            // Files may be on a disk that hangs.
            let looked = tokio::task::spawn_blocking(move || {
                (is_told || certificate.has_changed()).then(|| certificate.renew())
            });
            if let Ok(Some(outcome)) = looked.await {
                refused = outcome.is_err().then(|| clock.now());
                tell(outcome);
            }
        }
    }
}

/// Whether something was told a day ago, and is due again.
fn is_a_day_ago(told: Option<UnixMillis>, now: UnixMillis) -> bool {
    told.is_some_and(|at| now >= at.plus_ms(DAY_MS))
}

/// Says each day that the certificate ends soon or has ended, and keeps the gauge.
fn remind(certificate: &Certificate, clock: &Clock, reminded: &mut Option<UnixMillis>) {
    let (Some(end), now) = (certificate.ends_at(), clock.now()) else { return };
    metrics::gauge!("countersign_tls_certificate_ends_in_days").set(days_between(now, end));
    let is_due = reminded.is_none() || is_a_day_ago(*reminded, now);
    if now >= end.plus_ms(-EARLY_MS) && is_due {
        *reminded = Some(now);
        tracing::warn!("The TLS certificate ends at {}: put a new one into its files", rfc3339(end));
    }
}

#[expect(clippy::cast_precision_loss, reason = "a gauge of days needs no exact milliseconds")]
fn days_between(now: UnixMillis, end: UnixMillis) -> f64 {
    (end.0 - now.0) as f64 / DAY_MS as f64
}

fn tell(outcome: Result<(), TlsError>) {
    let word = match outcome {
        Ok(()) => {
            tracing::info!("The TLS certificate was read again: new connections get it");
            "renewed"
        }
        Err(error) => {
            let error = anyhow::Error::new(error);
            tracing::error!("The TLS certificate was not renewed, and the one before stays in use: {error:#}");
            "refused"
        }
    };
    metrics::counter!("countersign_tls_renewals_total", "outcome" => word).increment(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_refused_is_told_again_after_a_day() {
        let at = UnixMillis(1_000);
        assert!(!is_a_day_ago(None, at));
        assert!(!is_a_day_ago(Some(at), at.plus_ms(DAY_MS - 1)));
        assert!(is_a_day_ago(Some(at), at.plus_ms(DAY_MS)));
    }
}
