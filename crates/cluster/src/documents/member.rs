//! A member's lock. It shows when an idle node has died; it proves nothing about slots.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure::lease::record::Op;
use tenure::store::Mark;

use super::{DocumentError, Format, MemberId, check_mark, check_number, check_span, is_false};

/// A member's sign of life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberLock {
    /// The member.
    pub holder: MemberId,
    /// When it ends by the member's own wall clock, in milliseconds since 1970.
    ///
    /// It is 0 once the member has left. For people.
    pub expire: u64,
    /// How long a lock that does not change is respected.
    #[serde(with = "super::millis")]
    pub ttl: Duration,
    /// How many of its workers are idle.
    pub idle: u32,
    /// How many tasks it has finished.
    pub finished: u64,
    /// It can list the leader's source. Members that cannot leave the lead to those that can.
    #[serde(default, skip_serializing_if = "is_false")]
    pub lists: bool,
    /// The mark that can prove the member's death, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub presence: Option<Mark>,
    /// Rises by one at every write.
    pub revision: u64,
    /// The write that made this version.
    pub op: Op,
}

impl Format for MemberLock {
    const WHAT: &'static str = "member's lock";

    fn check(&self) -> Result<(), DocumentError> {
        check_number::<MemberLock>("revision", self.revision)?;
        check_span::<MemberLock>("ttl", self.ttl)?;
        check_mark::<MemberLock>(self.presence.as_ref())
    }
}
