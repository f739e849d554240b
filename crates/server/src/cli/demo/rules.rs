//! Journey (a): a fee rule that is pending, and then in force at its exact second; and what orders cost before and after it.

use std::time::Duration;

use countersign_domain::time::{RuleZone, UnixMillis};
use countersign_protocol::endpoint::{RuleStatus, rule_create, rule_query, rule_upgrade};
use countersign_sdk::Client;
use rust_decimal::Decimal;

use super::payments;
use super::screen::Screen;
use super::stage::{Cast, Stage};
use crate::clock::Clock;

/// How long before the rule's instant the last look at the old rule is taken.
const LAST_LOOK_MS: i64 = 150;

/// A node knows its database's time to some milliseconds; one that is later than this is wrong.
const LATE_MS_MAX: i64 = 2_000;

/// Between two questions about the rule in force: ten in two seconds stay far below the application's rate.
const ASKED_EVERY: Duration = Duration::from_millis(200);

/// Walks it.
pub async fn walk(stage: &mut Stage, cast: &Cast, screen: &mut Screen) -> anyhow::Result<()> {
    screen.chapter(
        "A fee rule: pending, then in force",
        "Harbour Bank's program, using the SDK, sets what Corner Shop pays on top of the bank's base rate (0.5 % and 0.1 USDT). \
         Each call is signed with HMAC-SHA512 over timestamp, nonce and body.",
    );
    let client = stage.client(&cast.institution)?;
    let sub = &cast.sub_account.merchant_id;
    let first = create(&client, sub, screen).await?;
    screen.say("Corner Shop sells something while version 1 is in force:");
    let cheap = payments::pay(stage, cast, "till-7-0001", screen).await?;
    screen.proves(
        payments::is_priced(&cheap, &first.config_id, "0.0375", "0"),
        "0.3 % of 12.5 USDT and nothing more: the order names the version and carries the sum worked out.",
    );
    let ahead_ms = if stage.fast { 2_000 } else { 4_000 };
    let (second, starts_at) = upgrade(&client, sub, &first.config_id, ahead_ms, screen).await?;
    still_the_first(&client, sub, &first.config_id, starts_at, screen).await?;
    at_its_second(&client, sub, &second, starts_at, screen).await?;
    screen.say("Corner Shop sells the same once more:");
    let dear = payments::pay(stage, cast, "till-7-0002", screen).await?;
    screen.proves(
        payments::is_priced(&dear, &second.config_id, "0.03125", "0.2"),
        "The same amount costs 0.25 % and 0.2 USDT now, under version 2.",
    );
    payments::still_costs(stage, cast, &cheap, screen).await?;
    asked_later(&client, sub, &first.config_id, &second.config_id, starts_at, screen).await
}

async fn create(client: &Client, sub: &str, screen: &mut Screen) -> anyhow::Result<rule_create::Response> {
    let request = rule_create::Request(rule_upgrade::Request {
        sub_merchant_id: sub.to_owned(),
        r_markup: Decimal::new(3, 1),
        f_markup: Decimal::ZERO,
        effective_date: RuleZone::utc().format(Clock::System.now()),
        due_date: None,
    });
    screen.say("The first rule: 0.3 % more, from now on.");
    screen.sent("POST /rate/commission_rule", Some(&String::from_utf8_lossy(&request.to_body())));
    let made = client.rule_create(&request).await?;
    screen.got("data", &serde_json::to_string(&made)?);
    let holds = made.status == RuleStatus::Effective && made.version_no == 1 && made.previous_config_id.is_none();
    screen.proves(holds, "Its time is reached, so version 1 is EFFECTIVE at once, and nothing came before it.");
    Ok(made)
}

