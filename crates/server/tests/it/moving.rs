//! `move`, called as an operator calls it.

use std::fs::File;
use std::process::Stdio;
use std::time::Duration;

use countersign_store::testing::{Database, Tampering};
use serde_json::Value;

use super::{Place, Serving};

const SERVE: [&str; 7] = ["serve", "--data", "data", "--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0"];

/// A database of its own, asked for from outside any runtime.
struct Target {
    database: Database,
    runtime: tokio::runtime::Runtime,
}

impl Target {
    fn new() -> Self {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        Self { database: runtime.block_on(Database::new()), runtime }
    }

    fn url(&self) -> String {
        self.database.url()
    }
}

/// A deployment with an institution, a sub-account and an application, stopped. Its token.
fn deployment(place: &Place) -> String {
    let said = place.init();
    let token = said["operator_token"].as_str().expect("a token").to_owned();
    let server = place.serve(&[]);
    for words in [
        &["institution", "create", "--merchant-id", "bank", "--name", "Bank"][..],
        &["sub-account", "create", "bank", "--sub-merchant-id", "shop", "--name", "Shop"],
        &["application", "create", "shop", "--name", "till"],
    ] {
        operate(place, &server, &token, words);
    }
    assert_eq!(server.terminate(), Some(0));
    token
}

