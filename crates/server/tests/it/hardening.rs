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

#[test]
fn a_crash_leaves_no_picture_of_the_memory_unless_that_is_wanted() {
    let place = Place::fresh();
    place.init();
    let serving = place.serve(&[]);
    assert_eq!(limit(&serving, "Max core file size"), "0 0");
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
        [limits]\nconnections_per_address = 0\nhead_timeout = \"10m\"\nbody_timeout = \"5m\"\nconnections = 100000000\n";
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
    let needed = countersign::process::allow_files(config.connections_at_most()).needed;
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
