//! Commands about the audit log at the machine.

use countersign_store::testing::Tampering;

use super::{Place, database};

#[test]
fn a_key_of_a_log_at_the_machine_says_nothing_of_one_behind_the_operator_api() {
    let place = Place::fresh();
    // Whoever names a database in the environment has not named it as the place of the log.
    for words in ["verify", "heads", "export"] {
        let (stdout, stderr) = place.ends(&["audit", words, "--master-key", "master.key"], 2);
        assert!(
            stdout.is_empty() && stderr.contains("--master-key: is for a log that is read without a server"),
            "{stderr}"
        );
    }
}

#[test]
fn a_chain_that_is_begun_is_shown_though_its_key_cannot_be_noted() {
    let (place, database) = (Place::fresh(), database());
    let url = database.url();
    let at = |words: &[&'static str]| {
        [words, &["--data", "data", "--database-url"]].concat().into_iter().chain([url.as_str()]).collect::<Vec<_>>()
    };
    place.ends(&at(&["init"]), 0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(database.tamper(Tampering::Unchain));
    // In the way of the note.
    std::fs::create_dir_all(place.path("data/audit.chain.unfinished/x")).expect("is made");
    let (stdout, stderr) = place.ends(&at(&["audit", "begin"]), 1);
    assert!(stdout.starts_with("Began the chain of the audit log (key "), "{stdout}");
    let wanted = "countersign: the chain is begun, as is said above: its key could not be noted: ";
    assert!(stderr.starts_with(wanted) && stderr.lines().count() == 1, "{stderr}");
    assert!(stderr.contains("data/audit.chain is there remove it"), "{stderr}");
    std::fs::remove_dir_all(place.path("data/audit.chain.unfinished")).expect("is removed");
    let (said, _) = place.ends(&at(&["audit", "verify"]), 0);
    assert!(said.contains("The audit log holds"), "{said}");
    let (_, stderr) = place.ends(&at(&["audit", "begin"]), 1);
    assert!(stderr.contains("there is nothing to begin"), "{stderr}");
}
