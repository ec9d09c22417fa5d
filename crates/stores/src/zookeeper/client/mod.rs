//! A session with ZooKeeper, over one connection at a time.
//!
//! Why not an existing crate? A leader must:
//!
//! - know *on which connection* a request was answered, and since when;
//! - end a connection that is silent for a tenth of the session's time;
//! - go on with the same session on another server;
//! - be sure that no request of an earlier connection happens later.
//!
//! The existing crates queue requests while they are disconnected, and do not expose these moments.
//!
//! Requests are sent in order and answered in order. When a connection ends, unsent requests fail
//! with [`Error::Unsent`], unanswered requests are in doubt ([`Error::Lost`]), and every watch
//! reports that it is lost.

mod error;
mod options;
mod pending;
mod state;
mod stream;
mod task;
mod tls;
mod voice;
mod watches;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tenure::queue::Session;
use tenure::{Clock, system_clock};
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::{Instant, timeout_at};

pub use self::error::Error;
pub use self::options::ClientOptions;
pub use self::pending::Pending;
pub(super) use self::pending::read_answer;
pub(super) use self::state::{Answer, Made, Outcome};
use self::state::{Join, State};
pub(super) use self::tls::read as read_tls;
pub(super) use self::watches::{Event, Watching};
use super::wire::{self, Acl, Found, Lifetime, Request, Results, Stat};

/// The maximum size of a request's data. ZooKeeper ends connections that send more than a mebibyte.
const MOST_BYTES: usize = 1_000_000;

/// A session with ZooKeeper; clones share it.
///
/// One session serves any number of elections and documents, and the program's own nodes beside
/// them. It reconnects by itself, and begins a new session when one is over. Dropping the last
/// clone closes the session, unless an entry of an election still stands in it. That entry goes
/// when the session expires at the server.
///
/// ```no_run
/// # async fn example() -> Result<(), tenure::store::StoreError> {
/// use tenure_stores::zookeeper::{Acl, Client, ClientOptions, Lifetime};
/// let client = Client::new(ClientOptions::new(["10.0.0.1:2181", "10.0.0.2:2181"]));
/// let made = client.create("/mine", "hello", Lifetime::Lasting, &Acl::open()).await;
/// # let _ = made; Ok(()) }
/// ```
#[derive(Clone)]
pub struct Client {
    owner: Arc<Owner>,
}

/// Ends the task when its last user drops it.
struct Owner {
    shared: Arc<Shared>,
}

/// The state that the task and its users share.
pub(super) struct Shared {
    state: Mutex<State>,
    /// Notified when there is something to send, or when the task must end.
    work: Notify,
    session: watch::Sender<Session>,
    clock: Arc<dyn Clock>,
}

impl Client {
    /// Starts to connect in the background.
    ///
    /// # Panics
    /// Outside a runtime.
    #[must_use]
    pub fn new(options: ClientOptions) -> Client {
        let clock = system_clock();
        let shared = Arc::new(Shared {
            state: Mutex::new(State::new(options.session)),
            work: Notify::new(),
            session: watch::Sender::new(Session::none()),
            clock,
        });
        // The owner tells the task to end, and it does so within the session's time.
        tokio::spawn(task::run(shared.clone(), options));
        Client { owner: Arc::new(Owner { shared }) }
    }

