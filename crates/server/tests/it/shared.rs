//! What `doctor` and `serve` say of a database that nodes share.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::Duration;

use countersign_store::testing::{Database, Server, ServerOptions, Tampering};
use tokio::time::timeout;

use super::Place;

/// Every line that `doctor` prints; its exit code is 0.
fn doctor(place: &Place, url: &str) -> String {
    place.ends(&["doctor", "--data", "data", "--config", "c.toml", "--database-url", url], 0).0
}

fn ready(url: &str) -> Place {
    let place = Place::fresh();
    place.ends(&["init", "--data", "data", "--database-url", url], 0);
    std::fs::write(place.path("c.toml"), "listen = \"127.0.0.1:0\"\noperator_listen = \"127.0.0.1:0\"\n")
        .expect("written");
    place
}

#[test]
fn doctor_says_what_a_failover_could_lose_and_how_the_database_is_reached() {
    let primary = Server::start(ServerOptions { fsync: true, tcp: true, ..ServerOptions::default() });
    let url = primary.url("postgres");
    let place = ready(&url);
    let said = doctor(&place, &url);
    assert!(
        said.contains("answers, on this machine") && said.contains("ok    durability   there is no standby"),
        "{said}"
    );
    assert!(said.contains("ok    connections"), "{said}");
    assert!(!said.contains("postgres@"), "{said}");

    let _standby = primary.standby("b");
    let said = doctor(&place, &url);
    assert!(said.contains("warn  durability   1 standby connected and none is synchronous"), "{said}");
    primary.set_synchronous("*");
    let said = doctor(&place, &url);
    assert!(said.contains("ok    durability   1 standby connected, 1 of them synchronous"), "{said}");

    primary.ask("postgres", "ALTER ROLE postgres SET synchronous_commit = 'off'");
    assert!(doctor(&place, &url).contains("synchronous_commit is off for this role or database"));
}

#[test]
fn serve_warns_at_its_start_of_a_standby_that_nobody_waits_for() {
    let primary = Server::start(ServerOptions { fsync: true, ..ServerOptions::default() });
    let url = primary.url("postgres");
    let place = ready(&url);
    let _standby = primary.standby("b");
    let mut command = place.command(&["serve", "--data", "data", "--config", "c.toml", "--database-url", &url]);
    let mut server = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let log = BufReader::new(server.stderr.take().expect("stderr is piped"));
    let warned = log.lines().map_while(Result::ok).find(|line| line.contains("standby connected"));
    let warned = warned.expect("it says so before it ends");
    assert!(warned.contains("WARN") && warned.contains("set synchronous_standby_names"), "{warned}");
    server.kill().expect("it runs");
    server.wait().expect("it ends");
}

#[test]
fn serve_that_is_told_to_stop_while_its_database_says_nothing_ends_at_once_and_well() {
    let primary = Server::start(ServerOptions::default());
    let place = ready(&primary.url("postgres"));
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    // It does not give up by itself meanwhile.
    let address = silent.local_addr().expect("has one");
    let url = format!("postgres://u@{address}/d?sslmode=disable&connect_timeout=600");
    let mut command = place.command(&["serve", "--data", "data", "--config", "c.toml", "--database-url", &url]);
    let server = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let _connection = silent.accept().expect("it comes");
    let told = Command::new("kill").args(["-TERM", &server.id().to_string()]).status().expect("kill runs");
    assert!(told.success());
    let out = server.wait_with_output().expect("it ends");
    let log = String::from_utf8_lossy(&out.stderr);
    assert_eq!((out.status.code(), out.stdout.len()), (Some(0), 0), "{log}");
    assert!(log.contains("Told to stop before it served"), "{log}");
}

#[test]
fn a_token_is_not_recovered_where_that_would_change_the_schema_under_running_nodes() {
    let primary = Server::start(ServerOptions::default());
    let place = ready(&primary.url("postgres"));
    primary.ask("postgres", "CREATE DATABASE empty");
    let tables = || primary.ask("empty", "TABLE pg_catalog.pg_tables").matches("public|").count();
    let ask = ["token", "recover", "--data", "data", "--database-url"];
    let (_, stderr) = place.ends(&[&ask[..], &[&primary.url("empty")]].concat(), 1);
    assert!(stderr.contains("countersign init"), "{stderr}");
    assert_eq!(tables(), 0, "a refusal leaves nothing behind");
    place.ends(&[&ask[..], &[&primary.url("postgres")]].concat(), 0);
}

