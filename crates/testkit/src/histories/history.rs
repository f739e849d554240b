//! One sub-account: what it was asked, what the oracle says, and whether the answers are the same.

use std::fmt::Write as _;

use anyhow::{Context, Result, bail, ensure};
use countersign::app::error::AppError;
use countersign::app::identity::{RulePlace, SeenVersion, rule_versions};
use countersign::app::rules::{Making, RuleChange, change, in_force};
use countersign::app::{Actor, App};
use countersign_domain::ids::{ApplicationNo, SortedId};
use countersign_domain::rules::{Markup, RuleAsk, RuleVersion};
use countersign_domain::time::UnixMillis;
use countersign_protocol::exact::Exact;
use countersign_store::Store;
use countersign_store::contract::{ClaimKey, Claimed, MerchantRow};

use super::Counts;
use super::asking::{Question, question};
use super::oracle::{Ask, Refusal, State, SubAccount, Version};
use crate::dice::Dice;

/// Most questions of one step.
const QUESTIONS_MAX: usize = 3;
/// More than any sub-account has versions.
const ALL_VERSIONS: u32 = 10_000;

/// One sub-account of a world.
#[derive(Debug)]
pub struct History {
    /// Its public id.
    pub id: String,
    /// Its institution.
    pub institution: MerchantRow,
    /// A name that the institution has no sub-account of.
    pub stranger: String,
    /// What the oracle knows of it.
    pub oracle: SubAccount,
    /// What was compared.
    pub counts: Counts,
    /// What it was asked, and when.
    pub story: String,
    config_ids: Vec<SortedId>,
    used: Option<ClaimKey>,
    claims: u64,
    dice: Dice,
}

impl History {
    /// A sub-account without any rule.
    pub fn new(id: String, institution: MerchantRow, stranger: String, dice: Dice) -> Self {
        Self {
            id,
            institution,
            stranger,
            oracle: SubAccount::default(),
            counts: Counts { histories: 1, ..Counts::default() },
            story: String::new(),
            config_ids: Vec::new(),
            used: None,
            claims: 0,
            dice,
        }
    }

    /// Asks up to [`QUESTIONS_MAX`] questions, one after the other, and compares the answers.
    pub async fn step(&mut self, app: &App) -> Result<()> {
        for _ in 0..self.dice.below(QUESTIONS_MAX + 1) {
            let clock = app.clock.now().0;
            let question = question(&mut self.dice, &self.oracle, clock);
            let _ = writeln!(self.story, "at {clock}: {question:?}");
            let held = self.compare(app, &question, clock).await;
            held.with_context(|| format!("sub-account {} was asked:\n{}", self.id, self.story))?;
        }
        Ok(())
    }

    /// Compares every version with its state, read in pages of any size.
    pub async fn end(&mut self, app: &App) -> Result<()> {
        let clock = app.clock.now().0;
        let limit = if self.dice.once_in(2) { ALL_VERSIONS } else { u32::try_from(1 + self.dice.below(5))? };
        let held = self.compare_versions(app, clock, limit).await;
        for state in self.oracle.states_at(self.oracle.now(clock)) {
            self.counts.states[State::ALL.iter().position(|known| *known == state).context("a known state")?] += 1;
        }
        held.with_context(|| format!("sub-account {} was asked:\n{}at {clock}: all versions", self.id, self.story))
    }

    /// Demands that `version` is what the oracle made.
    pub fn same(&self, version: &RuleVersion, wanted: &Version) -> Result<()> {
        let seen = Version {
            no: version.version_no,
            r: version.markup.r().to_string(),
            f: version.markup.f().to_string(),
            effective: version.effective_at.0,
            due: version.due_at.map(|due| due.0),
            created: version.created_at.0,
        };
        ensure!(seen == *wanted, "version {seen:?}, but the oracle has {wanted:?}");
        let index = usize::try_from(wanted.no - 1)?;
        ensure!(self.config_ids.get(index) == Some(&version.config_id), "version {} has another config_id", wanted.no);
        let previous = index.checked_sub(1).and_then(|before| self.config_ids.get(before));
        ensure!(version.previous.as_ref() == previous, "version {} does not follow on the one before", wanted.no);
        Ok(())
    }

    async fn compare(&mut self, app: &App, question: &Question, clock: i64) -> Result<()> {
        match question {
            Question::Change(ask) => self.compare_change(app, ask, clock).await,
            Question::Replay(ask) => self.compare_replay(app, ask, clock).await,
            Question::Stranger(ask) => self.compare_stranger(app, ask).await,
            Question::InForce(at) => self.compare_in_force(app, *at, clock).await,
            Question::Versions(limit, skip) => {
                let after = match u32::try_from(*skip)? {
                    0 => None,
                    before => rule_versions(app, &self.id, None, before).await?.last().map(|seen| seen.place),
                };
                self.compare_page_of_versions(app, clock, after, *limit).await.map(|_| ())
            }
        }
    }

    async fn compare_change(&mut self, app: &App, ask: &Ask, clock: i64) -> Result<()> {
        let claim = self.fresh_claim(app).await?;
        let answer = self.send(app, &self.id, ask, &claim).await?;
        let wanted = self.oracle.ask(ask, clock).cloned();
        match (answer, wanted) {
            (Ok(version), Ok(wanted)) => {
                ensure!(self.config_ids.last().is_none_or(|last| *last < version.config_id), "config_ids do not rise");
                self.config_ids.push(version.config_id);
                self.same(&version, &wanted)?;
                self.counts.versions += 1;
            }
            (Err(AppError::InvalidRulePeriod(_)), Err(Refusal::Period)) => {
                self.settle(app, &claim).await?;
                self.counts.refused_period += 1;
            }
            (Err(AppError::FeeRuleExists), Err(Refusal::Exists)) => {
                self.settle(app, &claim).await?;
                self.counts.refused_exists += 1;
            }
            (answer, wanted) => bail!("answered {answer:?}, but the oracle says {wanted:?}"),
        }
        self.used = Some(claim);
        Ok(())
    }

