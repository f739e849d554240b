//! The way out of callbacks as the settings describe it, and whether this machine has it.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use anyhow::{Context, anyhow, ensure};

use crate::config::Config;
use crate::dispatch::route::{Proxy, Route, Sources};
use crate::{datadir, dispatch, small_file};

/// Reads the proxy's credentials, and sees whether our own addresses are this machine's. The proxy itself is not asked: it may come later.
pub fn way_out(config: &Config) -> anyhow::Result<Route> {
    let sources = Sources::of(&config.callback_source_address)
        .ok_or_else(|| anyhow!("callback_source_address has two addresses of one family"))?;
    for address in sources.addresses() {
        own(address)?;
    }
    let proxy = config.callback_proxy.get().map(|url| proxy(config, url)).transpose()?;
    Ok(Route { proxy, sources })
}

/// Further authorities for callbacks, as they are in their file (PEM); empty where none is named.
pub fn extra_roots(config: &Config) -> anyhow::Result<Vec<u8>> {
    let Some(file) = config.callback_ca_file.get() else { return Ok(Vec::new()) };
    let pem = small_file::read(file).with_context(|| format!("callback_ca_file {} cannot be read", file.display()))?;
    ensure!(
        !pem.is_empty(),
        "callback_ca_file {} is empty: write the certificates into it again, or name none",
        file.display()
    );
    Ok(pem)
}

/// How many authorities https callbacks are checked by.
pub fn callback_roots(config: &Config) -> anyhow::Result<usize> {
    let extra = extra_roots(config)?;
    let counted = dispatch::count_roots(&extra, config.allow_private_callbacks);
    counted.with_context(|| match config.callback_ca_file.get() {
        Some(file) => format!("callback_ca_file {}", file.display()),
        None => "callbacks".to_owned(),
    })
}

fn proxy(config: &Config, url: &str) -> anyhow::Result<Proxy> {
    let proxy = Proxy::parse(url).context("callback_proxy")?;
    if let Some(text) = config.callback_proxy_credentials.get() {
        return proxy.with_credentials(text.expose()).context("callback_proxy_credentials");
    }
    let Some(file) = config.callback_proxy_credentials_file.get() else { return Ok(proxy) };
    let text = datadir::read_secret(file, config.credentials.as_deref(), "the file of callback_proxy_credentials")?;
    let shown = || format!("callback_proxy_credentials_file {}", file.display());
    proxy.with_credentials(text.trim_end_matches(['\r', '\n'])).with_context(shown)
}

/// Only an address of the machine can be bound.
fn own(address: IpAddr) -> anyhow::Result<()> {
    let bound = UdpSocket::bind(SocketAddr::new(address, 0));
    ensure!(bound.is_ok(), "callback_source_address: {address} is no address of this machine that can be called from");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::*;
    use crate::config::Optional;

    fn with_file(file: &Path) -> Config {
        Config {
            callback_proxy: Optional(Some("http://127.0.0.1:3128".to_owned())),
            callback_proxy_credentials_file: Optional(Some(file.to_path_buf())),
            ..Config::default()
        }
    }

    #[test]
    fn credentials_come_from_a_file_of_their_owner_and_are_in_no_message() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("proxy");
        let write = |text: &str, mode| {
            std::fs::write(&file, text).expect("it can be written");
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).expect("it is ours");
        };
        let said = || format!("{:#}", way_out(&with_file(&file)).expect_err("it is refused"));
        assert!(said().contains("cannot be read"), "{}", said());
        write("me:canary\n", 0o644);
        assert!(said().contains("may be read by others (mode 644): run `chmod 600 "), "{}", said());
        write("canary\n", 0o600);
        assert!(said().contains("NAME:PASSWORD") && !said().contains("canary"), "{}", said());
        write("\u{feff}me:canary\n", 0o600);
        assert!(said().contains("byte order mark (U+FEFF)") && !said().contains("canary"), "{}", said());
        write("me:canary\n", 0o600);
        let route = way_out(&with_file(&file)).expect("a way out");
        assert!(route.proxy.is_some() && !format!("{route:?}").contains("canary"), "{route:?}");
    }

    #[test]
    fn an_address_that_the_machine_does_not_have_is_refused() {
        let from = |text: &str| Config {
            callback_source_address: vec![text.parse().expect("an address")],
            ..Config::default()
        };
        assert!(way_out(&from("127.0.0.5")).is_ok());
        let refused = way_out(&from("192.0.2.77")).expect_err("it is refused").to_string();
        assert_eq!(
            refused,
            "callback_source_address: 192.0.2.77 is no address of this machine that can be called from"
        );
    }
}
