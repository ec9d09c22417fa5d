//! An input of lines over TCP.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

use async_trait::async_trait;
use bytes::BytesMut;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::documents::{MAX_TASK_BYTES, Order};
use crate::input::{Emitter, InputError, Local, Template};
use crate::inputs::accept::{Limits, accept, bind};
use crate::inputs::delivery::deliver;
use crate::inputs::splitter::Splitter;

/// How many bytes are read at once, and so about how many are handed in at once.
const PIECE_BYTES: usize = 32 * 1024;

/// Listens on a TCP port; each line that arrives is a task.
///
/// Nothing is acknowledged: a sender that must know uses HTTP. While the store takes no tasks,
/// nothing is read, so that senders have to wait. Lines of more than 16 KiB are reported and left
/// out. Lines that were read but are not yet in the store when the node ends are lost.
///
/// A connection that is idle, or takes too long for a line, is closed, and a peer has a limited
/// number of them: [`Limits`].
#[derive(Debug)]
pub struct TcpLines {
    listener: std::net::TcpListener,
    template: Template,
    limits: Limits,
}

impl TcpLines {
    /// Listens on this address from now on. Each line is a task of this template.
    ///
    /// # Errors
    /// When the port cannot be bound.
    pub fn bind(address: impl ToSocketAddrs, template: Template) -> io::Result<TcpLines> {
        Ok(TcpLines { listener: bind(address)?, template, limits: Limits::default() })
    }

    /// Sets the limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> TcpLines {
        self.limits = limits;
        self
    }

    /// The address it listens on.
    ///
    /// # Errors
    /// When the system does not report it.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

#[async_trait]
impl Local for TcpLines {
    async fn run(&self, emitter: &Emitter) -> Result<(), InputError> {
        let limits = self.limits;
        accept(&self.listener, limits, |stream, peer| {
            let (emitter, template) = (emitter.clone(), self.template.clone());
            async move {
                let mut connection = Connection::new(peer, template, limits);
                if let Err(error) = connection.serve(stream, &emitter).await {
                    tracing::info!(%peer, %error, "a connection ended");
                }
            }
        })
        .await
    }
}

struct Connection {
    peer: SocketAddr,
    template: Template,
    splitter: Splitter,
    count: u64,
    limits: Limits,
}

impl Connection {
    fn new(peer: SocketAddr, template: Template, limits: Limits) -> Connection {
        let splitter = Splitter::new(MAX_TASK_BYTES);
        Connection { peer, template, splitter, count: 0, limits }
    }

    async fn serve(&mut self, mut stream: TcpStream, emitter: &Emitter) -> io::Result<()> {
        let mut piece = BytesMut::with_capacity(PIECE_BYTES);
        // When the unfinished line began.
        let mut begun: Option<Instant> = None;
        loop {
            piece.clear();
            let within = match begun {
                Some(begun) => self.limits.slow.saturating_sub(begun.elapsed()),
                None => self.limits.idle,
            };
            let Ok(read) = timeout(within, stream.read_buf(&mut piece)).await else {
                let says = if begun.is_some() { "a line took too long" } else { "it was idle" };
                return Err(io::Error::new(io::ErrorKind::TimedOut, says));
            };
            let (mut lines, too_long) = (Vec::new(), self.splitter.too_long());
            match &read {
                Ok(0) => self.splitter.finish(&mut lines),
                Ok(_) => self.splitter.push(&piece, &mut lines),
                // An unfinished line that was cut off may not be whole.
                Err(_) => {}
            }
            if self.splitter.too_long() > too_long {
                let (peer, most) = (self.peer, MAX_TASK_BYTES);
                tracing::warn!(%peer, "a line of more than {most} bytes is left out");
            }
            let orders: Vec<Order> = lines.into_iter().map(|line| self.order(line)).collect();
            let ended = self.splitter.too_long() > too_long || !orders.is_empty();
            deliver(emitter, orders).await;
            // While the store takes nothing we read nothing, which must not count against the
            // sender.
            begun = match begun.filter(|_| !ended) {
                _ if !self.splitter.is_within_line() => None,
                Some(begun) => Some(begun),
                None => Some(Instant::now()),
            };
            if read? == 0 {
                return Ok(());
            }
        }
    }

    fn order(&mut self, line: bytes::Bytes) -> Order {
        self.count += 1;
        self.template.order(format!("{}:{}", self.peer, self.count), line)
    }
}
