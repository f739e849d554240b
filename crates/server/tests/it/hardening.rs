//! What the process does for its own safety: no picture of its memory, files enough, and no start where that would be dangerous.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::{Place, Serving, mode};

fn limit(serving: &Serving, name: &str) -> String {
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", serving.pid())).expect("it runs");
    let line = limits.lines().find(|line| line.starts_with(name)).expect("a limit").to_owned();
    line[name.len()..].split_whitespace().take(2).collect::<Vec<_>>().join(" ")
}

/// Whether other programs may look into the process: its files in /proc are root's if they may not.
fn is_dumpable(serving: &Serving) -> bool {
    std::fs::read_to_string(format!("/proc/{}/smaps", serving.pid())).is_ok()
        && Path::new(&format!("/proc/{}/mem", serving.pid())).metadata().is_ok_and(|mem| {
            use std::os::unix::fs::MetadataExt as _;
            mem.uid() == std::fs::metadata("/proc/self").expect("own").uid()
        })
}

/// Then every file is root's, and the owner tells nothing.
fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").expect("own").uid() == 0
}

#[test]
fn a_crash_leaves_no_picture_of_the_memory_unless_that_is_wanted() {
    let place = Place::fresh();
    place.init();
    let serving = place.serve(&[]);
    assert_eq!(limit(&serving, "Max core file size"), "0 0");
    assert!(is_root() || !is_dumpable(&serving), "the limit alone does not hold where dumps are piped");
    serving.signal("-ABRT");
    assert!(serving.ended_by(6));
    let left: Vec<_> =
        std::fs::read_dir(place.path(".")).expect("a folder").map(|e| e.expect("an entry").file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with("core")), "{left:?}");
    std::fs::write(place.path("s.toml"), "core_dumps = true\n").expect("written");
    let wanted = place.serve(&["--config", "s.toml"]);
    assert_ne!(limit(&wanted, "Max core file size").split(' ').next_back(), Some("0"));
    assert!(is_dumpable(&wanted));
}

#[test]
fn as_many_files_may_be_open_as_the_system_allows() {
    let place = Place::fresh();
    place.init();
    let limit = limit(&place.serve(&[]), "Max open files");
    let (soft, hard) = limit.split_once(' ').expect("two limits");
    assert_eq!(soft, hard);
}

#[test]
fn a_folder_that_everybody_may_enter_is_refused_and_one_that_a_group_may_enter_is_told() {
    let place = Place::fresh();
    place.init();
    let open = |bits| std::fs::set_permissions(place.data(), std::fs::Permissions::from_mode(bits)).expect("opened");
    let serve = ["serve", "--data", "data", "--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0"];
    for bits in [0o755, 0o701, 0o704] {
        open(bits);
        let (_, stderr) = place.ends(&serve, 1);
        assert!(stderr.contains("chmod 700") && stderr.trim().lines().count() == 1, "{stderr}");
        let (stdout, _) = place.ends(&["doctor", "--data", "data"], 1);
        assert!(stdout.contains("fail  data folder"), "{stdout}");
    }
    open(0o750);
    assert_eq!(place.serve(&[]).terminate(), Some(0));
    let (stdout, _) = place.ends(&["doctor", "--data", "data"], 0);
    assert!(stdout.contains("warn  data folder"), "{stdout}");
    assert_eq!(mode(&place.data()), 0o750);
}

#[test]
fn settings_that_would_undo_the_limits_or_give_a_password_away_are_refused() {
    let place = Place::fresh();
    place.init();
    let file = place.path("s.toml");
    for (text, bits, word) in [
        ("trusted_proxies = [\"0.0.0.0/0\"]\n", 0o600, "trusted_proxies"),
        ("trusted_proxies = [\"::/0\"]\n", 0o600, "trusted_proxies"),
        ("database_url = \"postgres://u:geheim@localhost/d\"\n", 0o644, "chmod 600"),
        ("database_url = \"postgres://localhost/d?password=geheim\"\n", 0o644, "chmod 600"),
    ] {
        std::fs::write(&file, text).expect("written");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(bits)).expect("set");
        for command in ["serve", "doctor"] {
            let (stdout, stderr) = place.ends(&[command, "--data", "data", "--config", "s.toml"], 1);
            let said = stdout + &stderr;
            assert!(said.contains(word) && !said.contains("geheim"), "{said}");
        }
    }
}

#[test]
fn doctor_lists_what_is_unsafe() {
    let place = Place::fresh();
    place.init();
    let unsafe_ones = "core_dumps = true\nallow_private_callbacks = true\nrate_limit_per_s = 0\nfailed_auth_per_s = 0\n\
        timestamp_tolerance_ms = 600000\nbehind_proxy = true\noperator_listen = \"0.0.0.0:0\"\nlisten = \"127.0.0.1:0\"\n\
        [limits]\nconnections_per_address = 0\nhead_timeout = \"10m\"\nbody_timeout = \"5m\"\nconnections = 100000000\n\
        tls_handshake_timeout = \"365d\"\n";
    std::fs::write(place.path("s.toml"), unsafe_ones).expect("written");
    let (stdout, _) = place.ends(&["doctor", "--data", "data", "--config", "s.toml"], 0);
    for name in [
        "core_dumps",
        "allow_private_callbacks",
        "rate_limit_per_s",
        "failed_auth_per_s",
        "timestamp_tolerance_ms",
        "operator_listen",
        "trusted_proxies",
        "connections_per_address",
        "head_timeout",
        "body_timeout",
        "tls_handshake_timeout",
        "LimitNOFILE",
    ] {
        assert!(stdout.lines().any(|line| line.starts_with("warn") && line.contains(name)), "{name}: {stdout}");
    }
    let (stdout, _) = place.ends(&["doctor", "--data", "data"], 0);
    assert!(stdout.contains("ok    safety"), "{stdout}");
}

