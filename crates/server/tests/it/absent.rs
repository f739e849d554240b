//! A folder whose database is not there, and what `doctor` finds before `serve` does.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;

use super::{Place, names};

const ANY: [&str; 6] = ["--data", "data", "--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0"];

fn says(place: &Place, command: &str) -> String {
    let (stdout, stderr) = place.ends(&[&[command], &ANY[..]].concat(), 1);
    stdout + &stderr
}

/// A deployment that was served once and stopped; none where this run is about a database that nodes share.
fn served() -> Option<Place> {
    let place = Place::fresh();
    if place.has_database() {
        return None;
    }
    place.init();
    assert_eq!(place.serve(&[]).terminate(), Some(0));
    Some(place)
}

#[test]
fn a_lock_that_cannot_be_opened_is_told_with_its_cause_by_doctor_as_by_serve() {
    let Some(place) = served() else { return };
    let lock = place.path("data/lock");
    std::fs::remove_file(&lock).expect("there is one");
    // Nobody may write to a folder, whoever runs this.
    std::fs::create_dir(&lock).expect("made");
    for command in ["serve", "doctor"] {
        let said = says(&place, command);
        assert!(said.contains("data/lock cannot be opened: Is a directory"), "{command}: {said}");
    }
}

#[test]
fn a_folder_that_takes_no_files_is_told_by_doctor() {
    let Some(place) = served() else { return };
    let (before, _) = place.ends(&[&["doctor"], &ANY[..]].concat(), 0);
    assert!(before.contains("ok    data folder"), "{before}");
    // Nobody may make that file, whoever runs this.
    std::fs::create_dir(place.path("data/lock.unfinished")).expect("made");
    let said = says(&place, "doctor");
    assert!(said.contains("data takes no files: Is a directory") && said.contains("the right to"), "{said}");
    std::fs::remove_dir(place.path("data/lock.unfinished")).expect("removed");
    place.ends(&[&["doctor"], &ANY[..]].concat(), 0);
    assert!(!names(&place).iter().any(|name| name.contains("unfinished")));
}

#[test]
fn a_folder_without_a_deployment_is_told_to_make_one_and_stays_as_it_is() {
    let place = Place::fresh();
    if place.has_database() {
        return;
    }
    std::fs::create_dir(place.data()).expect("made");
    std::fs::set_permissions(place.data(), std::fs::Permissions::from_mode(0o700)).expect("ours");
    for command in ["serve", "doctor"] {
        let said = says(&place, command);
        assert!(
            said.contains("there is no deployment in data: make one with `countersign init --data data`"),
            "{command}: {said}"
        );
        assert!(!said.contains("master key"), "none was made yet: {said}");
        assert_eq!(names(&place), [] as [&str; 0], "{command}");
    }
}

#[test]
fn a_database_that_is_gone_is_not_made_anew() {
    let Some(place) = served() else { return };
    let file = place.path("data/countersign.db");
    for left in [Some(0), None] {
        match left {
            Some(bytes) => std::fs::write(&file, vec![0; bytes]).expect("written"),
            None => std::fs::remove_file(&file).expect("removed"),
        }
        let before = names(&place);
        for command in ["serve", "doctor"] {
            let said = says(&place, command);
            assert!(said.contains("countersign.db is gone") && said.contains("countersign restore FILE"), "{said}");
            assert!(!said.contains("countersign init"), "{said}");
            assert_eq!(names(&place), before, "{command}");
        }
        for command in ["migrate", "init"] {
            let (_, said) = place.ends(&[command, "--data", "data"], 1);
            assert!(said.contains("countersign.db is gone"), "{said}");
            assert_eq!(names(&place), before, "{command}");
        }
        assert_eq!(std::fs::metadata(&file).ok().map(|found| found.len()), left.map(|_| 0));
    }
    // It never served: nothing tells whether there was anything.
    std::fs::remove_file(place.path("data/audit.chain")).expect("removed");
    let said = says(&place, "serve");
    assert!(
        said.contains("has a master key but no database") && said.contains("countersign init --data data"),
        "{said}"
    );
    assert!(!place.path("data/countersign.db").exists());
}

#[test]
fn doctor_fails_where_serve_refuses() {
    let Some(place) = served() else { return };
    let chain = std::fs::read(place.path("data/audit.chain")).expect("is there");
    std::fs::write(place.path("data/audit.chain"), "0000000000000000\n").expect("written");
    for command in ["serve", "doctor"] {
        assert!(says(&place, command).contains("has another key"), "{command}");
    }
    std::fs::write(place.path("data/audit.chain"), chain).expect("written");

    std::fs::write(place.path("ca.pem"), "garbage").expect("written");
    std::fs::write(place.path("empty.pem"), "").expect("as a full disk leaves it");
    for file in ["no-such-file", "ca.pem", "empty.pem"] {
        std::fs::write(place.path("c.toml"), format!("callback_ca_file = \"{file}\"\n")).expect("written");
        for command in ["serve", "doctor"] {
            let said = place.ends(&[&[command, "--config", "c.toml"], &ANY[..]].concat(), 1);
            assert!((said.0 + &said.1).contains(&format!("callback_ca_file {file}")), "{command}");
        }
    }

    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("has one").to_string();
    let at = ["--data", "data", "--listen", &address, "--operator-listen", "127.0.0.1:0"];
    let (said, _) = place.ends(&[&["doctor"], &at[..]].concat(), 1);
    assert!(said.contains(&format!("fail  listen       {address} is in use by another program")), "{said}");
    let (_, said) = place.ends(&[&["serve"], &at[..]].concat(), 1);
    let wanted =
        format!("listen {address} cannot be used: another program listens there: end it, or choose another port\n");
    assert!(said.ends_with(&wanted), "{said}");
    // A server that runs on the folder has it: that is as it should be.
    let _serving = place.serve(&[]);
    let (said, _) = place.ends(&[&["doctor"], &at[..]].concat(), 0);
    assert!(said.contains("perhaps by a running server"), "{said}");
}

#[test]
fn doctor_names_an_empty_or_damaged_database_and_what_to_do() {
    let Some(place) = served() else { return };
    let file = place.path("data/countersign.db");
    let bytes = std::fs::read(&file).expect("is there");
    std::fs::write(&file, "").expect("written");
    // Nothing tells that it ever served.
    std::fs::rename(place.path("data/audit.chain"), place.path("chain")).expect("moved");
    let said = says(&place, "doctor");
    std::fs::rename(place.path("chain"), place.path("data/audit.chain")).expect("moved back");
    assert!(said.contains("the database is empty: run `countersign init --data data`"), "{said}");
    assert!(!said.contains("no such table"), "{said}");
    let mut spoiled = bytes;
    let length = spoiled.len();
    spoiled[length - 4096..].fill(0xa5);
    std::fs::write(&file, spoiled).expect("written");
    let said = says(&place, "doctor");
    assert!(said.contains("countersign.db is damaged: ") && said.contains("restore a backup"), "{said}");
}
