//! Batches that each take a transaction of their own, with many ways to the database and back: those of a tenant wait for each other, and keep nobody
//! else waiting for long. A merchant's conversions wait for each other alone, so that they keep neither other sub-accounts of its institution waiting nor
//! operators, whose changes may be urgent.

use std::collections::{HashMap, VecDeque};

use countersign_domain::ids::{MerchantNo, TenantNo};

use super::commit_lane::Job;
use crate::batch::{Batch, Guard, Write};

/// So many are done between two groups of the others.
pub(super) const RARE_AT_ONCE: usize = 4;
/// So many of one queue wait; one more is refused at once. Each takes some ms, and none waits for longer than some seconds.
const OF_ONE_MAX: usize = 512;
/// So many of all.
const ALL_MAX: usize = 4_096;

/// Whose jobs wait for each other: a merchant's conversions, or all else of a tenant.
type Queue = (Option<TenantNo>, Option<MerchantNo>);

/// Those that wait, in turns by queue.
#[derive(Debug, Default)]
pub(super) struct RareJobs {
    /// Whose turn it is, first to last; each has jobs.
    turns: VecDeque<Queue>,
    of: HashMap<Queue, VecDeque<Job>>,
    count: usize,
}

/// The merchant whose conversion a batch is, if the batch is a conversion.
pub(super) fn converts_for(batch: &Batch) -> Option<MerchantNo> {
    batch.0.iter().find_map(|write| match write {
        Write::Convert(write) => write.merchant(),
        Write::Guard(Guard::UnusedQuote { merchant, .. }) => Some(*merchant),
        _ => None,
    })
}

impl RareJobs {
    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// An error: there are as many waiting as may.
    pub(super) fn push(&mut self, job: Job) -> Result<(), Job> {
        let queue = (job.tenant, converts_for(&job.batch));
        let waiting = self.of.get(&queue).map_or(0, VecDeque::len);
        if waiting >= OF_ONE_MAX || self.count >= ALL_MAX {
            return Err(job);
        }
        if waiting == 0 {
            self.turns.push_back(queue);
        }
        self.of.entry(queue).or_default().push_back(job);
        self.count += 1;
        Ok(())
    }

    /// The next one; its queue has its next turn after all others.
    pub(super) fn next(&mut self) -> Option<Job> {
        let queue = self.turns.pop_front()?;
        let waiting = self.of.get_mut(&queue)?;
        let job = waiting.pop_front()?;
        self.count -= 1;
        if waiting.is_empty() {
            self.of.remove(&queue);
        } else {
            self.turns.push_back(queue);
        }
        Some(job)
    }
}

#[cfg(test)]
mod tests {
    use countersign_domain::convert_order::{ConvertOrder, ConvertStatus};
    use countersign_domain::ids::OrderId;
    use countersign_domain::money::{Amount, Currency};
    use countersign_domain::time::UnixMillis;
    use rust_decimal::Decimal;
    use tokio::sync::oneshot;
    use tokio::time::Instant;

    use super::*;
    use crate::conversion::ConvertWrite;

    fn job_with(tenant: Option<i64>, batch: Batch) -> Job {
        let (answer, _) = oneshot::channel();
        Job { batch, tenant: tenant.map(TenantNo), since: Instant::now(), answer }
    }

    fn job(tenant: Option<i64>) -> Job {
        job_with(tenant, Batch::default())
    }

    /// A conversion of a merchant of the first tenant.
    fn conversion(merchant: i64) -> Job {
        let of = (TenantNo(1), MerchantNo(merchant));
        let write = ConvertWrite::Execute {
            tenant: of.0,
            merchant: of.1,
            client_req_id: "r".to_owned(),
            order: ConvertOrder {
                order_id: OrderId::new(1).expect("in range"),
                user_id: 1,
                sell_currency: Currency::parse("BTC").expect("a code"),
                buy_currency: Currency::parse("USDT").expect("a code"),
                sell_amount: Amount::from_micros(1),
                buy_amount: Amount::from_micros(1),
                status: ConvertStatus::Created,
                rate: Decimal::ONE,
                quote_id: "PAY-0badcafe".to_owned(),
                created_at: UnixMillis(0),
                revision: 1,
            },
        };
        job_with(Some(1), Batch(vec![Write::Convert(Box::new(write))]))
    }

    fn tenants(jobs: &mut RareJobs) -> Vec<Option<i64>> {
        std::iter::from_fn(|| jobs.next()).map(|job| job.tenant.map(|tenant| tenant.0)).collect()
    }

    #[test]
    fn tenants_take_turns_however_many_jobs_one_has() {
        let mut jobs = RareJobs::default();
        for tenant in [Some(1), Some(1), Some(1), Some(2), None, Some(2)] {
            jobs.push(job(tenant)).expect("there is room");
        }
        assert_eq!(tenants(&mut jobs), [Some(1), Some(2), None, Some(1), Some(2), Some(1)]);
        assert!(jobs.is_empty() && jobs.of.is_empty() && jobs.count == 0);
    }

    #[test]
    fn one_fills_its_own_places_and_nobody_elses() {
        let mut jobs = RareJobs::default();
        for _ in 0..OF_ONE_MAX {
            jobs.push(conversion(1)).expect("there is room");
        }
        assert!(jobs.push(conversion(1)).is_err());
        jobs.push(conversion(2)).expect("of another sub-account");
        // What is no conversion comes second, however many of those wait.
        jobs.push(job(Some(1))).expect("as when a secret is revoked");
        let first: Vec<bool> = (0..3).filter_map(|_| jobs.next()).map(|job| job.batch.0.is_empty()).collect();
        assert_eq!(first, [false, false, true]);
        jobs.push(conversion(1)).expect("there is room again");
    }

    #[test]
    fn all_together_have_a_bound_too() {
        let mut jobs = RareJobs::default();
        let tenants = i64::try_from(ALL_MAX).expect("small");
        for tenant in 0..tenants {
            jobs.push(job(Some(tenant))).expect("there is room");
        }
        assert!(jobs.push(job(Some(tenants))).is_err());
        jobs.next();
        jobs.push(job(Some(tenants))).expect("there is room again");
    }
}
