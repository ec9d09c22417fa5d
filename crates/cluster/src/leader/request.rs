//! The requests of the leader to the store, the answers, and the state that all phases share.

use std::collections::BTreeSet;
use std::sync::Arc;

use tenure::lease::record::Op;
use tenure::store::{Durability, Expect, Fault, Page, Put, Reads, StoreError, Version, Write};
use tenure::{CandidateId, Key, Moment};

use super::{Output, Settings};
use crate::client::{Found, Shown};
use crate::documents::{DocumentError, Format, MemberId};
use crate::error::ClusterError;
use crate::event::Event;

/// A request to the store.
#[derive(Clone, Debug)]
pub enum Request {
    /// Reads these documents, all of them or none.
    Read(Vec<Key>),
    /// Looks at these documents. One that the store refuses to show does not hide the others.
    Look(Arc<[Key]>),
    /// Lists documents under a prefix.
    List {
        /// The prefix.
        prefix: Key,
        /// The key to go on after.
        after: Option<Key>,
        /// The most documents to list.
        limit: usize,
    },
    /// Carries out these writes, each with its own outcome.
    Write(Vec<Write>),
    /// Changes the document that wakes the nodes.
    Ring,
    /// Takes these members from the node list.
    RemoveMembers(BTreeSet<MemberId>),
    /// Closes gaps in the inbox from this page on. Answers true if there was one.
    MendInbox(u64),
}

/// The answer to a request.
#[derive(Debug)]
pub enum Answer {
    /// To [`Request::Read`] and [`Request::Look`], in the order of the keys.
    Shown(Result<Vec<Shown>, StoreError>),
    /// To [`Request::List`].
    Listed(Result<Page, StoreError>),
    /// To [`Request::Write`], in the order of the writes.
    Wrote(Vec<Result<Put, StoreError>>),
    /// To the other requests.
    Done(Result<bool, ClusterError>),
}

impl Request {
    /// Reads one document.
    pub(super) fn read(key: Key) -> Request {
        Request::Read(vec![key])
    }

    /// Writes one document, lasting.
    pub(super) fn put<T: Format>(key: Key, expect: Expect, content: &T) -> Request {
        Request::Write(vec![put(key, expect, content)])
    }
}

/// A lasting write of one document.
pub(super) fn put<T: Format>(key: Key, expect: Expect, content: &T) -> Write {
    Write { key, expect, body: Some(content.encode()), durability: Durability::Lasting }
}

impl Answer {
    pub(super) fn shown(self) -> Result<Vec<Shown>, StoreError> {
        match self {
            Answer::Shown(shown) => shown,
            Answer::Listed(_) | Answer::Wrote(_) | Answer::Done(_) => Err(mismatch()),
        }
    }

    /// The decoded documents of a look.
    pub(super) fn found<T: Format>(self) -> Result<Vec<Option<Found<T>>>, StoreError> {
        Ok(self.shown()?.into_iter().map(Shown::decode).collect())
    }

    /// The only document that was asked for: its version, and its content if that makes sense.
    pub(super) fn one<T: Format>(self) -> Result<Option<Found<T>>, StoreError> {
        Ok(self.found()?.into_iter().next().flatten())
    }

    pub(super) fn version(self) -> Result<Option<Version>, StoreError> {
        let shown = self.shown()?.into_iter().next();
        Ok(shown.and_then(Shown::document).map(|document| document.version))
    }

    pub(super) fn listed(self) -> Result<Page, StoreError> {
        match self {
            Answer::Listed(page) => page,
            Answer::Shown(_) | Answer::Wrote(_) | Answer::Done(_) => Err(mismatch()),
        }
    }

    pub(super) fn wrote(self) -> Vec<Result<Put, StoreError>> {
        match self {
            Answer::Wrote(outcomes) => outcomes,
            Answer::Shown(_) | Answer::Listed(_) | Answer::Done(_) => Vec::new(),
        }
    }

    /// The outcome of the only write. A write without an outcome may have taken effect.
    pub(super) fn put(self) -> Result<Put, StoreError> {
        self.wrote().into_iter().next().unwrap_or_else(|| Err(mismatch()))
    }

    pub(super) fn done(self) -> Result<bool, ClusterError> {
        match self {
            Answer::Done(done) => done,
            Answer::Shown(_) | Answer::Listed(_) | Answer::Wrote(_) => Err(mismatch().into()),
        }
    }
}

fn mismatch() -> StoreError {
    let says = "the backend gave no outcome";
    StoreError::new(Fault::Indeterminate, "store", "planning", says)
}

/// The next move of an activity that takes several requests.
#[derive(Debug)]
pub(super) enum Next<A, T> {
    /// It sends this request, and goes on with its answer.
    Ask(A, Request),
    /// It is over.
    Done(T),
}

/// The state that all phases share.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) settings: Settings,
    /// The time of this step.
    pub(super) now: Moment,
    /// Milliseconds since 1970, only shown to people.
    pub(super) wall: u64,
    ops: u64,
    pub(super) outputs: Vec<Output>,
}

impl Common {
    pub(super) fn new(settings: Settings, now: Moment) -> Common {
        Common { settings, now, wall: 0, ops: 0, outputs: Vec::new() }
    }

    pub(super) fn op(&mut self) -> Op {
        self.ops += 1;
        Op::new(&self.settings.ops, self.ops)
    }

    pub(super) fn is_weak(&self) -> bool {
        self.settings.reads == Reads::Weak
    }

    pub(super) fn tell(&mut self, event: Event) {
        self.outputs.push(Output::Tell(event));
    }

    pub(super) fn warn(&mut self, says: &'static str, about: impl ToString) {
        let about = about.to_string();
        self.outputs.push(Output::Warn(Warning { says, about, error: None, cause: None }));
    }

    pub(super) fn warn_of(
        &mut self,
        says: &'static str,
        about: impl ToString,
        error: &dyn std::error::Error,
    ) {
        let (about, cause) = (about.to_string(), error.source().map(ToString::to_string));
        let error = Some(error.to_string());
        self.outputs.push(Output::Warn(Warning { says, about, error, cause }));
    }

    pub(super) fn garbled(&mut self, key: Key, error: DocumentError) {
        self.warn_of("a document makes no sense", &key, &error);
        self.tell(Event::Garbled { key, error });
    }
}

/// A line for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The message.
    pub says: &'static str,
    /// The key, the serial or the member that it is about.
    pub about: String,
    /// The error, if there was one.
    pub error: Option<String>,
    /// The cause of the error.
    pub cause: Option<String>,
}

/// The id under which a leadership makes its ops. No other leadership has it.
pub type OpId = CandidateId;
