//! The listener that tells of health and of nothing else.

use std::io::Write as _;
use std::net::TcpStream;

use super::full::asked_at;
use super::tls::certificate;
use super::{PATIENCE, Place, Serving, until};

/// A server with such a listener: itself, its first token, and that listener's address.
fn served(place: &Place, more: &[&str], variables: &[(&str, &str)]) -> (Serving, String, String) {
    let token = place.init()["operator_token"].as_str().expect("a token").to_owned();
    let mut variables = variables.to_vec();
    variables.push(("COUNTERSIGN_HEALTH_LISTEN", "127.0.0.1:0"));
    let serving = place.serve_with(more, &variables, &place.path("log"));
    let health = serving.health_listen.clone().expect("the first line says where it is");
    (serving, token, health)
}

#[test]
fn it_speaks_plain_http_beside_tls_and_opens_no_door_of_operators() {
    let place = Place::fresh();
    certificate(&place);
    let (serving, token, health) = served(&place, &["--tls-cert", "cert.pem", "--tls-key", "key.pem"], &[]);
    for (path, words) in [
        ("/healthz", r#"{"status":"up"}"#),
        ("/readyz", r#"{"status":"ready"}"#),
        ("/metrics", "\ncountersign_ready 1\n"),
    ] {
        let (status, said) = asked_at(&health, "GET", path, "");
        assert!(status == 200 && said.contains(words), "{path}: {said}");
        assert!(!said.to_ascii_lowercase().contains("strict-transport-security"), "there is no TLS here: {said}");
    }
    let with_token = format!("authorization: Bearer {token}\r\n");
    for (method, path) in [
        ("GET", "/operator/v1/institutions"),
        ("POST", "/operator/v1/institutions"),
        ("GET", "/operator/v1/nothing"),
        ("GET", "/docs"),
        ("GET", "/openapi/operator.json"),
        ("GET", "/v1/time"),
        ("GET", "/"),
    ] {
        let (status, said) = asked_at(&health, method, path, &with_token);
        assert!(status == 404 && said.contains("only /healthz, /readyz and /metrics are here"), "{path}: {said}");
    }
    let (status, said) = asked_at(&health, "POST", "/readyz", &with_token);
    assert!(status == 405 && said.contains("allow: GET,HEAD"), "{said}");
    assert_eq!(serving.terminate(), Some(0));
    let log = std::fs::read_to_string(place.path("log")).expect("a log");
    let of_health = log.lines().filter(|line| line.contains(r#""listener":"health""#)).count();
    assert_eq!(of_health, 3 + 7 + 1, "each has its line");
    assert!(!log.contains(&token), "a token that came where it was not asked for is not in the log");
}

#[test]
fn it_says_that_the_node_leaves_for_as_long_as_merchants_are_served() {
    let place = Place::fresh();
    let (mut serving, _, health) = served(&place, &[], &[("COUNTERSIGN_LIMITS__STOP_DELAY", "10m")]);
    assert_eq!(asked_at(&health, "GET", "/readyz", "").0, 200);
    serving.signal("-TERM");
    until("it is not ready", || asked_at(&health, "GET", "/readyz", "").0 == 503);
    let (_, said) = asked_at(&health, "GET", "/readyz", "");
    assert!(said.contains("this node was told to stop"), "{said}");
    assert_eq!(asked_at(&health, "GET", "/healthz", "").0, 200, "the process is up");
    assert_eq!(asked_at(&serving.listen, "GET", "/v1/time", "").0, 200, "merchants are served");
    serving.signal("-TERM");
    assert_eq!(serving.ends_within(PATIENCE), Some(0));
}

#[test]
fn whoever_fills_it_takes_no_place_from_merchants_or_operators() {
    const PLACES: usize = 16;
    let place = Place::fresh();
    let most = PLACES.to_string();
    let (serving, _, health) = served(&place, &[], &[("COUNTERSIGN_LIMITS__CONNECTIONS", &most)]);
    let mut held = Vec::new();
    for _ in 0..4 * PLACES {
        let mut stream = TcpStream::connect(&health).expect("the system takes it");
        write!(stream, "GET /readyz HTTP/1.1\r\n").expect("is sent");
        held.push(stream);
    }
    for _ in 0..PLACES {
        assert_eq!(asked_at(&serving.operator_listen, "GET", "/readyz", "").0, 200);
        assert_eq!(asked_at(&serving.listen, "GET", "/v1/time", "").0, 200);
    }
    drop(held);
    until("it answers again", || asked_at(&health, "GET", "/healthz", "").0 == 200);
}
