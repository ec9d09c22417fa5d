//! Requests of callers, from the moment they are taken until they are answered.

use std::sync::Arc;

use bytes::Bytes;
use tenure::Moment;
use tenure::queue::window::Kind;
use tokio::sync::oneshot;

use super::super::error::Error;
use crate::zookeeper::wire::{Request, Stat};

/// A node that never exists.
///
/// A transaction that checks it is refused by a quorum, and a heartbeat needs no more than that.
/// This needs no permission under `/`.
pub(super) const NOWHERE: &str = "/=tenure";

/// An answer.
#[derive(Clone, Debug)]
pub(in crate::zookeeper) struct Answer {
    pub(in crate::zookeeper) body: Bytes,
}

pub(in crate::zookeeper) type Outcome = Result<Answer, Error>;

/// An entry that was created.
#[derive(Clone, Debug)]
pub(in crate::zookeeper) struct Made {
    pub(in crate::zookeeper) path: String,
    pub(in crate::zookeeper) stat: Stat,
    pub(in crate::zookeeper) session: u64,
}

/// A request to be sent.
#[derive(Debug)]
pub(super) enum Order {
    Ask {
        request: Request,
        reply: oneshot::Sender<Outcome>,
        /// The barrier that it goes behind.
        barrier: Option<u64>,
    },
    /// A barrier, by its number.
    Barrier(u64),
    List(Listing),
}

/// A read of a queue, shared by all callers that want it and have not been answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Listing {
    pub(super) root: Arc<str>,
    /// The barrier that it goes behind.
    pub(super) barrier: Option<u64>,
}

/// The callers of a [`Listing`]: those waiting for the queue, and for the election's own node.
pub(super) type Askers = [Vec<oneshot::Sender<Outcome>>; 2];

/// An entry to be created.
#[derive(Debug)]
pub(in super::super) struct Join {
    pub(in super::super) root: Arc<str>,
    pub(in super::super) entry: Request,
    /// Must be sent alone: a transaction with others was refused, perhaps because of one of them.
    pub(in super::super) alone: bool,
    pub(in super::super) reply: oneshot::Sender<Result<Made, Error>>,
}

#[derive(Debug)]
pub(super) struct Flying {
    pub(super) number: i32,
    pub(super) sent: Moment,
    pub(super) weight: usize,
    pub(super) kind: Kind,
    /// Asks for many nodes at once, which not every server knows.
    pub(super) reads_many: bool,
    /// The answer may have an error in its body only.
    pub(super) is_transaction: bool,
    pub(super) awaited: Awaited,
}

#[derive(Debug)]
pub(super) enum Awaited {
    Nobody,
    /// A barrier, by its number.
    Barrier(u64),
    Answer(oneshot::Sender<Outcome>),
    Answers {
        replies: Vec<oneshot::Sender<Outcome>>,
        /// The answer counts only if a quorum took this barrier.
        barrier: Option<u64>,
    },
    Join(Join),
    Joins(Vec<Join>),
}

impl Awaited {
    pub(super) fn fail(self, error: &Error) {
        // The caller may have stopped waiting.
        match self {
            Awaited::Nobody | Awaited::Barrier(_) => {}
            Awaited::Answer(reply) => drop(reply.send(Err(error.clone()))),
            Awaited::Answers { replies, .. } => {
                for reply in replies {
                    let _ = reply.send(Err(error.clone()));
                }
            }
            Awaited::Join(join) => drop(join.reply.send(Err(error.clone()))),
            Awaited::Joins(joins) => {
                for join in joins {
                    let _ = join.reply.send(Err(error.clone()));
                }
            }
        }
    }
}

/// A write that changes nothing, and that a quorum takes.
pub(super) fn barrier() -> Request {
    Request::Multi(vec![Request::Check { path: NOWHERE.to_owned(), version: -1 }])
}
