//! Commands and their exit codes: 0 done, 1 refused with one clear sentence, 2 wrong usage.

use std::ffi::OsStr;
use std::fs::Permissions;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use super::{Place, database, mode};

/// All of them, but for those that this machine had no time to look at.
fn held_every_claim(page: &str) {
    let unseen = page.matches("too busy to look in time").count();
    assert!(page.contains(&format!("All {} claims held", 33 - unseen)), "{page}");
}

#[test]
fn the_demo_holds_every_claim() {
    let place = Place::fresh();
    let (stdout, _) = place.ends(&["demo", "--once", "--fast"], 0);
    held_every_claim(&stdout);
    assert!(!stdout.contains('\u{1b}'), "no colour in a pipe");
    // As it is said at the beginning, and after the restart.
    let said = |name: &str| {
        let line = stdout.lines().find_map(|line| line.trim().strip_prefix(name));
        line.unwrap_or_else(|| panic!("{stdout}")).trim().to_owned()
    };
    let on = format!("now on {} (merchants) and {} (operators)", said("merchant API"), said("operator API"));
    assert!(stdout.contains(&on), "{on}: {stdout}");
}

#[test]
fn the_demo_holds_every_claim_on_postgresql_too() {
    let (place, database) = (Place::fresh(), database());
    let (stdout, _) = place.ends(&["demo", "--once", "--fast", "--database-url", &database.url()], 0);
    held_every_claim(&stdout);
}

#[test]
fn the_demo_walks_in_a_folder_that_has_folders_and_leaves_nothing_in_one_that_it_refuses() {
    let place = Place::fresh();
    std::fs::create_dir_all(place.path("data/own/deep")).expect("made");
    std::fs::set_permissions(place.data(), Permissions::from_mode(0o755)).expect("it is ours");
    let (_, stderr) = place.ends(&["demo", "--once", "--data", "data"], 1);
    assert!(stderr.contains("data holds own, which is no part of a deployment, and others may enter it"), "{stderr}");
    std::fs::set_permissions(place.data(), Permissions::from_mode(0o700)).expect("it is ours");
    let demo = ["demo", "--once", "--fast", "--data", "data"];
    let (stdout, _) = place.ends(&demo, 0);
    held_every_claim(&stdout);
    let log = place.path("data/demo.log");
    assert!(log.exists());
    std::fs::remove_file(&log).expect("removed");
    let names = || {
        let entries = std::fs::read_dir(place.data()).expect("is read");
        let mut names: Vec<_> = entries.map(|entry| entry.expect("is read").file_name()).collect();
        names.sort();
        names
    };
    let before = names();
    let (stdout, stderr) = place.ends(&demo, 1);
    assert!(stdout.is_empty() && stderr.contains("data is initialised already"), "{stdout}{stderr}");
    assert_eq!(names(), before);
}

#[test]
fn a_variable_of_ours_that_is_not_utf_8_is_refused_by_name_and_its_value_is_not_repeated() {
    let place = Place::fresh();
    place.init();
    let latin = OsStr::from_bytes(b"canary\xfc");
    for words in [&["doctor", "--data", "data"][..], &["config"], &["merchant", "list"], &["call", "GET", "/v1/time"]] {
        for name in [
            &b"COUNTERSIGN_DATA"[..],
            b"COUNTERSIGN_DATABASE_URL",
            b"COUNTERSIGN_OPERATOR_URL",
            b"COUNTERSIGN_URL",
            b"COUNTERSIGN_SECRET",
        ] {
            let out = place.command(words).env(OsStr::from_bytes(name), latin).output().expect("runs");
            let name = String::from_utf8_lossy(name);
            let wanted =
                format!("countersign: {name} in the environment is not UTF-8: set it again in UTF-8, or unset it\n");
            assert_eq!(String::from_utf8_lossy(&out.stderr), wanted, "{words:?}");
            assert_eq!((out.status.code(), out.stdout.len()), (Some(1), 0), "{words:?} {name}");
        }
    }
    let named = |name: &[u8], value: &OsStr| {
        place.command(&["config"]).env(OsStr::from_bytes(name), value).output().expect("runs")
    };
    let out = named(b"COUNTERSIGN_L\xf6g", OsStr::new("canary"));
    assert!(String::from_utf8_lossy(&out.stderr).starts_with("countersign: COUNTERSIGN_L\u{fffd}g in the environment"));
    assert_eq!(out.status.code(), Some(1));
    // What is somebody else's is theirs.
    for (name, value) in [(&b"OTHER"[..], latin), (b"OTH\xf6R", OsStr::new("x")), (b"COUNTERSIGN", latin)] {
        assert_eq!(named(name, value).status.code(), Some(0), "{name:?}");
    }
}

