//! Dead events of all applications sent again: one redelivery for each of them that has some.
//!
//! Each is begun by itself: the audit logs of institutions are chains of their own, and one application whose callbacks do not go out, or whose rows
//! are damaged, keeps none of the others waiting. Whoever dies in between has begun some of them. Asked again, those that still run are left
//! out; those that have ended by then have nothing dead any more, or what has died again.
//!
//! Invariant: once one has begun, or may have, no error is the answer of the whole call: it ends there, and says what it has begun.

use countersign_domain::ids::{ApplicationNo, TenantNo};
use countersign_domain::time::UnixMillis;
use countersign_store::backlog::{Backlogs as _, WithDead};
use countersign_store::batch::Batch;
use countersign_store::{CommitError, Store as _, StoreError};

use super::{Meant, Wish, begin, may_begin, public_id};
use crate::app::causes::{LOOKED_MAX, Which, each_dead_of};
use crate::app::error::AppError;
use crate::app::idempotency::{Keep, kept};
use crate::app::identity::{find_application, no_application};
use crate::app::{Actor, App, delivery};

/// Applications that one call names.
const APPLICATIONS_MAX: usize = 200;
/// So many dead events could be looked at while one application without any that is asked for is passed over.
const APPLICATION_COSTS: usize = 100;
/// Applications that are found at once.
const PAGE: u32 = 200;

/// What a wish comes to at one application.
#[derive(Clone, Debug)]
pub struct Share {
    /// Whose events.
    pub client_id: String,
    /// How many.
    pub count: i64,
    /// Whether there may be more: of an application the newest 100,000 dead events are looked at.
    pub is_at_least: bool,
    /// When the oldest was written.
    pub oldest_at: Option<UnixMillis>,
    /// What becomes of them.
    pub fate: Fate,
}

/// What becomes of the events of one application.
#[derive(Clone, Debug)]
pub enum Fate {
    /// They would be sent again.
    Meant,
    /// They are sent again: the redelivery's public id.
    Begun(String),
    /// They stay dead, and why.
    LeftOut(String),
    /// Whether they are sent again is not known, and what tells.
    Unknown(String),
}

impl Share {
    fn may_have_begun(&self) -> bool {
        match self.fate {
            Fate::Begun(_) | Fate::Unknown(_) => true,
            Fate::Meant | Fate::LeftOut(_) => false,
        }
    }
}

/// What a wish comes to at some applications.
#[derive(Clone, Debug)]
pub struct Shares {
    /// One after the other.
    pub items: Vec<Share>,
    /// Behind which ClientId there may be more; none: these were all.
    pub next: Option<String>,
}

impl Shares {
    fn may_have_begun(&self) -> bool {
        self.items.iter().any(Share::may_have_begun)
    }
}

/// What a wish for dead events of all applications would come to. Writes nothing.
pub async fn preview(app: &App, wish: &Wish, after: Option<&str>) -> Result<Shares, AppError> {
    each(app, wish, after, None).await
}

/// Begins a redelivery for each application that has such events. What cannot be begun is left out, and says why.
pub async fn start(
    app: &App,
    wish: &Wish,
    after: Option<&str>,
    keep: &Keep<'_, Shares>,
    actor: &Actor,
) -> Result<Shares, AppError> {
    delivery::must_go_out(app)?;
    let shares = each(app, wish, after, Some(actor)).await?;
    let Some(answer) = kept(keep, &shares) else { return Ok(shares) };
    match app.store.commit(Batch(vec![answer])).await {
        Ok(_) => Ok(shares),
        Err(error @ (CommitError::Store(_) | CommitError::Unknown)) if shares.may_have_begun() => {
            tracing::warn!(%error, "What was begun for all applications is answered, but not kept for its Idempotency-Key: {error}");
            Ok(shares)
        }
        // Under this key another node has answered meanwhile, and that answer is given.
        Err(error) => Err(error.into()),
    }
}

/// Goes from one application to the next, until it has named so many, or looked at so much. `begins`: who has them begun.
async fn each(app: &App, wish: &Wish, after: Option<&str>, begins: Option<&Actor>) -> Result<Shares, AppError> {
    let mut shares = Shares { items: Vec::new(), next: after.map(str::to_owned) };
    match walk(app, wish, begins, &mut shares).await {
        Ok(()) => Ok(shares),
        Err(error) if shares.may_have_begun() => {
            tracing::warn!(%error, "Events of all applications are sent again of some only, and the rest is left to the next call: {error}");
            Ok(shares)
        }
        Err(error) => Err(error),
    }
}

