//! Questions to a cluster over one connection, with time-outs and reconnection.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use serde_json::Value;
use tenure::store::{Fault, StoreError};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;

use super::fault::{Failure, Hope, Kind};
use super::handshake::{self, User};
use super::json::{Json, MOST_ROWS};
use super::link::{Cursor, Link, Lost};
use super::response::{Garbled, Refusal, Response};
use super::term::WHO_ARE_YOU;
use super::{frame, refused, term, tls};
use crate::servers::{Secret, Servers};

/// The user if the URL names none. Its password is empty until an administrator sets one.
const ADMIN: &str = "admin";

/// A larger answer is not gathered.
///
/// The client counts: the server could tell a row's size only by writing all of it as JSON once
/// more in every read (`toJsonString().count()`), and that in characters, not bytes.
const LARGEST_ANSWER: usize = 64 * 1024 * 1024;

/// The least time allowed for connecting, even where requests are short. Connecting is three round
/// trips and a hash made to be slow.
const PATIENCE: Duration = Duration::from_secs(5);

/// A connection to a RethinkDB cluster. Any number of stores and elections may share it.
///
/// It connects when it is first needed and again after it broke, to the next of the hosts. Clones
/// are the same connection.
#[derive(Clone)]
pub struct Connection {
    inner: Arc<Inner>,
}

struct Inner {
    cluster: Arc<Cluster>,
    request: Duration,
    /// The most bytes of all parts of an answer together.
    largest: usize,
    state: Mutex<State>,
}

/// The servers of a cluster, and our user.
struct Cluster {
    hosts: Vec<String>,
    user: User,
    tls: Option<TlsConnector>,
    /// How long a host may take until it is connected.
    patience: Duration,
    /// Grows by one at every failure. Modulo the number of hosts, it is the host to ask.
    turn: AtomicUsize,
}

#[derive(Default)]
struct State {
    current: Option<Arc<Link>>,
    /// The number of connections so far, this one included.
    made: u64,
    /// The attempt under way. It serves all waiting questions, and outlasts a question that is
    /// given up. On a slow network each question would otherwise start its own attempt, and none
    /// would finish.
    attempt: Option<Attempt>,
}

type Attempt = Shared<BoxFuture<'static, Result<Arc<Link>, Unconnected>>>;

/// Why there is no connection, for every question that waited for it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{says}")]
struct Unconnected {
    fault: Fault,
    says: String,
}

impl Connection {
    /// Prepares a connection to the servers that a URL names; nothing is sent yet.
    ///
    /// # Errors
    /// [`StoreError`] when a password or a key cannot be read.
    pub fn new(servers: &Servers, request: Duration) -> Result<Connection, StoreError> {
        let user = match &servers.user {
            None => User { name: ADMIN.to_owned(), password: Secret::new("") },
            Some(name) => {
                let password = crate::password::of(servers);
                let password = password
                    .map_err(|says| refused(Fault::Permanent, "finding the password", says))?;
                User { name: name.clone(), password }
            }
        };
        let tls = servers.tls.as_ref().map(tls::connector).transpose();
        let tls =
            tls.map_err(|error| refused(Fault::Permanent, "reading the keys for TLS", error))?;
        // Processes begin with different servers.
        let first = rand::random::<u32>() as usize % servers.hosts.len().max(1);
        // One host of many must leave time for the others.
        let patience = match servers.hosts.len() {
            0 | 1 => request.max(PATIENCE),
            _ => (request / 2).max(PATIENCE / 5),
        };
        let (hosts, turn) = (servers.hosts.clone(), AtomicUsize::new(first));
        let cluster = Arc::new(Cluster { hosts, user, tls, patience, turn });
        let (largest, state) = (LARGEST_ANSWER, Mutex::default());
        Ok(Connection { inner: Arc::new(Inner { cluster, request, largest, state }) })
    }

    /// Sets the largest answer, in bytes.
    #[cfg(test)]
    pub(super) fn reading_at_most(mut self, largest: usize) -> Connection {
        Arc::get_mut(&mut self.inner).expect("it is not shared yet").largest = largest;
        self
    }

