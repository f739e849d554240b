//! Changes by command whose answer does not come, or which a proxy asks for twice: done once, and whoever asks again learns of it.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use super::desk::{Desk, told};

/// What stands between a command and the server.
#[derive(Clone, Copy)]
enum Between {
    /// Takes the server's answer and closes without a word of it.
    Loses,
    /// Sends each request twice, and passes on what came second.
    Doubles,
    /// Answers for the server, which has the request.
    GivesUp,
}

const GATEWAY_TIMEOUT: &[u8] = b"HTTP/1.1 504 Gateway Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// Head and body.
fn message(stream: &mut TcpStream) -> Vec<u8> {
    let (mut came, mut part) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&came).to_ascii_lowercase();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
            let length: usize = length.map_or(0, |length| length.trim().parse().expect("a number"));
            if body.len() >= length {
                return came;
            }
        }
        let read = stream.read(&mut part).expect("is read");
        assert!(read > 0, "broke off: {text}");
        came.extend_from_slice(&part[..read]);
    }
}

fn answered(server: &str, request: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(server).expect("the server is there");
    stream.write_all(request).expect("is taken");
    message(&mut stream)
}

/// Its address.
fn proxy(server: String, between: Between) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("has one"));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("comes");
            let request = message(&mut stream);
            let first = answered(&server, &request);
            let answer = match between {
                Between::Loses => continue,
                Between::Doubles => answered(&server, &request),
                Between::GivesUp => GATEWAY_TIMEOUT.to_vec(),
            };
            assert!(first.starts_with(b"HTTP/1.1 200 "), "the server did it");
            stream.write_all(&answer).expect("is taken");
        }
    });
    url
}

/// What a command says through it.
fn through(desk: &Desk, between: Between, words: &str) -> (String, String, Option<i32>) {
    let mut command = desk.command(words);
    command.env("COUNTERSIGN_OPERATOR_URL", proxy(desk.serving.operator_listen.clone(), between));
    told(&command.output().expect("runs"))
}

fn merchants(desk: &Desk) -> Vec<String> {
    let list = desk.made("merchant list");
    let items = list["items"].as_array().expect("a list").iter();
    items.map(|item| item["name"].as_str().expect("a text").to_owned()).collect()
}

#[test]
fn a_change_without_an_answer_is_repeated_by_the_key_that_is_named_and_done_once() {
    let desk = Desk::open();
    for (number, between, said) in [
        (1, Between::Loses, "countersign: the operator API did not answer, and it may have been done: "),
        (2, Between::GivesUp, "countersign: refused with 504, and the answer is none of Countersign's"),
    ] {
        let words = format!("merchant create --name m{number}");
        let (stdout, stderr, code) = through(&desk, between, &words);
        assert_eq!((stdout.as_str(), code), ("", Some(1)));
        assert!(stderr.starts_with(said) && stderr.lines().count() == 1, "{stderr}");
        let (_, key) = stderr.split_once("the same command with --idempotency-key ").expect("says what to do");
        let key = key.split(' ').next().expect("a key");
        assert_eq!(merchants(&desk).len(), number, "it was done");
        let made = desk.made(&format!("{words} --idempotency-key {key}"));
        assert_eq!(made["name"], format!("m{number}"));
        assert_eq!(merchants(&desk).len(), number, "and is not done again");
        // The same key for something else.
        let (_, stderr, code) = desk.says(&format!("merchant create --name other --idempotency-key {key}"));
        assert!(code == Some(1) && stderr.contains("IDEMPOTENCY_KEY_REUSED"), "{stderr}");
    }
}

#[test]
fn a_change_that_a_proxy_asks_for_twice_is_done_once_and_one_that_is_asked_for_twice_is_done_twice() {
    let desk = Desk::open();
    let (_, stderr, code) = through(&desk, Between::Doubles, "merchant create --name m");
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(merchants(&desk), ["m"]);
    desk.made("merchant create --name m");
    assert_eq!(merchants(&desk), ["m", "m"]);
}

