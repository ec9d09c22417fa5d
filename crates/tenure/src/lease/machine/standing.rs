//! The next request of a candidate or of a leader.

use std::time::Duration;

use super::footing::Footing;
use super::{
    Flight, Known, MOST_SENT, Machine, Output, Purpose, Request, Sent, Stage, left, mix, portion,
};
use crate::clock::Moment;
use crate::lease::floor::Floor;
use crate::lease::mutant::Mutant;
use crate::lease::record::{MAX_NUMBER, Op, Record, State};
use crate::lease::ruling::{Terms, first};
use crate::protocol::{Ask, Loss, Outcome};
use crate::store::{Durability, Expect, Reads, Version};

impl Machine {
    pub(super) fn act(&mut self, now: Moment, out: &mut Vec<Output>) {
        let busy = self.flight.is_some() || self.pause.is_some();
        match &self.stage {
            Stage::Over => {}
            Stage::Leaving { since, had_lease, .. } => {
                if now.at_least_since(*since) >= self.timing.ttl() {
                    let outcome = if *had_lease {
                        Outcome::Unknown { frees_within: self.frees_within(now, *since) }
                    } else {
                        self.leaving_empty_handed()
                    };
                    self.over(outcome, out);
                } else if !busy {
                    self.leave(now, out);
                }
            }
            Stage::Standing if busy => {}
            // The work is winding down without a lease: claim nothing until it has ended.
            Stage::Standing if self.lease.is_none() && self.working => {}
            Stage::Standing => self.stand(now, out),
        }
    }

    pub(super) fn stand(&mut self, now: Moment, out: &mut Vec<Output>) {
        if self.stale || self.view.is_none() {
            return self.send_read(now, out);
        }
        let Some(due) = self.until_next_request(now) else { return };
        if !due.is_zero() {
            return;
        }
        let Some(view) = &self.view else { return };
        let Some((version, record)) = view.found.clone() else {
            return self.create(now, out);
        };
        if self.must_confirm(&record) {
            return self.rewrite(now, version, &record, Purpose::Confirm, out);
        }
        if self.lease.is_some() {
            return self.renew(now, version, &record, out);
        }
        match self.until_claim(now) {
            Some(span) if span.is_zero() => self.claim(now, version, &record, out),
            Some(_) | None => self.send_read(now, out),
        }
    }

    /// How long until the next request, when none is under way and the view is fresh.
    pub(super) fn until_next_request(&self, now: Moment) -> Option<Duration> {
        match &self.stage {
            Stage::Standing if self.lease.is_none() && self.working => return None,
            Stage::Leaving { .. } | Stage::Over => return None,
            Stage::Standing => {}
        }
        let Some(view) = self.view.as_ref().filter(|_| !self.stale) else {
            return Some(Duration::ZERO);
        };
        if let Some((_, record)) = &view.found
            && self.must_confirm(record)
        {
            return Some(Duration::ZERO);
        }
        if let Some(lease) = &self.lease {
            let due = left(self.timing.heartbeat(), now.at_most_since(lease.from));
            return Some(if self.renew_now { Duration::ZERO } else { due });
        }
        let since_read = self.last_read.map_or(Duration::MAX, |read| now.at_most_since(read));
        let poll = left(self.timing.poll(self.notified), since_read);
        let poll = if self.renew_now { Duration::ZERO } else { poll };
        Some(self.until_claim(now).map_or(poll, |claim| claim.min(poll)))
    }

    /// Returns true if a request is due within an eighth of its interval.
    ///
    /// It may then leave with a batch of other requests.
    pub(super) fn may_renew_early(&self, now: Moment) -> bool {
        if self.flight.is_some() || self.pause.is_some() {
            return false;
        }
        let slack = match &self.lease {
            Some(_) => self.timing.heartbeat() / 8,
            None => self.timing.poll(self.notified) / 8,
        };
        self.until_next_request(now).is_some_and(|due| due <= slack)
    }

