//! A lane: one connection that takes all batches that wait for it, commits them together, and only then answers each.
//!
//! Invariant: nobody is answered before the commit that carries his batch is durable, not even with a conflict: the row he lost
//! against may be of the same commit.
//! Invariant: every transaction that writes puts a row of its lane and number into `commit_mark`. When the connection breaks in the
//! commit, the lane tries to insert that same row: if it can, the commit was not done and never will be; if the row is there, it was.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use countersign_domain::ids::TenantNo;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_postgres::{Error, Row};

use super::alone::{Alone, Stop, directory_of};
use super::fault::{Trouble, trouble, words};
use super::group::{Ask, Judge};
use super::nonces::Nonces;
use super::plan::{Grouped, Numbers, Statement, grouped, read_numbers, step};
use super::session::{Dial, Session, Step, in_order};
use super::signals::Herald;
use super::statements::Sql;
use crate::batch::{Batch, Committed};
use crate::contract::{CommitError, StoreError};

/// How often a transaction is begun again.
const TRIES_MAX: u32 = 4;
/// How long the database may take for one round trip.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the fate of a commit is looked for, and how often.
const FATE_TIMEOUT: Duration = Duration::from_secs(5);
const FATE_PERIOD: Duration = Duration::from_millis(50);

/// The tenant of a transaction that may be of many.
const OF_MANY: i64 = 0;

/// Statements of groups, prepared with the connection.
const GROUPED: &[Sql] = &[
    Sql::ClaimLock,
    Sql::Horizon,
    Sql::NoncesClaim,
    Sql::NoncesGiveBack,
    Sql::HeadsLock,
    Sql::LanesGuard,
    Sql::ApplicationsGuard,
    Sql::RulesInsert,
    Sql::HeadsPut,
    Sql::EventsTaken,
    Sql::EventsCount,
    Sql::BizCount,
    Sql::EventsInsert,
    Sql::DeliveriesInsert,
    Sql::DeliveriesLock,
    Sql::DeliveriesMove,
    Sql::AttemptsInsert,
    Sql::AuditCount,
    Sql::AuditInsert,
    Sql::MarkPut,
];

type Answer = Result<Committed, CommitError>;

/// A batch and who waits for it.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) batch: Batch,
    /// Whose it is; none: it is about reference tables only.
    pub(super) tenant: Option<TenantNo>,
    pub(super) answer: oneshot::Sender<Answer>,
}

/// A transaction that was not done.
#[derive(Debug)]
struct Failure {
    trouble: Trouble,
    why: String,
}

impl Failure {
    fn new(error: &Error) -> Self {
        Self { trouble: trouble(error), why: words(error) }
    }

    fn silent() -> Self {
        Self { trouble: Trouble::Lost, why: "the database does not answer".to_owned() }
    }

    fn answer(&self) -> CommitError {
        CommitError::Store(match self.trouble {
            Trouble::Unfit => StoreError::Unfit(self.why.clone()),
            Trouble::Lost | Trouble::Again | Trouble::Away => StoreError::Unavailable(self.why.clone()),
        })
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(why) => Self { trouble: Trouble::Away, why },
            StoreError::Corrupt { .. } | StoreError::Unfit(_) => {
                Self { trouble: Trouble::Unfit, why: error.to_string() }
            }
        }
    }
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
pub(super) struct Lane {
    dial: Arc<Dial>,
    nonces: Arc<Nonces>,
    /// Whether a transaction is of one tenant.
    by_tenant: bool,
    herald: Arc<Herald>,
    /// Names this lane of this opening.
    id: Vec<u8>,
    /// Number of its last transaction.
    mark: i64,
    /// Whose that transaction was; [`OF_MANY`] where nothing says so.
    tenant: i64,
    session: Option<Session>,
}

impl Lane {
    pub(super) const fn new(
        dial: Arc<Dial>,
        nonces: Arc<Nonces>,
        herald: Arc<Herald>,
        by_tenant: bool,
        id: Vec<u8>,
    ) -> Self {
        Self { dial, nonces, herald, by_tenant, id, mark: 0, tenant: OF_MANY, session: None }
    }

