//! Guards of batches that run alone, and batches that are nothing but guards.

use super::alone::{Alone, Stop, guard};
use super::statements::Sql;
use crate::batch::{Batch, Conflict, Guard, Key, Write};

/// Whether a batch is a look: nothing of it is to be kept.
pub(super) fn only_looks(batch: &Batch) -> bool {
    batch.0.iter().all(|write| matches!(write, Write::Guard(_)))
}

impl Alone<'_> {
    /// Whether a guard holds; none where the guard is one that groups judge.
    pub(super) async fn rests_on(&self, about: &Guard) -> Option<Result<(), Stop>> {
        let (found, conflict) = match about {
            Guard::Setting { name, value } => {
                (self.run(Sql::SettingIs, &[name, value]).await, Conflict::Moved(Key::Setting(name.clone())))
            }
            Guard::TokenLetGo { token_id } => {
                (self.run(Sql::TokenLetGo, &[token_id]).await, Conflict::Moved(Key::Token(token_id.clone())))
            }
            Guard::UnusedQuote { tenant, merchant, quote_id } => {
                let found = self.run(Sql::QuoteUnused, &[&tenant.0, &merchant.0, quote_id]).await;
                (found, Conflict::Moved(Key::Quote(quote_id.clone())))
            }
            Guard::Lane { .. }
            | Guard::Application { .. }
            | Guard::Token { .. }
            | Guard::RuleHead { .. }
            | Guard::PaymentOrder { .. }
            | Guard::Before { .. }
            | Guard::Reached { .. } => return None,
        };
        Some(found.and_then(|found| guard(&found, conflict)))
    }
}
