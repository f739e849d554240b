//! The defaults document every setting, and each layer lies over the one before.

use std::time::Duration;

use super::*;

fn environment_of(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn load(file: &str, pairs: &[(&str, &str)], flags: &[Flag]) -> Result<Config, String> {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("countersign.toml");
    std::fs::write(&path, file).expect("a file can be written there");
    let loaded = Config::load(Some(&path), &environment_of(pairs), flags);
    loaded.and_then(|config| config.check_listeners().map(|()| config)).map_err(|refused| refused.to_string())
}

#[test]
fn the_defaults_are_those_of_the_contract() {
    let config = Config::default();
    assert_eq!(config.check(), Ok(()));
    assert_eq!(config.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.operator_listen.to_string(), "127.0.0.1:8081");
    assert_eq!(config.header_prefixes, ["X-Service-"]);
    assert_eq!(config.timestamp_tolerance_ms, 30_000);
    assert_eq!((config.rate_limit_per_s, config.failed_auth_per_s, config.failed_auth_burst), (1_000, 100, 1_000));
    assert_eq!(config.limits.body_bytes, 64 * 1024);
    assert_eq!(config.callback_schedule, Schedule::default());
    assert_eq!(config.markup_unit, MarkupUnit::Percent);
    assert_eq!(config.order_hold.0.as_secs(), 600);
    assert_eq!(config.callback_ports, [443]);
}

#[test]
fn the_defaults_name_every_setting_and_explain_it() {
    // No field has a default of its own, so a setting that is missing in the file cannot be read.
    for (name, value) in defaults() {
        let mut without = defaults();
        without.remove(&name);
        assert!(Value::Table(without).try_into::<Config>().is_err(), "{name} is not a required field");
        if let Value::Table(section) = value {
            for key in section.keys() {
                let mut without = defaults();
                without.get_mut(&name).and_then(Value::as_table_mut).expect("it is a section").remove(key);
                assert!(Value::Table(without).try_into::<Config>().is_err(), "{name}.{key} is not a required field");
            }
        }
    }
    let lines: Vec<&str> = DEFAULTS.lines().collect();
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| line.contains(" = ") && !line.starts_with('#')) {
        let above = lines[..at].iter().rev().take_while(|line| !line.is_empty());
        let explained = above.clone().any(|line| line.starts_with('#'));
        assert!(explained, "no comment explains: {line}");
    }
}

#[test]
fn a_file_lies_over_the_defaults_the_environment_over_the_file_and_flags_over_all() {
    let file = "rate_limit_per_s = 5\ntimestamp_tolerance_ms = 10000\n[limits]\nconnections = 7\n";
    let environment =
        [("COUNTERSIGN_TIMESTAMP_TOLERANCE_MS", "20000"), ("COUNTERSIGN_LISTEN", "127.0.0.1:1"), ("PATH", "/bin")];
    let flag = Flag { flag: "--listen", setting: "listen", text: "127.0.0.1:0".to_owned() };
    let config = load(file, &environment, &[flag]).expect("these settings are good");
    assert_eq!(config.rate_limit_per_s, 5);
    assert_eq!(config.limits.connections, 7);
    assert_eq!(config.timestamp_tolerance_ms, 20_000);
    assert_eq!(config.listen.to_string(), "127.0.0.1:0");
    assert_eq!(config.limits.headers, 100);
}

#[test]
fn lists_in_the_environment_are_written_with_commas() {
    let pairs = [
        ("COUNTERSIGN_HEADER_PREFIXES", "X-Service-,X-Other-"),
        ("COUNTERSIGN_CALLBACK_PORTS", "443, 8443"),
        ("COUNTERSIGN_CALLBACK_SCHEDULE", "100ms,1s"),
        ("COUNTERSIGN_TRUSTED_PROXIES", "10.0.0.0/8"),
        ("COUNTERSIGN_LIMITS__BODY_TIMEOUT", "3s"),
    ];
    let config = load("", &pairs, &[]).expect("these settings are good");
    assert_eq!(config.header_prefixes, ["X-Service-", "X-Other-"]);
    assert_eq!(config.callback_ports, [443, 8443]);
    assert_eq!(config.callback_schedule.delays_ms(), [100, 1_000]);
    assert!(config.trusted_networks()[0].contains("10.9.9.9".parse().expect("an address")));
    assert_eq!(config.limits.body_timeout.0.as_secs(), 3);
}

