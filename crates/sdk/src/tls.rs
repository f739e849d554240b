//! A client's own TLS configuration: TLS 1.2 or above, one crypto library, nothing global.

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
    /// The machine's own list.
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
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
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
        return Err(Error::Usage(
            "there is no root certificate to trust: install the system's, or name your own".to_owned(),
        ));
    }
    Ok(store)
}
