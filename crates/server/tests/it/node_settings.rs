//! Who is told that nodes which share a database have other settings.

use std::collections::BTreeMap;
use std::time::Instant;

use countersign::config::Config;
use countersign_store::testing::{Database, Feigned};
use serde_json::{Value, json};

use super::{PATIENCE, Place, Serving, until};

const GAUGE: &str = "countersign_nodes_with_other_settings ";

/// A deployment on a database, and what a node with the settings of its file notes.
struct Deployment {
    place: Place,
    database: Database,
    url: String,
    token: String,
    settings: String,
}

impl Deployment {
    fn new(file: &str) -> Self {
        let (place, database) = (Place::fresh(), super::database());
        // Whoever connects by the socket needs no password, and may say one.
        let url = database.url().replace("postgres@", "postgres:canary@");
        let (said, _) = place.ends(&["init", "--json", "--data", "data", "--database-url", &url], 0);
        let said: Value = serde_json::from_str(&said).expect("init --json prints one JSON object");
        let path = place.path("c.toml");
        std::fs::write(&path, file).expect("is written");
        let settings = Config::load(Some(&path), &BTreeMap::new(), &[]).expect("it is good").of_all_nodes();
        Self { place, database, url, token: said["operator_token"].as_str().expect("a token").to_owned(), settings }
    }

    fn serve(&self) -> Serving {
        let with = ["--config", "c.toml", "--database-url", &self.url];
        self.place.serve_logging(&with, &self.place.path("log"))
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.place.path("log")).expect("it logs")
    }

    /// The settings of this deployment's node, but for these.
    fn settings_but(&self, changed: &Value) -> String {
        let mut settings: Value = serde_json::from_str(&self.settings).expect("JSON");
        for (name, value) in changed.as_object().expect("an object") {
            settings[name] = value.clone();
        }
        settings.to_string()
    }

    async fn feign(&self, node: u8, settings: Option<&str>, seen_ms_ago: i64) {
        self.database.feign(Feigned { node, settings, seen_ms_ago }).await;
    }

    fn nodes(&self, serving: &Serving, arguments: &[&str]) -> String {
        let mut command = self.place.command(&[&["node", "list"], arguments].concat());
        command.env("COUNTERSIGN_OPERATOR_TOKEN", &self.token);
        command.env("COUNTERSIGN_OPERATOR_URL", format!("http://{}", serving.operator_listen));
        let (stdout, stderr, code) = super::desk::told(&command.output().expect("runs"));
        assert_eq!(code, Some(0), "{stderr}");
        stdout
    }
}

/// The line of `/metrics`.
fn gauge(serving: &Serving) -> Option<String> {
    let said = super::full::asked(serving, "/metrics").1;
    said.lines().find_map(|line| line.strip_prefix(GAUGE).map(str::to_owned))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_living_node_with_other_settings_is_named_and_an_equal_a_dead_and_an_older_one_are_not() {
    // What is feigned to be seen now is alive for a minute.
    let deployment = Deployment::new("dispatch_lease = \"1m\"\norder_hold = \"600s\"\n");
    let differs = deployment.settings_but(&json!({"quote_life": "31s", "order_hold": "11m", "of_a_later_program": 1}));
    deployment.feign(1, Some(&differs), 0).await;
    deployment.feign(2, Some(&deployment.settings), 0).await;
    deployment.feign(3, Some(&differs), 600_000).await;
    deployment.feign(4, None, 0).await;
    let serving = deployment.serve();
    until("the gauge is there", || gauge(&serving).is_some_and(|value| value == "1"));

    let page: Value = serde_json::from_str(&deployment.nodes(&serving, &["--json"])).expect("JSON");
    let items = page["items"].as_array().expect("a list").iter();
    let differ: BTreeMap<&str, &Value> =
        items.map(|item| (item["name"].as_str().expect("a name"), &item["settings_differ"])).collect();
    let (names, none, unknown) = (json!(["order_hold", "quote_life"]), json!([]), json!(null));
    let wanted = [
        (serving.listen.as_str(), &none),
        ("node 1", &names),
        ("node 2", &none),
        ("node 3", &unknown),
        ("node 4", &unknown),
    ];
    assert_eq!(differ, wanted.into());
    let table = deployment.nodes(&serving, &[]);
    assert!(table.contains(" settings_differ ") && table.contains(r#"["order_hold","quote_life"]"#), "{table}");

    let doctor = ["doctor", "--data", "data", "--config", "c.toml", "--database-url", &deployment.url];
    let said = String::from_utf8_lossy(&deployment.place.run(&doctor).stdout).into_owned();
    let warned: Vec<&str> = said.lines().filter(|line| line.contains("settings than")).collect();
    let id = "01".repeat(16);
    let wanted =
        format!("warn  nodes        node 1 ({id}) runs with other settings than these: order_hold, quote_life");
    assert_eq!(warned, [wanted], "{said}");

    let noted = deployment.database.noted_settings().await;
    assert_eq!(noted.iter().filter(|noted| **noted == deployment.settings).count(), 2, "its own, and the equal one's");
    assert!(!noted.concat().contains("canary"), "{noted:?}");
    assert_eq!(serving.terminate(), Some(0));
    let log = deployment.log();
    let told: Vec<Value> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let told: Vec<&Value> = told.iter().filter(|line| line.to_string().contains("runs with other settings")).collect();
    assert_eq!(told.len(), 1, "{log}");
    let wanted = "A node runs with other settings than this one: node 1 has another order_hold, quote_life";
    assert!(told[0].to_string().contains(wanted) && told[0].to_string().contains("WARN"), "{}", told[0]);
    assert!(told[0].to_string().contains(&id), "{}", told[0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_says_when_it_is_over() {
    let deployment = Deployment::new("dispatch_lease = \"1s\"\n");
    let serving = deployment.serve();
    let differs = deployment.settings_but(&json!({"dispatch_lease": "1s", "order_hold": "11m"}));
    let began = Instant::now();
    while !deployment.log().contains("A node runs with other settings than this one: node 1 has another order_hold") {
        assert!(began.elapsed() < PATIENCE, "{}", deployment.log());
        deployment.feign(1, Some(&differs), 0).await;
    }
    // Its heart beats no more.
    until("it is over", || deployment.log().contains("The node node 1 has no other settings than this one any more"));
    until("nobody is counted", || gauge(&serving).is_some_and(|value| value == "0"));
    assert_eq!(serving.terminate(), Some(0));
}
