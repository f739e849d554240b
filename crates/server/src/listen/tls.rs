//! TLS 1.2 and above, from PEM files that may be replaced while connections are served.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use countersign_domain::time::{UnixMillis, rfc3339};
use rustls::crypto::aws_lc_rs;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{CertificateError, Error, InconsistentKeys, ServerConfig};

use super::expiry::{Concern, Dates};
use crate::datadir;

/// Why a certificate and its key are not taken into use.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// What is no file. Opening a pipe waits for whoever writes to it, and it could not be read a second time.
    #[error("{path} is {is}: name a regular file", path = .path.display())]
    NotAFile {
        /// Which.
        path: PathBuf,
        /// What it is.
        is: &'static str,
    },
    /// A file that cannot be read as PEM.
    #[error("{path} cannot be read as PEM: {cause}", path = .path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        cause: pem::Error,
    },
    /// A file without a certificate.
    #[error("{path} holds no certificate", path = .0.display())]
    NoCertificate(PathBuf),
    /// A file without a private key.
    #[error("{path} holds no private key in PEM (BEGIN PRIVATE KEY)", path = .0.display())]
    NoKey(PathBuf),
    /// A key under a password, which nobody is there to type.
    #[error("{path} is encrypted: write the key without its password (openssl pkey -in KEY -out PLAIN), for the service's user alone to read", path = .0.display())]
    EncryptedKey(PathBuf),
    /// A key of a kind that is not supported.
    #[error("{path} holds a key that cannot be used: RSA of 2048 to 8192 bits, ECDSA (P-256, P-384, P-521) and Ed25519 can", path = .0.display())]
    UnusableKey(PathBuf),
    /// The certificate of the key is there, behind another.
    #[error("{path} begins with another certificate than that of the key: the server's own must stand first, and is number {place} there", path = .chain.display())]
    WrongOrder {
        /// Which.
        chain: PathBuf,
        /// Where it stands, from 1.
        place: usize,
    },
    /// A file that no chain or key is as large as.
    #[error("{path} has {bytes} bytes, and a chain or key has at most {PEM_BYTES_MAX}: name the file that holds it", path = .path.display())]
    TooLarge {
        /// Which file.
        path: PathBuf,
        /// How large it is.
        bytes: u64,
    },
    /// A certificate of another key.
    #[error("the certificate in {chain} is for another key than that in {key}", chain = .chain.display(), key = .key.display())]
    OtherKey {
        /// The file of certificates.
        chain: PathBuf,
        /// The file of the key.
        key: PathBuf,
    },
    /// A certificate as they were before extensions.
    #[error("the certificate in {path} has not version 3 of X.509, which clients demand: make it anew with a subjectAltName", path = .0.display())]
    OldVersion(PathBuf),
    /// A certificate whose time is over, in place of one that is good.
    #[error("the certificate in {path} ended at {end}, and by this server's clock it is {now}: put one that is valid now into both files", path = .path.display(), end = rfc3339(*.end), now = rfc3339(*.now))]
    Ended {
        /// The file of certificates.
        path: PathBuf,
        /// When it ended.
        end: UnixMillis,
        /// When it was looked at.
        now: UnixMillis,
    },
    /// A certificate whose time has not come, in place of one that is good.
    #[error("the certificate in {path} is not valid before {from}, and by this server's clock it is {now}: leave it there and it is taken then, or put one that is valid now into both files", path = .path.display(), from = rfc3339(*.from), now = rfc3339(*.now))]
    Early {
        /// The file of certificates.
        path: PathBuf,
        /// When it begins.
        from: UnixMillis,
        /// When it was looked at.
        now: UnixMillis,
    },
    /// A certificate and its key that are no good for another reason.
    #[error("certificate and key do not fit together")]
    Unfit(#[source] Error),
}

/// What a chain or a key may have; a long chain has some 20 KiB.
const PEM_BYTES_MAX: u64 = 1024 * 1024;

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
    seen: Mutex<Seen>,
}

/// What the files were when they were last looked into, for good or bad.
#[derive(Debug)]
struct Seen {
    stamps: [Stamp; 2],
    /// The dates of what was there, where it was not taken for them alone.
    untimely: Option<Dates>,
}

/// Tells a file from what stands there after it was written or replaced. None: it could not be looked at.
type Stamp = Option<(u64, u64, u64, i64, i64, i64, i64)>;

impl Certificate {
    /// Reads both files; they must fit together. Dates are no reason to refuse them: there is no other pair, and the clock may be wrong.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let seen = Seen { stamps: [stamp(certificate), stamp(key)], untimely: None };
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

    /// The dates of the certificate in use.
    pub fn dates(&self) -> Dates {
        dates(&self.current.0.load())
    }

