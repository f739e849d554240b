//! A server of the database that was left behind in a failover and is there again; a role that may not do what a node does; a clock that is another one's.

use countersign_store::testing::{Server, ServerOptions};
use serde_json::Value;

use super::full::readiness;
use super::{Place, database, on_a_thread, until};

fn asked<'a>(what: &'a str, url: &'a str) -> [&'a str; 9] {
    [what, "--data", "data", "--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0", "--database-url", url]
}

/// Waits until the node has noted a server on this timeline.
fn noted(place: &Place, timeline: &str) {
    let file = place.data().join("database.timeline");
    let is_noted = || std::fs::read_to_string(&file).is_ok_and(|text| text.trim_end().ends_with(timeline));
    until(&format!("{timeline} is noted"), is_noted);
}

#[test]
fn a_node_that_starts_again_after_a_failover_takes_no_server_that_was_left_behind() {
    let mut primary = Server::start(ServerOptions::default());
    let mut standby = primary.standby("b");
    let url = Server::url_of(&[&primary, &standby], "postgres");
    let (doctor, serve) = (asked("doctor", &url), asked("serve", &url));
    let place = Place::fresh();
    place.ends(&["init", "--data", "data", "--database-url", &url], 0);
    let node = place.serve(&["--database-url", &url]);
    noted(&place, " 1");
    primary.stop();
    standby.promote();
    noted(&place, " 2");
    assert_eq!(node.terminate(), Some(0));

    standby.stop();
    primary.start_again();
    let (said, _) = place.ends(&doctor, 1);
    let (_, refused) = place.ends(&serve, 1);
    for told in [said, refused] {
        assert!(told.contains("the server is on timeline 1, and another one took over from it"), "{told}");
        assert!(told.contains("remove data/database.timeline on each"), "{told}");
    }
    standby.start_again();
    // The second server has two seconds to answer, and may be slower.
    until("doctor sees both", || {
        let (said, _) = place.ends(&doctor, 1);
        let split = said.lines().find(|line| line.contains("several servers of the address take writes: "));
        split.is_some_and(|line| line.starts_with("fail  database") && line.contains("on timeline 2"))
    });
    let log = place.path("log");
    until("a node sees both", || {
        let node = place.serve_logging(&["--database-url", &url], &log);
        noted(&place, " 2");
        assert_eq!(node.terminate(), Some(0));
        let log = std::fs::read_to_string(&log).expect("it logs");
        log.matches("Two servers of the database take writes").count() == 1
    });

    standby.stop();
    std::fs::remove_file(place.data().join("database.timeline")).expect("it is there");
    place.ends(&doctor, 0);
    let node = place.serve(&["--database-url", &url]);
    noted(&place, " 1");
    assert_eq!(node.terminate(), Some(0), "as the operator wants it");
}

/// A server, a deployment in its database `d`, of which the role `cs` is the owner, the address for that role, and the folder.
fn owned_by_cs() -> (Server, String, Place) {
    let server = Server::start(ServerOptions::default());
    for statement in ["CREATE ROLE cs LOGIN", "CREATE DATABASE d OWNER cs"] {
        server.ask("postgres", statement);
    }
    let url = server.url("d").replace("postgres://postgres@", "postgres://cs@");
    let place = Place::fresh();
    place.ends(&["init", "--data", "data", "--database-url", &url], 0);
    (server, url, place)
}

#[test]
fn a_role_that_may_not_write_a_table_that_somebody_else_made_is_told_what_to_run() {
    let (server, url, place) = owned_by_cs();
    let (doctor, serve) = (asked("doctor", &url), asked("serve", &url));
    place.ends(&doctor, 0);
    for taken in ["ALTER TABLE node_program OWNER TO postgres", "REVOKE DELETE ON node_program FROM cs"] {
        server.ask("d", taken);
        let (said, _) = place.ends(&doctor, 1);
        let line = said.lines().find(|line| line.starts_with("fail  rights")).expect("a line about it").to_owned();
        let (_, refused) = place.ends(&serve, 1);
        for told in [&line, &refused] {
            assert!(
                told.contains("the role cs may not SELECT, INSERT, UPDATE and DELETE in public.node_program"),
                "{told}"
            );
        }
        let grant = line.split('`').nth(1).expect("a statement");
        server.ask("d", grant);
        place.ends(&doctor, 0);
    }
}

