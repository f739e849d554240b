//! The rules of the house that no compiler keeps. Each rule is a function from the project's files to complaints;
//! each test shows that the project has none, and that a planted violation has one.

mod actions;
mod log_lines;
mod metrics;
mod reasons;
mod source;

use source::{Function, PROJECT, Source, line_of, positions};

const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;
const HANDLER_LINES_MAX: usize = 25;

/// Demands that the project keeps `rule`, and that the rule sees the violation in each of `planted` (path, text).
fn keeps(rule: impl Fn(&[Source]) -> Vec<String>, planted: &[(&str, &str)]) {
    for (path, text) in planted {
        let mut with_violation = PROJECT.clone();
        with_violation.retain(|source| source.path != *path);
        with_violation.push(Source::new(path, text));
        let seen = rule(&with_violation);
        assert!(seen.iter().any(|line| line.starts_with(path)), "not seen in {path}:\n{text}\nseen: {seen:?}");
    }
    let complaints = rule(&PROJECT);
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

/// A complaint for each place where one of `words` stands in `text` of a source that `concerns` picks.
fn none_of(
    sources: &[Source],
    concerns: impl Fn(&Source) -> bool,
    text: impl Fn(&Source) -> &str,
    words: &[&str],
    reason: &str,
) -> Vec<String> {
    let mut complaints = Vec::new();
    for source in sources.iter().filter(|source| concerns(source)) {
        for word in words {
            for at in positions(text(source), word) {
                complaints.push(format!("{}:{} has {word:?}: {reason}", source.path, line_of(text(source), at)));
            }
        }
    }
    complaints
}

fn code(source: &Source) -> &str {
    &source.code
}

fn is_in(source: &Source, folders: &[&str]) -> bool {
    source.is_rust() && folders.iter().any(|folder| source.path.starts_with(folder))
}

const PURE: [&str; 2] = ["crates/protocol/src/", "crates/domain/src/"];
const SERVER: &str = "crates/server/src/";

fn is_edge(source: &Source) -> bool {
    ["merchant", "operator", "cli", "listen"].iter().any(|module| source.is_of_module(SERVER, module))
}

// Sizes and leftovers.

fn file_sizes(sources: &[Source]) -> Vec<String> {
    let rust = sources.iter().filter(|source| source.is_rust());
    let sized = rust.map(|source| (source, source.text.lines().count()));
    let long = sized.filter(|(_, lines)| *lines > FILE_LINES_MAX);
    long.map(|(source, lines)| format!("{} has {lines} lines; {FILE_LINES_MAX} at most", source.path)).collect()
}

/// What answers a request. At the operator listener, `auth` and `frame` are what every request goes through before.
fn is_handler(source: &Source, function: &Function) -> bool {
    let is_door = source.is_of_module(SERVER, "operator") && !matches!(source.stem(), "auth" | "frame");
    is_edge(source) && function.name == "handle" || is_door && function.is_pub_async
}

fn function_sizes(sources: &[Source]) -> Vec<String> {
    let mut complaints = Vec::new();
    for source in sources.iter().filter(|source| source.is_rust()) {
        for function in source.functions() {
            let most = if is_handler(source, &function) { HANDLER_LINES_MAX } else { FUNCTION_LINES_MAX };
            if function.lines > most {
                let (path, line, name) = (&source.path, function.line, &function.name);
                complaints.push(format!("{path}:{line} {name} has {} lines; {most} at most", function.lines));
            }
        }
    }
    complaints
}

fn leftovers(sources: &[Source]) -> Vec<String> {
    let mut complaints = none_of(sources, Source::is_rust, code, &["todo!", "dbg!", "unimplemented!"], "finish it");
    let words = [concat!("TO", "DO"), concat!("FIX", "ME")];
    complaints.extend(none_of(sources, Source::is_rust, |s| &s.text, &words, "do it, or write an issue"));
    complaints
}

#[test]
fn a_file_has_at_most_500_lines() {
    keeps(file_sizes, &[("crates/sdk/src/long.rs", &"// line\n".repeat(FILE_LINES_MAX + 1))]);
}

#[test]
fn a_function_has_at_most_70_lines_and_a_handler_25() {
    let body = |lines: usize| "    step();\n".repeat(lines - 2);
    let function = format!("fn long(of: [u8; 2]) {{\n{}}}\n", body(FUNCTION_LINES_MAX + 1));
    let handler = format!("pub async fn handle() -> Reply {{\n{}}}\n", body(HANDLER_LINES_MAX + 1));
    let planted = [
        ("xtask/src/long.rs", function.as_str()),
        ("crates/server/src/merchant/long.rs", &handler),
        ("crates/server/src/operator/long.rs", &handler.replace("handle", "create")),
    ];
    keeps(function_sizes, &planted);
    let just_right = Source::new("xtask/src/right.rs", &format!("fn right() {{\n{}}}\n", body(FUNCTION_LINES_MAX)));
    assert!(function_sizes(&[just_right]).is_empty());
}

#[test]
fn nothing_is_left_half_done() {
    let planted = [
        ("crates/domain/src/a.rs", "fn a() { todo!() }\n"),
        ("crates/domain/src/b.rs", "fn b() { dbg!(1); }\n"),
        ("crates/domain/src/c.rs", "fn c() { unimplemented!() }\n"),
        ("crates/domain/src/d.rs", concat!("// TO", "DO later\n")),
    ];
    keeps(leftovers, &planted);
}

// Floors: who may know whom.

/// Each crate's folder, and which of our crates it may use.
const FLOORS: &[(&str, &[&str])] = &[
    ("crates/protocol", &[]),
    ("crates/domain", &[]),
    ("crates/sdk", &["countersign-protocol"]),
    ("crates/store", &["countersign-domain"]),
    ("crates/server", &["countersign-protocol", "countersign-domain", "countersign-sdk", "countersign-store"]),
    (
        "crates/testkit",
        &["countersign-protocol", "countersign-domain", "countersign-sdk", "countersign-store", "countersign"],
    ),
    ("xtask", &[]),
];

/// Crates that bring IO, time or chance: nothing for the pure floors.
const IMPURE: &[&str] = &[
    "tokio",
    "axum",
    "hyper",
    "tower",
    "reqwest",
    "rusqlite",
    "getrandom",
    "rand",
    "http",
    "mio",
    "tracing",
    "metrics",
];
/// Crates that speak SQL: only for the store.
const SQL_CRATES: &[&str] = &["rusqlite", "libsqlite3-sys", "tokio-postgres", "deadpool-postgres", "sqlx", "postgres"];

/// The names in a manifest's tables of dependencies; those for tests only are left out.
fn dependencies(manifest: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut inside = false;
    for line in manifest.lines().map(str::trim) {
        if let Some(table) = line.strip_prefix('[') {
            let table = table.trim_end_matches(']');
            let (_, name) = table.rsplit_once("dependencies").unwrap_or(("", "no"));
            inside = name.is_empty() && !table.ends_with("dev-dependencies");
            if let Some(name) = name.strip_prefix('.').filter(|_| !table.contains("dev-dependencies")) {
                names.push(name);
            }
        } else if inside && !line.is_empty() && !line.starts_with('#') {
            names.extend(line.split(['.', '=', ' ']).next());
        }
    }
    names
}

fn is_pure_crate(folder: &str) -> bool {
    matches!(folder, "crates/protocol" | "crates/domain")
}

fn floors(sources: &[Source]) -> Vec<String> {
    let mut complaints = Vec::new();
    for manifest in sources.iter().filter(|s| s.path.ends_with("/Cargo.toml")) {
        let folder = manifest.path.trim_end_matches("/Cargo.toml");
        let Some((_, ours)) = FLOORS.iter().find(|(name, _)| *name == folder) else {
            complaints.push(format!("{} is a crate without a floor: give it one in FLOORS", manifest.path));
            continue;
        };
        for name in dependencies(&manifest.text) {
            let is_of = |family: &str| name == family || name.strip_prefix(family).is_some_and(|r| r.starts_with('-'));
            let refused = if name.starts_with("countersign") && !ours.contains(&name) {
                "is on another floor"
            } else if is_pure_crate(folder) && IMPURE.iter().any(|family| is_of(family)) {
                "brings IO, time or chance to a pure crate"
            } else if folder != "crates/store" && SQL_CRATES.contains(&name) {
                "speaks SQL, which is the store's"
            } else {
                continue;
            };
            complaints.push(format!("{} uses {name}, which {refused}", manifest.path));
        }
        if !manifest.text.contains("[lints]\nworkspace = true") {
            complaints.push(format!("{} does not take the workspace's lints", manifest.path));
        }
    }
    complaints
}

#[test]
fn crates_use_only_the_floors_below_them() {
    let lints = "[lints]\nworkspace = true\n";
    let planted = |table: &str| format!("{lints}{table}\n");
    keeps(floors, &[("crates/protocol/Cargo.toml", &planted("[dependencies]\ncountersign-domain.workspace = true"))]);
    keeps(floors, &[("crates/domain/Cargo.toml", &planted("[dependencies]\ntokio = \"1\""))]);
    keeps(floors, &[("crates/domain/Cargo.toml", &planted("[dependencies.hyper-util]\nworkspace = true"))]);
    keeps(floors, &[("crates/sdk/Cargo.toml", &planted("[dependencies]\ncountersign-store.workspace = true"))]);
    keeps(floors, &[("crates/store/Cargo.toml", &planted("[dependencies]\ncountersign-protocol.workspace = true"))]);
    keeps(floors, &[("crates/server/Cargo.toml", &planted("[dependencies]\nrusqlite.workspace = true"))]);
    keeps(floors, &[("crates/sdk/Cargo.toml", &planted("[target.'cfg(unix)'.dependencies]\nsqlx = \"1\""))]);
    keeps(floors, &[("crates/sdk/Cargo.toml", "[dependencies]\nserde.workspace = true\n")]);
    keeps(floors, &[("crates/new/Cargo.toml", lints)]);
    let for_tests = Source::new("crates/sdk/Cargo.toml", &planted("[dev-dependencies]\nrusqlite = \"1\""));
    assert!(floors(&[for_tests]).is_empty(), "what only tests use is not shipped");
}

fn purity(sources: &[Source]) -> Vec<String> {
    let words = ["SystemTime", "Instant", "std::env", "std::fs", "std::net", "std::thread", "now()", "RandomState"];
    let words = [&words[..], &["tokio", "axum", "hyper", "reqwest", "rusqlite", "getrandom", "rand"]].concat();
    let mut complaints = none_of(sources, |s| is_in(s, &PURE), code, &words, "time, chance and IO are the caller's");
    let floors = [("crates/protocol/src/", "countersign_domain"), ("crates/domain/src/", "countersign_protocol")];
    for (folder, other) in floors {
        complaints.extend(none_of(sources, |s| is_in(s, &[folder]), code, &[other], "the two do not know each other"));
    }
    complaints
}

#[test]
fn protocol_and_domain_are_pure_and_do_not_know_each_other() {
    let planted = [
        ("crates/domain/src/a.rs", "use std::time::SystemTime;\n"),
        ("crates/domain/src/b.rs", "fn b() { jiff::Timestamp::now(); }\n"),
        ("crates/domain/src/c.rs", "use countersign_protocol::code::Code;\n"),
        ("crates/protocol/src/d.rs", "use std::env;\n"),
        ("crates/protocol/src/e.rs", "use tokio::sync::Mutex;\n"),
        ("crates/protocol/src/f.rs", "use countersign_domain::money::Amount;\n"),
    ];
    keeps(purity, &planted);
}

fn sql(sources: &[Source]) -> Vec<String> {
    let elsewhere = |s: &Source| s.is_rust() && !s.path.starts_with("crates/store/");
    let crates = ["rusqlite", "tokio_postgres", "deadpool_postgres", "libsqlite3_sys"];
    let mut complaints = none_of(sources, elsewhere, code, &crates, "only the store knows SQL");
    let words = [
        concat!("SEL", "ECT "),
        concat!("INS", "ERT INTO"),
        concat!("DEL", "ETE FROM"),
        concat!("CREATE ", "TABLE"),
        concat!("PRA", "GMA "),
    ];
    complaints.extend(none_of(sources, elsewhere, |s| &s.code_and_strings, &words, "only the store knows SQL"));
    complaints
}

#[test]
fn only_the_store_knows_sql() {
    let planted = [
        ("crates/server/src/app/a.rs", "use rusqlite::Connection;\n"),
        ("crates/server/src/cli/b.rs", concat!("const B: &str = \"SEL", "ECT 1\";\n")),
        ("crates/testkit/tests/it/c.rs", concat!("const C: &str = r#\"INS", "ERT INTO rule\"#;\n")),
    ];
    keeps(sql, &planted);
}

fn edges(sources: &[Source]) -> Vec<String> {
    let words = [".commit(", "Batch", "purge_nonces"];
    none_of(sources, is_edge, code, &words, "edges translate; the use cases in app write")
}

#[test]
fn edges_never_write_to_the_store() {
    let planted = [
        ("crates/server/src/merchant/a.rs", "async fn a(app: &App) { app.store.commit(batch).await; }\n"),
        ("crates/server/src/operator/b.rs", "use countersign_store::Batch;\n"),
        ("crates/server/src/cli.rs", "async fn c(store: &AnyStore) { store.commit(batch).await; }\n"),
    ];
    keeps(edges, &planted);
}

fn app_without_http(sources: &[Source]) -> Vec<String> {
    let words = ["axum", "http::", "hyper", "hyper_util", "tower", "HeaderMap", "StatusCode"];
    none_of(sources, |s| s.is_of_module(SERVER, "app"), code, &words, "the use cases see no type of HTTP")
}

#[test]
fn use_cases_see_no_type_of_http() {
    let planted = [
        ("crates/server/src/app/a.rs", "use axum::Json;\n"),
        ("crates/server/src/app/b.rs", "fn b() -> http::StatusCode { 1 }\n"),
    ];
    keeps(app_without_http, &planted);
}

// Time and chance.

fn time_and_chance(sources: &[Source]) -> Vec<String> {
    let shipped =
        |s: &Source| is_in(s, &["crates/"]) && s.path.contains("/src/") && !s.path.starts_with("crates/testkit/");
    let elsewhere = |s: &Source, here: &str| shipped(s) && s.path != here && s.path != "crates/sdk/src/ambient.rs";
    let clock = |s: &Source| elsewhere(s, "crates/server/src/clock.rs");
    let words = ["SystemTime", "UNIX_EPOCH", "Timestamp::now", "Zoned::now"];
    let mut complaints = none_of(sources, clock, code, &words, "time is an argument; one file reads the clock");
    let chance = |s: &Source| elsewhere(s, "crates/server/src/chance.rs");
    let words = ["getrandom", "rand", "SystemRandom"];
    complaints.extend(none_of(sources, chance, code, &words, "chance is an argument; one file draws it"));
    complaints
}

#[test]
fn one_file_reads_the_clock_and_one_draws_chance() {
    let planted = [
        ("crates/server/src/app/a.rs", "fn a() { std::time::SystemTime::now(); }\n"),
        ("crates/server/src/dispatch/b.rs", "fn b() { getrandom::fill(&mut [0]); }\n"),
        ("crates/store/src/c.rs", "use aws_lc_rs::rand::SystemRandom;\n"),
        ("crates/sdk/src/d.rs", "use std::time::SystemTime;\n"),
        ("crates/sdk/src/e.rs", "fn e() { getrandom::fill(&mut [0]); }\n"),
    ];
    keeps(time_and_chance, &planted);
}

// The guard over callbacks.

/// Where the word stands that leaves the guard out: what it does, who says that it is known, and who builds with it.
const GUARD_OFF: (&str, [&str; 5]) = (
    "countersign_guard_off",
    [
        "Cargo.toml",
        "crates/server/src/dispatch/egress.rs",
        "crates/server/src/run/dangers.rs",
        "crates/testkit/tests/it/tidy.rs",
        "xtask/src/egress.rs",
    ],
);

fn guard(sources: &[Source]) -> Vec<String> {
    let (word, places) = GUARD_OFF;
    let elsewhere = |s: &Source| !s.is_a("md") && !places.contains(&s.path.as_str());
    let mut complaints = none_of(sources, elsewhere, |s| &s.text, &[word], "nothing is built without the guard");
    let refusal = "#[cfg(all(countersign_guard_off, not(debug_assertions)))]\ncompile_error!";
    let refuses = |s: &Source| s.path == places[1] && s.text.contains(refusal);
    if !sources.iter().any(refuses) {
        complaints.push(format!("{}: a build for release has to refuse {word}", places[1]));
    }
    complaints
}

#[test]
fn only_the_control_of_the_guard_is_built_without_it() {
    let planted = [
        (".ci/run", "RUSTFLAGS='--cfg countersign_guard_off' cargo build\n"),
        ("crates/server/build.rs", "fn main() { println!(\"cargo:rustc-cfg=countersign_guard_off\"); }\n"),
        ("crates/server/src/dispatch/egress.rs", "fn vet() { cfg!(countersign_guard_off) }\n"),
    ];
    keeps(guard, &planted);
}

// Endpoints.

const WIRE: &str = "crates/protocol/src/endpoint/";
const EDGE: &str = "crates/server/src/merchant/";

/// Whether a journey names the endpoint, and the tests really call it: by its path, or through the SDK.
fn is_walked(sources: &[Source], wire: &Source) -> bool {
    let name = wire.stem();
    let path = wire.text.split("pub const PATH: &str = \"").nth(1).and_then(|rest| rest.split('"').next());
    let call = format!(".{name}(");
    let tests = || sources.iter().filter(|s| s.is_rust() && s.path.starts_with("crates/testkit/"));
    let names = |s: &Source| s.stem() == format!("journey_{name}") || positions(&s.text, name).next().is_some();
    let calls = |s: &Source| s.code.contains(&call) || path.is_some_and(|path| s.code_and_strings.contains(path));
    tests().any(|s| s.stem().starts_with("journey") && names(s)) && tests().any(calls)
}

fn endpoints(sources: &[Source]) -> Vec<String> {
    let direct = |s: &Source, folder: &str| s.path.strip_prefix(folder).is_some_and(|rest| !rest.contains('/'));
    let on_the_wire: Vec<_> = sources.iter().filter(|s| direct(s, WIRE) && s.text.contains("pub const PATH")).collect();
    let has_handler = |s: &Source| s.functions().iter().any(|f| f.name == "handle");
    let at_the_edge: Vec<_> = sources.iter().filter(|s| direct(s, EDGE) && has_handler(s)).collect();
    let mut complaints = Vec::new();
    for wire in &on_the_wire {
        let name = wire.stem();
        if !at_the_edge.iter().any(|edge| edge.stem() == name) {
            complaints.push(format!("{}: {EDGE}{name}.rs has to handle it", wire.path));
        }
        if !is_walked(sources, wire) {
            complaints
                .push(format!("{}: a journey in crates/testkit/tests/it has to name {name} and call it", wire.path));
        }
    }
    for edge in at_the_edge.iter().filter(|edge| !on_the_wire.iter().any(|wire| wire.stem() == edge.stem())) {
        complaints.push(format!("{}: {WIRE}{}.rs has to say what goes over the wire", edge.path, edge.stem()));
    }
    if on_the_wire.is_empty() {
        complaints.push(format!("{WIRE} has no endpoint: this rule looks in the wrong place"));
    }
    complaints
}

#[test]
fn an_endpoint_has_one_file_of_the_same_name_on_every_floor() {
    let planted = [
        ("crates/protocol/src/endpoint/order_refund.rs", "pub const PATH: &str = \"/v1/pay/order/refund\";\n"),
        ("crates/server/src/merchant/order_refund.rs", "pub async fn handle() {}\n"),
    ];
    keeps(endpoints, &planted);
}

// Documents.

fn documents(sources: &[Source]) -> Vec<String> {
    let mut complaints = Vec::new();
    let changelog = sources.iter().find(|s| s.path == "CHANGELOG.md");
    if !changelog.is_some_and(|s| s.text.contains("\n## [Unreleased]\n")) {
        complaints.push("CHANGELOG.md has no section [Unreleased]".to_owned());
    }
    let machine = [concat!("/wo", "rk/"), concat!("../sha", "red"), concat!("/ro", "ot/")];
    complaints.extend(none_of(sources, |_| true, |s| &s.text, &machine, "this place is on one machine only"));
    for source in sources.iter().filter(|s| s.is_a("md")) {
        for (at, _) in source.text.match_indices("](") {
            let target = source.text[at + 2..].split([')', '#']).next().unwrap_or_default();
            if !target.is_empty() && !target.contains(':') && !leads_somewhere(sources, &source.path, target) {
                complaints.push(format!("{}:{} links to {target}", source.path, line_of(&source.text, at)));
            }
        }
    }
    complaints
}

/// Whether a link in the document at `from` names a file, or a folder that has one.
fn leads_somewhere(sources: &[Source], from: &str, target: &str) -> bool {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.trim_end_matches('/').split('/') {
        match part {
            ".." if parts.pop().is_none() => return false,
            "." | ".." => {}
            name => parts.push(name),
        }
    }
    let path = parts.join("/");
    sources.iter().any(|s| s.path == path || s.path.starts_with(&format!("{path}/")))
}

#[test]
fn documents_are_complete_and_lead_somewhere() {
    let planted = [
        ("CHANGELOG.md", "# Changelog\n\n## [0.1.0]\n"),
        ("docs/A.md", "See [that](NOTHERE.md#part).\n"),
        ("docs/B.md", "See [that](../../outside.md).\n"),
        ("docs/C.md", concat!("It is in /wo", "rk/main.\n")),
    ];
    keeps(documents, &planted);
}

// The reader of Rust itself.

#[test]
fn words_in_comments_and_strings_are_not_code() {
    let text = "fn a<'x>(c: &'x str) -> char {\n    // dbg!\n    /* dbg! /* */ dbg! */\n    let r = r#\"dbg! \"{ \"#;\n    \
                let s = \"dbg! \\\" {\";\n    '{'\n}\nfn b() { '\\''; dbg!(); }\n";
    let source = Source::new("a.rs", text);
    assert_eq!(positions(&source.code, "dbg!").map(|at| line_of(&source.code, at)).collect::<Vec<_>>(), [8]);
    assert_eq!(source.code.lines().count(), text.lines().count());
    assert!(source.code_and_strings.contains("r#\"dbg!"), "strings stay where SQL is looked for");
    let found: Vec<_> = source.functions().into_iter().map(|f| (f.name, f.line, f.lines)).collect();
    assert_eq!(found, [("a".to_owned(), 1, 7), ("b".to_owned(), 8, 1)]);
}

#[test]
fn a_word_is_a_whole_word() {
    assert_eq!(positions("brand rand operand rand_core", "rand").collect::<Vec<_>>(), [6]);
    assert_eq!(positions("axum::http::Uri myhttp::Uri", "http::").collect::<Vec<_>>(), [6]);
    assert_eq!(positions("x.commit(batch)", ".commit(").collect::<Vec<_>>(), [1]);
}
