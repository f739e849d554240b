//! Flags that are settings.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use crate::config::{ADDRESS_WANTED, Config, ConfigRefused, Flag, Layers};

/// Where the data is. An empty text is refused: it is a variable of a script that was not set, and would mean another deployment.
#[derive(Clone, Debug, Default, Args)]
pub struct DataArgs {
    /// Data folder [default: countersign-data]
    #[arg(long, value_name = "DIR", value_parser = NonEmptyStringValueParser::new())]
    pub data: Option<String>,
    /// Database for many nodes [default: SQLite in the data folder]
    #[arg(long, value_name = "URL", value_parser = NonEmptyStringValueParser::new())]
    pub database_url: Option<String>,
    /// File of the master key [default: master.key in the data folder]
    #[arg(long, value_name = "FILE", value_parser = NonEmptyStringValueParser::new())]
    pub master_key: Option<String>,
    /// Settings file (TOML); also COUNTERSIGN_CONFIG
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Flags of `serve`, `doctor` and `config`.
#[derive(Clone, Debug, Default, Args)]
pub struct SettingsArgs {
    /// Where the data is.
    #[command(flatten)]
    pub data: DataArgs,
    /// Address for merchants; port 0 picks a free one [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub listen: Option<SocketAddr>,
    /// Address for operators [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub operator_listen: Option<SocketAddr>,
    /// PEM file of the certificate chain
    #[arg(long, value_name = "FILE", requires = "tls_key", value_parser = NonEmptyStringValueParser::new())]
    pub tls_cert: Option<String>,
    /// PEM file of its private key
    #[arg(long, value_name = "FILE", requires = "tls_cert", value_parser = NonEmptyStringValueParser::new())]
    pub tls_key: Option<String>,
    /// A proxy in front speaks TLS: plain HTTP on any address is on purpose
    #[arg(long, conflicts_with = "tls_cert")]
    pub behind_proxy: bool,
    /// Serve a folder whose deployment was moved to a database all the same (dangerous: the two know nothing of each other)
    #[arg(long)]
    pub serve_moved: bool,
    /// Allow callbacks over http and to private addresses (development only)
    #[arg(long)]
    pub allow_private_callbacks: bool,
}

fn address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| ADDRESS_WANTED)
}

fn text_flags(flags: &mut Vec<Flag>, given: &[(&'static str, &'static str, &Option<String>)]) {
    for (flag, setting, text) in given {
        flags.extend(text.as_ref().map(|text| Flag { flag, setting, text: text.clone() }));
    }
}

impl DataArgs {
    fn flags(&self) -> Vec<Flag> {
        let mut flags = Vec::new();
        text_flags(
            &mut flags,
            &[
                ("--data", "data", &self.data),
                ("--database-url", "database_url", &self.database_url),
                ("--master-key", "master_key_file", &self.master_key),
            ],
        );
        if self.master_key.is_some() {
            // A flag lies over the environment, so the key there must not win.
            for setting in ["master_key", "master_key_command"] {
                flags.push(Flag { flag: "--master-key", setting, text: String::new() });
            }
        }
        flags
    }

    /// All settings under these flags, for a command that listens nowhere.
    pub fn load(&self, environment: &BTreeMap<String, String>) -> Result<Config, ConfigRefused> {
        Config::load(self.config.as_deref(), environment, &self.flags())
    }
}

impl SettingsArgs {
    /// All settings under these flags, good for listeners too.
    pub fn load(&self, environment: &BTreeMap<String, String>) -> Result<Config, ConfigRefused> {
        Config::of_server(self.layers(environment)?, environment)
    }

    /// The same, unread and with who set each.
    pub fn layers(&self, environment: &BTreeMap<String, String>) -> Result<Layers, ConfigRefused> {
        let mut flags = self.data.flags();
        let text = |address: Option<SocketAddr>| address.map(|address| address.to_string());
        text_flags(
            &mut flags,
            &[
                ("--listen", "listen", &text(self.listen)),
                ("--operator-listen", "operator_listen", &text(self.operator_listen)),
                ("--tls-cert", "tls__cert", &self.tls_cert),
                ("--tls-key", "tls__key", &self.tls_key),
            ],
        );
        for (flag, setting, given) in [
            ("--behind-proxy", "behind_proxy", self.behind_proxy),
            ("--serve-moved", "serve_moved", self.serve_moved),
            ("--allow-private-callbacks", "allow_private_callbacks", self.allow_private_callbacks),
        ] {
            if given {
                flags.push(Flag { flag, setting, text: "true".to_owned() });
            }
        }
        Layers::laid(self.data.config.as_deref(), environment, &flags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_no_address_to_listen_on() {
        assert_eq!(address("[::1]:0"), Ok("[::1]:0".parse().expect("an address")));
        for text in ["localhost", "localhost:8080", "127.0.0.1", ":8080", ""] {
            assert_eq!(
                address(text),
                Err("an IP address and its port are wanted, such as \"127.0.0.1:8080\""),
                "{text}"
            );
        }
    }

    #[test]
    fn each_flag_sets_its_setting() {
        let args = SettingsArgs {
            data: DataArgs {
                data: Some("D".to_owned()),
                database_url: Some("postgres://127.0.0.1/U".to_owned()),
                master_key: Some("K".to_owned()),
                config: None,
            },
            listen: Some(SocketAddr::from(([0; 4], 1))),
            operator_listen: Some(SocketAddr::from(([127, 0, 0, 1], 2))),
            tls_cert: Some("C".to_owned()),
            tls_key: Some("P".to_owned()),
            behind_proxy: true,
            serve_moved: true,
            allow_private_callbacks: true,
        };
        let environment = BTreeMap::from([("COUNTERSIGN_MASTER_KEY".to_owned(), "11".repeat(32))]);
        let config = args.load(&environment).expect("these settings are good");
        assert_eq!(config.data, PathBuf::from("D"));
        assert_eq!(config.database_url.0.as_deref(), Some("postgres://127.0.0.1/U"));
        assert_eq!(config.master_key_file.0, Some(PathBuf::from("K")));
        assert_eq!(config.master_key.0, None, "the flag lies over the environment");
        assert_eq!((config.listen.port(), config.operator_listen.port()), (1, 2));
        assert_eq!((config.tls.cert.0, config.tls.key.0), (Some(PathBuf::from("C")), Some(PathBuf::from("P"))));
        assert!(config.behind_proxy && config.serve_moved && config.allow_private_callbacks);
    }
}
