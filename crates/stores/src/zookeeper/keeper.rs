//! Keeps one connection, a new one whenever the last failed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;
use zookeeper_client::{Client, Error, SessionState};

use super::link::{Link, Plan};

/// The pause after an attempt that failed; it doubles up to the longest.
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The connection there is, for all who want to use it.
#[derive(Debug)]
pub(super) struct Connection {
    link: watch::Sender<Option<Arc<Link>>>,
    /// Why there is none.
    trouble: Mutex<Option<Error>>,
}

impl Connection {
    pub(super) fn new() -> Connection {
        Connection { link: watch::Sender::new(None), trouble: Mutex::default() }
    }

    pub(super) fn is_up(&self) -> bool {
        self.link.borrow().as_ref().is_some_and(|link| link.is_up())
    }

    /// Waits for a connection that works.
    pub(super) async fn link(&self) -> Arc<Link> {
        let mut links = self.link.subscribe();
        loop {
            let held = links.borrow_and_update().clone();
            if let Some(link) = held.filter(|link| link.is_up()) {
                return link;
            }
            if links.changed().await.is_err() {
                // The sender is this connection's own.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Why there is no connection, as far as anybody knows.
    pub(super) fn trouble(&self) -> Option<Error> {
        self.trouble_slot().clone()
    }

    /// Connects again and again, for as long as it is polled.
    pub(super) async fn keep(self: Arc<Connection>, plan: Plan) {
        let mut pause = SHORTEST_PAUSE;
        loop {
            match Link::connect(&plan).await {
                Ok(link) => {
                    pause = SHORTEST_PAUSE;
                    self.serve(Arc::new(link)).await;
                }
                Err(error) => {
                    tracing::debug!(%error, "zookeeper: no connection");
                    *self.trouble_slot() = Some(error);
                    sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// Follows a connection of the caller's, which connects again by itself until its session is over.
    pub(super) async fn follow(self: Arc<Connection>, client: Client) {
        let mut states = client.state_watcher();
        loop {
            match client.state() {
                SessionState::SyncConnected => {
                    self.serve(Arc::new(Link::borrowed(client.clone()))).await;
                    continue;
                }
                SessionState::Disconnected | SessionState::ConnectedReadOnly => {}
                state @ (SessionState::AuthFailed
                | SessionState::Expired
                | SessionState::Closed) => {
                    tracing::warn!(%state, "zookeeper: the program's own session is over");
                    *self.trouble_slot() = Some(Error::SessionExpired);
                    return;
                }
            }
            states.changed().await;
        }
    }

    async fn serve(&self, link: Arc<Link>) {
        self.link.send_replace(Some(link.clone()));
        link.lost().await;
        tracing::debug!("zookeeper: the connection is lost");
        self.link.send_replace(None);
        *self.trouble_slot() = Some(Error::ConnectionLoss);
        link.end();
    }

    fn trouble_slot(&self) -> MutexGuard<'_, Option<Error>> {
        // It is replaced whole: a panic leaves nothing half done.
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
