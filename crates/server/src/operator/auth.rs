//! Who may: bearer tokens and their roles.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Response;
use axum::http::header::{AUTHORIZATION, HeaderMap};
use axum::middleware::Next;
use axum::response::IntoResponse;
use countersign_protocol::code::Code;
use countersign_store::contract::Role;

use super::Desk;
use super::frame::Context;
use super::problem::Problem;
use crate::app::Actor;
use crate::app::actor::Right;
use crate::app::operators::{self, TokenDigest};
use crate::merchant::{Budget, FailedAuthentications};

/// Tokens that are remembered to have been good; beyond, all are forgotten.
const GOOD_MAX: usize = 1_024;

/// Made-up tokens are budgeted per source address, so that trying them costs no look-up in the store beyond that. A token that was good here before is
/// looked up all the same: nobody who shares an operator's address can lock them out.
#[derive(Debug)]
pub struct Gate {
    failed: FailedAuthentications,
    good: Mutex<HashSet<TokenDigest>>,
}

impl Gate {
    /// With this budget for each address.
    pub fn new(budget: &Budget) -> Self {
        Self { failed: FailedAuthentications::new(budget), good: Mutex::default() }
    }

    /// Whether the store is asked about this token.
    fn lets_ask(&self, context: Option<&Context>, token: &TokenDigest) -> bool {
        !context.and_then(|context| context.address).is_some_and(|address| self.failed.is_over(address))
            || self.good.lock().unwrap_or_else(PoisonError::into_inner).contains(token)
    }

    fn was_good(&self, token: TokenDigest) {
        let mut good = self.good.lock().unwrap_or_else(PoisonError::into_inner);
        if good.len() >= GOOD_MAX && !good.contains(&token) {
            good.clear();
        }
        good.insert(token);
    }

    /// Counts a token that nobody has; false where the address has used its budget up.
    fn one_more(&self, context: Option<&Context>) -> bool {
        context.and_then(|context| context.address).is_none_or(|address| self.failed.one_more(address))
    }

    /// Forgets addresses that have behaved for a while.
    pub fn tidy(&self) {
        self.failed.tidy();
    }
}

/// Who makes the call, proved by the token.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The token's id.
    pub token_id: String,
    /// For the audit log.
    pub actor: Actor,
}

/// Lets a request through whose token is known, not ended, not revoked, and of a role that allows `role`.
pub async fn demand(State((desk, role)): State<(Arc<Desk>, Role)>, mut request: Request, next: Next) -> Response<Body> {
    let context = request.extensions().get::<Context>().cloned();
    match caller(&desk, role, request.headers(), context).await {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    }
}

async fn caller(desk: &Desk, role: Role, headers: &HeaderMap, context: Option<Context>) -> Result<Caller, Problem> {
    let stranger = || {
        Problem::new(
            Code::Unauthenticated,
            "send Authorization: Bearer with an operator token that is neither ended nor revoked",
        )
    };
    let over_budget = || {
        let sentence = "too many requests from this address carried invalid tokens, and yours has not been used here before; wait, then try again";
        Problem::new(Code::RateLimited, sentence)
    };
    let digest = TokenDigest::of(bearer(headers).ok_or_else(stranger)?);
    let known = context.as_ref();
    if !desk.settings.gate.lets_ask(known, &digest) {
        return Err(over_budget());
    }
    let Some(token) = operators::authenticate(&desk.app, &digest).await? else {
        return Err(if desk.settings.gate.one_more(known) { stranger() } else { over_budget() });
    };
    desk.settings.gate.was_good(digest);
    if !operators::role_allows(token.role, role) {
        let (held, needed) = (operators::role_name(token.role), operators::role_name(role));
        return Err(Problem::new(
            Code::RoleNotAllowed,
            format!("this token has the role {held}; the call needs {needed}"),
        ));
    }
    let context = context.ok_or_else(Problem::internal)?;
    let actor = Actor {
        name: format!("token:{}", token.token_id),
        source: context.source,
        request_id: context.request_id,
        right: Some(Right::Token(token.token_id.clone())),
    };
    Ok(Caller { token_id: token.token_id, actor })
}

/// The one bearer token of a request.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (value, None) = (values.next()?, values.next()) else { return None };
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bearer_token_comes_once_and_alone() {
        let of = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, value.parse().expect("a header value"));
            }
            bearer(&headers).map(str::to_owned)
        };
        assert_eq!(of(&["Bearer abc"]).as_deref(), Some("abc"));
        assert_eq!(of(&["bearer abc"]).as_deref(), Some("abc"));
        for refused in [&[][..], &["abc"], &["Basic abc"], &["Bearerabc"], &["Bearer abc", "Bearer abc"]] {
            assert_eq!(of(refused), None, "{refused:?}");
        }
    }
}
