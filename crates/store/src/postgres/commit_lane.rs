//! A lane: one connection that takes all batches that wait for it, commits them together, and only then answers each.
//!
//! Invariant: nobody is answered before the commit that carries their batch is durable, not even with a conflict: the row that they lost
//! against may be of the same commit.
//! Invariant: every transaction that writes puts a row of its lane and number, `done`, into `commit_mark`. When nobody answers the commit,
//! the lane puts that same row there, not `done`. Whoever is first decides: if the lane is, the commit was not done and never will be,
//! for that row stays. If the row is there, the lane writes to it all the same: a synchronous standby that has this write has the commit,
//! which lies before it in the log.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use countersign_domain::ids::TenantNo;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_postgres::Row;

use super::alone::{Alone, Stop, changes_directory};
use super::commit_answers::{answers, numbers_among, unknown};
use super::dial::Dial;
use super::fault::{Failure, Trouble};
use super::group::{Ask, Judge};
use super::limits::Limits;
use super::looks::only_looks;
use super::marks::Marks;
use super::nonces::Nonces;
use super::pipeline::in_order;
use super::plan::{Numbers, Statement, grouped, read_numbers, step};
use super::rare_jobs::{RARE_AT_ONCE, RareJobs, converts_for};
use super::session::{Session, Step};
use super::signals::Herald;
use super::statements::Sql;
use super::writer_connections::WriterConnections;
use crate::batch::{Batch, Committed, Conflict};
use crate::chain::ChainKey;
use crate::contract::CommitError;
use crate::work_clock::WorkClock;

/// How often a transaction is begun again.
const TRIES_MAX: u32 = 4;
/// Where a transaction is of one tenant, so many follow each other before a few that run alone.
const GROUPS_BETWEEN: usize = 16;
/// How often the fate of a commit is asked for while nobody answers.
pub(super) const FATE_PERIOD: Duration = Duration::from_millis(50);

/// The tenant of a transaction that may be of many.
const OF_MANY: i64 = 0;

/// Statements of groups, prepared with the connection.
const GROUPED: &[Sql] = &[
    Sql::ClaimLock,
    Sql::Horizon,
    Sql::NoncesClaim,
    Sql::NoncesGiveBack,
    Sql::PayeesLock,
    Sql::LastPaidLock,
    Sql::LastPaidPut,
    Sql::HeadsLock,
    Sql::PaymentOrdersLock,
    Sql::PaymentOrdersShare,
    Sql::PaymentOrdersTaken,
    Sql::PaymentOrdersInsert,
    Sql::PaymentOrderRequestsInsert,
    Sql::PaymentOrdersMove,
    Sql::PaymentOrderMovesInsert,
    Sql::LanesGuard,
    Sql::ApplicationsGuard,
    Sql::ApplicationsLook,
    Sql::TokensLock,
    Sql::TokensLive,
    Sql::RulesInsert,
    Sql::HeadsPut,
    Sql::EventsTaken,
    Sql::EventsCount,
    Sql::BizCount,
    Sql::EventsInsert,
    Sql::DeliveriesInsert,
    Sql::DeliveriesLock,
    Sql::DeliveriesMove,
    Sql::DeliveriesFollow,
    Sql::AttemptsInsert,
    Sql::AttemptBytesInsert,
    Sql::AuditCount,
    Sql::AuditInsert,
    Sql::MarkPut,
];

pub(super) type Answer = Result<Committed, CommitError>;

/// A batch and who waits for it.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) batch: Batch,
    /// Whose it is; none: it is about reference tables only.
    pub(super) tenant: Option<TenantNo>,
    pub(super) since: Instant,
    pub(super) answer: oneshot::Sender<Answer>,
}

/// How a commit ended.
enum Commit {
    /// Done; the rows that each step found, where the answers arrived.
    Done(Option<Vec<Vec<Row>>>),
    /// Not done, and it never will be.
    Failed(Failure),
    /// Nobody knows.
    Unknown,
}

/// One lane.
#[derive(Debug)]
pub(super) struct CommitLane {
    connections: WriterConnections,
    nonces: Arc<Nonces>,
    /// Whether a transaction is of one tenant.
    by_tenant: bool,
    herald: Arc<Herald>,
    /// Names this lane of this opening.
    id: Vec<u8>,
    marks: Marks,
    /// Whose its last transaction was; [`OF_MANY`] where nothing says so.
    tenant: i64,
    work: Arc<WorkClock>,
    /// What lines of the audit log are linked with.
    chain: Arc<OnceLock<ChainKey>>,
}