fn operate(place: &Place, server: &Serving, token: &str, words: &[&str]) -> Value {
    let url = format!("http://{}", server.operator_listen);
    let mut command = place.command(words);
    let out = command.args(["--json", "--operator-url", &url]).env("COUNTERSIGN_OPERATOR_TOKEN", token).output();
    let out = out.expect("the binary runs");
    assert!(out.status.success(), "{words:?}: {}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).expect("an answer is JSON")
}

/// What a command is refused with: one sentence, exit code 1.
fn refused(place: &Place, words: &[&str]) -> String {
    let (stdout, stderr) = place.ends(words, 1);
    assert_eq!(stdout, "", "{words:?}");
    let sentence: Vec<&str> = stderr.lines().filter(|line| line.starts_with("countersign:")).collect();
    assert_eq!((sentence.len(), stderr.lines().count()), (1, 1), "{stderr}");
    stderr
}

#[test]
fn a_deployment_is_moved_served_from_its_old_folder_and_joined_by_another_node() {
    let (place, target) = (Place::fresh(), Target::new());
    let token = deployment(&place);
    let before = place.serve(&[]);
    let evidence_key = operate(&place, &before, &token, &["evidence", "key"]);
    assert_eq!(before.terminate(), Some(0));
    let (report, _) = place.ends(&["move", "--from", "data", "--to", &target.url(), "--json"], 0);
    let report: Value = serde_json::from_str(&report).expect("a report is JSON");
    let rows = |table: &str| {
        let tables = report["tables"].as_array().expect("tables");
        tables.iter().find(|row| row["table"] == table).expect("is reported")["rows"].as_u64()
    };
    assert_eq!((rows("merchant"), rows("application"), rows("secret")), (Some(2), Some(1), Some(1)));

    let sentence = refused(&place, &SERVE);
    assert!(sentence.contains("was moved to") && sentence.contains("--serve-moved"), "{sentence}");
    let (doctor, _) = place.ends(&["doctor", "--data", "data"], 1);
    assert!(doctor.contains("was moved to"), "{doctor}");
    assert!(refused(&place, &["init", "--data", "data"]).contains("was moved to"));
    let sentence = refused(&place, &["migrate", "--data", "data"]);
    assert!(
        sentence.contains("was moved to") && sentence.contains(": upgrade that, with --database-url;"),
        "{sentence}"
    );
    let mut of_the_copy = place.command(&["migrate", "--data", "data"]);
    assert!(of_the_copy.env("COUNTERSIGN_SERVE_MOVED", "true").output().expect("runs").status.success());

    let first = place.serve(&["--database-url", &target.url()]);
    assert_eq!(operate(&place, &first, &token, &["evidence", "key"]), evidence_key, "evidence is signed as before");
    let seen = operate(&place, &first, &token, &["application", "list"]);
    assert_eq!(seen["items"].as_array().map(Vec::len), Some(1), "{seen}");
    place.ends(&["init", "--data", "two", "--database-url", &target.url(), "--master-key", "data/master.key"], 0);
    drop(first);

    let told = place.serve(&["--serve-moved"]);
    assert_eq!(operate(&place, &told, &token, &["application", "list"])["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(told.terminate(), Some(0));
    assert!(refused(&place, &SERVE).contains("was moved to"), "it has to be said at each start");
}

#[test]
fn a_move_prints_what_it_proved_and_is_done_once() {
    let (place, target) = (Place::fresh(), Target::new());
    deployment(&place);
    let (report, progress) = place.ends(&["move", "--from", "data", "--to", &target.url()], 0);
    assert!(
        report.contains("every row compared") && report.contains("the audit log of each tenant has no gap"),
        "{report}"
    );
    assert!(progress.contains("100 %: comparing"), "{progress}");
    assert!(!report.contains("postgres@") && !progress.contains('\u{1b}'), "{report}{progress}");
    let (again, _) = place.ends(&["move", "--from", "data", "--to", &target.url()], 0);
    assert!(again.contains("an earlier run had proved the copy"), "{again}");
}

#[test]
fn what_cannot_be_moved_is_refused_with_one_sentence() {
    let (place, target) = (Place::fresh(), Target::new());
    let url = target.url();
    std::fs::create_dir(place.path("empty")).expect("made");
    place.ends(&["init", "--data", "other"], 0);
    deployment(&place);
    let secret = "postgres://somebody:letmein@127.0.0.1:1/x";
    for (words, said) in [
        (&["move", "--from", "nowhere", "--to", &url][..], "there is no data folder"),
        (&["move", "--from", "empty", "--to", &url], "nothing to move"),
        (&["move", "--from", "data", "--to", "mysql://x"], "--to: database_url is no address of a PostgreSQL database"),
        (&["move", "--from", "data"], "--to postgres://"),
        (
            &["move", "--from", "data", "--to", "postgres://u@h/d?nonsense=1"],
            "--to: database_url is not usable: invalid connection string: unknown option `nonsense`",
        ),
        (&["move", "--from", "data", "--to", secret], "cannot be reached"),
        (&["move", "--from", "data", "--to", &url, "--master-key", "other/master.key"], "not the master key"),
    ] {
        let sentence = refused(&place, words);
        assert!(sentence.contains(said) && !sentence.contains("letmein"), "{words:?}: {sentence}");
    }
    let serving = place.serve(&[]);
    assert!(refused(&place, &["move", "--from", "data", "--to", &url]).contains("another countersign process"));
    assert_eq!(serving.terminate(), Some(0));
    // Nothing of it was begun.
    place.serve(&[]).terminate();
    place.ends(&["migrate", "--data", "x", "--database-url", &url], 0);
    target.runtime.block_on(target.database.tamper(Tampering::StepAhead));
    assert!(refused(&place, &["move", "--from", "data", "--to", &url]).contains("newer program"));
}

#[test]
fn a_database_that_another_deployment_lives_in_is_refused() {
    let (place, target) = (Place::fresh(), Target::new());
    deployment(&place);
    place.ends(&["init", "--data", "two", "--database-url", &target.url()], 0);
    let sentence = refused(&place, &["move", "--from", "data", "--to", &target.url()]);
    assert!(sentence.contains("holds another deployment"), "{sentence}");
    assert_eq!(place.serve(&[]).terminate(), Some(0));
}

#[test]
fn who_restores_into_a_database_that_is_filled_is_told_of_restores() {
    let (place, target) = (Place::fresh(), Target::new());
    deployment(&place);
    place.ends(&["backup", "backup", "--data", "data"], 0);
    let url = target.url();
    place.ends(&["restore", "backup", "--data", "one", "--database-url", &url], 0);
    place.ends(&["backup", "later", "--data", "data"], 0);
    let sentence = refused(&place, &["restore", "later", "--data", "two", "--database-url", &url]);
    assert!(
        sentence.contains("was filled by a restore: ") && sentence.ends_with("name an empty database\n"),
        "{sentence}"
    );
    // As after a cut between the last step and the answer.
    let sentence = refused(&place, &["restore", "backup", "--data", "one", "--database-url", &url]);
    assert!(sentence.contains("restored into the database already") && sentence.contains("serve it"), "{sentence}");
    assert!(!place.path("one/restoring").exists(), "nothing is left of it");
}

#[test]
fn a_restore_that_was_cut_off_goes_on_from_its_own_folder_alone_and_everybody_says_so() {
    let (place, target) = (Place::fresh(), Target::new());
    deployment(&place);
    place.ends(&["backup", "backup", "--data", "data"], 0);
    let url = target.url();
    place.ends(&["migrate", "--data", "x", "--database-url", &url], 0);
    target.runtime.block_on(target.database.refuse_unless("audit", "action <> 'deployment.init'"));
    place.ends(&["restore", "backup", "--data", "one", "--database-url", &url], 1);

    for words in [&["migrate", "--data", "two"][..], &["backup", "copy", "--data", "two"]] {
        let sentence = refused(&place, &[words, &["--database-url", &url]].concat());
        assert!(sentence.contains("run the same `countersign restore` again from the same data folder"), "{sentence}");
    }
    let sentence = refused(&place, &["restore", "backup", "--data", "two", "--database-url", &url]);
    assert!(sentence.contains("part of a restore that was begun from another data folder"), "{sentence}");
    assert!(!place.path("two").exists(), "{sentence}");

    target.runtime.block_on(target.database.refuse_no_more("audit"));
    place.ends(&["restore", "backup", "--data", "one", "--database-url", &url], 0);
    place.ends(&["migrate", "--data", "two", "--database-url", &url], 0);
}

#[test]
fn while_a_move_is_not_finished_neither_side_is_served_and_it_can_be_ended() {
    let (place, target) = (Place::fresh(), Target::new());
    deployment(&place);
    place.ends(&["migrate", "--data", "x", "--database-url", &target.url()], 0);
    target.runtime.block_on(target.database.refuse_unless("audit", "action <> 'deployment.init'"));
    let (_, stderr) = place.ends(&["move", "--from", "data", "--to", &target.url()], 1);
    assert!(stderr.contains("rows of audit cannot be copied"), "{stderr}");
    assert!(!stderr.contains("first operator token"), "a row is not quoted: {stderr}");

    assert!(refused(&place, &SERVE).contains("was begun and is not finished"));
    let mut on_target = SERVE.to_vec();
    let url = target.url();
    on_target.extend(["--database-url", &url]);
    assert!(refused(&place, &on_target).contains("run the same `countersign move` again"));
    place.ends(&["init", "--data", "two", "--database-url", &url], 1);

    assert_eq!(place.serve(&["--serve-moved"]).terminate(), Some(0));
    assert_eq!(place.serve(&[]).terminate(), Some(0), "the move was ended");
    let sentence = refused(&place, &["move", "--from", "data", "--to", &url]);
    assert!(sentence.contains("another deployment"), "{sentence}");
}

#[test]
fn a_move_that_was_cut_off_at_its_end_may_be_served_and_is_settled_when_it_is_run_again() {
    let (place, target) = (Place::fresh(), Target::new());
    deployment(&place);
    let url = target.url();
    place.ends(&["migrate", "--data", "x", "--database-url", &url], 0);
    target.runtime.block_on(target.database.refuse_unless("move_record", "completed_at IS NULL"));
    let (_, stderr) = place.ends(&["move", "--from", "data", "--to", &url], 1);
    let unknown = "is not known: that database may be complete";
    assert!(stderr.contains(unknown) && !stderr.contains("not moved"), "{stderr}");

    // Nobody is sent to the folder while the database may be served.
    for words in [&SERVE[..], &["backup", "copy", "--data", "data"]] {
        let sentence = refused(&place, words);
        assert!(sentence.contains("was cut off at its end: that database may be complete, and served"), "{sentence}");
        assert!(sentence.contains("only where that database is gone for good"), "{sentence}");
    }
    let (doctor, _) = place.ends(&["doctor", "--data", "data"], 1);
    assert!(doctor.contains("may be complete, and served"), "{doctor}");
    // Another place is refused with the reason, and is not what may have been moved to.
    let other = Target::new();
    let sentence = refused(&place, &["move", "--from", "data", "--to", &other.url()]);
    assert!(sentence.contains("not moved: ") && sentence.contains("may be complete and served"), "{sentence}");

    target.runtime.block_on(target.database.refuse_no_more("move_record"));
    place.ends(&["move", "--from", "data", "--to", &url], 0);
    assert!(refused(&place, &SERVE).contains("was moved to"));
}

/// `serve` of a database, with its log in a file.
fn serve_database(place: &Place, data: &str, url: &str, log: &str) -> Serving {
    let words = ["serve", "--data", data, "--database-url", url, "--listen", "127.0.0.1:0", "--operator-listen"];
    let mut command = place.command(&words);
    command.arg("127.0.0.1:0").stdout(Stdio::piped()).stderr(File::create(place.path(log)).expect("a log"));
    Serving::started(command)
}

#[test]
fn a_node_whose_database_gives_way_to_a_restored_copy_ends_and_sends_nothing_when_it_is_started_again() {
    let (place, one, copy) = (Place::fresh(), Target::new(), Target::new());
    place.ends(&["init", "--data", "one", "--database-url", &one.url()], 0);
    let mut node = serve_database(&place, "one", &one.url(), "first");
    place.ends(&["backup", "backup", "--data", "one", "--database-url", &one.url()], 0);
    place.ends(&["restore", "backup", "--data", "two", "--database-url", &copy.url()], 0);

    one.runtime.block_on(one.database.give_way_to(copy.database));
    assert_eq!(node.ends_within(Duration::from_secs(30)), Some(1));
    let said = std::fs::read_to_string(place.path("first")).expect("a log");
    assert!(said.contains("holds another deployment than the one that was served, or a copy of it"), "{said}");
    assert!(said.contains("a part of the server broke: database, which was replaced"), "{said}");
    let again = serve_database(&place, "one", &one.url(), "second");
    assert_eq!(again.terminate(), Some(0));
    let said = std::fs::read_to_string(place.path("second")).expect("a log");
    assert!(said.contains("Callbacks are held since"), "{said}");
}
