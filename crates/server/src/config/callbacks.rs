//! The way out of callbacks: what is known to be wrong from the settings alone.

use super::{Config, ConfigRefused, refused};
use crate::dispatch::route::{Proxy, Sources};

impl Config {
    /// Proxy, its credentials, and our own addresses.
    pub(super) fn check_way_out(&self) -> Result<(), ConfigRefused> {
        match self.callback_proxy.get().map(|url| Proxy::parse(url)) {
            Some(Ok(proxy)) => {
                let credentials = self.callback_proxy_credentials.get();
                if let Some(Err(why)) = credentials.map(|text| proxy.with_credentials(text.expose())) {
                    return refused(format!("callback_proxy_credentials: {why}"));
                }
            }
            Some(Err(why)) => return refused(format!("callback_proxy: {why}")),
            None if self.callback_proxy_credentials.get().is_some()
                || self.callback_proxy_credentials_file.get().is_some() =>
            {
                return refused(
                    "callback_proxy_credentials are set without callback_proxy: name the proxy that wants them",
                );
            }
            None => {}
        }
        match Sources::of(&self.callback_source_address) {
            Some(_) => Ok(()),
            None => refused(
                "callback_source_address: give at most one address of IPv4 and one of IPv6, both of this machine",
            ),
        }
    }
}
