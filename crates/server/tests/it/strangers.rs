//! What the commands say where somebody else listens at the address that they ask.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use super::Place;

/// A server that answers 200 with this to everything, for as long as the test runs.
fn stranger(kind: &str, body: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("has one"));
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("comes");
            let mut came = [0; 4096];
            let _ = stream.read(&mut came);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    url
}

#[test]
fn a_command_that_somebody_else_answers_has_not_done_what_it_was_asked() {
    let place = Place::fresh();
    for (kind, body) in [
        ("text/html", "<html>It works</html>"),
        ("application/json", "{}"),
        ("application/json", r#"{"items":[]}"#),
        ("application/json", ""),
    ] {
        let url = stranger(kind, body);
        for words in [
            "token revoke tok_1",
            "secret revoke app_1 sec_1",
            "payment-order move 1 --status PAID",
            "event emit --client-id a --biz-type X --biz-id 1 --biz-status S --data {}",
            "delivery show",
            "delivery release",
            "master-key show",
            "master-key rewrap",
            "merchant list",
            "merchant list --json",
            "retention",
            "audit list",
            "audit heads",
            "audit verify",
            "evidence key",
            "explain 0123456789abcdef0123456789ab",
            "statement m --month 2026-01",
        ] {
            let mut command = place.command(&words.split(' ').collect::<Vec<_>>());
            command.env("COUNTERSIGN_OPERATOR_TOKEN", "cso_x").env("COUNTERSIGN_OPERATOR_URL", &url);
            let out = command.output().expect("runs");
            let stderr = String::from_utf8_lossy(&out.stderr);
            assert_eq!(out.status.code(), Some(1), "{words}: {body}\n{stderr}");
            assert!(stderr.contains("is this the operator API?"), "{words}: {stderr}");
        }
    }
}

#[test]
fn a_call_that_somebody_else_answers_shows_nothing_that_a_terminal_obeys() {
    let place = Place::fresh();
    for (body, shown) in [
        ("<b>\u{1b}[2J\u{9b}31m\n\u{202e}it works</b>", "<b>\u{fffd}[2J\u{fffd}31m\n\u{fffd}it works</b>\n"),
        ("{\"a\":\"\u{9b}2J\u{202e}\u{7f}\"}", "{\"a\": \"\\u009b2J\\u202e\\u007f\"}\n"),
    ] {
        let mut command = place.command(&["call", "GET", "/v1/time", "--url", &stranger("text/html", body)]);
        let out = command.env("COUNTERSIGN_CLIENT_ID", "app_1").env("COUNTERSIGN_SECRET", "s").output().expect("runs");
        assert_eq!(String::from_utf8_lossy(&out.stdout), format!("HTTP 200 OK\n{shown}"));
        assert_eq!(out.status.code(), Some(1), "it is no envelope");
    }
}

#[test]
fn a_file_of_authorities_that_is_of_no_use_is_named_before_anything_is_sent() {
    let place = Place::fresh();
    let file = place.path("ca.pem");
    let callers = [
        "call GET /v1/time --url https://127.0.0.1:1",
        "listen --url https://127.0.0.1:1 --forward http://127.0.0.1:1",
        "listen --url http://127.0.0.1:1 --forward https://127.0.0.1:1",
        "certify https://127.0.0.1:1",
        "merchant list --operator-url https://127.0.0.1:1",
    ];
    let said = |words: &str| {
        let mut command = place.command(&words.split(' ').collect::<Vec<_>>());
        command.env("COUNTERSIGN_CLIENT_ID", "app_1").env("COUNTERSIGN_SECRET", "s");
        command.env("COUNTERSIGN_OPERATOR_TOKEN", "cso_x").env("SSL_CERT_FILE", &file);
        let out = command.output().expect("runs");
        assert_eq!(out.status.code(), Some(1), "{words}");
        String::from_utf8_lossy(&out.stderr).into_owned()
    };
    for words in callers {
        let wanted =
            format!("countersign: SSL_CERT_FILE names {:?}, which cannot be read: ", file.display().to_string());
        assert!(said(words).starts_with(&wanted), "{words}: {}", said(words));
    }
    std::fs::write(&file, "no certificate").expect("can be written");
    for words in callers {
        assert!(said(words).contains("which holds no certificate that can be used"), "{words}: {}", said(words));
    }
}

#[test]
fn a_listener_that_somebody_else_answers_says_so_and_names_no_seq_that_nobody_asked_for() {
    let place = Place::fresh();
    for (kind, body) in [("text/html", "<html>It works</html>"), ("application/json", r#"{"items":[]}"#)] {
        let url = stranger(kind, body);
        for after in [&[][..], &["--after", "5"]] {
            let mut command = place.command(&["listen", "--forward", "http://127.0.0.1:9/callback", "--url", &url]);
            command.args(after).env("COUNTERSIGN_CLIENT_ID", "app_1").env("COUNTERSIGN_SECRET", "sk_1");
            let out = command.output().expect("the binary runs");
            let said = String::from_utf8_lossy(&out.stderr);
            let wanted =
                "countersign: what answers at --url does not answer as the merchant API does: the answer (HTTP 200)";
            assert!(said.starts_with(wanted) && said.lines().count() == 1, "{said}");
            assert_eq!(out.status.code(), Some(1));
        }
    }
}