impl CommitLane {
    pub(super) fn new(
        dial: Arc<Dial>,
        nonces: Arc<Nonces>,
        herald: Arc<Herald>,
        by_tenant: bool,
        id: Vec<u8>,
        work: Arc<WorkClock>,
        chain: Arc<OnceLock<ChainKey>>,
    ) -> Self {
        let connections = WriterConnections::new(dial, GROUPED);
        Self { connections, nonces, herald, by_tenant, id, marks: Marks::default(), tenant: OF_MANY, work, chain }
    }

    fn limits(&self) -> Limits {
        self.connections.limits()
    }

    fn refused(&self, failure: &Failure) -> CommitError {
        CommitError::Store(self.connections.refusal(failure))
    }

    /// Writes until nobody can ask any more.
    pub(super) async fn run(mut self, mut queue: mpsc::Receiver<Job>, group_max: usize) {
        let (mut jobs, mut rare) = (Vec::with_capacity(group_max), RareJobs::default());
        loop {
            if rare.is_empty() {
                if queue.recv_many(&mut jobs, group_max).await == 0 {
                    return;
                }
            } else {
                jobs.extend(std::iter::from_fn(|| queue.try_recv().ok()).take(group_max));
            }
            let (grouped, alone): (Vec<Job>, Vec<Job>) =
                jobs.drain(..).partition(|job| job.batch.0.iter().all(|write| grouped(write).is_some()));
            for job in alone {
                if let Err(job) = rare.push(job) {
                    let is_conversion = converts_for(&job.batch).is_some();
                    let crowded = CommitError::Conflict(Conflict::Crowded);
                    self.tell(job, Err(if is_conversion { crowded } else { self.refused(&Failure::crowded()) }));
                }
            }
            for (number, group) in self.groups(grouped).into_iter().enumerate() {
                if number % GROUPS_BETWEEN == GROUPS_BETWEEN - 1 {
                    self.some_alone(&mut rare).await;
                }
                self.work.begin();
                self.group(group).await;
            }
            self.some_alone(&mut rare).await;
            self.work.end();
        }
    }

    /// A few that run alone, in their turns.
    async fn some_alone(&mut self, rare: &mut RareJobs) {
        let mut done = 0;
        while done < RARE_AT_ONCE
            && let Some(job) = rare.next()
        {
            // For whoever has gone nothing is done any more.
            if job.answer.is_closed() {
                self.tell(job, Err(self.refused(&Failure::late())));
            } else if let Some(job) = self.in_time(job) {
                self.work.begin();
                self.alone(job).await;
                done += 1;
            }
        }
    }

    /// The jobs as they are committed together.
    fn groups(&self, jobs: Vec<Job>) -> Vec<Vec<Job>> {
        if !self.by_tenant {
            return vec![jobs];
        }
        let mut groups: BTreeMap<Option<TenantNo>, Vec<Job>> = BTreeMap::new();
        for job in jobs {
            groups.entry(job.tenant).or_default().push(job);
        }
        groups.into_values().collect()
    }

    /// Whose transaction begins: what its mark belongs to.
    fn begin(&mut self, tenant: Option<TenantNo>) {
        self.tenant = if self.by_tenant { tenant.map_or(OF_MANY, |tenant| tenant.0) } else { OF_MANY };
    }

    /// The job, unless it has waited so long that its caller is better told so: the jobs behind it must not wait for it as well.
    fn in_time(&self, job: Job) -> Option<Job> {
        if job.since.elapsed() < self.limits().age() {
            return Some(job);
        }
        // A caller who went away has no use for the answer.
        self.tell(job, Err(self.refused(&Failure::late())));
        None
    }

    /// Commits the jobs together or, where that fails for a reason that may be one job's, each alone.
    async fn group(&mut self, jobs: Vec<Job>) {
        let jobs: Vec<Job> = jobs.into_iter().filter_map(|job| self.in_time(job)).collect();
        if jobs.is_empty() {
            return;
        }
        let begun = Instant::now();
        let mut tries = 1;
        let failure = loop {
            match self.together(&jobs).await {
                Ok(answers) => {
                    for (job, answer) in jobs.into_iter().zip(answers) {
                        self.tell(job, answer);
                    }
                    return;
                }
                Err(failure)
                    if failure.trouble == Trouble::Lost
                        && tries < TRIES_MAX
                        && begun.elapsed() < self.limits().age() =>
                {
                    tries += 1;
                }
                Err(failure) => break failure,
            }
        };
        match failure.trouble {
            Trouble::Lost | Trouble::Silent | Trouble::Away => {
                for job in jobs {
                    self.tell(job, Err(self.refused(&failure)));
                }
            }
            Trouble::Again | Trouble::Unfit => {
                tracing::debug!(
                    error = failure.why,
                    batches = jobs.len(),
                    "A group of batches failed; each runs alone now"
                );
                for job in jobs {
                    self.alone(job).await;
                }
            }
        }
    }

