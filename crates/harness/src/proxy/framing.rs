use super::Direction;

/// How messages are delimited, so that they can be counted, matched and lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Not at all: bytes that happen to arrive together are a message.
    Raw,
    /// ZooKeeper's: a length of four bytes in front. An answer has the number of its request.
    Zookeeper,
    /// RethinkDB's: a handshake of texts that end with NUL, then messages. Each has a token and a
    /// length in front.
    Rethinkdb,
    /// Frames of HTTP/2, which gRPC uses, and so etcd. An answer is on the stream of its request.
    Http2,
    /// MongoDB's: a length of four bytes in front, least byte first. An answer names the number of
    /// its request.
    Mongodb,
}

/// The end of the first message in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// More bytes are needed to know.
    Unknown,
    /// After this many bytes, which may not have arrived yet.
    Bytes(usize),
    /// Another protocol: the rest of the connection is forwarded as it comes.
    Unframed,
}

/// The longest message. Longer ones mean another protocol, such as ZooKeeper's four-letter words or
/// HTTP/1.
const LONGEST: usize = 4 << 20;
/// The bytes that an HTTP/2 client sends before its first frame.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HTTP2_HEAD: usize = 9;
/// A RethinkDB client's first bytes.
const RETHINKDB_VERSION: [u8; 4] = [0xc3, 0xbd, 0xc2, 0x34];
const RETHINKDB_HEAD: usize = 12;
const MONGODB_HEAD: usize = 16;

impl Framing {
    /// The end of the message at the start of `buffer`.
    ///
    /// `first` is true for the connection's first message that way.
    pub(super) fn extent(self, direction: Direction, first: bool, buffer: &[u8]) -> Extent {
        match self {
            Framing::Raw => Extent::Unframed,
            Framing::Zookeeper => match buffer.first_chunk::<4>() {
                Some(length) => bounded(4 + u32::from_be_bytes(*length) as usize),
                None => Extent::Unknown,
            },
            Framing::Rethinkdb if first && direction == Direction::ToServer => {
                let known = buffer.len().min(RETHINKDB_VERSION.len());
                match buffer[..known] == RETHINKDB_VERSION[..known] {
                    true => Extent::Bytes(RETHINKDB_VERSION.len()),
                    false => Extent::Unframed,
                }
            }
            Framing::Rethinkdb => rethinkdb(buffer),
            Framing::Mongodb => match buffer.first_chunk::<4>() {
                Some(length) => bounded((u32::from_le_bytes(*length) as usize).max(MONGODB_HEAD)),
                None => Extent::Unknown,
            },
            Framing::Http2 if first && direction == Direction::ToServer => preface(buffer),
            Framing::Http2 => match buffer.first_chunk::<3>() {
                Some([a, b, c]) => {
                    bounded(HTTP2_HEAD + u32::from_be_bytes([0, *a, *b, *c]) as usize)
                }
                None => Extent::Unknown,
            },
        }
    }

    /// Returns true if `answer` is the server's answer to `request`.
    pub(super) fn answers(self, request: &[u8], answer: &[u8]) -> bool {
        match self {
            Framing::Raw => true,
            Framing::Zookeeper => request.get(4..8) == answer.get(4..8),
            Framing::Rethinkdb => request.get(..8) == answer.get(..8),
            Framing::Mongodb => request.get(4..8) == answer.get(8..12),
            Framing::Http2 => {
                // A window update on the stream comes before the server has acted.
                let says = matches!(answer.get(3), Some(0 | 1));
                says && request.get(5..9) == answer.get(5..9)
            }
        }
    }
}

fn rethinkdb(buffer: &[u8]) -> Extent {
    // The texts of the handshake are JSON objects. No token grows so large that it looks like the
    // start of one.
    match buffer {
        [b'{', b'"', b' '..=b'~', ..] => match buffer.iter().position(|byte| *byte == 0) {
            Some(end) => bounded(end + 1),
            None => Extent::Unknown,
        },
        [_, _, _, _, _, _, _, _, a, b, c, d, ..] => {
            bounded(RETHINKDB_HEAD + u32::from_le_bytes([*a, *b, *c, *d]) as usize)
        }
        _ => Extent::Unknown,
    }
}

fn bounded(length: usize) -> Extent {
    if length > LONGEST { Extent::Unframed } else { Extent::Bytes(length) }
}

