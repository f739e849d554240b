//! Renews the certificate of the listeners while they serve: when its files change, or when told to.

use std::sync::Arc;
use std::time::Duration;

use countersign_domain::time::UnixMillis;
use tokio::sync::{Notify, watch};

use crate::clock::Clock;
use crate::listen::Concern;
use crate::listen::tls::{Certificate, TlsError};

/// How often the files are looked at.
const LOOKED_AT_EVERY: Duration = Duration::from_secs(2);
const DAY_MS: i64 = 86_400_000;

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
            remind(&self.certificate, clock.now(), &mut reminded);
            let is_told = tokio::select! {
                _ = ended.wait_for(|ended| *ended) => return,
                () = self.asked.notified() => true,
                _ = ticks.tick() => false,
            };
            let now = clock.now();
            let is_told = is_told || is_a_day_ago(refused, now);
            let certificate = self.certificate.clone();
            // Files may be on a disk that hangs.
            let looked = tokio::task::spawn_blocking(move || {
                (is_told || certificate.is_due(now)).then(|| certificate.renew(now))
            });
            if let Ok(Some(outcome)) = looked.await {
                refused = outcome.is_err().then_some(now);
                tell(outcome);
            }
        }
    }
}

/// Whether something was told a day ago, and is due again.
fn is_a_day_ago(told: Option<UnixMillis>, now: UnixMillis) -> bool {
    told.is_some_and(|at| now >= at.plus_ms(DAY_MS))
}

/// What was last said of the dates of the certificate in use, and when.
type Reminded = Option<(Concern, UnixMillis)>;

/// Says that the certificate ends soon, has ended or is not valid yet, at once and each day, and keeps the gauge.
fn remind(certificate: &Certificate, now: UnixMillis, reminded: &mut Reminded) {
    let dates = certificate.dates();
    if let Some(end) = dates.end {
        metrics::gauge!("countersign_tls_certificate_ends_in_days").set(days_between(now, end));
    }
    if let Some(concern) = dates.concern(now).filter(|concern| is_to_be_said(*concern, *reminded, now)) {
        *reminded = Some((concern, now));
        tracing::warn!("The TLS certificate {concern}");
    }
}

/// Whether this is another concern than the last one, or was last said a day ago.
fn is_to_be_said(concern: Concern, reminded: Reminded, now: UnixMillis) -> bool {
    reminded.is_none_or(|(before, at)| before != concern || is_a_day_ago(Some(at), now))
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

    #[test]
    fn an_end_that_has_come_is_told_at_once_and_again_after_a_day() {
        let end = UnixMillis(1_000);
        let (soon, ended) = (Concern::EndsSoon(end), Concern::Ended(end));
        let reminded = Some((soon, end));
        assert!(is_to_be_said(soon, None, end));
        assert!(!is_to_be_said(soon, reminded, end.plus_ms(DAY_MS - 1)));
        assert!(is_to_be_said(soon, reminded, end.plus_ms(DAY_MS)));
        assert!(is_to_be_said(ended, reminded, end.plus_ms(1)));
    }
}
