//! The order itself: its request, its rule, its fee, its moves.

use countersign_domain::ids::config_id;
use countersign_domain::money::Amount;
use countersign_domain::payment_order::PaymentStatus;
use countersign_domain::rules::RuleVersion;
use countersign_domain::time::{UnixMillis, parse_rfc3339};
use countersign_store::contract::{AuditKey, AuditRow, Cursor, MerchantKind, MerchantRow};
use countersign_store::payment_order::{PaymentMoveRow, PaymentOrderRow, PaymentOrders as _, Received};
use countersign_store::{Store as _, StoreError};

use super::{Actor, App, AppError, PrepayId, SigningKey, TRIES_MAX};
use crate::app::identity::kind_name;
use crate::app::payment_orders::{self, Shown};
use crate::app::settings::{INITIALISED_AT, RULE_TIMEZONE};
use crate::chance::hex;
use crate::digest::sha256;
use crate::evidence::{
    At, Entry, FORMAT, Fee, Header, Move, Octets, Order, Request, RuleVersion as Rule, Sum, VERSION,
};

/// Lines of the audit log that are looked at for who made a rule version. Only those of its very millisecond can be it.
const AUDIT_LOOK: u32 = 500;

/// What is read before the first line, and fits together.
pub(super) struct Snapshot {
    pub(super) owner: MerchantRow,
    pub(super) row: PaymentOrderRow,
    pub(super) moves: Vec<PaymentMoveRow>,
    /// When the order stood so.
    at: UnixMillis,
    received: Received,
    rule: Option<(RuleVersion, Option<AuditRow>)>,
}

/// Reads an order until order and moves are of one moment. Moves that do not hang together are those of no moment: the rows are damaged.
pub(super) async fn snapshot(app: &App, id: PrepayId) -> Result<Snapshot, AppError> {
    let damaged = || StoreError::Corrupt { table: "payment_order_move", row: id.to_string() };
    let mut read_before = None;
    for _ in 0..TRIES_MAX {
        let Shown { owner, row, moves, at } = payment_orders::show(app, id).await?;
        if !hang_together(&moves) {
            return Err(damaged().into());
        }
        let read = (row.order.revision, moves.last().map_or(1, |last| last.revision));
        if read.0 != read.1 {
            // The order is read first: others may have moved it since, and then it is read with that move the next time.
            if read.1 < read.0 || read_before == Some(read) {
                return Err(damaged().into());
            }
            read_before = Some(read);
            continue;
        }
        let received = app.store.payment_order_received(row.tenant, row.merchant, id).await?;
        let received = received.ok_or(AppError::OrderNotFound)?;
        let rule = rule(app, &owner, &row).await?;
        return Ok(Snapshot { owner, row, moves, at, received, rule });
    }
    Err(AppError::Busy)
}

/// Whether there is a move for each revision, and each begins where the one before it ended.
fn hang_together(moves: &[PaymentMoveRow]) -> bool {
    let mut before = (1, PaymentStatus::Pending);
    moves.iter().all(|row| {
        let follows = (row.revision, row.was) == (before.0 + 1, before.1);
        before = (row.revision, row.status);
        follows
    })
}

/// The version that the fee rests on, and the line of the audit log that says who made it.
async fn rule(
    app: &App,
    owner: &MerchantRow,
    row: &PaymentOrderRow,
) -> Result<Option<(RuleVersion, Option<AuditRow>)>, AppError> {
    let Some(no) = row.order.fee.as_ref().and_then(|fee| fee.version_no) else { return Ok(None) };
    let page = Cursor { after: no.checked_add(1), limit: 1 };
    let found = app.store.rule_versions(owner.tenant, owner.no, page).await?.into_iter().next();
    let found = found.filter(|version| version.version_no == no);
    let version =
        found.ok_or_else(|| StoreError::Corrupt { table: "payment_order", row: row.order.prepay_id.to_string() })?;
    // Newest first, from the millisecond after on.
    let after = AuditKey { at: version.created_at.plus_ms(1), tenant: None, no: 0 };
    let lines = app.store.audit(Cursor { after: Some(after), limit: AUDIT_LOOK }).await?;
    let id = format!("\"{}\"", config_id(version.config_id));
    let made = |line: &AuditRow| {
        line.tenant == Some(owner.tenant) && line.action.starts_with("fee_rule.") && line.after.contains(&id)
    };
    let line = lines.into_iter().take_while(|line| line.at >= version.created_at).find(made);
    Ok(Some((version, line)))
}

pub(super) async fn header(
    app: &App,
    snapshot: &Snapshot,
    key: &SigningKey,
    actor: &Actor,
) -> Result<Header, StoreError> {
    let lost = |name: &str| StoreError::Corrupt { table: "setting", row: name.to_owned() };
    let initialised = app.store.setting(INITIALISED_AT).await?.as_deref().and_then(parse_rfc3339);
    let zone = app.store.setting(RULE_TIMEZONE).await?;
    Ok(Header {
        format: FORMAT.to_owned(),
        version: VERSION,
        deployment: At(initialised.ok_or_else(|| lost(INITIALISED_AT))?),
        prepay_id: snapshot.row.order.prepay_id.to_string(),
        made_at: At(snapshot.at),
        made_by: actor.name.clone(),
        request_id: actor.request_id.clone(),
        markup_unit: app.policy.markup_unit.name().to_owned(),
        rule_timezone: zone.ok_or_else(|| lost(RULE_TIMEZONE))?,
        public_key: key.public().to_hex(),
    })
}

