//! What goes wrong on our side: 500 and 503 are envelopes too, tell nothing, and 503 leaves the nonce open.

use countersign::vault::secret_row;
use countersign_protocol::signing::SigningKey;
use countersign_store::batch::{Batch, Write};
use countersign_store::contract::{SecretRow, Store};
use countersign_testkit::wire::Signer;
use countersign_testkit::world::World;
use serde_json::{Value, json};

use crate::explained::why;
use crate::journey_rule_upgrade::{UPGRADE, bank, date};

#[tokio::test]
async fn a_store_that_takes_no_more_is_a_503_that_leaves_the_nonce_open() {
    let (world, signer) = bank().await;
    let rule = json!({"sub_merchant_id": "bank-1", "r_markup": 0.3, "effective_date": date(&world, -10)}).to_string();
    let warm = world.draft(&signer, "GET", "/v1/pay/events", "");
    assert_eq!(world.send(&warm).await.expect("an answer").code(), "000000");
    let write = world.draft(&signer, "POST", UPGRADE, &rule);
    world.take_store_away().await.expect("the store goes away");
    for draft in [&write, &world.draft(&signer, "GET", "/v1/pay/events", "")] {
        let answer = world.send(draft).await.expect("an answer");
        assert_eq!((answer.status, answer.code().as_str()), (503, "300503"), "{}", answer.json());
        assert!(answer.header("retry-after").is_some());
        assert_eq!(answer.json()["data"], Value::Null);
    }
    let world = world.restart().await.expect("it starts again");
    assert_eq!(
        world.send(&write).await.expect("an answer").code(),
        "000000",
        "nothing was done, and the nonce is open"
    );
}

#[tokio::test]
async fn a_row_that_cannot_be_read_back_is_a_500_without_detail() {
    let (world, signer) = bank().await;
    let broken = broken_application(&world, &signer).await;
    let answer = world.send(&world.draft(&broken, "GET", "/v1/pay/events", "")).await.expect("an answer");
    assert_eq!((answer.status, answer.code().as_str()), (500, "300001"), "{}", answer.json());
    let said = String::from_utf8(answer.body.clone()).expect("text");
    for detail in ["secret", "table", "row", "sqlite", "postgres", "master"] {
        assert!(!said.contains(detail), "{said}");
    }
    let explained = why(&world, &answer).await;
    assert_eq!(explained["line"]["reason"], "store_fault", "{explained}");
    let cause = explained["line"]["error_message"].as_str().expect("a cause");
    assert!(cause.contains("sec_swapped") && cause.contains("cannot be read back"), "{cause}");
    assert!(explained["why"].as_str().is_some_and(|why| why.contains(cause)), "{explained}");
    let fine = world.send(&world.draft(&signer, "GET", "/v1/pay/events", "")).await.expect("an answer");
    assert_eq!(fine.code(), "000000", "others are served");
}

/// An application with a secret that was sealed for another row, and who signs with that.
async fn broken_application(world: &World, signer: &Signer) -> Signer {
    let made = world.access.application("bank", None).await.expect("an application");
    let app = &world.running.app;
    let view = app.store.application(&made.client_id).await.expect("reads").expect("is there");
    let elsewhere = secret_row(&signer.client_id, "sec_other");
    let secret = SecretRow {
        secret_id: "sec_swapped".to_owned(),
        sealed: app.vault.seal(&app.chance, &elsewhere, b"stolen").1,
        ..view.secrets[0].clone()
    };
    app.store.commit(Batch(vec![Write::InsertSecret(Box::new(secret))])).await.expect("written");
    // Where nodes share the store it may have been read already, when it was made.
    app.callers.forget(&made.client_id);
    Signer { key: SigningKey::new(b"stolen"), ..made }
}
