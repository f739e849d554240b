//! The key that evidence is signed with: it is used, and then looked for like every other secret.

use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use countersign::chance::{hex, unhex};
use countersign::run::backup::read_trailer;
use countersign::vault::{EVIDENCE_KEY_ROW, Vault};
use countersign_store::SqliteStore;
use serde_json::json;
use zeroize::Zeroizing;

use crate::process::Server;
use crate::wire::{Answer, Connection};

/// Has the evidence of an order made: what was answered.
pub async fn use_it(server: &Server) -> Result<Vec<Answer>> {
    let access = &server.access;
    access.provision("POST", "/merchants", json!({"name": "signs", "merchant_id": "signs"})).await?;
    let signer = access.application("signs", None).await?;
    let body = json!({"merchantTradeNo": "S-1", "currency": "USDT", "orderAmount": "1"}).to_string();
    let draft = signer.draft("POST", "/v1/pay/order", body.as_bytes());
    let made = Connection::open(server.listen).await?.send(&draft.bytes()).await?;
    let id = made.json()["data"]["prepayId"].as_str().context("an order")?.to_owned();
    let key = access.call("GET", "/operator/v1/evidence/key", None).await?;
    let path = format!("/operator/v1/payment-orders/{id}/evidence");
    let evidence = access.call("GET", &path, None).await?;
    let is_signed = String::from_utf8_lossy(&evidence.body).contains("{\"signature\":");
    ensure!(is_signed, "no evidence was made: {} {}", evidence.status, String::from_utf8_lossy(&evidence.body));
    Ok(vec![made, key, evidence])
}

/// The private key, hexadecimal: out of a backup, and opened with the master key.
pub fn taken_out(backup: &Path, folder: &Path, master: &str) -> Result<String> {
    let database = folder.join("opened");
    let length = read_trailer(backup)?.bytes;
    std::io::copy(&mut std::fs::File::open(backup)?.take(length), &mut std::fs::File::create(&database)?)?;
    let setting = SqliteStore::peek(&database, "evidence_key")?.context("a sealed key")?;
    std::fs::remove_file(&database)?;
    let master = unhex(master).and_then(|bytes| bytes.try_into().ok()).context("a master key")?;
    let (key_id, sealed) = setting.split_once(':').context("the id of a master key")?;
    let sealed = unhex(sealed).context("what is sealed")?;
    let seed = Vault::new(&Zeroizing::new(master)).open(key_id, EVIDENCE_KEY_ROW, &sealed)?;
    Ok(hex(&seed))
}
