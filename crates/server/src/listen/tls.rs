//! TLS 1.2 and above, from PEM files that may be replaced while connections are served.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use countersign_domain::time::UnixMillis;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use thiserror::Error;

use super::expiry;

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

/// The certificate in use. Handshakes take what is current; connections that stand keep what they have.
#[derive(Debug)]
struct Current(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

/// A certificate and its key in files, and what of them is in use.
#[derive(Debug)]
pub struct Certificate {
    chain_file: PathBuf,
    key_file: PathBuf,
    current: Arc<Current>,
    /// What the files were when they were last looked into, for good or bad.
    seen: Mutex<[Stamp; 2]>,
}

/// Tells a file from what stands there after it was written or replaced. None: it could not be looked at.
type Stamp = Option<(u64, u64, u64, i64, i64, i64, i64)>;

impl Certificate {
    /// Reads both files; they must fit together.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let seen = [stamp(certificate), stamp(key)];
        let current = Arc::new(Current(ArcSwap::from_pointee(certified(certificate, key)?)));
        Ok(Self { chain_file: certificate.to_owned(), key_file: key.to_owned(), current, seen: Mutex::new(seen) })
    }

    /// The server side of TLS, which shows whatever certificate is in use at the time.
    pub fn server_config(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(TlsError::Unfit)?
            .with_no_client_auth()
            .with_cert_resolver(self.current.clone());
        // All of our ciphers are good; which of them it is, is not for a client to say.
        config.ignore_client_order = true;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// When the certificate in use ends; none where it does not say so in a way that we read.
    pub fn ends_at(&self) -> Option<UnixMillis> {
        let current = self.current.0.load();
        current.cert.first().and_then(|certificate| expiry::ends_at(certificate))
    }

    /// Whether a file is another one than when it was last looked into.
    pub fn has_changed(&self) -> bool {
        [stamp(&self.chain_file), stamp(&self.key_file)] != *self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what the files hold now into use. If it is no good, what was in use stays.
    pub fn renew(&self) -> Result<(), TlsError> {
        // Before reading: what is written meanwhile counts as a change once more.
        let stamps = [stamp(&self.chain_file), stamp(&self.key_file)];
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = stamps;
        self.current.0.store(Arc::new(certified(&self.chain_file, &self.key_file)?));
        Ok(())
    }
}

fn stamp(path: &Path) -> Stamp {
    let of = std::fs::metadata(path).ok()?;
    Some((of.dev(), of.ino(), of.size(), of.mtime(), of.mtime_nsec(), of.ctime(), of.ctime_nsec()))
}

fn certified(certificate: &Path, key: &Path) -> Result<CertifiedKey, TlsError> {
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
    CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider()).map_err(TlsError::Unfit)
}
