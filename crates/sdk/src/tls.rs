//! A client's own TLS configuration: TLS 1.2 or above, one crypto library, nothing global.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::error::Error;

/// Whom a client trusts.
#[derive(Debug)]
pub enum Roots {
    /// Nobody: the connection is not encrypted, or there is none.
    None,
    /// The machine's own list, or the one that `SSL_CERT_FILE` and `SSL_CERT_DIR` name.
    System,
    /// These certificates and no others, as PEM.
    Only(Vec<u8>),
}

/// A configuration that trusts `roots`.
pub fn config(roots: &Roots) -> Result<ClientConfig, Error> {
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Usage(format!("TLS cannot be set up: {error}")))?;
    Ok(builder.with_root_certificates(store(roots)?).with_no_client_auth())
}

fn store(roots: &Roots) -> Result<RootCertStore, Error> {
    let mut store = RootCertStore::empty();
    match roots {
        Roots::None => return Ok(store),
        Roots::System => {
            // Some machines have entries that cannot be read; what can be read is enough.
            let found = rustls_native_certs::load_native_certs();
            store.add_parsable_certificates(found.certs);
            if store.is_empty() {
                return Err(Error::Usage(no_roots(found.errors.first())));
            }
        }
        Roots::Only(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let certificate = certificate
                    .map_err(|error| Error::Usage(format!("the root certificates cannot be read: {error}")))?;
                store
                    .add(certificate)
                    .map_err(|error| Error::Usage(format!("a root certificate cannot be used: {error}")))?;
            }
        }
    }
    if store.is_empty() {
        return Err(Error::Usage("there is no root certificate in the PEM that was given".to_owned()));
    }
    Ok(store)
}

/// What to do where the machine has no list, with the first thing that went wrong in looking for one.
fn no_roots(first: Option<&impl fmt::Display>) -> String {
    let first = first.map_or_else(|| "none was found".to_owned(), ToString::to_string);
    format!(
        "there is no root certificate to trust: install the system's, look at what SSL_CERT_FILE and SSL_CERT_DIR name, or give the client its own ({first})"
    )
}

#[cfg(test)]
mod tests {
    use super::no_roots;

    #[test]
    fn who_has_no_roots_is_told_where_they_are_looked_for_and_what_went_wrong() {
        for (first, wanted) in [(Some("no such file"), "(no such file)"), (None, "(none was found)")] {
            let said = no_roots(first.as_ref());
            assert!(!said.contains("root_certificates"), "it is told by commands, too: {said}");
            assert!(said.contains("SSL_CERT_FILE and SSL_CERT_DIR") && said.ends_with(wanted), "{said}");
        }
    }
}
