//! Commands that listen nowhere, run as an operator runs them beside a unit of systemd: without its environment, and with a backup that their
//! own user may not open.

use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::process::Stdio;

use super::{Place, database, refused};

/// For every address, with a certificate that only the unit's environment names.
const OF_A_UNIT: &str = "listen = \"0.0.0.0:0\"\noperator_listen = \"127.0.0.1:0\"\n";

#[test]
fn only_what_listens_asks_for_the_certificate_that_the_units_environment_names() {
    let place = Place::fresh();
    std::fs::write(place.path("c.toml"), OF_A_UNIT).expect("written");
    place.ends(&["init", "--data", "data", "--config", "c.toml"], 0);
    for words in [
        &["migrate", "--data", "data"][..],
        &["backup", "file", "--data", "data"],
        &["token", "recover", "--data", "data"],
        &["audit", "verify", "--data", "data"],
        &["audit", "heads", "--data", "data"],
        &["audit", "export", "--data", "data"],
    ] {
        place.ends(&[words, &["--config", "c.toml"]].concat(), 0);
    }
    // Begun by `init` already: what is refused is that.
    let said = refused(&place, &["audit", "begin", "--data", "data", "--config", "c.toml"]);
    assert!(!said.contains("plain HTTP") && said.contains("chain"), "{said}");

    let own = |words: &[&str]| {
        let out = place.command(words).env("COUNTERSIGN_DATABASE_URL", "").output().expect("runs");
        assert!(out.status.success(), "{words:?}: {}", String::from_utf8_lossy(&out.stderr));
    };
    own(&["restore", "file", "--data", "restored", "--config", "c.toml"]);
    std::fs::copy(place.path("data/master.key"), place.path("restored/master.key")).expect("copied");
    own(&["move", "--from", "restored", "--to", &database().url(), "--config", "c.toml"]);

    for words in [&["serve", "--data", "data"][..], &["config"]] {
        let said = refused(&place, &[words, &["--config", "c.toml"]].concat());
        assert!(said.contains("would speak plain HTTP: give --tls-cert and --tls-key"), "{words:?}: {said}");
    }
    let (found, _) = place.ends(&["doctor", "--data", "data", "--config", "c.toml"], 1);
    assert!(found.contains("fail  settings") && found.contains("would speak plain HTTP"), "{found}");
}

#[test]
fn a_backup_is_restored_from_standard_input_which_is_not_opened_anew() {
    let place = Place::fresh();
    place.init();
    place.ends(&["backup", "file", "--data", "data"], 0);
    let restore = |words: &[&str], from: Stdio| {
        let mut command = place.command(words);
        command.env("COUNTERSIGN_DATABASE_URL", "").stdin(from);
        let out = command.output().expect("runs");
        (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    for (name, folder) in [("-", "one"), ("/dev/stdin", "two"), ("/proc/self/fd/0", "three")] {
        let mut file = File::open(place.path("file")).expect("is there");
        // Wherever somebody has read to.
        file.seek(SeekFrom::Start(7)).expect("a file");
        let given = file.try_clone().expect("the same descriptor");
        assert_eq!(restore(&["restore", name, "--data", folder], given.into()), (Some(0), String::new()), "{name}");
        assert_ne!(
            file.stream_position().expect("a file"),
            7,
            "{name} was opened anew, which its user may not be allowed to do"
        );
        std::fs::copy(place.path("data/master.key"), place.path(folder).join("master.key")).expect("copied");
        let out = place.command(&["audit", "verify", "--data", folder]).env("COUNTERSIGN_DATABASE_URL", "").output();
        assert!(out.expect("runs").status.success(), "{name}");
    }

    let wanted = "countersign: standard input is no regular file, and a backup is read from its end: give it the file itself, as in \
                  `restore - < FILE`\n";
    for name in ["-", "/dev/stdin"] {
        let (from, mut to) = std::io::pipe().expect("a pipe");
        to.write_all(b"some").expect("there is room");
        drop(to);
        for from in [Stdio::from(from), Stdio::null()] {
            assert_eq!(restore(&["restore", name, "--data", "none"], from), (Some(1), wanted.to_owned()), "{name}");
        }
    }
    std::fs::write(place.path("other"), "no backup").expect("written");
    let other = File::open(place.path("other")).expect("is there");
    let (code, said) = restore(&["restore", "-", "--data", "none"], other.into());
    assert!(code == Some(1) && said.starts_with("countersign: standard input is no backup of Countersign"), "{said}");
    assert!(!place.path("none").exists());
}
