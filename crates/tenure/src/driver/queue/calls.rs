//! A machine's requests to its queue, as calls that always end.

use std::future::Future;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};

use super::super::SlotId;
use super::super::requests::{Done, LONGEST_CALL};
use crate::Key;
use crate::protocol::Ask;
use crate::queue::machine::Input;
use crate::queue::{Entry, Freshness, Joined, Left, Queue, SessionQueue, Ticket};
use crate::store::{Fault, StoreError};

/// The answer of a queue.
pub(crate) enum Answer {
    Joined(Ask, Result<Joined, StoreError>),
    Read(Ask, Result<Queue, StoreError>),
    Begun(Ask, Result<(), StoreError>),
    Noted(Ask, Result<(), StoreError>),
    Left(Ask, Result<Left, StoreError>),
    Ended(Ask, Result<(), StoreError>),
    Published(Ask, Result<(), StoreError>),
}

impl Answer {
    pub(super) fn error(&self) -> Option<&StoreError> {
        match self {
            Answer::Joined(_, answer) => answer.as_ref().err(),
            Answer::Read(_, answer) => answer.as_ref().err(),
            Answer::Left(_, answer) => answer.as_ref().err(),
            Answer::Begun(_, answer)
            | Answer::Noted(_, answer)
            | Answer::Ended(_, answer)
            | Answer::Published(_, answer) => answer.as_ref().err(),
        }
    }

    /// Returns true if the answer shows the queue.
    pub(super) fn is_look(&self) -> bool {
        match self {
            Answer::Joined(..) | Answer::Read(..) => true,
            Answer::Begun(..)
            | Answer::Noted(..)
            | Answer::Left(..)
            | Answer::Ended(..)
            | Answer::Published(..) => false,
        }
    }

    pub(super) fn into_input(self) -> Input {
        let fault = |error: StoreError| error.fault;
        match self {
            Answer::Joined(ask, answer) => Input::Joined(ask, answer.map_err(fault)),
            Answer::Read(ask, answer) => Input::Read(ask, answer.map_err(fault)),
            Answer::Begun(ask, answer) => Input::Begun(ask, answer.map_err(fault)),
            Answer::Noted(ask, answer) => Input::Noted(ask, answer.map_err(fault)),
            Answer::Left(ask, answer) => Input::Left(ask, answer.map_err(fault)),
            Answer::Ended(ask, answer) => Input::Ended(ask, answer.map_err(fault)),
            Answer::Published(ask, answer) => Input::Published(ask, answer.map_err(fault)),
        }
    }
}

/// One candidacy's access to its queue.
pub(super) struct Caller<'a> {
    pub(super) id: SlotId,
    pub(super) queue: &'a Arc<dyn SessionQueue>,
    pub(super) key: &'a Key,
}

impl Caller<'_> {
    pub(super) fn join(
        &self,
        ask: Ask,
        ticket: Ticket,
        holder: Arc<crate::protocol::Holder>,
    ) -> BoxFuture<'static, Done> {
        self.call(
            "joining the queue",
            move |queue, key| async move {
                Answer::Joined(ask, queue.join(&key, &ticket, &holder).await)
            },
            move |error| Answer::Joined(ask, Err(error)),
        )
    }

    pub(super) fn read(
        &self,
        ask: Ask,
        ticket: Ticket,
        freshness: Freshness,
    ) -> BoxFuture<'static, Done> {
        self.call(
            "reading the queue",
            move |queue, key| async move {
                Answer::Read(ask, queue.read(&key, &ticket, freshness).await)
            },
            move |error| Answer::Read(ask, Err(error)),
        )
    }

    pub(super) fn begin(&self, ask: Ask, entry: Entry) -> BoxFuture<'static, Done> {
        self.call(
            "beginning a tenure",
            move |queue, _| async move { Answer::Begun(ask, queue.begin(&entry).await) },
            move |error| Answer::Begun(ask, Err(error)),
        )
    }

    pub(super) fn note(&self, ask: Ask, entry: Entry) -> BoxFuture<'static, Done> {
        self.call(
            "recording a token",
            move |queue, _| async move { Answer::Noted(ask, queue.note(&entry).await) },
            move |error| Answer::Noted(ask, Err(error)),
        )
    }

    pub(super) fn leave(&self, ask: Ask, entry: Entry, clean: bool) -> BoxFuture<'static, Done> {
        self.call(
            "leaving the queue",
            move |queue, _| async move { Answer::Left(ask, queue.leave(&entry, clean).await) },
            move |error| Answer::Left(ask, Err(error)),
        )
    }

    pub(super) fn end(&self, ask: Ask, generation: u64) -> BoxFuture<'static, Done> {
        self.call(
            "ending the election",
            move |queue, key| async move { Answer::Ended(ask, queue.end(&key, generation).await) },
            move |error| Answer::Ended(ask, Err(error)),
        )
    }

    pub(super) fn publish(
        &self,
        ask: Ask,
        entry: Entry,
        value: bytes::Bytes,
    ) -> BoxFuture<'static, Done> {
        self.call("publishing a value", move |queue, _| async move {
            Answer::Published(ask, queue.publish(&entry, &value).await)
        }, move |error| Answer::Published(ask, Err(error)))
    }

    /// Makes a call with a time limit.
    ///
    /// Dropping an overdue call leaves its outcome unknown, so it is reported as indeterminate.
    fn call<F>(
        &self,
        doing: &'static str,
        begin: impl FnOnce(Arc<dyn SessionQueue>, Key) -> F + Send + 'static,
        overdue: impl FnOnce(StoreError) -> Answer + Send + 'static,
    ) -> BoxFuture<'static, Done>
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        let (id, queue, key) = (self.id, self.queue.clone(), self.key.clone());
        async move {
            let doing = format!("{doing} of {key}");
            let answer = tokio::time::timeout(LONGEST_CALL, begin(queue, key)).await;
            let answer = answer.unwrap_or_else(|_| {
                let says = "the backend did not end its call";
                overdue(StoreError::new(Fault::Indeterminate, "queue", doing, says))
            });
            Done::Queue(id, answer)
        }
        .boxed()
    }
}
