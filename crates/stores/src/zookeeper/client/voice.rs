//! Tells the answer of a quorum from the answer of one server.

use tenure::queue::window::{Kind, Voice};

use super::super::wire::Code;

/// Decides if an answer proves as much as its kind of request can.
///
/// A write that succeeded was taken by a quorum. So was a write that the leader refused because of
/// the state of the nodes. A refused `multi` has no code in its header, so it counts as a success
/// here. Any other refusal may come from one server, even from one that is cut off: it throttles
/// requests, and with `enableEagerACLCheck` it checks permissions itself.
pub(super) fn voice(kind: Kind, refused: Option<Code>) -> Voice {
    match (kind, refused) {
        (Kind::Read | Kind::Sync | Kind::Write, None)
        | (
            Kind::Write,
            Some(Code::NoNode | Code::NodeExists | Code::BadVersion | Code::NotEmpty),
        ) => Voice::Ensemble,
        (
            Kind::Write,
            Some(
                Code::Inconsistent
                | Code::Unimplemented
                | Code::BadArguments
                | Code::NoAuth
                | Code::NoChildrenForEphemerals
                | Code::SessionExpired
                | Code::InvalidAcl
                | Code::AuthFailed
                | Code::SessionMoved
                | Code::NotReadOnly
                | Code::QuotaExceeded
                | Code::Throttled
                | Code::Other(_),
            ),
        )
        | (Kind::Read | Kind::Sync, Some(_)) => Voice::OneServer,
    }
}

/// Returns true if this refusal may come before the answers to earlier requests.
///
/// With `enableEagerACLCheck`, a server refuses a write at once if a permission is missing.
pub(super) fn overtakes(kind: Kind, refused: Option<Code>) -> bool {
    kind == Kind::Write && matches!(refused, Some(Code::NoAuth | Code::InvalidAcl))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_refusal_for_what_the_leader_found_is_the_word_of_a_quorum() {
        for (number, expected) in [
            (0, Voice::Ensemble),
            (-101, Voice::Ensemble),
            (-110, Voice::Ensemble),
            (-103, Voice::Ensemble),
            (-111, Voice::Ensemble),
            (-102, Voice::OneServer),
            (-127, Voice::OneServer),
            (-114, Voice::OneServer),
            (-2, Voice::OneServer),
            (-5, Voice::OneServer),
            (-108, Voice::OneServer),
            (-119, Voice::OneServer),
        ] {
            assert_eq!(voice(Kind::Write, Code::of(number)), expected, "{number}");
            let sync = if number == 0 { Voice::Ensemble } else { Voice::OneServer };
            assert_eq!(voice(Kind::Sync, Code::of(number)), sync, "{number}");
        }
    }

    #[test]
    fn only_a_write_that_is_not_permitted_is_answered_before_its_turn() {
        for (kind, number, expected) in [
            (Kind::Write, -102, true),
            (Kind::Write, -114, true),
            (Kind::Write, -127, false),
            (Kind::Write, -101, false),
            (Kind::Write, 0, false),
            (Kind::Read, -102, false),
            (Kind::Sync, -102, false),
        ] {
            assert_eq!(overtakes(kind, Code::of(number)), expected, "{kind:?} {number}");
        }
    }
}
