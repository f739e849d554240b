//! `listen`: an application's events as callbacks to a handler on this machine, which nobody outside can reach.
//!
//! It asks for events in the order of their `seq` over one connection of its own (docs/PROTOCOL.md, Events), signs each as the server would,
//! and asks for the next only when the handler has said SUCCESS. So a pause of the machine, of the network or of the handler leaves
//! no gap. Where the cursor is kept in a file, neither does a new start; an event that was taken just before the end comes again then,
//! with the same event id, as from the server.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::Args;
use countersign_domain::time::{UnixMillis, rfc3339};
use countersign_protocol::code::Code;
use countersign_protocol::endpoint::events::{Event, Request, Response};
use countersign_sdk::{Client, Error, EventWalk, Gap, PullError, Secret};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{sleep, timeout};

use super::courier::{Courier, Letter};
use super::http::{self, NO_HTTP};
use super::sign::{self, SignatureForm, header_names};
use super::{Usage, authorities, numbers};
use crate::clock::Clock;
use crate::dispatch::DEADLINE;
use crate::tls_fault;
use crate::visible::for_terminals;

mod cursor;

use cursor::{behind_links, demand_fit, locked, remember, remembered};

/// Between two questions while nothing happens.
const QUIET: Duration = Duration::from_secs(1);
/// More than any id of an event has.
const ID_CHARS_MAX: usize = 64;
/// As many waits come to more than half a minute, for which nothing is taken after a restore.
const RESTORED_TRIES: usize = 7;
/// Waits grow from the first to the last.
/// How long the server's time is waited for.
const CLOCK_WITHIN: Duration = Duration::from_secs(2);
/// The longest wait that somebody who is not the service is believed, such as a balancer whose service may be back sooner.
const OF_ANOTHER_MAX: Duration = Duration::from_secs(60);
const WAITS: [Duration; 5] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
];
/// No application has so many events.
const SEQ_MAX: i64 = 1 << 52;

/// Flags of `listen`.
#[derive(Clone, Debug, Args)]
pub struct ListenArgs {
    /// The handler: http://127.0.0.1:3000/callback
    #[arg(long, value_name = "URL")]
    forward: String,
    /// Address of the merchant API
    #[arg(long, value_name = "URL", env = http::URL, default_value = "http://127.0.0.1:8080")]
    url: String,
    /// Begin after this `seq`; 0 is the first event [default: what happens from now on]
    #[arg(long, value_name = "SEQ", allow_negative_numbers = true, value_parser = numbers::seq)]
    after: Option<i64>,
    /// File that remembers the last event that was taken; where it is there, --after does not count
    #[arg(long, value_name = "FILE")]
    cursor: Option<PathBuf>,
    /// How signatures are written
    #[arg(long, value_enum, default_value = "hex")]
    encoding: SignatureForm,
    /// What the header names begin with
    #[arg(long, default_value = "X-Service-")]
    prefix: String,
}

/// Listens until it is interrupted, or until nothing is to be had any more.
pub fn run(args: &ListenArgs, environment: &BTreeMap<String, String>) -> anyhow::Result<ExitCode> {
    let client_id = sign::client_id(environment)?;
    let secret = sign::secret(environment)?;
    let names = header_names(&args.prefix)?;
    let courier = Courier::new(&args.forward, &names, client_id, secret, args.encoding.into(), DEADLINE)?;
    http::address(&args.url)
        .map_err(|error| error.context(http::given_by("--url", http::URL, &args.url, environment)))?;
    authorities::demand(&args.url, environment)?;
    let key = Secret::of_any_form(secret)?; // It was judged above, as by the other commands.
    let client = Client::builder(&args.url, client_id, key).header_prefix(&args.prefix).build();
    let client = client.map_err(|error| match error {
        // The ClientId was judged above, under the name of its variable: nothing else that was given to it can be wrong here.
        Error::Usage(why) => anyhow::Error::from(Usage(format!("--url: {why}"))),
        other => other.into(),
    })?;
    // By the server's clock, as the server would: the client learns it where this machine's is wrong.
    let clock = client.clone();
    let courier = courier.stamping_by(move || UnixMillis(clock.server_now_ms()));
    authorities::demand(&args.forward, environment)?;
    // By whatever name it is called: the lock is beside the file itself, and a link to it stays one.
    let cursor = args.cursor.as_deref().map(behind_links);
    let args = &ListenArgs { cursor, ..args.clone() };
    args.cursor.as_deref().map(demand_fit).transpose()?;
    // Until the process ends: two that bring events from one cursor would bring them twice.
    let _lock = args.cursor.as_deref().map(locked).transpose()?;
    match super::small_runtime()?.block_on(follow_until_told(args, &client, &courier, client_id)) {
        Err(error) if !error.is::<NobodyReads>() => Err(error),
        Ok(()) | Err(_) => Ok(ExitCode::SUCCESS),
    }
}

