//! A till: makes a payment order, shows what the payer needs, waits until it is paid, and gives it up if it is not paid in time.
//!
//! ```text
//! COUNTERSIGN_CLIENT_ID=app_... COUNTERSIGN_SECRET=... \
//!   cargo run -p countersign-sdk --example till -- http://127.0.0.1:8080 USDT 12.5
//! ```
//!
//! A call that is not answered is made again, for some seconds: the same merchantTradeNo with the same content is the same order, however often it is
//! sent, and closing a closed order succeeds. So where an answer is lost nothing happens twice. The number is printed before anything is sent; given
//! as a fourth argument, it takes the order up again after this program was stopped or has given up.
//!
//! It ends with 0 if the order is paid as asked for, with 3 if another amount was paid, with 2 if it is not paid and never will be, and with 1 if that
//! is not known. Only 0 says that something may be handed out.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use countersign_sdk::protocol::code::Code;
use countersign_sdk::protocol::endpoint::{order_close, order_native, order_query};
use countersign_sdk::{Client, Decimal, Error, PaymentOrderStatus};
use tokio::time::sleep;

/// How often a call is made before a person has to look.
const TRIES: u32 = 8;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<ExitCode> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (base_url, currency, amount, trade_no) = match args.as_slice() {
        [base_url, currency, amount] => (base_url, currency, amount, fresh_trade_no()?),
        [base_url, currency, amount, trade_no] => (base_url, currency, amount, trade_no.clone()),
        _ => bail!("arguments: BASE_URL CURRENCY AMOUNT [MERCHANT_TRADE_NO]"),
    };
    let client = Client::builder(base_url, environment("COUNTERSIGN_CLIENT_ID")?, environment("COUNTERSIGN_SECRET")?);
    let till = Till { client: client.build()?, patience: Patience::default() };

    println!("order {trade_no}: {amount} {currency}");
    let not_known = || format!("what became of {trade_no} is not known: run this again with it as the fourth argument");
    let made = till.sell(&trade_no, currency, amount).await.with_context(not_known)?;
    // An order that was taken up again may have been paid meanwhile, and nobody shall pay it twice.
    if PaymentOrderStatus::from(made.order.status.as_str()) == PaymentOrderStatus::Pending {
        println!("show the payer this as a QR code: {}\nor send them to: {}", made.qr_content, made.location);
    }
    let found = till.outcome(&trade_no).await.with_context(not_known)?;
    println!("{}", verdict(&found));
    let status = PaymentOrderStatus::from(found.order.status.as_str());
    Ok(ExitCode::from(exit_code(&status, is_paid_right(&found))))
}

/// What whoever stands at the till is told.
pub(crate) fn verdict(found: &order_query::Response) -> String {
    let order = &found.order;
    let status = PaymentOrderStatus::from(order.status.as_str());
    let paid = found.actual_amount.as_deref().unwrap_or("an unknown amount");
    let of = format!("{paid} of {} {}", order.order_amount, order.currency);
    match status {
        PaymentOrderStatus::Paid if is_paid_right(found) => format!("PAID: {of}"),
        PaymentOrderStatus::Paid => format!("paid, but {of}: hand nothing out, settle it with the payer"),
        PaymentOrderStatus::Expired | PaymentOrderStatus::Closed => format!("{status}: hand nothing out"),
        // PROCESS: the payer has paid, and it is not confirmed yet. It cannot be closed, and nothing is handed out before it is paid.
        _ => format!(
            "{status}: not decided yet. Ask again later, with {} as the fourth argument",
            order.merchant_trade_no
        ),
    }
}

/// Whether the amount that was paid is the one that was asked for. `PAID` alone does not say so. They are compared as exact numbers: 12.5 and
/// 12.50 are the same, and floating point would take others for the same.
pub(crate) fn is_paid_right(found: &order_query::Response) -> bool {
    let exact = |text: &str| Decimal::from_str_exact(text).ok();
    let asked = exact(&found.order.order_amount);
    asked.is_some() && found.actual_amount.as_deref().and_then(exact) == asked
}

/// Only what is final is said as such: whoever is told that an order is not paid charges the payer again.
pub(crate) fn exit_code(status: &PaymentOrderStatus, is_right: bool) -> u8 {
    match status {
        PaymentOrderStatus::Paid if is_right => 0,
        PaymentOrderStatus::Paid => 3,
        PaymentOrderStatus::Expired | PaymentOrderStatus::Closed => 2,
        _ => 1,
    }
}

