//! Payment API Secrets: made here, sealed under the master key, shown once.

use std::time::Instant;

use countersign_domain::ids::prefix;
use countersign_domain::time::{UnixMillis, rfc3339};
use countersign_store::batch::{Guard, Write};
use countersign_store::contract::{ApplicationRow, ApplicationView, SecretRow};
use serde_json::{Value, json};

use super::applications::{decide_and_commit, find_application};
use crate::app::callers::signs_callbacks;
use crate::app::error::AppError;
use crate::app::idempotency::{Keep, kept};
use crate::app::master_key::MASTER_KEY_ID;
use crate::app::plain_secret::PlainSecret;
use crate::app::uses::Usage;
use crate::app::{Actor, App, Deed, nodes, uses};
use crate::digest::sha256;
use crate::vault::secret_row;

pub use crate::app::callers::LIVE_SECRETS_MAX;

/// How long the old secrets of a rotation live on, in seconds, where nothing is said: a day.
pub const OVERLAP_S_DEFAULT: i64 = 86_400;
/// The longest such overlap: 30 days.
pub const OVERLAP_S_MAX: i64 = 30 * 86_400;
/// How long a secret that has ended stays in the list, in ms. The next rotation after this time takes the secret out, so that an application is read
/// as fast after many rotations as after none.
const ENDED_LISTED_MS: i64 = 30 * 86_400_000;
/// A secret with which nothing was signed for this long is safe to retire, in ms.
pub const RETIRE_QUIET_MS: i64 = 3_600_000;

/// What every Payment API Secret begins with, so that scanners find one that leaked.
const SECRET_PREFIX: &str = "sk_";
/// Bytes of chance in a secret: 256 bits.
const SECRET_BYTES: usize = 32;

/// A secret that was just made.
#[derive(Debug)]
pub struct MadeSecret {
    /// Its row, sealed.
    pub row: SecretRow,
    /// Its text, for its owner only.
    pub plain: PlainSecret,
    /// When the last of the secrets that were live before it ends; none: there was none.
    pub others_end_at: Option<UnixMillis>,
}

/// A secret that was just changed, and how long its application has one.
#[derive(Debug)]
pub struct SecretChange {
    /// Its row, as it becomes.
    pub row: SecretRow,
    /// How many secrets of the application are live from then on.
    pub live: usize,
    /// When the last of them ends; none: one of them does not end, or none is live.
    pub live_end_at: Option<UnixMillis>,
}

impl SecretChange {
    /// The change of one among `all`, which are as they were before.
    fn of(row: SecretRow, all: &[SecretRow], now: UnixMillis) -> Self {
        let others = all.iter().filter(|other| other.secret_id != row.secret_id);
        let ends: Vec<_> = others.chain([&row]).filter(|s| s.is_live(now)).map(|s| s.not_after).collect();
        // None where a live secret has no end.
        let all_end: Option<Vec<_>> = ends.iter().copied().collect();
        Self { live: ends.len(), live_end_at: all_end.and_then(|ends| ends.into_iter().max()), row }
    }
}

/// A secret and what is known of its use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenSecret {
    /// Its row.
    pub row: SecretRow,
    /// How it was used.
    pub usage: Usage,
    /// Whether callbacks are signed with this secret now: it was chosen, or no chosen secret lives and it is the newest live one.
    pub signs_callbacks: bool,
    /// Why it is not safe to retire; none: it is.
    pub in_use: Option<InUse>,
}

/// Why a secret cannot be retired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InUse {
    /// Callbacks are signed with it.
    SignsCallbacks,
    /// No other one is live: without it every request would be refused.
    OnlyLive,
    /// All others end before it does, the last of them at this instant: then every request would be refused.
    OutlivesOthers(UnixMillis),
    /// A request was signed with it within [`RETIRE_QUIET_MS`], at this instant.
    Used(UnixMillis),
    /// It was made within [`RETIRE_QUIET_MS`], at this instant, to follow an older one that is still live: the merchant may be about to use it.
    MadeLately(UnixMillis),
    /// Uses have not been counted for [`RETIRE_QUIET_MS`] yet, only since this instant: what is not counted may be used all the same.
    CountedLately(UnixMillis),
}

