//! One connection, which ends for good when it fails.

use std::future::Future;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use spawns_core::{Spawn, Task};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use zookeeper_client::{Client, Error, SessionState};

/// A connection to a server. Once it fails it is never used again.
///
/// The client queues what is asked while it is disconnected and sends it later, even when nobody waits for the
/// answer any more. A write that was given up must not happen minutes later, so the client's tasks are ended with the
/// connection, and their queue with them.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) client: Client,
    tasks: Vec<AbortHandle>,
    gone: watch::Sender<bool>,
}

/// How to connect.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) hosts: String,
    /// User and password, as the digest scheme has them.
    pub(super) digest: Option<crate::servers::Secret>,
    pub(super) session: Duration,
    /// A server that does not answer for so long is given up.
    pub(super) patience: Duration,
}

impl Link {
    /// Connects to any of the servers, as a new session.
    pub(super) async fn connect(plan: &Plan) -> Result<Link, Error> {
        let mut connector = Client::connector()
            .with_session_timeout(plan.session)
            .with_connection_timeout(plan.patience)
            .with_fail_eagerly();
        if let Some(digest) = &plan.digest {
            connector = connector.with_auth("digest", digest.reveal().as_bytes());
        }
        let tasks = Tasks::default();
        let mut connecting = pin!(connector.connect(&plan.hosts));
        let connected = std::future::poll_fn(|context| {
            let _scope = spawns_core::enter(&tasks);
            connecting.as_mut().poll(context)
        })
        .await;
        let tasks = tasks.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        connected.map(|client| Link { client, tasks, gone: watch::Sender::new(false) })
    }

    /// A connection of the caller's, whose tasks are its own.
    pub(super) fn borrowed(client: Client) -> Link {
        Link { client, tasks: Vec::new(), gone: watch::Sender::new(false) }
    }

    pub(super) fn is_up(&self) -> bool {
        !*self.gone.borrow() && self.client.state() == SessionState::SyncConnected
    }

    /// Ends it; what was asked and not answered stays without an answer.
    pub(super) fn end(&self) {
        // In this order: whoever listens must not look at a client whose tasks are gone.
        self.gone.send_replace(true);
        self.tasks.iter().for_each(AbortHandle::abort);
    }

    /// Waits until it was ended.
    pub(super) async fn ended(&self) {
        let mut gone = self.gone.subscribe();
        // The sender is ours, so it lives as long as this wait.
        let _ = gone.wait_for(|gone| *gone).await;
    }

    /// Waits until it was ended or the client lost its connection.
    pub(super) async fn lost(&self) {
        let mut states = self.client.state_watcher();
        let disconnected = async {
            while self.client.state() == SessionState::SyncConnected {
                states.changed().await;
            }
        };
        tokio::select! {
            () = self.ended() => {}
            () = disconnected => {}
        }
    }
}

/// Remembers the tasks that the client starts while it connects.
#[derive(Debug, Default)]
struct Tasks(Mutex<Vec<AbortHandle>>);

impl Spawn for Tasks {
    fn spawn(&self, task: Task) {
        let handle = tokio::spawn(Box::into_pin(task.future)).abort_handle();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(handle);
    }
}
