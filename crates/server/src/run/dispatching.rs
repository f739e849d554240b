//! What the dispatcher is told of the settings, as far as there are files for it.

use anyhow::Context as _;

use super::prefixes;
use super::way_out::{self, callback_roots, way_out};
use crate::config::Config;
use crate::dispatch::DispatchSettings;
use crate::process::{self, ToReceivers};

/// What the dispatcher is told.
pub(super) fn dispatch_settings(config: &Config) -> anyhow::Result<DispatchSettings> {
    // Named by its setting here, where the dispatcher knows the bytes alone.
    callback_roots(config)?;
    let extra_roots = way_out::extra_roots(config)?;
    let ToReceivers { attempts, slow, kept } = process::allow_files(config.connections()).to_receivers();
    Ok(DispatchSettings {
        prefixes: prefixes(config)?,
        schedule: config.callback_schedule.clone(),
        order_hold_ms: i64::try_from(config.order_hold.0.as_millis()).context("order_hold is too long")?,
        allow_private: config.allow_private_callbacks,
        allowed_ports: config.callback_ports.clone(),
        route: way_out(config)?,
        concurrency: attempts,
        per_merchant: part_of_merchant(config, attempts),
        per_application: config.callback_concurrency_per_application,
        slow,
        kept,
        per_application_per_s: Some(config.callback_rate_per_s).filter(|rate| *rate > 0),
        connect_timeout: config.callback_connect_timeout.0,
        deadline: config.callback_deadline.0,
        drain_grace: config.limits.drain_timeout.0 * 4 / 5,
        extra_roots,
        lease: config.dispatch_lease.0,
        look_every: config.dispatch_poll.0,
        ..DispatchSettings::default()
    })
}

/// Where fewer attempts may be under way than the settings say, a merchant has the same part of them.
fn part_of_merchant(config: &Config, attempts: usize) -> usize {
    let most = config.callback_concurrency_per_merchant;
    if attempts >= config.callback_concurrency { most } else { (most * attempts / config.callback_concurrency).max(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_dispatcher_goes_by_unless_it_is_told_is_what_the_settings_say_unless_they_are_set() {
        let told = dispatch_settings(&Config::default()).expect("the settings hold");
        // As many as this machine has files for.
        let DispatchSettings { concurrency, slow, kept, per_merchant, .. } = told;
        let own = DispatchSettings { concurrency, slow, kept, per_merchant, ..DispatchSettings::default() };
        assert_eq!(format!("{told:?}"), format!("{own:?}"));
    }

    #[test]
    fn a_merchant_has_the_same_part_of_fewer_attempts() {
        let config = Config { callback_concurrency: 256, callback_concurrency_per_merchant: 192, ..Config::default() };
        let parts = [300, 256, 128, 64, 1].map(|attempts| part_of_merchant(&config, attempts));
        assert_eq!(parts, [192, 192, 96, 48, 1]);
    }
}
