//! Why a TLS handshake with somebody else's server ended, in words.

use std::io::{self, ErrorKind};

use rustls::{AlertDescription, CertificateError, Error};

/// Whether the other side has ended TLS with an alert.
pub(crate) fn is_alert(error: &io::Error) -> bool {
    matches!(fault(error), Some(Error::AlertReceived(_)))
}

/// Some libraries put one error of a connection into another.
fn fault(error: &io::Error) -> Option<&Error> {
    let inner = error.get_ref()?;
    inner.downcast_ref::<Error>().or_else(|| inner.downcast_ref::<io::Error>().and_then(fault))
}

/// What the handshake ended with, where it was TLS that ended it; none: the connection broke for another reason.
pub(crate) fn named(error: &io::Error) -> Option<String> {
    fault(error).map(|_| words(error))
}

/// What the handshake ended with.
pub(crate) fn words(error: &io::Error) -> String {
    let Some(fault) = fault(error) else {
        return match error.kind() {
            ErrorKind::UnexpectedEof => "the endpoint closed the connection in the handshake".to_owned(),
            ErrorKind::ConnectionReset => "the endpoint reset the connection in the handshake".to_owned(),
            _ => error.to_string(),
        };
    };
    match fault {
        Error::InvalidCertificate(why) => certificate(why),
        Error::InvalidMessage(_) => "the endpoint does not speak TLS on this port".to_owned(),
        Error::PeerIncompatible(_) => {
            "the endpoint and this server have no version or cipher of TLS in common".to_owned()
        }
        Error::AlertReceived(alert) => {
            let name = format!("{alert:?}");
            let name = if name.contains('(') { u8::from(*alert).to_string() } else { apart(&name) };
            let wanted = if *alert == AlertDescription::CertificateRequired {
                ": it wants a certificate of its client"
            } else {
                ""
            };
            format!("the endpoint ended the handshake with the alert {name}{wanted}")
        }
        other => other.to_string(),
    }
}

fn certificate(why: &CertificateError) -> String {
    match why {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "the certificate has expired".to_owned(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the certificate is not valid yet".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "the certificate is for another name".to_owned()
        }
        CertificateError::UnknownIssuer => {
            "the certificate is from no authority that is trusted here, or an intermediate certificate is missing"
                .to_owned()
        }
        // Another authority of the same name, as with two that were made by the same tool.
        CertificateError::BadSignature => "the signature of the certificate is not its authority's".to_owned(),
        CertificateError::Revoked => "the certificate is revoked".to_owned(),
        CertificateError::Other(other) => match other.0.to_string().as_str() {
            // What `openssl req -x509` makes, where nothing else is said.
            "CaUsedAsEndEntity" => {
                "the certificate is that of an authority and not that of a server, as self-signed ones often are: make it with \
                 basicConstraints=critical,CA:FALSE"
                    .to_owned()
            }
            other => format!("the certificate is refused: {}", apart(other)),
        },
        other => format!("the certificate is refused: {other}"),
    }
}

/// A name as the library writes it, in words: `ProtocolVersion` is `protocol version`.
fn apart(name: &str) -> String {
    let mut words = String::new();
    let mut was_lower = false;
    for c in name.chars() {
        if c.is_ascii_uppercase() && was_lower {
            words.push(' ');
        }
        was_lower = c.is_ascii_lowercase();
        words.push(c.to_ascii_lowercase());
    }
    words
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::OtherError;

    use super::*;

    fn told(fault: Error) -> String {
        words(&io::Error::new(ErrorKind::InvalidData, fault))
    }

    #[test]
    fn a_fault_is_told_in_words() {
        let other = |name: &'static str| {
            told(Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(io::Error::other(name))))))
        };
        assert_eq!(
            other("CaUsedAsEndEntity"),
            "the certificate is that of an authority and not that of a server, as self-signed ones often are: make it with \
             basicConstraints=critical,CA:FALSE"
        );
        assert_eq!(other("PathLenConstraintViolated"), "the certificate is refused: path len constraint violated");
        assert_eq!(
            told(Error::AlertReceived(AlertDescription::ProtocolVersion)),
            "the endpoint ended the handshake with the alert protocol version"
        );
        assert_eq!(
            told(Error::AlertReceived(AlertDescription::Unknown(7))),
            "the endpoint ended the handshake with the alert 7"
        );
        assert_eq!(
            told(Error::AlertReceived(AlertDescription::CertificateRequired)),
            "the endpoint ended the handshake with the alert certificate required: it wants a certificate of its client"
        );
        let closed = io::Error::from(ErrorKind::UnexpectedEof);
        assert_eq!(words(&closed), "the endpoint closed the connection in the handshake");
    }
}
