//! TLS: 1.2 and 1.3, and plain callers on the merchants' port get nothing.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use countersign_sdk::Client;
use rustls::version::{TLS12, TLS13};

use super::Place;

/// A certificate for `localhost` and 127.0.0.1 in `cert.pem` and `key.pem`; the certificate as PEM.
fn certificate(place: &Place) -> String {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).expect("made");
    std::fs::write(place.path("cert.pem"), made.cert.pem()).expect("written");
    std::fs::write(place.path("key.pem"), made.signing_key.serialize_pem()).expect("written");
    made.cert.pem()
}

#[tokio::test]
async fn the_sdk_calls_over_tls_and_a_stranger_to_tls_gets_nothing() {
    let place = Place::fresh();
    place.init();
    let pem = certificate(&place);
    let serving = place.serve(&["--tls-cert", "cert.pem", "--tls-key", "key.pem"]);
    let url = format!("https://{}", serving.listen);
    let client = Client::builder(&url, "app_x", "secret").root_certificates(pem.as_bytes()).build().expect("a client");
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