/// All of it but the header.
pub(super) fn entries(app: &App, snapshot: &Snapshot) -> Result<Vec<Entry>, AppError> {
    let mut entries = vec![Entry::Order(order(snapshot)), Entry::Request(request(&snapshot.received))];
    entries
        .extend(snapshot.rule.as_ref().map(|(version, line)| Entry::RuleVersion(rule_entry(version, line.as_ref()))));
    entries.push(Entry::Fee(fee(app, snapshot)?));
    entries.push(Entry::Move(making(&snapshot.row)));
    entries.extend(snapshot.moves.iter().map(|row| Entry::Move(step(row))));
    Ok(entries)
}

fn order(snapshot: &Snapshot) -> Order {
    let (row, order) = (&snapshot.row, &snapshot.row.order);
    let content = &order.content;
    Order {
        prepay_id: order.prepay_id.to_string(),
        trade_no: order.trade_no.clone(),
        merchant_id: snapshot.owner.merchant_id.clone(),
        merchant_kind: kind_name(snapshot.owner.kind).to_owned(),
        client_id: row.client_id.clone(),
        order_kind: content.kind.name().to_owned(),
        currency: content.currency.as_str().to_owned(),
        amount: content.amount.to_string(),
        merchant_user_id: content.merchant_user_id.clone(),
        channel_id: content.channel_id.clone(),
        goods_name: content.goods_name.clone(),
        goods_detail: content.goods_detail.clone(),
        terminal_type: order.terminal_type.clone(),
        return_url: order.return_url.clone(),
        cancel_url: order.cancel_url.clone(),
        status: order.status.name().to_owned(),
        created_at: At(order.created_at),
        expire_at: At(order.expires_at),
        actual_amount: order.actual_amount.map(|amount| amount.to_string()),
        transact_at: order.transact_at.map(At),
        paid_at: order.paid_at.map(At),
        revision: order.revision,
    }
}

fn request(received: &Received) -> Request {
    Request { head: received.head.clone(), body: Octets::of(&received.body), body_sha256: hex(&sha256(&received.body)) }
}

fn rule_entry(version: &RuleVersion, line: Option<&AuditRow>) -> Rule {
    Rule {
        config_id: config_id(version.config_id),
        version_no: version.version_no,
        r_markup: version.markup.r().to_string(),
        f_markup: version.markup.f().to_string(),
        effective_at: At(version.effective_at),
        due_at: version.due_at.map(At),
        created_at: At(version.created_at),
        made_by: line.map(|line| line.actor.clone()),
        request_id: line.map(|line| line.request_id.clone()),
    }
}

fn fee(app: &App, snapshot: &Snapshot) -> Result<Fee, AppError> {
    let order = &snapshot.row.order;
    let Some(fixed) = &order.fee else {
        let why = if snapshot.owner.kind == MerchantKind::SubAccount { "not_paid" } else { "no_rules" };
        return Ok(Fee { sum: None, none_because: Some(why.to_owned()) });
    };
    let amount: Amount = order.actual_amount.unwrap_or(order.content.amount);
    let sum = Sum::of(fixed, amount, &order.content.currency, app.policy.markup_unit);
    let lost = |_| StoreError::Corrupt { table: "payment_order", row: order.prepay_id.to_string() };
    Ok(Fee { sum: Some(sum.map_err(lost)?), none_because: None })
}

fn making(row: &PaymentOrderRow) -> Move {
    Move {
        revision: 1,
        from: None,
        to: PaymentStatus::Pending.name().to_owned(),
        at: At(row.order.created_at),
        actor: row.actor.clone(),
        request_id: row.request_id.clone(),
    }
}

fn step(row: &PaymentMoveRow) -> Move {
    Move {
        revision: row.revision,
        from: Some(row.was.name().to_owned()),
        to: row.status.name().to_owned(),
        at: At(row.at),
        actor: row.actor.clone(),
        request_id: row.request_id.clone(),
    }
}

#[cfg(test)]
mod tests {
    use countersign_store::testing::Tampering;

    use super::*;
    use crate::app::fixtures::{Deployment, application, ordered};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_order_without_one_of_its_moves_is_told_to_be_damaged_and_not_to_be_changing() {
        let deployment = Deployment::on_sqlite().await.in_real_time();
        let app = deployment.open().await;
        let client_id = application(&app, "shop", None).await;
        let of = app.store.application(&client_id).await.expect("reads").expect("is there");
        let id = ordered(&app, &of, "T-1").await.order.prepay_id;
        assert_eq!(snapshot(&app, id).await.expect("it is whole").row.order.revision, 1);
        Deployment::close(&app);
        Tampering::ReviseOrders.of_file(&deployment.file());

        let app = deployment.open().await;
        match snapshot(&app, id).await.map(|_| ()) {
            Err(AppError::Store(StoreError::Corrupt { table: "payment_order_move", row })) => {
                assert_eq!(row, id.to_string());
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn moves_hang_together_where_none_is_missing_and_each_begins_where_the_last_one_ended() {
        use PaymentStatus::{Paid, Pending, Process};
        let row = |(revision, was, status)| PaymentMoveRow {
            revision,
            was,
            status,
            at: UnixMillis(0),
            actor: String::new(),
            request_id: String::new(),
        };
        let hold = |moves: &[_]| hang_together(&moves.iter().copied().map(row).collect::<Vec<_>>());
        assert!(hold(&[]) && hold(&[(2, Pending, Process), (3, Process, Paid)]));
        for broken in [&[(3, Process, Paid)][..], &[(2, Process, Paid)], &[(2, Pending, Process), (4, Process, Paid)]] {
            assert!(!hold(broken), "{broken:?}");
        }
    }
}