/// Where it ends early, `shares.next` is the last application that was dealt with.
async fn walk(app: &App, wish: &Wish, begins: Option<&Actor>, shares: &mut Shares) -> Result<(), AppError> {
    let mut place = match &shares.next {
        None => None,
        Some(client_id) => Some(app.store.place_of(client_id).await?.ok_or_else(|| no_application(client_id))?),
    };
    let mut looked = 0;
    loop {
        let page = app.store.with_dead(place, PAGE).await?;
        for of in &page {
            let (share, rows) = share(app, wish, of, begins).await?;
            let is_unknown = share.as_ref().is_some_and(|share| matches!(share.fate, Fate::Unknown(_)));
            shares.items.extend(share);
            shares.next = Some(of.client_id.clone());
            looked += rows.max(APPLICATION_COSTS);
            if is_unknown || shares.items.len() >= APPLICATIONS_MAX || looked >= LOOKED_MAX {
                return Ok(());
            }
        }
        let Some(last) = page.last().filter(|_| page.len() >= PAGE as usize) else {
            shares.next = None;
            return Ok(());
        };
        place = Some((last.tenant, last.application));
    }
}

/// What becomes of the dead events of one application, if some are asked for; and how many were looked at.
async fn share(
    app: &App,
    wish: &Wish,
    of: &WithDead,
    begins: Option<&Actor>,
) -> Result<(Option<Share>, usize), AppError> {
    let empty = Meant { count: 0, is_at_least: false, oldest_at: None, cursor_seq: 0 };
    let (meant, rows) = match meant(app, wish, (of.tenant, of.application)).await {
        Ok(found) => found,
        Err(error) => {
            let fate = or_left_out(of, Err(error))?;
            return Ok((Some(share_of(of, empty, fate)), 0));
        }
    };
    if meant.count == 0 && !meant.is_at_least {
        return Ok((None, rows));
    }
    let fate = or_left_out(of, fate(app, wish, of, meant, begins).await)?;
    Ok((Some(share_of(of, meant, fate)), rows))
}

fn share_of(of: &WithDead, meant: Meant, fate: Fate) -> Share {
    let Meant { count, is_at_least, oldest_at, .. } = meant;
    Share { client_id: of.client_id.clone(), count, is_at_least, oldest_at, fate }
}

async fn fate(app: &App, wish: &Wish, of: &WithDead, meant: Meant, begins: Option<&Actor>) -> Result<Fate, AppError> {
    let view = find_application(app, &of.client_id).await?;
    may_begin(app, &view).await?;
    let Some(actor) = begins else { return Ok(Fate::Meant) };
    let prospect = begin(app, &view.application, wish, meant, &|_| None, actor).await?;
    Ok(prospect.begun.map_or(Fate::Meant, |row| Fate::Begun(public_id(row.id))))
}

/// Of what is refused for reasons of the application, or cannot be read back: that it is left out. Of a commit that nobody answered: that its fate is
/// not known. Anything else ends the walk.
fn or_left_out(of: &WithDead, fate: Result<Fate, AppError>) -> Result<Fate, AppError> {
    match fate {
        Err(AppError::NotRedeliverable(why)) => Ok(Fate::LeftOut(why)),
        Err(AppError::Store(error @ StoreError::Corrupt { .. })) => Ok(Fate::LeftOut(error.to_string())),
        Err(AppError::OutcomeUnknown) => Ok(Fate::Unknown(format!(
            "the database did not say whether its redelivery has begun: GET /redeliveries?client_id={0} shows it if it has; if not, repeat this for {0}",
            of.client_id
        ))),
        other => other,
    }
}

