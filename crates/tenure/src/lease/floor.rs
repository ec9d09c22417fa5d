//! The floor of an election: it remembers the highest token if the record is deleted.
//!
//! An operator who deletes a record by hand also deletes its token and its lock delay, and tokens
//! would begin at 1 again. The floor is a second document, beside the records. No tenure has a
//! token above the floor, or a longer ttl or lock delay than the floor's. A claim that needs more
//! raises the floor *first*. Raises come in blocks, so hardly any claim needs one. A record carries
//! a copy of its floor: an ordinary claim reads only the record.
//!
//! # How a deletion is noticed
//! Every record gets an id of its own when it is created, and keeps it for life. The floor names
//! the record it was last raised for. If the floor does not name a record, then that record
//! replaced a deleted one. Its first claim waits as long as a tenure and its lock delay may last by
//! the floor, and then takes a token above the floor.
//!
//! # Why that is enough
//! A claim under record *r* is a compare-and-set on a version of *r*, so it fails once *r* is
//! deleted. Every token under *r* was at or below the floor before it was claimed. The first claim
//! under the next record is made after an acknowledged raise that its claimant sent once it had
//! seen that record, and takes a token above the floor as it was before that raise. Only the
//! acknowledgement counts, not the read before it: therefore this holds on stores whose reads prove
//! nothing, too.
//!
//! # Why a creation names no record on weak stores
//! A primary that was cut off may show a deletion and a creation that are undone, and its servers
//! may carry both out again on the next primary, much later. Waiting since the first sight of such
//! a record proves nothing: the former record may have been renewed elsewhere until the second
//! deletion, and a floor that names the creation would let the record be claimed at once. So a
//! candidate first *signs* a new record: a compare-and-set gives it another id. That cannot be
//! carried out again, as no other primary has the version it is compared with.

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::record::{MAX_NUMBER, Op, RecordError, duration, millis};
use crate::store::MAX_DOCUMENT_BYTES;

/// The number of tokens that one raise adds to the floor.
pub const BLOCK: u64 = 1024;

/// The limits that no tenure exceeds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Floor {
    /// The id of the floor's record: the op that created the record.
    pub id: Op,
    /// The highest token that may be claimed; 0 in a record that was never claimed.
    pub token: u64,
    /// The longest ttl of a tenure.
    pub ttl: Duration,
    /// The longest lock delay of a tenure.
    pub delay: Duration,
}

impl Floor {
    /// The floor of a record that was just created: it allows no claim yet.
    #[must_use]
    pub fn unlaid(id: Op) -> Floor {
        Floor { id, token: 0, ttl: Duration::ZERO, delay: Duration::ZERO }
    }

    /// That of a record which has an id by a compare-and-set: nothing may be claimed on it yet.
    #[must_use]
    pub fn signed(id: Op, ttl: Duration) -> Floor {
        Floor { id, token: 0, ttl, delay: Duration::ZERO }
    }

    /// Whether its id is still that of the creation.
    #[must_use]
    pub fn is_unsigned(&self) -> bool {
        self.token == 0 && self.ttl.is_zero()
    }

    /// Whether a tenure with this token, ttl and delay may be claimed.
    #[must_use]
    pub fn covers(&self, token: u64, ttl: Duration, delay: Duration) -> bool {
        token <= self.token && ttl <= self.ttl && delay <= self.delay
    }
}

/// The document of a floor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Laid {
    /// The limits that no tenure exceeds.
    pub floor: Floor,
    /// The floor's token before the named record: that record's tokens are above this.
    pub base: u64,
    /// The write that made this floor.
    pub op: Op,
}

#[derive(Serialize, Deserialize)]
pub(super) struct WireFloor {
    id: String,
    #[serde(default, skip_serializing_if = "is_zero")]
    token: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    ttl: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    delay: u64,
}

