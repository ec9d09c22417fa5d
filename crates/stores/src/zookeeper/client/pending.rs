//! The answer to a request on its way.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use super::super::wire::{Malformed, Reader};
use super::error::Error;
use super::state::{Answer, Outcome};

/// Parses an answer.
pub(in super::super) type Read<T> = fn(&mut Reader<'_>) -> Result<T, Malformed>;

/// The answer to a request. The request is on its way even if this is never polled.
///
/// Dropping it does not take back the request.
#[derive(Debug)]
#[must_use = "its answer says whether it was done"]
pub struct Pending<T> {
    answer: oneshot::Receiver<Outcome>,
    read: Option<Read<T>>,
}

impl<T> Pending<T> {
    pub(super) fn new(answer: oneshot::Receiver<Outcome>, read: Read<T>) -> Pending<T> {
        Pending { answer, read: Some(read) }
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T, Error>> {
        let outcome = std::task::ready!(Pin::new(&mut self.answer).poll(context));
        let read = self.read.take();
        Poll::Ready(match (outcome, read) {
            (Ok(Ok(answer)), Some(read)) => read_answer(&answer, read),
            (Ok(Err(error)), _) => Err(error),
            // The task that would have answered is gone.
            (Err(_), _) | (Ok(Ok(_)), None) => Err(Error::Lost),
        })
    }
}

/// Parses an answer.
pub(in super::super) fn read_answer<T>(answer: &Answer, read: Read<T>) -> Result<T, Error> {
    read(&mut Reader::new(&answer.body)).map_err(Error::from)
}
