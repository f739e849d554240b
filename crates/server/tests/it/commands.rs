//! Commands and their exit codes: 0 done, 1 refused with one clear sentence, 2 wrong usage.

use std::os::unix::fs::PermissionsExt as _;

use super::{Place, database, mode};

#[test]
fn the_demo_holds_every_claim() {
    let place = Place::fresh();
    let (stdout, _) = place.ends(&["demo", "--once", "--fast"], 0);
    assert!(stdout.contains("All 28 claims held"), "{stdout}");
    assert!(!stdout.contains('\u{1b}'), "no colour in a pipe");
}

#[test]
fn the_demo_holds_every_claim_on_postgresql_too() {
    let (place, database) = (Place::fresh(), database());
    let (stdout, _) = place.ends(&["demo", "--once", "--fast", "--database-url", &database.url()], 0);
    assert!(stdout.contains("All 28 claims held"), "{stdout}");
}

#[test]
fn init_shows_the_first_token_once_and_is_refused_the_second_time() {
    let place = Place::fresh();
    let said = place.init();
    assert!(said["operator_token"].as_str().is_some_and(|t| t.len() > 40), "{said}");
    assert_eq!((mode(&place.data()), mode(&place.path("data/master.key"))), (0o700, 0o600));
    let (stdout, stderr) = place.ends(&["init", "--data", "data"], 1);
    assert_eq!(stdout, "");
    assert!(stderr.contains("initialised already"), "{stderr}");
    assert_eq!(stderr.trim().lines().count(), 1, "one sentence: {stderr}");
}

#[test]
fn init_closes_a_folder_that_others_could_enter() {
    let place = Place::fresh();
    std::fs::create_dir(place.data()).expect("made");
    std::fs::set_permissions(place.data(), std::fs::Permissions::from_mode(0o755)).expect("opened");
    place.init();
    assert_eq!(mode(&place.data()), 0o700);
}

#[test]
fn serve_says_where_it_listens_and_ends_with_0_after_sigterm() {
    let place = Place::fresh();
    place.init();
    let serving = place.serve(&[]);
    assert!(!serving.listen.ends_with(":0") && !serving.operator_listen.ends_with(":0"));
    let (_, stderr) =
        place.ends(&["serve", "--data", "data", "--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0"], 1);
    assert!(stderr.contains("another countersign process"), "{stderr}");
    assert_eq!(serving.terminate(), Some(0));
}

#[test]
fn a_sigterm_right_after_the_first_line_lets_the_server_end_in_order() {
    let place = Place::fresh();
    place.init();
    for _ in 0..10 {
        assert_eq!(place.serve(&[]).terminate(), Some(0));
    }
}

#[test]
fn what_is_dangerous_is_refused_with_one_sentence() {
    let place = Place::fresh();
    place.init();
    let open = "127.0.0.1:0";
    let cases: [(&[&str], &str); 6] = [
        (&["serve", "--data", "data", "--listen", "0.0.0.0:0", "--operator-listen", open], "TLS"),
        (&["serve", "--data", "data", "--listen", open, "--operator-listen", "0.0.0.0:0"], "TLS"),
        (&["serve", "--data", "data", "--tls-cert", "none.pem", "--tls-key", "none.pem", "--listen", open], "none.pem"),
        (&["serve", "--data", "nowhere"], "countersign init"),
        (&["serve", "--data", "data", "--database-url", "postgres://x"], "PostgreSQL"),
        (&["serve", "--data", "data", "--config", "absent.toml"], "absent.toml"),
    ];
    for (arguments, word) in cases {
        let (stdout, stderr) = place.ends(arguments, 1);
        assert_eq!(stdout, "", "{arguments:?}");
        assert!(stderr.contains(word), "{arguments:?}: {stderr}");
        assert_eq!(stderr.trim().lines().count(), 1, "{arguments:?}: {stderr}");
    }
}

#[test]
fn a_master_key_that_others_may_read_or_that_is_another_one_is_refused() {
    let place = Place::fresh();
    place.init();
    let key = place.path("data/master.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).expect("changed");
    let serve = ["serve", "--data", "data", "--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0"];
    let (_, stderr) = place.ends(&serve, 1);
    assert!(stderr.contains("chmod 600"), "{stderr}");
    assert!(place.run(&["doctor", "--data", "data"]).status.code() == Some(1));
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).expect("changed");
    std::fs::write(&key, "00".repeat(32)).expect("written");
    let (_, stderr) = place.ends(&serve, 1);
    assert!(stderr.contains("not the master key"), "{stderr}");
}

#[test]
fn settings_that_nobody_knows_are_refused_by_name() {
    let place = Place::fresh();
    place.init();
    std::fs::write(place.path("c.toml"), "rate_limit_per_second = 5\n").expect("written");
    let (_, stderr) = place.ends(&["serve", "--data", "data", "--config", "c.toml"], 1);
    assert!(stderr.contains("rate_limit_per_second"), "{stderr}");
    let out = place.command(&["serve", "--data", "data"]).env("COUNTERSIGN_LISTNE", "x").output().expect("runs");
    assert_eq!(out.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&out.stderr).to_lowercase().contains("listne"));
}

#[test]
fn wrong_usage_is_2() {
    let place = Place::fresh();
    for arguments in [&["frobnicate"][..], &["serve", "--frobnicate"], &[], &["event", "emit"]] {
        assert_eq!(place.run(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn doctor_is_content_with_a_fresh_folder() {
    let place = Place::fresh();
    place.init();
    std::fs::write(place.path("c.toml"), "listen = \"127.0.0.1:0\"\noperator_listen = \"127.0.0.1:0\"\n")
        .expect("written");
    place.ends(&["doctor", "--data", "data", "--config", "c.toml"], 0);
    place.ends(&["migrate", "--data", "data"], 0);
}
