//! `countersign listen`: every event to a handler on this machine, in order, once, whatever happens in between.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use countersign_sdk::CallbackVerifier;
use countersign_testkit::patience;
use countersign_testkit::process::bare;
use countersign_testkit::receiver::{Received, Receiver, Reply};
use countersign_testkit::world::World;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

mod clocks;
mod waits;

const WITHIN: Duration = Duration::from_secs(30);

struct Shop {
    world: World,
    client_id: String,
    secret: String,
}

impl Shop {
    async fn open() -> Self {
        let world = World::start().await.expect("starts");
        let shop = json!({"name": "shop", "merchant_id": "shop"});
        world.access.provision("POST", "/merchants", shop).await.expect("is made");
        let made = world.access.provision("POST", "/merchants/shop/applications", json!({"name": "till"})).await;
        let made = made.expect("is made");
        let text = |name: &str| made[name].as_str().expect("a text").to_owned();
        Self { client_id: text("client_id"), secret: text("payment_api_secret"), world }
    }

    async fn happens(&self, order: usize) {
        let event = json!({"client_id": self.client_id, "bizType": "PAYMENT_ORDER", "bizId": format!("order-{order}"),
            "bizStatus": "SUCCESS", "data": {"merchantTradeNo": format!("T-{order}"), "amount": "1.10"}});
        self.world.access.provision("POST", "/events", event).await.expect("is written");
    }

    /// How often somebody asked for events.
    async fn questions(&self) -> anyhow::Result<usize> {
        let answer = self.world.access.call("GET", "/metrics", None).await?;
        let text = String::from_utf8(answer.body)?;
        let counts = text.lines().filter(|line| line.starts_with("countersign_requests_total{endpoint=\"events\""));
        counts.map(|line| Ok(line.rsplit(' ').next().unwrap_or_default().parse::<usize>()?)).sum()
    }

    fn listens(&self, forward: &str, more: &[&str]) -> Listener {
        Listener::of(&mut self.listen(forward, more))
    }

    fn listen(&self, forward: &str, more: &[&str]) -> Command {
        self.listen_at(self.world.listen(), forward, more)
    }

    fn listen_at(&self, server: SocketAddr, forward: &str, more: &[&str]) -> Command {
        let mut command = bare();
        command
            .args(["listen", "--forward", forward, "--url", &format!("http://{server}")])
            .args(more)
            .env("COUNTERSIGN_CLIENT_ID", &self.client_id)
            .env("COUNTERSIGN_SECRET", &self.secret);
        command
    }
}

