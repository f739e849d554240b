//! What is shown this once and could not be: a failure that says what was made, and how to have another.

use std::fs::{File, OpenOptions};
use std::process::{Command, Stdio};

use super::Place;
use super::desk::{Desk, told};

/// Ways for an answer to be lost: nobody reads it, the disk is full, there is nothing to write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    Unread,
    Full,
    ReadOnly,
    Closed,
}

const ALL: [Lost; 4] = [Lost::Unread, Lost::Full, Lost::ReadOnly, Lost::Closed];

fn stdout_of(lost: Lost) -> Stdio {
    match lost {
        Lost::Unread => {
            let (reader, writer) = std::io::pipe().expect("a pipe");
            drop(reader);
            writer.into()
        }
        Lost::Full => OpenOptions::new().write(true).open("/dev/full").expect("every Linux has it").into(),
        Lost::ReadOnly => File::open("/dev/null").expect("every Linux has it").into(),
        Lost::Closed => Stdio::null(),
    }
}

/// The same command without a stdout at all.
fn closed(command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$0\" \"$@\" >&-"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        shell.current_dir(folder);
    }
    shell
}

/// The sentence, which names its cause.
fn refused(mut command: Command, lost: Lost) -> String {
    if lost == Lost::Closed {
        command = closed(&command);
    }
    let (_, stderr, code) = told(&command.stdout(stdout_of(lost)).output().expect("runs"));
    assert_eq!((code, stderr.lines().count()), (Some(1), 1), "{lost:?} {command:?}: {stderr}");
    let cause = match lost {
        Lost::Unread => "what was to be printed could not be written: broken pipe",
        Lost::Full => "what was to be printed could not be written: No space left on device",
        Lost::ReadOnly => "what was to be printed could not be written: Bad file descriptor",
        Lost::Closed => "what was to be printed could not be written: standard output is closed, or goes nowhere",
    };
    assert!(stderr.contains(cause), "{lost:?} {command:?}: {stderr}");
    assert!(!["sk_", "cso_"].iter().any(|secret| stderr.contains(secret)), "{stderr}");
    stderr
}

/// The commands in the sentence, each without the program's name.
fn named(sentence: &str) -> Vec<String> {
    let quoted = sentence.split('`').skip(1).step_by(2);
    quoted.map(|command| command.strip_prefix("countersign ").expect("a command").to_owned()).collect()
}

#[test]
fn an_application_whose_secret_nobody_saw_is_named_and_gets_another() {
    let desk = Desk::open();
    desk.made("merchant create --name m --merchant-id m");
    for lost in ALL {
        for json in ["", " --json"] {
            let said = refused(desk.command(&format!("application create m --name till{json}")), lost);
            let id = desk.made("application list")["items"].as_array().and_then(|all| all.last()).expect("one").clone();
            let id = id["client_id"].as_str().expect("a text");
            let wanted = format!(
                "countersign: the application {id} is made, but its secret is lost: `countersign secret rotate {id} --overlap-s 0` makes another: "
            );
            assert!(said.starts_with(&wanted), "{said}");
            let made = desk.made(&named(&said)[0]);
            assert!(made["payment_api_secret"].is_string(), "{made}");
        }
    }
}

