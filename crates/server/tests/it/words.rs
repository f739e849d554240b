//! What is said of a folder, a database or a file that is not what was meant: one sentence that names it and what to change, and no password.

use std::os::unix::fs::PermissionsExt as _;

use countersign_store::testing::{Server, ServerOptions};

use super::Place;

/// What a command is refused with: one sentence, exit code 1.
fn refused(place: &Place, words: &[&str]) -> String {
    let (stdout, stderr) = place.ends(words, 1);
    assert_eq!((stdout.as_str(), stderr.lines().count()), ("", 1), "{words:?}: {stderr}");
    assert!(!stderr.contains("letmein") && !stderr.contains("os error"), "{words:?}: {stderr}");
    stderr.strip_prefix("countersign: ").expect("who says so").trim_end().to_owned()
}

/// The address of a database with a password in it, and the same as it may be shown.
fn address(server: &Server, database: &str) -> (String, String) {
    let with = |password: &str| server.url(database).replacen('@', &format!(":{password}@"), 1);
    (with("letmein"), with("PASSWORD"))
}

#[test]
fn a_database_without_a_deployment_is_named_by_every_command_that_would_read_it() {
    let server = Server::start(ServerOptions::default());
    server.ask("postgres", "CREATE DATABASE empty");
    let (place, (url, shown)) = (Place::fresh(), address(&server, "empty"));
    for words in [
        &["audit", "verify"][..],
        &["audit", "heads"],
        &["audit", "export"],
        &["audit", "begin"],
        &["token", "recover"],
        &["backup", "file"],
    ] {
        let said = refused(&place, &[words, &["--database-url", &url]].concat());
        let wanted = format!(
            "the database {shown} holds no deployment of Countersign: name another one with --database-url, or make a deployment in it with \
             `countersign init --data countersign-data --database-url {shown}`"
        );
        assert_eq!(said, wanted, "{words:?}");
    }
    assert_eq!(std::fs::read_dir(place.path("")).expect("is read").count(), 0, "nothing is left behind");
    // The schema is there, and no deployment.
    place.ends(&["migrate", "--database-url", &url], 0);
    let said = refused(&place, &["backup", "file", "--database-url", &url]);
    assert!(
        said.starts_with(&format!("the database {shown} holds no deployment of Countersign: name another")),
        "{said}"
    );
}

#[test]
fn a_data_folder_that_is_not_there_is_told_beside_the_database_that_was_named() {
    let server = Server::start(ServerOptions::default());
    let (place, (url, shown)) = (Place::fresh(), address(&server, "postgres"));
    place.ends(&["init", "--data", "data", "--database-url", &url], 0);
    for words in [&["audit", "verify"][..], &["audit", "begin"], &["token", "recover"]] {
        let said = refused(&place, &[words, &["--data", "none", "--database-url", &url]].concat());
        assert!(
            said.starts_with(&format!(
                "there is no data folder none with the master key of the deployment in {shown}: "
            )),
            "{said}"
        );
        assert!(said.ends_with("name the folder with --data, or the key with --master-key"), "{said}");
    }
    place.ends(&["init", "--data", "other"], 0);
    let said = refused(
        &place,
        &["audit", "verify", "--data", "none", "--master-key", "other/master.key", "--database-url", &url],
    );
    assert!(said.starts_with(&format!("this is not the master key of the deployment in {shown} (key id ")), "{said}");
    let init = format!("make it with `countersign init --data none --database-url {shown}`");
    let said = refused(&place, &["serve", "--data", "none", "--database-url", &url]);
    assert_eq!(said, format!("there is no data folder none: name the right one with --data, or {init}"));
    let (said, _) = place.ends(&["doctor", "--data", "none", "--database-url", &url], 1);
    assert!(said.contains(&init) && !said.contains("letmein"), "{said}");
}

#[test]
fn a_database_with_somebody_elses_tables_of_our_names_is_refused_and_left_as_it_is() {
    let server = Server::start(ServerOptions::default());
    let place = Place::fresh();
    place.command(&["init", "--data", "own"]).env("COUNTERSIGN_DATABASE_URL", "").output().expect("runs");
    place.command(&["backup", "file", "--data", "own"]).env("COUNTERSIGN_DATABASE_URL", "").output().expect("runs");
    server.ask("postgres", "CREATE DATABASE taken");
    for name in ["merchant", "event", "customer"] {
        server.make_table("taken", name);
    }
    let (url, _) = address(&server, "taken");
    let names = || server.ask("taken", "TABLE pg_catalog.pg_tables");
    let before = names();
    let wanted = "the schema public of the database holds event and merchant of somebody else: name a database, or in its address another schema, without them";
    for words in [
        &["init", "--data", "new", "--database-url", &url][..],
        &["migrate", "--database-url", &url],
        &["move", "--from", "own", "--to", &url],
        &["restore", "file", "--data", "restored", "--database-url", &url],
        &["audit", "verify", "--database-url", &url],
    ] {
        let said = refused(&place, words);
        assert!(said.ends_with(wanted), "{words:?}: {said}");
        assert_eq!(names(), before, "{words:?}");
    }
    let (said, _) = place.ends(&["doctor", "--data", "own", "--database-url", &url], 1);
    assert!(said.contains(wanted), "{said}");
    server.ask("taken", "DROP TABLE merchant; DROP TABLE event");
    place.ends(&["init", "--data", "new", "--database-url", &url], 0);
}

