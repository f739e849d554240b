//! Dead events of all applications sent again: one redelivery for each of them that has some.
//!
//! Each is begun by itself: the audit logs of institutions are chains of their own, and one application whose callbacks do not go out, or whose rows
//! are damaged, keeps none of the others waiting. Whoever dies in between has begun some of them. Asked again, those that still run are left
//! out; those that have ended by then have nothing dead any more, or what has died again.

use countersign_domain::ids::{ApplicationNo, TenantNo};
use countersign_domain::time::UnixMillis;
use countersign_store::backlog::{Backlogs as _, WithDead};
use countersign_store::batch::Batch;
use countersign_store::{Store as _, StoreError};

use super::{Meant, Wish, begin, may_begin, public_id};
use crate::app::causes::{LOOKED_MAX, Which, each_dead_of};
use crate::app::error::AppError;
use crate::app::events::application;
use crate::app::operators::{Keep, kept};
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
}

/// What a wish comes to at some applications.
#[derive(Clone, Debug)]
pub struct Shares {
    /// One after the other.
    pub items: Vec<Share>,
    /// Behind which ClientId there may be more; none: these were all.
    pub next: Option<String>,
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
    if let Some(answer) = kept(keep, &shares) {
        app.store.commit(Batch(vec![answer])).await?;
    }
    Ok(shares)
}

/// Goes from one application to the next, until it has named so many, or looked at so much. `begins`: who has them begun.
async fn each(app: &App, wish: &Wish, after: Option<&str>, begins: Option<&Actor>) -> Result<Shares, AppError> {
    let mut place = match after {
        None => None,
        Some(client_id) => {
            let row = application(app, client_id).await?.application;
            Some((row.tenant, row.no))
        }
    };
    let (mut items, mut looked) = (Vec::new(), 0);
    loop {
        let page = app.store.with_dead(place, PAGE).await?;
        for of in &page {
            let (share, rows) = share(app, wish, of, begins).await?;
            items.extend(share);
            looked += rows.max(APPLICATION_COSTS);
            if items.len() >= APPLICATIONS_MAX || looked >= LOOKED_MAX {
                return Ok(Shares { items, next: Some(of.client_id.clone()) });
            }
        }
        let Some(last) = page.last().filter(|_| page.len() >= PAGE as usize) else {
            return Ok(Shares { items, next: None });
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
            let fate = or_left_out(Err(error))?;
            return Ok((Some(share_of(of, empty, fate)), 0));
        }
    };
    if meant.count == 0 && !meant.is_at_least {
        return Ok((None, rows));
    }
    let fate = or_left_out(fate(app, wish, of, meant, begins).await)?;
    Ok((Some(share_of(of, meant, fate)), rows))
}

fn share_of(of: &WithDead, meant: Meant, fate: Fate) -> Share {
    let Meant { count, is_at_least, oldest_at, .. } = meant;
    Share { client_id: of.client_id.clone(), count, is_at_least, oldest_at, fate }
}

async fn fate(app: &App, wish: &Wish, of: &WithDead, meant: Meant, begins: Option<&Actor>) -> Result<Fate, AppError> {
    let view = application(app, &of.client_id).await?;
    may_begin(app, &view).await?;
    let Some(actor) = begins else { return Ok(Fate::Meant) };
    let prospect = begin(app, &view.application, wish, meant, &|_| None, actor).await?;
    Ok(prospect.begun.map_or(Fate::Meant, |row| Fate::Begun(public_id(row.id))))
}

/// Of what is refused for reasons of the application, or cannot be read back: that it is left out. Anything else is an error of the whole call.
fn or_left_out(fate: Result<Fate, AppError>) -> Result<Fate, AppError> {
    match fate {
        Err(AppError::NotRedeliverable(why)) => Ok(Fate::LeftOut(why)),
        Err(AppError::Store(error @ StoreError::Corrupt { .. })) => Ok(Fate::LeftOut(error.to_string())),
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
    use countersign_domain::delivery::DeliveryState;
    use countersign_store::testing::Damage;

    use super::*;
    use crate::app::fixtures::{self, nobody};
    use crate::clock::Clock;
    use crate::config::Config;
    use crate::run::{close_store, initialise, open_app};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_application_that_cannot_be_read_back_is_left_out_and_the_others_begin() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = Config { data: folder.path().join("data"), ..Config::default() };
        initialise(&config).await.expect("a deployment");
        let app = open_app(&config, Clock::System, None).await.expect("it opens");
        let mut all = Vec::new();
        for name in ["damaged", "sound"] {
            let client_id = fixtures::application(&app, name, Some("https://till.example/callback")).await;
            fixtures::dead(&app, &client_id).await;
            all.push(client_id);
        }
        Damage::Application(all[0].clone()).file(&config.data.join("countersign.db"));
        // Readers look again after a commit of their own store.
        fixtures::happens(&app, &all[1]).await;
        let wish = Wish::every(DeliveryState::Dead, 9);
        let shares = start(&app, &wish, None, &|_| None, &nobody()).await.expect("others begin");
        let [damaged, sound] = &shares.items[..] else { panic!("both are named: {shares:?}") };
        assert_eq!([&damaged.client_id, &sound.client_id], [&all[0], &all[1]]);
        assert!(matches!(&damaged.fate, Fate::LeftOut(why) if why.contains("application")), "{damaged:?}");
        assert!(matches!(&sound.fate, Fate::Begun(_)), "{sound:?}");
        close_store(&app.store).expect("it closes");
    }
}
