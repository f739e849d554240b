//! What becomes of SQLite's file where it is not whole, or none.

use super::Place;

#[test]
fn an_init_that_was_begun_and_not_finished_is_gone_on_with() {
    let place = Place::fresh();
    let (_, stderr) = place.ends(&["init", "--data", "data", "--master-key", "nokey"], 1);
    assert!(stderr.contains("nokey"), "{stderr}");
    assert!(!place.path("data/countersign.db").exists(), "it leaves no database without a deployment");
    place.init();
    // As after a cut between the schema and the first rows.
    let begun = Place::fresh();
    std::fs::create_dir(begun.data()).expect("made");
    std::fs::write(begun.path("data/countersign.db"), "").expect("made");
    begun.init();
    std::fs::remove_file(begun.path("data/master.key")).expect("removed");
    let (_, stderr) = begun.ends(&["init", "--data", "data"], 1);
    assert!(stderr.contains("holds a database but no master key"), "{stderr}");
}

#[test]
fn a_database_that_is_none_is_named() {
    let place = Place::fresh();
    place.init();
    std::fs::write(
        place.path("data/countersign.db"),
        "not a database, and long enough to be looked at as one".repeat(99),
    )
    .expect("written");
    for arguments in
        [&["serve", "--data", "data"][..], &["migrate", "--data", "data"], &["backup", "b", "--data", "data"]]
    {
        let (_, stderr) = place.ends(arguments, 1);
        assert!(stderr.contains("data/countersign.db cannot be"), "{arguments:?}: {stderr}");
    }
}
