//! The real program where it may open few files: whoever connects to it takes none from callbacks and the store.

use std::time::Duration;

use countersign_testkit::backing::Backing;
use countersign_testkit::patience::until;
use countersign_testkit::process::Deployment;
use countersign_testkit::receiver::Receiver;
use serde_json::json;
use tokio::net::TcpStream;

/// For what must happen: far longer than it takes.
const SOON: Duration = Duration::from_secs(60);
/// Some more than the settings below call for beside connections to the listeners: 8 attempts, 512 kept connections, 320 look-ups, two for each of two
/// threads, 128 others.
const FILES: &str = "--nofile=988:988";
/// What is left for merchants: three quarters of half of the files but for the last three.
const PLACES: usize = 201;
/// Far more than there are places.
const STRANGERS: usize = 700;

#[tokio::test]
async fn where_files_are_few_strangers_who_connect_take_none_from_callbacks_and_the_store() {
    let (folder, backing) = (tempfile::tempdir().expect("a folder"), Backing::of_this_run().await);
    let data = folder.path().join("data");
    let mut deployment = Deployment::init_on(&data, &backing).expect("init");
    deployment.config =
        "callback_concurrency = 4\ncallback_concurrency_slow = 4\ncallback_concurrency_per_merchant = 4\n\
                         callback_concurrency_per_application = 4\nworker_threads = 2\n"
            .to_owned();
    let server = deployment.serve_under(&["prlimit", FILES, "--"]).expect("serve");
    let receiver = Receiver::start().await.expect("a loopback port");
    let merchant = json!({"name": "M", "merchant_id": "m"});
    server.access.provision("POST", "/merchants", merchant).await.expect("a merchant");
    let client_id = server.access.application("m", Some(&receiver.url())).await.expect("an application").client_id;

    // All are connected as far as they can tell: those that have no place wait at the listener's door.
    let mut strangers = Vec::new();
    for _ in 0..STRANGERS {
        strangers.push(TcpStream::connect(server.listen).await.expect("a place at the door"));
    }
    let files = format!("/proc/{}/fd", server.pid());
    let (mut open, mut before) = (0, None);
    // Until it takes no more of them.
    until("the places are taken", SOON, async || {
        open = std::fs::read_dir(&files)?.count();
        let stays = before.replace(open) == Some(open);
        Ok((stays && open > PLACES).then_some(()))
    })
    .await
    .expect("they are");
    assert!(open < PLACES + 200, "{open} files are open: the others are left to callbacks and the store");
    for n in 1..=20 {
        let event =
            json!({"client_id": client_id, "bizType": "T", "bizId": format!("b{n}"), "bizStatus": "S", "data": {}});
        server.access.provision("POST", "/events", event).await.expect("an event");
        let received = receiver.wait_for(n, SOON).await.expect("callbacks");
        assert_eq!(received[n - 1].need("x-service-attempt"), "1", "none was in vain");
    }
    let log = std::fs::read_to_string(data.join("serve.log")).expect("a log");
    assert!(log.contains("this process may open 988 files"), "{log}");
    drop(strangers);
    assert!(server.terminate().expect("told to stop"));
}
