//! Requests: time-outs, and another server when one fails.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Method, Url};
use tenure::Fault;
use tokio::time::{Instant, timeout};

use super::fault::{Failure, Kind};

/// No answer may be larger, however much was asked for.
const LARGEST_ANSWER: usize = 64 * 1024 * 1024;
/// Each answer may have this much around what was asked for.
const AROUND: usize = 64 * 1024;
/// Of an error, as much is read as anybody wants to see.
const LARGEST_ERROR: usize = 64 * 1024;
/// The lines of a bulk are JSON each; both servers take this for it.
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Speaks to a cluster about one index.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) http: reqwest::Client,
    pub(super) hosts: Hosts,
    pub(super) authorization: Option<HeaderValue>,
    pub(super) index: String,
    pub(super) request: Duration,
}

/// One request about the index.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) kind: Kind,
    pub(super) method: Method,
    /// What follows the index: `_mget`; empty for the index itself.
    pub(super) action: &'static str,
    pub(super) query: String,
    pub(super) body: Bytes,
    /// A larger answer is not read, and not parsed.
    pub(super) most: usize,
}

/// The size of an answer about so many documents, with so many bytes for each.
pub(super) fn size_of(documents: usize, each: usize) -> usize {
    documents.saturating_mul(each).saturating_add(AROUND).min(LARGEST_ANSWER)
}

impl Client {
    /// Sends a request; again only where it is certain that it had no effect, or is a read.
    pub(super) async fn call(&self, request: Request, end: Instant) -> Result<Bytes, Failure> {
        let mut others = self.hosts.addresses.len() - 1;
        loop {
            let (turn, host) = self.hosts.choose();
            let left = end.saturating_duration_since(Instant::now());
            // A read leaves time for another server. A write cannot be sent twice: it may take all
            // there is.
            let limit = if request.kind == Kind::Read && others > 0 { left / 2 } else { left };
            let failure = match timeout(limit, self.attempt(host, &request)).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(failure)) => failure,
                Err(_) => Failure::late(request.kind, limit),
            };
            let failure = failure.at(host);
            if failure.elsewhere {
                tracing::debug!(error = %failure.says, "elastic: this server fails us, trying the next");
                self.hosts.avoid(turn);
            }
            let harmless = request.kind == Kind::Read || failure.fault == Fault::Unavailable;
            if failure.elsewhere && harmless && others > 0 && Instant::now() < end {
                others -= 1;
            } else {
                return Err(failure);
            }
        }
    }

    async fn attempt(&self, host: &Url, request: &Request) -> Result<Bytes, Failure> {
        let kind = request.kind;
        let mut url = host.clone();
        url.path_segments_mut()
            .expect("no address is accepted that cannot have a path")
            .pop_if_empty()
            .push(&self.index)
            .extend(Some(request.action).filter(|action| !action.is_empty()));
        url.set_query(Some(&request.query).filter(|query| !query.is_empty()).map(String::as_str));
        let mut sending = self.http.request(request.method.clone(), url);
        if !request.body.is_empty() {
            sending = sending.header(CONTENT_TYPE, JSON).body(request.body.clone());
        }
        if let Some(authorization) = &self.authorization {
            sending = sending.header(AUTHORIZATION, authorization);
        }
        let mut answer = sending.send().await.map_err(|error| Failure::of(error, kind))?;
        let status = answer.status();
        if status.is_success() {
            return match read_up_to(&mut answer, request.most).await {
                Ok(Some(body)) => Ok(body),
                Ok(None) => Err(Failure::oversized(kind)),
                // It is certainly sent: whatever broke broke afterwards.
                Err(error) => Err(Failure::broken(error, kind)),
            };
        }
        // The status says what matters; a body that breaks off only says less.
        let body = read_up_to(&mut answer, LARGEST_ERROR).await.ok().flatten().unwrap_or_default();
        Err(Failure::refused(status.as_u16(), &body, kind))
    }

    /// When a call that begins now must be over.
    pub(super) fn end(&self) -> Instant {
        Instant::now() + self.request
    }
}

/// The whole body, or none when it is larger than this.
async fn read_up_to(
    answer: &mut reqwest::Response,
    most: usize,
) -> Result<Option<Bytes>, reqwest::Error> {
    let mut body = BytesMut::new();
    while let Some(part) = answer.chunk().await? {
        if body.len() + part.len() > most {
            return Ok(None);
        }
        body.extend_from_slice(&part);
    }
    Ok(Some(body.freeze()))
}

/// The servers of one cluster; requests go to one of them until it fails.
#[derive(Debug)]
pub(super) struct Hosts {
    addresses: Vec<Url>,
    /// Grows by one at every failure; its remainder is the server that is asked.
    current: AtomicUsize,
}

impl Hosts {
    /// There is at least one, and each may have a path.
    pub(super) fn new(addresses: Vec<Url>) -> Hosts {
        // Not everybody asks the same server first.
        let first = rand::random::<u32>() as usize % addresses.len();
        Hosts { addresses, current: AtomicUsize::new(first) }
    }

    fn choose(&self) -> (usize, &Url) {
        let turn = self.current.load(Ordering::Relaxed);
        (turn, &self.addresses[turn % self.addresses.len()])
    }

    /// The next request goes elsewhere; the first of those who report the same failure has its way.
    fn avoid(&self, turn: usize) {
        let next = turn.wrapping_add(1);
        let _ = self.current.compare_exchange(turn, next, Ordering::Relaxed, Ordering::Relaxed);
    }
}
