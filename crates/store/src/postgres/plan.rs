//! What a group of batches writes: one statement for each kind of write, whatever the number of batches.

use std::collections::{BTreeMap, HashMap};

use countersign_domain::delivery::DeliveryState;
use countersign_domain::ids::{ApplicationNo, MerchantNo, TenantNo};
use countersign_domain::rules::RuleVersion;
use countersign_domain::time::UnixMillis;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::payment_order::OrderPlan;
use super::rows::Fields;
use super::session::{Session, Step};
use super::statements::Sql;
use crate::attempt_log::AttemptBytes;
use crate::batch::{EventNumbers, Guard, Write};
use crate::chain::{ChainKey, Mark};
use crate::contract::{AttemptRow, AuditRow, ClaimKey, EventRow, StoreError};
use crate::payment_order::PaymentOrderWrite;
use crate::words;

/// The values of one column, or one value.
pub(super) type Column<'a> = Box<dyn ToSql + Send + Sync + 'a>;

/// A statement and its columns.
pub(super) type Statement<'a> = (Sql, Vec<Column<'a>>);

/// The statement as a step of a pipeline.
pub(super) fn step<'a>(session: &'a Session, statement: &'a Statement<'_>) -> Step<'a> {
    let params = statement.1.iter().map(|column| &**column as &(dyn ToSql + Sync)).collect();
    session.step(statement.0, params)
}