/// The program. Killed when it is dropped.
struct Listener {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Listener {
    fn of(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("runs");
        let said = BufReader::new(child.stdout.take().expect("is piped"));
        Self { child, said }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).expect("is read");
        line
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn orders(received: &[Received]) -> Vec<(String, String)> {
    let of = |request: &Received| {
        let body: serde_json::Value = serde_json::from_slice(&request.body).expect("JSON");
        (body["bizId"].as_str().expect("a text").to_owned(), request.need("x-service-attempt").to_owned())
    };
    received.iter().map(of).collect()
}

fn pair(order: &str, attempt: &str) -> (String, String) {
    (order.to_owned(), attempt.to_owned())
}

fn cursor(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_event_comes_in_order_through_failures_and_a_new_start() {
    let shop = Shop::open().await;
    let handler = Receiver::start().await.expect("starts");
    let file = shop.world.folder().join("cursor");
    let flags = ["--after", "0", "--cursor", file.to_str().expect("a path")];
    for order in 1..=3 {
        shop.happens(order).await;
    }
    handler.script([Reply::Success, Reply::Fail, Reply::Reset, Reply::Success, Reply::Success]);
    let mut listener = shop.listens(&handler.url(), &flags);
    assert!(listener.line().contains("bringing events after seq 0 to"));
    let received = handler.wait_for(5, WITHIN).await.expect("comes");
    let wanted =
        [pair("order-1", "1"), pair("order-2", "1"), pair("order-2", "2"), pair("order-2", "3"), pair("order-3", "1")];
    assert_eq!(orders(&received), wanted);
    // What the server itself would send: a receiver cannot tell the difference.
    let verifier = CallbackVerifier::new(&shop.client_id, &*shop.secret).expect("a secret");
    for request in &received {
        let callback = verifier.verify_now(|name| request.header(name), &request.body).expect("is genuine");
        assert_eq!(callback.client_id, shop.client_id);
    }
    for said in ["seq 1 ", "seq 2 ", "seq 2 ", "seq 2 ", "seq 3 "] {
        assert!(listener.line().contains(said), "a line for each attempt");
    }
    let written = async || Ok((cursor(&file) == format!("3 {}\n", shop.client_id)).then_some(()));
    patience::until("the cursor", WITHIN, written).await.expect("is written");
    drop(listener);

    shop.happens(4).await;
    shop.happens(5).await;
    let mut listener = shop.listens(&handler.url(), &flags);
    assert!(listener.line().contains("bringing events after seq 3 to"));
    let received = handler.wait_for(7, WITHIN).await.expect("comes");
    assert_eq!(orders(&received)[5..], [pair("order-4", "1"), pair("order-5", "1")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_the_handler_does_not_take_holds_the_cursor_and_comes_again_after_a_new_start() {
    let shop = Shop::open().await;
    let handler = Receiver::start().await.expect("starts");
    let file = shop.world.folder().join("cursor");
    let flags = ["--after", "0", "--cursor", file.to_str().expect("a path")];
    shop.happens(1).await;
    shop.happens(2).await;
    // The last one is still in hand when the listener goes: no other follows.
    handler.script([Reply::Success, Reply::Fail, Reply::Held]);
    let listener = shop.listens(&handler.url(), &flags);
    let received = handler.wait_for(3, WITHIN).await.expect("comes");
    assert_eq!(orders(&received), [pair("order-1", "1"), pair("order-2", "1"), pair("order-2", "2")]);
    assert_eq!(cursor(&file), format!("1 {}\n", shop.client_id), "it stands at what was taken last");
    drop(listener);

    let so_far = received.len();
    let mut listener = shop.listens(&handler.url(), &flags);
    assert!(listener.line().contains("bringing events after seq 1 to"));
    let received = handler.wait_for(so_far + 1, WITHIN).await.expect("comes");
    assert_eq!(orders(&received)[so_far..], [pair("order-2", "1")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_cursor_it_begins_with_what_happens_from_now_on() {
    let shop = Shop::open().await;
    let handler = Receiver::start().await.expect("starts");
    for so_far in 0..=6 {
        let mut listener = shop.listens(&handler.url(), &[]);
        let line = listener.line();
        assert!(line.contains(&format!("bringing events after seq {so_far} to")), "{line}");
        shop.happens(so_far + 1).await;
        handler.wait_for(so_far + 1, WITHIN).await.expect("comes");
    }
    let all: Vec<String> = orders(&handler.received()).into_iter().map(|(order, _)| order).collect();
    assert_eq!(all, (1..=7).map(|n| format!("order-{n}")).collect::<Vec<_>>());
}

/// Stands before a server and answers the second question in its place, as a network does that wants to be signed in to.
async fn sign_in_page_before(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("has one");
    tokio::spawn(async move {
        let mut asked = 0;
        while let Ok((mut client, _)) = listener.accept().await {
            let mut behind = TcpStream::connect(server).await.expect("it listens");
            let mut bytes = vec![0; 64 * 1024];
            // Question and answer are small, and each goes out at once.
            while let Ok(read @ 1..) = client.read(&mut bytes).await {
                asked += 1;
                let page = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 14\r\n\r\n<p>Sign in</p>";
                if asked == 2 {
                    client.write_all(page).await.expect("it reads");
                    continue;
                }
                behind.write_all(&bytes[..read]).await.expect("it reads");
                let read = behind.read(&mut bytes).await.expect("it answers");
                client.write_all(&bytes[..read]).await.expect("it reads");
            }
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_somebody_else_ends_nothing_while_it_looks_for_the_newest_event() {
    let shop = Shop::open().await;
    shop.happens(1).await;
    shop.happens(2).await;
    let before = sign_in_page_before(shop.world.listen()).await;
    let handler = Receiver::start().await.expect("starts");
    let mut listener = Listener::of(&mut shop.listen_at(before, &handler.url(), &[]));
    let said = listener.line();
    assert!(said.contains("no events now: ") && said.ends_with("; asking again\n"), "{said}");
    let said = listener.line();
    assert!(said.contains("bringing events after seq 2 to "), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cursor_is_one_listener_s_at_a_time() {
    let shop = Shop::open().await;
    let handler = Receiver::start().await.expect("starts");
    let file = shop.world.folder().join("cursor");
    let flags = ["--after", "0", "--cursor", file.to_str().expect("a path")];
    let mut listener = shop.listens(&handler.url(), &flags);
    assert!(listener.line().contains("bringing events after seq 0 to"));
    let link = shop.world.folder().join("link");
    std::os::unix::fs::symlink(&file, &link).expect("links");
    for name in [&file, &link] {
        let flags = ["--after", "0", "--cursor", name.to_str().expect("a path")];
        let mut second =
            shop.listen(&handler.url(), &flags).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("runs");
        let ended = async || Ok(second.try_wait()?);
        let ended = patience::until("the second's end", WITHIN, ended).await;
        let _ = second.kill();
        let mut said = String::new();
        second.stderr.take().expect("is piped").read_to_string(&mut said).expect("is read");
        assert_eq!(ended.expect("ends").0.code(), Some(1), "{said}");
        let wanted = format!("countersign: the cursor {} is in use by another", file.display());
        assert!(said.starts_with(&wanted) && said.lines().count() == 1, "{said}");
    }
    shop.happens(1).await;
    handler.wait_for(1, WITHIN).await.expect("comes");

    // However it ends, the next one goes on, on the cursor that was replaced since.
    let written = async || Ok((cursor(&file) == format!("1 {}\n", shop.client_id)).then_some(()));
    patience::until("the cursor", WITHIN, written).await.expect("is written");
    drop(listener);
    let mut listener = shop.listens(&handler.url(), &flags);
    assert!(listener.line().contains("bringing events after seq 1 to"));
    assert_eq!(orders(&handler.received()), [pair("order-1", "1")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_begins_behind_the_newest_event_says_so_and_one_that_begins_at_it_does_not() {
    let shop = Shop::open().await;
    let handler = Receiver::start().await.expect("starts");
    shop.happens(1).await;
    let before = shop.questions().await.expect("is counted");
    let mut listener = shop.listen(&handler.url(), &["--after", "1"]).stderr(Stdio::piped()).spawn().expect("runs");
    // The first page, whether there is the event before, and the pages afterwards.
    let has_looked = async || Ok((shop.questions().await? >= before + 4).then_some(()));
    patience::until("some questions", WITHIN, has_looked).await.expect("come");
    listener.kill().expect("runs");
    listener.wait().expect("ends");
    let mut said = String::new();
    listener.stderr.take().expect("is piped").read_to_string(&mut said).expect("is read");
    assert_eq!(said, "");

    for order in 2..=5 {
        shop.happens(order).await;
    }
    let file = shop.world.folder().join("cursor");
    std::fs::write(&file, format!("9 {}\n", shop.client_id)).expect("is written");
    let beyond = ["--cursor", file.to_str().expect("a path")];
    for (flags, after) in [(&["--after", "6"][..], 6), (&beyond[..], 9)] {
        let mut listener = shop.listen(&handler.url(), flags).stderr(Stdio::piped()).spawn().expect("runs");
        let stderr = listener.stderr.take().expect("is piped");
        let line = tokio::task::spawn_blocking(|| BufReader::new(stderr).lines().next());
        let line = tokio::time::timeout(WITHIN, line).await;
        // Also where nothing was said: the line would be waited for until it ends.
        listener.kill().expect("runs");
        listener.wait().expect("ends");
        let said = line.expect("says something").expect("is read").expect("a line").expect("is a text");
        let wanted = format!("the newest event is seq 5: nothing comes until there is one after seq {after}");
        assert_eq!(said, format!("countersign: {wanted}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_go_well_ends_with_one_sentence() {
    let mut shop = Shop::open().await;
    shop.secret = "sk_of_somebody_else".to_owned();
    let output = |more: &[&str]| {
        let mut command = bare();
        command
            .args(["listen", "--forward", "http://127.0.0.1:9/callback"])
            .args(["--url", &format!("http://{}", shop.world.listen())])
            .args(more)
            .env("COUNTERSIGN_CLIENT_ID", &shop.client_id)
            .env("COUNTERSIGN_SECRET", &shop.secret);
        command.output().expect("runs")
    };
    let file = shop.world.folder().join("no-cursor");
    std::fs::write(&file, "three").expect("is written");
    let unreadable = ["--cursor", file.to_str().expect("a path")];
    let foreign = shop.world.folder().join("foreign");
    std::fs::write(&foreign, "3 app_other\n").expect("is written");
    let foreign = ["--cursor", foreign.to_str().expect("a path")];
    let nobodys = shop.world.folder().join("nobodys");
    std::fs::write(&nobodys, "3\n").expect("is written");
    let unsaid = format!(
        "countersign: the cursor {} does not say whose it is: if it is that of {}, remove it and say --after 3\n",
        nobodys.display(),
        shop.client_id
    );
    let nobodys = ["--cursor", nobodys.to_str().expect("a path")];
    // A link to it, whose target is what is named.
    let endless = shop.world.folder().join("endless");
    std::os::unix::fs::symlink("/dev/zero", &endless).expect("links");
    let endless = ["--cursor", endless.to_str().expect("a path")];
    let nowhere = shop.world.folder().join("no-folder").join("cursor");
    let nowhere = ["--after", "0", "--cursor", nowhere.to_str().expect("a path")];
    for (more, wanted) in [
        (&["--after", "0"][..], "countersign: events after seq 0 cannot be had: "),
        (&unreadable[..], "countersign: the cursor "),
        (&foreign[..], "countersign: the cursor "),
        (&nobodys[..], &unsaid),
        (&endless[..], "countersign: the cursor /dev/zero is a device: name a regular file\n"),
        (&nowhere[..], "countersign: the cursor "),
    ] {
        let output = tokio::task::block_in_place(|| output(more));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.starts_with(wanted), "{said}");
        assert_eq!((said.lines().count(), output.status.code()), (1, Some(1)), "{said}");
        assert!(!said.contains(&shop.secret));
    }
}

#[test]
fn an_address_that_is_none_is_told_by_the_name_of_its_option() {
    let mut command = bare();
    command.args(["listen", "--forward", "http://127.0.0.1:9/callback", "--url", "nonsense"]);
    let output =
        command.env("COUNTERSIGN_CLIENT_ID", "app_1").env("COUNTERSIGN_SECRET", "sk_1").output().expect("runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("countersign: --url: \"nonsense\" must begin with http:// or https://"), "{said}");
    assert_eq!((said.lines().count(), output.status.code()), (1, Some(2)), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_ends_well_when_it_is_told_to() {
    let shop = Shop::open().await;
    for signal in ["-TERM", "-INT"] {
        let mut listener = shop.listens("http://127.0.0.1:9/callback", &["--after", "0"]);
        assert!(listener.line().contains("bringing events after seq 0"));
        told_to_end(&listener.child, signal);
        let ended = tokio::task::block_in_place(|| listener.child.wait()).expect("ends");
        assert_eq!(ended.code(), Some(0), "{signal}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_ends_well_once_nobody_reads_what_it_says_and_brings_nothing_more() {
    let shop = Shop::open().await;
    let handler = Receiver::start().await.expect("starts");
    let file = shop.world.folder().join("cursor");
    let flags = ["--after", "0", "--cursor", file.to_str().expect("a path")];
    let mut child = shop.listen(&handler.url(), &flags).stdout(Stdio::piped()).spawn().expect("runs");
    let mut said = BufReader::new(child.stdout.take().expect("is piped"));
    let mut line = String::new();
    tokio::task::block_in_place(|| said.read_line(&mut line)).expect("is read");
    assert!(line.contains("bringing events after seq 0"), "{line}");
    drop(said);
    for order in 1..=3 {
        shop.happens(order).await;
    }
    assert_eq!(end_of(&mut child).await.code(), Some(0));
    assert_eq!(orders(&handler.received()), [pair("order-1", "1")]);
    assert_eq!(cursor(&file), format!("1 {}\n", shop.client_id), "what was brought is noted");
}

/// Asks a process to end.
fn told_to_end(child: &Child, signal: &str) {
    assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().expect("runs").success());
}

/// How it ended. It is ended where it does not by itself.
async fn end_of(child: &mut Child) -> ExitStatus {
    let ended = async || Ok(child.try_wait()?);
    let ended = patience::until("its end", WITHIN, ended).await;
    let _ = child.kill();
    ended.expect("ends").0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn told_to_end_while_the_handler_works_it_waits_for_the_answer_and_brings_no_other() {
    let shop = Shop::open().await;
    let handler = Receiver::start().await.expect("starts");
    let file = shop.world.folder().join("cursor");
    let flags = ["--after", "0", "--cursor", file.to_str().expect("a path")];
    for order in 1..=4 {
        shop.happens(order).await;
    }
    // What the handler says in the end, and where the cursor stands then.
    for (turn, (signal, reply, taken)) in
        [("-TERM", Reply::Held, 1), ("-INT", Reply::Held, 2), ("-TERM", Reply::HeldStatus(500), 2)]
            .into_iter()
            .enumerate()
    {
        handler.script([reply]);
        let mut command = shop.listen(&handler.url(), &flags);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("runs");
        let came = handler.wait_for(turn + 1, WITHIN).await;
        told_to_end(&child, signal);
        let mut said = BufReader::new(child.stderr.take().expect("is piped"));
        let mut line = String::new();
        // Its end, where it does not wait, is an empty line.
        tokio::task::block_in_place(|| said.read_line(&mut line)).expect("is read");
        handler.release(1);
        let ended = end_of(&mut child).await;
        let seq = turn + 1;
        let wanted = format!("waiting for the handler's answer to seq {seq}, 15 s at most; ask again to end at once");
        assert_eq!(line, format!("countersign: {wanted}\n"));
        assert_eq!(ended.code(), Some(0), "{signal}");
        assert_eq!(came.expect("comes").len(), turn + 1);
        assert_eq!(cursor(&file), format!("{taken} {}\n", shop.client_id));
    }
    let came = [pair("order-1", "1"), pair("order-2", "1"), pair("order-3", "1")];
    assert_eq!(orders(&handler.received()), came, "the events of the same page have waited");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn told_a_second_time_it_ends_at_once_and_the_event_comes_again() {
    let shop = Shop::open().await;
    let handler = Receiver::start().await.expect("starts");
    let file = shop.world.folder().join("cursor");
    let flags = ["--after", "0", "--cursor", file.to_str().expect("a path")];
    shop.happens(1).await;
    handler.script([Reply::Held]);
    let mut command = shop.listen(&handler.url(), &flags);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
    handler.wait_for(1, WITHIN).await.expect("comes");
    told_to_end(&child, "-TERM");
    let mut said = BufReader::new(child.stderr.take().expect("is piped"));
    let mut line = String::new();
    tokio::task::block_in_place(|| said.read_line(&mut line)).expect("is read");
    assert!(line.contains("waiting for the handler's answer"), "{line}");
    told_to_end(&child, "-INT");
    let ended = end_of(&mut child).await;
    assert_eq!((ended.code(), cursor(&file)), (Some(0), format!("0 {}\n", shop.client_id)));
    let mut told = String::new();
    child.stdout.take().expect("is piped").read_to_string(&mut told).expect("is read");
    assert_eq!(told.lines().count(), 1, "the handler still works, and nothing is told of an attempt: {told}");

    let _listener = shop.listens(&handler.url(), &flags);
    let received = handler.wait_for(2, WITHIN).await.expect("comes");
    assert_eq!(orders(&received), [pair("order-1", "1"), pair("order-1", "1")]);
}
