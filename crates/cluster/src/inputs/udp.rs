//! An input of datagrams over UDP.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::net::UdpSocket;

use crate::documents::{MAX_TASK_BYTES, Order};
use crate::input::{Emitter, InputError, Local, Template};
use crate::inputs::delivery::deliver;

/// The size of the receive buffer: the longest possible datagram.
const MOST_BYTES: usize = 64 * 1024;
/// The most datagrams that are handed in at once.
const MOST_AT_ONCE: usize = 256;

/// Listens on a UDP port; each datagram that arrives is a task.
///
/// Nothing is acknowledged. While the store takes no tasks, the system drops datagrams once its
/// buffer is full. Datagrams of more than 16 KiB are reported and left out; empty ones are left
/// out.
#[derive(Debug)]
pub struct UdpDatagrams {
    socket: std::net::UdpSocket,
    template: Template,
}

impl UdpDatagrams {
    /// Listens on this address from now on. Each datagram is a task of this template.
    ///
    /// # Errors
    /// When the port cannot be bound.
    pub fn bind(address: impl ToSocketAddrs, template: Template) -> io::Result<UdpDatagrams> {
        let socket = std::net::UdpSocket::bind(address)?;
        socket.set_nonblocking(true)?;
        Ok(UdpDatagrams { socket, template })
    }

    /// The address it listens on.
    ///
    /// # Errors
    /// When the system does not report it.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn order(&self, number: u64, datagram: &[u8], peer: SocketAddr) -> Option<Order> {
        if datagram.len() > MAX_TASK_BYTES {
            tracing::warn!(%peer, "a datagram of {} bytes is left out", datagram.len());
            return None;
        }
        let item = Bytes::copy_from_slice(datagram);
        (!item.is_empty()).then(|| self.template.order(format!("{peer}:{number}"), item))
    }
}

#[async_trait]
impl Local for UdpDatagrams {
    async fn run(&self, emitter: &Emitter) -> Result<(), InputError> {
        let says = |error: io::Error| InputError::new("receiving datagrams", &error);
        // A clone, so that the input can be started again without giving up the port.
        let socket = self.socket.try_clone().and_then(UdpSocket::from_std).map_err(says)?;
        let (mut buffer, mut count) = (vec![0; MOST_BYTES], 0);
        loop {
            let mut orders = Vec::new();
            let (length, peer) = socket.recv_from(&mut buffer).await.map_err(says)?;
            count += 1;
            orders.extend(self.order(count, &buffer[..length], peer));
            while orders.len() < MOST_AT_ONCE
                && let Ok((length, peer)) = socket.try_recv_from(&mut buffer)
            {
                count += 1;
                orders.extend(self.order(count, &buffer[..length], peer));
            }
            deliver(emitter, orders).await;
        }
    }
}
