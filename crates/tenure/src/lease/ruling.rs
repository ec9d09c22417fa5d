//! Changes to a record from outside the election: create, end, delete.
//!
//! Pure functions: a record goes in, the record to write comes out. The caller does the
//! compare-and-set.

use std::time::Duration;

use super::floor::Floor;
use super::record::{Op, Record, State};
use crate::Protocol;

/// The decision about a record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Ruling {
    /// The record is already as it should be: write nothing.
    Stands,
    /// Write this record in its place.
    Write(Record),
}

/// The settings of a new election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How long a lease without renewal is respected, until the first claim sets its own ttl.
    pub ttl: Duration,
    /// The lock delay; `None` leaves the delay in force.
    pub delay: Option<Duration>,
    /// True if a floor is kept beside the record.
    pub floor: bool,
}

/// Creates an election, or the next generation of one that has ended.
pub fn create(record: Option<&Record>, terms: Terms, op: Op) -> Ruling {
    let Some(record) = record else {
        return Ruling::Write(Record { state: State::Free { clean: true }, ..first(terms, op) });
    };
    let State::Ended { kept, deleted: _ } = &record.state else {
        return Ruling::Stands;
    };
    let next = Record { generation: record.generation + 1, ..record.following(op) };
    Ruling::Write(match kept {
        // The holder may not know yet that the election ended. Its time passes first, under its own
        // terms.
        Some(holder) => {
            Record { state: State::Held(holder.clone()), next_delay: terms.delay, ..next }
        }
        None => Record {
            state: State::Free { clean: false },
            expire: 0,
            ttl: terms.ttl,
            // The delay of the last tenure may still be running; a new one takes effect at a claim.
            next_delay: terms.delay,
            ..next
        },
    })
}

/// Ends an election for all its candidates.
///
/// Ending an election that does not exist writes a record that says it ended.
pub fn end(record: Option<&Record>, terms: Terms, op: Op) -> Ruling {
    let Some(record) = record else {
        let state = State::Ended { kept: None, deleted: false };
        return Ruling::Write(Record { state, ..first(terms, op) });
    };
    ended(record, false, op)
}

/// Ends an election and hides it from lists. Does nothing if there is no record.
pub fn delete(record: Option<&Record>, op: Op) -> Ruling {
    record.map_or(Ruling::Stands, |record| ended(record, true, op))
}

/// Records that an election is a queue.
///
/// `again` means that its last generation has ended, and another is to follow.
///
/// # Errors
/// The protocol that was chosen before, when that is not the queue.
pub fn queue(
    record: Option<&Record>,
    terms: Terms,
    again: bool,
    op: Op,
) -> Result<Ruling, Protocol> {
    let Some(record) = record else {
        return Ok(Ruling::Write(Record { protocol: Protocol::Queue, ..first(terms, op) }));
    };
    let free = Record { state: State::Free { clean: true }, ..record.following(op) };
    let deleted = matches!(record.state, State::Ended { deleted: true, .. });
    match record.protocol {
        Protocol::Queue if deleted => Ok(Ruling::Write(Record {
            ttl: terms.ttl,
            delay: terms.delay.unwrap_or_default(),
            ..free
        })),
        Protocol::Queue => {
            // A shorter lock delay would cut off a delay that is still running.
            let longer = terms.delay.filter(|delay| again && *delay > record.delay);
            Ok(longer.map_or(Ruling::Stands, |delay| Ruling::Write(Record { delay, ..free })))
        }
        Protocol::Lease if deleted && is_over(record) => Ok(Ruling::Write(Record {
            protocol: Protocol::Queue,
            ttl: terms.ttl,
            delay: terms.delay.unwrap_or_default(),
            ..free
        })),
        Protocol::Lease => Err(Protocol::Lease),
    }
}

/// Records that a queue was created again.
///
/// This always writes, so that a deletion that read the record before cannot hide the new queue.
///
/// # Errors
/// The protocol that was chosen before, when that is not the queue.
pub fn queue_made(record: Option<&Record>, terms: Terms, op: Op) -> Result<Ruling, Protocol> {
    match record {
        Some(record) if record.protocol == Protocol::Queue => {
            let state = State::Free { clean: true };
            Ok(Ruling::Write(Record { state, ..record.following(op) }))
        }
        Some(_) | None => queue(record, terms, false, op),
    }
}

