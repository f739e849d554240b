//! Readers of rows that several tables' columns make, the same for either dialect.

use countersign_domain::rules::RuleHead;

use crate::contract::{ApplicationView, StoreError};
use crate::read::{Columns, Fields, application, merchant, rule};

/// An application with its merchant and its tenant, and without its secrets; and where what follows begins.
pub(crate) fn application_view<R: Columns>(row: &R) -> Result<(ApplicationView, usize), StoreError> {
    let (application, next) = application(row)?;
    let mut rest = Fields::new(row, "application", next, 1);
    if rest.opt_int()?.is_none() {
        return Err(rest.corrupt());
    }
    let (merchant, next) = merchant(row, next)?;
    let mut tenant = Fields::new(row, "application", next, 1);
    let (tenant_id, tenant_enabled) = (tenant.text()?, tenant.flag()?);
    let view = ApplicationView { application, merchant, tenant_id, tenant_enabled, secrets: Vec::new() };
    Ok((view, tenant.next()))
}

/// The last version and its base, where the row promises one. `version_no`: the number that the last one must have, where that is known.
pub(crate) fn rule_head<R: Columns>(row: &R, first: usize, version_no: Option<i64>) -> Result<RuleHead, StoreError> {
    let broken = || Fields::new(row, "fee_rule_head", 0, 0).corrupt();
    let (last, next) = rule(row, first)?;
    let last = last.filter(|last| version_no.is_none_or(|no| no == last.version_no)).ok_or_else(broken)?;
    let (base, _) = rule(row, next)?;
    if base.as_ref().map(|base| base.version_no) != last.base_version_no {
        return Err(broken());
    }
    Ok(RuleHead { last, base })
}