    /// Writes until nobody can ask any more.
    pub(super) async fn run(mut self, mut queue: mpsc::Receiver<Job>, group_max: usize) {
        let mut jobs = Vec::with_capacity(group_max);
        while queue.recv_many(&mut jobs, group_max).await > 0 {
            let (grouped, rare): (Vec<Job>, Vec<Job>) =
                jobs.drain(..).partition(|job| job.batch.0.iter().all(|write| grouped(write).is_some()));
            for group in self.groups(grouped) {
                self.group(group).await;
            }
            for job in rare {
                self.alone(job).await;
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

    /// Commits the jobs together or, where that fails for a reason that may be one job's, each alone.
    async fn group(&mut self, jobs: Vec<Job>) {
        if jobs.is_empty() {
            return;
        }
        let mut tries = 1;
        let failure = loop {
            match self.together(&jobs).await {
                Ok(answers) => {
                    for (job, answer) in jobs.into_iter().zip(answers) {
                        // A caller who went away has no use for the answer.
                        drop(job.answer.send(answer));
                    }
                    return;
                }
                Err(failure) if failure.trouble == Trouble::Lost && tries < TRIES_MAX => tries += 1,
                Err(failure) => break failure,
            }
        };
        match failure.trouble {
            Trouble::Lost | Trouble::Away => {
                for job in jobs {
                    drop(job.answer.send(Err(failure.answer())));
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
        let session = self.open().await?;
        self.begin(jobs.first().and_then(|job| job.tenant));
        let nonces = Arc::clone(&self.nonces);
        let ask = Ask::of(jobs.iter().flat_map(|job| &job.batch.0), &nonces);
        let statements = ask.statements();
        let mut steps = vec![session.word("BEGIN")];
        steps.extend(statements.iter().map(|statement| step(&session, statement)));
        let rows = match within(in_order(steps)).await {
            Ok(rows) => rows,
            Err(failure) => return Err(self.roll_back(session, failure).await),
        };
        let seen = match ask.read(rows.into_iter().skip(1)) {
            Ok(seen) => seen,
            Err(error) => return Err(self.roll_back(session, error.into()).await),
        };
        let mut judge = Judge::new(&nonces, seen);
        let verdicts: Vec<_> = jobs.iter().map(|job| judge.batch(&job.batch.0)).collect();
        if judge.plan.is_empty() {
            // What was claimed for batches that were refused is not kept.
            self.roll_back(session, Failure::silent()).await;
            return Ok(verdicts.into_iter().map(|verdict| verdict.map(|()| Committed::default())).collect());
        }
        let mut writes: Vec<Statement<'_>> = Vec::new();
        writes.extend(judge.left_over());
        writes.extend(judge.plan.statements());
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
            Commit::Unknown => Ok(verdicts.iter().map(unknown).collect()),
        }
    }

    /// Does one job in a transaction of its own.
    async fn alone(&mut self, job: Job) {
        let mut tries = 1;
        let answer = loop {
            match self.one(&job).await {
                Ok(answer) => break answer,
                Err(failure) if matches!(failure.trouble, Trouble::Lost | Trouble::Again) && tries < TRIES_MAX => {
                    tries += 1;
                }
                Err(failure) => break Err(failure.answer()),
            }
        };
        if matches!(answer, Ok(_) | Err(CommitError::Unknown)) && !directory_of(&job.batch).is_empty() {
            self.herald.directory();
        }
        drop(job.answer.send(answer));
    }

    async fn one(&mut self, job: &Job) -> Result<Answer, Failure> {
        let session = self.open().await?;
        self.begin(job.tenant);
        let nonces = Arc::clone(&self.nonces);
        let mut alone = Alone::new(&session, &nonces);
        let applied = timeout(ANSWER_TIMEOUT, async {
            session.word("BEGIN").await?;
            alone.apply(&job.batch).await
        });
        let applied = applied.await;
        let (claims, committed) = (std::mem::take(&mut alone.claims), std::mem::take(&mut alone.committed));
        let failure = match applied {
            Ok(Ok(())) => match self.commit(session, &[]).await {
                Commit::Done(_) => return Ok(Ok(committed)),
                Commit::Failed(failure) => failure,
                Commit::Unknown => return Ok(Err(CommitError::Unknown)),
            },
            Ok(Err(Stop::Refused(why))) => {
                nonces.undo(claims);
                self.roll_back(session, Failure::silent()).await;
                return Ok(Err(why));
            }
            Ok(Err(Stop::Broken(error))) => self.roll_back(session, Failure::new(&error)).await,
            Err(_) => Failure::silent(),
        };
        nonces.undo(claims);
        Err(failure)
    }

    /// The kept connection, or a new one.
    async fn open(&mut self) -> Result<Session, Failure> {
        if let Some(session) = self.session.take().filter(|session| !session.is_closed()) {
            return Ok(session);
        }
        let session = self.dial.session().await?;
        session.prepare(GROUPED).await.map_err(|error| Failure::new(&error))?;
        Ok(session)
    }

    /// Ends an open transaction without doing anything, and keeps the connection if it is still good.
    async fn roll_back(&mut self, session: Session, failure: Failure) -> Failure {
        if !session.is_closed()
            && timeout(ANSWER_TIMEOUT, session.word("ROLLBACK")).await.is_ok_and(|done| done.is_ok())
        {
            self.session = Some(session);
        }
        failure
    }

    /// The last round trip: the writes, the mark, the commit.
    async fn commit(&mut self, session: Session, writes: &[Statement<'_>]) -> Commit {
        self.mark += 1;
        let (tenant, id, mark) = (self.tenant, self.id.clone(), self.mark);
        let mut steps: Vec<Step<'_>> = writes.iter().map(|statement| step(&session, statement)).collect();
        steps.push(session.step(Sql::MarkPut, vec![&tenant, &id, &mark]));
        steps.push(session.word("COMMIT"));
        let failure = match within(in_order(steps)).await {
            Ok(rows) => {
                self.session = Some(session);
                return Commit::Done(Some(rows));
            }
            Err(failure) => failure,
        };
        if failure.trouble != Trouble::Lost {
            // The server refused a statement, so the commit behind it has rolled back.
            return Commit::Failed(self.roll_back(session, failure).await);
        }
        drop(session);
        match self.fate().await {
            Some(true) => Commit::Done(None),
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
        let deadline = Instant::now() + FATE_TIMEOUT;
        let (tenant, id, mark) = (self.tenant, self.id.clone(), self.mark);
        while Instant::now() < deadline {
            if let Ok(Ok(session)) = timeout_at(deadline, self.open()).await {
                let asked = timeout_at(deadline, session.run(Sql::MarkFence, &[&tenant, &id, &mark])).await;
                if let Ok(Ok(rows)) = asked {
                    self.session = Some(session);
                    return Some(rows.is_empty());
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
        let session = self.open().await.ok()?;
        let rows = timeout(ANSWER_TIMEOUT, session.run(Sql::EventNumbers, &[&tenants, &events])).await.ok()?.ok()?;
        self.session = Some(session);
        read_numbers(&rows).ok()
    }
}

/// Waits for a pipeline, within the time that the database may take.
async fn within(
    steps: impl Future<Output = Result<Vec<Vec<Row>>, (usize, Error)>> + Send,
) -> Result<Vec<Vec<Row>>, Failure> {
    match timeout(ANSWER_TIMEOUT, steps).await {
        Ok(Ok(rows)) => Ok(rows),
        Ok(Err((_, error))) => Err(Failure::new(&error)),
        Err(_) => Err(Failure::silent()),
    }
}

fn numbers_among(writes: &[Statement<'_>], rows: &[Vec<Row>]) -> Option<Numbers> {
    let at = writes.iter().position(|(sql, _)| matches!(sql, Sql::EventsInsert));
    let rows = at.and_then(|at| rows.get(at)).map_or(&[][..], Vec::as_slice);
    read_numbers(rows).ok()
}

/// What each caller is told once the transaction is durable.
fn answers(jobs: &[Job], verdicts: Vec<Result<(), CommitError>>, numbers: Option<&Numbers>) -> Vec<Answer> {
    let of_batch = |batch: &Batch| {
        let mut committed = Committed::default();
        for write in batch.0.iter().filter_map(grouped) {
            if let Grouped::Event(event) = write {
                // Done, but the numbers cannot be told: the caller may look for his event.
                let given = numbers
                    .and_then(|numbers| numbers.get(&(event.tenant.0, event.no.0)))
                    .ok_or(CommitError::Unknown)?;
                committed.events.push(*given);
            }
        }
        Ok(committed)
    };
    jobs.iter().zip(verdicts).map(|(job, verdict)| verdict.and_then(|()| of_batch(&job.batch))).collect()
}

/// What a caller is told when nobody knows how the commit ended. Of a batch that was refused nothing was done in any case.
fn unknown(verdict: &Result<(), CommitError>) -> Answer {
    match verdict {
        Ok(()) => Err(CommitError::Unknown),
        Err(_) => Err(StoreError::Unavailable("the connection to the database broke".to_owned()).into()),
    }
}