    /// Returns true if a weak read showed a record that must be proven by rewriting it.
    ///
    /// That is a record that ends our lease or our candidacy.
    pub(super) fn must_confirm(&self, record: &Record) -> bool {
        if self.reads == Reads::Linearizable {
            return false;
        }
        let not_mine = self
            .lease
            .is_some_and(|lease| !(record.is_held_by(&self.me.id) && record.token == lease.token));
        not_mine || self.is_terminal(record)
    }

    /// The lock delay that a claim of ours puts in force.
    pub(super) fn next_delay(&self, record: &Record) -> Duration {
        self.delay.or(record.next_delay).unwrap_or(record.delay)
    }

    /// How long until the record in view may be claimed; `None` while it may not.
    pub(super) fn until_claim(&self, now: Moment) -> Option<Duration> {
        let span = self.until_free(now)?;
        let Known::Read(Some(_)) = &self.floor else { return Some(span) };
        let found = self.view.as_ref().and_then(|view| view.found.as_ref());
        match found.map(|(_, record)| self.footing(now, record)) {
            Some(Footing::Waits(more)) => Some(span.max(more)),
            Some(
                Footing::Firm { .. } | Footing::Unsigned | Footing::Unread | Footing::Low { .. },
            )
            | None => Some(span),
        }
    }

    /// How long until the record in view may be claimed, without regard to the floor.
    fn until_free(&self, now: Moment) -> Option<Duration> {
        let view = self.view.as_ref()?;
        let Some((_, record)) = &view.found else {
            // A weak read that misses the known record proves nothing. Only creating a new record
            // proves it gone, and a creation forgets no token only where there is a floor.
            let may_create = self.highest_token == 0 || self.block.is_some();
            return may_create.then_some(Duration::ZERO);
        };
        let stood = now.at_least_since(view.since);
        let jitter = portion(record.ttl / 10, view.draw);
        match &record.state {
            State::Ended { .. } => None,
            State::Free { clean } => {
                let delay = if *clean { Duration::ZERO } else { record.delay };
                Some(left(delay + jitter / 10, stood))
            }
            State::Held(holder) if holder.id == self.me.id => {
                // Counted from the loss. When the lease was lost, most of a ttl had already passed
                // since the version was seen. Counting from there, a holder that lapses again and
                // again would never let another candidate in.
                let lapsed = self.lost_at.map_or(stood, |lost| now.at_least_since(lost).min(stood));
                let doubled = (record.ttl / 10) * (1 << self.lapses.saturating_sub(1).min(8));
                Some(left(portion(doubled.min(record.ttl), view.draw), lapsed))
            }
            State::Held(_) => {
                let ttl = if self.is(Mutant::TtlClampedDown) {
                    record.ttl.min(self.timing.ttl())
                } else {
                    record.ttl
                };
                let ttl = if self.is(Mutant::WaitsTooLong) { ttl * 10 } else { ttl };
                let jitter = portion(self.timing.jitter(record.ttl), view.draw);
                let expired = left(ttl + record.delay + jitter, stood);
                let delay =
                    if self.is(Mutant::GoneSkipsDelay) { Duration::ZERO } else { record.delay };
                let died = view.gone.map(|gone| left(delay, now.at_least_since(gone)));
                #[cfg(feature = "mutants")]
                if self.is(Mutant::WallClock) && self.wall >= record.expire {
                    return Some(Duration::ZERO);
                }
                Some(died.map_or(expired, |died| died.min(expired)))
            }
        }
    }

    pub(super) fn send_read(&mut self, now: Moment, out: &mut Vec<Output>) {
        self.renew_now = false;
        let ask = self.next_ask();
        self.flight = Some(Flight { ask, sent: now, request: Request::Read });
        out.push(Output::Read { ask });
    }

    /// Creates the record, to be claimed next.
    fn create(&mut self, now: Moment, out: &mut Vec<Output>) {
        if self.until_claim(now).is_none() {
            return self.send_read(now, out);
        }
        let (ttl, delay, floor) = (self.timing.ttl(), self.delay, self.block.is_some());
        let record = first(Terms { ttl, delay, floor }, self.next_op());
        self.send_write(now, None, record, Purpose::Create, out);
    }