impl InUse {
    /// What to do about it.
    fn sentence(self, secret_id: &str) -> String {
        match self {
            Self::OnlyLive => {
                format!(
                    "{secret_id} is the only live secret of this application: rotate first, so that the merchant has another"
                )
            }
            Self::SignsCallbacks => {
                format!(
                    "callbacks are signed with {secret_id}: switch them to another secret with use-for-callbacks first"
                )
            }
            Self::OutlivesOthers(at) => format!(
                "every other live secret of this application ends before {secret_id}, the last one at {}: rotate first, so that the merchant has one that stays",
                rfc3339(at)
            ),
            Self::Used(at) => format!(
                "a request was signed with {secret_id} at {}, less than an hour ago: the merchant still uses it. DELETE (`countersign secret revoke`) revokes it all the same",
                rfc3339(at)
            ),
            Self::MadeLately(at) => format!(
                "{secret_id} was made at {}, less than an hour ago, and an older one is still live: the merchant may be about to use it. Wait until the hour is over; DELETE (`countersign secret revoke`) revokes it all the same",
                rfc3339(at)
            ),
            Self::CountedLately(at) => format!(
                "uses of secrets have been counted since {} only, less than an hour: {secret_id} may be in use. Wait until the hour is over; DELETE (`countersign secret revoke`) revokes it all the same",
                rfc3339(at)
            ),
        }
    }
}

/// Whether `row` can be retired at `now` without anybody noticing. One that has ended has nobody who could.
fn in_use(row: &SecretRow, all: &[SecretRow], usage: Usage, now: UnixMillis) -> Option<InUse> {
    if !row.is_live(now) {
        return None;
    }
    // None: it does not end.
    let end = |s: &SecretRow| s.not_after.map_or(i64::MAX, |end| end.0);
    let others = all.iter().filter(|other| other.secret_id != row.secret_id && other.is_live(now));
    match others.map(end).max() {
        None => return Some(InUse::OnlyLive),
        Some(last) if last < end(row) => return Some(InUse::OutlivesOthers(UnixMillis(last))),
        Some(_) => {}
    }
    if signing(all, now) == Some(row.secret_id.as_str()) {
        return Some(InUse::SignsCallbacks);
    }
    let recent = |at: &UnixMillis| now.0.saturating_sub(at.0) < RETIRE_QUIET_MS;
    if let Some(at) = usage.last_used_at.filter(recent) {
        return Some(InUse::Used(at));
    }
    // Newest first: those behind it are older.
    let mut older = all.iter().skip_while(|other| other.secret_id != row.secret_id).skip(1);
    if recent(&row.created_at) && older.any(|other| other.is_live(now)) {
        return Some(InUse::MadeLately(row.created_at));
    }
    // What is older than the counting was not seen to be quiet from its beginning.
    let counted_since = usage.counted_since.unwrap_or(now);
    let is_older = row.created_at < counted_since;
    Some(counted_since).filter(|since| is_older && recent(since)).map(InUse::CountedLately)
}

/// The secret that callbacks are signed with at `now`. `all`: newest first.
fn signing(all: &[SecretRow], now: UnixMillis) -> Option<&str> {
    let live = all.iter().filter(|s| s.is_live(now));
    signs_callbacks(live, |s| s.signs_callbacks).map(|s| s.secret_id.as_str())
}

/// A secret as it is seen among all of its application, newest first.
pub fn seen_secret(row: &SecretRow, all: &[SecretRow], usage: Usage, now: UnixMillis) -> SeenSecret {
    SeenSecret {
        row: row.clone(),
        usage,
        signs_callbacks: signing(all, now) == Some(row.secret_id.as_str()),
        in_use: in_use(row, all, usage, now),
    }
}

