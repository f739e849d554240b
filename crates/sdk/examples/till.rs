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
use countersign_sdk::{Client, Decimal, Error, Exact, PaymentOrderStatus};
use tokio::time::{Instant, sleep};

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
    let amount = Exact::parse(amount).context("AMOUNT is no plain number such as 12.5")?.0;
    let sale = Sale { trade_no, currency: currency.clone(), amount };
    let client = Client::builder(base_url, environment("COUNTERSIGN_CLIENT_ID")?, environment("COUNTERSIGN_SECRET")?);
    let till = Till { client: client.build()?, patience: Patience::default() };

    let Sale { trade_no, currency, amount } = &sale;
    println!("order {trade_no}: {amount} {currency}");
    let not_known = || format!("what became of {trade_no} is not known: run this again with it as the fourth argument");
    let made = till.sell(&sale).await.with_context(not_known)?;
    // An order that was taken up again may have been paid meanwhile, and nobody shall pay it twice.
    if made.order.status() == PaymentOrderStatus::Pending {
        println!("show the payer this as a QR code: {}\nor send them to: {}", made.qr_content, made.location);
    }
    let found = till.outcome(&sale).await.with_context(not_known)?;
    println!("{}", verdict(&sale, &found));
    Ok(ExitCode::from(exit_code(&found.order.status(), sale.is_paid_right(&found))))
}

/// What the till's own record says. A real one is in its database before the first call.
pub(crate) struct Sale {
    pub(crate) trade_no: String,
    pub(crate) currency: String,
    pub(crate) amount: Decimal,
}

impl Sale {
    /// Whether what was paid is what this record asks for. `PAID` alone does not say so.
    pub(crate) fn is_paid_right(&self, found: &order_query::Response) -> bool {
        found.is_paid_exactly(&self.currency, self.amount)
    }
}

/// What whoever stands at the till is told.
pub(crate) fn verdict(sale: &Sale, found: &order_query::Response) -> String {
    let order = &found.order;
    let status = order.status();
    let paid = found.actual_amount.as_deref().unwrap_or("an unknown amount");
    let of = format!("{paid} of {} {}", sale.amount, sale.currency);
    match status {
        PaymentOrderStatus::Paid if sale.is_paid_right(found) => format!("PAID: {of}"),
        PaymentOrderStatus::Paid => format!("paid, but {of}: hand nothing out, settle it with the payer"),
        PaymentOrderStatus::Expired | PaymentOrderStatus::Closed => format!("{status}: hand nothing out"),
        // PROCESS: the payer has paid, and it is not confirmed yet. It cannot be closed, and nothing is handed out before it is paid.
        _ => format!("{status}: not decided yet. Ask again later, with {} as the fourth argument", sale.trade_no),
    }
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
    /// How often it looks whether the order is final, and so how long it waits for the payer: the pauses between the looks, and `per_call` on top where
    /// nobody answers. After that `per_call` at most for each of three calls: the last look, the closing, and the look after that. To each of the four
    /// comes the try that is under way at the end, which the client's own timeout ends.
    pub(crate) looks_max: u32,
    /// Between two looks.
    pub(crate) between_looks: Duration,
    /// Between the first two tries of a call that was not answered; twice as long each time, or as long as the server asks for.
    pub(crate) between_tries: Duration,
    /// From the first try of a call to the last one. Whoever is asked to wait beyond that gives up at once.
    pub(crate) per_call: Duration,
}

impl Default for Patience {
    /// Five minutes for the payer.
    fn default() -> Self {
        Self {
            looks_max: 100,
            between_looks: Duration::from_secs(3),
            between_tries: Duration::from_millis(100),
            per_call: Duration::from_secs(60),
        }
    }
}

#[derive(Clone)]
pub(crate) struct Till {
    pub(crate) client: Client,
    pub(crate) patience: Patience,
}

impl Till {
    /// Makes the order, or finds the one that was made under this number.
    pub(crate) async fn sell(&self, sale: &Sale) -> anyhow::Result<order_native::Response> {
        // What is content of the order is the same in every try. No orderExpireTime: in an hour it expires by itself, if nobody closes it.
        let ask = order_native::Request::new(&sale.trade_no, sale.amount, &sale.currency);
        Ok(self.until_answered("to make the order", self.patience.per_call, || self.client.order_native(&ask)).await?)
    }

    /// Waits until the order is final; one that is still pending when patience is over is given up. What comes back is final but in two
    /// cases: it was paid and is not confirmed yet, or stands where this program does not know it.
    pub(crate) async fn outcome(&self, sale: &Sale) -> anyhow::Result<order_query::Response> {
        let Patience { looks_max, between_looks, per_call, .. } = self.patience;
        let end = Instant::now() + between_looks * looks_max + per_call;
        for _ in 1..looks_max {
            let left = end.saturating_duration_since(Instant::now());
            match self.look(sale, left.min(per_call)).await {
                Ok(found) if found.order.status().is_final() => return Ok(found),
                Ok(_) => {}
                // Nobody answers for a while: the payer has the code all the same, so this looks on.
                Err(error) if error.is_temporary() => {}
                Err(error) => return Err(error.into()),
            }
            if Instant::now() >= end {
                break;
            }
            sleep(between_looks).await;
        }
        let found = self.look(sale, per_call).await?;
        if found.order.status() != PaymentOrderStatus::Pending {
            return Ok(found);
        }
        let name = order_close::Request::trade_no(&sale.trade_no);
        match self.until_answered("to close the order", per_call, || self.client.order_close(&name)).await {
            Ok(_) => {}
            // The payer, or the end of its time, was faster: the look below says which.
            Err(error) if error.code() == Some(Code::InvalidOrderStatus) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(self.look(sale, per_call).await?)
    }

    async fn look(&self, sale: &Sale, within: Duration) -> Result<order_query::Response, Error> {
        let name = order_query::Request::trade_no(&sale.trade_no);
        self.until_answered("to look for the order", within, || self.client.order_query(&name)).await
    }

    /// One call, again and again until somebody has answered it, or the last try would begin later than `within` from now. Only for calls that may be done twice, as all of a till's: not for
    /// `rule_upgrade`. Not an `AsyncFn`: of its futures nobody can say that they may be sent, as `tokio::spawn` wants.
    async fn until_answered<T, F>(&self, what: &str, within: Duration, call: impl Fn() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let end = Instant::now() + within;
        let mut pause = self.patience.between_tries;
        for tried in 1..TRIES {
            let error = match call().await {
                Err(error) if error.is_temporary() => error,
                answered => return answered,
            };
            let wait = pause.max(error.retry_after().unwrap_or_default());
            if Instant::now() + wait > end {
                return Err(error);
            }
            eprintln!("{what}: try {tried} failed, the next one is in {} ms: {error}", wait.as_millis());
            sleep(wait).await;
            pause *= 2;
        }
        call().await
    }
}
