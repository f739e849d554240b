//! TLS: 1.2 and 1.3, and plain callers on the merchants' port get nothing.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use countersign_sdk::Client;
use rustls::version::{TLS12, TLS13};

use super::{Place, until};

/// The certificate that the server shows to whoever connects now.
fn shown(address: &str, roots: &[&str]) -> Option<Vec<u8>> {
    let mut store = rustls::RootCertStore::empty();
    for pem in roots {
        store.add(rustls::pki_types::pem::PemObject::from_pem_slice(pem.as_bytes()).expect("PEM")).expect("a root");
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .expect("a version")
        .with_root_certificates(store)
        .with_no_client_auth();
    let mut session =
        rustls::ClientConnection::new(Arc::new(config), "localhost".try_into().expect("a name")).expect("a session");
    let mut socket = TcpStream::connect(address).expect("connects");
    while session.is_handshaking() {
        session.complete_io(&mut socket).ok()?;
    }
    session.peer_certificates().and_then(|chain| chain.first()).map(|certificate| certificate.to_vec())
}

#[test]
fn a_new_certificate_is_taken_into_use_while_the_server_serves() {
    let place = Place::fresh();
    place.init();
    let old = certificate(&place);
    let serving = place.serve(&["--tls-cert", "cert.pem", "--tls-key", "key.pem"]);
    let first = shown(&serving.listen, &[&old]).expect("the first one");
    let new = certificate(&place);
    // Nobody says a word: the files are looked at.
    until("the new certificate is shown", || shown(&serving.listen, &[&old, &new]).is_some_and(|now| now != first));
    assert!(shown(&serving.operator_listen, &[&new]).is_some(), "the operators' listener shows it, too");
}

#[test]
fn sighup_reads_the_certificate_at_once_and_ends_nothing() {
    let place = Place::fresh();
    place.init();
    let old = certificate(&place);
    let serving = place.serve(&["--tls-cert", "cert.pem", "--tls-key", "key.pem"]);
    let mut standing = TcpStream::connect(&serving.listen).expect("connects");
    let new = certificate(&place);
    serving.signal("-HUP");
    until("the new certificate is shown", || shown(&serving.listen, &[&new]).is_some());
    assert!(shown(&serving.listen, &[&old]).is_none(), "the old one is no longer shown");
    standing.write_all(&[22]).expect("who is connected stays connected");
    let plain = Place::fresh();
    plain.init();
    let serving = plain.serve(&[]);
    serving.signal("-HUP");
    assert_eq!(serving.terminate(), Some(0), "without TLS SIGHUP ends nothing either");
}

#[test]
fn a_new_certificate_that_is_no_good_leaves_the_old_one_in_use() {
    let place = Place::fresh();
    place.init();
    let old = certificate(&place);
    let log = place.path("log");
    let serving = place.serve_logging(&["--tls-cert", "cert.pem", "--tls-key", "key.pem"], &log);
    let bad = [
        ("cert.pem", "no certificate"),
        ("cert.pem", ""),
        ("key.pem", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"),
    ];
    let said = || std::fs::read_to_string(&log).expect("a log").matches("was not renewed").count();
    for (round, (file, text)) in bad.into_iter().enumerate() {
        std::fs::write(place.path(file), text).expect("written");
        until("the log says so", || said() > round);
        assert!(shown(&serving.listen, &[&old]).is_some(), "{file}: {text:?}");
    }
    let new = certificate(&place);
    until("a good one is taken again", || shown(&serving.listen, &[&new]).is_some());
}

#[test]
fn a_new_certificate_outside_its_dates_leaves_a_good_one_in_use() {
    let place = Place::fresh();
    place.init();
    let good = certificate(&place);
    let log = place.path("log");
    let serving = place.serve_logging(&["--tls-cert", "cert.pem", "--tls-key", "key.pem"], &log);
    let said = || std::fs::read_to_string(&log).expect("a log");
    for (years, words) in [
        ((2019, 2020), "cert.pem ended at 2020-01-02T00:00:00.000Z"),
        ((2200, 2201), "cert.pem is not valid before 2200-01-02T00:00:00.000Z"),
    ] {
        dated_certificate(&place, years);
        until("the log says so", || {
            said()
                .lines()
                .any(|line| line.contains("ERROR") && line.contains("was not renewed") && line.contains(words))
        });
        assert!(shown(&serving.listen, &[&good]).is_some(), "{years:?}");
    }
    assert!(!said().contains("was read again"), "{}", said());
    let new = certificate(&place);
    until("a good one is taken again", || shown(&serving.listen, &[&new]).is_some());
}

/// A certificate for `localhost` and 127.0.0.1 in `cert.pem` and `key.pem`; the certificate as PEM.
pub fn certificate(place: &Place) -> String {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).expect("made");
    std::fs::write(place.path("cert.pem"), made.cert.pem()).expect("written");
    std::fs::write(place.path("key.pem"), made.signing_key.serialize_pem()).expect("written");
    made.cert.pem()
}

/// One that is good from the second day of a year to that of another, in the same files.
fn dated_certificate(place: &Place, (from, end): (i32, i32)) {
    let mut wanted = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    (wanted.not_before, wanted.not_after) = (rcgen::date_time_ymd(from, 1, 2), rcgen::date_time_ymd(end, 1, 2));
    let key = rcgen::KeyPair::generate().expect("a key");
    std::fs::write(place.path("cert.pem"), wanted.self_signed(&key).expect("signed").pem()).expect("written");
    std::fs::write(place.path("key.pem"), key.serialize_pem()).expect("written");
}

#[tokio::test]
async fn the_sdk_calls_over_tls_and_a_stranger_to_tls_gets_nothing() {
    let place = Place::fresh();
    place.init();
    let pem = certificate(&place);
    let serving = place.serve(&["--tls-cert", "cert.pem", "--tls-key", "key.pem"]);
    let url = format!("https://{}", serving.listen);
    let client = Client::builder(&url, "app_x", "sk_of_an_application_that_is_not_there")
        .root_certificates(pem.as_bytes())
        .build()
        .expect("a client");
    assert!(client.time().await.is_ok_and(|said| said.server_time > 1_700_000_000_000), "an answer over TLS");
    let mut plain = TcpStream::connect(&serving.listen).expect("connects");
    plain.write_all(b"GET /v1/time HTTP/1.1\r\nHost: x\r\n\r\n").expect("writes");
    let mut said = Vec::new();
    // The server may say a TLS alert or nothing before it closes; an answer of HTTP it must not give.
    let _ = plain.read_to_end(&mut said);
    assert!(!said.starts_with(b"HTTP/"), "{}", String::from_utf8_lossy(&said));
}

#[test]
fn both_versions_of_tls_are_spoken() {
    let place = Place::fresh();
    place.init();
    let pem = certificate(&place);
    let serving = place.serve(&["--tls-cert", "cert.pem", "--tls-key", "key.pem"]);
    for version in [&TLS12, &TLS13] {
        let mut roots = rustls::RootCertStore::empty();
        let der = rustls::pki_types::pem::PemObject::from_pem_slice(pem.as_bytes()).expect("PEM");
        roots.add(der).expect("a root");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .expect("a version")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = "localhost".try_into().expect("a name");
        let mut session = rustls::ClientConnection::new(Arc::new(config), name).expect("a session");
        let mut socket = TcpStream::connect(&serving.listen).expect("connects");
        let mut stream = rustls::Stream::new(&mut session, &mut socket);
        stream.write_all(b"GET /v1/time HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("writes");
        let mut said = [0; 12];
        stream.read_exact(&mut said).expect("an answer");
        assert_eq!(&said, b"HTTP/1.1 200", "{version:?}");
    }
}

#[test]
fn a_certificate_outside_its_dates_is_served_and_told_by_doctor_and_in_the_log() {
    let tls = ["--tls-cert", "cert.pem", "--tls-key", "key.pem"];
    for (years, words) in [
        ((2019, 2020), "certificate ended at 2020-01-02T00:00:00.000Z"),
        ((2200, 2201), "certificate is not valid before 2200-01-02T00:00:00.000Z"),
    ] {
        let place = Place::fresh();
        place.init();
        dated_certificate(&place, years);
        let (stdout, _) = place.ends(&[&["doctor", "--data", "data"][..], &tls].concat(), 0);
        let is_told = stdout.lines().any(|line| line.starts_with("warn  tls") && line.contains(words));
        assert!(is_told, "{stdout}");
        let log = place.path("log");
        let _serving = place.serve_logging(&tls, &log);
        until("the log says so", || std::fs::read_to_string(&log).expect("a log").contains(words));
    }
}

#[test]
fn a_key_that_others_may_read_is_told_at_the_start() {
    let place = Place::fresh();
    place.init();
    certificate(&place);
    for (mode, told) in [(0o644, true), (0o600, false)] {
        let key = place.path("key.pem");
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(mode)).expect("set");
        let log = place.path(&format!("log {mode:o}"));
        let serving = place.serve_logging(&["--tls-cert", "cert.pem", "--tls-key", "key.pem"], &log);
        assert_eq!(serving.terminate(), Some(0));
        let said = std::fs::read_to_string(&log).expect("a log");
        assert_eq!(
            said.contains("may be read by others (mode 644): run `chmod 600 key.pem`"),
            told,
            "{mode:o}: {said}"
        );
    }
}
