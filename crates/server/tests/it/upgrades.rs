//! What an older program left, and this one is not to change before it is sure of it.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use countersign_store::testing::{Tampering, free_port};

use tokio::runtime::Runtime;

use super::Place;
use super::desk::Desk;

/// Makes a deployment as a program with one schema step less leaves it.
fn older() -> Place {
    let place = Place::fresh();
    place.init();
    place.tamper(Tampering::StepBack);
    place
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

/// What `doctor` says of the schema, whatever else it finds.
fn is_behind(place: &Place) -> bool {
    let out = place.run(&["doctor", "--data", "data"]);
    String::from_utf8_lossy(&out.stdout).contains("behind this program")
}

#[test]
fn a_start_that_is_refused_leaves_the_schema_and_doctor_says_so_before() {
    let other = Place::fresh();
    other.init();
    for (wrong, told) in [
        ("rule_timezone = \"Europe/Berlin\"\n", "rule_timezone is \"Europe/Berlin\" here"),
        ("markup_unit = \"fraction\"\n", "markup_unit is \"fraction\" here"),
        ("", "not the master key of the deployment"),
    ] {
        let place = older();
        let settings = place.path("wrong.toml");
        std::fs::write(&settings, wrong).expect("written");
        if wrong.is_empty() {
            std::fs::copy(other.path("data/master.key"), place.path("data/master.key")).expect("copied");
        }
        let with = ["--data", "data", "--config", "wrong.toml"];
        let (found, _) = place.ends(&[&["doctor"], &with[..]].concat(), 1);
        assert!(found.contains("fail  deployment") && found.contains(told), "{found}");
        let (_, said) = place.ends(&[&["serve"], &with[..]].concat(), 1);
        assert!(said.contains(told), "{said}");
        assert!(is_behind(&place), "{told}");
    }
}

#[test]
fn a_start_that_misses_the_key_of_the_audit_log_leaves_the_schema() {
    let place = older();
    std::fs::write(place.path("data/audit.chain"), "0".repeat(16)).expect("written");
    let (found, _) = place.ends(&["doctor", "--data", "data"], 1);
    assert!(found.contains("fail  deployment") && found.contains("has another key"), "{found}");
    let (_, said) = place.ends(&["serve", "--data", "data"], 1);
    assert!(said.contains("has another key"), "{said}");
    assert!(is_behind(&place));
}

#[test]
fn a_start_that_lacks_something_of_this_machine_leaves_the_schema() {
    let place = older();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("its address");
    let proxy = "callback_proxy = \"http://127.0.0.1:3128\"\ncallback_proxy_credentials_file = \"gone\"\n";
    for (lacks, told) in [
        ("tls.cert = \"gone.pem\"\ntls.key = \"gone.key\"\n".to_owned(), "gone.pem"),
        ("callback_ca_file = \"gone.pem\"\n".to_owned(), "callback_ca_file gone.pem"),
        (proxy.to_owned(), "gone cannot be read"),
        ("callback_source_address = [\"192.0.2.77\"]\n".to_owned(), "192.0.2.77 is no address of this machine"),
        (format!("listen = \"{taken}\"\n"), "listen"),
        (format!("operator_listen = \"{taken}\"\n"), "operator_listen"),
    ] {
        let free = ["listen", "operator_listen"].into_iter().filter(|name| !lacks.starts_with(name));
        let free = free.map(|name| format!("{name} = \"127.0.0.1:0\"\n")).collect::<Vec<_>>().concat();
        std::fs::write(place.path("lacks.toml"), format!("{free}{lacks}")).expect("written");
        let (_, said) = place.ends(&["serve", "--data", "data", "--config", "lacks.toml"], 1);
        assert!(said.contains(told), "{lacks}: {said}");
        assert!(is_behind(&place), "{lacks}");
    }
    if place.has_database() {
        std::fs::write(place.path("data/node.id"), "none").expect("written");
        let (_, said) =
            place.ends(&["serve", "--data", "data", "--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0"], 1);
        assert!(said.contains("node.id") && is_behind(&place), "{said}");
    }
}

#[test]
fn a_start_that_misses_the_key_of_a_rewrap_that_was_cut_off_leaves_the_schema_and_doctor_says_so_before() {
    for left in [Tampering::SecretsUnder("k_other"), Tampering::EvidenceUnder("k_other")] {
        let desk = Desk::open();
        desk.made("merchant create --merchant-id m --name m");
        desk.made("application create m --name till");
        let Desk { place, serving, .. } = desk;
        assert_eq!(serving.terminate(), Some(0));
        for tampering in [left, Tampering::StepBack] {
            place.tamper(tampering);
        }
        let told = "sealed under the master key k_other still, which is not here";
        let (found, _) = place.ends(&["doctor", "--data", "data"], 1);
        assert!(found.contains("fail  deployment") && found.contains(told), "{found}");
        let (_, said) = place.ends(&["serve", "--data", "data"], 1);
        assert!(said.contains(told), "{said}");
        assert!(is_behind(&place), "{left:?}");
    }
}

#[test]
fn an_older_schema_is_left_to_the_program_that_it_served_with_for_a_backup_of_it() {
    let place = older();
    let said = super::refused(&place, &["backup", "file", "--data", "data"]);
    let wanted = "the program that it has served with can take a backup of it as it is, and this one can after `countersign migrate`";
    assert!(said.ends_with(wanted), "{said}");
    assert!(is_behind(&place) && !place.path("file").exists());
}

#[test]
fn what_doctor_finds_in_order_starts() {
    let place = older();
    std::fs::write(place.path("c.toml"), "listen = \"127.0.0.1:0\"\noperator_listen = \"127.0.0.1:0\"\n")
        .expect("written");
    let (found, _) = place.ends(&["doctor", "--data", "data", "--config", "c.toml"], 0);
    assert!(found.contains("warn  schema") && found.contains("ok    deployment"), "{found}");
    assert_eq!(place.serve(&[]).terminate(), Some(0));
    assert!(!is_behind(&place));
}

#[test]
fn a_node_that_brings_no_key_or_another_one_leaves_the_schema() {
    let (place, other) = (older(), Place::fresh());
    if !place.has_database() {
        return;
    }
    other.init();
    let (_, said) = place.ends(&["init", "--data", "two"], 1);
    assert!(said.contains("give the deployment's master key"), "{said}");
    let key = other.path("data/master.key");
    let key = key.to_str().expect("a path");
    let (_, said) = place.ends(&["init", "--data", "three", "--master-key", key], 1);
    assert!(said.contains("not the master key of the deployment"), "{said}");
    assert!(is_behind(&place));
}

#[test]
fn a_migration_is_not_ended_by_the_size_limit_of_files() {
    let place = older();
    if place.has_database() {
        return;
    }
    // The step itself fits into the log, which stays where the file cannot take it up.
    let script = format!("ulimit -f 128; exec {} migrate --data data", super::BINARY);
    let out = Command::new("sh").args(["-c", &script]).current_dir(place.path("")).output().expect("runs");
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(place.serve(&[]).terminate(), Some(0));
    assert!(!is_behind(&place));
}

#[test]
fn a_migration_that_somebody_holds_up_says_so_and_goes_on_when_they_let_go() {
    let place = older();
    let Some(database) = &place.database else { return };
    let runtime = runtime();
    let holder = runtime.block_on(database.hold_deliveries());
    let mut migrate = place.command(&["migrate", "--data", "data"]);
    let mut child = migrate.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the binary starts");
    let mut said = BufReader::new(child.stderr.take().expect("stderr is piped")).lines();
    let line = said.next().expect("it says something").expect("text");
    assert!(line.contains("WARN") && line.contains("is held by somebody"), "{line}");
    drop(holder);
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    let repeated =
        |line: &std::io::Result<String>| line.as_ref().is_ok_and(|line| line.contains("is held by somebody"));
    assert!(said.all(|line| repeated(&line)), "nothing else was wrong");
    assert!(!is_behind(&place));
}

#[test]
fn while_the_schema_is_brought_up_to_date_connections_are_refused() {
    let place = older();
    let Some(database) = &place.database else { return };
    let runtime = runtime();
    let holder = runtime.block_on(database.hold_deliveries());
    let listen = [free_port(), free_port()].map(|port| format!("127.0.0.1:{port}"));
    let mut serve =
        place.command(&["serve", "--data", "data", "--listen", &listen[0], "--operator-listen", &listen[1]]);
    let mut child = serve.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
    let mut said = BufReader::new(child.stderr.take().expect("stderr is piped")).lines();
    assert!(said.any(|line| line.is_ok_and(|line| line.contains("is held by somebody"))), "it ended");
    for address in &listen {
        let refused = std::net::TcpStream::connect(address).expect_err("nobody answers yet");
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    }
    drop(holder);
    let mut served = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
    assert!(served.next().is_some_and(|line| line.is_ok_and(|line| line.contains(&listen[0]))), "it serves");
    child.kill().and_then(|()| child.wait()).expect("it ends");
}