#[test]
fn a_list_that_the_file_empties_is_written_in_the_environment_as_what_it_is_as_shipped() {
    for file in ["callback_ports = []", "callback_ports = [8080]", ""] {
        let config = load(file, &[("COUNTERSIGN_CALLBACK_PORTS", "8443")], &[]).expect("these settings are good");
        assert_eq!(config.callback_ports, [8443], "{file}");
        let refused = load(file, &[("COUNTERSIGN_CALLBACK_PORTS", "https")], &[]).expect_err("it is no number");
        assert_eq!(refused, "COUNTERSIGN_CALLBACK_PORTS: \"https\" is not a list", "{file}");
    }
}

#[test]
fn what_is_no_setting_is_refused_by_name() {
    let said = |file: &str, pairs: &[(&str, &str)]| load(file, pairs, &[]).expect_err("it is refused");
    let none = |name: &str| format!(": there is no setting {name}; `countersign config --shipped` prints all of them");
    assert!(said("rate_limit = 5", &[]).ends_with(&none("rate_limit")));
    assert!(said("[limits]\nconections = 5", &[]).ends_with(&none("limits.conections")));
    let of_environment = |name: &str| said("", &[(name, "5")]);
    assert_eq!(of_environment("COUNTERSIGN_RATE_LIMIT"), format!("COUNTERSIGN_RATE_LIMIT{}", none("rate_limit")));
    assert_eq!(of_environment("COUNTERSIGN_LIMITS__X"), format!("COUNTERSIGN_LIMITS__X{}", none("limits.x")));
    assert!(load("", &[("COUNTERSIGN_OPERATOR_TOKEN", "x"), ("COUNTERSIGN_SECRET", "y")], &[]).is_ok());
}

#[test]
fn variables_that_kubernetes_gives_for_a_service_whose_name_begins_with_ours_are_no_settings() {
    let given = [
        ("SERVICE_HOST", "10.0.0.1"),
        ("SERVICE_PORT", "8080"),
        ("SERVICE_PORT_HTTPS", "8443"),
        ("PORT", "tcp://10.0.0.1:8080"),
        ("PORT_8080_TCP", "tcp://10.0.0.1:8080"),
        ("PORT_8080_TCP_PROTO", "tcp"),
        ("PORT_8080_TCP_PORT", "8080"),
        ("PORT_8080_TCP_ADDR", "10.0.0.1"),
        ("PORT_53_UDP_ADDR", "10.0.0.1"),
        ("PORT_3868_SCTP", "sctp://10.0.0.1:3868"),
    ];
    for service in ["", "OPERATOR_", "SERVICE_", "PORT_", "MERCHANT_API_", "LIMITS_", "OPERATOR_LISTEN_"] {
        let names = given.map(|(name, value)| (format!("COUNTERSIGN_{service}{name}"), value));
        let pairs: Vec<(&str, &str)> = names.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        let taken = load("", &pairs, &[]).expect("they are left alone");
        assert_eq!(Config { named_file: None, ..taken }, Config::default());
    }
    for (name, value) in [
        ("PORT", "8080"),
        ("PORTS", "tcp://x"),
        ("SERVICE", "x"),
        ("OPERATOR_PORT", "8081"),
        ("OPERATOR_PORTS", "tcp://10.0.0.1:8081"),
        ("OPERATOR_PORT_TCP", "tcp://10.0.0.1:8081"),
        ("OPERATOR_PORT_8081_TCP_ADRR", "10.0.0.1"),
        ("OPERATOR_PORT_8081_TLS", "tcp://10.0.0.1:8081"),
        ("OPERATOR_SERVICE_PORT_", "8081"),
        ("OPERATORSERVICE_HOST", "10.0.0.1"),
        ("OPERATOR_SERVICE_HOSTS", "10.0.0.1"),
    ] {
        let name = format!("COUNTERSIGN_{name}");
        assert!(load("", &[(&name, value)], &[]).expect_err("it is refused").contains("there is no setting"), "{name}");
    }
    // None of them is one that would be left alone.
    for name in layers::names() {
        let variable = format!("COUNTERSIGN_{}", name.replace('.', "__").to_uppercase());
        let told = Layers::laid(None, &environment_of(&[(&variable, "tcp://1")]), &[]);
        let set_by = told.map(|layers| layers.settings().into_iter().find(|setting| setting.name == name));
        assert!(set_by.is_err() || set_by.is_ok_and(|one| one.is_some_and(|one| one.set_by.is_some())), "{name}");
    }
}