/// Draws and seals a secret of `application`.
pub(super) fn new_secret(
    app: &App,
    application: &ApplicationRow,
    now: UnixMillis,
    signs_callbacks: bool,
) -> (SecretRow, PlainSecret) {
    let plain = PlainSecret::new(format!("{SECRET_PREFIX}{}", app.chance.hex(SECRET_BYTES)));
    let text = plain.expose();
    let secret_id = format!("{}{}", prefix::SECRET, app.chance.sorted_id(now));
    let (key_id, sealed) =
        app.vault.seal(&app.chance, &secret_row(&application.client_id, &secret_id), text.as_bytes());
    let row = SecretRow {
        sealed,
        key_id,
        application: application.no,
        fingerprint: fingerprint(text),
        last4: text[text.len() - 4..].to_owned(),
        signs_callbacks,
        created_at: now,
        not_after: None,
        revoked_at: None,
        last_used_at: None,
        secret_id,
    };
    (row, plain)
}

/// A new secret rests on this: its master key is the one that secrets are sealed under. So none is left behind by a re-wrap.
pub(super) fn seals_now(row: &SecretRow) -> Write {
    Write::Guard(Guard::Setting { name: MASTER_KEY_ID.to_owned(), value: row.key_id.clone() })
}

/// First 16 hex digits of SHA-256.
fn fingerprint(secret: &str) -> String {
    let digest = sha256(secret.as_bytes());
    format!("{:016x}", u64::from_be_bytes(digest[..8].try_into().expect("8 of 32 bytes")))
}

/// The secrets of an application that are not revoked, newest first, with their use.
pub async fn list_secrets(app: &App, client_id: &str) -> Result<Vec<SeenSecret>, AppError> {
    let all = find_application(app, client_id).await?.secrets;
    let now = app.clock.now();
    let usages = uses::of_secrets(app, &all, now).await?;
    Ok(all.iter().zip(usages).map(|(row, usage)| seen_secret(row, &all, usage, now)).collect())
}

/// Makes a further secret. The secrets before it end after `overlap_s`, or at an earlier end of their own. Callbacks go on being signed with the
/// secret that signs them now, as long as that secret lives. With an overlap of 0 the secrets before it are revoked: a clock that goes back brings no
/// revoked secret to life again. That call is answered when no node accepts the revoked secrets any more.
pub async fn rotate_secret(
    app: &App,
    client_id: &str,
    overlap_s: i64,
    keep: &Keep<'_, MadeSecret>,
    actor: &Actor,
) -> Result<MadeSecret, AppError> {
    let made = decide_and_commit(app, client_id, actor, |view, now| {
        let end = now.plus_ms(overlap_s.saturating_mul(1000));
        let before: Vec<&SecretRow> = view.secrets.iter().filter(|s| s.is_live(now)).collect();
        // What signs callbacks now is chosen from here on: else the newest would sign at once where the chosen one has ended.
        let signing = signing(&view.secrets, now);
        let ends = |s: &SecretRow| Some(s.not_after.map_or(end, |e| e.min(end)));
        let chosen = |s: &SecretRow| signing == Some(s.secret_id.as_str());
        let others_end_at = before.iter().filter_map(|s| ends(s)).max();
        let ended: Vec<SecretRow> = if overlap_s == 0 {
            let revoked = |s: &SecretRow| SecretRow { revoked_at: Some(now), signs_callbacks: false, ..s.clone() };
            view.secrets.iter().map(revoked).collect()
        } else {
            let ending = |s: &SecretRow| SecretRow { not_after: ends(s), signs_callbacks: chosen(s), ..s.clone() };
            before.iter().map(|s| ending(s)).collect()
        };
        let live_after = 1 + ended.iter().filter(|s| s.is_live(now)).count();
        if live_after > LIVE_SECRETS_MAX {
            return Err(AppError::AlreadyExists(format!(
                "this application has {LIVE_SECRETS_MAX} live secrets, which is the most: retire one that nobody uses any more (POST .../retire, \
                 `countersign secret retire`), or revoke one; overlap_s 0 would revoke all of them at once"
            )));
        }
        // Newest is newest, whatever the clock does: an instant after every secret before it.
        let at = view.secrets.iter().map(|s| s.created_at.plus_ms(1)).fold(now, UnixMillis::max);
        let (row, plain) = new_secret(app, &view.application, at, before.is_empty());
        // For good, so not by a clock that may be ahead: where nobody knows that it has stood right, a later rotation does it.
        let listed_from = app.settled.look(Instant::now(), now).map(|settled| settled.plus_ms(-ENDED_LISTED_MS));
        let is_long_over = |s: &&SecretRow| s.not_after.zip(listed_from).is_some_and(|(end, from)| end < from);
        let long_ended = view.secrets.iter().filter(is_long_over).filter(|_| overlap_s > 0);
        let forgotten = long_ended.map(|s| SecretRow { revoked_at: s.not_after, signs_callbacks: false, ..s.clone() });
        let ended: Vec<SecretRow> = ended.into_iter().chain(forgotten).collect();
        let made = MadeSecret { row, plain, others_end_at };
        let after: Vec<SecretRow> = std::iter::once(made.row.clone()).chain(ended.iter().cloned()).collect();
        let mut writes = changed(&view.application, ended);
        writes.push(Write::InsertSecret(Box::new(made.row.clone())));
        writes.push(seals_now(&made.row));
        writes.push(audit(view, now, "secret.rotate", &made.row.secret_id, &after, actor));
        writes.extend(kept(keep, &made));
        Ok((writes, made))
    })
    .await?;
    if overlap_s == 0 {
        nodes::until_all_know(app).await;
    }
    Ok(made)
}

