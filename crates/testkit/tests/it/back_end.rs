//! The example of a back end against a real server, behind a proxy that loses every second answer.

use std::net::SocketAddr;

use countersign_testkit::world::World;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::journey_convert::{CONVERT, PREVIEW, carry_out};
use crate::journey_rule_upgrade::{bank, good};

#[expect(dead_code, reason = "the example's own main reads lines")]
#[path = "../../../sdk/examples/back_end.rs"]
mod example;

/// What becomes of an answer.
#[derive(Clone, Copy)]
enum Way {
    Lost,
    /// Its head arrives, and of its body nothing.
    BrokenOff,
    Whole,
}

/// Takes requests to `to`, each on a connection of its own, and cuts every second one off once its answer begins to come, or has begun to arrive.
pub async fn lossy(to: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        for number in 0_u64.. {
            let Ok((client, _)) = listener.accept().await else { return };
            let server = TcpStream::connect(to).await.expect("the server is there");
            let way = match number % 4 {
                0 => Way::Lost,
                2 => Way::BrokenOff,
                _ => Way::Whole,
            };
            tokio::spawn(pass(client, server, way));
        }
    });
    address
}

async fn pass(mut client: TcpStream, mut server: TcpStream, way: Way) {
    let (mut up, mut down) = ([0; 4096], [0; 4096]);
    loop {
        tokio::select! {
            read = client.read(&mut up) => match read {
                Ok(count) if count > 0 => server.write_all(&up[..count]).await.expect("is passed on"),
                _ => return,
            },
            read = server.read(&mut down) => {
                let Ok(count @ 1..) = read else { return };
                let end = down.windows(4).position(|four| four == b"\r\n\r\n").map_or(0, |at| at + 4);
                let count = match way {
                    // The answer was given, and nobody gets it.
                    Way::Lost => return,
                    Way::BrokenOff => end,
                    Way::Whole => count,
                };
                client.write_all(&down[..count]).await.expect("is passed back");
                // The next request comes on a new connection.
                return client.shutdown().await.unwrap_or_default();
            },
        }
    }
}

/// More digits than floating point keeps.
const LONG: &str = "0.123456789012345678";

async fn shown(world: &World, path: &str) -> Value {
    world.access.call("GET", &format!("/operator/v1{path}"), None).await.expect("an answer").json()
}

#[tokio::test]
async fn the_example_of_a_back_end_does_everything_once_though_answers_are_lost() {
    let (world, signer) = bank().await;
    let token = world.access.provision("POST", "/tokens", json!({"name": "back end", "role": "operator"})).await;
    let token = token.expect("a token")["token"].as_str().expect("its text").to_owned();
    let way = format!("http://{}", lossy(world.access.address).await);
    let back_end = example::BackEnd::new(&way, &token).expect("a client");
    let play = async |line: &str, key: &str| {
        back_end.play(line, key).await.unwrap_or_else(|error| panic!("{line}: {error:#}"))
    };

    assert!(play("rate GT_USDT 22.38741462", "k1").await.starts_with("GT_USDT is 22.38741462"));
    assert_eq!(shown(&world, "/rates/GT_USDT").await["revision"], 1, "put once");
    let mut orders = Vec::new();
    for name in ["r-1", "r-2"] {
        let ask = json!({"sellCurrency": "GT", "buyCurrency": "USDT", "sellAmount": "2"});
        let quote = good(&world, &signer, "POST", PREVIEW, &ask).await;
        let order = good(&world, &signer, "POST", CONVERT, &carry_out(name, &quote)).await;
        orders.push(order["order_id"].as_str().expect("an id").to_owned());
    }
    play(&format!("converted {}", orders[0]), "k2").await;
    play(&format!("not-converted {}", orders[1]), "k3").await;
    for (order, status) in orders.iter().zip([3, 6]) {
        let shown = shown(&world, &format!("/convert-orders/{order}")).await;
        assert_eq!((&shown["status"], shown["moves"].as_array().map(Vec::len)), (&json!(status), Some(2)), "{shown}");
    }
    let address = format!(
        "address {} T-1 TRANSFERRED_ADDRESS_DELAY {{\"merchantTradeNo\": \"T-1\", \"amount\": {LONG}}}",
        signer.client_id
    );
    play(&address, "k4").await;
    let events = shown(&world, "/events").await;
    assert_eq!(events["items"].as_array().map(Vec::len), Some(1), "emitted once: {events}");
    assert_eq!(events["items"][0]["bizType"], "TRANSFER_ADDRESS");
    let event = events["items"][0]["event_id"].as_str().expect("an id");
    let event = world.access.call("GET", &format!("/operator/v1/events/{event}"), None).await.expect("an answer");
    assert!(String::from_utf8_lossy(&event.body).contains(LONG), "every digit of the data goes on");
    let said = play(&format!("rate GT_BTC {LONG}"), "k7").await;
    assert!(said.contains(&format!(" is {LONG} since ")), "{said}");

    // What is refused is not tried again and again.
    let again = back_end.play(&format!("converted {}", orders[1]), "k5").await.expect_err("it is final");
    assert!(again.to_string().contains("INVALID_ORDER_STATUS"), "{again:#}");
    let nonsense = back_end.play("rates GT_USDT", "k6").await.expect_err("no such line");
    assert!(nonsense.to_string().contains("rate PAIR RATE"), "{nonsense:#}");
}
