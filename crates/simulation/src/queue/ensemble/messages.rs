//! The messages between processes and servers, and among the servers.

use std::sync::Arc;

use bytes::Bytes;
use tenure::protocol::Holder;
use tenure::queue::{Entry, Freshness, Joined, Left, Line, Ticket};

use super::super::moving::Step;
use crate::history::Who;

/// A request in flight.
#[derive(Clone, Debug)]
pub(in super::super) struct Errand {
    pub(in super::super) node: usize,
    pub(in super::super) connection: u64,
    pub(in super::super) session: usize,
    pub(in super::super) id: u64,
    pub(in super::super) request: Request,
}

/// A handshake in flight.
#[derive(Clone, Debug)]
pub(in super::super) struct Greeting {
    pub(in super::super) node: usize,
    pub(in super::super) connection: u64,
    pub(in super::super) session: Option<usize>,
    /// The newest transaction that the process has seen. It refuses a server that is behind.
    pub(in super::super) seen: u64,
}

#[derive(Clone, Debug)]
pub(in super::super) enum Request {
    /// A heartbeat that any server answers.
    Beat,
    /// A heartbeat that a quorum answers.
    Touch,
    /// Answered by the leader, in the order of the streams.
    Sync,
    KeepAlive,
    Get,
    /// Takes one step towards another lease, in this term.
    Move(Step, u64),
    Join {
        who: Who,
        ticket: Ticket,
        holder: Arc<Holder>,
    },
    Line(Freshness),
    Begin(Entry),
    Note(Entry),
    Leave {
        entry: Entry,
        /// Whether the machine calls the tenure clean.
        clean: bool,
        /// Whether the backend takes back the record of the tenure in the same transaction.
        takes_back: bool,
    },
    End(u64),
    Publish {
        entry: Entry,
        value: Bytes,
    },
}

/// The answer to a request; lines are filled in when the answer leaves.
#[derive(Clone, Debug)]
pub(in super::super) enum Answer {
    Done,
    KeptAlive {
        term: u64,
        alive: bool,
    },
    Got {
        session: usize,
        term: u64,
        /// Whether the key of the session exists.
        alive: bool,
        ours: Vec<(Entry, Ticket)>,
    },
    /// This step is done.
    Moved(Step),
    Joined(Joined),
    Line(Line),
    /// Whether the beginning of a tenure was recorded.
    Begun {
        token: u64,
        recorded: bool,
    },
    Noted,
    Left(Left),
    Ended,
    Published,
    /// The session is over: the server says so instead of answering.
    Expired,
    /// The session has moved to another connection.
    Elsewhere,
    /// One server refused this without asking the others. It read the line all the same.
    Refused {
        request: Request,
        line: Line,
    },
}

/// A message from another server to the leader.
#[derive(Clone, Debug)]
pub(in super::super) enum Up {
    Pong { touched: Vec<usize> },
    Errand(Errand),
    Greeting(Greeting),
}

/// A message from the leader to another server.
#[derive(Clone, Debug)]
pub(in super::super) enum Down {
    Ping,
    Commit { zxid: u64, answer: Option<(Errand, Answer)> },
    Answer { errand: Errand, answer: Answer },
    Welcome { greeting: Greeting, session: Option<usize> },
}

pub(super) fn is_write(request: &Request) -> bool {
    match request {
        Request::Beat | Request::Sync | Request::KeepAlive | Request::Get => false,
        Request::Touch
        | Request::Move(..)
        | Request::Join { .. }
        | Request::Line(_)
        | Request::Begin(_)
        | Request::Note(_)
        | Request::Leave { .. }
        | Request::Publish { .. }
        | Request::End(_) => true,
    }
}
