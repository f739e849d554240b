//! Callers that upgrade fee rules, in process and in a closed loop: what a signed upgrade does after its signature was checked.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use countersign::app::rules::{Making, RuleChange, change};
use countersign::app::{Actor, App};
use countersign_domain::ids::{ApplicationNo, MerchantNo, TenantNo};
use countersign_domain::rules::{Markup, RuleAsk};
use countersign_store::batch::{Batch, Write};
use countersign_store::contract::{ClaimKey, Claimed, MerchantKind, MerchantRow, Store};
use countersign_store::testing::rows::merchant;
use rust_decimal::Decimal;
use tokio::task::JoinSet;

use super::pace::{Pace, closed_loop};

/// A deployment to load: its use cases, and its institutions with equally many sub-accounts each.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The use cases.
    pub app: Arc<App>,
    institutions: Arc<Vec<MerchantRow>>,
    subs: usize,
    share: Share,
}

/// Which institutions a slice is about: every `of`-th, beginning with the one at `part`. `of` divides their number.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// The first.
    pub part: usize,
    /// How many shares there are.
    pub of: usize,
}

/// All of them.
pub const ALL: Share = Share { part: 0, of: 1 };

impl Loaded {
    /// `institutions` institutions with `subs` sub-accounts each, added to an empty store.
    pub async fn fill(app: Arc<App>, institutions: usize, subs: usize) -> Result<Self> {
        let loaded = Self::over(app, institutions, subs)?;
        for (at, institution) in loaded.institutions.iter().enumerate() {
            let mut writes = vec![Write::InsertMerchant(Box::new(institution.clone()))];
            for n in 0..subs {
                let no = institution.no.0 + 1 + i64::try_from(n)?;
                let row = merchant(MerchantNo(no), &sub_id(at, n), institution.tenant, MerchantKind::SubAccount);
                writes.push(Write::InsertMerchant(Box::new(row)));
            }
            loaded.app.store.commit(Batch(writes)).await?;
        }
        Ok(loaded)
    }

    /// The same, where another process has filled the store already.
    pub fn over(app: Arc<App>, institutions: usize, subs: usize) -> Result<Self> {
        let row = |at: usize| {
            let no = 1 + i64::try_from(at * (subs + 1))?;
            Ok(merchant(MerchantNo(no), &format!("bank-{at}"), TenantNo(no), MerchantKind::Institution))
        };
        let institutions = (0..institutions).map(row).collect::<Result<Vec<_>>>()?;
        Ok(Self { app, institutions: Arc::new(institutions), subs, share: ALL })
    }

    /// The same deployment, loaded only where a share says.
    #[must_use]
    pub fn only(&self, share: Share) -> Self {
        Self { share, ..self.clone() }
    }

    /// Closed-loop callers for a slice of time, over the first `keys` sub-accounts: those of all institutions in turn.
    pub async fn slice(&self, callers: usize, keys: usize, slice: Duration) -> Result<Pace> {
        let loaded = self.clone();
        closed_loop(callers, slice, move |caller, turn| {
            let loaded = loaded.clone();
            let key = (caller * 7 + turn + 1) * loaded.share.of + loaded.share.part;
            async move { loaded.upgrade(key % keys).await }
        })
        .await
    }

    /// Gives every sub-account a rule.
    pub async fn first_rules(&self) -> Result<()> {
        let mut tasks: JoinSet<Result<()>> = JoinSet::new();
        for key in 0..self.keys() {
            let loaded = self.clone();
            tasks.spawn(async move { loaded.upgrade(key).await });
        }
        while let Some(made) = tasks.join_next().await {
            made??;
        }
        Ok(())
    }

    async fn upgrade(&self, key: usize) -> Result<()> {
        static NONCES: AtomicU64 = AtomicU64::new(0);
        let (at, n) = (key % self.institutions.len(), key / self.institutions.len());
        let institution = &self.institutions[at];
        let now = self.app.clock.now();
        let nonce = format!("{:08x}{:024x}", std::process::id(), NONCES.fetch_add(1, Ordering::Relaxed));
        let application = ApplicationNo(institution.no.0);
        let claim = ClaimKey { tenant: institution.tenant, application, nonce, stamped_at: now };
        anyhow::ensure!(self.app.store.reserve(&claim).await? == Claimed::Fresh, "a fresh nonce is fresh");
        let asked = RuleChange {
            making: Making::Upgrade,
            sub_merchant_id: sub_id(at, n),
            ask: RuleAsk {
                markup: Markup::new(Decimal::new(3, 1), Decimal::ZERO).context("a markup in range")?,
                effective_at: now,
                due_at: None,
            },
        };
        let actor = Actor {
            name: "application:measure".into(),
            source: String::new(),
            request_id: "measure".into(),
            right: None,
        };
        change(&self.app, institution, &asked, &claim, &actor).await?;
        Ok(())
    }

    /// How many sub-accounts there are in all.
    pub fn keys(&self) -> usize {
        self.institutions.len() * self.subs
    }
}

fn sub_id(institution: usize, n: usize) -> String {
    format!("bank-{institution}-{n}")
}
