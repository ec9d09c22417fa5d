use super::connection;
use super::count::Record;
use super::rules::Rules;
use super::shared::Shared;
use crate::Port;
use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How many connections are served at once. More of them wait to be accepted.
const MOST: usize = 10_000;

/// Accepts connections, and owns the tasks that serve them.
#[derive(Debug)]
pub(super) struct Acceptor {
    port: Port,
    shared: Arc<Shared>,
    rules: watch::Receiver<Rules>,
    applied: watch::Sender<u64>,
    connections: JoinSet<()>,
    accepted: u64,
    /// The count for new connections. It is behind the rules until they are applied.
    severed: u64,
}

impl Acceptor {
    pub(super) fn new(
        port: Port,
        shared: Arc<Shared>,
        rules: watch::Receiver<Rules>,
        applied: watch::Sender<u64>,
    ) -> Acceptor {
        Acceptor {
            port,
            shared,
            rules,
            applied,
            connections: JoinSet::new(),
            accepted: 0,
            severed: 0,
        }
    }

    /// Runs until the proxy is dropped; every connection ends with it.
    pub(super) async fn run(mut self, listener: std::net::TcpListener) {
        let mut listener = TcpListener::from_std(listener).ok();
        loop {
            let room = self.connections.len() < MOST;
            tokio::select! {
                biased;
                changed = self.rules.changed() => match changed {
                    Ok(()) => self.apply(&mut listener).await,
                    Err(_dropped) => return,
                },
                Some(_) = self.connections.join_next() => {}
                accepted = accept(listener.as_ref()), if room => match accepted {
                    Ok(client) => self.serve(client),
                    // Most likely out of descriptors; connections that end release some.
                    Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                },
            }
        }
    }

    async fn apply(&mut self, listener: &mut Option<TcpListener>) {
        let rules = *self.rules.borrow_and_update();
        if rules.cut {
            *listener = None;
        } else if listener.is_none() {
            // The port stayed claimed, so only a foreign program can have taken it; later changes
            // try again.
            *listener = TcpListener::bind(self.port.address()).await.ok();
        }
        if rules.cut || rules.severed > self.severed {
            // Each connection sees the same rule and ends at once. The change is applied when all
            // have ended.
            while self.connections.join_next().await.is_some() {}
            self.severed = rules.severed;
        }
        self.applied.send_replace(rules.generation);
    }

    fn serve(&mut self, client: TcpStream) {
        let Ok(address) = client.peer_addr() else { return };
        let record = Arc::new(Record::new(self.accepted, address));
        self.accepted += 1;
        self.shared.remember(Arc::clone(&record));
        let severed = self.severed;
        let (shared, rules) = (Arc::clone(&self.shared), self.rules.clone());
        self.connections.spawn(connection::serve(shared, record, client, rules, severed));
    }
}

async fn accept(listener: Option<&TcpListener>) -> io::Result<TcpStream> {
    match listener {
        Some(listener) => listener.accept().await.map(|(client, _)| client),
        None => pending().await,
    }
}
