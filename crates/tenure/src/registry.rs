//! The list of an election's candidates, on lease stores as documents.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::Timing;
use crate::candidate::CandidateId;
use crate::name::check_segment;
use crate::protocol::Holder;
use crate::store::MAX_DOCUMENT_BYTES;
use crate::value;

/// The number of ttls after which an entry is refreshed. It is shown as stale after twice as many.
pub(crate) const REFRESH_TTLS: u32 = 10;

/// One candidate, as it registered itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// The id of its candidacy.
    pub id: CandidateId,
    /// Its name for people.
    pub name: Arc<str>,
    /// The value it publishes.
    pub value: Bytes,
    /// Since when it stands, in milliseconds since 1970 by its own clock; unknown in a queue.
    pub since: Option<u64>,
    /// Its place in the queue, 1 for the first; `None` where there is no order.
    pub position: Option<usize>,
    /// True if it has been silent for so long that it is probably gone.
    ///
    /// In a queue: true if the entry belongs to no session. Then it is no candidate, and has no
    /// position.
    pub stale: bool,
}

/// The entry that a candidate writes about itself.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    name: Arc<str>,
    pub(crate) value: Bytes,
    ttl: Duration,
    since: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct Wire {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
    since: u64,
    seen: u64,
    ttl: u64,
}

impl Entry {
    pub(crate) fn new(candidate: &Holder, timing: Timing) -> Entry {
        let (name, value) = (candidate.name.clone(), candidate.value.clone());
        Entry { name, value, ttl: timing.ttl(), since: None }
    }

    pub(crate) fn encode(&mut self, wall: u64) -> Bytes {
        let (value, value_base64) = value::encode(&self.value);
        let wire = Wire {
            name: (*self.name).into(),
            value,
            value_base64,
            since: *self.since.get_or_insert(wall),
            seen: wall,
            ttl: u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX),
        };
        let mut line = serde_json::to_vec(&wire).expect("strings and numbers always encode");
        line.push(b'\n');
        line.into()
    }
}

impl Registered {
    /// Reads an entry; `None` when it is invalid, which the caller should report.
    ///
    /// Plain and public so that it can be fuzzed: never panics.
    #[must_use]
    pub fn decode(id: &str, body: &[u8], wall: u64) -> Option<Registered> {
        if body.len() > MAX_DOCUMENT_BYTES {
            return None;
        }
        let wire: Wire = serde_json::from_slice(body).ok()?;
        check_segment(&wire.name).ok()?;
        let silence = wall.saturating_sub(wire.seen);
        Some(Registered {
            id: CandidateId::parse(id).ok()?,
            name: wire.name.into(),
            value: value::decode(wire.value, wire.value_base64).ok()?,
            since: Some(wire.since),
            position: None,
            stale: silence > wire.ttl.saturating_mul(2 * u64::from(REFRESH_TTLS)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        let candidate = Holder {
            id: CandidateId::from_bits(1),
            name: "host-a".into(),
            value: "v".into(),
            presence: None,
        };
        Entry::new(&candidate, Timing::default())
    }

    #[test]
    fn the_format_is_fixed() {
        let mut entry = entry();
        let _ = entry.encode(5);
        let text = entry.encode(7);
        let text = std::str::from_utf8(&text).expect("text");
        assert_eq!(
            text,
            "{\"name\":\"host-a\",\"value\":\"v\",\"since\":5,\"seen\":7,\"ttl\":15000}\n"
        );
    }

    #[test]
    fn an_entry_not_refreshed_for_twenty_ttls_is_stale() {
        let body = entry().encode(1000);
        let stale = |wall| Registered::decode("a", &body, wall).expect("an entry").stale;
        assert!(!stale(1000 + 300_000));
        assert!(stale(1001 + 300_000));
        assert!(!stale(0), "a clock that is behind proves nothing");
    }
}
