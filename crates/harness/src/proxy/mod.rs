//! A proxy in front of one server, which breaks connections on demand.

mod accept;
mod alarm;
mod connection;
mod count;
mod decoder;
mod framing;
mod pump;
mod queue;
mod rules;
mod shared;
mod trap;

pub use count::{Connection, Count};
pub use framing::Framing;

use crate::Port;
use rules::Rules;
use shared::Shared;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::watch;

/// The direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

/// A message on its way through the proxy, as the [`Framing`] delimits it.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The connection, numbered from 0 in the order they were accepted.
    pub connection: u64,
    /// The direction it goes.
    pub direction: Direction,
    /// All of its bytes, including the length in front.
    pub bytes: &'a [u8],
}

/// A proxy in front of one server, which breaks connections on demand.
///
/// It has a thread of its own: a busy test does not distort its delays, and everything it does ends
/// when it is dropped. Faults affect current and future connections, until [`heal`](Proxy::heal).
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    // None only in drop: closing the channel ends the thread.
    rules: Option<watch::Sender<Rules>>,
    applied: watch::Receiver<u64>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Listens on a free port and forwards each connection to `target`.
    ///
    /// The target need not be up.
    ///
    /// Fails when the system has no port or no thread left.
    pub fn start(target: SocketAddr, framing: Framing) -> io::Result<Proxy> {
        let port = Port::claim()?;
        let address = port.address();
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let shared = Arc::new(Shared::new(target, framing));
        let (rules, current) = watch::channel(Rules::default());
        let (acknowledge, applied) = watch::channel(0);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let acceptor = accept::Acceptor::new(port, Arc::clone(&shared), current, acknowledge);
        let thread =
            std::thread::Builder::new().name("tenure-proxy".to_owned()).spawn(move || {
                // On Linux this is the priority of this thread alone. Without the permission,
                // delays are less exact on a busy machine.
                let _ = rustix::process::setpriority_process(None, -10);
                runtime.block_on(acceptor.run(listener));
            })?;
        Ok(Proxy { address, shared, rules: Some(rules), applied, thread: Some(thread) })
    }

    /// The address for clients, instead of the server's.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Refuses connections and resets the current ones, like a host that is off.
    ///
    /// # Cancel safety
    /// It takes effect even if dropped. The wait is for tests that continue afterwards.
    pub async fn cut(&self) {
        self.change_and_wait(|rules| rules.cut = true).await;
    }

    /// Resets the current connections. New ones are served.
    ///
    /// # Cancel safety
    /// It takes effect even if dropped. The wait is for tests that continue afterwards.
    pub async fn sever(&self) {
        self.change_and_wait(|rules| rules.severed += 1).await;
    }

    /// Keeps connections open and accepts new ones, but forwards nothing that way.
    ///
    /// The connections are then half open. Nothing is lost, as in a network that drops packets for
    /// a while: after [`heal`](Proxy::heal) the bytes arrive, if both ends still keep the
    /// connection. If an end closes or resets the connection, that is held back together with its
    /// bytes.
    pub fn blackhole(&self, direction: Direction) {
        self.change(|rules| rules.flow_mut(direction).held = true);
    }

    /// Delays all bytes that way by `delay`, in order and with full throughput.
    pub fn delay(&self, direction: Direction, delay: Duration) {
        self.change(|rules| rules.flow_mut(direction).delay = delay);
    }

    /// Forwards `bytes` more bytes that way, and then closes a connection.
    ///
    /// The bytes of all connections count, and the connection of the last byte is closed. It
    /// happens once, and may be in the middle of a message.
    pub fn drop_after(&self, direction: Direction, bytes: u64) {
        self.shared.trap().drop_after = Some((direction, bytes));
    }

    /// Loses the answer to the next request that `matches`.
    ///
    /// The request reaches the server. The proxy swallows its answer and closes the connection, so
    /// the client does not know that the server acted on it. Messages that the server sent before
    /// the answer are forwarded. With [`Framing::Raw`] the bytes that happened to arrive together
    /// are a message, and the next ones are its answer. It happens once for each call;
    /// [`answers_lost`](Proxy::answers_lost) counts. `matches` runs on the proxy's thread and must
    /// not call the proxy.
    pub fn lose_answer_of(&self, matches: impl Fn(&[u8]) -> bool + Send + 'static) {
        self.shared.trap().requests.push(Box::new(matches));
    }

    /// Swallows each of the next `count` messages to clients.
    ///
    /// The connection of each of them is closed. A keep-alive's answer and a notification count,
    /// too.
    pub fn lose_answers(&self, count: u64) {
        self.shared.trap().answers = count;
    }

    /// The number of answers swallowed so far.
    pub fn answers_lost(&self) -> u64 {
        self.shared.trap().lost
    }

    /// Calls `look` with every message that is forwarded, in order.
    ///
    /// It replaces an earlier observer.
    ///
    /// It runs on the proxy's thread, so it should be quick.
    pub fn observe(&self, look: impl Fn(Message<'_>) + Send + Sync + 'static) {
        self.shared.observe(Arc::new(look));
    }

    /// The bytes and messages forwarded that way so far, over all connections.
    pub fn forwarded(&self, direction: Direction) -> Count {
        self.shared.total(direction)
    }

    /// The latest ten thousand connections, in order, with their counts.
    pub fn connections(&self) -> Vec<Connection> {
        self.shared.connections()
    }

    /// Ends every fault, including traps, and listens again.
    ///
    /// # Cancel safety
    /// It takes effect even if dropped. The wait is for tests that connect next.
    pub async fn heal(&self) {
        self.shared.trap().disarm();
        self.change_and_wait(Rules::heal).await;
    }

    async fn change_and_wait(&self, change: impl FnOnce(&mut Rules)) {
        let generation = self.change(change);
        let mut applied = self.applied.clone();
        applied
            .wait_for(|applied| *applied >= generation)
            .await
            .expect("the proxy's thread lives as long as the proxy");
    }

    fn change(&self, change: impl FnOnce(&mut Rules)) -> u64 {
        let rules = self.rules.as_ref().expect("it is taken in drop only");
        rules.send_modify(|rules| {
            change(rules);
            rules.generation += 1;
        });
        rules.borrow().generation
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.rules.take());
        if let Some(thread) = self.thread.take() {
            // An observer that panicked has reported it already.
            let _ = thread.join();
        }
    }
}
