//! What a deployment's own books say about fee rules and events, asked by its operator API: for checks after a kill.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::operator::OperatorAccess;
use crate::patience;
use crate::wire::{Answer, Connection};

/// How long the books may be out of reach: after a failover the proxy has no node for a moment.
const AWAY_MAX: Duration = Duration::from_secs(60);

/// Reads the books on this connection, or on another one where nobody is there to answer yet.
pub async fn read(access: &OperatorAccess, connection: &mut Connection, path: &str) -> Result<Answer> {
    let mut ask = async || {
        // A proxy that takes a node for gone breaks off what is under way there.
        match access.call_on(connection, "GET", path).await {
            Ok(answer) if !matches!(answer.status, 502..=504) => return Ok(Some(answer)),
            Ok(_) | Err(_) => {}
        }
        *connection = Connection::open(access.address).await?;
        Ok(None)
    };
    Ok(patience::until(path, AWAY_MAX, &mut ask).await?.0)
}

/// All versions of a sub-account, newest first.
pub async fn versions(access: &OperatorAccess, sub: &str) -> Result<Vec<Value>> {
    versions_on(&mut Connection::open(access.address).await?, access, sub).await
}

async fn versions_on(connection: &mut Connection, access: &OperatorAccess, sub: &str) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    let mut after = String::new();
    loop {
        let path = format!("/operator/v1/fee-rules?sub_merchant_id={sub}&limit=500{after}");
        let page = read(access, connection, &path).await?;
        ensure!(page.status == 200, "fee rules cannot be listed: {} {}", page.status, page.json());
        let page = page.json();
        all.extend(page["items"].as_array().context("items")?.iter().cloned());
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return Ok(all),
        }
    }
}

/// The config ids of all versions of `bank-1` to `bank-<subs>`.
pub async fn config_ids(access: &OperatorAccess, subs: usize) -> Result<HashSet<String>> {
    let mut all = HashSet::new();
    let mut connection = Connection::open(access.address).await?;
    for n in 1..=subs {
        for version in versions_on(&mut connection, access, &format!("bank-{n}")).await? {
            all.insert(version["config_id"].as_str().context("a config id")?.to_owned());
        }
    }
    Ok(all)
}

/// Versions are 1, 2, 3 ... without a gap, for `bank-1` to `bank-<subs>`. How many there are in all.
pub async fn check_versions(access: &OperatorAccess, subs: usize) -> Result<usize> {
    let mut count = 0;
    let mut connection = Connection::open(access.address).await?;
    for n in 1..=subs {
        let all = versions_on(&mut connection, access, &format!("bank-{n}")).await?;
        let numbers: Vec<_> = all.iter().rev().filter_map(|v| v["version_no"].as_i64()).collect();
        let wanted: Vec<_> = (1..=i64::try_from(numbers.len())?).collect();
        ensure!(numbers == wanted, "the versions of bank-{n} have a gap: {numbers:?}");
        count += all.len();
    }
    Ok(count)
}

/// Every one of these versions and events is there.
pub async fn check_acknowledged<'a>(
    access: &OperatorAccess,
    subs: usize,
    config_ids_told: impl Iterator<Item = &'a String>,
    events: impl Iterator<Item = &'a String>,
) -> Result<()> {
    let there = config_ids(access, subs).await?;
    for config_id in config_ids_told {
        ensure!(there.contains(config_id), "the acknowledged version {config_id} is lost");
    }
    let mut connection = Connection::open(access.address).await?;
    for event_id in events {
        let answer = read(access, &mut connection, &format!("/operator/v1/events/{event_id}")).await?;
        ensure!(answer.status == 200, "the acknowledged event {event_id} is lost");
    }
    Ok(())
}