#[derive(Serialize, Deserialize)]
struct WireLaid {
    id: String,
    base: u64,
    token: u64,
    ttl: u64,
    delay: u64,
    op: String,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl WireFloor {
    pub(super) fn of(floor: &Floor) -> WireFloor {
        let id = floor.id.as_str().into();
        let (ttl, delay) = (millis(floor.ttl), millis(floor.delay));
        WireFloor { id, token: floor.token, ttl, delay }
    }

    pub(super) fn check(self) -> Result<Floor, RecordError> {
        let refused = |says: String| RecordError::Field { field: "floor", says };
        let id = Op::try_from(self.id).map_err(|says| refused(says.into()))?;
        if self.token > MAX_NUMBER {
            return Err(refused(format!("token {}, at most {MAX_NUMBER}", self.token)));
        }
        let span =
            |field, number| duration(field, number, 0).map_err(|error| refused(error.to_string()));
        let (ttl, delay) = (span("ttl", self.ttl)?, span("delay", self.delay)?);
        Ok(Floor { id, token: self.token, ttl, delay })
    }
}

impl Laid {
    /// Writes the floor as one line of JSON.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let WireFloor { id, token, ttl, delay } = WireFloor::of(&self.floor);
        let wire = WireLaid { id, base: self.base, token, ttl, delay, op: self.op.as_str().into() };
        let mut line = serde_json::to_vec(&wire).expect("strings and numbers always encode");
        line.push(b'\n');
        line.into()
    }

    /// Reads a floor.
    ///
    /// # Errors
    /// [`RecordError`] says why the floor is invalid. Never panics.
    pub fn decode(body: &[u8]) -> Result<Laid, RecordError> {
        if body.len() > MAX_DOCUMENT_BYTES {
            return Err(RecordError::TooLong { bytes: body.len() });
        }
        let refused = |says: String| RecordError::Field { field: "floor", says };
        let wire: WireLaid = serde_json::from_slice(body).map_err(|error| {
            refused(error.to_string().chars().filter(|c| !c.is_control()).take(200).collect())
        })?;
        let WireLaid { id, base, token, ttl, delay, op } = wire;
        let floor = WireFloor { id, token, ttl, delay }.check()?;
        if base > token {
            return Err(refused(format!("base {base} above token {token}")));
        }
        let op = Op::try_from(op).map_err(|says| refused(says.into()))?;
        Ok(Laid { floor, base, op })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CandidateId;

    fn laid() -> Laid {
        let id = CandidateId::from_bits(7);
        let floor = Floor {
            id: Op::new(&id, 0),
            token: 1024,
            ttl: Duration::from_secs(15),
            delay: Duration::from_secs(2),
        };
        Laid { floor, base: 0, op: Op::new(&id, 3) }
    }

    #[test]
    fn the_format_of_a_floor_is_fixed() {
        let id = "00000000000000000000000000000007";
        assert_eq!(
            std::str::from_utf8(&laid().encode()).expect("text"),
            format!(
                "{{\"id\":\"{id}-0\",\"base\":0,\"token\":1024,\"ttl\":15000,\"delay\":2000,\
                 \"op\":\"{id}-3\"}}\n"
            )
        );
        assert_eq!(Laid::decode(&laid().encode()), Ok(laid()));
    }

    #[test]
    fn each_bad_floor_says_what_is_wrong() {
        let with = |field: &str, value: serde_json::Value| {
            let mut map: serde_json::Map<String, serde_json::Value> =
                serde_json::from_slice(&laid().encode()).expect("an object");
            map.insert(field.into(), value);
            serde_json::to_vec(&map).expect("encodes")
        };
        for (body, says) in [
            (Vec::new(), "bad floor"),
            (vec![b' '; MAX_DOCUMENT_BYTES + 1], "65537 bytes"),
            (with("token", (1u64 << 53).into()), "token 9007199254740992"),
            (with("base", 1025.into()), "base 1025 above token 1024"),
            (with("ttl", 86_400_001.into()), "ttl 86400001"),
            (with("delay", (-1).into()), "bad floor"),
            (with("id", "".into()), "empty"),
            (with("op", "".into()), "empty"),
        ] {
            let error = Laid::decode(&body).expect_err(says);
            assert!(error.to_string().contains(says), "{says}: {error}");
        }
    }
}
