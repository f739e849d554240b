//! Who does something, and what their right to do it rests on.

use std::sync::Arc;

use countersign_domain::ids::TenantNo;
use countersign_domain::time::UnixMillis;
use countersign_store::batch::{Batch, Conflict, Guard, Key, Write};
use countersign_store::contract::{ApplicationRow, AuditRow, MerchantRow};
use countersign_store::{CommitError, Store as _};

use super::App;
use super::callers::KnownApplication;
use super::error::AppError;

/// Who does something, for the audit log.
#[derive(Clone, Debug)]
pub struct Actor {
    /// `token:tok_...`, `application:app_...` or `system`.
    pub name: String,
    /// Address it came from, or empty.
    pub source: String,
    /// The request's id.
    pub request_id: String,
    /// What may be taken away while it is under way; none: it rests on nothing of the kind.
    pub right: Option<Right>,
}

/// What the right to do something rests on. It was looked at when the call was let in; since then its body may have come slowly, and it may have waited
/// for its turn.
#[derive(Clone, Debug)]
pub enum Right {
    /// An operator token, by its id.
    Token(String),
    /// A signature.
    Signature {
        /// Whose, as it was when the signature was checked.
        application: Arc<KnownApplication>,
        /// The sub-account that it acts for.
        acts_for: Option<MerchantRow>,
    },
}

/// What somebody did, for the audit log.
#[derive(Debug)]
pub struct Deed<'a> {
    /// Whose; none: the deployment's.
    pub tenant: Option<TenantNo>,
    /// When.
    pub at: UnixMillis,
    /// What kind of change: `token.create`.
    pub action: &'a str,
    /// The public id of what was changed.
    pub subject: &'a str,
    /// How the subject was: a JSON text without secrets, or empty.
    pub before: String,
    /// How the subject is now: the same kind of text.
    pub after: String,
}

impl Actor {
    /// Countersign itself.
    pub fn system() -> Self {
        Self::named("system")
    }