#[test]
fn an_address_that_the_server_refuses_says_what_to_change_in_it() {
    let server = Server::start(ServerOptions { tcp: true, ..ServerOptions::default() });
    let place = Place::fresh();
    place.command(&["init", "--data", "own"]).env("COUNTERSIGN_DATABASE_URL", "").output().expect("runs");
    server.demand_password("another");
    let (url, _) = address(&server, "postgres");
    let none = server.url("none").replacen('@', ":another@", 1);
    let password = "the PostgreSQL server refuses the address: password authentication failed for user \"postgres\" (28P01): \
                    put the right user and password into it";
    let database = "the PostgreSQL server refuses the address: database \"none\" does not exist (3D000): \
                    create it there, or put the name of another one into it";
    for (url, wanted) in [(&url, password), (&none, database)] {
        for words in [
            &["move", "--from", "own", "--to", url][..],
            &["init", "--data", "new", "--database-url", url],
            &["migrate", "--database-url", url],
            &["audit", "verify", "--database-url", url],
            &["serve", "--data", "own", "--database-url", url],
            &["backup", "file", "--database-url", url],
        ] {
            let said = refused(&place, words);
            let how = if words[0] == "move" { "not moved" } else { "the PostgreSQL database cannot be used" };
            assert_eq!(said, format!("{how}: {wanted}"), "{words:?}");
        }
        let (said, _) = place.ends(&["doctor", "--data", "own", "--database-url", url], 1);
        assert!(said.contains(&format!("fail  database     {wanted}\n")) && !said.contains("letmein"), "{said}");
    }
}

#[test]
fn what_is_no_backup_is_told_from_a_file_that_is_not_there() {
    let place = Place::fresh();
    std::fs::create_dir(place.path("folder")).expect("made");
    std::fs::write(place.path("note"), "not a backup").expect("written");
    // Nobody writes into it, so whoever opened it would wait for ever.
    let made = std::process::Command::new("mkfifo").arg(place.path("pipe")).status().expect("runs");
    assert!(made.success());
    for (file, wanted) in [
        ("pipe", "pipe is no regular file, and a backup is read from its end: write it to a file first"),
        ("folder", "folder is a folder: name the file that `countersign backup` made"),
        (
            "note",
            "note is no backup of Countersign, or its end is missing or damaged: name the file that `countersign backup` made",
        ),
        ("none", "none is not there: name the file that `countersign backup` made"),
    ] {
        assert_eq!(refused(&place, &["restore", file, "--data", "new"]), wanted);
        assert!(!place.path("new").exists());
    }
}

#[test]
fn a_backup_with_something_behind_its_end_is_told_so_in_plain_words() {
    let place = Place::fresh();
    place.init();
    place.ends(&["backup", "file", "--data", "data"], 0);
    let whole = std::fs::read(place.path("file")).expect("is there");
    let written = |end: &str| {
        std::fs::write(place.path("file"), [&whole[..], end.as_bytes()].concat()).expect("written");
        refused(&place, &["restore", "file", "--data", "new"])
    };
    let said = written("junk\nmore");
    assert_eq!(
        said,
        "file has 9 bytes behind the end of the backup: cut them off, or bring the file as `countersign backup` made it"
    );
    let mut cut = whole.clone();
    cut.truncate(whole.len() - 9);
    std::fs::write(place.path("file"), cut).expect("written");
    let said = refused(&place, &["restore", "file", "--data", "new"]);
    assert_eq!(
        said,
        "file is no backup of Countersign, or its end is missing or damaged: name the file that `countersign backup` made"
    );
}