    /// Whether a file is another one than when it was last looked into, or what was refused for its dates is good by now.
    pub fn is_due(&self, now: UnixMillis) -> bool {
        let stamps = self.stamps();
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        stamps != seen.stamps || seen.untimely.is_some_and(|dates| dates.hold(now))
    }

    /// Takes what the files hold now into use. If it is no good, what was in use stays.
    pub fn renew(&self, now: UnixMillis) -> Result<(), TlsError> {
        // Before reading: what is written meanwhile counts as a change once more.
        let stamps = self.stamps();
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Seen { stamps, untimely: None };
        let new = certified(&self.chain_file, &self.key_file)?;
        if let Err(untimely) = self.demand_timely(dates(&new), now) {
            self.seen.lock().unwrap_or_else(PoisonError::into_inner).untimely = Some(dates(&new));
            return Err(untimely);
        }
        self.current.0.store(Arc::new(new));
        Ok(())
    }

    /// Refuses what is outside its dates, unless what is in use is so, too: then it is no worse.
    fn demand_timely(&self, new: Dates, now: UnixMillis) -> Result<(), TlsError> {
        let path = || self.chain_file.clone();
        match new.concern(now).filter(|_| self.dates().hold(now)) {
            Some(Concern::Ended(end)) => Err(TlsError::Ended { path: path(), end, now }),
            Some(Concern::Early(from)) => Err(TlsError::Early { path: path(), from, now }),
            Some(Concern::EndsSoon(_)) | None => Ok(()),
        }
    }

    fn stamps(&self) -> [Stamp; 2] {
        [stamp(&self.chain_file), stamp(&self.key_file)]
    }
}

/// The dates of the server's own certificate, which stands first.
fn dates(certified: &CertifiedKey) -> Dates {
    certified.cert.first().map_or_else(Dates::default, |own| Dates::of(own))
}

fn stamp(path: &Path) -> Stamp {
    let of = std::fs::metadata(path).ok()?;
    Some((of.dev(), of.ino(), of.size(), of.mtime(), of.mtime_nsec(), of.ctime(), of.ctime_nsec()))
}

fn certified(certificate: &Path, key: &Path) -> Result<CertifiedKey, TlsError> {
    for path in [certificate, key] {
        if let Some(is) = datadir::other_than_file(path) {
            return Err(TlsError::NotAFile { path: path.to_owned(), is });
        }
        // It is read whole before it is judged, also while others are served.
        if let Some(bytes) = std::fs::metadata(path).ok().map(|of| of.size()).filter(|bytes| *bytes > PEM_BYTES_MAX) {
            return Err(TlsError::TooLarge { path: path.to_owned(), bytes });
        }
    }
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
    let der = PrivateKeyDer::from_pem_file(key).map_err(|cause| match cause {
        _ if is_encrypted(key) => TlsError::EncryptedKey(key.to_owned()),
        pem::Error::NoItemsFound => TlsError::NoKey(key.to_owned()),
        cause => unreadable(key)(cause),
    })?;
    let signs = any_supported_type(&der).map_err(|_| TlsError::UnusableKey(key.to_owned()))?;
    let certified = CertifiedKey::new(chain, signs);
    match certified.keys_match() {
        // Nobody can tell: the first handshake will.
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(certified),
        Err(error) => Err(unfit(error, certified, certificate, key)),
    }
}

/// Whether a key is under a password, in either way of writing one.
fn is_encrypted(key: &Path) -> bool {
    std::fs::read_to_string(key).is_ok_and(|text| text.contains("BEGIN ENCRYPTED") || text.contains(",ENCRYPTED"))
}

/// What is wrong with a certificate, of which `error` says that it is not the key's.
fn unfit(error: Error, certified: CertifiedKey, certificate: &Path, key: &Path) -> TlsError {
    let CertifiedKey { cert, key: signs, .. } = certified;
    let fits = |one: &CertificateDer<'static>| CertifiedKey::new(vec![one.clone()], signs.clone()).keys_match().is_ok();
    match error {
        Error::InconsistentKeys(_) => match cert.iter().position(fits) {
            Some(before) => TlsError::WrongOrder { chain: certificate.to_owned(), place: before + 1 },
            None => TlsError::OtherKey { chain: certificate.to_owned(), key: key.to_owned() },
        },
        // The library has a name for this fault in words only.
        Error::InvalidCertificate(CertificateError::Other(why))
            if why.to_string().contains("UnsupportedCertVersion") =>
        {
            TlsError::OldVersion(certificate.to_owned())
        }
        error => TlsError::Unfit(error),
    }
}

#[cfg(test)]
mod tests;
