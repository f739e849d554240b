//! The file of authorities that the environment names for HTTPS.
//!
//! The library that reads it takes one that cannot be read, or holds no certificate, for an empty one: what is said then is that the server is not
//! trusted, and the file is named nowhere.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{anyhow, ensure};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::small_file;

const FILE_VARIABLE: &str = "SSL_CERT_FILE";

/// Refuses a file that is named and of no use, where `url` is one of HTTPS.
pub fn demand(url: &str, environment: &BTreeMap<String, String>) -> anyhow::Result<()> {
    let is_https = url.split_once("://").is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("https"));
    let Some(file) = environment.get(FILE_VARIABLE).filter(|_| is_https) else { return Ok(()) };
    let bytes = small_file::read(Path::new(file))
        .map_err(|error| anyhow!("{FILE_VARIABLE} names {file:?}, which cannot be read: {error}"))?;
    let certificates = CertificateDer::pem_slice_iter(&bytes)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| anyhow!("{FILE_VARIABLE} names {file:?}, which cannot be read as PEM: {error}"))?;
    let (usable, _) = RootCertStore::empty().add_parsable_certificates(certificates);
    ensure!(usable > 0, "{FILE_VARIABLE} names {file:?}, which holds no certificate that can be used");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_authorities_that_is_of_no_use_is_named_where_it_would_be_used() {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let file = folder.path().join("ca.pem");
        let name = file.display().to_string();
        let of = |url: &str| {
            let environment = BTreeMap::from([(FILE_VARIABLE.to_owned(), name.clone())]);
            demand(url, &environment).map_err(|error| error.to_string())
        };
        let refused = |why: &str| {
            let said = of("https://pay.example").expect_err(why);
            assert!(said.starts_with(&format!("SSL_CERT_FILE names {name:?}, which {why}")), "{said}");
            assert_eq!(of("HTTPS://pay.example"), Err(said));
            assert_eq!(of("http://127.0.0.1:8080"), Ok(()), "nobody asks for it");
        };
        refused("cannot be read: ");
        for (pem, why) in [
            ("", "holds no certificate that can be used"),
            ("no PEM at all\n", "holds no certificate that can be used"),
            ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "holds no certificate that can be used"),
            ("-----BEGIN CERTIFICATE-----\nAAAA\n", "cannot be read as PEM: "),
        ] {
            std::fs::write(&file, pem).expect("it can be written");
            refused(why);
        }
        let made = rcgen::generate_simple_self_signed(["pay.example".to_owned()]).expect("a certificate");
        std::fs::write(&file, made.cert.pem()).expect("it can be written");
        assert_eq!(of("https://pay.example"), Ok(()));
        assert!(demand("https://pay.example", &BTreeMap::new()).is_ok(), "none is named");
    }
}
