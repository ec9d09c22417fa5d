//! Tests of the queue protocol's rules, one claim a test, and the parts that they share.

mod delay;
mod joining;
mod leading;
mod leaving;
mod losing;
mod regression;

use std::time::Duration;

use bytes::Bytes;

use super::{Input, Machine, Note, Output, Settings};
use crate::candidate::CandidateId;
use crate::clock::Moment;
use crate::protocol::{Ask, Holder, Lease};
use crate::queue::{Entry, Joined, Life, Place, Proof, Queue, Session};

const TTL: Duration = Duration::from_secs(10);
const WINDOW: Duration = Duration::from_secs(8);

fn at(millis: u64) -> Moment {
    Moment::default() + Duration::from_millis(millis)
}

fn entry(token: u64) -> Entry {
    Entry { name: format!("entry-{token}").into(), token }
}

fn place(token: u64) -> Place {
    Place { entry: entry(token), ticket: None, holder: None }
}

fn open(tokens: &[u64]) -> Queue {
    Queue::Open {
        generation: 1,
        places: tokens.iter().copied().map(place).collect(),
        unclean: None,
        highest: 0,
    }
}

fn session(number: u64, connection: u64, proven: u64) -> Session {
    let proof = Some(Proof { from: at(proven), window: WINDOW });
    Session { number, connection, ttl: TTL, life: Life::Live { proof } }
}

fn suspended(proven: u64) -> Session {
    let Session { number, connection, ttl, .. } = session(1, 1, proven);
    let proof = Some(Proof { from: at(proven), window: WINDOW });
    Session { number, connection, ttl, life: Life::Suspended { proof } }
}

fn machine() -> Machine {
    machine_with(Duration::ZERO)
}

fn machine_with(delay: Duration) -> Machine {
    let id = CandidateId::from_bits(7);
    let candidate = Holder { id, name: "a".into(), value: Bytes::new(), presence: None };
    Machine::new(Settings { candidate, grace: None, generation: None, delay, highest: 0 })
}

fn ask(outputs: &[Output]) -> Ask {
    let mut asks = outputs.iter().filter_map(|output| match output {
        Output::Join { ask, .. }
        | Output::Read { ask, .. }
        | Output::Begin { ask, .. }
        | Output::Note { ask, .. }
        | Output::Leave { ask, .. }
        | Output::End { ask, .. }
        | Output::Publish { ask, .. } => Some(*ask),
        Output::Elected(_)
        | Output::Extended(_)
        | Output::MustStop
        | Output::Lost { .. }
        | Output::Suspended
        | Output::Resumed
        | Output::Following(_)
        | Output::Over(_) => None,
    });
    asks.next().unwrap_or_else(|| panic!("no request in {outputs:?}"))
}

/// A candidate with entry 5 behind these.
fn joined(before: &[u64]) -> (Machine, Vec<Output>) {
    joined_with(Duration::ZERO, before)
}

fn joined_with(delay: Duration, before: &[u64]) -> (Machine, Vec<Output>) {
    let mut machine = machine_with(delay);
    let join = machine.step(at(0), Input::Session(session(1, 1, 0)));
    assert!(matches!(join[..], [Output::Join { .. }]), "{join:?}");
    let mut tokens = before.to_vec();
    tokens.push(5);
    let answer = Joined { session: 1, entry: Some(entry(5)), queue: open(&tokens) };
    let out = machine.step(at(10), Input::Joined(ask(&join), Ok(answer)));
    (machine, out)
}

/// A leader with a recorded token.
fn leader() -> Machine {
    let mut machine = fresh_leader();
    if let Some(mine) = &mut machine.mine {
        mine.note = Note::Done;
    }
    machine
}

fn fresh_leader() -> Machine {
    let (machine, out) = joined(&[]);
    assert!(matches!(out[..], [Output::Elected(Lease { token: 5, .. })]), "{out:?}");
    machine
}