/// Records that a queue was deleted. Does nothing if there is no record.
///
/// # Errors
/// The protocol that was chosen, when that is not the queue.
pub fn delete_queue(record: Option<&Record>, op: Op) -> Result<Ruling, Protocol> {
    let Some(record) = record else { return Ok(Ruling::Stands) };
    let deleted = matches!(record.state, State::Ended { deleted: true, .. });
    match record.protocol {
        Protocol::Lease if !deleted => Err(Protocol::Lease),
        Protocol::Lease | Protocol::Queue if deleted => Ok(Ruling::Stands),
        Protocol::Lease | Protocol::Queue => Ok(ended(record, true, op)),
    }
}

/// Returns true if this ended record has no holder and no running lock delay left.
fn is_over(record: &Record) -> bool {
    matches!(record.state, State::Ended { kept: None, .. })
        && record.delay.is_zero()
        && record.next_delay.is_none_or(|delay| delay.is_zero())
}

fn ended(record: &Record, delete: bool, op: Op) -> Ruling {
    let (kept, deleted) = match &record.state {
        State::Ended { kept: _, deleted } if *deleted || !delete => return Ruling::Stands,
        State::Ended { kept, deleted: _ } => (kept.clone(), true),
        State::Free { clean: _ } => (None, delete),
        State::Held(holder) => (Some(holder.clone()), delete),
    };
    Ruling::Write(Record { state: State::Ended { kept, deleted }, ..record.following(op) })
}

