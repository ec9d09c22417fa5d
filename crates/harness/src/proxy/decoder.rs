use super::framing::Extent;
use super::{Direction, Framing};
use bytes::{Bytes, BytesMut};

/// Cuts the bytes of one direction of a connection into messages.
#[derive(Debug)]
pub(super) struct Decoder {
    /// Becomes raw when the connection turns out to have another protocol.
    pub(super) framing: Framing,
    direction: Direction,
    first: bool,
    pub(super) buffer: BytesMut,
}

impl Decoder {
    pub(super) fn new(framing: Framing, direction: Direction) -> Decoder {
        Decoder { framing, direction, first: true, buffer: BytesMut::new() }
    }

    /// The next whole message, if it has arrived.
    pub(super) fn next(&mut self) -> Option<Bytes> {
        if self.buffer.is_empty() {
            return None;
        }
        let length = match self.framing.extent(self.direction, self.first, &self.buffer) {
            Extent::Unknown => return None,
            Extent::Bytes(length) if length > self.buffer.len() => return None,
            Extent::Bytes(length) => length,
            Extent::Unframed => {
                self.framing = Framing::Raw;
                self.buffer.len()
            }
        };
        self.first = false;
        Some(self.buffer.split_to(length).freeze())
    }

    /// The rest of the buffer at the end of the connection: part of a message.
    pub(super) fn rest(&mut self) -> Option<Bytes> {
        let rest = self.buffer.split().freeze();
        (!rest.is_empty()).then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoder(framing: Framing) -> Decoder {
        Decoder::new(framing, Direction::ToServer)
    }

    #[test]
    fn messages_that_come_in_pieces_and_together_are_told_apart() {
        let mut decoder = decoder(Framing::Zookeeper);
        decoder.buffer.extend_from_slice(&[0, 0, 0, 2, 1]);
        assert_eq!(decoder.next(), None);
        decoder.buffer.extend_from_slice(&[2, 0, 0, 0, 1, 3, 0]);
        assert_eq!(decoder.next().as_deref(), Some(&[0, 0, 0, 2, 1, 2][..]));
        assert_eq!(decoder.next().as_deref(), Some(&[0, 0, 0, 1, 3][..]));
        assert_eq!(decoder.next(), None);
        assert_eq!(decoder.rest().as_deref(), Some(&[0][..]));
    }

    #[test]
    fn a_connection_that_is_not_framed_passes_as_it_comes() {
        let mut decoder = decoder(Framing::Zookeeper);
        decoder.buffer.extend_from_slice(b"srvr");
        assert_eq!(decoder.next().as_deref(), Some(&b"srvr"[..]));
        decoder.buffer.extend_from_slice(b"\n");
        assert_eq!(decoder.next().as_deref(), Some(&b"\n"[..]));
    }
}
