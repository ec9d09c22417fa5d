//! The settings of a candidacy, and the inputs and outputs of its machine.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::protocol::{Ask, Farewell, Holder, Lease, Loss, Outcome};
use crate::queue::{Entry, Freshness, Gone, Joined, Left, Queue, Session, Ticket};
use crate::store::Fault;

/// The settings of a candidacy.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The candidate.
    pub candidate: Holder,
    /// The stop budget; a tenth of the session's ttl if it is not given.
    pub grace: Option<Duration>,
    /// The generation of the election to stand in; `None` takes the first it finds.
    pub generation: Option<u64>,
    /// D: how long it waits after a tenure that did not end cleanly.
    ///
    /// Zero if the election has no lock delay.
    pub delay: Duration,
    /// The highest token with which this process has led the election; 0 if it never did.
    pub highest: u64,
}

/// An event that the machine reacts to.
#[derive(Clone, Debug)]
pub enum Input {
    /// Time has passed.
    Tick,
    /// The state of the session changed.
    Session(Session),
    /// A join was answered.
    Joined(Ask, Result<Joined, Fault>),
    /// The queue was read.
    Read(Ask, Result<Queue, Fault>),
    /// The request to record the beginning of a tenure was answered.
    Begun(Ask, Result<(), Fault>),
    /// The request to record the token of a tenure was answered.
    Noted(Ask, Result<(), Fault>),
    /// A deletion was answered.
    Left(Ask, Result<Left, Fault>),
    /// The request to end the election was answered.
    Ended(Ask, Result<(), Fault>),
    /// The publication of a value was answered.
    Published(Ask, Result<(), Fault>),
    /// A watched entry may be gone.
    Gone(Entry, Gone),
    /// The election may have ended.
    Hint,
    /// The work of a lost tenure has ended: the candidate stands again.
    WorkEnded,
    /// All work has ended: give up the entry and the candidacy.
    Release(Farewell),
    /// The work cannot be ended: leave, but keep the entry for a while.
    ///
    /// It stays as long as the session would have lived.
    Abandon,
    /// The candidate publishes another value.
    Publish(Bytes),
    /// A program under test takes the leadership away.
    ForceLoss,
}

/// An action for the caller to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Join the queue.
    Join {
        /// Must be given back with the answer.
        ask: Ask,
        /// Marks the entry.
        ticket: Ticket,
        /// The candidate that joins.
        holder: Arc<Holder>,
    },
    /// Read the queue.
    Read {
        /// Must be given back with the answer.
        ask: Ask,
        /// The candidacy's ticket: the queue must show its entries.
        ticket: Ticket,
        /// How new it must be.
        freshness: Freshness,
    },
    /// Record that the tenure of this entry begins.
    Begin {
        /// Must be given back with the answer.
        ask: Ask,
        /// The entry of the tenure.
        entry: Entry,
    },
    /// Record the token of the current tenure.
    Note {
        /// Must be given back with the answer.
        ask: Ask,
        /// The entry of the tenure.
        entry: Entry,
    },
    /// Delete an entry.
    Leave {
        /// Must be given back with the answer.
        ask: Ask,
        /// The entry to delete.
        entry: Entry,
        /// True if its work, if there was any, ended while no other candidate could lead.
        clean: bool,
    },
    /// End the election.
    End {
        /// Must be given back with the answer.
        ask: Ask,
        /// The generation to end.
        generation: u64,
    },
    /// Publish another value.
    Publish {
        /// Must be given back with the answer.
        ask: Ask,
        /// The entry that shows the value.
        entry: Entry,
        /// The new value.
        value: Bytes,
    },
    /// Leadership was won.
    Elected(Lease),
    /// The session was proven to live for longer.
    Extended(Lease),
    /// The work must end before the lease does.
    MustStop,
    /// Leadership is over.
    Lost {
        /// The token of the lost tenure.
        token: u64,
        /// The reason.
        loss: Loss,
    },
    /// The connection is lost; the lease is running down.
    Suspended,
    /// The connection is back, and the entry still stands.
    Resumed,
    /// Another candidate is first in the queue (`Some`), or the queue has no first (`None`).
    Following(Option<Arc<Holder>>),
    /// The candidacy is over for its caller.
    Over(Outcome),
}