    /// The store knows the nonce, and the commit would refuse it as well.
    async fn compare_replay(&mut self, app: &App, ask: &Ask, clock: i64) -> Result<()> {
        let Some(claim) = self.used.clone() else { return Ok(()) };
        let known = app.store.reserve(&claim).await?;
        // What nodes share is asked for the last word only: after a restart a node does not know yet.
        let may_ask_later = app.store.is_shared() && known == Claimed::Fresh;
        ensure!(known == Claimed::Used || may_ask_later, "a used nonce is {known:?}");
        let answer = self.send(app, &self.id, ask, &claim).await?;
        match (answer, self.oracle.clone().ask(ask, clock)) {
            (Err(AppError::NonceReused), Ok(_)) | (Err(AppError::InvalidRulePeriod(_)), Err(Refusal::Period)) => {
                self.counts.replays += 1;
                Ok(())
            }
            (answer, _) => bail!("a used nonce was answered {answer:?}"),
        }
    }

    async fn compare_stranger(&mut self, app: &App, ask: &Ask) -> Result<()> {
        let claim = self.fresh_claim(app).await?;
        let changed = self.send(app, &self.stranger, ask, &claim).await?;
        ensure!(matches!(changed, Err(AppError::SubMerchantNotFound)), "a stranger was changed: {changed:?}");
        self.settle(app, &claim).await?;
        let shown = in_force(app, &self.institution, &self.stranger, None).await;
        ensure!(matches!(shown, Err(AppError::SubMerchantNotFound)), "a stranger was shown: {shown:?}");
        self.counts.strangers += 1;
        Ok(())
    }

    async fn compare_in_force(&mut self, app: &App, at: Option<i64>, clock: i64) -> Result<()> {
        let answer = in_force(app, &self.institution, &self.id, at.map(UnixMillis)).await?;
        match (answer, self.oracle.in_force(at.unwrap_or_else(|| self.oracle.now(clock)))) {
            (None, None) => self.counts.none_in_force += 1,
            (Some(version), Some(wanted)) => {
                self.same(&version, wanted)?;
                self.counts.in_force += 1;
            }
            (answer, wanted) => bail!("in force is {answer:?}, but the oracle says {wanted:?}"),
        }
        Ok(())
    }

    async fn compare_versions(&self, app: &App, clock: i64, limit: u32) -> Result<()> {
        let (mut seen, mut after) = (0, None);
        loop {
            let (read, last) = self.compare_page_of_versions(app, clock, after, limit).await?;
            seen += read;
            if read < limit as usize {
                break;
            }
            after = last;
        }
        ensure!(seen == self.oracle.versions.len(), "{seen} versions, but the oracle has all of {:?}", self.oracle);
        Ok(())
    }

    /// Compares a page and says how many versions it had and the number of the last.
    async fn compare_page_of_versions(
        &self,
        app: &App,
        clock: i64,
        after: Option<RulePlace>,
        limit: u32,
    ) -> Result<(usize, Option<RulePlace>)> {
        let page = rule_versions(app, &self.id, after, limit).await?;
        let states = self.oracle.states_at(self.oracle.now(clock));
        let all = self.oracle.versions.iter().zip(&states).rev();
        let wanted: Vec<_> =
            all.filter(|(v, _)| after.is_none_or(|a| v.no < a.version_no)).take(limit as usize).collect();
        ensure!(page.len() == wanted.len(), "a page has {} versions, not {}", page.len(), wanted.len());
        for (SeenVersion { version, state, .. }, (wanted, wanted_state)) in page.iter().zip(wanted) {
            self.same(version, wanted)?;
            ensure!(state.name() == wanted_state.name(), "version {} is {state:?}, not {wanted_state:?}", wanted.no);
        }
        Ok((page.len(), page.last().map(|seen| seen.place)))
    }

    async fn send(&self, app: &App, sub: &str, ask: &Ask, claim: &ClaimKey) -> Result<Result<RuleVersion, AppError>> {
        let request = RuleChange {
            making: if ask.creation { Making::Create } else { Making::Upgrade },
            sub_merchant_id: sub.to_owned(),
            ask: RuleAsk {
                markup: Markup::new(Exact::parse(&ask.r)?.0, Exact::parse(&ask.f)?.0)?,
                effective_at: UnixMillis(ask.effective),
                due_at: ask.due.map(UnixMillis),
            },
        };
        let actor = Actor::named("application:history");
        Ok(change(app, &self.institution, &request, claim, &actor).await)
    }

    async fn fresh_claim(&mut self, app: &App) -> Result<ClaimKey> {
        self.claims += 1;
        let nonce = format!("{}.{}", self.id, self.claims);
        let claim = ClaimKey {
            tenant: self.institution.tenant,
            application: ApplicationNo(1),
            nonce,
            stamped_at: app.clock.now(),
        };
        let known = app.store.reserve(&claim).await?;
        ensure!(known == Claimed::Fresh, "a nonce that was never used is {known:?}");
        Ok(claim)
    }

    async fn settle(&self, app: &App, claim: &ClaimKey) -> Result<()> {
        let settled = app.store.settle(claim.clone()).await?;
        ensure!(settled == Claimed::Fresh, "the nonce of a refused change is {settled:?} when it is settled");
        Ok(())
    }
}