fn each_is_refused(table: &[(&str, &str)]) {
    for (file, wanted) in table {
        let said = load(file, &[], &[]).expect_err(file);
        assert!(said.contains(wanted) && !said.contains("canary"), "{file}: {said}");
    }
}

#[test]
fn what_has_the_wrong_form_is_refused_with_its_name() {
    each_is_refused(&[
        ("rate_limit_per_s = \"5\"", "rate_limit_per_s must be a whole number, not a text"),
        ("rate_limit_per_s = -5", "the setting rate_limit_per_s is not good"),
        ("listen = \"here\"", "the setting listen is not good"),
        ("order_hold = \"5 minutes\"", "the setting order_hold is not good: \"5 minutes\" is no period"),
        ("callback_schedule = [\"5\"]", "\"5\" is no delay"),
        (
            "callback_schedule = [\"5s\", 5]",
            "the setting callback_schedule is not good: \"5\" is no delay: write a whole number and one of ms, s, m, h, d, such as \"30s\"",
        ),
        ("callback_schedule = [[\"5s\"]]", "is no delay: write a whole number"),
        (
            "header_prefixes = [5]",
            "the setting header_prefixes is not good: each of its entries must be a text, not a whole number",
        ),
        ("callback_ports = [\"canary\"]", "each of its entries must be a whole number, not a text"),
        ("trusted_proxies = [true]", "each of its entries must be a text, not true or false"),
        ("callback_source_address = [[1]]", "each of its entries must be a text, not a list"),
        ("master_key_command = [1.5]", "each of its entries must be a text, not a number with a point"),
        ("callback_schedule = []", "the setting callback_schedule is not good"),
        ("trusted_proxies = [\"10.0.0.0/33\"]", "is no address and no network"),
        ("trusted_proxies = [\"0.0.0.0/1\", \"128.0.0.0/1\"]", "networks of /8 at the widest (IPv6: /16)"),
        ("trusted_proxies = [\"10.0.0.7\", \"8000::/1\"]", "\"8000::/1\" is wider than any fleet of proxies"),
        ("trusted_proxies = [\"::ffff:0.0.0.0/96\"]", "is wider than any fleet of proxies"),
        ("trusted_proxies = [\"::ffff:0.0.0.0/90\"]", "is no address and no network"),
        (
            "trusted_proxies = [\"10.1.2.3/16\"]",
            "give \"10.1.0.0/16\" for all of the network, or \"10.1.2.3\" for that one",
        ),
        (
            "trusted_proxies = [\"fd00::1/64\"]",
            "give \"fd00::/64\" for all of the network, or \"fd00::1\" for that one",
        ),
        (
            "trusted_proxies = [\"::ffff:10.1.2.3/120\"]",
            "give \"10.1.2.0/24\" for all of the network, or \"10.1.2.3\" for that",
        ),
        ("callback_concurrency_slow = 0", "callback_concurrency_slow must be from 1 to"),
        ("callback_concurrency = 100000001", "callback_concurrency must be from 1 to"),
        ("checkout_url = \"\"", "checkout_url must be an address"),
        ("checkout_url = \"javascript:alert(1)\"", "checkout_url must be an address"),
        ("checkout_url = \"javascript://x/%0aalert(1)\"", "checkout_url must be an address"),
        ("checkout_url = \"https://me:canary@pay.example\"", "checkout_url must be an address"),
        ("checkout_url = \"pay.example\"", "checkout_url must be an address"),
        ("checkout_url = \"https://pay.example/\"", "checkout_url must be an address"),
        ("checkout_url = \"https://pay.example/a b\"", "checkout_url must be an address"),
        ("checkout_url = \"https://pay.example/?x\"", "checkout_url must be an address"),
        ("checkout_url = \"https://pay.example/#x\"", "checkout_url must be an address"),
        ("idempotency_life = \"0s\"", "idempotency_life must be at least 1s"),
        ("idempotency_life = \"999ms\"", "idempotency_life must be at least 1s"),
    ]);
}

