//! What somebody outside an election may do to its record: create, end, delete.
//!
//! Pure: a record goes in, the record to write comes out. The compare-and-set around it is the
//! caller's.

use std::time::Duration;

use super::record::{Op, Record, State};

/// What is to be done about a record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Ruling {
    /// Nothing: it is already as it should be.
    Stands,
    /// This is to be written in its place.
    Write(Record),
}

/// What a new election is created with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How long a lease that stands still is respected, until the first claim says otherwise.
    pub ttl: Duration,
    /// The lock delay; `None` leaves what is in force.
    pub delay: Option<Duration>,
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
        // Whoever held it may not know yet that it ended. Its time passes first, under its terms.
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

/// Ends an election for all its candidates. Ending what does not exist leaves a mark that it ended.
pub fn end(record: Option<&Record>, terms: Terms, op: Op) -> Ruling {
    let Some(record) = record else {
        let state = State::Ended { kept: None, deleted: false };
        return Ruling::Write(Record { state, ..first(terms, op) });
    };
    ended(record, false, op)
}

/// Ends an election and hides it from lists. What does not exist is left so.
pub fn delete(record: Option<&Record>, op: Op) -> Ruling {
    record.map_or(Ruling::Stands, |record| ended(record, true, op))
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

fn first(terms: Terms, op: Op) -> Record {
    Record {
        state: State::Free { clean: true },
        expire: 0,
        token: 0,
        ttl: terms.ttl,
        delay: terms.delay.unwrap_or_default(),
        next_delay: None,
        generation: 1,
        revision: 1,
        op,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::CandidateId;
    use crate::lease::record::Holder;

    const TERMS: Terms = Terms { ttl: Duration::from_secs(15), delay: None };

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
        let shorter = Terms { ttl: Duration::from_secs(1), delay: Some(Duration::from_secs(9)) };
        let again = written(create(Some(&ended), shorter, op(3)));
        assert_eq!(again.holder(), held().holder());
        assert_eq!((again.token, again.ttl, again.delay), (7, held().ttl, held().delay));
        assert_eq!((again.generation, again.next_delay), (2, Some(Duration::from_secs(9))));
    }

    /// A tenure that lapsed, was then freed or ended by its holder, and was created again with a shorter
    /// delay let its successor lead within the delay that was still running.
    #[test]
    fn a_new_lock_delay_does_not_cut_the_one_in_force_short() {
        let free = Record { state: State::Free { clean: false }, delay: TERMS.ttl, ..held() };
        let ended = written(end(Some(&free), TERMS, op(2)));
        let none = Terms { ttl: TERMS.ttl, delay: Some(Duration::ZERO) };
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
    fn ending_what_does_not_exist_leaves_a_mark() {
        let ended = written(end(None, TERMS, op(1)));
        assert_eq!(ended.state, State::Ended { kept: None, deleted: false });
    }
}