    pub(super) fn claim(
        &mut self,
        now: Moment,
        version: Version,
        record: &Record,
        out: &mut Vec<Output>,
    ) {
        let (token, floor) = match self.footing(now, record) {
            Footing::Firm { token, floor } => (token, floor),
            Footing::Unsigned => return self.sign(now, version, record, out),
            Footing::Unread => return self.send_read_floor(now, out),
            Footing::Low { expect, laid } => return self.send_floor(now, expect, laid, out),
            Footing::Waits(_) => return self.send_read(now, out),
        };
        let reuse = self.is(Mutant::TokenReusedAfterLapse) && record.is_held_by(&self.me.id);
        let token = if reuse { record.token } else { token };
        let op = self.next_op();
        let delay = self.next_delay(record);
        let claimed = Record {
            state: State::Held(self.me.clone()),
            token,
            ttl: self.timing.ttl(),
            delay,
            next_delay: None,
            floor,
            ..record.following(op)
        };
        self.send_write(now, Some(version), claimed, Purpose::Claim, out);
    }

    /// Gives a record that was just created an id that stands for nothing but this write.
    fn sign(&mut self, now: Moment, version: Version, record: &Record, out: &mut Vec<Output>) {
        let op = self.next_op();
        let floor = Some(Floor::signed(op.clone(), self.timing.ttl()));
        let signed = Record { floor, ..record.following(op) };
        self.send_write(now, Some(version), signed, Purpose::Confirm, out);
    }

    pub(super) fn renew(
        &mut self,
        now: Moment,
        version: Version,
        record: &Record,
        out: &mut Vec<Output>,
    ) {
        let op = self.next_op();
        let renewed = Record { state: State::Held(self.me.clone()), ..record.following(op) };
        self.send_write(now, Some(version), renewed, Purpose::Renew, out);
    }

    pub(super) fn rewrite(
        &mut self,
        now: Moment,
        version: Version,
        record: &Record,
        purpose: Purpose,
        out: &mut Vec<Output>,
    ) {
        let op = self.next_op();
        self.send_write(now, Some(version), record.following(op), purpose, out);
    }

    pub(super) fn send_write(
        &mut self,
        now: Moment,
        base: Option<Version>,
        record: Record,
        purpose: Purpose,
        out: &mut Vec<Output>,
    ) {
        if record.token > MAX_NUMBER || record.revision > MAX_NUMBER {
            // Without a renewal the lease would run out later, and the caller would not be told.
            self.lose(now, Loss::Expired, out);
            return self.over(Outcome::Exhausted, out);
        }
        self.renew_now = false;
        let ask = self.next_ask();
        if self.sent.len() == MOST_SENT {
            self.sent.remove(0);
        }
        self.sent.retain(|sent| sent.op != record.op);
        if purpose != Purpose::Create {
            self.sent.push(Sent { op: record.op.clone(), at: now, base: base.clone() });
        }
        let request = Request::Write { record: record.clone(), purpose };
        self.flight = Some(Flight { ask, sent: now, request });
        let expect = base.map_or(Expect::Absent, Expect::At);
        let durability = match (purpose, &record.state) {
            (Purpose::Renew, _) => Durability::UntilPowerCut,
            // A power cut that takes a release back ended its candidates too. It costs the next
            // candidate a ttl. No token is given out twice, because every claim lasts.
            (Purpose::Release, State::Free { .. }) => Durability::UntilPowerCut,
            (
                Purpose::Create
                | Purpose::Release
                | Purpose::Claim
                | Purpose::Confirm
                | Purpose::Fence,
                _,
            ) => Durability::Lasting,
        };
        out.push(Output::Write { ask, expect, record, durability });
    }

    pub(super) fn next_ask(&mut self) -> Ask {
        self.asks += 1;
        Ask::numbered(self.asks)
    }

    pub(super) fn next_op(&mut self) -> Op {
        if !self.is(Mutant::OpReused) || self.sent.is_empty() {
            self.ops += 1;
        }
        Op::new(&self.me.id, self.ops)
    }

    pub(super) fn draw(&mut self) -> u64 {
        self.draws += 1;
        mix(self.seed ^ mix(self.draws))
    }
}