#[test]
fn what_is_out_of_bounds_is_refused_with_its_name() {
    each_is_refused(&[
        ("rule_timezone = \"Mars/Olympus\"", "is no IANA time zone"),
        ("rule_timezone = \"Etc/Unknown\"", "is no IANA time zone"),
        ("markup_unit = \"permille\"", "the setting markup_unit is not good"),
        ("header_prefixes = []", "header_prefixes"),
        ("timestamp_tolerance_ms = 0", "timestamp_tolerance_ms must be from 1"),
        ("master_key = \"00\"", "does not belong into a settings file"),
        ("listen = \"127.0.0.1:1\"\nlisten = \"127.0.0.1:2\"", "duplicate key"),
        (
            "listen = \"127.0.0.1:1\"\noperator_listen = \"127.0.0.1:1\"",
            "listen and operator_listen are both 127.0.0.1:1",
        ),
        ("health_listen = \"127.0.0.1:8080\"", "listen and health_listen are both 127.0.0.1:8080: give each its own"),
        (
            "health_listen = \"0.0.0.0:8081\"",
            "operator_listen (127.0.0.1:8081) and health_listen (0.0.0.0:8081) have one port",
        ),
        ("health_listen = \"here\"", "the setting health_listen is not good: an IP address and its port are wanted"),
        ("log_level = \"warning\"", "log_level: \"warning\" is none of \"error\", \"warn\""),
        ("log_level = \"\"", "log_level: \"\" is none of"),
        ("log_level = \"info,countersign=loud\"", "log_level"),
        ("log_level = \"info,countersign\"", "log_level"),
        ("log_level = \"=debug\"", "log_level"),
        ("behind_proxy = true\nlisten = \"0.0.0.0:8081\"", "have one port, and one of them is on all addresses"),
        ("worker_threads = 1025", "worker_threads must be at most 1024"),
        ("[limits]\nheaders = 15", "limits.headers must be at least 16"),
        ("[limits]\nheaders = 201", "limits.headers must be at most 200"),
        ("[limits]\nhead_bytes = 65537", "limits.head_bytes must be at most 65536"),
        ("[limits]\nrequest_line_bytes = 1023", "limits.request_line_bytes must be at least 1024"),
        ("[limits]\nrequest_line_bytes = 32769", "at most limits.head_bytes"),
        ("[limits]\nbody_bytes = 0", "limits.body_bytes must be from 1 to 409600"),
        ("[limits]\nbody_bytes = 409601", "limits.body_bytes must be from 1 to 409600: evidence of an order"),
        ("[limits]\nstop_delay = \"11m\"", "limits.stop_delay must be at most 10m"),
        ("[tls]\ncert = \"c.pem\"", "tls.cert is set without tls.key"),
        ("callback_proxy = \"proxy.example\"", "callback_proxy: it must be http://HOST:PORT"),
        ("callback_proxy = \"http://me:canary@h:1\"", "callback_proxy: it must hold no user name or password"),
        (
            "callback_proxy_credentials = \"me:canary\"",
            "callback_proxy_credentials does not belong into a settings file",
        ),
        ("callback_proxy_credentials_file = \"p\"", "are set without callback_proxy"),
        (
            "callback_source_address = [\"here\"]",
            "the setting callback_source_address is not good: an IP address is wanted, such as \"198.51.100.7\"",
        ),
        ("callback_source_address = [\"127.0.0.1\", \"127.0.0.2\"]", "callback_source_address: give at most one"),
    ]);
}