/// Ends a secret at once, whatever the secret is used for. The call is answered when no node accepts the secret any more, also where somebody else
/// has ended the secret a moment ago: a caller who reads that there is no such secret takes it for gone.
pub async fn revoke_secret(
    app: &App,
    client_id: &str,
    secret_id: &str,
    keep: &Keep<'_, SecretChange>,
    actor: &Actor,
) -> Result<SecretChange, AppError> {
    let decide = |view: &ApplicationView, now| revocation(view, now, secret_id, "secret.revoke", keep, actor);
    let revoked = decide_and_commit(app, client_id, actor, decide).await;
    if matches!(revoked, Ok(_) | Err(AppError::NotFound(_))) {
        nodes::until_all_know(app).await;
    }
    revoked
}

/// Ends a secret at once if nobody uses it any more; refused where somebody may, with the reason. Answered as [`revoke_secret`] is.
pub async fn retire_secret(
    app: &App,
    client_id: &str,
    secret_id: &str,
    keep: &Keep<'_, SecretChange>,
    actor: &Actor,
) -> Result<SecretChange, AppError> {
    let all = find_application(app, client_id).await?.secrets;
    let usages = uses::of_secrets(app, &all, app.clock.now()).await?;
    let of = all.iter().zip(usages).find(|(row, _)| row.secret_id == secret_id);
    let usage = of.map(|(_, usage)| usage).unwrap_or_default();
    let retired = decide_and_commit(app, client_id, actor, |view, now| {
        let row = find(view, secret_id)?;
        // Somebody may have begun to use it while this waited for its turn.
        let seen = app.uses.tally(secret_id).last();
        let usage = Usage { last_used_at: usage.last_used_at.max(row.last_used_at).max(seen), ..usage };
        if let Some(why) = in_use(row, &view.secrets, usage, now) {
            return Err(AppError::SecretInUse(why.sentence(secret_id)));
        }
        revocation(view, now, secret_id, "secret.retire", keep, actor)
    })
    .await;
    if matches!(retired, Ok(_) | Err(AppError::NotFound(_))) {
        nodes::until_all_know(app).await;
    }
    retired
}

/// What ends a secret at `now`, and what comes of it.
fn revocation(
    view: &ApplicationView,
    now: UnixMillis,
    secret_id: &str,
    action: &str,
    keep: &Keep<'_, SecretChange>,
    actor: &Actor,
) -> Result<(Vec<Write>, SecretChange), AppError> {
    let revoked = SecretRow { revoked_at: Some(now), signs_callbacks: false, ..find(view, secret_id)?.clone() };
    let mut writes = changed(&view.application, vec![revoked.clone()]);
    writes.push(audit(view, now, action, secret_id, std::slice::from_ref(&revoked), actor));
    let change = SecretChange::of(revoked, &view.secrets, now);
    writes.extend(kept(keep, &change));
    Ok((writes, change))
}

