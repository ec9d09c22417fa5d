//! Sends lines and descriptors over a socket.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The most descriptors one message carries: three streams and a file.
const MOST_DESCRIPTORS: usize = 4;
/// The longest line. Ours are shorter: a few short variables and an item of 16 KiB at most.
const MOST_LINE: usize = 64 * 1024;

/// Sends one message without waiting: a peer that does not read promptly hangs.
///
/// # Errors
/// `WouldBlock` if the peer hangs, `BrokenPipe` if it is dead.
pub(super) fn send(
    socket: BorrowedFd<'_>,
    message: &impl Serialize,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("too many descriptors for one message"));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let sent = sendmsg(socket, &[IoSlice::new(&line)], &mut control, flags)?;
    if sent < line.len() {
        // Half a line cannot be completed later; the peer has stopped reading long ago.
        return Err(io::ErrorKind::WouldBlock.into());
    }
    Ok(())
}

/// Bytes and descriptors that were received, but not taken yet.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
    descriptors: VecDeque<OwnedFd>,
}

impl Inbox {
    /// Receives the bytes that are there; `false` at the end of the stream.
    ///
    /// # Errors
    /// `WouldBlock` when nothing is there now.
    pub(super) fn fill(&mut self, socket: impl AsFd) -> io::Result<bool> {
        let mut chunk = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received =
            match recvmsg(socket, &mut [IoSliceMut::new(&mut chunk)], &mut control, flags) {
                Ok(message) => message.bytes,
                // If messages of ours are unread, the peer's death shows as a reset.
                Err(Errno::CONNRESET) => 0,
                Err(error) => return Err(error.into()),
            };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.descriptors.extend(descriptors);
            }
        }
        if self.bytes.len() + received > MOST_LINE {
            return Err(io::Error::other("the line is too long to be ours"));
        }
        self.bytes.extend_from_slice(&chunk[..received]);
        Ok(received > 0)
    }

    /// Takes the next whole message.
    ///
    /// # Errors
    /// When the line is not a message.
    pub(super) fn take<M: DeserializeOwned>(&mut self) -> io::Result<Option<M>> {
        let Some(end) = self.bytes.iter().position(|byte| *byte == b'\n') else {
            return Ok(None);
        };
        let line: Vec<u8> = self.bytes.drain(..=end).collect();
        Ok(Some(serde_json::from_slice(&line)?))
    }

    /// Takes the next descriptor that came.
    pub(super) fn take_descriptor(&mut self) -> Option<OwnedFd> {
        self.descriptors.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervise::message::Order;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_message_arrives_with_its_descriptors() {
        let (here, there) = UnixStream::pair().expect("a pair");
        let (other, _keep) = UnixStream::pair().expect("a pair");
        send(here.as_fd(), &Order::Watch { presence: false }, &[other.as_fd()]).expect("sent");
        send(here.as_fd(), &Order::Signal(15), &[]).expect("sent");
        let mut inbox = Inbox::default();
        assert!(inbox.fill(&there).expect("read"));
        assert!(matches!(inbox.take(), Ok(Some(Order::Watch { presence: false }))));
        assert!(inbox.take_descriptor().is_some());
        while !matches!(inbox.take(), Ok(Some(Order::Signal(15)))) {
            assert!(inbox.fill(&there).expect("read"));
        }
        assert!(inbox.take_descriptor().is_none());
        drop(here);
        assert!(!inbox.fill(&there).expect("read"));
    }

    #[test]
    fn a_peer_that_does_not_read_is_noticed() {
        let (here, _there) = UnixStream::pair().expect("a pair");
        let error = (0..1_000_000)
            .find_map(|_| send(here.as_fd(), &Order::Proceed, &[]).err())
            .expect("the buffer is finite");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
