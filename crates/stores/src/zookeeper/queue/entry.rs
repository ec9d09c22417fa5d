//! The data of an entry's node: plain text that other clients show.
//!
//! Without a value, it is the candidate's name. With a value, it is the value, followed by a line
//! with the name.

use std::sync::Arc;

use bytes::Bytes;
use tenure::protocol::Holder;
use tenure::{CandidateId, MAX_SEGMENT_BYTES, MAX_VALUE_BYTES};

/// Begins the line with the name.
const NAME: &str = "\ntenure-name: ";

pub(super) fn encode(name: &str, value: &[u8]) -> Bytes {
    if value.is_empty() {
        return Bytes::copy_from_slice(name.as_bytes());
    }
    [value, NAME.as_bytes(), name.as_bytes(), b"\n"].concat().into()
}

/// Parses the data of any client's entry. `node` is the name if the data has no better one.
pub(super) fn decode(id: CandidateId, node: &str, data: &[u8]) -> Holder {
    let (value, name) = match ours(data) {
        Some((value, name)) => (value, name),
        None => match std::str::from_utf8(data).ok().filter(|text| is_name(text)) {
            Some(text) => (&b""[..], text),
            None => (data, node),
        },
    };
    let value = Bytes::copy_from_slice(&value[..value.len().min(MAX_VALUE_BYTES)]);
    Holder { id, name: printable(name), value, presence: None }
}

fn ours(data: &[u8]) -> Option<(&[u8], &str)> {
    let data = data.strip_suffix(b"\n")?;
    let at = data.windows(NAME.len()).rposition(|window| window == NAME.as_bytes())?;
    let name = std::str::from_utf8(&data[at + NAME.len()..]).ok()?;
    is_name(name).then(|| (&data[..at], name))
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_SEGMENT_BYTES && !text.chars().any(char::is_control)
}

fn printable(name: &str) -> Arc<str> {
    name.chars()
        .filter(|character| !character.is_control())
        .take(MAX_SEGMENT_BYTES)
        .collect::<String>()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(data: &[u8]) -> (String, Bytes) {
        let holder = decode(CandidateId::from_bits(1), "node-1", data);
        (holder.name.to_string(), holder.value)
    }

    #[test]
    fn what_we_write_is_read_back() {
        for value in [&b""[..], b"10.0.0.7:80", b"a\nb", b"\xff\n", b"x\ntenure-name: y\n"] {
            let data = encode("host-a", value);
            assert!(value.is_empty() || data.starts_with(value));
            assert_eq!(read(&data), ("host-a".to_owned(), Bytes::copy_from_slice(value)));
        }
        assert_eq!(&encode("host-a", b"")[..], b"host-a");
    }

    #[test]
    fn what_others_write_has_some_name() {
        assert_eq!(read(b"10.0.0.7"), ("10.0.0.7".to_owned(), Bytes::new()));
        assert_eq!(read(b""), ("node-1".to_owned(), Bytes::new()));
        assert_eq!(read(b"\xff\0"), ("node-1".to_owned(), Bytes::from_static(b"\xff\0")));
        let long = vec![b'x'; 1 << 20];
        assert_eq!(read(&long).1.len(), MAX_VALUE_BYTES);
    }
}
