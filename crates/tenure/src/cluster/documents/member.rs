//! The lock of a member: how an idle dead node is noticed. It proves nothing about slots.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{DocumentError, Format, MemberId, check_mark, check_number, check_span, is_false};
use crate::lease::record::Op;
use crate::store::Mark;

/// A member that says it lives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberLock {
    /// Which member.
    pub holder: MemberId,
    /// When it ends by the member's own wall clock, in milliseconds since 1970; 0 once it has left.
    /// For people.
    pub expire: u64,
    /// How long it is respected when it stands still.
    #[serde(with = "super::millis")]
    pub ttl: Duration,
    /// How many of its workers are idle.
    pub idle: u32,
    /// How many tasks it has finished.
    pub finished: u64,
    /// It can list the source that the leader reads: those that cannot leave the lead to it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub lists: bool,
    /// How its death can be proven, where it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub presence: Option<Mark>,
    /// Rises by one at every write.
    pub revision: u64,
    /// Which write made this.
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