    /// Waits for a connection.
    ///
    /// # Errors
    /// [`Error`] when there is none within this time, or never will be.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn connected(&self, within: Duration) -> Result<(), Error> {
        self.connected_by(Instant::now() + within).await
    }

    pub(super) async fn connected_by(&self, deadline: Instant) -> Result<(), Error> {
        let mut sessions = self.session();
        // Ask the state, not the last message: a message follows the change, so the last one may be
        // old.
        while !self.is_up() {
            if sessions.borrow_and_update().life == tenure::queue::Life::Closed {
                return Err(self.trouble().unwrap_or(Error::Closed));
            }
            let changed = timeout_at(deadline, sessions.changed()).await;
            changed
                .map_err(|_| self.trouble().unwrap_or(Error::Unsent))?
                .map_err(|_| Error::Closed)?;
        }
        Ok(())
    }

    /// Waits for a connection, without a limit. Never returns once the session is closed for good.
    pub(super) async fn up(&self) {
        let mut sessions = self.session();
        let never = sessions.wait_for(Session::is_live).await.is_err();
        if never {
            std::future::pending::<()>().await;
        }
    }

    /// Subscribes to the state of the session.
    #[must_use]
    pub fn session(&self) -> watch::Receiver<Session> {
        self.owner.shared.session.subscribe()
    }

    /// Closes the session. All its ephemeral nodes go at once.
    ///
    /// # Cancel safety
    /// Cancel safe: the session is closed in the background.
    pub async fn close(&self) {
        self.owner.shared.close();
        let mut sessions = self.session();
        // This cannot fail: the sender belongs to this very client.
        let _ = sessions.wait_for(|session| session.life == tenure::queue::Life::Closed).await;
    }

    /// Creates a node.
    pub fn create(
        &self,
        path: &str,
        data: impl Into<Bytes>,
        lifetime: Lifetime,
        acl: &Arc<[Acl]>,
    ) -> Pending<(String, Stat)> {
        let (path, data, acl) = (path.to_owned(), data.into(), acl.clone());
        self.ask(Request::Create { path, data, lifetime, acl }, wire::created)
    }

    /// Deletes a node at this version, or at any version if `None`.
    pub fn delete(&self, path: &str, version: Option<i32>) -> Pending<()> {
        let (path, version) = (path.to_owned(), version.unwrap_or(-1));
        self.ask(Request::Delete { path, version }, |_| Ok(()))
    }

    /// Replaces the data of a node at this version, or at any version if `None`.
    pub fn set_data(
        &self,
        path: &str,
        data: impl Into<Bytes>,
        version: Option<i32>,
    ) -> Pending<Stat> {
        let (path, data, version) = (path.to_owned(), data.into(), version.unwrap_or(-1));
        self.ask(Request::SetData { path, data, version }, wire::stat)
    }

    /// Reads a node's [`Stat`].
    pub fn exists(&self, path: &str) -> Pending<Stat> {
        self.ask(Request::Exists { path: path.into(), watch: false }, wire::stat)
    }

    /// Reads a node.
    pub fn data(&self, path: &str) -> Pending<(Vec<u8>, Stat)> {
        self.ask(Request::Data { path: path.into(), watch: false }, wire::data)
    }

    /// Reads many nodes at once, from a server that [`reads_many`](Client::reads_many).
    pub(super) fn many_data(&self, paths: Vec<String>, barrier: bool) -> Pending<Vec<Found>> {
        self.ask_behind(Request::ManyData(paths), wire::many_data, barrier)
    }

    /// Reads a node after a write that a quorum takes.
    pub(super) fn proven_data(&self, path: &str) -> Pending<(Vec<u8>, Stat)> {
        self.ask_behind(Request::Data { path: path.into(), watch: false }, wire::data, true)
    }

    /// Returns true if the server may be asked for many nodes at once.
    pub(super) fn reads_many(&self) -> bool {
        self.owner.shared.lock().reads_many()
    }

    /// Lists the names of a node's children, with the node's own [`Stat`].
    pub fn children(&self, path: &str) -> Pending<(Vec<String>, Stat)> {
        self.ask(Request::Children { path: path.into(), watch: false }, wire::children)
    }

    /// Lets the server catch up with its leader.
    pub fn sync(&self, path: &str) -> Pending<()> {
        self.ask(Request::Sync { path: path.into() }, |_| Ok(()))
    }

    pub(super) fn transaction(
        &self,
        parts: Vec<Request>,
    ) -> Pending<Result<Results, (usize, wire::Code)>> {
        self.ask(Request::Multi(parts), wire::results)
    }

    pub(super) fn ask<T>(&self, request: Request, read: pending::Read<T>) -> Pending<T> {
        self.ask_behind(request, read, false)
    }

    /// Sends a request, behind a write that a quorum takes if `barrier` is set.
    ///
    /// Concurrent callers share that write.
    fn ask_behind<T>(&self, request: Request, read: pending::Read<T>, barrier: bool) -> Pending<T> {
        let shared = &self.owner.shared;
        let answer = shared.lock().ask(request, barrier);
        shared.work.notify_one();
        Pending::new(answer, read)
    }

    /// Reads the candidates of a queue, and the data of the election's own node.
    ///
    /// If `barrier` is set, both are read behind a write that a quorum takes.
    pub(super) fn list(&self, root: &Arc<str>, barrier: bool) -> [oneshot::Receiver<Outcome>; 2] {
        let shared = &self.owner.shared;
        let answers = shared.lock().list(root.clone(), barrier);
        shared.work.notify_one();
        answers
    }

    /// Creates an entry of an election, and then reads the queue.
    ///
    /// Entries of different elections that are created at the same time share a transaction.
    pub(super) fn join(
        &self,
        root: &Arc<str>,
        entry: Request,
    ) -> (oneshot::Receiver<Result<Made, Error>>, [oneshot::Receiver<Outcome>; 2]) {
        let (reply, made) = oneshot::channel();
        let shared = &self.owner.shared;
        let mut state = shared.lock();
        state.join(Join { root: root.clone(), entry, alone: false, reply });
        // Entries are sent before all other requests, so the list shows this one.
        let answers = state.list(root.clone(), false);
        drop(state);
        shared.work.notify_one();
        (made, answers)
    }

    /// Sends a request that sets a watch on a node.
    pub(super) fn watch<T>(
        &self,
        request: Request,
        read: pending::Read<T>,
    ) -> (Pending<T>, Watching) {
        let watching = self.owner.shared.lock().watches.begin(&request);
        (self.ask(request, read), watching)
    }

    /// Confirms that the caller has checked the answer that came with this watch.
    pub(super) fn confirm(&self, path: &str, watching: &Watching) {
        self.owner.shared.lock().watches.confirm(path, watching.id);
    }

    /// Returns true if a confirmed watch on a node has reported nothing so far.
    pub(super) fn is_unchanged(&self, path: &str) -> bool {
        self.owner.shared.lock().watches.is_unchanged(path)
    }

    /// Returns true if an entry is one of this session's own.
    pub(super) fn owns(&self, entry: &str) -> bool {
        self.owner.shared.lock().owns(entry)
    }

    /// Ends the connection with this count, if it is still the current one.
    pub(super) fn give_up(&self, connection: u64) {
        let shared = &self.owner.shared;
        shared.lock().give_up(connection);
        shared.work.notify_one();
    }

    /// The count of the current connection.
    pub(super) fn connection(&self) -> u64 {
        self.owner.shared.session.borrow().connection
    }

    pub(super) fn is_up(&self) -> bool {
        self.owner.shared.lock().is_up()
    }

    /// Counts one more user that leads, or one fewer.
    pub(super) fn leads(&self, leads: bool) {
        let shared = &self.owner.shared;
        shared.lock().leads(leads);
        shared.work.notify_one();
    }

    /// Records that an entry of this session stands, or no longer does.
    ///
    /// While one stands, dropping the client does not close the session.
    pub(super) fn stands(&self, entry: &str, stands: bool) {
        self.owner.shared.lock().stands(entry, stands);
    }

    /// The reason why there is no connection.
    pub(super) fn trouble(&self) -> Option<Error> {
        self.owner.shared.lock().trouble.clone()
    }
}

impl Shared {
    fn close(&self) {
        self.lock().closing = true;
        self.work.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code under this lock panics between two changes that belong together.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.lock().abandoned = true;
        self.shared.close();
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("session", &*self.owner.shared.session.borrow()).finish()
    }
}

#[cfg(test)]
mod tests {
    use tenure::queue::Life;

    use super::*;

    #[tokio::test]
    async fn an_ended_connection_is_none_before_its_end_was_told_too() {
        let mut state = State::new(Duration::from_secs(10));
        let told = state.session(|proof| Life::Live { proof });
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            work: Notify::new(),
            session: watch::Sender::new(told),
            clock: system_clock(),
        });
        let client = Client { owner: Arc::new(Owner { shared }) };
        assert!(client.session().borrow().is_live());
        assert_eq!(client.connected_by(Instant::now()).await, Err(Error::Unsent));
    }
}