#[test]
fn a_file_that_holds_no_heads_is_told_with_the_line_that_is_none() {
    let place = Place::fresh();
    place.init();
    let (heads, _) = place.ends(&["audit", "heads", "--data", "data"], 0);
    for (text, line) in [(&b"some notes\n"[..], 1), (b"\xff\xfe", 1), (&[heads.as_bytes(), b"\n{}\n"].concat(), 3)] {
        std::fs::write(place.path("kept"), text).expect("written");
        let said = refused(&place, &["audit", "verify", "--data", "data", "--heads", "kept"]);
        let wanted = format!(
            "line {line} of kept is no head of the audit log: name the file that `countersign audit heads` printed"
        );
        assert_eq!(said, wanted);
    }
}

#[test]
fn a_file_without_an_end_is_refused() {
    let place = Place::fresh();
    place.init();
    let url = "https://127.0.0.1:1";
    let key = "00".repeat(32);
    let long = "cannot be read: it is longer than 16 MiB";
    for (words, environment, wanted) in [
        (&["config", "--config", "/dev/zero"][..], None, format!("the settings file /dev/zero {long}")),
        (
            &["audit", "heads", "--operator-url", url],
            Some(("SSL_CERT_FILE", "/dev/zero")),
            format!("SSL_CERT_FILE names \"/dev/zero\", which {long}"),
        ),
        (
            &["audit", "verify", "--data", "data", "--heads", "/dev/zero"],
            None,
            "line 1 of /dev/zero is no head of the audit log: name the file that `countersign audit heads` printed"
                .to_owned(),
        ),
        (&["evidence", "verify", "/dev/zero", "--key", &key], None, "/dev/zero is not good: ".to_owned()),
    ] {
        let mut command = place.command(words);
        let out = command.env("COUNTERSIGN_OPERATOR_TOKEN", "a_token").envs(environment).output().expect("runs");
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(said.starts_with(&format!("countersign: {wanted}")), "{words:?}: {said}");
        assert_eq!((said.lines().count(), out.status.code()), (1, Some(1)), "{words:?}: {said}");
    }
    let remote = "postgres://u@127.0.0.1:1/d?sslmode=require";
    for (setting, url) in [("callback_ca_file", None), ("database_ca_file", Some(remote))] {
        let mut command = place.command(&["doctor", "--data", "data"]);
        let variable = format!("COUNTERSIGN_{}", setting.to_uppercase());
        let url = url.map(|url| ("COUNTERSIGN_DATABASE_URL", url));
        let out = command.env(variable, "/dev/zero").envs(url).output().expect("runs");
        let said = String::from_utf8_lossy(&out.stdout);
        assert!(said.contains(&format!("{setting} /dev/zero {long}")) && !out.status.success(), "{said}");
    }
}

#[test]
fn one_line_one_chain_and_one_head_are_told_as_one() {
    let place = Place::fresh();
    place.init();
    let (heads, _) = place.ends(&["audit", "heads", "--data", "data"], 0);
    std::fs::write(place.path("kept"), heads).expect("written");
    for (file, name) in [("kept", "kept"), ("-", "standard input")] {
        let mut command = place.command(&["audit", "verify", "--data", "data", "--heads", file]);
        let out = command.stdin(std::fs::File::open(place.path("kept")).expect("is there")).output().expect("runs");
        let wanted = format!("The audit log holds: 1 line in 1 chain.\nIt was compared with 1 head kept in {name}.\n");
        assert_eq!((String::from_utf8_lossy(&out.stdout).as_ref(), out.status.code()), (wanted.as_str(), Some(0)));
    }
    place.ends(&["token", "recover", "--data", "data"], 0);
    let (said, _) = place.ends(&["audit", "verify", "--data", "data"], 0);
    assert!(said.starts_with("The audit log holds: 2 lines in 1 chain.\n"), "{said}");
}

#[test]
fn a_call_to_the_address_of_operators_asks_whether_it_is_the_merchant_api_and_hints_at_nothing() {
    let desk = super::desk::Desk::open();
    let url = format!("http://{}", desk.serving.operator_listen);
    let mut command = desk.place.command(&["call", "GET", "/v1/time", "--url", &url]);
    let (_, said, code) = super::desk::told(&command.output().expect("runs"));
    assert_eq!((said.as_str(), code), ("countersign: the answer is no envelope: is this the merchant API?\n", Some(1)));
}

#[test]
fn doctor_names_a_wrong_master_key_once() {
    let (place, other) = (Place::fresh(), Place::fresh());
    place.init();
    other.init();
    std::fs::copy(other.path("data/master.key"), place.path("data/master.key")).expect("copied");
    let (said, _) =
        place.ends(&["doctor", "--data", "data", "--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0"], 1);
    assert!(said.contains("fail  deployment   this is not the master key of the deployment"), "{said}");
    assert!(!said.contains("the store cannot answer") && said.matches("fail  ").count() == 1, "{said}");
}

