//! The records of a queue: the holder of an entry, the mark of an election, and the unclean tenure.
//!
//! All of them are untrusted when read. They are capped before they are parsed, and a record that
//! makes no sense counts as another client's.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tenure::protocol::Holder;
use tenure::queue::Ticket;
use tenure::{CandidateId, MAX_VALUE_BYTES};

use super::super::proto::KeyValue;

/// The maximum length of a record of ours.
const MOST_BYTES: usize = 4 * 1024;
/// The mark of an open election. A join compares it, so it is exactly these bytes.
pub(super) const OPEN: &[u8] = br#"{"state":"open"}"#;

/// The holder of an entry, as it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    id: String,
    /// The attempt to join that made the entry.
    attempt: u64,
    name: String,
    /// True if the entry's value is the published one; otherwise it is the name.
    published: bool,
}

/// The holder of an entry that one of our own clients made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EntryOwner {
    pub(super) ticket: Ticket,
    name: Arc<str>,
    published: bool,
}

/// The value of an entry: the candidate's published value, or else its name.
pub(super) fn entry_value(holder: &Holder) -> Bytes {
    if holder.value.is_empty() {
        Bytes::copy_from_slice(holder.name.as_bytes())
    } else {
        holder.value.clone()
    }
}

/// The record beside an entry.
pub(super) fn encode(holder: &Holder, attempt: u64) -> Bytes {
    let record = Record {
        id: holder.id.to_string(),
        attempt,
        name: holder.name.to_string(),
        published: !holder.value.is_empty(),
    };
    serde_json::to_vec(&record).expect("text and numbers are always JSON").into()
}

/// Parses a record; `None` if it is not one of ours.
pub(super) fn decode(body: &[u8]) -> Option<EntryOwner> {
    let record: Record = serde_json::from_slice(body.get(..body.len().min(MOST_BYTES))?).ok()?;
    let candidate = CandidateId::parse(&record.id).ok()?;
    // A name has the form of an id: one printable segment.
    let name = CandidateId::parse(&record.name).ok()?;
    Some(EntryOwner {
        ticket: Ticket { candidate, attempt: record.attempt },
        name: name.as_str().into(),
        published: record.published,
    })
}

/// The holder of an entry. For a candidate of another client, only the value is known.
pub(super) fn holder(entry: &KeyValue, stood: Option<&EntryOwner>) -> Arc<Holder> {
    let value = || entry.value.slice(..entry.value.len().min(MAX_VALUE_BYTES));
    let holder = match stood {
        Some(stood) => Holder {
            id: stood.ticket.candidate.clone(),
            name: stood.name.clone(),
            value: if stood.published { value() } else { Bytes::new() },
            presence: None,
        },
        None => {
            let suffix = entry.key.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            let id = text(suffix).unwrap_or_else(|| text(b"unnamed").expect("it is printable"));
            let name = text(&entry.value).unwrap_or_else(|| id.clone());
            Holder { name: name.as_str().into(), id, value: value(), presence: None }
        }
    };
    Arc::new(holder)
}

/// Parses one printable segment.
fn text(bytes: &[u8]) -> Option<CandidateId> {
    CandidateId::parse(std::str::from_utf8(bytes).ok()?).ok()
}

/// The state of an election's mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// There is no mark.
    Missing,
    /// The generation is the revision at which this mark was written. Revisions only rise, even
    /// across deletions.
    Open {
        generation: u64,
    },
    Ended {
        generation: u64,
    },
}

#[derive(Serialize, Deserialize)]
struct EndedRecord {
    state: String,
    generation: u64,
}

impl Mark {
    pub(super) fn read(found: Option<&KeyValue>) -> Mark {
        let Some(found) = found else { return Mark::Missing };
        let written = u64::try_from(found.mod_revision).unwrap_or(0);
        if found.value == OPEN {
            return Mark::Open { generation: written };
        }
        let body = found.value.get(..found.value.len().min(MOST_BYTES)).unwrap_or_default();
        let ended: Option<EndedRecord> = serde_json::from_slice(body).ok();
        // Any other content means not open, so no candidate joins: all generations until then are
        // over.
        let generation = ended.map_or(written, |ended| ended.generation.min(written));
        Mark::Ended { generation }
    }

    pub(super) fn ended(generation: u64) -> Bytes {
        let record = EndedRecord { state: "ended".into(), generation };
        serde_json::to_vec(&record).expect("text and numbers are always JSON").into()
    }
}

/// The record of a tenure that began and was not left cleanly.
pub(super) fn tenure(token: u64) -> Bytes {
    token.to_string().into()
}

pub(super) fn read_tenure(found: Option<&KeyValue>) -> Option<u64> {
    std::str::from_utf8(&found?.value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn someone(value: &'static str) -> Holder {
        Holder {
            id: CandidateId::from_bits(7),
            name: "host-a".into(),
            value: value.into(),
            presence: None,
        }
    }

    fn entry(value: &'static [u8]) -> KeyValue {
        let value = Bytes::from_static(value);
        KeyValue { key: "p/a/694d8f".into(), value, ..KeyValue::default() }
    }

    #[test]
    fn a_record_is_as_documented() {
        let body = encode(&someone("x"), 2);
        let documented = r#"{"id":"00000000000000000000000000000007","attempt":2,"name":"host-a","published":true}"#;
        assert_eq!(body, documented.as_bytes());
        let stood = decode(&body).expect("it was just written");
        assert_eq!(stood.ticket.attempt, 2);
        assert_eq!(*holder(&entry(b"x"), Some(&stood)), someone("x"));
        assert!(include_str!("../../../../../docs/keys.md").contains(documented));
    }

    #[test]
    fn without_a_value_the_entry_shows_the_name() {
        let stood = decode(&encode(&someone(""), 1)).expect("it was just written");
        assert_eq!(entry_value(&someone("")), "host-a");
        assert_eq!(*holder(&entry(b"host-a"), Some(&stood)), someone(""));
    }

    #[test]
    fn others_show_with_what_their_value_says() {
        let seen = holder(&entry(b"p1"), None);
        assert_eq!((seen.id.as_str(), &*seen.name, &seen.value[..]), ("694d8f", "p1", &b"p1"[..]));
        assert_eq!(&*holder(&entry(b""), None).name, "694d8f", "as `etcdctl lock` writes it");
        assert_eq!(&*holder(&entry(b"\xff\n"), None).name, "694d8f");
        assert_eq!(decode(b"{}"), None);
        assert_eq!(decode(b"\xff"), None);
    }

    #[test]
    fn a_mark_tells_its_generation() {
        let mark = |value: Bytes| KeyValue { value, mod_revision: 9, ..KeyValue::default() };
        let read = |value: Bytes| Mark::read(Some(&mark(value)));
        assert_eq!(Mark::read(None), Mark::Missing);
        assert_eq!(read(Bytes::from_static(OPEN)), Mark::Open { generation: 9 });
        assert_eq!(read(Mark::ended(4)), Mark::Ended { generation: 4 });
        assert_eq!(read("scribbled".into()), Mark::Ended { generation: 9 });
        assert_eq!(Mark::ended(4), r#"{"state":"ended","generation":4}"#);
    }
}