    /// Somebody of this name whose right rests on nothing.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), source: String::new(), request_id: String::new(), right: None }
    }

    /// What this actor changes; it rests on their token, or on the application that has signed. Changes of that one do not wait: there would be a lock
    /// for each signed request, one behind the other without an end.
    pub fn batch(&self, mut writes: Vec<Write>) -> Batch {
        let rests_on = self.right.as_ref().map(|right| match right {
            Right::Token(token_id) => Guard::Token { token_id: token_id.clone() },
            Right::Signature { application, .. } => {
                let ApplicationRow { no, client_id, revision, .. } = &application.application;
                let (application, client_id, revision) = (*no, client_id.clone(), *revision);
                Guard::Application { application, client_id, revision, holds_changes: false }
            }
        });
        if let Some(rests_on) = rests_on {
            writes.insert(0, Write::Guard(rests_on));
        }
        Batch(writes)
    }

    /// Whether such a batch was refused because the right to it is no more what it was: to decide anew would not help.
    pub fn has_lost(&self, refused: &CommitError) -> bool {
        match (refused, &self.right) {
            (CommitError::Conflict(Conflict::TokenRevoked), _) => true,
            (CommitError::Conflict(Conflict::Moved(Key::Application(changed))), Some(right)) => {
                matches!(right, Right::Signature { application, .. } if *changed == application.application.client_id)
            }
            _ => false,
        }
    }

    /// That a signed request may still be done, behind whatever it has waited for. Where its application has changed meanwhile it is to come again, and
    /// is checked anew then: its secret may be gone, or somebody be disabled.
    pub async fn may_still(&self, app: &App) -> Result<(), AppError> {
        let Some(Right::Signature { application: was, acts_for }) = &self.right else { return Ok(()) };
        let is = app.known_application(&was.application.client_id).await?;
        let is_same = is.is_some_and(|is| is.application.revision == was.application.revision);
        let acts_still = match acts_for {
            Some(was) => app.store.merchant(&was.merchant_id).await?.is_some_and(|is| is.revision == was.revision),
            None => true,
        };
        if is_same && acts_still { Ok(()) } else { Err(AppError::Busy) }
    }

    /// Somebody with a shell on the machine, who needs no token.
    pub fn machine() -> Self {
        Self::named("machine")
    }

    /// The write of the audit line that says what this actor does.
    pub fn records(&self, deed: Deed<'_>) -> Write {
        let Deed { tenant, at, action, subject, before, after } = deed;
        Write::RecordAudit(Box::new(AuditRow {
            no: 0,
            tenant,
            at,
            actor: self.name.clone(),
            source: self.source.clone(),
            action: action.to_owned(),
            subject: subject.to_owned(),
            before,
            after,
            request_id: self.request_id.clone(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use countersign_domain::conversion::Terms;
    use countersign_domain::money::Amount;
    use countersign_domain::rules::{Markup, RuleAsk};
    use countersign_store::contract::{ApplicationView, Cursor};
    use rust_decimal::Decimal;

    use super::*;
    use crate::app::conversion::{Conversion, convert};
    use crate::app::fixtures::{Deployment, bank, claim, nobody, ordered_by};
    use crate::app::identity::{ApplicationChange, MerchantChange, update_application, update_merchant};
    use crate::app::payment_orders::{Named, close, currency};
    use crate::app::rules::{Making, RuleChange, change};

    async fn who_signs(app: &App, of: &ApplicationView, acts_for: Option<&MerchantRow>) -> Actor {
        let application = app.known_application(&of.application.client_id).await.expect("reads").expect("is there");
        Actor { right: Some(Right::Signature { application, acts_for: acts_for.cloned() }), ..Actor::named("who") }
    }

    /// Makes an order, gives it up, makes a fee rule, and takes a quote that is not there. What is given back is of the four, in this order.
    async fn each(app: &App, of: &ApplicationView, n: u8, actor: &Actor) -> [Result<(), AppError>; 4] {
        let (now, trade_no) = (app.clock.now(), format!("T-{n}"));
        let claim = |what: &str| claim(&of.application, &format!("{what}-{n}"), now);
        let made = ordered_by(app, of, &trade_no, actor).await.map(|_| ());
        let named = Named { prepay_id: None, trade_no: Some("T-0") };
        let closed = close(app, &of.merchant, &named, &claim("close"), actor).await;
        let markup = Markup::new(Decimal::ONE, Decimal::ZERO).expect("a markup");
        let ask = RuleAsk { markup, effective_at: now, due_at: None };
        let asked = RuleChange { making: Making::Upgrade, sub_merchant_id: "shop".to_owned(), ask };
        let ruled = change(app, &of.merchant, &asked, &claim("rule"), actor).await.map(|_| ());
        let [sell_currency, buy_currency] = ["GT", "USDT"].map(|code| currency("c", code).expect("a currency"));
        let amount = Amount::from_decimal(Decimal::ONE).expect("an amount");
        let quote_id = "PAY-0".to_owned();
        let terms = Terms { quote_id, sell_currency, buy_currency, sell_amount: amount, buy_amount: amount };
        let asked = Conversion { client_req_id: format!("r-{n}"), terms };
        let converted = convert(app, &of.merchant, &asked, &claim("convert"), actor).await.map(|_| ());
        [made, closed, ruled, converted]
    }

    /// As on another node that has not been told yet: the change is in the database, and not in what is kept of it.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_is_committed_behind_a_change_of_its_application_is_not_done() {
        for deployment in Deployment::on_each_store().await {
            let app = deployment.open().await;
            let (of, _shop) = bank(&app).await;
            let was = who_signs(&app, &of, None).await;
            ordered_by(&app, &of, "T-0", &was).await.expect("is made");
            let changed = ApplicationRow { revision: of.application.revision + 1, ..of.application.clone() };
            app.store.commit(Batch(vec![Write::UpdateApplication(Box::new(changed))])).await.expect("is changed");
            let line = was.records(Deed {
                tenant: None,
                at: app.clock.now(),
                action: "x",
                subject: "x",
                before: String::new(),
                after: String::new(),
            });
            let refused = app.store.commit(was.batch(vec![line])).await;
            let refused = refused.expect_err("it rests on what is no more");
            assert!(was.has_lost(&refused), "{refused:?}");
            for refused in &each(&app, &of, 1, &was).await[..3] {
                assert!(matches!(refused, Err(AppError::Busy)), "{refused:?}");
            }
            Deployment::close(&app);
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_has_waited_while_its_application_or_the_sub_account_it_acts_for_changed_is_not_done() {
        for deployment in Deployment::on_each_store().await {
            let app = deployment.open().await;
            let (of, shop) = bank(&app).await;
            let was = who_signs(&app, &of, Some(&shop)).await;
            let [made, closed, ruled, converted] = each(&app, &of, 0, &was).await;
            assert!(made.is_ok() && closed.is_ok() && ruled.is_ok(), "{made:?} {closed:?} {ruled:?}");
            assert!(matches!(converted, Err(AppError::Quote(_))), "{converted:?}");
            let lines = async || app.store.audit(Cursor { after: None, limit: 99 }).await.expect("reads").len();
            let turned_off = MerchantChange { enabled: Some(false), ..MerchantChange::default() };
            update_merchant(&app, "shop", &turned_off, &|_| None, &nobody()).await.expect("is changed");
            let after = lines().await;
            for refused in each(&app, &of, 1, &was).await {
                assert!(matches!(refused, Err(AppError::Busy)), "{refused:?}");
            }
            let was = who_signs(&app, &of, None).await;
            was.may_still(&app).await.expect("acts for itself");
            let turned_off = ApplicationChange { enabled: Some(false), ..ApplicationChange::default() };
            let client_id = &of.application.client_id;
            update_application(&app, client_id, &turned_off, &|_| None, &nobody()).await.expect("is changed");
            for refused in each(&app, &of, 2, &was).await {
                assert!(matches!(refused, Err(AppError::Busy)), "{refused:?}");
            }
            assert_eq!(lines().await, after + 1, "nothing is done but the change");
            Deployment::close(&app);
        }
    }
}
