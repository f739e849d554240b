//! A place where no deployment is: an empty folder, one whose `init` was cut off, a database with tables alone. Every command that opens a
//! deployment says how to make one, and none asks for a key to what is not there.

use std::os::unix::fs::PermissionsExt as _;

use super::{Place, names, refused};

const SERVE: [&str; 5] = ["serve", "--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0"];
const OPENING: [&[&str]; 6] = [
    &SERVE,
    &["token", "recover"],
    &["audit", "verify"],
    &["audit", "heads"],
    &["audit", "begin"],
    &["backup", "file"],
];

/// An empty data folder; none where this run is about a database that nodes share.
fn empty() -> Option<Place> {
    let place = Place::fresh();
    if place.has_database() {
        return None;
    }
    std::fs::create_dir(place.data()).expect("made");
    std::fs::set_permissions(place.data(), std::fs::Permissions::from_mode(0o700)).expect("ours");
    Some(place)
}

#[test]
fn an_empty_folder_has_no_deployment_whatever_opens_it_and_stays_empty() {
    let Some(place) = empty() else { return };
    for words in OPENING {
        let said = refused(&place, &[words, &["--data", "data"]].concat());
        assert_eq!(said, "there is no deployment in data: make one with `countersign init --data data`", "{words:?}");
        assert_eq!(names(&place), [] as [&str; 0], "{words:?}");
    }
}

#[test]
fn what_a_killed_init_left_is_no_deployment_and_init_takes_it_up() {
    // The file of which nothing was written yet, and the one that has its tables and nothing else.
    for has_tables in [false, true] {
        let Some(place) = empty() else { return };
        std::fs::write(place.path("data/countersign.db"), "").expect("written");
        if has_tables {
            place.ends(&["migrate", "--data", "data"], 0);
        }
        let wanted = "the database in data is not initialised: run `countersign init --data data`";
        for words in OPENING {
            let said = refused(&place, &[words, &["--data", "data"]].concat());
            assert_eq!(said, wanted, "{words:?}, {has_tables}");
        }
        let said = refused(&place, &["move", "--from", "data", "--to", "postgres://127.0.0.1:1/x"]);
        assert_eq!(said, "data is not initialised: there is nothing to move");
        let address = &SERVE[1..];
        let (said, _) = place.ends(&[&["doctor", "--data", "data"], address].concat(), 1);
        assert!(!said.contains("master key"), "{said}");
        assert_eq!(said.matches("run `countersign init --data data`").count(), 1, "{said}");
        assert_eq!(said.matches("fail  ").count(), 1, "{said}");
        place.init();
        assert_eq!(place.serve(&[]).terminate(), Some(0));
    }
}

#[test]
fn a_database_of_nodes_without_a_deployment_is_told_before_a_key_is_asked_for() {
    let (place, database) = (Place::fresh(), super::database());
    let url = database.url();
    std::fs::create_dir(place.data()).expect("made");
    std::fs::set_permissions(place.data(), std::fs::Permissions::from_mode(0o700)).expect("ours");
    for has_tables in [false, true] {
        if has_tables {
            let (said, _) = place.ends(&["migrate", "--data", "data", "--database-url", &url], 0);
            assert!(said.contains("No deployment is in it yet"), "{said}");
        }
        for words in OPENING {
            let said = refused(&place, &[words, &["--data", "data", "--database-url", &url]].concat());
            assert!(
                said.contains("holds no deployment of Countersign") && said.contains("countersign init"),
                "{words:?}, {has_tables}: {said}"
            );
        }
        let (said, _) = place.ends(&[&["doctor", "--data", "data", "--database-url", &url], &SERVE[1..]].concat(), 1);
        assert!(!said.contains("master key") && said.contains("countersign init"), "{said}");
    }
}

#[test]
fn a_named_key_that_is_not_there_before_there_is_a_deployment_is_to_be_made() {
    let place = Place::fresh();
    let said = refused(&place, &["init", "--data", "data", "--master-key", "nokey"]);
    assert!(said.contains("the master key file nokey is not there") && said.contains("openssl rand -hex 32"), "{said}");
    assert!(!said.contains("nothing in this deployment"), "{said}");
    assert!(!place.data().exists(), "nothing is left of it");
}

#[test]
fn an_init_that_is_refused_for_the_key_in_the_folder_makes_nothing() {
    for (text, mode, wanted) in
        [("no key", 0o600, "does not hold a master key"), (&*"ab".repeat(32), 0o644, "may be read by others")]
    {
        let Some(place) = empty() else { return };
        let key = place.path("data/master.key");
        std::fs::write(&key, text).expect("written");
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(mode)).expect("ours");
        let said = refused(&place, &["init", "--data", "data"]);
        assert!(said.contains(wanted), "{said}");
        assert_eq!(names(&place), ["master.key"]);
    }
}

#[test]
fn a_migrated_database_without_a_deployment_says_so_in_either_store() {
    let database = super::database();
    let url = database.url();
    for to in [&[][..], &["--database-url", &url]] {
        let Some(place) = empty() else { return };
        std::fs::write(place.path("data/countersign.db"), "").expect("written");
        let migrate = [&["migrate", "--data", "data"], to].concat();
        let (first, _) = place.ends(&migrate, 0);
        let wanted = "` makes one.\n";
        let none = "No deployment is in it yet: `countersign init --data data";
        assert!(first.contains(&format!("There was none before. {none}")) && first.ends_with(wanted), "{first}");
        let (again, _) = place.ends(&migrate, 0);
        assert!(again.contains(none) && again.ends_with(wanted) && !again.contains("none before"), "{again}");
        place.ends(&[&["init", "--data", "data"], to].concat(), 0);
        let (made, _) = place.ends(&migrate, 0);
        assert!(made.contains("is up to date") && !made.contains("No deployment"), "{made}");
    }
}