#[test]
fn doctor_fails_in_one_line_where_the_database_is_away() {
    let mut primary = Server::start(ServerOptions::default());
    let url = primary.url("postgres");
    let place = ready(&url);
    primary.stop();
    let (said, _) = place.ends(&["doctor", "--data", "data", "--config", "c.toml", "--database-url", &url], 1);
    let failed: Vec<&str> = said.lines().filter(|line| line.starts_with("fail")).collect();
    assert!(failed.len() == 1 && failed[0].contains("cannot be reached"), "{said}");
}

#[test]
fn what_a_database_without_a_deployment_is_told_can_be_done_as_it_is_printed() {
    let primary = Server::start(ServerOptions::default());
    let (place, url) = (Place::fresh(), primary.url("postgres"));
    place.ends(&["init", "--data", "own"], 0);
    let serve = [
        "serve",
        "--data",
        "own",
        "--listen",
        "127.0.0.1:0",
        "--operator-listen",
        "127.0.0.1:0",
        "--database-url",
        &url,
    ];
    let doctor = [&["doctor"], &serve[1..]].concat();
    let (stdout, stderr) = place.ends(&doctor, 1);
    assert!(
        stdout.contains("fail  database     the database is empty: run `countersign init --data own --database-url "),
        "{stdout}{stderr}"
    );
    let (_, stderr) = place.ends(&serve, 1);
    assert_eq!(primary.ask("postgres", "TABLE pg_catalog.pg_tables").matches("public|").count(), 0);
    let printed = stderr.split('`').nth(1).expect("a command").to_owned();
    assert!(printed.starts_with("countersign init --data own --database-url "), "{stderr}");
    let mut shell = Command::new("sh");
    shell.args(["-c", &printed.replacen("countersign", super::BINARY, 1)]).current_dir(place.path(""));
    let out = shell.output().expect("runs");
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{printed}: {}", String::from_utf8_lossy(&out.stderr));
    assert!(said.contains("\n  countersign serve --data own --database-url "), "{said}");
    let (_, again) =
        place.ends(&["init", "--data", "third", "--database-url", &url, "--master-key", "own/master.key"], 0);
    assert_eq!(again, "");
}

#[test]
fn doctor_misses_the_key_of_the_chain_as_serve_does() {
    let database = super::database();
    let url = database.url();
    let place = ready(&url);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(database.tamper(Tampering::TakeChainKey));
    let (said, _) = place.ends(&["doctor", "--data", "data", "--config", "c.toml", "--database-url", &url], 1);
    assert!(said.contains("fail  audit log    the database has no key for a chain of the audit log"), "{said}");
}

#[test]
fn doctor_names_the_schema_that_a_search_path_leads_away_from() {
    let primary = Server::start(ServerOptions::default());
    let url = primary.url("postgres");
    let place = ready(&url);
    let ask = ["doctor", "--data", "data", "--config", "c.toml", "--database-url", &url];
    primary.ask("postgres", "CREATE SCHEMA beside");
    for (path, here) in [("nowhere", "no schema that is there"), ("beside", "the schema beside, where none is")] {
        primary.ask("postgres", &format!("ALTER ROLE postgres SET search_path = '{path}'"));
        let (said, _) = place.ends(&ask, 1);
        let wanted = format!(
            "a deployment is in the schema public, and the search_path of this role or address leads to {here}: put public first"
        );
        assert!(said.contains(&wanted) && !said.contains("the database is empty"), "{said}");
        let (_, refused) = place.ends(&[&["serve"], &ask[1..]].concat(), 1);
        assert!(refused.contains(&wanted), "{refused}");
        assert_eq!(primary.ask("postgres", "TABLE pg_catalog.pg_tables").matches("beside|").count(), 0);
    }
    primary.ask("postgres", "ALTER ROLE postgres RESET search_path");
    place.ends(&ask, 0);
    primary.ask("postgres", "CREATE DATABASE empty");
    let url = primary.url("empty");
    let (said, _) = place.ends(&[&ask[..6], &[&url]].concat(), 1);
    assert!(said.contains("the database is empty: run `countersign init"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_told_to_stop_before_it_serves_ends_at_once() {
    let database = Database::new().await;
    let place = ready(&database.url());
    let holder = database.hold_table("schema_step").await;
    let url = database.url();
    let mut command = place.command(&["serve", "--data", "data", "--config", "c.toml", "--database-url", &url]);
    let server = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    timeout(Duration::from_secs(60), database.somebody_waits()).await.expect("it looks at the schema");
    assert!(Command::new("kill").args(["-TERM", &server.id().to_string()]).status().expect("runs").success());
    let ended = server.wait_with_output().expect("it ends");
    drop(holder);
    let log = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.code() == Some(0) && ended.stdout.is_empty() && log.contains("Told to stop"), "{log}");
}