#[test]
fn a_key_is_for_changes_and_has_the_form_of_one() {
    let desk = Desk::open();
    let long = "x".repeat(256);
    let form = "--idempotency-key: must be 1 to 255 visible ASCII characters";
    let none = "--idempotency-key: is for commands that change something through the operator API";
    for (words, wanted) in [
        ("merchant list --idempotency-key k", none),
        ("fee-rule what-if --sub-account s --r-markup 1 --idempotency-key k", none),
        ("token recover --data data --idempotency-key k", none),
        (&format!("merchant create --name m --idempotency-key {long}"), form),
        ("merchant create --name m --idempotency-key=", form),
        ("merchant create --name m --idempotency-key=kü", form),
    ] {
        assert_eq!(desk.says(words), (String::new(), format!("countersign: {wanted}\n"), Some(2)), "{words}");
    }
    assert_eq!(merchants(&desk), [] as [String; 0]);
    // Nothing was sent: nothing may have been done.
    let mut away = desk.command("merchant create --name m");
    away.env("COUNTERSIGN_OPERATOR_URL", "http://127.0.0.1:1");
    let (_, stderr, code) = told(&away.output().expect("runs"));
    assert!(code == Some(1) && !stderr.contains("may have been done"), "{stderr}");
}

#[test]
fn what_only_reads_was_not_done_and_a_rewrap_without_an_answer_is_run_again() {
    let desk = Desk::open();
    desk.made("merchant create --name m --merchant-id m");
    let made = desk.made("application create m --name till");
    let preview = format!("event redeliver-many --client-id {} --preview", made["client_id"].as_str().expect("a text"));
    for between in [Between::Loses, Between::GivesUp] {
        for words in ["audit verify", &preview] {
            let (_, stderr, code) = through(&desk, between, words);
            assert!(code == Some(1) && !stderr.contains("may have been done"), "{words}: {stderr}");
        }
        let (_, stderr, code) = through(&desk, between, "master-key rewrap");
        let wanted = "it may have been done: run it again, it goes on where it was";
        assert!(code == Some(1) && stderr.contains(wanted), "{stderr}");
    }
}

#[test]
fn a_signed_call_that_may_have_been_done_says_so_whoever_has_answered() {
    let desk = Desk::open();
    desk.made("merchant create --name m --merchant-id m");
    let made = desk.made("application create m --name till");
    let text = |name: &str| made[name].as_str().expect("a text");
    let order = |number: usize| {
        format!(
            r#"{{"merchantTradeNo":"T-{number}","currency":"USDT","orderAmount":"1","env":{{"terminalType":"WEB"}},"goods":{{"goodsName":"tea"}}}}"#
        )
    };
    for (number, between, said) in [
        (1, Between::Loses, "the merchant API did not answer, and it may have been done: look before you do it again"),
        (2, Between::GivesUp, "this the merchant API? (it may have been done: look before you do it again)"),
        (3, Between::Doubles, "401 400021 NONCE_REUSED"),
    ] {
        std::fs::write(desk.place.path("order.json"), order(number)).expect("is written");
        let url = proxy(desk.serving.listen.clone(), between);
        let mut call = desk.command(&format!("call POST /v1/pay/order --body order.json --url {url}"));
        call.env("COUNTERSIGN_CLIENT_ID", text("client_id")).env("COUNTERSIGN_SECRET", text("payment_api_secret"));
        let (_, stderr, code) = told(&call.output().expect("runs"));
        assert!(code == Some(1) && stderr.contains(said), "{stderr}");
        assert!(stderr.contains("it may have been done: look before you do it again"), "{stderr}");
        let orders = desk.made("payment-order list");
        assert_eq!(orders["items"].as_array().map(Vec::len), Some(number), "it was done");
    }
}
