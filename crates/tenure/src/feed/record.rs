//! The document in the table that names the leader.
//!
//! It is the record of the lease protocol, spread over fields that people and leaderfeed's users
//! read: `id` is `leader`, `value` the leader's id, `timestamp` the server's time of the last
//! heartbeat. A document from the table is untrusted. This module only renames fields, and
//! [`Record::decode`](crate::lease::record::Record::decode) checks the rest as it does on any
//! store.

use bytes::Bytes;
use serde_json::Value;

use crate::store::feed::{Fields, LEADER};

/// The field that names the feed that may claim next.
pub(super) const PREFERRED: &str = "preferred";

/// Converts the lease protocol's record to the table's document.
pub(super) fn to_fields(body: &[u8], preferred: Option<&str>) -> Option<Fields> {
    let mut record: Fields = serde_json::from_slice(body).ok()?;
    let mut fields = Fields::new();
    fields.insert("id".into(), LEADER.into());
    fields.insert("value".into(), record.remove("name").unwrap_or(Value::Null));
    if let Some(preferred) = preferred {
        fields.insert(PREFERRED.into(), preferred.into());
    }
    // `timestamp` and `ttl` show when a lease ends, in the server's time instead of the holder's. A
    // feed's candidates publish their id and nothing else.
    for dropped in ["expire", "value", "value_base64"] {
        record.remove(dropped);
    }
    fields.append(&mut record);
    Some(fields)
}

/// Converts the table's document to the lease protocol's record, for the feed with this id.
///
/// A record that was freed for another feed is shown to us as not freed cleanly, with half a ttl as
/// its lock delay. So a candidate holds back that long, without an extra rule in the machine. The
/// real lock delay takes effect at the claim.
pub(super) fn to_body(fields: &Fields, me: &str) -> Bytes {
    let mut record = fields.clone();
    let number = |name: &str| fields.get(name).and_then(Value::as_u64).unwrap_or(0);
    let (ttl, delay) = (number("ttl"), number("delay"));
    let expire = number("timestamp").saturating_add(ttl);
    for ours in ["id", "timestamp", PREFERRED] {
        record.remove(ours);
    }
    match record.remove("value") {
        None | Some(Value::Null) => {}
        Some(value) => drop(record.insert("name".into(), value)),
    }
    record.insert("expire".into(), expire.into());
    let is_free = fields.get("state").and_then(Value::as_str) == Some("free");
    let for_another = preferred(fields).is_some_and(|id| id != me);
    if is_free && for_another && delay < ttl / 2 {
        record.insert("clean".into(), false.into());
        record.insert("delay".into(), (ttl / 2).into());
        record.entry("next_delay").or_insert(delay.into());
    }
    Value::Object(record).to_string().into()
}

/// The feed that the record is, or should be, handed to.
pub(super) fn preferred(fields: &Fields) -> Option<&str> {
    fields.get(PREFERRED).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::CandidateId;
    use crate::lease::record::{Op, Record, State};
    use crate::protocol::Holder;

    fn held() -> Record {
        let id = CandidateId::from_bits(7);
        let holder =
            Holder { id: id.clone(), name: "host-a".into(), value: Bytes::new(), presence: None };
        Record {
            protocol: crate::Protocol::Lease,
            state: State::Held(Arc::new(holder)),
            expire: 0,
            token: 3,
            ttl: Duration::from_secs(2),
            delay: Duration::ZERO,
            next_delay: None,
            generation: 1,
            revision: 12,
            op: Op::new(&id, 9),
            floor: None,
        }
    }

    fn free() -> Record {
        Record { state: State::Free { clean: true }, ..held() }
    }

    fn fields(record: &Record, preferred: Option<&str>) -> Fields {
        to_fields(&record.encode(), preferred).expect("an object")
    }

    fn seen(fields: &Fields, me: &str) -> Record {
        Record::decode(&to_body(fields, me)).expect("a record")
    }

    #[test]
    fn the_format_is_fixed() {
        let id = "00000000000000000000000000000007";
        assert_eq!(
            Value::Object(fields(&held(), None)),
            serde_json::json!({
                "id": "leader", "value": "host-a", "holder": id, "token": 3, "ttl": 2000, "delay": 0,
                "state": "held", "generation": 1, "revision": 12, "op": format!("{id}-9"),
            })
        );
        assert_eq!(
            Value::Object(fields(&free(), Some("host-b"))),
            serde_json::json!({
                "id": "leader", "value": null, "preferred": "host-b", "holder": "", "token": 3,
                "ttl": 2000, "delay": 0, "state": "free", "clean": true, "generation": 1,
                "revision": 12, "op": format!("{id}-9"),
            })
        );
    }

    #[test]
    fn a_record_survives_the_table() {
        let mut stored = fields(&held(), None);
        stored.insert("timestamp".into(), 1000.into());
        assert_eq!(seen(&stored, "host-b"), Record { expire: 3000, ..held() });
    }

    #[test]
    fn who_is_not_preferred_holds_back_half_a_ttl_and_the_delay_in_force_is_kept() {
        let stored = fields(&free(), Some("host-b"));
        assert_eq!(seen(&stored, "host-b").state, State::Free { clean: true });
        let other = seen(&stored, "host-c");
        assert_eq!(other.state, State::Free { clean: false });
        assert_eq!(other.delay, Duration::from_secs(1));
        assert_eq!(other.next_delay, Some(Duration::ZERO));
    }

    #[test]
    fn a_request_to_hand_over_changes_nothing_while_the_record_is_held() {
        let stored = fields(&held(), Some("host-b"));
        assert_eq!(seen(&stored, "host-c"), Record { expire: 2000, ..held() });
    }
}
