//! Batches that each take a transaction of their own, with many ways to the database and back: those of a tenant wait for each other, and keep nobody
//! else waiting for long.

use std::collections::{HashMap, VecDeque};

use countersign_domain::ids::TenantNo;

use super::commit_lane::Job;

/// So many are done between two groups of the others.
pub(super) const RARE_AT_ONCE: usize = 4;
/// So many of one tenant wait; one more is refused at once. Each takes some ms, and none waits for longer than some seconds.
const OF_ONE_MAX: usize = 512;

/// Those that wait, in turns by tenant.
#[derive(Debug, Default)]
pub(super) struct RareJobs {
    /// Whose turn it is, first to last; each has jobs.
    turns: VecDeque<Option<TenantNo>>,
    of: HashMap<Option<TenantNo>, VecDeque<Job>>,
}

impl RareJobs {
    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// An error: its tenant has as many waiting as it may have.
    pub(super) fn push(&mut self, job: Job) -> Result<(), Job> {
        let waiting = self.of.entry(job.tenant).or_default();
        if waiting.len() >= OF_ONE_MAX {
            return Err(job);
        }
        if waiting.is_empty() {
            self.turns.push_back(job.tenant);
        }
        waiting.push_back(job);
        Ok(())
    }

    /// The next one; its tenant has its next turn after all others.
    pub(super) fn next(&mut self) -> Option<Job> {
        let tenant = self.turns.pop_front()?;
        let waiting = self.of.get_mut(&tenant)?;
        let job = waiting.pop_front();
        if waiting.is_empty() {
            self.of.remove(&tenant);
        } else {
            self.turns.push_back(tenant);
        }
        job
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use tokio::sync::oneshot;

    use super::*;
    use crate::batch::Batch;

    fn job(tenant: Option<i64>) -> Job {
        let (answer, _) = oneshot::channel();
        Job { batch: Batch::default(), tenant: tenant.map(TenantNo), since: Instant::now(), answer }
    }

    #[test]
    fn tenants_take_turns_however_many_jobs_one_has() {
        let mut jobs = RareJobs::default();
        for tenant in [Some(1), Some(1), Some(1), Some(2), None, Some(2)] {
            jobs.push(job(tenant)).expect("there is room");
        }
        let order: Vec<_> = std::iter::from_fn(|| jobs.next()).map(|job| job.tenant.map(|tenant| tenant.0)).collect();
        assert_eq!(order, [Some(1), Some(2), None, Some(1), Some(2), Some(1)]);
        assert!(jobs.is_empty() && jobs.of.is_empty());
    }

    #[test]
    fn one_tenant_fills_its_own_places_and_nobody_elses() {
        let mut jobs = RareJobs::default();
        for _ in 0..OF_ONE_MAX {
            jobs.push(job(Some(1))).expect("there is room");
        }
        assert!(jobs.push(job(Some(1))).is_err());
        jobs.push(job(Some(2))).expect("of another");
        jobs.next();
        jobs.push(job(Some(1))).expect("there is room again");
    }
}
