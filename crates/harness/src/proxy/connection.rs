use super::Direction::{self, ToClient, ToServer};
use super::Framing;
use super::count::Record;
use super::pump::Pump;
use super::rules::Rules;
use super::shared::Shared;
use super::trap::Verdict;
use bytes::Bytes;
use std::future::pending;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::watch;

const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Both ends see a close, after all forwarded bytes.
    Closed,
    /// Both ends see a reset, as if the other had crashed.
    Reset,
}

/// The state that both directions of a connection share.
#[derive(Debug)]
pub(super) struct Link {
    shared: Arc<Shared>,
    record: Arc<Record>,
    /// The request with the answer to lose.
    awaited: Mutex<Option<Bytes>>,
}

impl Link {
    /// Decides about a message. `framing` is the framing found on its connection.
    pub(super) fn judge(&self, direction: Direction, framing: Framing, message: &Bytes) -> Verdict {
        let mut trap = self.shared.trap();
        let mut awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        let answered = match direction {
            ToServer => {
                if trap.springs(message) {
                    *awaited = Some(message.clone());
                }
                false
            }
            ToClient => awaited.as_ref().is_some_and(|request| framing.answers(request, message)),
        };
        trap.judge(direction, message.len(), answered)
    }

    pub(super) fn forwarding(&self, direction: Direction, bytes: &[u8]) {
        self.shared.forwarding(&self.record, direction, bytes);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.record.close();
    }
}

/// Serves one client until either end, or a rule, ends its connection.
pub(super) async fn serve(
    shared: Arc<Shared>,
    record: Arc<Record>,
    mut client: TcpStream,
    rules: watch::Receiver<Rules>,
    accepted_at: u64,
) {
    let link = Link { shared, record, awaited: Mutex::new(None) };
    let reached = tokio::select! {
        biased;
        () = ended(rules.clone(), accepted_at) => None,
        reached = reach(&link, rules.clone()) => reached,
    };
    let Some(mut server) = reached else {
        let _ = client.set_zero_linger();
        return;
    };
    let ending = tokio::select! {
        biased;
        () = ended(rules.clone(), accepted_at) => Ending::Reset,
        ending = exchange(&link, &mut client, &mut server, &rules) => ending,
    };
    if ending == Ending::Reset {
        let _ = client.set_zero_linger();
        let _ = server.set_zero_linger();
    }
}

/// Returns when the rules end connections of this age.
async fn ended(mut rules: watch::Receiver<Rules>, accepted_at: u64) {
    let over = rules.wait_for(|rules| rules.cut || rules.severed > accepted_at).await.is_ok();
    if !over {
        // The proxy is being dropped, and this future with it.
        pending().await
    }
}

/// Connects to the server; none if the client should see that the server is down.
async fn reach(link: &Link, mut rules: watch::Receiver<Rules>) -> Option<TcpStream> {
    if let Ok(server) = connect(link).await {
        return Some(server);
    }
    // A client behind a dead link must not learn it.
    let _ = rules.wait_for(|rules| !rules.flow(ToClient).held).await;
    None
}

async fn exchange(
    link: &Link,
    client: &mut TcpStream,
    server: &mut TcpStream,
    rules: &watch::Receiver<Rules>,
) -> Ending {
    let _ = client.set_nodelay(true);
    let framing = link.shared.framing;
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let upward = Pump::new(link, ToServer, framing, from_client, to_server);
    let downward = Pump::new(link, ToClient, framing, from_server, to_client);
    match tokio::try_join!(upward.run(rules.clone()), downward.run(rules.clone())) {
        Ok(((), ())) => Ending::Closed,
        Err(ending) => ending,
    }
}

async fn connect(link: &Link) -> io::Result<TcpStream> {
    let connect = TcpStream::connect(link.shared.target);
    let server = tokio::time::timeout(CONNECT_WITHIN, connect).await??;
    server.set_nodelay(true)?;
    Ok(server)
}