    async fn together(&mut self, jobs: &[Job]) -> Result<Vec<Answer>, Failure> {
        let session = self.connections.open().await?;
        self.begin(jobs.first().and_then(|job| job.tenant));
        let nonces = Arc::clone(&self.nonces);
        let ask = Ask::of(jobs.iter().flat_map(|job| &job.batch.0), &nonces);
        let statements = ask.statements();
        let mut steps = vec![session.word("BEGIN")];
        steps.extend(statements.iter().map(|statement| step(&session, statement)));
        let rows = match timeout(self.limits().look(), in_order(steps)).await {
            Ok(Ok(rows)) => rows,
            Ok(Err((_, error))) => return Err(self.drop_out(session, Failure::new(&error)).await),
            Err(_) => return Err(self.drop_out(session, Failure::silent()).await),
        };
        let seen = match ask.read(rows.into_iter().skip(1)) {
            Ok(seen) => seen,
            Err(error) => return Err(self.drop_out(session, error.into()).await),
        };
        let mut judge = Judge::new(&nonces, seen);
        let verdicts: Vec<_> = jobs.iter().map(|job| judge.batch(&job.batch.0)).collect();
        if judge.plan.is_empty() {
            // What was claimed for batches that were refused is not kept.
            self.connections.roll_back(session).await;
            return Ok(verdicts.into_iter().map(|verdict| verdict.map(|()| Committed::default())).collect());
        }
        let mut writes: Vec<Statement<'_>> = Vec::new();
        writes.extend(judge.left_over());
        writes.extend(judge.plan.statements(self.chain.get()));
        let outcome = self.commit(session, &writes).await;
        let claims = std::mem::take(&mut judge.claims);
        match outcome {
            Commit::Done(rows) => {
                let numbers = match rows {
                    Some(rows) => numbers_among(&writes, &rows),
                    None => self.numbers(judge.plan.event_keys()).await,
                };
                Ok(answers(jobs, verdicts, numbers.as_ref()))
            }
            Commit::Failed(failure) => {
                nonces.undo(claims);
                Err(failure)
            }
            Commit::Unknown => {
                nonces.undo(claims);
                let unknown: Vec<Answer> = verdicts.iter().map(unknown).collect();
                for (job, _) in jobs.iter().zip(&verdicts).filter(|(_, verdict)| verdict.is_ok()) {
                    self.in_doubt(&job.batch);
                }
                Ok(unknown)
            }
        }
    }

    /// Of these claims only the database can say whether they are used.
    fn in_doubt(&self, batch: &Batch) {
        for claim in batch.claims() {
            self.nonces.in_doubt(self.nonces.hash(claim), claim.stamped_at.0);
        }
    }

    /// Does one job in a transaction of its own.
    async fn alone(&mut self, job: Job) {
        let Some(job) = self.in_time(job) else { return };
        let begun = Instant::now();
        let mut tries = 1;
        let answer = loop {
            match self.one(&job).await {
                Ok(answer) => break answer,
                Err(failure)
                    if matches!(failure.trouble, Trouble::Lost | Trouble::Again)
                        && tries < TRIES_MAX
                        && begun.elapsed() < self.limits().age() =>
                {
                    tries += 1;
                }
                Err(failure) => break Err(self.refused(&failure)),
            }
        };
        if matches!(answer, Ok(_) | Err(CommitError::Unknown)) && changes_directory(&job.batch) {
            self.herald.directory();
        }
        self.tell(job, answer);
    }

    /// Answers a job. Of one whose caller went away nobody else gives back what was not used.
    fn tell(&self, job: Job, answer: Answer) {
        let Job { batch, answer: caller, .. } = job;
        if let Err(unheard) = caller.send(answer)
            && matches!(unheard, Err(CommitError::Conflict(_) | CommitError::Store(_)))
        {
            for claim in batch.claims() {
                self.nonces.release(claim);
            }
        }
    }

