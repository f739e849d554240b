//! TLS 1.2 and above, from PEM files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::{TLS12, TLS13};
use thiserror::Error;

/// Why a certificate and its key are not taken into use.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file that cannot be read as PEM.
    #[error("{path} cannot be read as PEM: {cause}", path = .path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        cause: rustls::pki_types::pem::Error,
    },
    /// A file without a certificate.
    #[error("{path} holds no certificate", path = .0.display())]
    NoCertificate(PathBuf),
    /// A key that is not the certificate's, or of a kind that is not supported.
    #[error("certificate and key do not fit together")]
    Unfit(#[source] rustls::Error),
}

/// The server side of TLS with this chain and key.
pub fn server_config(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, TlsError> {
    let unreadable = |path: &Path| {
        let path = path.to_owned();
        move |cause| TlsError::Unreadable { path, cause }
    };
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(unreadable(certificate))?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate(certificate.to_owned()));
    }
    let key = PrivateKeyDer::from_pem_file(key).map_err(unreadable(key))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(TlsError::Unfit)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(TlsError::Unfit)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