#[test]
fn levels_of_the_log_are_words_or_lists_of_them() {
    for good in ["error", "WARN", "info", "trace", "off", "info,countersign::dispatch=debug", "warn,countersign=Debug"]
    {
        let config = load(&format!("log_level = \"{good}\""), &[], &[]).expect(good);
        assert_eq!(config.log_level, good);
    }
    assert!(
        load("listen = \"127.0.0.1:0\"\noperator_listen = \"127.0.0.1:0\"", &[], &[]).is_ok(),
        "each picks a free one"
    );
    let families = "behind_proxy = true\nlisten = \"0.0.0.0:8080\"\noperator_listen = \"[::1]:8080\"";
    assert!(load(families, &[], &[]).is_ok(), "all addresses of one family are none of the other");
}

#[test]
fn credentials_of_the_proxy_are_good_or_refused_and_not_shown() {
    let load = |text| {
        let pairs = [("COUNTERSIGN_CALLBACK_PROXY", "http://h:1"), ("COUNTERSIGN_CALLBACK_PROXY_CREDENTIALS", text)];
        load("", &pairs, &[])
    };
    let config = load("me:canary").expect("these settings are good");
    assert!(!format!("{config:?}").contains("canary"));
    let said = load("canary").expect_err("no colon");
    assert!(said.starts_with("callback_proxy_credentials: ") && !said.contains("canary"), "{said}");
}

#[test]
fn plain_http_beyond_this_machine_must_be_said_to_be_on_purpose() {
    for name in ["listen", "operator_listen"] {
        let file = format!("{name} = \"0.0.0.0:8090\"");
        assert!(load(&file, &[], &[]).expect_err("it is refused").contains("--behind-proxy"));
        assert!(load(&file, &[("COUNTERSIGN_BEHIND_PROXY", "true")], &[]).is_ok());
        assert!(load(&format!("{file}\n[tls]\ncert = \"c\"\nkey = \"k\""), &[], &[]).is_ok());
    }
    assert!(load("listen = \"[::1]:8080\"", &[], &[]).is_ok());
}

#[test]
fn the_master_key_is_not_shown() {
    let config = load("", &[("COUNTERSIGN_MASTER_KEY", "f00dfeed")], &[]).expect("these settings are good");
    assert_eq!(config.master_key.get().map(KeyText::expose), Some("f00dfeed"));
    assert!(!format!("{config:?}").contains("f00dfeed"));
}

#[test]
fn a_file_that_cannot_be_read_is_refused_by_its_place_and_without_its_words() {
    for (file, at) in [
        ("listen = \"127.0.0.1:1\"\ndatabase_url = \"postgres://u:canary\"canary@h/d\"\n", "line 2, column "),
        ("master_key = 0011canary\n", "line 1, column "),
        ("master_key = \"canary\n", "line 1, column "),
        ("canary\n", "line 1, column "),
    ] {
        let said = load(file, &[], &[]).expect_err("it is refused");
        assert!(said.contains(at), "{said}");
        assert!(!said.contains("canary") && said.trim().lines().count() == 1, "{said}");
    }
}