/// The dead events of an application that are asked for, and how many were looked at.
async fn meant(app: &App, wish: &Wish, of: (TenantNo, ApplicationNo)) -> Result<(Meant, usize), AppError> {
    let (biz_id, died_of) = (wish.biz_id.clone(), wish.died_of);
    let which = Which { client_id: None, biz_id, from: wish.from, to: wish.to, died_of };
    let mut found = Meant { count: 0, is_at_least: false, oldest_at: None, cursor_seq: i64::MAX };
    let looked = each_dead_of(app, Some(of), &which, |row| {
        found.count += 1;
        found.oldest_at = Some(found.oldest_at.map_or(row.created_at, |oldest_at| oldest_at.min(row.created_at)));
        found.cursor_seq = found.cursor_seq.min(row.seq - 1);
    })
    .await?;
    // Those that were not looked at are older.
    let cursor_seq = if looked.is_at_least || found.count == 0 { 0 } else { found.cursor_seq };
    Ok((Meant { is_at_least: looked.is_at_least, cursor_seq, ..found }, looked.rows))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use countersign_domain::delivery::DeliveryState;
    use countersign_store::contract::{IdempotencyRow, NewAnswer};
    use countersign_store::testing::Damage;

    use super::*;
    use crate::app::fixtures::{self, Deployment, nobody};

    /// A deployment with so many applications, each with a dead event.
    struct Ward {
        deployment: Deployment,
        app: Arc<App>,
        all: Vec<String>,
    }

    impl Ward {
        async fn of(count: usize) -> Self {
            let deployment = Deployment::on_sqlite().await.in_real_time();
            let app = deployment.open().await;
            let mut all = Vec::new();
            for n in 0..count {
                let client_id =
                    fixtures::application(&app, &format!("m{n}"), Some("https://till.example/callback")).await;
                fixtures::dead(&app, &client_id).await;
                all.push(client_id);
            }
            Self { deployment, app, all }
        }

        /// Readers look again after a commit of their own store.
        async fn damage(&self, what: Damage) {
            what.file(&self.deployment.file());
            fixtures::happens(&self.app, &self.all[self.all.len() - 1]).await;
        }

        async fn start(&self, after: Option<&str>, keep: &Keep<'_, Shares>) -> Result<Shares, AppError> {
            start(&self.app, &Wish::every(DeliveryState::Dead, 9), after, keep, &nobody()).await
        }

        fn end(self) {
            Deployment::close(&self.app);
        }
    }

    /// Those that were begun.
    fn begun(shares: &Shares) -> Vec<&str> {
        let begun = shares.items.iter().filter(|share| matches!(share.fate, Fate::Begun(_)));
        begun.map(|share| share.client_id.as_str()).collect()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_application_that_cannot_be_read_back_is_left_out_and_the_others_begin() {
        let ward = Ward::of(2).await;
        ward.damage(Damage::Application(ward.all[0].clone())).await;
        let shares = ward.start(None, &|_| None).await.expect("others begin");
        let [damaged, sound] = &shares.items[..] else { panic!("both are named: {shares:?}") };
        assert_eq!([&damaged.client_id, &sound.client_id], [&ward.all[0], &ward.all[1]]);
        assert!(matches!(&damaged.fate, Fate::LeftOut(why) if why.contains("application")), "{damaged:?}");
        assert!(matches!(&sound.fate, Fate::Begun(_)), "{sound:?}");
        ward.end();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_is_behind_an_application_that_cannot_be_read_back_is_reached() {
        let ward = Ward::of(2).await;
        ward.damage(Damage::Application(ward.all[0].clone())).await;
        let shares = ward.start(Some(&ward.all[0]), &|_| None).await.expect("the rest begins");
        assert_eq!((begun(&shares), &shares.next), (vec![ward.all[1].as_str()], &None));
        let unknown = ward.start(Some("app_nobody"), &|_| None).await.expect_err("there is no such application");
        assert!(matches!(&unknown, AppError::NotFound(why) if why.contains("app_nobody")), "{unknown:?}");
        ward.end();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_store_that_fails_on_the_way_takes_nothing_back_of_what_has_begun() {
        let ward = Ward::of(4).await;
        let [first, second, third, fourth] = [0, 1, 2, 3].map(|n| ward.all[n].as_str());
        ward.damage(Damage::Redelivery(third.to_owned())).await;
        let shares = ward.start(None, &|_| None).await.expect("two have begun");
        assert_eq!((begun(&shares), shares.items.len()), (vec![first, second], 2));
        assert_eq!(shares.next.as_deref(), Some(second), "the one that failed comes next");
        let failed = ward.start(Some(second), &|_| None).await.expect_err("nothing was begun");
        assert!(matches!(failed, AppError::Store(_)), "{failed:?}");
        let rest = ward.start(Some(third), &|_| None).await.expect("the rest begins");
        assert_eq!((begun(&rest), &rest.next), (vec![fourth], &None));
        ward.end();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_has_begun_is_answered_also_where_the_answer_cannot_be_kept() {
        let ward = Ward::of(2).await;
        ward.damage(Damage::Answers).await;
        let keep = |_: &Shares| {
            let (scope, key, answer) = ("tok_1 POST /".to_owned(), "k".to_owned(), String::new());
            let row =
                IdempotencyRow { scope, key, body_digest: [1; 32], status: 200, answer, created_at: UnixMillis(1) };
            Some(NewAnswer { row, ended_before: UnixMillis(0) })
        };
        let shares = ward.start(None, &keep).await.expect("both have begun");
        assert_eq!(begun(&shares), ward.all.iter().map(String::as_str).collect::<Vec<_>>());
        let failed = ward.start(None, &keep).await.expect_err("each is running: nothing was begun");
        assert!(matches!(failed, AppError::Store(_)), "{failed:?}");
        ward.end();
    }

    #[test]
    fn of_a_commit_that_nobody_answered_it_is_said_that_it_may_have_begun() {
        let of = WithDead { tenant: TenantNo(1), application: ApplicationNo(1), client_id: "app_one".to_owned() };
        let fate = or_left_out(&of, Err(AppError::OutcomeUnknown)).expect("the walk has dealt with it");
        assert!(matches!(&fate, Fate::Unknown(how) if how.contains("GET /redeliveries?client_id=app_one")), "{fate:?}");
        let meant = Meant { count: 1, is_at_least: false, oldest_at: None, cursor_seq: 0 };
        let shares = Shares { items: vec![share_of(&of, meant, fate)], next: Some(of.client_id.clone()) };
        assert!(shares.may_have_begun());
        for error in [AppError::Busy, AppError::Store(StoreError::Unavailable(String::new()))] {
            or_left_out(&of, Err(error)).expect_err("ends the walk");
        }
    }
}
