//! Serves a bounded number of connections at once, in total and for each peer.

use std::collections::HashMap;
use std::future::Future;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::input::InputError;

/// The pause after an error that the next attempt would meet too. An example is that no descriptors
/// are free.
const PAUSE: Duration = Duration::from_millis(500);

/// How many connections a listener has at once, and how long they may take.
///
/// The limits keep one client from shutting others out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most connections at once: 512. More wait in the queue of the system.
    pub connections: usize,
    /// The most connections of one peer at once: 64. More are closed at once. A peer is an IPv4
    /// address, or an IPv6 network of 64 bits.
    pub per_peer: usize,
    /// How long a connection may be open while nothing arrives: 10 minutes. For HTTP the smaller of
    /// this and `slow` counts.
    pub idle: Duration,
    /// How long the rest of a line may take after its first byte: 30 seconds. The head and the body
    /// of a request may take as long each.
    pub slow: Duration,
    /// How long an HTTP connection may serve one request after the other: 10 minutes. The next
    /// request needs a new connection.
    pub lasting: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 512,
            per_peer: 64,
            idle: Duration::from_secs(600),
            slow: Duration::from_secs(30),
            lasting: Duration::from_secs(600),
        }
    }
}

/// Serves every client that connects. Dropping the future ends all connections.
pub(crate) async fn accept<S>(
    listener: &std::net::TcpListener,
    limits: Limits,
    serve: impl Fn(TcpStream, SocketAddr) -> S,
) -> Result<(), InputError>
where
    S: Future<Output = ()> + Send + 'static,
{
    // A clone, so that the input can be started again without giving up the port.
    let listener = listener
        .try_clone()
        .and_then(TcpListener::from_std)
        .map_err(|error| InputError::new("listening", &error))?;
    let (mut connections, peers) = (JoinSet::new(), Arc::<Peers>::default());
    loop {
        tokio::select! {
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < limits.connections.max(1) => match accepted {
                Ok((stream, peer)) => {
                    // Without a place the connection is closed at once.
                    if let Some(place) = peers.admit(peer.ip(), limits.per_peer.max(1)) {
                        let served = serve(stream, peer);
                        connections.spawn(async move {
                            served.await;
                            drop(place);
                        });
                    }
                }
                // That connection is gone, so there is nothing to wait for.
                Err(error) if is_about_one_connection(error.kind()) => {}
                Err(error) => {
                    tracing::warn!(%error, "accepting a connection");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}

fn is_about_one_connection(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset)
}

/// The number of connections of each peer.
#[derive(Debug, Default)]
struct Peers(Mutex<HashMap<IpAddr, Connections>>);

#[derive(Debug, Default)]
struct Connections {
    count: usize,
    /// True after a warning that this peer has too many. It is repeated only after the peer had
    /// none.
    told: bool,
}

/// The place of one connection, released when this is dropped.
#[derive(Debug)]
struct Place {
    peers: Arc<Peers>,
    peer: IpAddr,
}

impl Peers {
    fn admit(self: &Arc<Peers>, address: IpAddr, most: usize) -> Option<Place> {
        let peer = network(address);
        let mut peers = self.lock();
        let connections = peers.entry(peer).or_default();
        if connections.count >= most {
            if !std::mem::replace(&mut connections.told, true) {
                tracing::warn!(%peer, "more than {most} connections of one peer: the others are closed");
            }
            return None;
        }
        connections.count += 1;
        Some(Place { peers: Arc::clone(self), peer })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Connections>> {
        // Every change is one step: a panic leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut peers = self.peers.lock();
        if let Some(connections) = peers.get_mut(&self.peer) {
            connections.count -= 1;
            if connections.count == 0 {
                peers.remove(&self.peer);
            }
        }
    }
}

/// The address that stands for a peer: its IPv4 address, or its IPv6 network.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)))
        }
        address @ IpAddr::V4(_) => address,
    }
}

/// Binds a port, even before a runtime runs.
pub(crate) fn bind(
    address: impl std::net::ToSocketAddrs,
) -> std::io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_so_many_places_and_gets_them_back() {
        let peers = Arc::<Peers>::default();
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        let first = peers.admit(address("10.0.0.1"), 2).expect("a place");
        let _second = peers.admit(address("::ffff:10.0.0.1"), 2).expect("a place");
        assert!(peers.admit(address("10.0.0.1"), 2).is_none());
        assert!(peers.admit(address("10.0.0.2"), 2).is_some());
        drop(first);
        assert!(peers.admit(address("10.0.0.1"), 2).is_some());
        let _one = peers.admit(address("2001:db8::1"), 1).expect("a place");
        assert!(peers.admit(address("2001:db8::ffff:2"), 1).is_none(), "the same network");
        assert!(peers.admit(address("2001:db8:0:1::1"), 1).is_some());
    }
}
