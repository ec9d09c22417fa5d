//! Sends the requests that wait, as many as the server can take.

use std::collections::{HashMap, HashSet, VecDeque};

use tenure::Moment;

use super::State;
use super::requests::{Awaited, Flying, Join, Listing, Order, barrier};
use crate::zookeeper::wire::Request;

/// The maximum number of entries created in one transaction.
const MOST_JOINS: usize = 500;
/// The maximum size of the data of these entries.
const MOST_JOINED_BYTES: usize = 512 << 10;
/// The capacity that is kept for waiting requests.
const ROOM: usize = 256;

impl State {
    /// Moves waiting requests to the wire, as many as the server can take.
    pub(in super::super) fn send(&mut self, now: Moment, out: &mut Vec<u8>) {
        while self.weight < self.limit {
            // Entries first: a request made after an entry must see a queue that shows it.
            if let Some(joins) = self.next_joins() {
                self.send_joins(now, joins, out);
                continue;
            }
            match self.orders.pop_front() {
                None => return self.tidy(),
                Some(Order::Barrier(number)) => {
                    self.barrier_waits = false;
                    self.fly(now, &barrier(), Awaited::Barrier(number), out);
                }
                Some(Order::List(listing)) => {
                    let [queues, owns] = self.lists.remove(&listing).unwrap_or_default();
                    let Listing { root: path, barrier } = listing;
                    let children = Request::Children { path: path.clone(), watch: false };
                    self.fly(now, &children, Awaited::Answers { replies: queues, barrier }, out);
                    let own = Request::Data { path, watch: false };
                    self.fly(now, &own, Awaited::Answers { replies: owns, barrier }, out);
                }
                // The caller no longer waits for it.
                Some(Order::Ask { reply, .. }) if reply.is_closed() => {}
                Some(Order::Ask { request, reply, barrier: None }) => {
                    self.fly(now, &request, Awaited::Answer(reply), out);
                }
                Some(Order::Ask { request, reply, barrier }) => {
                    self.fly(
                        now,
                        &request,
                        Awaited::Answers { replies: vec![reply], barrier },
                        out,
                    );
                }
            }
        }
    }

    /// Frees the memory that a burst of requests took.
    fn tidy(&mut self) {
        if self.orders.capacity() > ROOM {
            self.orders = VecDeque::new();
        }
        if self.joins.capacity() > ROOM && self.joins.is_empty() {
            self.joins = VecDeque::new();
        }
        if self.lists.capacity() > ROOM && self.lists.is_empty() {
            self.lists = HashMap::new();
        }
    }

    /// Asks the server to close the session.
    pub(in super::super) fn say_goodbye(&mut self, now: Moment, out: &mut Vec<u8>) {
        self.fly(now, &Request::Close, Awaited::Nobody, out);
    }

    fn next_joins(&mut self) -> Option<Vec<Join>> {
        let mut joins: Vec<Join> = Vec::new();
        let (mut roots, mut bytes) = (HashSet::new(), 0);
        // One transaction is far less work than one request for each entry.
        let most = if self.joins_together { (self.limit * 8).min(MOST_JOINS) } else { 1 };
        while let Some(join) = self.joins.pop_front() {
            if join.reply.is_closed() {
                continue;
            }
            bytes += join.entry.size();
            let fits = joins.len() < most && bytes <= MOST_JOINED_BYTES && !join.alone;
            // Entries of one transaction would have the same token.
            let goes_along = joins.is_empty() || fits && !roots.contains(&join.root);
            if !goes_along {
                self.joins.push_front(join);
                break;
            }
            roots.insert(join.root.clone());
            let alone = join.alone;
            joins.push(join);
            if alone {
                break;
            }
        }
        (!joins.is_empty()).then_some(joins)
    }

    fn send_joins(&mut self, now: Moment, mut joins: Vec<Join>, out: &mut Vec<u8>) {
        if joins.len() == 1
            && let Some(join) = joins.pop()
        {
            let entry = join.entry.clone();
            self.fly(now, &entry, Awaited::Join(join), out);
        } else {
            let parts = joins.iter().map(|join| join.entry.clone()).collect();
            self.fly(now, &Request::Multi(parts), Awaited::Joins(joins), out);
        }
    }

    pub(super) fn fly(
        &mut self,
        now: Moment,
        request: &Request,
        awaited: Awaited,
        out: &mut Vec<u8>,
    ) {
        self.requests = self.requests.wrapping_add(1).max(1);
        let (number, weight, kind) = (self.requests, request.weight(), request.kind());
        self.window.sent(now, kind);
        request.write(out, number);
        self.weight += weight;
        let reads_many = matches!(request, Request::ManyData(_));
        let is_transaction = matches!(request, Request::Multi(_));
        let sent = now;
        let flying = Flying { number, sent, weight, kind, reads_many, is_transaction, awaited };
        self.flying.push_back(flying);
    }
}
