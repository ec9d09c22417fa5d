//! Serves connections, a bounded number at once.

use std::future::Future;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use tenure::cluster::input::InputError;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// The most connections at once; more wait in the listener's own queue.
const MOST_CONNECTIONS: usize = 512;
/// After an error that the next attempt would meet too: no descriptors are left, for example.
const PAUSE: Duration = Duration::from_millis(500);

/// Serves whoever connects. Dropping it ends all connections.
pub(crate) async fn accept<S>(
    listener: &std::net::TcpListener,
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
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < MOST_CONNECTIONS => match accepted {
                Ok((stream, peer)) => {
                    connections.spawn(serve(stream, peer));
                }
                // That connection is gone; there is nothing to wait for.
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

/// Binds a port, for a runtime that may not run yet.
pub(crate) fn bind(
    address: impl std::net::ToSocketAddrs,
) -> std::io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