#[test]
fn a_number_that_is_too_small_or_too_large_is_refused_with_its_setting_and_its_bounds() {
    for (file, wanted) in [
        (
            "rate_limit_per_s = -1",
            "the setting rate_limit_per_s is not good: -1 is too small or too large: a whole number from 0 to 4294967295 is wanted",
        ),
        (
            "callback_ports = [70000]",
            "the setting callback_ports is not good: 70000 is too small or too large: a whole number from 0 to 65535 is wanted",
        ),
        (
            "[limits]\nconnections = -4",
            "the setting limits.connections is not good: -4 is too small or too large: a whole number from 0 to 9223372036854775807 is wanted",
        ),
        (
            "listen = \"x\"",
            "the setting listen is not good: an IP address and its port are wanted, such as \"127.0.0.1:8080\"",
        ),
    ] {
        let said = load(file, &[], &[]).expect_err(file);
        let origin = said.strip_prefix(wanted).unwrap_or_else(|| panic!("{said}"));
        assert!(origin.starts_with(" (set by /") && origin.ends_with(".toml)"), "{said}");
    }
    let said = load("rate_limit_per_s = 99999999999999999999", &[], &[]).expect_err("is refused");
    assert!(said.contains("99999999999999999999 is further from 0 than any number that TOML has"), "{said}");
}

#[test]
fn a_refusal_says_what_set_the_settings_that_it_is_about_and_no_others() {
    let variable = "COUNTERSIGN_CALLBACK_CONCURRENCY_SLOW";
    for (file, environment, ends) in [
        (
            "listen = \"127.0.0.1:1\"",
            vec![("COUNTERSIGN_LISTEN", "x")],
            "\"127.0.0.1:8080\" (set by COUNTERSIGN_LISTEN)",
        ),
        ("", vec![(variable, "0")], " (set by COUNTERSIGN_CALLBACK_CONCURRENCY_SLOW)"),
        // That the sentence has a word that is a setting, too, does not make it about that one.
        ("data = \"a\"", vec![("COUNTERSIGN_LOG_LEVEL", "the data")], " (set by COUNTERSIGN_LOG_LEVEL)"),
        // Nor does a value that is called like one.
        (
            "idempotency_life = \"1h\"",
            vec![("COUNTERSIGN_RULE_TIMEZONE", "idempotency_life")],
            " (set by COUNTERSIGN_RULE_TIMEZONE)",
        ),
    ] {
        let said = load(file, &environment, &[]).expect_err("is refused");
        assert!(said.ends_with(ends), "{said}");
    }
    let environment = environment_of(&[("COUNTERSIGN_LISTEN", "0.0.0.0:80")]);
    let layers = Layers::laid(None, &environment, &[]).expect("they are settings");
    let said = Config::of_server(layers, &environment).expect_err("nothing is encrypted").to_string();
    assert!(said.ends_with(" (set by COUNTERSIGN_LISTEN)"), "{said}");
}

#[test]
fn an_event_is_kept_as_long_as_the_key_of_the_call_that_emitted_it() {
    for (settings, hours) in [
        ("retention.events = \"1h\"", Some(24)),
        ("idempotency_life = \"30m\"\nretention.events = \"1h\"", Some(1)),
        ("retention.events = \"off\"", None),
    ] {
        let config = load(settings, &[], &[]).expect(settings);
        assert_eq!(config.lives().events, hours.map(|hours| Duration::from_secs(3_600 * hours)), "{settings}");
    }
}

#[test]
fn an_event_that_is_held_is_kept_no_shorter_than_one_that_is_over() {
    for (settings, days) in [
        ("", Some(400)),
        ("retention.held_events = \"500d\"", Some(500)),
        ("retention.held_events = \"30d\"", Some(400)),
        ("retention.events = \"20d\"\nretention.held_events = \"30d\"", Some(30)),
        ("retention.held_events = \"off\"", None),
        ("retention.events = \"off\"\nretention.held_events = \"30d\"", None),
    ] {
        let config = load(settings, &[], &[]).expect("is taken");
        assert_eq!(config.lives().held_events, days.map(|days| Duration::from_secs(86_400 * days)), "{settings}");
    }
}