macro_rules! columns {
    ($rows:expr; $($of:expr),* $(,)?) => {
        vec![$(Box::new($rows.iter().map($of).collect::<Vec<_>>()) as Column<'_>),*]
    };
}

pub(super) use columns;

/// Writes whose guards held.
#[derive(Debug, Default)]
pub(super) struct Plan<'a> {
    rules: Vec<(TenantNo, MerchantNo, &'a RuleVersion)>,
    orders: OrderPlan<'a>,
    events: Vec<&'a EventRow>,
    attempts: Vec<(TenantNo, &'a AttemptRow)>,
    bytes: Vec<(TenantNo, &'a AttemptRow, &'a AttemptBytes)>,
    /// Where each delivery ends up: state, attempts, due time.
    moves: BTreeMap<(i64, i64), (DeliveryState, i64, Option<i64>)>,
    audit: Vec<&'a AuditRow>,
    claims: usize,
}

impl<'a> Plan<'a> {
    /// Adds a write.
    pub(super) fn add(&mut self, write: Grouped<'a>) {
        match write {
            Grouped::Claim(_) => self.claims += 1,
            Grouped::Rule { tenant, merchant, version } => self.rules.push((tenant, merchant, version)),
            Grouped::PaymentOrder(write) => self.orders.add(write),
            Grouped::Event(row) => self.events.push(row),
            Grouped::Attempt { tenant, attempt, bytes, state, due_at, .. } => {
                self.attempts.push((tenant, attempt));
                self.bytes.extend(bytes.map(|bytes| (tenant, attempt, bytes)));
                self.moves.insert((tenant.0, attempt.event.0), (state, attempt.attempt, due_at.map(|t| t.0)));
            }
            Grouped::Audit(row) => self.audit.push(row),
            Grouped::Guard(_) => {}
        }
    }

    /// Whether nothing at all is to be kept, not even a claim.
    pub(super) fn is_empty(&self) -> bool {
        self.claims == 0
            && self.rules.is_empty()
            && self.orders.is_empty()
            && self.events.is_empty()
            && self.attempts.is_empty()
            && self.audit.is_empty()
    }

    /// The statements, in the order of the locks they take.
    pub(super) fn statements(&self, chain: Option<&ChainKey>) -> Vec<Statement<'a>> {
        let mut all = Vec::new();
        if !self.rules.is_empty() {
            all.extend([self.rules(), self.heads()]);
        }
        all.extend(self.orders.statements());
        if !self.events.is_empty() {
            all.extend([self.counts(), self.biz_counts(), self.events(), self.deliveries()]);
        }
        if !self.attempts.is_empty() {
            all.extend([self.moves(), self.attempts()]);
            all.extend(self.follows());
        }
        if !self.bytes.is_empty() {
            all.push(self.bytes());
        }
        if !self.audit.is_empty() {
            let marks = self.marks(chain);
            let counts = self.audit_counts(&marks);
            all.push((Sql::AuditCount, counted(&counts)));
            all.push(self.audit(&counts, marks));
        }
        all
    }

    /// By key, as everywhere: two nodes that add first versions of the same sub-accounts must not wait for each other.
    fn rules(&self) -> Statement<'a> {
        let mut rules = self.rules.clone();
        rules.sort_by_key(|(tenant, merchant, rule)| (tenant.0, merchant.0, rule.version_no));
        let columns = columns![rules;
            |(tenant, _, _)| tenant.0,
            |(_, merchant, _)| merchant.0,
            |(_, _, rule)| rule.version_no,
            |(_, _, rule)| rule.config_id.0.to_be_bytes().to_vec(),
            |(_, _, rule)| rule.previous.map(|id| id.0.to_be_bytes().to_vec()),
            |(_, _, rule)| rule.base_version_no,
            |(_, _, rule)| rule.markup.r().to_string(),
            |(_, _, rule)| rule.markup.f().micros(),
            |(_, _, rule)| rule.effective_at.0,
            |(_, _, rule)| rule.due_at.map(|t| t.0),
            |(_, _, rule)| rule.created_at.0,
        ];
        (Sql::RulesInsert, columns)
    }

    /// The last version of each sub-account becomes its head.
    fn heads(&self) -> Statement<'a> {
        let mut heads = BTreeMap::new();
        for (tenant, merchant, rule) in &self.rules {
            heads.insert((tenant.0, merchant.0), *rule);
        }
        let columns = columns![heads;
            |(key, _)| key.0,
            |(key, _)| key.1,
            |(_, rule)| rule.version_no,
            |(_, rule)| rule.config_id.0.to_be_bytes().to_vec(),
            |(_, rule)| rule.base_version_no,
        ];
        (Sql::HeadsPut, columns)
    }

    fn counts(&self) -> Statement<'a> {
        let mut counts = BTreeMap::new();
        for event in &self.events {
            *counts.entry((event.tenant.0, event.application.0)).or_insert(0_i64) += 1;
        }
        (Sql::EventsCount, columns![counts; |(key, _)| key.0, |(key, _)| key.1, |(_, count)| *count])
    }

    fn biz_counts(&self) -> Statement<'a> {
        let mut counts: BTreeMap<(i64, i64, &'a str), i64> = BTreeMap::new();
        for event in &self.events {
            *counts.entry((event.tenant.0, event.application.0, &event.biz_id)).or_insert(0) += 1;
        }
        let columns = columns![counts; |(key, _)| key.0, |(key, _)| key.1, |(key, _)| key.2, |(_, count)| *count];
        (Sql::BizCount, columns)
    }

    fn events(&self) -> Statement<'a> {
        let columns = columns![self.events;
            |e| e.tenant.0,
            |e| e.no.0,
            |e| e.application.0,
            |e| e.client_id.as_str(),
            |e| e.event_id.0.to_be_bytes().to_vec(),
            |e| e.biz_type.as_str(),
            |e| e.biz_id.as_str(),
            |e| e.biz_status.as_str(),
            |e| e.data.as_str(),
            |e| e.body.as_slice(),
            |e| e.created_at.0,
        ];
        (Sql::EventsInsert, columns)
    }

    fn deliveries(&self) -> Statement<'a> {
        let columns = columns![self.events;
            |e| e.tenant.0,
            |e| e.no.0,
            |e| e.application.0,
            |e| e.state.name(),
            |e| e.attempts,
            |e| e.due_at.map(|t| t.0),
        ];
        (Sql::DeliveriesInsert, columns)
    }

    fn moves(&self) -> Statement<'a> {
        let columns = columns![self.moves;
            |(key, _)| key.0,
            |(key, _)| key.1,
            |(_, to)| to.0.name(),
            |(_, to)| to.1,
            |(_, to)| to.2,
        ];
        (Sql::DeliveriesMove, columns)
    }

    /// What waited for an event that is over by now.
    fn follows(&self) -> Option<Statement<'a>> {
        let is_over = |a: &AttemptRow, tenant: TenantNo| {
            self.moves.get(&(tenant.0, a.event.0)).is_some_and(|(state, last, _)| state.is_over() && *last == a.attempt)
        };
        let over: Vec<_> = self.attempts.iter().filter(|(tenant, a)| is_over(a, *tenant)).collect();
        let columns = columns![over; |(tenant, _)| tenant.0, |(_, a)| a.event.0, |(_, a)| a.at.0];
        (!over.is_empty()).then_some((Sql::DeliveriesFollow, columns))
    }

    fn attempts(&self) -> Statement<'a> {
        let columns = columns![self.attempts;
            |(tenant, _)| tenant.0,
            |(_, a)| a.event.0,
            |(_, a)| a.attempt,
            |(_, a)| a.at.0,
            |(_, a)| a.outcome.name(),
            |(_, a)| a.http_status.map(i64::from),
            |(_, a)| a.duration_ms,
            |(_, a)| a.address.as_deref(),
            |(_, a)| a.detail.as_str(),
            |(_, a)| a.fence.0,
            |(_, a)| a.phases.dns_us,
            |(_, a)| a.phases.connect_us,
            |(_, a)| a.phases.tls_us,
            |(_, a)| a.phases.first_byte_us,
            |(_, a)| a.phases.total_us,
            |(_, a)| a.phases.reused,
        ];
        (Sql::AttemptsInsert, columns)
    }

    fn bytes(&self) -> Statement<'a> {
        let columns = columns![self.bytes;
            |(tenant, _, _)| tenant.0,
            |(_, a, _)| a.event.0,
            |(_, a, _)| a.attempt,
            |(_, a, _)| a.at.0,
            |(_, _, b)| b.sent_head.as_slice(),
            |(_, _, b)| b.answer_head.as_slice(),
            |(_, _, b)| b.answer_body.as_slice(),
            |(_, _, b)| b.answer_length,
            |(_, _, b)| b.is_cut,
        ];
        (Sql::AttemptBytesInsert, columns)
    }

    /// The mark of each line, over that of the line before it in its tenant; none: lines are not linked yet.
    fn marks(&self, chain: Option<&ChainKey>) -> Vec<Option<Mark>> {
        let mut last: HashMap<i64, Mark> = HashMap::new();
        let mark = |line: &&AuditRow| {
            let tenant = words::of_audit_tenant(line.tenant);
            let mark = chain?.mark(last.get(&tenant), line);
            last.insert(tenant, mark);
            Some(mark)
        };
        self.audit.iter().map(mark).collect()
    }

    /// How many lines each tenant gets, and the mark of its last one.
    fn audit_counts(&self, marks: &[Option<Mark>]) -> AuditCounts {
        let mut counts = AuditCounts::new();
        for (line, mark) in self.audit.iter().zip(marks) {
            let count = counts.entry(words::of_audit_tenant(line.tenant)).or_default();
            *count = (count.0 + 1, *mark);
        }
        counts
    }

    fn audit(&self, counts: &AuditCounts, marks: Vec<Option<Mark>>) -> Statement<'a> {
        let lines = |line: &&AuditRow| counts[&words::of_audit_tenant(line.tenant)].0;
        // How many lines of its tenant come after each.
        let mut left: HashMap<i64, i64> = counts.iter().map(|(tenant, (lines, _))| (*tenant, *lines)).collect();
        let back = |line: &&AuditRow| {
            let left = left.entry(words::of_audit_tenant(line.tenant)).or_default();
            *left -= 1;
            *left
        };
        let mut columns = columns![self.audit;
            |a| words::of_audit_tenant(a.tenant),
            lines,
            back,
            |a| a.at.0,
            |a| a.actor.as_str(),
            |a| a.source.as_str(),
            |a| a.action.as_str(),
            |a| a.subject.as_str(),
            |a| a.before.as_str(),
            |a| a.after.as_str(),
            |a| a.request_id.as_str(),
        ];
        let marks: Vec<Option<Vec<u8>>> = marks.into_iter().map(|mark| mark.map(|mark| mark.to_vec())).collect();
        columns.push(Box::new(marks));
        (Sql::AuditInsert, columns)
    }

    /// Tenants and numbers of the events that this plan writes.
    pub(super) fn event_keys(&self) -> (Vec<i64>, Vec<i64>) {
        self.events.iter().map(|event| (event.tenant.0, event.no.0)).unzip()
    }
}

