//! The operator API as tests call it.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use countersign_protocol::signing::SigningKey;
use serde_json::{Value, json};

use crate::wire::{Answer, Connection, Draft, Signer, once};

/// Address and token of the operator API.
#[derive(Clone)]
pub struct OperatorAccess {
    /// The operator listener.
    pub address: SocketAddr,
    token: String,
}

impl std::fmt::Debug for OperatorAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OperatorAccess").field("address", &self.address).finish_non_exhaustive()
    }
}

impl OperatorAccess {
    /// Calls go to `address` with `token`.
    pub fn new(address: SocketAddr, token: String) -> Self {
        Self { address, token }
    }

    /// A call with the bearer token.
    pub fn draft(&self, method: &str, path: &str, body: Option<&Value>) -> Draft {
        let body = body.map(|b| b.to_string().into_bytes()).unwrap_or_default();
        let mut headers = vec![("Authorization".to_owned(), format!("Bearer {}", self.token))];
        if !body.is_empty() {
            headers.push(("Content-Type".to_owned(), "application/json".to_owned()));
        }
        Draft { method: method.to_owned(), target: path.to_owned(), headers, body }
    }

    /// The real binary, told where the operator API is and by which token.
    pub fn command(&self) -> std::process::Command {
        let mut command = crate::process::bare();
        command.env("COUNTERSIGN_OPERATOR_TOKEN", &self.token);
        command.env("COUNTERSIGN_OPERATOR_URL", format!("http://{}", self.address));
        command
    }

    /// One call.
    pub async fn call(&self, method: &str, path: &str, body: Option<Value>) -> Result<Answer> {
        Ok(once(self.address, &self.draft(method, path, body.as_ref()).bytes()).await?)
    }

    /// One call over a connection that is kept.
    pub async fn call_on(&self, connection: &mut Connection, method: &str, path: &str) -> Result<Answer> {
        Ok(connection.send(&self.draft(method, path, None).bytes()).await?)
    }

    /// One change that must succeed; its JSON. `path` is the part after `/operator/v1`.
    pub async fn provision(&self, method: &str, path: &str, body: Value) -> Result<Value> {
        let answer = self.call(method, &format!("/operator/v1{path}"), Some(body)).await?;
        ensure!((200..300).contains(&answer.status), "{method} {path}: {} {}", answer.status, answer.json());
        Ok(answer.json())
    }

    /// An institution with `subs` sub-accounts named `<id>-1`, `<id>-2`, ... and one application that signs for it.
    pub async fn institution(&self, id: &str, subs: usize, callback_url: Option<&str>) -> Result<Signer> {
        self.provision("POST", "/institutions", json!({"name": id, "merchant_id": id})).await?;
        for n in 1..=subs {
            let sub = format!("{id}-{n}");
            let path = format!("/institutions/{id}/sub-accounts");
            self.provision("POST", &path, json!({"name": sub, "sub_merchant_id": sub})).await?;
        }
        self.application(id, callback_url).await
    }

    /// An application of a merchant, which signs and names that merchant.
    pub async fn application(&self, merchant_id: &str, callback_url: Option<&str>) -> Result<Signer> {
        let mut body = json!({"name": "test"});
        if let Some(url) = callback_url {
            body["callback_url"] = json!(url);
        }
        let made = self.provision("POST", &format!("/merchants/{merchant_id}/applications"), body).await?;
        let secret = made["payment_api_secret"].as_str().context("the secret is shown once")?;
        Ok(Signer {
            client_id: made["client_id"].as_str().context("a client id")?.to_owned(),
            key: SigningKey::new(secret.as_bytes()),
            merchant_id: Some(merchant_id.to_owned()),
        })
    }

    /// A convert order of a merchant, status 1; its number.
    pub async fn convert_order(&self, merchant_id: &str) -> Result<String> {
        let body = json!({
            "userId": 7, "sellCurrency": "USDT", "buyCurrency": "EUR", "sellAmount": "100", "buyAmount": "91.5", "rate": "0.915"
        });
        let made = self.provision("POST", &format!("/merchants/{merchant_id}/convert-orders"), body).await?;
        Ok(made["order_id"].as_str().context("an order id")?.to_owned())
    }
}
