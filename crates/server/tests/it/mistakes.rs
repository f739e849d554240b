//! What goes wrong in the hands of operators: one sentence that says what to change, and an exit code that scripts can go by.

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use super::Place;
use super::desk::{Desk, told};

/// A receiver of one callback that answers with this.
fn answers_once(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}/callback", listener.local_addr().expect("has one"));
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("comes");
        let mut came = Vec::new();
        // The body is the end of what comes.
        while !came.ends_with(b"}") {
            let mut part = [0; 4096];
            let read = stream.read(&mut part).expect("is read");
            came.extend_from_slice(&part[..read]);
        }
        let length = answer.len();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
        stream.write_all((head + answer).as_bytes()).expect("is written");
    });
    url
}

#[test]
fn a_test_callback_that_is_not_delivered_ends_with_1_and_its_report() {
    let desk = Desk::open();
    desk.made("merchant create --name m --merchant-id m");
    for (answer, outcome, wanted) in
        [(r#"{"returnCode":"SUCCESS"}"#, "delivered", 0), (r#"{"returnCode":"FAIL"}"#, "fail", 1)]
    {
        let made = desk.made(&format!("application create m --name till --callback-url {}", answers_once(answer)));
        let client_id = made["client_id"].as_str().expect("a text");
        let (stdout, stderr, code) = desk.says(&format!("application test-callback {client_id} --json"));
        let report: Value = serde_json::from_str(&stdout).expect("the report is printed in any case");
        assert_eq!((&report["outcome"], code), (&Value::from(outcome), Some(wanted)), "{stderr}");
        let refused =
            format!("countersign: the test callback of {client_id} was not delivered: {outcome} (status 200)\n");
        assert_eq!(stderr, if wanted == 0 { String::new() } else { refused });
    }
}

#[test]
fn an_update_of_another_kind_changes_nothing_and_says_which_command_does() {
    let desk = Desk::open();
    desk.made("merchant create --name plain --merchant-id m");
    desk.made("institution create --name bank --merchant-id b");
    desk.made("sub-account create b --name sub --sub-merchant-id s");
    for (words, wanted) in [
        (
            "institution update m --name X",
            "m is a merchant, not an institution: nothing was changed; say `countersign merchant update m`",
        ),
        (
            "institution update s --name X",
            "s is a sub-account, not an institution: nothing was changed; say `countersign sub-account update s`",
        ),
        (
            "sub-account update b --name X",
            "b is an institution, not a sub-account: nothing was changed; say `countersign institution update b`",
        ),
        ("institution update none --name X", "refused with 404 400404 NOT_FOUND: no merchant has the id none"),
    ] {
        assert_eq!(desk.says(words), (String::new(), format!("countersign: {wanted}\n"), Some(1)), "{words}");
    }
    for (id, name) in [("m", "plain"), ("b", "bank"), ("s", "sub")] {
        assert_eq!(desk.made(&format!("merchant show {id}"))["name"], name);
    }
    desk.made("institution update b --name bank-2");
    desk.made("sub-account update s --name sub-2");
    // The general word, as in `merchant list`.
    desk.made("merchant update s --name sub-3");
    assert_eq!(desk.made("sub-account show s")["name"], "sub-3");
}

#[test]
fn the_address_of_the_merchants_is_recognised() {
    let desk = Desk::open();
    for words in ["merchant list", "statement m --month 2020-01", "merchant create --name X"] {
        let mut command = desk.command(words);
        command.env("COUNTERSIGN_OPERATOR_URL", format!("http://{}", desk.serving.listen));
        let (stdout, stderr, code) = told(&command.output().expect("runs"));
        assert_eq!((stdout.as_str(), code), ("", Some(1)), "{words}");
        let wanted = "countersign: refused with 404: this is the address of the merchants' API; name that of the operator API with ";
        assert!(stderr.starts_with(wanted) && stderr.lines().count() == 1, "{stderr}");
    }
}

#[test]
fn what_does_not_fit_on_the_disk_is_a_failure_of_the_disk() {
    let desk = Desk::open();
    desk.made("merchant create --name m --merchant-id m");
    let made = desk.made("application create m --name till");
    let text = |name: &str| made[name].as_str().expect("a text");
    let order = r#"{"merchantTradeNo":"T-1","currency":"USDT","orderAmount":"12.50","env":{"terminalType":"WEB"},"goods":{"goodsName":"tea"}}"#;
    std::fs::write(desk.place.path("order.json"), order).expect("is written");
    let mut call =
        desk.command(&format!("call POST /v1/pay/order --body order.json --url http://{}", desk.serving.listen));
    call.env("COUNTERSIGN_CLIENT_ID", text("client_id")).env("COUNTERSIGN_SECRET", text("payment_api_secret"));
    let (stdout, stderr, code) = told(&call.output().expect("runs"));
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    let orders = desk.made("payment-order list");
    let order = orders["items"][0]["prepayId"].as_str().expect("an order");
    let evidence = format!("evidence {order}");
    let all = [
        &evidence,
        "evidence key",
        "statement m --month 2020-01",
        "merchant list",
        "audit list",
        "audit heads",
        "--help",
        "--version",
        "merchant --help",
    ];
    for words in all {
        let full = OpenOptions::new().write(true).open("/dev/full").expect("every Linux has it");
        let (_, stderr, code) = told(&desk.command(words).stdout(full).output().expect("runs"));
        assert_eq!(code, Some(1), "{words}: {stderr}");
        let wanted = "countersign: what was to be printed could not be written: ";
        assert!(stderr.starts_with(wanted) && stderr.lines().count() == 1, "{words}: {stderr}");
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let (_, stderr, code) = told(&desk.command(words).stdout(writer).output().expect("runs"));
        assert_eq!((stderr.as_str(), code), ("", Some(0)), "{words}");
    }
}

#[test]
fn a_picture_takes_no_name_from_a_link_and_nothing_is_asked() {
    let place = Place::fresh();
    std::os::unix::fs::symlink("elsewhere", place.path("a.svg")).expect("is linked");
    let words = "fee-rule what-if --sub-account s --r-markup 1 --picture a.svg --operator-url http://127.0.0.1:1";
    let mut command = place.command(&words.split(' ').collect::<Vec<_>>());
    let (_, stderr, code) = told(&command.env("COUNTERSIGN_OPERATOR_TOKEN", "cso_x").output().expect("runs"));
    let wanted = "countersign: a.svg is no file but a link, and is never replaced: name another file\n";
    assert_eq!((stderr.as_str(), code), (wanted, Some(1)));
}

#[test]
fn whoever_brings_events_goes_on_where_a_remark_cannot_be_written() {
    let desk = Desk::open();
    desk.made("merchant create --name m --merchant-id m");
    let made = desk.made("application create m --name till");
    let text = |name: &str| made[name].as_str().expect("a text");
    // A remark: the seq is beyond the newest event.
    std::fs::write(desk.place.path("cursor"), format!("1 {}\n", text("client_id"))).expect("is written");
    let words = format!("listen --forward http://127.0.0.1:1/ --cursor cursor --url http://{}", desk.serving.listen);
    let mut listen = desk.command(&words);
    listen.env("COUNTERSIGN_CLIENT_ID", text("client_id")).env("COUNTERSIGN_SECRET", text("payment_api_secret"));
    let full = OpenOptions::new().write(true).open("/dev/full").expect("every Linux has it");
    let mut listen = listen.stdout(Stdio::piped()).stderr(full).spawn().expect("runs");
    let mut said = BufReader::new(listen.stdout.take().expect("is piped")).lines().map_while(Result::ok);
    assert!(said.next().is_some_and(|line| line.contains("bringing events after seq 1")));
    let emit =
        format!("event emit --client-id {} --biz-type T --biz-id 1 --biz-status S --data {{}}", text("client_id"));
    for _ in 0..2 {
        desk.made(&emit);
    }
    let brought = said.next();
    listen.kill().and_then(|()| listen.wait()).expect("it ends");
    assert!(brought.as_ref().is_some_and(|line| line.contains("seq 2 ")), "{brought:?}");
}

#[test]
fn a_start_that_fails_ends_though_nobody_reads_its_log() {
    let place = Place::fresh();
    let (_reader, writer) = std::io::pipe().expect("a pipe");
    let mut filling = writer.try_clone().expect("its end, twice");
    // It ends when the pipe does, with the test.
    std::thread::spawn(move || while filling.write_all(&[b'x'; 4096]).is_ok() {});
    let mut serve = place.command(&["serve", "--data", "nowhere"]);
    let mut child = serve.stdout(Stdio::null()).stderr(writer).spawn().expect("runs");
    let (tell, ended) = std::sync::mpsc::channel();
    let pid = child.id();
    std::thread::spawn(move || tell.send(child.wait().map(|status| status.code())));
    let code = ended.recv_timeout(Duration::from_secs(60));
    if code.is_err() {
        let _ = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status();
    }
    assert_eq!(code.expect("it ends").expect("is waited for"), Some(1));
}

#[test]
fn a_token_that_could_not_be_shown_is_made_again_as_the_command_says() {
    for json in [&[][..], &["--json"][..]] {
        let place = Place::fresh();
        let full = OpenOptions::new().write(true).open("/dev/full").expect("every Linux has it");
        let mut init = place.command(&[&["init", "--data", "data"], json].concat());
        let (_, stderr, code) = told(&init.stdout(full).output().expect("runs"));
        assert_eq!(code, Some(1), "{stderr}");
        assert!(stderr.contains("could not be written") && stderr.lines().count() == 1, "{stderr}");
        let named = stderr.split('`').nth(1).and_then(|named| named.strip_prefix("countersign ")).expect("a command");
        let (stdout, stderr, code) =
            told(&place.command(&named.split(' ').collect::<Vec<_>>()).output().expect("runs"));
        assert!(code == Some(0) && stdout.contains("Operator token"), "{named}: {stderr}");
    }
}

#[test]
fn what_is_refused_leaves_no_folder_behind() {
    let place = Place::fresh();
    std::fs::write(place.path("no-backup"), b"not a backup").expect("is written");
    let new = |name: &str| place.path(name).display().to_string();
    let refused: [&[&str]; 4] = [
        &["init", "--data", &new("one"), "--master-key", "/nowhere/master.key"],
        &["init", "--data", &new("two"), "--database-url", "postgres://127.0.0.1:1/nobody"],
        &["init", "--data", &new("three"), "--database-url", "mysql://127.0.0.1/x"],
        &["restore", &new("no-backup"), "--data", &new("four")],
    ];
    for arguments in refused {
        let ended = place.run(arguments);
        assert_eq!(ended.status.code(), Some(1), "{arguments:?}: {}", String::from_utf8_lossy(&ended.stderr));
    }
    let mut left: Vec<_> = std::fs::read_dir(place.path("")).expect("reads").flatten().map(|e| e.file_name()).collect();
    left.sort();
    assert_eq!(left, ["no-backup"]);
    // One that was there stays.
    std::fs::create_dir(place.path("five")).expect("is made");
    let ended = place.run(&["init", "--data", &new("five"), "--master-key", "/nowhere/master.key"]);
    assert_eq!((ended.status.code(), place.path("five").is_dir()), (Some(1), true));
}
