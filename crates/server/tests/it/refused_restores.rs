//! A restore into PostgreSQL that is refused before it has begun leaves nothing of its own, and speaks of a restore.

use std::os::unix::fs::PermissionsExt as _;

use countersign_store::testing::{Server, ServerOptions};

use super::{Place, refused};

/// A deployment in a folder, and a backup of it in `file`.
fn backed_up() -> Place {
    let place = Place::fresh();
    let own = |words: &[&str]| {
        let out = place.command(words).env("COUNTERSIGN_DATABASE_URL", "").output().expect("runs");
        assert!(out.status.success(), "{words:?}: {}", String::from_utf8_lossy(&out.stderr));
    };
    own(&["init", "--data", "own"]);
    own(&["backup", "file", "--data", "own"]);
    place
}

#[test]
fn a_restore_that_its_database_refuses_leaves_the_folder_as_it_was() {
    let (place, other) = (backed_up(), super::database());
    place.ends(&["init", "--data", "theirs", "--database-url", &other.url()], 0);
    let (taken, none) = (other.url(), other.url() + "_none");
    std::fs::create_dir(place.path("folder")).expect("made");
    std::fs::set_permissions(place.path("folder"), std::fs::Permissions::from_mode(0o700)).expect("ours");
    for (url, wanted) in [
        ("postgres://postgres@127.0.0.1:1/x", "the PostgreSQL database cannot be used: the database cannot be reached"),
        (&*none, "does not exist (3D000)"),
        (&*taken, "holds another deployment (there are rows in setting): name an empty database"),
    ] {
        for folder in ["new", "folder"] {
            let said = refused(&place, &["restore", "file", "--data", folder, "--database-url", url]);
            assert!(said.contains(wanted), "{said}");
            assert!(!said.contains("the store cannot answer") && !said.contains("move"), "{said}");
            assert!(!place.path("new").exists(), "{said}");
            let left = std::fs::read_dir(place.path("folder")).expect("is read");
            let left: Vec<_> = left.map(|entry| entry.expect("is read").file_name()).collect();
            assert!(left.is_empty(), "{left:?} after {said}");
        }
    }
    place.command(&["init", "--data", "folder"]).env("COUNTERSIGN_DATABASE_URL", "").output().expect("runs");
    assert!(place.path("folder/master.key").exists(), "the folder is free for another deployment");
}

#[test]
fn a_restore_whose_role_may_make_no_tables_leaves_nothing_and_its_database_empty() {
    let place = backed_up();
    let server = Server::start(ServerOptions::default());
    server.ask("postgres", "CREATE DATABASE narrow");
    server.ask("postgres", "CREATE ROLE reader LOGIN");
    server.ask("narrow", "REVOKE CREATE ON SCHEMA public FROM PUBLIC");
    let url = server.url("narrow").replacen("postgres@", "reader@", 1);
    let said = refused(&place, &["restore", "file", "--data", "new", "--database-url", &url]);
    assert!(said.contains("42501") || said.contains("may not"), "{said}");
    assert!(!place.path("new").exists(), "{said}");
}

#[test]
fn a_backup_that_is_broken_is_refused_before_anything_is_made_in_the_database() {
    let place = backed_up();
    let database = super::database();
    std::fs::copy(place.path("file"), place.path("bent")).expect("copied");
    let mut bytes = std::fs::read(place.path("bent")).expect("is read");
    bytes[5000] ^= 1;
    std::fs::write(place.path("bent"), bytes).expect("written");
    let said = refused(&place, &["restore", "bent", "--data", "new", "--database-url", &database.url()]);
    assert!(said.contains("is not what was written"), "{said}");
    assert!(!place.path("new").exists());
    // The same database takes the whole one.
    let out = place.run(&["restore", "file", "--data", "new", "--database-url", &database.url()]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let again = refused(&place, &["restore", "file", "--data", "again", "--database-url", &database.url()]);
    assert!(again.contains("this backup was restored into the database already"), "{again}");
    assert!(!place.path("again").exists());
}

#[test]
fn where_a_restore_into_a_database_was_cut_off_every_command_says_so_and_nothing_else_begins() {
    let (place, database, served) = (backed_up(), super::database(), super::database());
    let (url, other) = (database.url(), served.url());
    place.ends(&["init", "--data", "theirs", "--database-url", &other], 0);
    // As it is left by who was killed while the backup was unpacked.
    std::fs::create_dir_all(place.path("new/restoring")).expect("made");
    std::fs::set_permissions(place.path("new"), std::fs::Permissions::from_mode(0o700)).expect("ours");
    let to = ["--data", "new", "--database-url", &url];
    let wanted = "a restore into new was cut off, or is under way yet: where none runs, run it again with the same settings, `countersign restore FILE`, or remove";
    let listen = ["--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0"];
    for has_tables in [false, true] {
        if has_tables {
            place.ends(&["migrate", "--data", "elsewhere", "--database-url", &url], 0);
        }
        for words in [&[&["serve"][..], &listen].concat()[..], &["backup", "copy"], &["migrate"], &["init"]] {
            let said = refused(&place, &[words, &to].concat());
            assert!(said.starts_with(wanted) && said.contains("or remove new/restoring"), "{words:?}: {said}");
        }
        let (said, _) = place.ends(&[&["doctor"][..], &to, &listen].concat(), 1);
        assert!(said.contains(wanted) && !said.contains("countersign init"), "{has_tables}: {said}");
    }
    let join = ["init", "--data", "new", "--database-url", &other, "--master-key", "theirs/master.key"];
    let said = refused(&place, &join);
    assert!(said.contains("a restore into new was cut off"), "it is no further node of another deployment: {said}");
    assert!(!place.path("new/master.key").exists());
    place.ends(&[&["restore", "file"][..], &to].concat(), 0);
    assert!(!place.path("new/restoring").exists());
}
