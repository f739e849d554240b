//! What a merchant's engineer sees of `call`, and what is said of words that are missing.

use super::Place;

#[test]
fn the_time_is_asked_for_by_anybody_and_a_call_names_its_request() {
    let place = Place::fresh();
    place.init();
    let serving = place.serve(&[]);
    let url = format!("http://{}", serving.listen);
    for path in ["/v1/time", "/v1/time?x=1"] {
        let (stdout, _) = place.ends(&["call", "GET", path, "--url", &url], 0);
        let (head, envelope) = stdout.split_once('\n').expect("a status line and an envelope");
        let id = head.strip_prefix("HTTP 200 OK, request ").expect("it names its request");
        assert!(id.len() == 28 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{head}");
        assert!(envelope.contains("\"serverTime\""), "{envelope}");
    }
    let (_, stderr) = place.ends(&["call", "GET", "/v1/pay/events", "--url", &url], 1);
    assert_eq!(stderr, "countersign: set COUNTERSIGN_CLIENT_ID in the environment\n");
}

#[test]
fn a_usage_line_has_nothing_that_the_environment_gives() {
    let place = Place::fresh();
    for (words, usage) in [
        (&["merchant", "create"][..], "Usage: countersign merchant create --name <NAME>\n"),
        (&["call", "GET"], "Usage: countersign call <METHOD> <PATH>\n"),
    ] {
        let mut command = place.command(words);
        command.env("COUNTERSIGN_OPERATOR_URL", "http://127.0.0.1:1").env("COUNTERSIGN_URL", "http://127.0.0.1:1");
        let out = command.output().expect("runs");
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{words:?}");
        assert!(stderr.contains(usage), "{words:?}: {stderr}");
    }
}