#[test]
fn a_line_of_a_log_is_explained_as_a_system_log_has_it_and_from_standard_input() {
    let place = Place::fresh();
    let line = r#"{"request_id":"r1","status":401,"code":"400001","error_message":"too bad"}"#;
    let log = format!("Jan 02 03:04:05 host countersign[17]: started\nJan 02 03:04:06 host countersign[17]: {line}\n");
    std::fs::write(place.path("log"), log).expect("written");
    let input = || std::fs::File::open(place.path("log")).expect("is there");
    for name in ["log", "-"] {
        let out = place.command(&["explain", "r1", "--log", name]).stdin(input()).output().expect("runs");
        let said = String::from_utf8_lossy(&out.stdout);
        assert!(
            out.status.success() && said.contains("It was refused with 400001, and told: too bad."),
            "{name}: {said}"
        );
    }
    let out = place.command(&["explain", "r2", "--log", "-"]).stdin(input()).output().expect("runs");
    let wanted = "countersign: standard input has no line of the request r2\n";
    assert_eq!((String::from_utf8_lossy(&out.stderr).as_ref(), out.status.code()), (wanted, Some(1)));
}

#[test]
fn a_body_of_more_than_16_mib_is_refused_and_never_cut() {
    let place = Place::fresh();
    std::fs::File::create(place.path("body")).and_then(|file| file.set_len((16 << 20) + 1)).expect("made");
    let verify = ["verify", "--timestamp", "1", "--nonce", "callback1", "--signature", "x", "--body"];
    for words in [&["sign", "--body"][..], &["call", "POST", "/v1/time", "--body"], &verify] {
        for (file, name) in [("body", "body"), ("-", "standard input")] {
            let mut command = place.command(&[words, &[file]].concat());
            command.env("COUNTERSIGN_CLIENT_ID", "app_1").env("COUNTERSIGN_SECRET", "sk_1");
            let out = command.stdin(std::fs::File::open(place.path("body")).expect("is there")).output().expect("runs");
            let wanted = format!("countersign: {name} is longer than 16 MiB, which no body is: give the body alone\n");
            assert_eq!(String::from_utf8_lossy(&out.stderr), wanted, "{words:?}");
            assert_eq!((out.status.code(), out.stdout.len()), (Some(1), 0), "{words:?} {file}");
        }
    }
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
fn an_empty_place_is_refused_by_name_and_nothing_is_made() {
    let place = Place::fresh();
    let at_machine: [&[&str]; 11] = [
        &["init"],
        &["serve"],
        &["doctor"],
        &["migrate"],
        &["backup", "file"],
        &["restore", "file"],
        &["audit", "verify"],
        &["audit", "heads"],
        &["audit", "export"],
        &["audit", "begin"],
        &["token", "recover"],
    ];
    let options = ["--data <DIR>", "--database-url <URL>", "--config <FILE>", "--master-key <FILE>"];
    let all = at_machine.iter().flat_map(|words| options.map(|option| (words.to_vec(), option)));
    let moving = |given: &'static str, option| (vec!["move", given, "x"], option);
    let more = [
        moving("--to", "--from <DIR>"),
        moving("--from", "--to <URL>"),
        moving("--from", "--master-key <FILE>"),
        moving("--from", "--config <FILE>"),
        (vec!["demo", "--once"], "--data <DIR>"),
        (vec!["demo", "--once"], "--database-url <URL>"),
    ];
    for (mut words, option) in all.chain(more) {
        words.extend([option.split(' ').next().expect("a name"), ""]);
        let (_, stderr) = place.ends(&words, 2);
        let said = format!("error: a value is required for '{option}' but none was supplied");
        assert!(stderr.starts_with(&said), "{words:?}: {stderr}");
    }
    for (name, said) in [("DATA", "data is empty: "), ("CONFIG", "COUNTERSIGN_CONFIG is empty: ")] {
        for words in
            at_machine.iter().filter(|words| !matches!(words, ["doctor"] | ["audit", "verify" | "heads" | "export"]))
        {
            let out = place.command(words).env(format!("COUNTERSIGN_{name}"), "").output().expect("runs");
            let stderr = String::from_utf8_lossy(&out.stderr);
            assert!(
                stderr.starts_with(&format!("countersign: {said}")) && stderr.lines().count() == 1,
                "{words:?}: {stderr}"
            );
        }
    }
    assert_eq!(std::fs::read_dir(place.path("")).expect("is read").count(), 0);
}

#[test]
fn a_place_where_nothing_can_be_made_is_named_with_its_cause_once() {
    let place = Place::fresh();
    place.init();
    for (arguments, said) in [
        (&["init", "--data", "/proc/x"][..], "countersign: /proc/x cannot be made: No such file or directory"),
        (&["backup", "/proc/x", "--data", "data"], "countersign: /proc/x cannot be made: No such file or directory"),
    ] {
        let (_, stderr) = place.ends(arguments, 1);
        assert!(stderr.starts_with(said) && stderr.matches("No such file").count() == 1, "{stderr}");
    }
}

#[test]
fn init_closes_a_folder_that_others_could_enter() {
    let place = Place::fresh();
    std::fs::create_dir(place.data()).expect("made");
    std::fs::set_permissions(place.data(), Permissions::from_mode(0o755)).expect("opened");
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
    let cases: [(&[&str], &str); 7] = [
        (&["serve", "--data", "data", "--listen", "0.0.0.0:0", "--operator-listen", open], "TLS"),
        (&["serve", "--data", "data", "--listen", open, "--operator-listen", "0.0.0.0:0"], "TLS"),
        (&["serve", "--data", "data", "--tls-cert", "none.pem", "--tls-key", "none.pem", "--listen", open], "none.pem"),
        (&["serve", "--data", "nowhere"], "countersign init"),
        (&["serve", "--data", "data", "--database-url", "postgres://x"], "--database-url: database_url is not usable"),
        (&["config", "--database-url", "postgres://u@h/d?sslmode=fnord"], "sslmode=disable encrypts nothing"),
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
    std::fs::set_permissions(&key, Permissions::from_mode(0o644)).expect("changed");
    let serve = ["serve", "--data", "data", "--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0"];
    let (_, stderr) = place.ends(&serve, 1);
    assert!(stderr.contains("chmod 600"), "{stderr}");
    assert!(place.run(&["doctor", "--data", "data"]).status.code() == Some(1));
    std::fs::set_permissions(&key, Permissions::from_mode(0o600)).expect("changed");
    std::fs::write(&key, "00".repeat(32)).expect("written");
    let (_, stderr) = place.ends(&serve, 1);
    assert!(stderr.contains("not the master key"), "{stderr}");
}

#[test]
fn a_secret_that_is_no_regular_file_is_refused_by_what_it_is() {
    let place = Place::fresh();
    place.init();
    let made = Command::new("mkfifo").args(["-m", "600"]).arg(place.path("pipe")).status().expect("mkfifo runs");
    assert!(made.success());
    std::fs::create_dir(place.path("folder")).expect("made");
    std::os::unix::fs::symlink("data/master.key", place.path("link.key")).expect("made");
    let settings =
        |name: &str| format!("callback_proxy = \"http://h:1\"\ncallback_proxy_credentials_file = \"{name}\"\n");
    for (name, is) in [("folder", "a folder"), ("pipe", "a pipe"), ("/dev/null", "a device")] {
        let (said, _) = place.ends(&["doctor", "--data", "data", "--master-key", name], 1);
        assert!(said.contains(&format!("the master key file {name} is {is}: name a regular file")), "{said}");
        std::fs::write(place.path("c.toml"), settings(name)).expect("written");
        let (said, _) = place.ends(&["doctor", "--data", "data", "--config", "c.toml"], 1);
        let wanted = format!("the file of callback_proxy_credentials {name} is {is}: name a regular file");
        assert!(said.contains(&wanted), "{said}");
    }
    place.ends(&["doctor", "--data", "data", "--master-key", "link.key"], 0);
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
    for arguments in
        [&["frobnicate"][..], &["serve", "--frobnicate"], &[], &["event", "emit"], &["serve", "--listen", "x"]]
    {
        assert_eq!(place.run(arguments).status.code(), Some(2), "{arguments:?}");
    }
    for arguments in [
        &["sign", "--timestamp", "123"][..],
        &["sign", "--timestamp", "0767225600000"],
        &["sign", "--nonce", "a\nX-Other: 1"],
        &["sign", "--prefix", "X:"],
        &["verify", "--timestamp", "x", "--nonce", "callback1", "--signature", "x", "--body", "/dev/null"],
        &["call", "GET", "v1/time"],
        &["call", "G T", "/v1/time"],
        &["call", "POST", "/v1/pay/order", "--merchant-id", "a\nb"],
        &["call", "GET", "/v1/pay/order", "--on-behalf-of", ""],
        &["call", "GET", "/v1/time", "--url", "http://127.0.0.1:1/?x=1"],
        &["certify", "x"],
        &["listen", "--forward", "ftp://127.0.0.1/"],
        &["application", "update", "app_1"],
        &["merchant", "list", "--operator-url", "http://me:canary@127.0.0.1:1"],
        &["merchant", "list", "--operator-url", "nonsense"],
        &["call", "GET", "/v1/time", "--url", "http://me:canary@127.0.0.1:1"],
        &["listen", "--forward", "http://me:canary@127.0.0.1:1/"],
        &["listen", "--forward", "http://127.0.0.1:1/", "--url", "http://me:canary@127.0.0.1:1"],
        &["certify", "http://me:canary@127.0.0.1:1/"],
        &["certify", "http://127.0.0.1:1/", "--biz-type", ""],
        &["certify", "http://127.0.0.1:1/", "--biz-type", "CALLBACK_TEST"],
        &["certify", "http://127.0.0.1:1/", "--biz-status", "a\tb"],
        &["certify", "http://127.0.0.1:1/", "--biz-id", ""],
        &["certify", "http://127.0.0.1:1/", "--data", "/dev/null"],
    ] {
        let mut command = place.command(arguments);
        let set =
            [("COUNTERSIGN_CLIENT_ID", "app_1"), ("COUNTERSIGN_SECRET", "s"), ("COUNTERSIGN_OPERATOR_TOKEN", "t")];
        let out = command.envs(set).output().expect("the binary runs");
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!((out.status.code(), said.lines().count()), (Some(2), 1), "{arguments:?}: {said}");
        assert!(!said.contains("canary") && out.stdout.is_empty(), "{arguments:?}: {said}");
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

/// A call of the operator API by the binary itself, with a token.
fn called_with(place: &Place, token: &str, url: &str, arguments: &[&str]) -> (i32, String) {
    let mut command = place.command(arguments);
    let out = command.args(["--json", "--operator-url", url]).env("COUNTERSIGN_OPERATOR_TOKEN", token).output();
    let out = out.expect("the binary runs");
    let said = [out.stdout, out.stderr].concat();
    (out.status.code().unwrap_or(-1), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn a_lost_token_is_replaced_at_the_machine_by_whoever_has_folder_and_master_key() {
    let place = Place::fresh();
    let (_, stderr) = place.ends(&["token", "recover", "--data", "data"], 1);
    let said = if place.has_database() { "holds no deployment" } else { "no data folder" };
    assert!(stderr.contains(said) && stderr.trim().lines().count() == 1, "{stderr}");
    assert!(!place.data().exists(), "a refusal leaves nothing behind");
    place.init();
    let key = place.path("data/master.key");
    let right = std::fs::read_to_string(&key).expect("is there");
    std::fs::write(&key, "11".repeat(32)).expect("written");
    let (_, stderr) = place.ends(&["token", "recover", "--data", "data"], 1);
    assert!(stderr.contains("not the master key"), "{stderr}");
    std::fs::write(&key, right).expect("written");

    let (said, _) = place.ends(&["token", "recover", "--data", "data", "--life-days", "7"], 0);
    assert!(said.contains("cso_") && said.contains("role: security"), "{said}");
    let (said, _) = place.ends(&["token", "recover", "--data", "data", "--json"], 0);
    let made: serde_json::Value = serde_json::from_str(&said).expect("one JSON object");
    let (id, token) = (made["token_id"].as_str().expect("an id"), made["operator_token"].as_str().expect("a token"));
    let serving = place.serve(&[]);
    let url = format!("http://{}", serving.operator_listen);
    let (code, shown) = called_with(&place, token, &url, &["token", "show", id]);
    assert_eq!(code, 0, "{shown}");
    assert!(shown.contains(r#""role":"security""#) && shown.contains("recovered at the machine"), "{shown}");
    let (_, lines) = called_with(&place, token, &url, &["audit", "list"]);
    assert!(lines.contains("token.recover") && lines.contains(id), "{lines}");
    let (_, listed) = called_with(&place, token, &url, &["token", "list", "--limit", "1"]);
    assert!(listed.contains(r#""next":"tok_"#), "{listed}");
}

#[test]
fn while_a_server_runs_a_token_is_recovered_beside_it_only_where_many_may_write() {
    let place = Place::fresh();
    place.init();
    let _serving = place.serve(&[]);
    if place.has_database() {
        place.ends(&["token", "recover", "--data", "data"], 0);
    } else {
        let (stdout, stderr) = place.ends(&["token", "recover", "--data", "data"], 1);
        assert!(stderr.contains("another countersign process") && stderr.contains("or stop it"), "{stderr}");
        assert_eq!(stdout, "");
    }
}

#[test]
fn what_cannot_be_printed_is_a_failure_and_a_reader_that_goes_away_is_none() {
    let place = Place::fresh();
    place.init();
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").expect("every Linux has it");
    for arguments in [
        &["audit", "export", "--data", "data"][..],
        &["audit", "heads", "--data", "data"],
        &["token", "recover", "--data", "data"],
    ] {
        let out = place.command(arguments).stdout(full()).output().expect("the binary runs");
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{arguments:?}: {stderr}");
        assert!(stderr.contains("could not be written") && stderr.trim().lines().count() == 1, "{stderr}");
    }
    let mut child = place.command(&["audit", "export", "--data", "data"]);
    let mut child = child.stdout(std::process::Stdio::piped()).spawn().expect("the binary runs");
    drop(child.stdout.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}

#[test]
fn heads_that_were_not_kept_are_not_compared_in_silence() {
    let place = Place::fresh();
    place.init();
    let (heads, _) = place.ends(&["audit", "heads", "--data", "data"], 0);
    std::fs::write(place.path("heads"), &heads).expect("written");
    let (said, _) = place.ends(&["audit", "verify", "--data", "data", "--heads", "heads"], 0);
    assert!(said.contains("compared with 1 head kept in heads"), "{said}");
    std::fs::write(place.path("twice"), heads.repeat(2)).expect("written");
    let (said, _) = place.ends(&["audit", "verify", "--data", "data", "--heads", "twice"], 0);
    assert!(said.contains("compared with 1 head kept in twice"), "{said}");
    let (said, _) = place.ends(&["audit", "verify", "--data", "data"], 0);
    assert!(said.contains("compared with no heads"), "{said}");
    std::fs::write(place.path("heads"), "\n").expect("written");
    let (stdout, stderr) = place.ends(&["audit", "verify", "--data", "data", "--heads", "heads"], 1);
    assert!(stdout.is_empty() && stderr.contains("heads is empty"), "{stdout}{stderr}");
    let (_, stderr) = place.ends(&["audit", "begin", "--data", "data"], 1);
    assert!(stderr.contains("nothing to begin"), "{stderr}");
}

#[test]
fn a_server_is_given_its_heads_page_by_page_and_asked_until_the_end() {
    let place = Place::fresh();
    let token = place.init()["operator_token"].as_str().expect("a token").to_owned();
    let serving = place.serve(&[]);
    let url = format!("http://{}", serving.operator_listen);
    let (code, heads) = called_with(&place, &token, &url, &["audit", "heads"]);
    assert_eq!(code, 0, "{heads}");
    // The same head over and over is one: what counts is that they do not go in one call.
    std::fs::write(place.path("heads"), heads.repeat(1200)).expect("written");
    let (code, said) = called_with(&place, &token, &url, &["audit", "verify", "--heads", "heads"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("\"holds\":true"), "{said}");
    let other = heads.replace("\"no\":1", "\"no\":9");
    std::fs::write(place.path("heads"), heads.repeat(1100) + &other).expect("written");
    let (code, said) = called_with(&place, &token, &url, &["audit", "verify", "--heads", "heads"]);
    assert!(code == 1 && said.contains("is missing"), "{code} {said}");
}

#[test]
fn bash_completes_commands_their_flags_and_their_values() {
    let place = Place::fresh();
    let (script, _) = place.ends(&["completions", "bash"], 0);
    std::fs::write(place.path("completions"), script).expect("written");
    let completed = |words: &str| {
        let ask = format!(
            "source completions && COMP_WORDS=({words}) && COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)) && \
             _countersign countersign \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD - 1]}}\" && printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let out = Command::new("bash").args(["-c", &ask]).current_dir(place.path("")).output().expect("bash runs");
        assert!(out.status.success() && out.stderr.is_empty(), "{words}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).expect("text").lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(completed("countersign ev"), ["event", "evidence"]);
    assert_eq!(completed("countersign event redeliver-many --stat"), ["--state"]);
    assert_eq!(completed("countersign event redeliver-many --state d"), ["delivered", "dead"]);
    let (_, stderr) = place.ends(&["completions", "csh"], 2);
    assert!(stderr.contains("[possible values: bash, elvish, fish, powershell, zsh]"), "{stderr}");
}
