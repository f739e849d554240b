//! Callbacks that somebody sends from the command line, by the way of every attempt: the same head, the same limits, the same judgement.
//!
//! It has no store and no line-up. Plain http and private addresses are allowed, as in development: a receiver that is tried out is often on
//! this machine. Invariant: each callback has a connection of its own, so that none is lost on one that was being closed.

use std::convert::Infallible;
use std::time::Duration;

use countersign_protocol::headers::HeaderNames;
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{HeaderMap, HeaderValue};
use hyper::{Request, Response};
use rustix::net::sockopt::set_socket_send_buffer_size;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use super::attempt::{self, Ending, Letter, Progress, Report};
use super::connect::{Connector, Spelling, Works, handshake};
use super::deliver::{CallbackHeaders, Parts};
use super::egress::{Egress, EgressRefused};
use super::faults::Stage;
use super::settings::{DispatchError, DispatchSettings};
use super::tape::Taped;
use crate::clock::Clock;

/// Sends callbacks to one URL.
#[derive(Debug)]
pub(crate) struct ByHand {
    connector: Connector,
    headers: CallbackHeaders,
    url: String,
    deadline: Duration,
}

/// What is otherwise than the server would have it.
pub(crate) struct Manner<'a, B> {
    pub(crate) body: B,
    pub(crate) spelling: Spelling,
    /// So much more time than others it has.
    pub(crate) longer: Duration,
    /// So much at most waits in this machine for whoever reads.
    pub(crate) send_buffer_bytes_max: usize,
    /// Is called when the answer begins.
    pub(crate) begun: &'a mut (dyn FnMut() + Send),
}

impl ByHand {
    /// Reads the machine's roots, once. `deadline`: the longest time for a whole callback.
    pub(crate) fn new(url: &str, names: &HeaderNames, deadline: Duration) -> Result<Self, DispatchError> {
        let settings = DispatchSettings { allow_private: true, ..DispatchSettings::default() };
        if url.starts_with("https:") {
            super::count_roots(&[], false)?;
        }
        let connector = Connector::new(&settings)?;
        Ok(Self { connector, headers: CallbackHeaders::new(names), url: url.to_owned(), deadline })
    }

    /// Whether the URL has the form of one that callbacks go to.
    pub(crate) fn accepts(url: &str) -> Result<(), EgressRefused> {
        Egress { allow_private: true, allowed_ports: Vec::new() }.target(url).map(|_| ())
    }

    /// As the server sends it.
    pub(crate) async fn send(&self, parts: Parts<String>, body: Vec<u8>) -> Report {
        let letter = Letter { headers: self.headers(parts), body: body.into() };
        let report = attempt::make(&self.connector, &self.url, letter, self.deadline, Clock::System.now()).await;
        self.connector.keep_none();
        report
    }

    /// In a manner of its own, but with the same head.
    pub(crate) async fn send_otherwise<B>(&self, parts: Parts<String>, manner: Manner<'_, B>) -> Report
    where
        B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
    {
        let headers = self.headers(parts);
        attempt::within(self.deadline + manner.longer, async |progress, end| {
            self.try_otherwise(headers, manner, end, progress).await
        })
        .await
    }

    async fn try_otherwise<B>(
        &self,
        headers: HeaderMap,
        manner: Manner<'_, B>,
        end: Instant,
        progress: &mut Progress,
    ) -> Result<Ending, Ending>
    where
        B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
    {
        let Manner { body, spelling, send_buffer_bytes_max, begun, .. } = manner;
        let target = self.connector.target(&self.url)?;
        let vetted = self.connector.vetted(&target, &mut progress.watch).await?;
        progress.watch.enter(Stage::Connect);
        let (tcp, _) = self.connector.connect(&vetted).await?;
        let _ = tcp.set_nodelay(true);
        // Where the system does not let itself be told, more counts as sent than was taken.
        let _ = set_socket_send_buffer_size(&tcp, send_buffer_bytes_max);
        let request = attempt::request(&target, headers, body);
        let (mut works, response) = if target.is_https() {
            progress.watch.enter(Stage::Tls);
            let tls = self.connector.secured(&target, tcp).await?;
            converse(tls, spelling, request, progress).await?
        } else {
            converse(tcp, spelling, request, progress).await?
        };
        begun();
        attempt::hear(&mut works, response, Clock::System.now(), end, progress).await
    }

    fn headers(&self, parts: Parts<String>) -> HeaderMap {
        // With those that every request of ours has.
        let mut headers = HeaderMap::with_capacity(12);
        for (name, value) in self.headers.in_order(parts).into_iter().flatten() {
            let value = HeaderValue::try_from(value);
            headers.insert(name, value.expect("digits, letters and signs of ASCII are a header value"));
        }
        headers
    }
}

async fn converse<T, B>(
    io: T,
    spelling: Spelling,
    request: Request<B>,
    progress: &mut Progress,
) -> Result<(Works, Response<Incoming>), Ending>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
{
    let tape = progress.begin_alone();
    let (mut sender, mut works) = handshake(Taped::new(io, tape), spelling).await?;
    match works.until(sender.send_request(request)).await {
        Ok(response) => Ok((works, response)),
        Err(error) => Err(attempt::broken(&error, Clock::System.now(), progress)),
    }
}