/// Makes a record that was never claimed.
pub(super) fn first(terms: Terms, op: Op) -> Record {
    Record {
        protocol: Protocol::Lease,
        state: State::Free { clean: true },
        expire: 0,
        token: 0,
        ttl: terms.ttl,
        delay: terms.delay.unwrap_or_default(),
        next_delay: None,
        generation: 1,
        revision: 1,
        floor: terms.floor.then(|| Floor::unlaid(op.clone())),
        op,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::CandidateId;
    use crate::protocol::Holder;

    const TERMS: Terms = Terms { ttl: Duration::from_secs(15), delay: None, floor: true };

    fn op(number: u64) -> Op {
        Op::new(&CandidateId::from_bits(1), number)
    }

    fn written(ruling: Ruling) -> Record {
        match ruling {
            Ruling::Write(record) => record,
            Ruling::Stands => panic!("nothing would be written"),
        }
    }

    fn held() -> Record {
        let id = CandidateId::from_bits(2);
        let holder = Holder { id, name: "a".into(), value: "v".into(), presence: None };
        let free = written(create(None, TERMS, op(1)));
        Record { state: State::Held(Arc::new(holder)), token: 7, ..free }
    }

    #[test]
    fn every_record_that_is_created_has_an_id_of_its_own_for_life() {
        let id = |record: &Record| record.floor.clone().map(|floor| floor.id);
        let created = written(create(None, TERMS, op(1)));
        assert_eq!(id(&created), Some(op(1)));
        let ended = written(end(Some(&created), TERMS, op(2)));
        assert_eq!(id(&written(create(Some(&ended), TERMS, op(3)))), Some(op(1)));
        assert_eq!(id(&written(end(None, TERMS, op(4)))), Some(op(4)));
        let without = Terms { floor: false, ..TERMS };
        assert_eq!(written(create(None, without, op(5))).floor, None);
    }

    #[test]
    fn creating_what_exists_changes_nothing() {
        assert_eq!(create(Some(&held()), TERMS, op(2)), Ruling::Stands);
    }

    #[test]
    fn ending_a_held_election_keeps_its_holder_and_ttl() {
        let ended = written(end(Some(&held()), TERMS, op(2)));
        assert!(matches!(&ended.state, State::Ended { kept: Some(_), deleted: false }));
        assert_eq!((ended.token, ended.ttl, ended.revision), (7, held().ttl, held().revision + 1));
    }

    #[test]
    fn re_creating_what_was_held_gives_it_back_to_its_holder_under_its_own_terms() {
        let ended = written(end(Some(&held()), TERMS, op(2)));
        let delay = Some(Duration::from_secs(9));
        let shorter = Terms { ttl: Duration::from_secs(1), delay, ..TERMS };
        let again = written(create(Some(&ended), shorter, op(3)));
        assert_eq!(again.holder(), held().holder());
        assert_eq!((again.token, again.ttl, again.delay), (7, held().ttl, held().delay));
        assert_eq!((again.generation, again.next_delay), (2, Some(Duration::from_secs(9))));
    }

    /// Regression: a successor led within a lock delay that was still running.
    ///
    /// A tenure lapsed, was freed or ended by its holder, and was created again with a shorter
    /// delay. Its successor then led within the delay that was still running.
    #[test]
    fn a_new_lock_delay_does_not_cut_the_one_in_force_short() {
        let free = Record { state: State::Free { clean: false }, delay: TERMS.ttl, ..held() };
        let ended = written(end(Some(&free), TERMS, op(2)));
        let none = Terms { delay: Some(Duration::ZERO), ..TERMS };
        let again = written(create(Some(&ended), none, op(3)));
        assert_eq!((again.delay, again.next_delay), (TERMS.ttl, Some(Duration::ZERO)));
    }

    #[test]
    fn a_deleted_election_keeps_its_token() {
        let deleted = written(delete(Some(&held()), op(2)));
        assert_eq!(delete(Some(&deleted), op(3)), Ruling::Stands);
        assert_eq!(end(Some(&deleted), TERMS, op(3)), Ruling::Stands);
        assert_eq!(written(create(Some(&deleted), TERMS, op(4))).token, 7);
        assert_eq!(delete(None, op(5)), Ruling::Stands);
    }

    #[test]
    fn a_lease_never_becomes_a_queue_while_somebody_may_hold_it() {
        assert_eq!(queue(Some(&held()), TERMS, true, op(2)), Err(Protocol::Lease));
        let ended_by_others = written(end(Some(&held()), TERMS, op(2)));
        assert_eq!(queue(Some(&ended_by_others), TERMS, true, op(3)), Err(Protocol::Lease));
        let deleted = written(delete(Some(&ended_by_others), op(3)));
        assert_eq!(queue(Some(&deleted), TERMS, true, op(4)), Err(Protocol::Lease));
        let free = Record { state: State::Free { clean: true }, ..held() };
        let deleted = written(delete(Some(&free), op(3)));
        let now = written(queue(Some(&deleted), TERMS, false, op(4)).expect("nobody holds it"));
        assert_eq!((now.protocol, now.token), (Protocol::Queue, held().token));
        let late = Record { delay: TERMS.ttl, ..deleted };
        assert_eq!(queue(Some(&late), TERMS, false, op(4)), Err(Protocol::Lease));
    }

    #[test]
    fn a_queues_lock_delay_is_only_ever_lengthened_and_only_between_generations() {
        let terms = |seconds| Terms { delay: Some(Duration::from_secs(seconds)), ..TERMS };
        let record = written(queue(None, terms(5), false, op(1)).expect("new"));
        assert_eq!((record.protocol, record.delay), (Protocol::Queue, Duration::from_secs(5)));
        assert_eq!(queue(Some(&record), terms(9), false, op(2)), Ok(Ruling::Stands));
        assert_eq!(queue(Some(&record), terms(1), true, op(2)), Ok(Ruling::Stands));
        let longer = written(queue(Some(&record), terms(9), true, op(2)).expect("a queue"));
        assert_eq!(longer.delay, Duration::from_secs(9));
        let deleted = written(delete_queue(Some(&longer), op(3)).expect("a queue"));
        assert_eq!(delete_queue(Some(&deleted), op(4)), Ok(Ruling::Stands));
        let made = written(queue_made(Some(&longer), TERMS, op(4)).expect("a queue"));
        assert_eq!((made.revision, made.delay), (longer.revision + 1, longer.delay));
        let again = written(queue(Some(&deleted), TERMS, false, op(4)).expect("a queue"));
        assert_eq!((again.state, again.delay), (State::Free { clean: true }, Duration::ZERO));
    }

    #[test]
    fn ending_what_does_not_exist_leaves_a_mark() {
        let ended = written(end(None, TERMS, op(1)));
        assert_eq!(ended.state, State::Ended { kept: None, deleted: false });
    }
}
