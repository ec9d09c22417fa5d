//! Requests to the cluster, with time-outs. Another server is asked when one fails.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Method, Url};
use tenure::store::Fault;
use tokio::time::{Instant, timeout};

use super::fault::{Failure, Kind};

/// The largest answer, however much was asked for.
const LARGEST_ANSWER: usize = 64 * 1024 * 1024;
/// How many bytes an answer may have around the requested documents.
const AROUND: usize = 64 * 1024;
/// How much of an error is read.
const LARGEST_ERROR: usize = 64 * 1024;
/// The content type. The lines of a bulk are JSON, and both servers accept this type for them.
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A client of a cluster, for one index.
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
    /// The path after the index, such as `_mget`; empty for the index itself.
    pub(super) action: &'static str,
    pub(super) query: String,
    pub(super) body: Bytes,
    /// The largest answer that is read and parsed.
    pub(super) most: usize,
}

/// The largest answer about `documents` documents of `each` bytes.
pub(super) fn size_of(documents: usize, each: usize) -> usize {
    documents.saturating_mul(each).saturating_add(AROUND).min(LARGEST_ANSWER)
}

impl Client {
    /// Sends a request. It is sent again only if it is a read, or certainly had no effect.
    pub(super) async fn call(&self, request: Request, end: Instant) -> Result<Bytes, Failure> {
        let mut others = self.hosts.addresses.len() - 1;
        loop {
            let (turn, host) = self.hosts.choose();
            let left = end.saturating_duration_since(Instant::now());
            // A read leaves time for another server. A write cannot be sent twice, so it may take
            // all the time.
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
                // The request was certainly sent: the connection broke afterwards.
                Err(error) => Err(Failure::broken(error, kind)),
            };
        }
        // The status is enough; without its whole body the error only says less.
        let body = read_up_to(&mut answer, LARGEST_ERROR).await.ok().flatten().unwrap_or_default();
        Err(Failure::refused(status.as_u16(), &body, kind))
    }

    /// The deadline of a call that begins now.
    pub(super) fn end(&self) -> Instant {
        Instant::now() + self.request
    }
}

/// The whole body; none if it is larger than `most`.
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

/// The servers of one cluster. Requests go to one of them until it fails.
#[derive(Debug)]
pub(super) struct Hosts {
    addresses: Vec<Url>,
    /// Grows by one at every failure. Modulo the number of servers, it is the one to ask.
    current: AtomicUsize,
}

impl Hosts {
    /// Takes at least one address. Each may have a path.
    pub(super) fn new(addresses: Vec<Url>) -> Hosts {
        // Processes begin with different servers.
        let first = rand::random::<u32>() as usize % addresses.len();
        Hosts { addresses, current: AtomicUsize::new(first) }
    }

    fn choose(&self) -> (usize, &Url) {
        let turn = self.current.load(Ordering::Relaxed);
        (turn, &self.addresses[turn % self.addresses.len()])
    }

    /// Sends the next request elsewhere. Only the first report of a failure counts.
    fn avoid(&self, turn: usize) {
        let next = turn.wrapping_add(1);
        let _ = self.current.compare_exchange(turn, next, Ordering::Relaxed, Ordering::Relaxed);
    }
}
