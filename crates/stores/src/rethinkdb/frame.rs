//! Messages after the handshake: a token, a length, and JSON.

use bytes::{Buf as _, Bytes, BytesMut};

/// The size of a header: a token of eight bytes and a length of four, least byte first.
pub(super) const HEAD: usize = 12;
/// The largest message. No answer to our questions is larger.
pub(super) const LARGEST: usize = 64 * 1024 * 1024;

/// A message that is larger than [`LARGEST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message of {length} bytes")]
pub(super) struct TooLarge {
    pub(super) token: u64,
    pub(super) length: usize,
}

/// Encodes a question with its token.
pub(super) fn encode(token: u64, query: &[u8]) -> Result<Bytes, TooLarge> {
    let length = u32::try_from(query.len()).ok().filter(|_| query.len() <= LARGEST);
    let length = length.ok_or(TooLarge { token, length: query.len() })?;
    let mut message = BytesMut::with_capacity(HEAD + query.len());
    message.extend_from_slice(&token.to_le_bytes());
    message.extend_from_slice(&length.to_le_bytes());
    message.extend_from_slice(query);
    Ok(message.freeze())
}

/// Takes the first whole message out of the buffer.
pub(super) fn decode(buffer: &mut BytesMut) -> Result<Option<(u64, Bytes)>, TooLarge> {
    let Some(head) = buffer.first_chunk::<HEAD>() else { return Ok(None) };
    let mut head = &head[..];
    let (token, length) = (head.get_u64_le(), head.get_u32_le() as usize);
    if length > LARGEST {
        return Err(TooLarge { token, length });
    }
    if buffer.len() < HEAD + length {
        // Memory is reserved only as bytes arrive: an announced length alone costs us nothing.
        return Ok(None);
    }
    buffer.advance(HEAD);
    Ok(Some((token, buffer.split_to(length).freeze())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_message_is_its_token_its_length_and_its_text() {
        let message = encode(0x0102, b"[1]").expect("small");
        assert_eq!(&message[..], b"\x02\x01\0\0\0\0\0\0\x03\0\0\0[1]");
    }

    #[test]
    fn a_length_beyond_all_reason_is_refused_before_anything_is_reserved() {
        let mut buffer = BytesMut::from(&b"\x01\0\0\0\0\0\0\0\xff\xff\xff\xff"[..]);
        assert_eq!(decode(&mut buffer), Err(TooLarge { token: 1, length: 0xffff_ffff }));
    }

    proptest! {
        #[test]
        fn messages_in_any_pieces_are_the_messages_that_were_sent(
            messages in prop::collection::vec((any::<u64>(), prop::collection::vec(any::<u8>(), 0..50)), 0..8),
            piece in 1usize..40,
        ) {
            let mut wire = Vec::new();
            for (token, text) in &messages {
                wire.extend_from_slice(&encode(*token, text).expect("small"));
            }
            let (mut buffer, mut read) = (BytesMut::new(), Vec::new());
            for part in wire.chunks(piece) {
                buffer.extend_from_slice(part);
                while let Some((token, text)) = decode(&mut buffer).expect("small") {
                    read.push((token, text.to_vec()));
                }
            }
            prop_assert_eq!(read, messages);
            prop_assert!(buffer.is_empty());
        }

        #[test]
        fn no_bytes_panic_the_decoder(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut buffer = BytesMut::from(&bytes[..]);
            while let Ok(Some((_, text))) = decode(&mut buffer) {
                let _ = super::super::response::Response::parse(&text);
            }
        }
    }
}
