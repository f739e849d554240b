//! An institution's script: notes a sub-account's highest version, upgrades its fee rule, asks what is in force now, lists all rules.
//!
//! ```text
//! COUNTERSIGN_CLIENT_ID=app_... COUNTERSIGN_SECRET=... \
//!   cargo run -p countersign-sdk --example institution -- http://127.0.0.1:8080 MERCHANT_ID SUB_MERCHANT_ID 0.3 "2026-01-02 00:00:00"
//! ```
//!
//! It ends with 1 also where it is not known whether the rule was made.

use std::process::ExitCode;

use anyhow::Context as _;
use countersign_sdk::protocol::endpoint::{rule_list, rule_query, rule_upgrade};
use countersign_sdk::{Client, Decimal, Error};

/// The tolerance for timestamps, 30 s unless the deployment has another, and 10 s in which a request may wait for its turn.
const CONCLUSIVE_S: u32 = 40;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<ExitCode> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [base_url, merchant_id, sub_merchant_id, r_markup, effective_date] = args.as_slice() else {
        anyhow::bail!("arguments: BASE_URL MERCHANT_ID SUB_MERCHANT_ID R_MARKUP EFFECTIVE_DATE");
    };
    let client = Client::builder(base_url, environment("COUNTERSIGN_CLIENT_ID")?, environment("COUNTERSIGN_SECRET")?)
        .merchant_id(merchant_id)
        .build()?;

    let ask = rule_upgrade::Request::new(
        sub_merchant_id,
        Decimal::from_str_exact(r_markup).context("R_MARKUP is no number")?,
        effective_date,
    );
    run(&client, &ask).await
}

pub(crate) async fn run(client: &Client, ask: &rule_upgrade::Request) -> anyhow::Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    // Before it is asked for: where the answer is lost, this tells what was made then from what was there.
    let before = highest_version(client, &ask.sub_merchant_id).await?;
    println!("highest version before: {}", version(before));
    match client.rule_upgrade(ask).await {
        Ok(rule) => println!(
            "version {} of {} is {}: {} % and {} USDT from {}",
            rule.version_no,
            rule.sub_merchant_id,
            rule.status.as_str(),
            rule.r_markup,
            rule.f_markup,
            rule.effective_date
        ),
        // The answer may have been lost after the rule was made, or a balancer has sent the request twice, and this is the answer to the
        // second copy (NONCE_REUSED): look before asking again, or there are two versions.
        Err(error) if error.may_have_been_done() => {
            eprintln!("{}", not_known(&error, before));
            code = ExitCode::FAILURE;
        }
        Err(Error::Refused { label, message, request_id, .. }) => {
            anyhow::bail!("refused with {label}: {message} (request {})", request_id.unwrap_or_default())
        }
        Err(error) => return Err(error.into()),
    }

    let now = client.rule_query(&rule_query::Request::new(&ask.sub_merchant_id)).await?;
    println!("in force now: {}", json(&now)?);

    for record in rules(client, rule_list::Request::default()).await? {
        println!("{}", json(&record)?);
    }
    Ok(code)
}

/// What to do where the answer was lost. A list that is read at once proves nothing.
pub(crate) fn not_known(error: &Error, before: Option<i64>) -> String {
    format!(
        "not known whether the rule was made: {error}\nThe highest version before was: {}. A list tells no sooner than {CONCLUSIVE_S} s from now, until \
         when the request may still be on its way: list the sub-account's rules then, and go by docs/PROTOCOL.md, \"POST /rate/commission_rule/upgrade\". \
         Until then do not ask for it again.",
        version(before)
    )
}

fn version(number: Option<i64>) -> String {
    number.map_or_else(|| "none".to_owned(), |number| number.to_string())
}

/// The highest `version_no` of those that are effective or pending.
pub(crate) async fn highest_version(client: &Client, sub_merchant_id: &str) -> Result<Option<i64>, Error> {
    let sub_merchant_id = Some(sub_merchant_id.to_owned());
    let records = rules(client, rule_list::Request { sub_merchant_id, ..rule_list::Request::default() }).await?;
    Ok(records.iter().filter_map(|record| record.version_no).max())
}

/// All pages of a list.
async fn rules(client: &Client, ask: rule_list::Request) -> Result<Vec<rule_query::Record>, Error> {
    let mut ask = rule_list::Request { page_size: rule_list::PAGE_SIZE_MAX, ..ask };
    let mut records = Vec::new();
    loop {
        let page = client.rule_list(&ask).await?;
        records.extend(page.records);
        if page.current >= page.pages {
            return Ok(records);
        }
        ask.page_num += 1;
    }
}

#[expect(clippy::disallowed_methods, reason = "a script is configured by its environment: a secret is no argument")]
fn environment(name: &str) -> anyhow::Result<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty()).with_context(|| format!("{name} is not set"))
}

fn json<T: serde::Serialize>(value: &T) -> anyhow::Result<String> {
    Ok(serde_json::to_string(value)?)
}