async fn upgrade(
    client: &Client,
    sub: &str,
    previous: &str,
    ahead_ms: i64,
    screen: &mut Screen,
) -> anyhow::Result<(rule_upgrade::Response, UnixMillis)> {
    let now = Clock::System.now().0;
    let starts_at = UnixMillis((now + ahead_ms + 999) / 1000 * 1000);
    let request = rule_upgrade::Request {
        sub_merchant_id: sub.to_owned(),
        r_markup: Decimal::new(25, 2),
        f_markup: Decimal::new(2, 1),
        effective_date: RuleZone::utc().format(starts_at),
        due_date: None,
    };
    screen.say(&format!(
        "An upgrade: 0.25 % and 0.2 USDT, from {} on, which is some seconds ahead.",
        request.effective_date
    ));
    screen.sent("POST /rate/commission_rule/upgrade", Some(&String::from_utf8_lossy(&request.to_body())));
    let made = client.rule_upgrade(&request).await?;
    screen.got("data", &serde_json::to_string(&made)?);
    let holds = made.status == RuleStatus::PendingEffective
        && made.version_no == 2
        && made.previous_config_id.as_deref() == Some(previous);
    let claim = "Version 2 is there, names version 1 as the one before it, and is PENDING_EFFECTIVE.";
    before(starts_at, holds, claim, screen);
    Ok((made, starts_at))
}

async fn query(
    client: &Client,
    sub: &str,
    at: Option<UnixMillis>,
    screen: &Screen,
) -> anyhow::Result<rule_query::Response> {
    let request =
        rule_query::Request { sub_merchant_id: sub.to_owned(), query_time: at.map(|at| RuleZone::utc().format(at)) };
    screen.sent(&format!("GET /rate/commission_rule?{}", request.to_query()), None);
    let found = client.rule_query(&request).await?;
    screen.got("data", &serde_json::to_string(&found)?);
    Ok(found)
}

fn is(found: &rule_query::Response, config_id: &str) -> bool {
    found.config_id.as_deref() == Some(config_id)
}

async fn still_the_first(
    client: &Client,
    sub: &str,
    first: &str,
    starts_at: UnixMillis,
    screen: &mut Screen,
) -> anyhow::Result<()> {
    screen.say("What is in force now?");
    let found = query(client, sub, None, screen).await?;
    let claim = "Version 1 goes on being in force while version 2 waits: the bank's 0.5 % plus 0.3 %.";
    before(starts_at, is(&found, first), claim, screen);
    wait_until(UnixMillis(starts_at.0 - LAST_LOOK_MS)).await;
    screen.say(&format!("A last look, {LAST_LOOK_MS} ms before the second."));
    let found = query(client, sub, None, screen).await?;
    before(starts_at, is(&found, first), "Still version 1: no rule starts early.", screen);
    Ok(())
}

/// What holds before the rule's instant, where there was time to see it.
fn before(starts_at: UnixMillis, holds: bool, claim: &str, screen: &mut Screen) {
    if Clock::System.now() < starts_at {
        screen.proves(holds, claim);
    } else {
        screen.detail("(this machine was too busy to look in time, so this shows nothing)");
    }
}

async fn at_its_second(
    client: &Client,
    sub: &str,
    second: &rule_upgrade::Response,
    starts_at: UnixMillis,
    screen: &mut Screen,
) -> anyhow::Result<()> {
    wait_until(starts_at).await;
    screen.say(&format!("It is {}. The first query after that second:", second.effective_date));
    let (holds, late_ms) = loop {
        let found = query(client, sub, None, screen).await?;
        let late_ms = Clock::System.now().0 - starts_at.0;
        let holds = is(&found, &second.config_id) && found.status == Some(RuleStatus::Effective);
        if holds || late_ms > LATE_MS_MAX {
            break (holds, late_ms);
        }
        tokio::time::sleep(ASKED_EVERY).await;
    };
    screen.proves(holds, &format!("Version 2 is in force, seen {late_ms} ms after its second. No timer did that: what is in force is computed from rows and time."));
    Ok(())
}

async fn asked_later(
    client: &Client,
    sub: &str,
    first: &str,
    second: &str,
    starts_at: UnixMillis,
    screen: &mut Screen,
) -> anyhow::Result<()> {
    screen.say("The past can be asked for: one second before, and the second itself.");
    let before = query(client, sub, Some(UnixMillis(starts_at.0 - 1_000)), screen).await?;
    let after = query(client, sub, Some(starts_at), screen).await?;
    let holds = is(&before, first) && is(&after, second);
    screen.proves(
        holds,
        "One second before it was version 1, from the second on version 2: an old price can always be explained.",
    );
    Ok(())
}

async fn wait_until(at: UnixMillis) {
    loop {
        let left_ms = at.0 - Clock::System.now().0;
        let Ok(left_ms @ 1..) = u64::try_from(left_ms) else { return };
        tokio::time::sleep(Duration::from_millis(left_ms)).await;
    }
}
