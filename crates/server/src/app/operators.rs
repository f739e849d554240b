//! Operators: bearer tokens and their roles.

use std::time::{Duration, Instant};

use countersign_domain::ids::{SortedId, prefix};
use countersign_domain::time::{UnixMillis, rfc3339};
use countersign_store::Store;
use countersign_store::batch::{Batch, Conflict, Guard, Key, Write};
use countersign_store::contract::{CommitError, Cursor, Role, TokenRow};
use serde_json::json;
use tokio::time::sleep;

use super::error::AppError;
use super::idempotency::{Keep, kept};
use super::late_changes::LOOK_PAUSE;
use super::plain_secret::PlainSecret;
use super::{Actor, App, Deed, uses};
use crate::chance::Chance;
use crate::digest::sha256;

/// What every operator token begins with, so that scanners find one that leaked.
const TOKEN_PREFIX: &str = "cso_";
/// Bytes of chance in a token.
const TOKEN_BYTES: usize = 32;
/// How long a revocation waits for what rests on its token.
const LET_GO_WITHIN: Duration = Duration::from_secs(5);

/// A role's name in answers and requests.
pub const fn role_name(role: Role) -> &'static str {
    match role {
        Role::Viewer => "viewer",
        Role::Operator => "operator",
        Role::Security => "security",
    }
}

/// A role by its name.
pub fn role_from_name(name: &str) -> Option<Role> {
    [Role::Viewer, Role::Operator, Role::Security].into_iter().find(|role| role_name(*role) == name)
}

/// Whether a token of role `held` may do what demands `needed`: each role may do what the ones below it may.
pub const fn role_allows(held: Role, needed: Role) -> bool {
    const fn rank(role: Role) -> u8 {
        match role {
            Role::Viewer => 0,
            Role::Operator => 1,
            Role::Security => 2,
        }
    }
    rank(held) >= rank(needed)
}

/// A new token: its row, and its text that only its owner sees.
pub fn make_token(
    chance: &Chance,
    now: UnixMillis,
    name: &str,
    role: Role,
    expires_at: Option<UnixMillis>,
) -> (TokenRow, PlainSecret) {
    let plain = PlainSecret::new(format!("{TOKEN_PREFIX}{}", chance.hex(TOKEN_BYTES)));
    let row = TokenRow {
        token_id: format!("{}{}", prefix::TOKEN, chance.sorted_id(now)),
        name: name.to_owned(),
        digest: sha256(plain.expose().as_bytes()),
        role,
        created_at: now,
        expires_at,
        revoked_at: None,
        last_used_at: None,
    };
    (row, plain)
}

/// The SHA-256 of a token's text: what the store knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TokenDigest([u8; 32]);

impl TokenDigest {
    /// Of this text.
    pub fn of(text: &str) -> Self {
        Self(sha256(text.as_bytes()))
    }
}

/// The token that has this digest, where it is known, not ended and not revoked.
pub async fn authenticate(app: &App, digest: &TokenDigest) -> Result<Option<TokenRow>, AppError> {
    let found = app.store.token(&digest.0).await?;
    let now = app.clock.now();
    let found = found.filter(|token| token.is_live(now));
    if let Some(token) = &found {
        app.uses.token(&token.token_id, now);
    }
    Ok(found)
}

/// A token and when it was last used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenToken {
    /// Its row.
    pub row: TokenRow,
    /// Its last use, as far as it was noted or this node has seen it.
    pub last_used_at: Option<UnixMillis>,
}

fn seen(app: &App, row: TokenRow) -> SeenToken {
    SeenToken { last_used_at: uses::of_token(app, &row), row }
}

/// Whether a text has the form of a token's id.
pub fn is_token_id(text: &str) -> bool {
    text.strip_prefix(prefix::TOKEN).and_then(SortedId::parse).is_some()
}

/// Tokens in the order they were made, those that have ended too. `after`: the last one seen.
pub async fn list_tokens(app: &App, after: Option<String>, limit: u32) -> Result<Vec<SeenToken>, AppError> {
    let rows = app.store.tokens(Cursor { after, limit }).await?;
    Ok(rows.into_iter().map(|row| seen(app, row)).collect())
}

/// A token by its id.
pub async fn find_token(app: &App, token_id: &str) -> Result<SeenToken, AppError> {
    let found = app.store.token_by_id(token_id).await?;
    found.map(|row| seen(app, row)).ok_or_else(|| no_token(token_id))
}

fn no_token(token_id: &str) -> AppError {
    AppError::NotFound(format!("no token has the id {token_id}"))
}

/// What a new token shall be.
#[derive(Clone, Debug)]
pub struct NewToken {
    /// A name for people.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// How long it is good, in seconds.
    pub life_s: i64,
}

/// A token that was just made.
#[derive(Debug)]
pub struct MadeToken {
    /// Its row.
    pub row: TokenRow,
    /// Its text, for its owner only.
    pub plain: PlainSecret,
}

/// Makes a token and writes it.
pub async fn create_token(
    app: &App,
    ask: &NewToken,
    keep: &Keep<'_, MadeToken>,
    actor: &Actor,
) -> Result<MadeToken, AppError> {
    let now = app.clock.now();
    let expires_at = now.plus_ms(ask.life_s.saturating_mul(1000));
    let (row, plain) = make_token(&app.chance, now, &ask.name, ask.role, Some(expires_at));
    let made = MadeToken { row, plain };
    let after = json!({ "name": ask.name, "role": role_name(ask.role), "expires_at": rfc3339(expires_at) }).to_string();
    let audit = actor.records(Deed {
        tenant: None,
        at: now,
        action: "token.create",
        subject: &made.row.token_id,
        before: String::new(),
        after,
    });
    let mut writes = vec![Write::InsertToken(Box::new(made.row.clone())), audit];
    writes.extend(kept(keep, &made));
    app.store.commit(actor.batch(writes)).await?;
    Ok(made)
}

