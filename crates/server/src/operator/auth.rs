//! Who may: bearer tokens and their roles.

use std::sync::Arc;

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
use crate::app::operators;

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
    let text = bearer(headers).ok_or_else(stranger)?;
    let token = operators::authenticate(&desk.app, text).await?.ok_or_else(stranger)?;
    if !operators::role_allows(token.role, role) {
        let (held, needed) = (operators::role_name(token.role), operators::role_name(role));
        return Err(Problem::new(
            Code::RoleNotAllowed,
            format!("this token has the role {held}; the call needs {needed}"),
        ));
    }
    let context = context.ok_or_else(Problem::internal)?;
    let actor =
        Actor { name: format!("token:{}", token.token_id), source: context.source, request_id: context.request_id };
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