/// Lines of the audit log that each tenant gets, and the mark of its last one.
type AuditCounts = BTreeMap<i64, (i64, Option<Mark>)>;

fn counted<'a>(counts: &AuditCounts) -> Vec<Column<'a>> {
    columns![counts;
        |(tenant, _)| *tenant,
        |(_, (count, _))| *count,
        |(_, (_, mark))| mark.map(|mark| mark.to_vec()),
    ]
}

/// Numbers of events, by tenant and event.
pub(super) type Numbers = HashMap<(i64, i64), EventNumbers>;

/// A write that is done together with those of other batches.
#[derive(Clone, Copy, Debug)]
pub(super) enum Grouped<'a> {
    Claim(&'a ClaimKey),
    Rule {
        tenant: TenantNo,
        merchant: MerchantNo,
        version: &'a RuleVersion,
    },
    PaymentOrder(&'a PaymentOrderWrite),
    Event(&'a EventRow),
    Attempt {
        tenant: TenantNo,
        application: ApplicationNo,
        attempt: &'a AttemptRow,
        bytes: Option<&'a AttemptBytes>,
        state: DeliveryState,
        due_at: Option<UnixMillis>,
    },
    Audit(&'a AuditRow),
    Guard(&'a Guard),
}

/// The write as one of those; the others are rare, and their batches run alone.
pub(super) fn grouped(write: &Write) -> Option<Grouped<'_>> {
    match write {
        Write::ClaimNonce(claim) => Some(Grouped::Claim(claim)),
        Write::AppendRule { tenant, merchant, version } => {
            Some(Grouped::Rule { tenant: *tenant, merchant: *merchant, version })
        }
        Write::PaymentOrder(write) => Some(Grouped::PaymentOrder(write)),
        Write::EnqueueEvent(row) => Some(Grouped::Event(row)),
        Write::RecordAttempt { tenant, application, attempt, bytes, state, due_at } => Some(Grouped::Attempt {
            tenant: *tenant,
            application: *application,
            attempt,
            bytes: bytes.as_deref(),
            state: *state,
            due_at: *due_at,
        }),
        Write::RecordAudit(row) => Some(Grouped::Audit(row)),
        Write::Guard(
            guard @ (Guard::Lane { .. }
            | Guard::Application { .. }
            | Guard::Token { .. }
            | Guard::RuleHead { .. }
            | Guard::PaymentOrder { .. }
            | Guard::Before { .. }
            | Guard::Reached { .. }),
        ) => Some(Grouped::Guard(guard)),
        Write::InsertMerchant(_)
        | Write::UpdateMerchant(_)
        | Write::Reassess { .. }
        | Write::InsertApplication(_)
        | Write::UpdateApplication(_)
        | Write::InsertSecret(_)
        | Write::UpdateSecret(_)
        | Write::AddUses(_)
        | Write::InsertToken(_)
        | Write::RevokeToken { .. }
        | Write::InsertConvertOrder { .. }
        | Write::MoveConvertOrder { .. }
        | Write::Convert(_)
        | Write::Turn { .. }
        | Write::ReleaseHeld { .. }
        | Write::HoldPending { .. }
        | Write::Defer { .. }
        | Write::Redeliver { .. }
        | Write::SendNow { .. }
        | Write::Redelivery(_)
        | Write::RememberAnswer(_)
        | Write::ForgetAnswers { .. }
        | Write::ForgetBytes { .. }
        | Write::ForgetEvents { .. }
        | Write::PutSetting { .. }
        | Write::MoveSetting { .. }
        | Write::RewrapSecret { .. }
        | Write::Guard(Guard::Setting { .. } | Guard::UnusedQuote { .. } | Guard::TokenLetGo { .. }) => None,
    }
}

/// The numbers given to events, by tenant and event: what [`Sql::EventsInsert`] and [`Sql::EventNumbers`] found.
pub(super) fn read_numbers(rows: &[Row]) -> Result<Numbers, StoreError> {
    let read = |row: &Row| {
        let mut f = Fields::new(row, "event", 0, 0);
        Ok(((f.int()?, f.int()?), EventNumbers { seq: f.int()?, sequence: f.int()? }))
    };
    rows.iter().map(read).collect()
}
