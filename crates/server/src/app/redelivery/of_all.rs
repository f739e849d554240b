//! Dead events of all applications sent again: one redelivery for each of them that has some.
//!
//! Each is begun by itself: the audit logs of institutions are chains of their own, and one application whose callbacks do not go out keeps none of
//! the others waiting. Whoever dies in between has begun some of them; asked again, those are left out, since they run.

use std::collections::BTreeMap;
use std::ops::Bound;

use countersign_domain::time::UnixMillis;
use countersign_store::Store as _;
use countersign_store::batch::Batch;
use countersign_store::contract::ApplicationView;

use super::{Meant, Wish, begin, may_begin, public_id};
use crate::app::causes::{Which, each_dead};
use crate::app::error::AppError;
use crate::app::events::application;
use crate::app::operators::{Keep, kept};
use crate::app::{Actor, App, delivery};

/// Applications that one call looks at.
pub const APPLICATIONS_MAX: usize = 200;

/// What a wish comes to at one application.
#[derive(Clone, Debug)]
pub struct Share {
    /// Whose events.
    pub client_id: String,
    /// How many.
    pub count: i64,
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

/// What a wish comes to at all applications.
#[derive(Clone, Debug)]
pub struct Shares {
    /// By ClientId.
    pub items: Vec<Share>,
    /// Whether there may be more: the newest 100,000 dead events were looked at.
    pub is_at_least: bool,
    /// Behind which ClientId there are more; none: these were all.
    pub next: Option<String>,
}

/// What a wish for dead events of all applications would come to. Writes nothing.
pub async fn preview(app: &App, wish: &Wish, after: Option<&str>) -> Result<Shares, AppError> {
    let mut found = find(app, wish, after).await?;
    for (share, _) in &mut found.items {
        let view = application(app, &share.client_id).await?;
        share.fate = or_left_out(may_begin(app, &view).await.map(|()| Fate::Meant))?;
    }
    Ok(found.into_shares())
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
    let mut found = find(app, wish, after).await?;
    for (share, meant) in &mut found.items {
        let view = application(app, &share.client_id).await?;
        share.fate = or_left_out(begin_one(app, &view, wish, *meant, actor).await)?;
    }
    let shares = found.into_shares();
    if let Some(answer) = kept(keep, &shares) {
        app.store.commit(Batch(vec![answer])).await?;
    }
    Ok(shares)
}

async fn begin_one(
    app: &App,
    view: &ApplicationView,
    wish: &Wish,
    meant: Meant,
    actor: &Actor,
) -> Result<Fate, AppError> {
    may_begin(app, view).await?;
    let prospect = begin(app, &view.application, wish, meant, &|_| None, actor).await?;
    Ok(prospect.begun.map_or(Fate::Meant, |row| Fate::Begun(public_id(row.id))))
}

/// Of what is refused for reasons of the application: that it is left out. Anything else is an error of the whole call.
fn or_left_out(fate: Result<Fate, AppError>) -> Result<Fate, AppError> {
    match fate {
        Err(AppError::NotRedeliverable(why)) => Ok(Fate::LeftOut(why)),
        other => other,
    }
}

/// The dead events that are meant, by application.
struct Found {
    items: Vec<(Share, Meant)>,
    is_at_least: bool,
    next: Option<String>,
}

impl Found {
    fn into_shares(self) -> Shares {
        let items = self.items.into_iter().map(|(share, _)| share).collect();
        Shares { items, is_at_least: self.is_at_least, next: self.next }
    }
}

async fn find(app: &App, wish: &Wish, after: Option<&str>) -> Result<Found, AppError> {
    let (biz_id, died_of) = (wish.biz_id.clone(), wish.died_of);
    let which = Which { client_id: None, biz_id, from: wish.from, to: wish.to, died_of };
    let mut tally: BTreeMap<String, Meant> = BTreeMap::new();
    let is_at_least = each_dead(app, &which, |row| {
        let first = Meant { count: 0, is_at_least: false, oldest_at: None, cursor_seq: i64::MAX };
        let meant = tally.entry(row.client_id).or_insert(first);
        meant.count += 1;
        meant.oldest_at = Some(meant.oldest_at.map_or(row.created_at, |oldest_at| oldest_at.min(row.created_at)));
        meant.cursor_seq = meant.cursor_seq.min(row.seq - 1);
    })
    .await?;
    let behind = after.map_or(Bound::Unbounded, Bound::Excluded);
    let mut all = tally.range::<str, _>((behind, Bound::Unbounded));
    let items: Vec<(Share, Meant)> = all
        .by_ref()
        .take(APPLICATIONS_MAX)
        .map(|(client_id, meant)| {
            let (count, oldest_at) = (meant.count, meant.oldest_at);
            // Those that were not looked at are older, and may be of any application.
            let cursor_seq = if is_at_least { 0 } else { meant.cursor_seq };
            let share = Share { client_id: client_id.clone(), count, oldest_at, fate: Fate::Meant };
            (share, Meant { is_at_least, cursor_seq, ..*meant })
        })
        .collect();
    let next = all.next().and(items.last()).map(|(share, _)| share.client_id.clone());
    Ok(Found { items, is_at_least, next })
}