/// Follows the events until a signal comes and the handler has answered what it works on, or until a second one comes.
async fn follow_until_told(
    args: &ListenArgs,
    client: &Client,
    courier: &Courier,
    client_id: &str,
) -> anyhow::Result<()> {
    // Before anything is said: whoever has read the first line may end it.
    let (mut interrupted, mut terminated) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut told_to_end = async || {
        tokio::select! { _ = interrupted.recv() => {}, _ = terminated.recv() => {} }
    };
    let end = End::default();
    let mut followed = pin!(follow(args, client, courier, client_id, &end));
    // What is followed comes first: then it has said whether the handler works when a signal is looked at.
    tokio::select! {
        biased;
        ended = &mut followed => return ended,
        () = told_to_end() => {}
    }
    let Some(seq) = end.ask() else { return Ok(()) };
    let seconds = DEADLINE.as_secs();
    // It ends as well where nobody reads this any more.
    let _ = writeln!(
        io::stderr(),
        "countersign: waiting for the handler's answer to seq {seq}, {seconds} s at most; ask again to end at once"
    );
    tokio::select! {
        biased;
        ended = followed => ended,
        () = told_to_end() => Ok(()),
    }
}

/// What the signals and the callback under way know of each other.
#[derive(Debug, Default)]
struct End {
    /// Somebody has asked for it.
    is_asked: Cell<bool>,
    /// The `seq` of what the handler works on.
    under_way: Cell<Option<i64>>,
}

impl End {
    /// Asks for the end. The `seq` of what the handler works on, if anything: cut off, it would come again as if for the first time.
    fn ask(&self) -> Option<i64> {
        self.is_asked.set(true);
        self.under_way.get()
    }
}

/// Brings events without end, or until somebody asks for it while the handler works.
async fn follow(
    args: &ListenArgs,
    client: &Client,
    courier: &Courier,
    client_id: &str,
    end: &End,
) -> anyhow::Result<()> {
    let known = args.cursor.as_deref().map(|file| remembered(file, client_id)).transpose()?.flatten();
    let mut server = Server::Unknown;
    let after = match (known, args.after) {
        (Some(seq), _) | (None, Some(seq)) => seq,
        (None, None) => last(client, &mut server).await?,
    };
    if let Some(file) = &args.cursor {
        // Before anything is brought: what cannot be noted would come again with each start.
        remember(file, after, client_id)?;
    }
    told(&format!("bringing events after seq {after} to {}", args.forward))?;
    let mut walk = EventWalk::new(client.clone(), after);
    let mut may_be_beyond = known.or(args.after).is_some();
    loop {
        let events = pulled(&mut walk, args.cursor.as_deref(), &mut server).await?;
        server = Server::HasAnswered;
        let may_wait_long = std::mem::take(&mut may_be_beyond) && events.is_empty();
        for event in &events {
            bring(client, courier, event, end, || {
                args.cursor.as_deref().map_or(Ok(()), |file| remember(file, event.seq, client_id))
            })
            .await?;
            if end.is_asked.get() {
                return Ok(());
            }
            walk.done(event)?;
        }
        if may_wait_long {
            warn_of_a_wait(client, after, &mut server).await?;
        }
        if events.is_empty() {
            sleep(QUIET).await;
        }
    }
}

/// Whoever begins behind the newest event would wait without a word, for ever where the seq is another application's or deployment's.
async fn warn_of_a_wait(client: &Client, after: i64, server: &mut Server) -> anyhow::Result<()> {
    // One question for most: the event that was taken last is there, and nothing has happened since.
    if after < 1 || has_more(client, after - 1, server).await? {
        return Ok(());
    }
    let newest = last(client, server).await?;
    if newest < after {
        // It goes on where nobody reads this any more.
        let _ = writeln!(
            io::stderr(),
            "countersign: the newest event is seq {newest}: nothing comes until there is one after seq {after}"
        );
    }
    Ok(())
}