/// A number that no other order of the merchant has: 128 random bits. A real till takes the id of its own record of the sale, which it
/// writes down before the first call.
pub(crate) fn fresh_trade_no() -> anyhow::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).context("the operating system gives random bytes")?;
    Ok(format!("till-{:032x}", u128::from_le_bytes(bytes)))
}

#[expect(clippy::disallowed_methods, reason = "a script is configured by its environment: a secret is no argument")]
fn environment(name: &str) -> anyhow::Result<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty()).with_context(|| format!("{name} is not set"))
}

/// How long a till waits.
#[derive(Clone, Copy)]
pub(crate) struct Patience {
    /// How often it looks whether the order is final: the bound of the wait.
    pub(crate) looks_max: u32,
    /// Between two looks.
    pub(crate) between_looks: Duration,
    /// Between the first two tries of a call that was not answered; twice as long each time.
    pub(crate) between_tries: Duration,
}

impl Default for Patience {
    /// Five minutes for the payer.
    fn default() -> Self {
        Self { looks_max: 100, between_looks: Duration::from_secs(3), between_tries: Duration::from_millis(100) }
    }
}

pub(crate) struct Till {
    pub(crate) client: Client,
    pub(crate) patience: Patience,
}

impl Till {
    /// Makes the order, or finds the one that was made under this number.
    pub(crate) async fn sell(
        &self,
        trade_no: &str,
        currency: &str,
        amount: &str,
    ) -> anyhow::Result<order_native::Response> {
        // What is content of the order is the same in every try. No orderExpireTime: in an hour it expires by itself, if nobody closes it.
        let ask = order_native::Request::new(trade_no, currency, amount);
        Ok(self.until_answered(async || self.client.order_native(&ask).await).await?)
    }

    /// Waits until the order is final; one that is still pending when patience is over is given up. What comes back is final but in two
    /// cases: it was paid and is not confirmed yet, or stands where this program does not know it.
    pub(crate) async fn outcome(&self, trade_no: &str) -> anyhow::Result<order_query::Response> {
        for _ in 1..self.patience.looks_max {
            match self.look(trade_no).await {
                Ok(found) if PaymentOrderStatus::from(found.order.status.as_str()).is_final() => return Ok(found),
                Ok(_) => {}
                // Nobody answers for a while: the payer has the code all the same, so this looks on.
                Err(error) if is_temporary(&error) => {}
                Err(error) => return Err(error.into()),
            }
            sleep(self.patience.between_looks).await;
        }
        let found = self.look(trade_no).await?;
        if PaymentOrderStatus::from(found.order.status.as_str()) != PaymentOrderStatus::Pending {
            return Ok(found);
        }
        let name = order_close::Request::trade_no(trade_no);
        match self.until_answered(async || self.client.order_close(&name).await).await {
            Ok(_) => {}
            // The payer, or the end of its time, was faster: the look below says which.
            Err(error) if error.code() == Some(Code::InvalidOrderStatus) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(self.look(trade_no).await?)
    }

    async fn look(&self, trade_no: &str) -> Result<order_query::Response, Error> {
        let name = order_query::Request::trade_no(trade_no);
        self.until_answered(async || self.client.order_query(&name).await).await
    }

    /// One call, again and again until somebody has answered it. Only for calls that may be done twice, as all of a till's.
    async fn until_answered<T>(&self, call: impl AsyncFn() -> Result<T, Error>) -> Result<T, Error> {
        let mut pause = self.patience.between_tries;
        for _ in 1..TRIES {
            match call().await {
                Err(error) if is_temporary(&error) => sleep(pause.max(error.retry_after().unwrap_or_default())).await,
                answered => return answered,
            }
            pause *= 2;
        }
        call().await
    }
}

/// Whether the same call may be answered later. All other refusals are our mistake: to repeat them would not help.
fn is_temporary(error: &Error) -> bool {
    let says_so = matches!(error.code(), Some(Code::RateLimited | Code::ServiceUnavailable));
    says_so || error.may_have_been_done() || matches!(error, Error::Transport(_))
}