    /// Asks a question in the JSON of ReQL, such as `[59]` for the databases.
    ///
    /// A sequence is returned whole, unless it is too large. Nothing is asked twice: an error that
    /// is [`Fault::Indeterminate`] may have had an effect. A question that is refused, slow or has
    /// too large an answer does not close the connection, which others share.
    ///
    /// # Errors
    /// [`StoreError`] when the server refuses or does not answer in time.
    ///
    /// # Cancel safety
    /// Not cancel safe if the question changes anything: whether it did is then unknown.
    pub async fn run(&self, question: &Value) -> Result<Value, StoreError> {
        let question = serde_json::json!([1, question, {}]).to_string().into_bytes();
        let answer = self.inner.once_for_a_caller(&question).await;
        let value = answer.and_then(|answer| answer.value(Kind::Write));
        value.map_err(|failure| failed(failure, "asking a question"))
    }

    pub(super) fn request(&self) -> Duration {
        self.inner.request
    }

    /// Returns true if the server is an emulator, which lacks functions of a real one.
    ///
    /// Connects if there is no connection yet.
    pub(super) async fn is_emulated(&self) -> Result<bool, Failure> {
        let limit = self.inner.request.max(PATIENCE);
        let link = timeout(limit, self.inner.link()).await;
        let link = link.unwrap_or_else(|_| Err(Failure::late(Kind::Read, limit)))?;
        Ok(link.greeting.version.is_none())
    }

    /// Connects if there is no connection yet.
    pub(super) async fn connect(&self) -> Result<(), Failure> {
        let link = timeout(self.inner.request, self.inner.link()).await;
        let link = link.unwrap_or_else(|_| Err(Failure::unsent("no server could be reached")));
        link.map(drop)
    }

    /// The number of connections so far.
    pub(super) fn made(&self) -> u64 {
        self.inner.state().made
    }

    /// Asks a question that may take longer than others. It is asked once.
    pub(super) async fn ask_patiently(
        &self,
        kind: Kind,
        question: &term::Term,
        patience: Duration,
    ) -> Result<Value, Failure> {
        let patience = patience.max(self.inner.request);
        self.inner.once(kind, &question.start(), patience).await?.value(kind)
    }

    /// Asks a question with a small answer.
    pub(super) async fn ask(&self, kind: Kind, question: &term::Term) -> Result<Value, Failure> {
        self.answer(kind, question).await?.value(kind)
    }

    /// Asks a question with one answer. A read is repeated, elsewhere, if the first server fails.
    pub(super) async fn answer(
        &self,
        kind: Kind,
        question: &term::Term,
    ) -> Result<Answer, Failure> {
        let question = question.start();
        match kind {
            Kind::Write => self.inner.once(kind, &question, self.inner.request).await,
            Kind::Read => {
                let end = Instant::now() + self.inner.request;
                // Leaves time for another server, if there is one.
                let most =
                    self.inner.request / if self.inner.cluster.hosts.len() > 1 { 2 } else { 1 };
                match self.inner.once(kind, &question, most).await {
                    Err(failure) if self.inner.hopes(&failure) && Instant::now() < end => {}
                    answer => return answer,
                }
                let left = end.saturating_duration_since(Instant::now());
                self.inner.once(kind, &question, left).await
            }
        }
    }

    /// Starts a feed, and returns once it has begun.
    pub(super) async fn follow(&self, question: &term::Term) -> Result<Cursor, Failure> {
        let opening = async {
            let link = self.inner.link().await?;
            let cursor = link.follow(&question.start()).await;
            cursor.map_err(|lost| self.inner.lost(Kind::Read, &link, lost))
        };
        let opened = timeout(self.inner.request, opening).await;
        opened.unwrap_or_else(|_| {
            self.inner.retire_current();
            Err(Failure::late(Kind::Read, self.inner.request))
        })
    }

    /// Retires the connection of this feed, which was silent or broke.
    pub(super) fn give_up(&self, cursor: &Cursor) {
        self.inner.retire(cursor.link());
    }
}

/// A server's answer.
#[derive(Debug)]
pub(super) enum Answer {
    One(Json),
    /// A whole sequence.
    Rows(Vec<Json>),
}