/// Brings an event again and again until it is taken, which is noted before it is told, or until the end is asked for.
async fn bring(
    client: &Client,
    courier: &Courier,
    event: &Event,
    end: &End,
    note: impl Fn() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    ensure!(
        is_id(&event.event_id),
        "the event with seq {} has an id that is none of the service's, {:?}: something else has answered",
        event.seq,
        event.event_id
    );
    let body = Courier::body_of(event);
    let mut letter = Letter { event_id: event.event_id.clone(), sequence: None, ..courier.letter(body) };
    let name = name_of(event);
    let mut waits = Waits::default();
    loop {
        end.under_way.set(Some(event.seq));
        let reaction = courier.bring(&letter).await;
        end.under_way.set(None);
        if reaction.is_delivered() {
            note().with_context(|| format!("the handler has taken seq {} and will get it again", event.seq))?;
        }
        told(&format!("{name}: {}", reaction.told()))?;
        if reaction.is_delivered() || end.is_asked.get() {
            return Ok(());
        }
        sleep(waits.next()).await;
        // It may be that its stamp was wrong: a clock is put right while nothing else asks the server. What was learned stays where this fails.
        let _ = timeout(CLOCK_WITHIN, client.learn_clock()).await;
        letter = courier.signed(Letter { attempt: letter.attempt + 1, ..letter });
    }
}

