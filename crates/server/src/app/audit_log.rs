//! The audit log as operators ask for it: newest first, all of it or the lines that they mean.

use countersign_domain::ids::TenantNo;
use countersign_domain::time::UnixMillis;
use countersign_protocol::sentence::of_field;
use countersign_store::Store;
use countersign_store::contract::{AuditKey, AuditRow, Cursor, MerchantKind};

use super::App;
use super::error::AppError;
use super::identity::find_merchant;

/// Lines that are read at a time where not all are meant.
const LOOKED_AT_ONCE: u32 = 500;
/// Lines that are looked at for a page.
const LOOKED_MAX: usize = 10_000;

/// Which lines are meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Which {
    /// Only those of this institution, its sub-accounts included, or of this plain merchant.
    pub tenant: Option<TenantNo>,
    /// Only what this actor did, also where it acted for another.
    pub actor: Option<String>,
    /// Only this action; with a dot at its end, every action that begins so.
    pub action: Option<String>,
    /// Only what was done to this.
    pub subject: Option<String>,
    /// Only what this request did.
    pub request_id: Option<String>,
    /// Only at this instant or later.
    pub from: Option<UnixMillis>,
    /// Only before this instant.
    pub to: Option<UnixMillis>,
}

impl Which {
    /// Whether every line of the time that is meant is.
    pub fn is_everything(&self) -> bool {
        Self { from: None, to: None, ..self.clone() } == Self::default()
    }

    fn has(&self, row: &AuditRow) -> bool {
        let is_by = |actor: &String| {
            row.actor.strip_prefix(actor).is_some_and(|rest| matches!(rest.as_bytes(), [] | [b' ', ..]))
        };
        let is_done =
            |action: &String| row.action == *action || action.ends_with('.') && row.action.starts_with(action.as_str());
        self.tenant.is_none_or(|tenant| row.tenant == Some(tenant))
            && self.actor.as_ref().is_none_or(is_by)
            && self.action.as_ref().is_none_or(is_done)
            && self.subject.as_ref().is_none_or(|subject| row.subject == *subject)
            && self.request_id.as_ref().is_none_or(|request_id| row.request_id == *request_id)
    }

    /// Where the look begins: behind the line that the page before ended with, and at what is before `to`.
    fn begin(&self, after: Option<AuditKey>) -> Option<AuditKey> {
        let to = self.to.map(|at| AuditKey { at, tenant: None, no: 0 });
        match (after, to) {
            (Some(after), Some(to)) => Some(after.min(to)),
            (after, to) => after.or(to),
        }
    }
}

/// A page of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// At most as many as were asked for.
    pub rows: Vec<AuditRow>,
    /// Behind which line the next page begins; none: there is nothing more. A page may hold fewer lines than asked for and yet not be the last
    /// one: so many are looked at and no more.
    pub next: Option<AuditKey>,
}

/// The tenant whose lines are meant by the name of an institution or a plain merchant.
pub async fn tenant(app: &App, merchant_id: &str) -> Result<TenantNo, AppError> {
    let merchant = find_merchant(app, merchant_id).await?;
    if merchant.kind == MerchantKind::SubAccount {
        let why = "is a sub-account, whose lines are among its institution's";
        return Err(AppError::InvalidParameter(of_field("merchant_id", why)));
    }
    Ok(merchant.tenant)
}

/// Lines of the log, newest first.
pub async fn list(app: &App, which: &Which, after: Option<AuditKey>, limit: u32) -> Result<Lines, AppError> {
    look(app, which, after, limit, LOOKED_MAX).await
}

async fn look(
    app: &App,
    which: &Which,
    after: Option<AuditKey>,
    limit: u32,
    looked_max: usize,
) -> Result<Lines, AppError> {
    let limit = limit as usize;
    let at_once = if which.is_everything() { u32::try_from(limit + 1).unwrap_or(u32::MAX) } else { LOOKED_AT_ONCE };
    let (mut rows, mut looked, mut place) = (Vec::with_capacity(limit), 0, which.begin(after));
    loop {
        let read = app.store.audit(Cursor { after: place, limit: at_once }).await?;
        let is_all = read.len() < at_once as usize;
        for row in read {
            if which.from.is_some_and(|from| row.at < from) {
                return Ok(Lines { rows, next: None });
            }
            if looked == looked_max || rows.len() == limit {
                return Ok(Lines { rows, next: place });
            }
            looked += 1;
            place = Some(row.key());
            if which.has(&row) {
                rows.push(row);
            }
        }
        if is_all {
            return Ok(Lines { rows, next: None });
        }
    }
}