/// The unit that is shipped.
fn unit() -> (std::path::PathBuf, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/countersign.service");
    let text = std::fs::read_to_string(&path).expect("it is shipped");
    (path, text)
}

#[test]
fn the_unit_of_systemd_allows_as_many_files_as_the_settings_call_for() {
    let (_, text) = unit();
    let files =
        text.lines().find_map(|line| line.strip_prefix("LimitNOFILE=")).and_then(|n| n.parse().ok()).expect("a limit");
    let config = countersign::config::Config::default();
    let needed = countersign::process::allow_files(config.connections()).needed();
    assert!(needed <= files, "{needed} of {files}");
}

#[test]
fn the_unit_of_systemd_is_scored_as_safe_where_that_can_be_asked() {
    let (path, _) = unit();
    let asked = std::process::Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--no-pager"])
        .arg(&path)
        .output();
    // Not every machine has it.
    let Ok(out) = asked else { return };
    let said = String::from_utf8_lossy(&out.stdout);
    let Some(score) =
        said.lines().find_map(|line| line.split("Overall exposure level for countersign.service: ").nth(1))
    else {
        return;
    };
    let score: f64 = score.split(' ').next().and_then(|number| number.parse().ok()).expect("a score");
    assert!(score < 2.0, "{said}");
}

#[test]
fn the_steps_for_systemd_make_the_deployment_with_the_settings_that_the_unit_serves_it_with() {
    let (_, text) = unit();
    let given =
        text.lines().find_map(|line| line.strip_prefix("ExecStart=")?.split_once(" serve ")).expect("it serves").1;
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/OPERATING.md");
    let page = std::fs::read_to_string(&page).expect("it is there");
    let steps =
        page.split("\n## Under systemd\n").nth(1).and_then(|rest| rest.split("\n## ").next()).expect("a section");
    assert!(steps.contains(&format!("countersign init {given}\n")), "{given}");
    for also in text.lines().filter_map(|line| line.strip_prefix("#   EnvironmentFile=")) {
        assert!(steps.contains(&format!("-p EnvironmentFile=-{also} ")), "{also}");
    }
}

#[test]
fn the_unit_of_systemd_lets_the_server_do_what_it_has_to() {
    let (_, text) = unit();
    let has = |line: &str| text.lines().any(|is| is == line);
    // The name of the boot is under /proc/sys; without it a kill counts as a crash of the machine.
    assert!(!text.lines().any(|line| line.starts_with("ProcSubset=")), "ProcSubset hides /proc/sys");
    // The folder stays root's, and the user is another.
    assert!(has("ConfigurationDirectoryMode=0755"));
    // A database that comes back later finds the unit still trying.
    assert!(has("StartLimitIntervalSec=0") && has("Restart=on-failure"));
    // A user namespace has no capabilities outside of itself.
    let ports = text.lines().find(|line| line.contains("CAP_NET_BIND_SERVICE")).expect("a word about ports");
    assert!(!has("PrivateUsers=yes") || ports.contains("PrivateUsers=no"), "{ports}");
}

#[test]
fn a_settings_file_that_cannot_be_read_is_told_by_its_place_and_never_by_its_text() {
    let place = Place::fresh();
    place.init();
    for text in [
        "master_key = 0123abcdcanary456789\n".to_owned(),
        "# a comment\n\ndatabase_url = \"postgres://u:canary@db/x\n".to_owned(),
        "database_url = \"postgres://u:ca\"canary@db/x\"\n".to_owned(),
        "database_url = 'postgres://u:canary@db/x\nlisten = \"x\"\n".to_owned(),
        "database_url = \"postgres://u:\\canary@db/x\"\n".to_owned(),
        "master_key = \"a\"\nmaster_key = \"canary\"\n".to_owned(),
        "[canary\n".to_owned(),
        format!("master_key = {}\n", "0123456789abcdefcanary"),
    ] {
        std::fs::write(place.path("s.toml"), &text).expect("written");
        for command in ["serve", "doctor"] {
            let (stdout, stderr) = place.ends(&[command, "--data", "data", "--config", "s.toml"], 1);
            let said = stdout + &stderr;
            assert!(
                said.contains("s.toml: line ") && !said.contains("canary") && !said.contains("0123"),
                "{text}: {said}"
            );
            assert!(stderr.trim().lines().count() == 1, "{stderr}");
        }
    }
}

#[test]
fn every_command_that_has_keys_in_its_memory_leaves_no_picture_of_it() {
    let place = Place::fresh();
    place.init();
    let key = std::fs::read_to_string(place.data().join("master.key")).expect("a key");
    // What prints the key looks at the limits of whoever asks for it.
    let script = format!("grep core /proc/$PPID/limits > {}; echo {}", place.path("limits").display(), key.trim());
    let settings = format!("master_key_command = [\"/bin/sh\", \"-c\", \"{script}\"]\n");
    std::fs::write(place.path("s.toml"), settings).expect("written");
    place.ends(&["doctor", "--data", "data", "--config", "s.toml"], 0);
    let limits = std::fs::read_to_string(place.path("limits")).expect("it was asked");
    let figures: Vec<_> = limits.trim_start_matches("Max core file size").split_whitespace().take(2).collect();
    assert_eq!(figures, ["0", "0"], "{limits}");
}