/// Revokes a token at once, and answers the instant. A token that was revoked before keeps its first instant, and only the log is written.
pub async fn revoke_token(
    app: &App,
    token_id: &str,
    keep: &Keep<'_, UnixMillis>,
    actor: &Actor,
) -> Result<UnixMillis, AppError> {
    loop {
        let now = app.clock.now();
        let row = find_token(app, token_id).await?.row;
        let at = row.revoked_at.unwrap_or(now);
        let describe = |revoked_at: Option<UnixMillis>| {
            let revoked_at = revoked_at.map(rfc3339);
            json!({ "name": row.name, "role": role_name(row.role), "revoked_at": revoked_at }).to_string()
        };
        let audit = actor.records(Deed {
            tenant: None,
            at: now,
            action: "token.revoke",
            subject: token_id,
            before: describe(row.revoked_at),
            after: describe(Some(at)),
        });
        let revocation = row.revoked_at.is_none().then(|| Write::RevokeToken { token_id: token_id.to_owned(), at });
        let mut writes: Vec<Write> = revocation.into_iter().chain([audit]).collect();
        writes.extend(kept(keep, &at));
        match app.store.commit(actor.batch(writes)).await {
            Ok(_) => return Ok(at),
            // Somebody else was first. A token that is revoked stays so: the next look ends this.
            Err(CommitError::Conflict(Conflict::Moved(Key::Token(_)))) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits until nothing that rests on a revoked token is on its way to be committed: what comes behind it is refused. On one node of a file nothing is.
pub async fn until_let_go(app: &App, token_id: &str) -> Result<(), AppError> {
    let began = Instant::now();
    while began.elapsed() < LET_GO_WITHIN {
        let look = Guard::TokenLetGo { token_id: token_id.to_owned() };
        match app.store.commit(Batch(vec![Write::Guard(look)])).await {
            Ok(_) => return Ok(()),
            Err(CommitError::Conflict(_)) => sleep(LOOK_PAUSE).await,
            Err(error) => return Err(error.into()),
        }
    }
    Err(AppError::Crowded(
        "the token is revoked, and what was asked for with it before is still on its way to be committed; repeat the request, with a token that is live, to learn when that is over"
            .to_owned(),
    ))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::app::actor::Right;
    use crate::app::events;
    use crate::app::fixtures::{Deployment, application, happening, happens, nobody};

    #[test]
    fn each_role_may_do_what_the_ones_below_may() {
        use Role::{Operator, Security, Viewer};
        for (held, allowed) in
            [(Viewer, [true, false, false]), (Operator, [true, true, false]), (Security, [true, true, true])]
        {
            assert_eq!([Viewer, Operator, Security].map(|needed| role_allows(held, needed)), allowed, "{held:?}");
            assert_eq!(role_from_name(role_name(held)), Some(held));
        }
        assert_eq!(role_from_name("Security"), None);
    }

    #[test]
    fn a_token_is_known_by_its_digest_alone_and_debug_is_blind() {
        let (row, plain) = make_token(&Chance::default(), UnixMillis(1_767_225_600_000), "n", Role::Viewer, None);
        assert_eq!(row.digest, sha256(plain.expose().as_bytes()));
        assert_eq!(plain.expose().len(), TOKEN_PREFIX.len() + 2 * TOKEN_BYTES);
        let seen = format!("{row:?}{plain:?}");
        assert!(!seen.contains(plain.expose()));
        assert!(row.token_id.starts_with("tok_") && row.token_id.len() == 30);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_token_is_not_let_go_of_while_something_that_rests_on_it_is_on_its_way() {
        let deployment = Deployment::on_postgres().await;
        let (app, other) = (deployment.open().await, deployment.open().await);
        let client_id = application(&app, "shop", None).await;
        // Both have written by now, so that nothing is prepared any more behind what is held.
        happens(&app, &client_id).await;
        let ask = NewToken { name: "t".to_owned(), role: Role::Security, life_s: 60 };
        let token_id = create_token(&other, &ask, &|_| None, &nobody()).await.expect("is made").row.token_id;
        let actor = Actor { right: Some(Right::Token(token_id.clone())), ..Actor::named("who") };
        until_let_go(&other, &token_id).await.expect("nothing is on its way");
        let held = deployment.database().hold_table("delivery").await;
        let emit = |app: Arc<App>| {
            let (what, actor) = (happening(&client_id), actor.clone());
            async move { events::emit(&app, &what, &|_| None, &actor).await }
        };
        let waits = tokio::spawn(emit(app.clone()));
        deployment.database().somebody_waits().await;
        revoke_token(&other, &token_id, &|_| None, &nobody()).await.expect("is revoked");
        let looks = tokio::time::timeout(5 * LOOK_PAUSE, until_let_go(&other, &token_id)).await;
        assert!(looks.is_err(), "{looks:?}");
        drop(held);
        until_let_go(&other, &token_id).await.expect("it is over");
        waits.await.expect("ends").expect("was let in before");
        let refused = emit(app).await;
        assert!(matches!(refused, Err(AppError::TokenRevoked)), "{refused:?}");
    }
}