#[test]
fn a_role_that_may_not_use_the_schema_is_told_what_to_run_and_not_to_make_another_deployment() {
    let server = Server::start(ServerOptions::default());
    server.ask("postgres", "CREATE ROLE \"C-s\" LOGIN");
    server.ask("postgres", "CREATE DATABASE d");
    server.ask("d", "GRANT USAGE, CREATE ON SCHEMA public TO \"C-s\"");
    let url = server.url("d").replace("postgres://postgres@", "postgres://C-s@");
    let place = Place::fresh();
    place.ends(&["init", "--data", "data", "--database-url", &url], 0);
    server.ask("d", "REVOKE ALL ON SCHEMA public FROM PUBLIC, \"C-s\"");
    let (found, _) = place.ends(&asked("doctor", &url), 1);
    let line = found.lines().find(|line| line.starts_with("fail  schema")).expect("a line about it");
    let (_, refused) = place.ends(&asked("serve", &url), 1);
    for told in [line, &refused] {
        assert!(
            told.contains("in the schema public, which the search_path names and the role \"C-s\" may not use: "),
            "{told}"
        );
        assert!(!told.contains("countersign init"), "{told}");
    }
    server.ask("d", line.split('`').nth(1).expect("a statement"));
    place.ends(&asked("doctor", &url), 0);

    // Whoever has a schema of their own is told of no other that they may not use.
    server.ask("postgres", "CREATE ROLE other LOGIN");
    server.ask("d", "CREATE SCHEMA other AUTHORIZATION other");
    let others = url.replace("C-s@", "other@");
    let (found, _) = place.ends(&asked("doctor", &others), 1);
    assert!(!found.contains("GRANT") && found.contains("countersign init"), "{found}");
}

#[test]
fn a_node_whose_role_has_lost_its_rights_says_so_for_as_long_as_that_is_so() {
    let (server, url, place) = owned_by_cs();
    let log = place.path("log");
    let node = place.serve_logging(&["--database-url", &url], &log);
    server.ask("d", "REVOKE ALL ON ALL TABLES IN SCHEMA public FROM cs");
    until("it is found that nothing can be changed", || {
        let said = std::fs::read_to_string(&log).expect("it logs");
        said.contains("The store takes no changes, so this node is not ready")
    });
    // By a connection that was there before, or by none that can be made. Within a time, since a look may take longer than a probe waits.
    let tells = ["this node may no longer read and write the table ", "the store is no longer fit for this node: "];
    until("readiness says what is lost, once changes were found to fail", || {
        let (status, said) = readiness(&node);
        status == 503 && tells.iter().any(|told| said.contains(told))
    });
}

#[test]
fn doctor_judges_by_the_time_of_the_database_as_nodes_do() {
    let database = database();
    let (place, url) = (Place::fresh(), database.url());
    let (made, _) = place.ends(&["init", "--json", "--data", "data", "--database-url", &url], 0);
    let made: Value = serde_json::from_str(&made).expect("JSON");
    let first = made["operator_token"].as_str().expect("a token").to_owned();
    let node = place.serve(&["--database-url", &url]);
    let ask = |token: &str, words: &[&str]| {
        let address = format!("http://{}", node.operator_listen);
        let mut command = place.command(words);
        command.env("COUNTERSIGN_OPERATOR_TOKEN", token).env("COUNTERSIGN_OPERATOR_URL", address);
        command.output().expect("runs").stdout
    };
    let made =
        ask(&first, &["token", "create", "--name", "back-end", "--role", "operator", "--life-days", "5", "--json"]);
    let made: Value = serde_json::from_slice(&made).expect("JSON");
    ask(made["token"].as_str().expect("a token"), &["merchant", "list"]);
    assert_eq!(node.terminate(), Some(0));

    // Four days on by the database, of which this machine knows nothing.
    std::thread::scope(|scope| scope.spawn(|| on_a_thread(database.move_clock(96))).join()).expect("it is moved");
    let (found, _) = place.ends(&asked("doctor", &url), 1);
    let has = |begin: &str, part: &str| found.lines().any(|line| line.starts_with(begin) && line.contains(part));
    assert!(has("fail  clock", "behind the database's"), "{found}");
    assert!(has("warn  tokens", made["token_id"].as_str().expect("an id")), "{found}");
}