#[test]
fn an_address_that_is_no_postgresql_address_is_refused_by_its_setting_and_where_it_was_set() {
    let place = Place::fresh();
    for url in ["my-db-host", "host=h user=u password=letmein", "mysql://u:letmein@h/x", "postgres:/u:letmein@h/x"] {
        let why = "database_url is no address of a PostgreSQL database: postgres://USER@HOST/DATABASE is wanted, or nothing for SQLite in the data folder";
        let flag = format!("--database-url: {why}");
        for words in [&["config"][..], &["serve", "--data", "data"], &["init", "--data", "data"]] {
            assert_eq!(refused(&place, &[words, &["--database-url", url]].concat()), flag, "{url}");
        }
        let (said, _) = place.ends(&["doctor", "--data", "data", "--database-url", url], 1);
        assert!(said.starts_with(&format!("fail  settings     {flag}\n")), "{said}");
        let file = place.path("c.toml");
        std::fs::write(&file, format!("database_url = \"{url}\"\n")).expect("written");
        // Others may not read a password.
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("ours");
        let mut command = place.command(&["config", "--config", "c.toml"]);
        let (_, said, _) = super::desk::told(&command.env_remove("COUNTERSIGN_DATABASE_URL").output().expect("runs"));
        assert_eq!(said, format!("countersign: c.toml: {why}\n"));
        let mut command = place.command(&["config"]);
        let (_, said, _) = super::desk::told(&command.env("COUNTERSIGN_DATABASE_URL", url).output().expect("runs"));
        assert_eq!(said, format!("countersign: COUNTERSIGN_DATABASE_URL: {why}\n"));
        assert!(!place.data().exists());
    }
}

#[test]
fn a_damaged_database_is_named_by_every_command_that_reads_it() {
    let place = Place::fresh();
    if place.has_database() {
        return;
    }
    place.init();
    let (file, server) = (place.path("data/countersign.db"), Server::start(ServerOptions::default()));
    let whole = std::fs::read(&file).expect("is there");
    let mut spoiled = whole.clone();
    spoiled[8192..].fill(0xa5);
    let url = server.url("postgres");
    for (bytes, cause) in [
        (b"no database".repeat(999), "file is not a database"),
        (whole[..4096].to_vec(), "database disk image is malformed"),
        (spoiled, "database disk image is malformed"),
    ] {
        for words in [
            &["audit", "verify", "--data", "data"][..],
            &["audit", "begin", "--data", "data"],
            &["token", "recover", "--data", "data"],
            &["migrate", "--data", "data"],
            &["backup", "file", "--data", "data"],
            &["move", "--from", "data", "--to", &url],
        ] {
            std::fs::write(&file, &bytes).expect("written");
            let said = refused(&place, words);
            assert!(said.contains("data/countersign.db cannot be "), "{words:?}: {said}");
            assert!(said.ends_with(&format!(": the file is damaged, or its disk fails ({cause}): look at the disk first; where that is well, restore a backup")), "{words:?}: {said}");
        }
    }
    // Damage that shows only when the log is read.
    let mut spoiled = whole;
    let at = spoiled.windows(15).position(|part| part == b"deployment.init").expect("its first line") & !4095;
    spoiled[at..at + 4096].fill(0xa5);
    std::fs::write(&file, spoiled).expect("written");
    for word in ["verify", "export"] {
        let said = refused(&place, &["audit", word, "--data", "data"]);
        let wanted = "the database data/countersign.db cannot be used: the file is damaged, or its disk fails (database disk image is malformed): \
                      look at the disk first; where that is well, restore a backup";
        assert_eq!(said, wanted, "{word}");
    }
}

#[test]
fn a_previous_master_key_that_is_not_the_deployments_either_is_told_by_its_id() {
    let [place, other, third] = std::array::from_fn(|_| Place::fresh());
    for place in [&place, &other, &third] {
        place.init();
    }
    let [new, old] = [&other, &third].map(|place| place.path("data/master.key").display().to_string());
    // The addresses are taken before the keys are looked at: those of the default may be another program's.
    let free = "listen = \"127.0.0.1:0\"\noperator_listen = \"127.0.0.1:0\"\n";
    let settings = format!("{free}master_key_file = \"{new}\"\nmaster_key_previous_file = \"{old}\"\n");
    std::fs::write(place.path("keys.toml"), settings).expect("is written");
    let said = refused(&place, &["serve", "--data", "data", "--config", "keys.toml"]);
    assert!(said.contains(" of master_key_previous, wanted "), "{said}");
    assert!(said.ends_with("name that of the wanted id as master_key_previous beside it"), "{said}");
}
