//! Takes requests from callers, and keeps them until they can be sent.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::super::MOST_BYTES;
use super::super::error::Error;
use super::State;
use super::requests::{Join, Listing, Order, Outcome};
use crate::zookeeper::wire::Request;

/// The maximum number of requests that wait to be sent.
const MOST_ORDERS: usize = 1 << 17;

impl State {
    pub(in super::super) fn ask(
        &mut self,
        request: Request,
        after_barrier: bool,
    ) -> oneshot::Receiver<Outcome> {
        let (reply, answer) = oneshot::channel();
        match self.refuse(&request) {
            Some(error) => {
                let _ = reply.send(Err(error));
            }
            None => {
                let barrier = after_barrier.then(|| self.barrier());
                self.orders.push_back(Order::Ask { request, reply, barrier });
            }
        }
        answer
    }

    /// Puts a write before the next request. A barrier that still waits to be sent is shared.
    fn barrier(&mut self) -> u64 {
        if !std::mem::replace(&mut self.barrier_waits, true) {
            self.barriers += 1;
            self.orders.push_back(Order::Barrier(self.barriers));
        }
        self.barriers
    }

    /// Reads the candidates of a queue, and then the election's own node.
    ///
    /// The order matters: otherwise a candidate might be taken for one of an election that had
    /// ended before.
    ///
    /// A thousand candidates of one program may want the same queue: a read that still waits to be
    /// sent serves them all.
    pub(in super::super) fn list(
        &mut self,
        root: Arc<str>,
        after_barrier: bool,
    ) -> [oneshot::Receiver<Outcome>; 2] {
        let (tell_queue, queue) = oneshot::channel();
        let (tell_own, own) = oneshot::channel();
        if !self.is_up() || self.orders.len() >= MOST_ORDERS {
            for reply in [tell_queue, tell_own] {
                let _ = reply.send(Err(Error::Unsent));
            }
            return [queue, own];
        }
        let listing = Listing { root, barrier: after_barrier.then(|| self.barrier()) };
        if !self.lists.contains_key(&listing) {
            self.orders.push_back(Order::List(listing.clone()));
        }
        let [queues, owns] = self.lists.entry(listing).or_default();
        queues.push(tell_queue);
        owns.push(tell_own);
        [queue, own]
    }

    pub(in super::super) fn join(&mut self, join: Join) {
        match self.refuse(&join.entry) {
            Some(error) => {
                let _ = join.reply.send(Err(error));
            }
            None => self.joins.push_back(join),
        }
    }

    fn refuse(&self, request: &Request) -> Option<Error> {
        let bytes = request.size();
        if bytes > MOST_BYTES {
            return Some(Error::TooLong { bytes });
        }
        let full = self.orders.len() + self.joins.len() >= MOST_ORDERS;
        (full || !self.is_up()).then_some(Error::Unsent)
    }
}