fn preface(buffer: &[u8]) -> Extent {
    let known = buffer.len().min(PREFACE.len());
    if buffer[..known] != PREFACE[..known] {
        Extent::Unframed
    } else {
        Extent::Bytes(PREFACE.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Direction::{ToClient, ToServer};

    #[test]
    fn a_zookeeper_message_ends_where_its_length_says() {
        assert_eq!(Framing::Zookeeper.extent(ToServer, true, &[0, 0, 0]), Extent::Unknown);
        assert_eq!(Framing::Zookeeper.extent(ToServer, true, &[0, 0, 1, 2, 7]), Extent::Bytes(262));
    }

    #[test]
    fn four_letter_words_and_their_answers_are_unframed() {
        assert_eq!(Framing::Zookeeper.extent(ToServer, true, b"srvr"), Extent::Unframed);
        assert_eq!(Framing::Zookeeper.extent(ToClient, true, b"Zook"), Extent::Unframed);
    }

    #[test]
    fn http2_starts_with_its_preface_and_goes_on_in_frames() {
        assert_eq!(Framing::Http2.extent(ToServer, true, b"PRI"), Extent::Bytes(24));
        assert_eq!(Framing::Http2.extent(ToServer, false, &[0, 0, 5]), Extent::Bytes(14));
        assert_eq!(Framing::Http2.extent(ToClient, true, &[0, 0, 5, 4]), Extent::Bytes(14));
    }

    #[test]
    fn http1_is_unframed_both_ways() {
        assert_eq!(Framing::Http2.extent(ToServer, true, b"POST"), Extent::Unframed);
        assert_eq!(Framing::Http2.extent(ToClient, true, b"HTTP"), Extent::Unframed);
    }

    #[test]
    fn rethinkdbs_handshake_and_messages_are_told_apart() {
        let framing = Framing::Rethinkdb;
        assert_eq!(framing.extent(ToServer, true, &[0xc3, 0xbd]), Extent::Bytes(4));
        assert_eq!(framing.extent(ToServer, true, b"GET "), Extent::Unframed);
        assert_eq!(framing.extent(ToClient, true, b"{\"success\""), Extent::Unknown);
        assert_eq!(framing.extent(ToClient, true, b"{\"s\":1}\0{"), Extent::Bytes(8));
        let message = [b'{', 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, b'['];
        assert_eq!(framing.extent(ToServer, false, &message), Extent::Bytes(12 + 258));
        assert_eq!(framing.extent(ToServer, false, &message[..11]), Extent::Unknown);
        assert!(framing.answers(&message, &message[..12]));
        assert!(!framing.answers(&message, &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
    }

    #[test]
    fn a_mongodb_message_ends_where_its_length_says() {
        assert_eq!(Framing::Mongodb.extent(ToServer, true, &[0, 1, 0]), Extent::Unknown);
        assert_eq!(Framing::Mongodb.extent(ToServer, true, &[6, 1, 0, 0, 7]), Extent::Bytes(262));
        // A TLS handshake begins like this.
        assert_eq!(Framing::Mongodb.extent(ToServer, true, &[22, 3, 1, 2]), Extent::Unframed);
    }

    #[test]
    fn an_answer_is_known_by_its_number_or_its_stream() {
        let request = [0, 0, 0, 8, 0, 0, 0, 7, 0, 0, 0, 1];
        assert!(Framing::Zookeeper.answers(&request, &[0, 0, 0, 4, 0, 0, 0, 7]));
        assert!(!Framing::Zookeeper.answers(&request, &[0, 0, 0, 4, 255, 255, 255, 255]));
        let request = [16, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0];
        assert!(Framing::Mongodb.answers(&request, &[16, 0, 0, 0, 5, 0, 0, 0, 9, 0, 0, 0]));
        assert!(!Framing::Mongodb.answers(&request, &[16, 0, 0, 0, 9, 0, 0, 0, 5, 0, 0, 0]));
        let request = [0, 0, 0, 0, 1, 0, 0, 0, 3];
        assert!(Framing::Http2.answers(&request, &[0, 0, 0, 1, 4, 0, 0, 0, 3]));
        assert!(!Framing::Http2.answers(&request, &[0, 0, 0, 1, 4, 0, 0, 0, 5]));
        assert!(!Framing::Http2.answers(&request, &[0, 0, 0, 8, 0, 0, 0, 0, 3]));
    }
}