#[cfg(test)]
mod tests {
    use countersign_store::batch::{Batch, Write};

    use super::*;
    use crate::app::fixtures::Deployment;

    fn line(no: i64, tenant: Option<i64>, actor: &str, action: &str) -> AuditRow {
        let text = String::new;
        AuditRow {
            no,
            tenant: tenant.map(TenantNo),
            at: UnixMillis(1_000 + no),
            actor: actor.to_owned(),
            source: text(),
            action: action.to_owned(),
            subject: format!("s-{}", no % 2),
            before: text(),
            after: text(),
            request_id: format!("req_{no}"),
        }
    }

    #[test]
    fn a_line_is_meant_by_each_thing_that_is_said_of_it_and_by_all_of_them() {
        let row = line(4, Some(7), "application:app_1 merchant:m on_behalf_of:s", "fee_rule.upgrade");
        let text = |text: &str| Some(text.to_owned());
        let all = Which {
            tenant: Some(TenantNo(7)),
            actor: text("application:app_1"),
            action: text("fee_rule."),
            subject: text("s-0"),
            request_id: text("req_4"),
            ..Which::default()
        };
        assert!(all.has(&row));
        let others = [
            Which { tenant: Some(TenantNo(8)), ..all.clone() },
            Which { actor: text("application:app_"), ..all.clone() },
            Which { actor: text("application:app_12"), ..all.clone() },
            Which { action: text("fee_rule"), ..all.clone() },
            Which { action: text("fee_rule.create"), ..all.clone() },
            Which { subject: text("s-1"), ..all.clone() },
            Which { request_id: text("req_5"), ..all.clone() },
        ];
        for other in others {
            assert!(!other.has(&row), "{other:?}");
        }
        assert!(Which { action: text("fee_rule.upgrade"), actor: None, ..all }.has(&row));
    }

    #[tokio::test]
    async fn pages_of_what_is_meant_have_each_line_once_and_none_looks_at_more_than_it_may() {
        let deployment = Deployment::on_sqlite().await.at(UnixMillis(1));
        let app = deployment.open().await;
        let by = |no: i64| if no % 10 == 0 { "token:tok_1" } else { "system" };
        let lines = (1..=40).map(|no| Write::RecordAudit(Box::new(line(no, None, by(no), "rate.put"))));
        app.store.commit(Batch(lines.collect())).await.expect("is written");
        let pages = async |which: Which, limit, looked_max| {
            let (mut pages, mut after) = (Vec::new(), None);
            loop {
                let found = look(&app, &which, after, limit, looked_max).await.expect("reads");
                pages.push(found.rows.iter().map(|row| row.at.0 - 1_000).collect::<Vec<_>>());
                after = found.next;
                if after.is_none() {
                    break pages;
                }
            }
        };
        let hers = Which { actor: Some("token:tok_1".to_owned()), ..Which::default() };
        assert_eq!(pages(hers.clone(), 50, 99).await, [vec![40, 30, 20, 10]]);
        assert_eq!(pages(hers.clone(), 3, 99).await, [vec![40, 30, 20], vec![10]]);
        assert_eq!(pages(hers.clone(), 50, 15).await, [vec![40, 30], vec![20], vec![10]]);
        assert_eq!(pages(hers.clone(), 50, 7).await, [vec![40], vec![30], vec![], vec![20], vec![10], vec![]]);
        let between = Which { from: Some(UnixMillis(1_020)), to: Some(UnixMillis(1_040)), ..hers };
        assert_eq!(pages(between.clone(), 50, 99).await, [vec![30, 20]]);
        assert_eq!(pages(between.clone(), 1, 99).await, [vec![30], vec![20]]);
        let time_alone = Which { actor: None, ..between };
        assert_eq!(pages(time_alone, 15, 99).await, [(25..40).rev().collect::<Vec<_>>(), (20..25).rev().collect()]);
        // The newest line is of the making of the deployment, now.
        let every = pages(Which::default(), 7, 99).await.concat();
        assert_eq!(every[1..], (1..=40).rev().collect::<Vec<_>>());
        Deployment::close(&app);
    }
}