    async fn one(&mut self, job: &Job) -> Result<Answer, Failure> {
        let session = self.connections.open().await?;
        self.begin(job.tenant);
        let nonces = Arc::clone(&self.nonces);
        let mut alone = Alone::new(&session, &nonces, self.chain.get().cloned());
        let applied = timeout(self.limits().commit(), async {
            session.word("BEGIN").await?;
            alone.apply(&job.batch).await
        });
        let applied = applied.await;
        let (claims, committed) = (std::mem::take(&mut alone.claims), std::mem::take(&mut alone.committed));
        let failure = match applied {
            // The locks that it took are given back by that, too.
            Ok(Ok(())) if only_looks(&job.batch) => {
                self.connections.roll_back(session).await;
                return Ok(Ok(committed));
            }
            Ok(Ok(())) => match self.commit(session, &[]).await {
                Commit::Done(_) => return Ok(Ok(committed)),
                Commit::Failed(failure) => failure,
                Commit::Unknown => {
                    nonces.undo(claims);
                    self.in_doubt(&job.batch);
                    return Ok(Err(CommitError::Unknown));
                }
            },
            Ok(Err(Stop::Refused(why))) => {
                nonces.undo(claims);
                self.connections.roll_back(session).await;
                return Ok(Err(why));
            }
            Ok(Err(Stop::Broken(error))) => self.drop_out(session, Failure::new(&error)).await,
            Err(_) => self.drop_out(session, Failure::silent()).await,
        };
        nonces.undo(claims);
        Err(failure)
    }

    /// Leaves a transaction that failed before its commit was sent.
    async fn drop_out(&mut self, session: Session, failure: Failure) -> Failure {
        match failure.trouble {
            Trouble::Lost => {}
            Trouble::Silent => self.connections.give_up(session),
            Trouble::Again | Trouble::Away | Trouble::Unfit => self.connections.roll_back(session).await,
        }
        failure
    }

    /// The last round trip: the writes, the mark, the commit.
    async fn commit(&mut self, session: Session, writes: &[Statement<'_>]) -> Commit {
        let (tenant, id, mark, from) = (self.tenant, self.id.clone(), self.marks.next(), self.marks.from(self.tenant));
        let mut steps: Vec<Step<'_>> = writes.iter().map(|statement| step(&session, statement)).collect();
        steps.push(session.step(Sql::MarkPut, vec![&tenant, &id, &mark, &from]));
        steps.push(session.word("COMMIT"));
        let commit = steps.len() - 1;
        // What was warned of before says nothing of this commit.
        session.was_warned();
        let failure = match timeout(self.limits().commit(), in_order(steps)).await {
            Ok(Ok(rows)) if !session.was_warned() => {
                self.connections.proved(session);
                self.marks.is_done(tenant);
                return Commit::Done(Some(rows));
            }
            Ok(Ok(_)) => Failure::warned(),
            Ok(Err((at, error))) if at == commit => Failure::in_commit(&error),
            Ok(Err((_, error))) => Failure::new(&error),
            Err(_) => Failure::silent(),
        };
        if !failure.leaves_doubt() {
            self.connections.after(session, &failure);
            return Commit::Failed(failure);
        }
        if failure.trouble == Trouble::Silent {
            self.connections.give_up(session);
        } else {
            drop(session);
        }
        match self.fate().await {
            Some(true) => {
                self.marks.is_done(tenant);
                Commit::Done(None)
            }
            Some(false) => Commit::Failed(failure),
            None => {
                tracing::error!(
                    error = failure.why,
                    "A connection broke in a commit whose fate could not be found out"
                );
                Commit::Unknown
            }
        }
    }

    /// Whether the last transaction was done; `None`: nobody could be asked.
    async fn fate(&mut self) -> Option<bool> {
        let deadline = Instant::now() + self.limits().fate();
        let (tenant, id, mark) = (self.tenant, self.id.clone(), self.marks.last());
        while Instant::now() < deadline {
            if let Ok(Ok(session)) = timeout_at(deadline, self.connections.open()).await {
                match timeout_at(deadline, session.run(Sql::MarkFence, &[&tenant, &id, &mark])).await {
                    // A warning: the row may be on this server alone. So it is written again.
                    Ok(Ok(rows)) if !session.was_warned() => {
                        self.connections.keep(session);
                        return rows.first()?.try_get(0).ok();
                    }
                    Ok(Ok(_) | Err(_)) => {}
                    Err(_) => self.connections.give_up(session),
                }
            }
            sleep(FATE_PERIOD).await;
        }
        None
    }

    /// Numbers of events whose commit was not answered.
    async fn numbers(&mut self, (tenants, events): (Vec<i64>, Vec<i64>)) -> Option<Numbers> {
        if events.is_empty() {
            return Some(Numbers::default());
        }
        let session = self.connections.open().await.ok()?;
        match timeout(self.limits().look(), session.run(Sql::EventNumbers, &[&tenants, &events])).await {
            Ok(Ok(rows)) => {
                self.connections.keep(session);
                read_numbers(&rows).ok()
            }
            Ok(Err(_)) => None,
            Err(_) => {
                self.connections.give_up(session);
                None
            }
        }
    }
}