impl Answer {
    /// The whole answer as one value, for small answers.
    fn value(self, kind: Kind) -> Result<Value, Failure> {
        let value = match self {
            Answer::One(value) => value.value(),
            Answer::Rows(rows) => Json::values(&rows).map(Value::Array),
        };
        value.map_err(|garbled| Failure::broken(kind, garbled))
    }

    /// The rows of a sequence, or of a list.
    pub(super) fn rows(self) -> Result<Vec<Json>, Garbled> {
        match self {
            Answer::One(list) => list.items(),
            Answer::Rows(rows) => Ok(rows),
        }
    }
}

impl Inner {
    /// Asks once, within `most`.
    async fn once(&self, kind: Kind, question: &[u8], most: Duration) -> Result<Answer, Failure> {
        let end = Instant::now() + most;
        let link = timeout_at(end, self.link()).await;
        let link = link.unwrap_or_else(|_| Err(Failure::unsent("no server could be reached")))?;
        match timeout_at(end, self.gather(kind, &link, question)).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(failure)) => {
                match failure.hope {
                    Hope::None => {}
                    Hope::OtherServer => self.turn_away_from(&link),
                    Hope::OtherConnection => self.retire(&link),
                }
                Err(failure)
            }
            Err(_) => {
                // The connection may be dead without any notice.
                self.retire(&link);
                Err(Failure::late(kind, most))
            }
        }
    }

    /// Asks a caller's own question. Only a dead connection is given up, however the question ends.
    async fn once_for_a_caller(&self, question: &[u8]) -> Result<Answer, Failure> {
        if question.len() > frame::LARGEST {
            let says = format!("a question of {} bytes is too large", question.len());
            return Err(Failure::told(Fault::Permanent, says));
        }
        let end = Instant::now() + self.request;
        let link = timeout_at(end, self.link()).await;
        let link = link.unwrap_or_else(|_| Err(Failure::unsent("no server could be reached")))?;
        if let Ok(answer) = timeout_at(end, self.gather(Kind::Write, &link, question)).await {
            return answer;
        }
        // The question may be slow, or the connection may be dead without any notice.
        match timeout(self.request, link.ask(WHO_ARE_YOU)).await {
            Ok(Ok(_)) => {}
            Ok(Err(_)) | Err(_) => self.retire(&link),
        }
        Err(Failure::late(Kind::Write, self.request))
    }

    /// Returns true if another attempt, elsewhere, may succeed.
    fn hopes(&self, failure: &Failure) -> bool {
        match failure.hope {
            Hope::None => false,
            Hope::OtherServer => self.cluster.hosts.len() > 1,
            Hope::OtherConnection => true,
        }
    }

    /// Gathers the whole answer.
    async fn gather(
        &self,
        kind: Kind,
        link: &Arc<Link>,
        question: &[u8],
    ) -> Result<Answer, Failure> {
        let lost = |lost| self.lost(kind, link, lost);
        let mut rows = Vec::new();
        let mut cursor = link.follow(question).await.map_err(lost)?;
        loop {
            match cursor.next().await.map_err(lost)? {
                Response::Atom(value) => return Ok(Answer::One(value)),
                Response::Sequence(last) => {
                    rows.extend(last);
                    return Ok(Answer::Rows(rows));
                }
                Response::Partial(some) => {
                    rows.extend(some);
                    let size: usize = rows.iter().map(Json::len).sum();
                    if rows.len() > MOST_ROWS || size > self.largest {
                        let says = format!("more than {} rows and {size} bytes", rows.len());
                        return Err(Failure::refused(kind, Refusal::too_large(says)));
                    }
                    cursor.more().await.map_err(lost)?;
                }
                Response::Refused(refusal) => return Err(Failure::refused(kind, refusal)),
            }
        }
    }

    fn lost(&self, kind: Kind, link: &Arc<Link>, lost: Lost) -> Failure {
        self.retire(link);
        match lost {
            Lost::Unsent(_) => Failure::unsent(lost),
            Lost::Broken(_) => Failure::broken(kind, lost),
        }
    }

    /// The current connection, or a new one.
    ///
    /// # Cancel safety
    /// An attempt to connect goes on when the next question needs it.
    async fn link(&self) -> Result<Arc<Link>, Failure> {
        let attempt = {
            let mut state = self.state();
            if let Some(link) = state.usable() {
                return Ok(link);
            }
            let cluster = &self.cluster;
            state.attempt.get_or_insert_with(|| cluster.clone().reach().boxed().shared()).clone()
        };
        let connected = attempt.clone().await;
        let mut state = self.state();
        // The first waiter to resume records the result for all.
        if state.attempt.as_ref().is_some_and(|current| current.ptr_eq(&attempt)) {
            state.attempt = None;
            state.current = connected.as_ref().ok().cloned();
            state.made += u64::from(connected.is_ok());
        }
        connected.map_err(|unconnected| Failure::unconnected(unconnected.fault, unconnected))
    }

    /// Retires a connection: new questions go elsewhere.
    ///
    /// Only the first report about a connection moves on to the next host.
    fn retire(&self, link: &Arc<Link>) {
        let mut state = self.state();
        if state.current.as_ref().is_some_and(|current| Arc::ptr_eq(current, link)) {
            state.current = None;
            self.cluster.turn.fetch_add(1, Ordering::Relaxed);
        }
        link.retire();
    }

    /// Sends new questions to another server, if there is one. The feeds of this connection go on,
    /// because it answered.
    fn turn_away_from(&self, link: &Arc<Link>) {
        let mut state = self.state();
        let is_current = state.current.as_ref().is_some_and(|current| Arc::ptr_eq(current, link));
        if self.cluster.hosts.len() > 1 && is_current {
            state.current = None;
            self.cluster.turn.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn retire_current(&self) {
        let current = self.state().current.clone();
        if let Some(link) = current {
            self.retire(&link);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Its parts are replaced whole: a panic leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn usable(&self) -> Option<Arc<Link>> {
        self.current.as_ref().filter(|link| link.is_usable()).cloned()
    }
}

impl Cluster {
    /// Connects to the host at `turn`, or to the next one that accepts us.
    async fn reach(self: Arc<Cluster>) -> Result<Arc<Link>, Unconnected> {
        let mut unconnected =
            Unconnected { fault: Fault::Permanent, says: "no host is named".into() };
        for _ in 0..self.hosts.len() {
            let turn = self.turn.load(Ordering::Relaxed);
            let host = &self.hosts[turn % self.hosts.len()];
            let connected = timeout(self.patience, self.connect(host)).await;
            match connected.unwrap_or_else(|_| Err(Failure::late(Kind::Read, self.patience))) {
                Ok(link) => return Ok(link),
                Err(failed) => {
                    let says = format!("{host}: {}", failed.source);
                    tracing::debug!(%says, "rethinkdb: connecting failed");
                    self.turn.store(turn.wrapping_add(1), Ordering::Relaxed);
                    unconnected = Unconnected { fault: failed.fault, says };
                }
            }
        }
        Err(unconnected)
    }

    async fn connect(&self, host: &str) -> Result<Arc<Link>, Failure> {
        let stream = TcpStream::connect(host).await;
        let stream = stream.map_err(Failure::unsent)?;
        // Small questions must not wait for each other.
        let _ = stream.set_nodelay(true);
        match &self.tls {
            None => self.introduce(stream).await,
            Some(tls) => {
                let name = tls::server_name(host).map_err(Failure::unsent)?;
                let secured = tls.connect(name, stream).await;
                let says = |error| Failure::unsent(format!("TLS: {error}"));
                self.introduce(secured.map_err(says)?).await
            }
        }
    }

    async fn introduce(&self, mut stream: impl super::link::Stream) -> Result<Arc<Link>, Failure> {
        let mut buffer = BytesMut::new();
        let greeting = handshake::shake(&mut stream, &mut buffer, &self.user).await;
        Ok(Link::new(stream, buffer, greeting.map_err(Failure::unwelcome)?))
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("hosts", &self.inner.cluster.hosts)
            .field("user", &self.inner.cluster.user.name)
            .finish_non_exhaustive()
    }
}

pub(super) fn failed(failure: Failure, doing: impl Into<String>) -> StoreError {
    refused(failure.fault, doing, failure.source)
}