#[test]
fn a_secret_that_nobody_saw_is_named_and_ended_and_another_is_made() {
    let desk = Desk::open();
    desk.made("merchant create --name m --merchant-id m");
    let id = desk.made("application create m --name till")["client_id"].as_str().expect("a text").to_owned();
    let rotate = format!("secret rotate {id}");
    for lost in ALL {
        let said = refused(desk.command(&rotate), lost);
        let revoke = named(&said).remove(0);
        let secret = revoke.rsplit(' ').next().expect("an id");
        let wanted = format!(
            "countersign: the secret {secret} of {id} is made, but it is lost: end it with `countersign secret revoke {id} {secret}`, and rotate again: "
        );
        assert!(said.starts_with(&wanted), "{said}");
        assert_eq!(desk.made(&revoke)["secret_id"], secret);
        assert!(desk.made(&format!("{rotate} --overlap-s 0"))["payment_api_secret"].is_string());
    }
    // A list shows nothing that is lost.
    let listed = desk.command(&format!("secret list {id}")).stdout(stdout_of(Lost::Unread)).output().expect("runs");
    assert_eq!(told(&listed), (String::new(), String::new(), Some(0)));
    // The answer to a repeat has no secret.
    let keyed = format!("{rotate} --idempotency-key k");
    let said = refused(desk.command(&keyed), Lost::Unread);
    desk.made(&named(&said)[0]);
    let again = desk.command(&keyed).stdout(stdout_of(Lost::Unread)).output().expect("runs");
    let (shown, said, code) = told(&again);
    assert_eq!((shown.as_str(), code), ("", Some(0)));
    assert!(said.contains("was done before") && said.contains("shown once"), "{said}");
    let (shown, said, code) = desk.says(&keyed);
    assert!(
        shown.contains("payment_api_secret") && said.contains("was done before") && code == Some(0),
        "{shown}{said}"
    );
}

#[test]
fn a_token_that_nobody_saw_is_named_and_ended() {
    let desk = Desk::open();
    for lost in ALL {
        let said = refused(desk.command("token create --name t --role viewer"), lost);
        let revoke = named(&said).remove(0);
        let token = revoke.rsplit(' ').next().expect("an id");
        let wanted = format!(
            "countersign: the token {token} is made, but it is lost: end it with `countersign token revoke {token}`, and create another: "
        );
        assert!(said.starts_with(&wanted), "{said}");
        assert_eq!(desk.made(&revoke)["token_id"], token);
        assert_eq!(desk.made(&format!("token show {token}"))["name"], "t");
    }
}

#[test]
fn a_token_of_the_machine_that_nobody_saw_is_made_again() {
    for lost in ALL {
        let place = Place::fresh();
        let said = refused(place.command(&["init", "--data", "data"]), lost);
        let wanted = "countersign: the deployment is made, but its operator token is lost: `countersign token recover";
        assert!(said.starts_with(wanted), "{said}");
        let recover = named(&said).remove(0);
        let words: Vec<_> = recover.split(' ').collect();
        for json in [&[][..], &["--json"][..]] {
            let said = refused(place.command(&[&words, json].concat()), lost);
            assert_eq!(named(&said)[0], recover, "{said}");
            assert!(
                named(&said)[1].starts_with("token revoke ") && said.contains(" is made, but it is lost"),
                "{said}"
            );
        }
        assert!(place.ends(&words, 0).0.starts_with("Operator token "));
    }
}

#[test]
fn a_change_that_was_done_and_could_not_be_shown_says_so_and_a_question_does_not() {
    let desk = Desk::open();
    let said = refused(desk.command("merchant create --name m --merchant-id m"), Lost::Full);
    let (begin, key) = said.split_once("--idempotency-key ").expect("how to learn what came of it");
    assert_eq!(begin, "countersign: it was done, and not shown: the same command with ");
    let key = key.split_once(' ').expect("a key").0;
    let made = desk.made(&format!("merchant create --name m --merchant-id m --idempotency-key {key}"));
    assert_eq!(made["merchant_id"], "m", "it is answered as it was then");
    let said = refused(desk.command("merchant list"), Lost::Full);
    assert!(said.starts_with("countersign: what was to be printed could not be written: "), "{said}");
}

#[test]
fn an_address_that_is_none_is_blamed_on_what_gave_it() {
    let place = Place::fresh();
    for (given, flag) in [("COUNTERSIGN_OPERATOR_URL", None), ("--operator-url", Some("--operator-url=nope"))] {
        let words: Vec<_> = ["merchant", "list"].into_iter().chain(flag).collect();
        let mut command = place.command(&words);
        command.env("COUNTERSIGN_OPERATOR_TOKEN", "cso_a").env("COUNTERSIGN_OPERATOR_URL", "nope-of-variable");
        let (_, said, _) = told(&command.output().expect("runs"));
        assert!(said.starts_with(&format!("countersign: {given}: ")), "{said}");
    }
}