/// Whether it can be the id of an event. It becomes a header of what is brought, which not every text can be.
fn is_id(text: &str) -> bool {
    (1..=ID_CHARS_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// What an event is called on the terminal. Whoever writes events chooses these words.
fn name_of(event: &Event) -> String {
    let Event { seq, event_id, biz_type, biz_id, biz_status, .. } = event;
    for_terminals(&format!("seq {seq} {event_id} {biz_type} {biz_id} {biz_status}"))
}

/// The next events, as often as it takes to ask. Where some are missing, that is the end: whoever listens must know.
async fn pulled(walk: &mut EventWalk, cursor: Option<&Path>, server: &mut Server) -> anyhow::Result<Vec<Event>> {
    let mut waits = Waits::default();
    loop {
        match walk.pull().await {
            Ok(events) => return Ok(events),
            Err(PullError::Missing(gap)) => bail!("{gap}; to go on without them, {}", gone_on(&gap, cursor)),
            Err(PullError::Call(error)) => {
                wait(error, &format!("events after seq {}", walk.after()), server, &mut waits).await?;
            }
            Err(other) => return Err(other.into()),
        }
    }
}

/// What to do to go on behind a gap. A cursor that is there counts before --after, and by now there is one.
fn gone_on(gap: &Gap, cursor: Option<&Path>) -> String {
    let first = cursor.map_or_else(String::new, |file| format!("remove {} and ", file.display()));
    let last = gap.last.map_or_else(|| "with the last seq that is missing".to_owned(), |last| last.to_string());
    format!("{first}say --after {last}")
}

/// One page, as often as it takes: a server that is away comes back. An error where to ask again is of no use.
async fn page(client: &Client, request: Request, server: &mut Server) -> anyhow::Result<Response> {
    let mut waits = Waits::default();
    loop {
        match client.events(&request).await {
            Ok(page) => {
                *server = Server::HasAnswered;
                return Ok(page);
            }
            Err(error) => wait(error, "the newest event", server, &mut waits).await?,
        }
    }
}

/// Waits before the next question for `what`; an error where that is of no use.
async fn wait(error: Error, what: &str, server: &mut Server, waits: &mut Waits) -> anyhow::Result<()> {
    waits.out_of_range = if error.code() == Some(Code::TimestampOutOfRange) { waits.out_of_range + 1 } else { 0 };
    if is_of_the_service(&error) {
        *server = Server::HasAnswered;
    }
    if !may_pass(&error, *server, waits.out_of_range) {
        let may_be_another = *server == Server::Unknown && matches!(error, Error::Unreadable { request_id: None, .. });
        let what = if may_be_another {
            "what answers at --url does not answer as the merchant API does".to_owned()
        } else {
            format!("{what} cannot be had")
        };
        return match error {
            Error::Transport(_) => Err(anyhow!(causes(&error)).context(what)),
            refused => Err(refused).context(what),
        };
    }
    told(&format!("no events now: {}; asking again", for_terminals(&causes(&error))))?;
    sleep(waits.next_after(&error)).await;
    Ok(())
}

/// What is known of the address that is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Server {
    /// Nothing: it may be that of something else.
    Unknown,
    /// The service has answered there.
    HasAnswered,
}

/// Whether the service said so, and not for the one reason that a server which is none of ours to ask may give for ever.
fn is_of_the_service(error: &Error) -> bool {
    matches!(error, Error::Refused { code, request_id: Some(_), .. } if *code != Code::TimestampOutOfRange)
}

/// Whether the next question may be answered, after so many in a row that were out of time.
fn may_pass(error: &Error, server: Server, out_of_range: usize) -> bool {
    match error {
        // Who has never answered as the service does may be another, and a certificate that is none does not become one by itself.
        Error::Transport(_) => server == Server::HasAnswered || !speaks_otherwise(error),
        // Something in between has sent the question twice, and the next one has a nonce of its own.
        Error::Refused { code: Code::NonceReused, .. } => true,
        // The clock was set between the question for the time and the repeat, as when a laptop wakes; or the service was restored just now. Where
        // nobody has answered for longer than that lasts it is another fault, which does not pass by itself.
        Error::Refused { code: Code::TimestampOutOfRange, .. } => {
            server == Server::HasAnswered || out_of_range <= RESTORED_TRIES
        }
        Error::Refused { http_status, .. } | Error::RefusedNewly { http_status, .. } => {
            *http_status >= 500 || *http_status == 429
        }
        // What stands in between answers in its place: that the service is away, or with a page of its own, such as the sign-in page of a network.
        Error::Unreadable { http_status, request_id, .. } => {
            matches!(http_status, 502..=504 | 520..=599)
                || (server == Server::HasAnswered && (*http_status >= 500 || request_id.is_none()))
        }
        // Built wrongly, or newer than this program knows.
        _ => false,
    }
}

/// What an error came from, the deepest last.
fn chain(error: &Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(std::error::Error::source(error), |cause| cause.source())
}

fn is_no_http(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause.downcast_ref().is_some_and(hyper::Error::is_parse)
}

/// Whether somebody is there and speaks another protocol, or as somebody else.
fn speaks_otherwise(error: &Error) -> bool {
    let is_tls = |cause: &io::Error| tls_fault::named(cause).is_some() && !tls_fault::is_alert(cause);
    chain(error).any(|cause| is_no_http(cause) || cause.downcast_ref().is_some_and(is_tls))
}

/// The error and the deepest of what it came from: what lies between names addresses and layers.
fn causes(error: &Error) -> String {
    let why = chain(error).find_map(|cause| cause.downcast_ref().and_then(tls_fault::named));
    let why = why.or_else(|| chain(error).find(|cause| is_no_http(*cause)).map(|cause| format!("{cause}: {NO_HTTP}")));
    match why.or_else(|| chain(error).last().map(ToString::to_string)) {
        // Where there is a cause, nothing was answered; the one that helps is not always the deepest, which the error itself tells.
        Some(why) => format!("no answer from the server: {why}"),
        None => error.to_string(),
    }
}

/// The `seq` of the newest event; 0 where there is none. Asks some dozens of times at most.
async fn last(client: &Client, server: &mut Server) -> anyhow::Result<i64> {
    let (mut there, mut beyond) = (0, 1);
    while beyond < SEQ_MAX && has_more(client, beyond, server).await? {
        there = beyond;
        beyond *= 2;
    }
    // Something comes after `there`, unless that is 0; nothing comes after `beyond`.
    if !has_more(client, there, server).await? {
        return Ok(there);
    }
    while there + 1 < beyond {
        let middle = there + (beyond - there) / 2;
        if has_more(client, middle, server).await? {
            there = middle;
        } else {
            beyond = middle;
        }
    }
    Ok(beyond)
}

/// Whether there are events after this one, kept or not.
async fn has_more(client: &Client, after: i64, server: &mut Server) -> anyhow::Result<bool> {
    match page(client, Request { after, limit: 1 }, server).await {
        Ok(page) => Ok(!page.events.is_empty()),
        Err(error) if error.downcast_ref::<Error>().and_then(Error::code) == Some(Code::EventsGone) => Ok(true),
        Err(error) => Err(error),
    }
}

#[derive(Default)]
struct Waits {
    waited: usize,
    /// Refusals in a row of what was out of time.
    out_of_range: usize,
}

impl Waits {
    fn next(&mut self) -> Duration {
        let wait = WAITS[self.waited.min(WAITS.len() - 1)];
        self.waited += 1;
        wait
    }

    /// The same, and no sooner than whoever answered wants it.
    fn next_after(&mut self, error: &Error) -> Duration {
        let wanted = error.retry_after().unwrap_or_default();
        let is_of_another = matches!(error, Error::Unreadable { request_id: None, .. });
        self.next().max(if is_of_another { wanted.min(OF_ANOTHER_MAX) } else { wanted })
    }
}

/// Whoever read what is told has gone, as `head` does. That is no failure, and the end: what is brought from then on, nobody would see.
#[derive(Debug, thiserror::Error)]
#[error("nobody reads any more what is told")]
struct NobodyReads;

fn told(line: &str) -> anyhow::Result<()> {
    let is_read = super::say_more(&format!("{} {line}\n", rfc3339(Clock::System.now())))?;
    ensure!(is_read, NobodyReads);
    Ok(())
}

#[cfg(test)]
mod tests;
