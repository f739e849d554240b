//! A server of the database that was left behind in a failover and is there again; and a role that may not do what a node does.

use std::time::{Duration, Instant};

use countersign_store::testing::{Server, ServerOptions};

use super::Place;

const PATIENCE: Duration = Duration::from_secs(60);

fn asked<'a>(what: &'a str, url: &'a str) -> [&'a str; 9] {
    [what, "--data", "data", "--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0", "--database-url", url]
}

/// Waits until the node has noted a server on this timeline.
fn noted(place: &Place, timeline: &str) {
    let (file, began) = (place.data().join("database.timeline"), Instant::now());
    let is_noted = || std::fs::read_to_string(&file).is_ok_and(|text| text.trim_end().ends_with(timeline));
    while !is_noted() {
        assert!(began.elapsed() < PATIENCE, "{timeline} is not noted");
        std::thread::park_timeout(Duration::from_millis(20));
    }
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
    let (said, _) = place.ends(&doctor, 1);
    let split = said.lines().find(|line| line.contains("several servers of the address take writes: "));
    assert!(split.is_some_and(|line| line.starts_with("fail  database") && line.contains("on timeline 2")), "{said}");
    let log = place.path("log");
    let node = place.serve_logging(&["--database-url", &url], &log);
    noted(&place, " 2");
    assert_eq!(node.terminate(), Some(0));
    let log = std::fs::read_to_string(log).expect("it logs");
    assert_eq!(log.matches("Two servers of the database take writes").count(), 1, "{log}");

    standby.stop();
    std::fs::remove_file(place.data().join("database.timeline")).expect("it is there");
    place.ends(&doctor, 0);
    let node = place.serve(&["--database-url", &url]);
    noted(&place, " 1");
    assert_eq!(node.terminate(), Some(0), "as the operator wants it");
}

#[test]
fn a_role_that_may_not_write_a_table_that_somebody_else_made_is_told_what_to_run() {
    let server = Server::start(ServerOptions::default());
    for statement in ["CREATE ROLE cs LOGIN", "CREATE DATABASE d OWNER cs"] {
        server.ask("postgres", statement);
    }
    let url = server.url("d").replace("postgres://postgres@", "postgres://cs@");
    let place = Place::fresh();
    place.ends(&["init", "--data", "data", "--database-url", &url], 0);
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
