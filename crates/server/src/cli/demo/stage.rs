//! Who takes part, and how they talk: operators by bearer token, merchants through the SDK.

use anyhow::Context as _;
use countersign_sdk::Client;
use hyper::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::receiver::Receiver;
use super::screen::Screen;
use crate::app::plain_secret::PlainSecret;
use crate::cli::http::{self, Answer, Ask};
use crate::cli::operator::{self, Call};

/// What the chapters work with.
#[derive(Debug)]
pub struct Stage {
    /// Base address of the merchant API.
    pub merchant_url: String,
    /// Base address of the operator API.
    pub operator_url: String,
    /// The operator's bearer token.
    pub token: PlainSecret,
    /// The merchant's receiver.
    pub receiver: Receiver,
    /// Whether waits are as short as they can be.
    pub fast: bool,
}

/// A merchant with an application.
pub struct Party {
    /// Its public id.
    pub merchant_id: String,
    /// Its ClientId.
    pub client_id: String,
    /// Its Payment API Secret.
    pub secret: String,
}

impl std::fmt::Debug for Party {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Party")
            .field("merchant_id", &self.merchant_id)
            .field("client_id", &self.client_id)
            .finish_non_exhaustive()
    }
}

/// Everybody.
#[derive(Debug)]
pub struct Cast {
    /// The main merchant.
    pub institution: Party,
    /// Its sub-account.
    pub sub_account: Party,
}

#[derive(Deserialize)]
struct NewApplication {
    client_id: String,
    payment_api_secret: String,
}

impl Stage {
    /// One call of the operator API, shown. Secrets in the answer are not.
    pub async fn operate(&self, screen: &Screen, call: &Call) -> anyhow::Result<Answer> {
        let body =
            call.body_bytes().map(|body| String::from_utf8_lossy(&body).into_owned()).filter(|body| body != "{}");
        screen.sent(&format!("{} {}", call.method, call.target()), body.as_deref());
        let answer = operator::send(&self.operator_url, self.token.expose(), call).await?;
        let secret = serde_json::from_str::<NewApplication>(&answer.body).map(|new| new.payment_api_secret);
        let shown = match &secret {
            Ok(secret) => answer.body.replace(secret.as_str(), "(shown this once; the demo keeps it)"),
            Err(_) => answer.body.clone(),
        };
        screen.got(&format!("HTTP {}", answer.status), &shown);
        Ok(answer)
    }

    /// As [`Stage::operate`]; an answer that says no is an error.
    pub async fn operate_well<T: DeserializeOwned>(&self, screen: &Screen, call: &Call) -> anyhow::Result<T> {
        let answer = self.operate(screen, call).await?;
        serde_json::from_str(operator::accepted(&answer)?)
            .context("the operator API answers with other members than it should")
    }

    /// One request to the merchant API as it is, shown.
    pub async fn send(&self, screen: &Screen, ask: &Ask) -> anyhow::Result<Answer> {
        let body = ask.body.as_deref().map(|body| String::from_utf8_lossy(body).into_owned());
        screen.sent(&format!("{} {}", ask.method, ask.path), body.as_deref());
        let answer = http::exchange(&self.merchant_url, ask).await?;
        screen.got(&format!("HTTP {}", answer.status), &answer.body);
        Ok(answer)
    }

    /// Institution, sub-account, an application for each.
    pub async fn provision(&self, screen: &mut Screen) -> anyhow::Result<Cast> {
        screen.chapter(
            "Who is who",
            "The platform's operator sets up an institution (a main merchant), a sub-account under it, and an application for each. \
             An application is what signs: it has a ClientId and a Payment API Secret.",
        );
        let institution = Call::new(Method::POST, "/institutions")
            .text("merchant_id", Some("harbour-bank"))
            .text("name", Some("Harbour Bank"))
            .raw("base_rate", Some(r#"{"r_total":0.5,"f_total":0.1}"#.to_owned()));
        self.operate_well::<serde::de::IgnoredAny>(screen, &institution).await?;
        let sub_account = Call::new(Method::POST, "/institutions/harbour-bank/sub-accounts")
            .text("sub_merchant_id", Some("corner-shop"))
            .text("name", Some("Corner Shop"));
        self.operate_well::<serde::de::IgnoredAny>(screen, &sub_account).await?;
        let institution = self.application(screen, "harbour-bank", "Harbour back office", None).await?;
        let sub_account = self.application(screen, "corner-shop", "Corner Shop till", Some(&self.receiver.url)).await?;
        self.receiver.trust(&sub_account.client_id, &sub_account.secret).await?;
        let own = institution.client_id != sub_account.client_id && institution.secret != sub_account.secret;
        screen.proves(
            own,
            "Two applications, each with a ClientId and a secret of its own. The secret is shown this once.",
        );
        Ok(Cast { institution, sub_account })
    }

    async fn application(
        &self,
        screen: &Screen,
        merchant_id: &str,
        name: &str,
        callback_url: Option<&str>,
    ) -> anyhow::Result<Party> {
        let call = Call::new(Method::POST, format!("/merchants/{merchant_id}/applications"))
            .text("name", Some(name))
            .text("callback_url", callback_url);
        let new: NewApplication = self.operate_well(screen, &call).await?;
        Ok(Party { merchant_id: merchant_id.to_owned(), client_id: new.client_id, secret: new.payment_api_secret })
    }

    /// The SDK's client of a party.
    pub fn client(&self, party: &Party) -> anyhow::Result<Client> {
        Ok(Client::builder(&self.merchant_url, &party.client_id, &party.secret)
            .merchant_id(&party.merchant_id)
            .build()?)
    }
}

/// The ends of a signature: enough to tell two apart.
pub fn shortened(signature: &str) -> String {
    let end: String = signature.chars().rev().take(8).collect::<Vec<_>>().into_iter().rev().collect();
    format!("{}...{end} ({} characters)", signature.chars().take(16).collect::<String>(), signature.len())
}
