//! The end of faults: a candidate leads soon (L2).
//!
//! Every candidacy that was to end has ended.
//!
//! # The bound
//! The protocol promises failover within `R (T + D + J) + P` and two round trips of a *crash*.
//! Clocks here run at real time or faster (rates 1 to 5/4), so a wait on a candidate's own clock
//! never takes longer in real time, and R is 1. The bound counts from the moment of quiet. By then
//! all activity from before the end of the faults is over: messages of up to 3T have arrived, work
//! has wound down, and processes have started.
//!
//! - `Q`: a request that was lost just before is given up;
//! - `P + P/2`: then a candidate polls, or rests half a poll after a failure, and reads;
//! - `2 round trips`: a candidate that is leaving, or that confirms a weak read, may rewrite the
//!   record once more, which restarts the timer of every other candidate;
//! - `T + D + J`: the record of a dead holder stands still; or a candidate that lapsed waits out a
//!   jitter of at most T;
//! - `B + T/50`: work of a candidacy that ended winds down, and its process stands again;
//! - `2 round trips`: the claim, and its answer.
//!
//! T and D are the longest of any candidate and of the record, because the record's times are in
//! force.

use std::time::Duration;

use super::Rare;
use super::injection::Wish;
use super::world::{Happening, World};
use crate::kernel::{Instant, Promise, nanos};

/// The state since the faults stopped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Healing {
    /// When all earlier activity was over.
    quiet: Option<Instant>,
}

impl World {
    pub(super) fn heal(&mut self) {
        self.kernel.note(|| "HEAL".to_owned());
        self.healing = Some(Healing { quiet: None });
        self.outage = false;
        self.rejoin();
        self.mend();
        for node in 0..self.nodes.len() {
            self.nodes[node].cut = false;
            self.resume(node);
            self.watch(node);
        }
        if self.is_ended() && self.kernel.rng.permille(500) {
            self.send_outsider(Wish::Create);
        }
        let quiet = self.last_arrival(true).unwrap_or(self.kernel.now) - self.kernel.now;
        self.kernel.schedule(quiet + 1, Happening::Quiet);
    }

    pub(super) fn quiet(&mut self) {
        // Work may have been told to stop since, or an outsider may be about to write after a late
        // answer: that is earlier activity, too.
        if let Some(last) = self.last_arrival(false) {
            return self.kernel.schedule(last + 1 - self.kernel.now, Happening::Quiet);
        }
        self.kernel.note(|| "QUIET".to_owned());
        if self.is_ended() {
            // A process that is to stand would only find the election ended.
        } else {
            for node in 0..self.nodes.len() {
                self.stand(node);
            }
        }
        self.healing = Some(Healing { quiet: Some(self.kernel.now) });
        let bound = self.bound();
        self.kernel.schedule(bound, Happening::Deadline);
    }

    fn bound(&self) -> u64 {
        let record = self.document.current().map(|stored| &stored.record);
        let ttl = record.map_or(Duration::ZERO, |record| record.ttl).max(self.swarm.longest_ttl());
        let delay = self.swarm.delays.iter().flatten().max().copied().unwrap_or_default();
        let delay = record.map_or(Duration::ZERO, |record| record.delay).max(delay);
        let delay = record.and_then(|record| record.next_delay).unwrap_or_default().max(delay);
        // After a deletion candidates wait for a tenure as long as the floor says.
        let floor = self.floor.current().map(|stored| &stored.record.floor);
        let ttl = floor.map_or(Duration::ZERO, |floor| floor.ttl).max(ttl);
        let delay = floor.map_or(Duration::ZERO, |floor| floor.delay).max(delay);
        let of = |part: fn(&tenure::Timing, bool) -> Duration| {
            let parts = self.swarm.timings.iter().map(|timing| part(timing, self.swarm.notified));
            parts.max().unwrap_or_default()
        };
        let request = of(|timing, _| timing.request());
        let poll = of(|timing, notified| timing.poll(notified));
        let rest = of(|timing, _| timing.poll(false)) / 2;
        let again = of(|timing, _| timing.grace()) + ttl / 50;
        let waits = ttl + delay + ttl / 10 + poll + rest + request + again;
        nanos(waits) + 4 * 2 * self.swarm.network.most
    }

    /// Checks that a candidate leads by now, or that all have left an ended election.
    pub(super) fn deadline(&mut self) {
        self.kernel.note(|| "DEADLINE".to_owned());
        if self.is_ended() {
            let standing = self.nodes.iter().find(|process| process.machine.is_some());
            match standing {
                Some(process) => {
                    let how = format!("candidate {} never leaves an ended election", process.who);
                    self.kernel.breaks(Promise::Recovery, how);
                }
                None => self.kernel.saw(Rare::HealedEnded),
            }
            return self.kernel.schedule(1, Happening::End);
        }
        if self.leader().is_none() {
            let quiet = self.healing.and_then(|healing| healing.quiet).unwrap_or(0);
            let how = format!("nobody leads {} ns after the last fault", self.kernel.now - quiet);
            self.kernel.breaks(Promise::Recovery, how);
        }
        self.kernel.saw(Rare::HealedLed);
        let more = nanos(self.swarm.longest_ttl()) * 3 / 2;
        self.kernel.schedule(more, Happening::End);
    }

    /// Checks that a candidate still leads, and that leaving candidates have left.
    pub(super) fn end(&mut self) {
        self.kernel.note(|| "END".to_owned());
        self.kernel.end();
        if !self.is_ended() && self.leader().is_none() {
            self.kernel.breaks(Promise::Recovery, "a healthy leader was lost".to_owned());
        }
        for node in 0..self.nodes.len() {
            let leaving = self.nodes[node].leaving;
            if leaving.is_some_and(|since| since + self.longest_leave(node) < self.kernel.now) {
                let how = format!("candidate {} never finishes leaving", self.nodes[node].who);
                self.kernel.breaks(Promise::TruthfulOutcome, how);
            }
        }
    }
}