/// Signs callbacks with this secret from now on.
pub async fn use_for_callbacks(
    app: &App,
    client_id: &str,
    secret_id: &str,
    keep: &Keep<'_, SecretChange>,
    actor: &Actor,
) -> Result<SecretChange, AppError> {
    decide_and_commit(app, client_id, actor, |view, now| {
        if !find(view, secret_id)?.is_live(now) {
            return Err(AppError::NotFound(format!("the secret {secret_id} has ended; choose a live one")));
        }
        let switched: Vec<SecretRow> = view
            .secrets
            .iter()
            .map(|s| SecretRow { signs_callbacks: s.secret_id == secret_id, ..s.clone() })
            .filter(|s| find(view, &s.secret_id).is_ok_and(|old| old.signs_callbacks != s.signs_callbacks))
            .collect();
        let chosen = SecretRow { signs_callbacks: true, ..find(view, secret_id)?.clone() };
        let mut writes = changed(&view.application, switched.clone());
        writes.push(audit(view, now, "secret.use_for_callbacks", secret_id, &switched, actor));
        let change = SecretChange::of(chosen, &view.secrets, now);
        writes.extend(kept(keep, &change));
        Ok((writes, change))
    })
    .await
}

fn find<'a>(view: &'a ApplicationView, secret_id: &str) -> Result<&'a SecretRow, AppError> {
    let found = view.secrets.iter().find(|s| s.secret_id == secret_id);
    found.ok_or_else(|| AppError::NotFound(format!("this application has no secret {secret_id} that is not revoked")))
}

/// The writes that change these secrets, guarded by the application's revision. In the order in which uses are noted, so that the two never
/// wait for each other.
fn changed(application: &ApplicationRow, mut secrets: Vec<SecretRow>) -> Vec<Write> {
    let application = ApplicationRow { revision: application.revision + 1, ..application.clone() };
    let update = Write::UpdateApplication(Box::new(application));
    secrets.sort_by(|a, b| a.secret_id.cmp(&b.secret_id));
    std::iter::once(update).chain(secrets.into_iter().map(|s| Write::UpdateSecret(Box::new(s)))).collect()
}

/// The line of the audit log: what is said of the secrets that changed, before and after, and of the one that signs callbacks.
fn audit(
    view: &ApplicationView,
    now: UnixMillis,
    action: &str,
    secret_id: &str,
    changed: &[SecretRow],
    actor: &Actor,
) -> Write {
    let before = &view.secrets;
    let made = changed.iter().filter(|row| !before.iter().any(|s| s.secret_id == row.secret_id));
    let stayed = before.iter().map(|row| changed.iter().find(|s| s.secret_id == row.secret_id).unwrap_or(row));
    let after: Vec<SecretRow> = made.chain(stayed).cloned().collect();
    let (signed, signs) = (signing(before, now), signing(&after, now));
    let told = |row: &&SecretRow| {
        let id = row.secret_id.as_str();
        let touched = changed.iter().any(|s| s.secret_id == id);
        id == secret_id || touched || (signed != signs && (signed == Some(id) || signs == Some(id)))
    };
    let text = |all: &[SecretRow], signing: Option<&str>| {
        Value::from(all.iter().filter(told).map(|row| describe(row, signing)).collect::<Vec<_>>()).to_string()
    };
    let subject = format!("{}/{secret_id}", view.application.client_id);
    let (before, after) = (text(before, signed), text(&after, signs));
    actor.records(Deed { tenant: Some(view.application.tenant), at: now, action, subject: &subject, before, after })
}

/// What is said of a secret. `signing`: the one that callbacks are signed with.
fn describe(row: &SecretRow, signing: Option<&str>) -> Value {
    json!({
        "secret_id": row.secret_id,
        "fingerprint": row.fingerprint,
        "signs_callbacks": signing == Some(row.secret_id.as_str()),
        "not_after": row.not_after.map(rfc3339),
        "revoked_at": row.revoked_at.map(rfc3339),
    })
}

#[cfg(test)]
mod tests;
