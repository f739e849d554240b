//! Addresses that are none: refused before anything is sent, since a port that is none would be that of another program.

use super::Place;
use super::desk::told;

#[test]
fn a_port_that_is_none_is_refused_wherever_an_address_is_given() {
    let place = Place::fresh();
    let (operator, merchant) = ("COUNTERSIGN_OPERATOR_URL", "COUNTERSIGN_URL");
    // URL stands for the address, in the words or in the variable. No cursor can be there, so that no `listen` goes on for ever.
    let ways = [
        ("merchant list --operator-url URL", ""),
        ("merchant list", operator),
        ("application create m --name till --operator-url URL", ""),
        ("statement m --month 2020-01 --operator-url URL", ""),
        ("audit list", operator),
        ("call GET /v1/time --url URL", ""),
        ("call GET /v1/time", merchant),
        ("listen --cursor none/seq --forward http://127.0.0.1:1/ --url URL", ""),
        ("listen --cursor none/seq --forward http://127.0.0.1:1/", merchant),
        ("listen --cursor none/seq --url http://127.0.0.1:1 --forward URL", ""),
        ("certify URL", ""),
    ];
    let says = |words: &str, variable: &str, url: &str| {
        let words = words.replace("URL", url);
        let mut command = place.command(&words.split(' ').collect::<Vec<_>>());
        command.env("COUNTERSIGN_CLIENT_ID", "app_1").env("COUNTERSIGN_SECRET", "sk_1");
        command.env("COUNTERSIGN_OPERATOR_TOKEN", "cso_1");
        if !variable.is_empty() {
            command.env(variable, url);
        }
        told(&command.output().expect("runs"))
    };
    for (words, variable) in ways {
        for port in [":", ":0", ":99999", ":808081", ":+18481", ":8o81"] {
            for host in ["127.0.0.1", "[::1]"] {
                let url = format!("http://{host}{port}");
                let (stdout, stderr, code) = says(words, variable, &url);
                assert_eq!((stdout.as_str(), code), ("", Some(2)), "{words} {variable} {url}: {stderr}");
                assert!(stderr.contains("port") && stderr.lines().count() == 1, "{words} {variable} {url}: {stderr}");
            }
        }
    }
    for host in ["127.0.0.1", "[::1]", "localhost"] {
        let url = format!("http://{host}:1");
        for (words, variable) in ways {
            let (stdout, stderr, code) = says(words, variable, &url);
            assert_eq!(code, Some(1), "{words} {variable} {url}: {stderr}");
            let wanted = if words.starts_with("listen") {
                "the cursor cannot be locked".to_owned()
            } else if words.starts_with("certify") {
                ":1: the connection was refused".to_owned()
            } else {
                format!("{host}:1 cannot be reached")
            };
            let said = stdout + &stderr;
            assert!(said.contains(&wanted), "{words} {variable} {url}: {said}");
        }
    }
}
