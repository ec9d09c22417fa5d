//! The floor under a claim. A claim that would exceed the floor raises it first.

use std::time::Duration;

use super::{Flight, Known, Machine, Output, Request, SeenFloor, left, portion};
use crate::clock::Moment;
use crate::lease::floor::{Floor, Laid};
use crate::lease::mutant::Mutant;
use crate::lease::record::{MAX_NUMBER, Op, Record};
use crate::store::{Expect, Fault, Put, Reads};

/// The answer to whether the floor allows a claim of the record in view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Footing {
    /// The claim may go ahead with this token.
    Firm { token: u64, floor: Option<Floor> },
    /// The record must get an id first that no creation gives it.
    Unsigned,
    /// The floor must be read first.
    Unread,
    /// The floor must be raised first.
    Low { expect: Expect, laid: Laid },
    /// The record replaces a deleted one. The deleted record's last tenure may still last this
    /// long.
    Waits(Duration),
}

impl Machine {
    pub(super) fn footing(&self, now: Moment, record: &Record) -> Footing {
        let next = record.token.saturating_add(1);
        let Some(block) = self.block else {
            return Footing::Firm { token: next, floor: record.floor.clone() };
        };
        let is_unsigned = record.floor.as_ref().is_some_and(Floor::is_unsigned);
        if self.reads == Reads::Weak && is_unsigned && !self.is(Mutant::CreationNamed) {
            return Footing::Unsigned;
        }
        let (ttl, delay) = (self.timing.ttl(), self.next_delay(record));
        let covers = |floor: &Floor, token| match self.broken_cover() {
            Some(Mutant::FloorNotRaised) => floor.token > 0,
            Some(_) => token <= floor.token,
            None => floor.covers(token, ttl, delay),
        };
        if let Some(floor) = record.floor.as_ref().filter(|floor| covers(floor, next)) {
            return Footing::Firm { token: next, floor: Some(floor.clone()) };
        }
        let raised = |id: &Op, base: u64, token: u64, before: Option<&Floor>| {
            let held = before.map_or(0, |floor| floor.token);
            let enough = if token <= held { held } else { (token - 1).saturating_add(block) };
            let floor = Floor {
                id: id.clone(),
                // A claim with a larger token is refused when it is written.
                token: enough.min(MAX_NUMBER),
                ttl: before.map_or(ttl, |floor| floor.ttl.max(ttl)),
                delay: before.map_or(delay, |floor| floor.delay.max(delay)),
            };
            Laid { floor, base: base.min(MAX_NUMBER), op: self.upcoming_op() }
        };
        // A record from before there were floors gets an id with its first floor.
        let id = record.floor.as_ref().map_or_else(|| self.upcoming_op(), |floor| floor.id.clone());
        let from_nothing = || Footing::Low {
            expect: Expect::Absent,
            laid: raised(&id, record.token, next, record.floor.as_ref()),
        };
        let (version, laid) = match &self.floor {
            // A record that was never claimed has no floor document yet, unless an earlier record
            // was deleted. The conditional write finds out.
            Known::Unread if record.floor.as_ref().is_some_and(|floor| floor.token == 0) => {
                return from_nothing();
            }
            Known::Unread | Known::Doubtful => return Footing::Unread,
            Known::Read(None) => return from_nothing(),
            Known::Read(Some((version, laid))) => (Some(version), laid),
            Known::Raised(laid) => (None, laid),
        };
        let named = match &record.floor {
            Some(floor) => floor.id == laid.floor.id,
            // A record from before there were floors has no id. If the floor's op is that of our
            // raise for this very version, then the floor is that raise, and its answer was lost.
            None => self.raising.as_ref() == Some(&laid.op),
        };
        let Some(version) = version else {
            let token = self.above(record, laid);
            return Footing::Firm { token, floor: Some(laid.floor.clone()) };
        };
        let expect = Expect::At(version.clone());
        if named {
            let token = self.above(record, laid);
            let proven =
                self.reads == Reads::Linearizable || self.is(Mutant::FloorBelievedOnWeakRead);
            if proven && covers(&laid.floor, token) {
                return Footing::Firm { token, floor: Some(laid.floor.clone()) };
            }
            // A weak read proves nothing, so we write the floor again: the acknowledgement proves
            // it.
            let laid = raised(&id, laid.base, token, Some(&laid.floor));
            return Footing::Low { expect, laid };
        }
        let waits = self.until_forgotten(now, laid);
        if !waits.is_zero() {
            return Footing::Waits(waits);
        }
        let base = laid.floor.token.max(record.token);
        let laid = raised(&id, base, base.saturating_add(1), Some(&laid.floor));
        Footing::Low { expect, laid }
    }

    /// The next token for a record that is named by the floor.
    fn above(&self, record: &Record, laid: &Laid) -> u64 {
        let base = if self.is(Mutant::DeletedTokenForgotten) { 0 } else { laid.base };
        record.token.max(base).saturating_add(1)
    }

    /// How long the last tenure of a deleted record, and its lock delay, may still last.
    fn until_forgotten(&self, now: Moment, laid: &Laid) -> Duration {
        let Some(view) = &self.view else { return Duration::ZERO };
        if self.is(Mutant::DeletedTenureNotWaitedFor) {
            return Duration::ZERO;
        }
        let jitter = portion(self.timing.jitter(laid.floor.ttl), view.draw);
        left(laid.floor.ttl + laid.floor.delay + jitter, now.at_least_since(view.since))
    }

    fn broken_cover(&self) -> Option<Mutant> {
        [Mutant::FloorNotRaised, Mutant::FloorKeepsFirstTerms]
            .into_iter()
            .find(|mutant| self.is(*mutant))
    }

    pub(super) fn send_read_floor(&mut self, now: Moment, out: &mut Vec<Output>) {
        self.renew_now = false;
        let ask = self.next_ask();
        self.flight = Some(Flight { ask, sent: now, request: Request::ReadFloor });
        out.push(Output::ReadFloor { ask });
    }

    pub(super) fn send_floor(
        &mut self,
        now: Moment,
        expect: Expect,
        laid: Laid,
        out: &mut Vec<Output>,
    ) {
        self.renew_now = false;
        // The floor is doubtful until the store confirms the raise.
        self.floor = Known::Doubtful;
        self.raising = Some(laid.op.clone());
        self.ops += 1;
        let ask = self.next_ask();
        let request = Request::WriteFloor(laid.clone());
        self.flight = Some(Flight { ask, sent: now, request });
        out.push(Output::WriteFloor { ask, expect, laid });
    }

    pub(super) fn take_floor(
        &mut self,
        now: Moment,
        answer: Result<Option<SeenFloor>, Fault>,
        out: &mut Vec<Output>,
    ) {
        self.floor = match answer {
            Ok(None) => Known::Read(None),
            Ok(Some(SeenFloor { version, laid: Ok(laid) })) => Known::Read(Some((version, laid))),
            Ok(Some(SeenFloor { version: _, laid: Err(error) })) => {
                out.push(Output::Garbled(error));
                // An operator may mend the floor. Until then no token is known to be above all
                // others.
                self.stale = true;
                return self.rest(now);
            }
            Err(fault) => return self.fail(now, fault, out),
        };
    }

    pub(super) fn take_laid(
        &mut self,
        now: Moment,
        laid: Laid,
        answer: Result<Put, Fault>,
        out: &mut Vec<Output>,
    ) {
        match answer {
            Ok(Put::Stored(_)) => self.floor = Known::Raised(laid),
            // Another candidate raised the floor, and is about to claim.
            Ok(Put::Conflict) => self.met_conflict(now),
            Err(fault) => self.fail(now, fault, out),
        }
    }

    /// The op of the next write.
    fn upcoming_op(&self) -> Op {
        Op::new(&self.me.id, self.ops + 1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use bytes::Bytes;

    use super::super::{Input, Seen, Settings};
    use super::*;
    use crate::CandidateId;
    use crate::lease::record::RecordError;
    use crate::lease::ruling::{Terms, first};
    use crate::protocol::{Farewell, Holder, Lease};
    use crate::store::Version;
    use crate::timing::Timing;

    const BLOCK: u64 = 2;

    /// Both documents of one election, and the requests for them.
    #[derive(Default)]
    struct Documents {
        record: Option<(Version, Record)>,
        floor: Option<(Version, Laid)>,
        versions: u64,
        asked: Vec<&'static str>,
        /// If true, the next answer to a raise is lost.
        loses_raise: bool,
    }

    impl Documents {
        fn next(&mut self, expect: &Expect, current: Option<&Version>) -> Option<Version> {
            let holds = match expect {
                Expect::Absent => current.is_none(),
                Expect::At(version) => current == Some(version),
            };
            self.versions += 1;
            holds.then(|| Version::new(self.versions.to_string()))
        }

        /// Steps a machine, and answers each of its requests at once.
        fn run(&mut self, machine: &mut Machine, now: Moment, input: Input) -> Option<Lease> {
            let mut outputs = VecDeque::from(machine.step(now, input));
            let mut elected = None;
            while let Some(output) = outputs.pop_front() {
                let answer = match output {
                    Output::Read { ask } => {
                        self.asked.push("read");
                        let found = self.record.clone();
                        let seen =
                            found.map(|(version, record)| Seen { version, record: Ok(record) });
                        Input::Read(ask, Ok(seen))
                    }
                    Output::ReadFloor { ask } => {
                        self.asked.push("read floor");
                        let found = self.floor.clone();
                        let seen =
                            found.map(|(version, laid)| SeenFloor { version, laid: Ok(laid) });
                        Input::ReadFloor(ask, Ok(seen))
                    }
                    Output::Write { ask, expect, record, .. } => {
                        self.asked.push("write");
                        let current = self.record.as_ref().map(|(version, _)| version.clone());
                        let put = self.next(&expect, current.as_ref());
                        if let Some(version) = put.clone() {
                            self.record = Some((version, record));
                        }
                        Input::Wrote(ask, Ok(put.map_or(Put::Conflict, Put::Stored)))
                    }
                    Output::WriteFloor { ask, expect, laid } => {
                        self.asked.push("write floor");
                        let current = self.floor.as_ref().map(|(version, _)| version.clone());
                        let put = self.next(&expect, current.as_ref());
                        if let Some(version) = put.clone() {
                            self.floor = Some((version, laid));
                        }
                        if std::mem::take(&mut self.loses_raise) {
                            Input::Wrote(ask, Err(Fault::Indeterminate))
                        } else {
                            Input::Wrote(ask, Ok(put.map_or(Put::Conflict, Put::Stored)))
                        }
                    }
                    Output::Elected(lease) => {
                        elected = Some(lease);
                        continue;
                    }
                    Output::Extended(_)
                    | Output::MustStop
                    | Output::Lost { .. }
                    | Output::Suspended
                    | Output::Resumed
                    | Output::Following(_)
                    | Output::Garbled(_)
                    | Output::Over(_) => continue,
                };
                outputs.extend(machine.step(now, answer));
            }
            elected
        }

        /// Lets a candidate stand until it leads, and then leave.
        fn tenure(&mut self, number: u128, timing: Timing, reads: Reads) -> Tenure {
            let mut machine = candidate(number, timing, reads);
            let (mut now, begun) = (Moment::default(), Moment::default());
            self.asked.clear();
            let mut elected = self.run(&mut machine, now, Input::Notified(true));
            while elected.is_none() {
                now = now + machine.wake(now).expect("it waits for something");
                elected = self.run(&mut machine, now, Input::Tick);
            }
            let asked = std::mem::take(&mut self.asked);
            self.run(&mut machine, now, Input::Release(Farewell::Free));
            let token = elected.map_or(0, |lease| lease.token);
            Tenure { token, asked, waited: now.at_least_since(begun) }
        }

        fn lead(&mut self, number: u128) -> Tenure {
            self.tenure(number, Timing::default(), Reads::Linearizable)
        }

        fn floor(&self) -> &Laid {
            &self.floor.as_ref().expect("a floor").1
        }
    }

    struct Tenure {
        token: u64,
        asked: Vec<&'static str>,
        waited: Duration,
    }

    fn candidate(number: u128, timing: Timing, reads: Reads) -> Machine {
        let id = CandidateId::from_bits(number);
        let name = format!("c{number}").into();
        let candidate = Holder { id, name, value: Bytes::new(), presence: None };
        let (delay, floor, seed) = (None, Some(BLOCK), 1);
        Machine::new(Settings { candidate, timing, delay, reads, floor, seed })
    }

    fn twice_as_long() -> Timing {
        Timing::new(Timing::default().ttl() * 2).expect("longer leaves more room")
    }

    #[test]
    fn only_the_claim_that_would_exceed_the_floor_writes_it() {
        let mut documents = Documents::default();
        let first = documents.lead(1);
        assert_eq!(
            (first.token, &first.asked[..]),
            (1, &["read", "write", "write floor", "write"][..])
        );
        assert_eq!((documents.floor().base, documents.floor().floor.token), (0, 2));
        let second = documents.lead(2);
        assert_eq!((second.token, &second.asked[..]), (2, &["read", "write"][..]));
        let third = documents.lead(3);
        let crossing = ["read", "read floor", "write floor", "write"];
        assert_eq!((third.token, &third.asked[..]), (3, &crossing[..]));
        assert_eq!(documents.floor().floor.token, 4);
    }

    #[test]
    fn a_longer_ttl_raises_the_floor_before_its_claim() {
        let mut documents = Documents::default();
        documents.lead(1);
        let longer = documents.tenure(2, twice_as_long(), Reads::Linearizable);
        assert_eq!(longer.asked, ["read", "read floor", "write floor", "write"]);
        assert_eq!(documents.floor().floor.ttl, twice_as_long().ttl());
        let shorter = documents.lead(3);
        assert!(shorter.asked.contains(&"write floor"), "token 3 exceeds it: {:?}", shorter.asked);
        assert_eq!(documents.floor().floor.ttl, twice_as_long().ttl(), "it never shrinks");
    }

    /// An isolated Elasticsearch primary may have shown it before, and a candidate waited then.
    #[test]
    fn a_creation_that_is_carried_out_again_on_a_weak_store_is_waited_for_again() {
        let mut documents = Documents::default();
        let (ttl, op) = (Timing::default().ttl(), Op::new(&CandidateId::from_bits(9), 1));
        let created = first(Terms { ttl, delay: None, floor: true }, op);
        documents.record = Some((Version::new("first"), created.clone()));
        let led = documents.tenure(1, Timing::default(), Reads::Weak);
        assert_eq!((led.token, &led.asked[1..4]), (1, &["write", "write floor", "write"][..]));
        documents.record = Some((Version::new("again"), created));
        let next = documents.tenure(2, Timing::default(), Reads::Weak);
        assert_eq!(next.token, 3, "the floor was 2");
        assert!(next.waited >= ttl, "waited {:?}", next.waited);
    }

    #[test]
    fn a_deleted_records_token_and_time_are_not_forgotten() {
        for reads in [Reads::Linearizable, Reads::Weak] {
            let mut documents = Documents::default();
            documents.tenure(1, twice_as_long(), reads);
            documents.record = None;
            let next = documents.tenure(2, Timing::default(), reads);
            assert_eq!(next.token, 3, "the floor was 2");
            assert!(next.waited >= twice_as_long().ttl(), "{reads:?} waited {:?}", next.waited);
            let after = documents.tenure(3, Timing::default(), reads);
            assert_eq!(after.token, 4);
            assert!(after.waited < Timing::default().ttl() / 10, "waited {:?}", after.waited);
        }
    }

    #[test]
    fn a_creation_that_comes_late_does_not_hide_a_deletion() {
        let mut documents = Documents::default();
        let mut late = candidate(1, Timing::default(), Reads::Linearizable);
        let now = Moment::default();
        let read = late.step(now, Input::Tick);
        let [Output::Read { ask }] = read[..] else { panic!("it reads: {read:?}") };
        let mut created = late.step(now, Input::Read(ask, Ok(None)));
        let Some(Output::Write { record, .. }) = created.pop() else { panic!("{created:?}") };
        documents.lead(2);
        documents.record = Some((Version::new("late"), record));
        let next = documents.lead(3);
        assert_eq!(next.token, 3, "the floor was 2");
        assert!(next.waited >= Timing::default().ttl(), "waited {:?}", next.waited);
    }

    /// This holds even if the answer to the raise is lost.
    #[test]
    fn a_record_from_before_there_were_floors_is_claimed_as_ever() {
        for (reads, loses_raise) in
            [Reads::Linearizable, Reads::Weak].into_iter().flat_map(|r| [(r, false), (r, true)])
        {
            let mut documents = Documents::default();
            documents.lead(1);
            let (version, record) = documents.record.take().expect("a record");
            documents.record = Some((version, Record { floor: None, token: 57, ..record }));
            (documents.floor, documents.loses_raise) = (None, loses_raise);
            let next = documents.tenure(2, Timing::default(), reads);
            assert_eq!((next.token, documents.floor().floor.token), (58, 59), "{loses_raise}");
            assert!(next.waited < Timing::default().ttl() / 2, "waited {:?}", next.waited);
            let after = documents.tenure(3, Timing::default(), reads);
            assert!(after.waited < Timing::default().ttl() / 2, "waited {:?}", after.waited);
        }
    }

    /// An older version of the program claims without knowing of floors. Its record may differ from
    /// the one that the floor names.
    #[test]
    fn a_record_without_its_floor_is_waited_for_and_both_tokens_are_exceeded() {
        for (token, next_token) in [(57, 58), (1, 3)] {
            let mut documents = Documents::default();
            documents.lead(1);
            let (version, record) = documents.record.take().expect("a record");
            documents.record = Some((version, Record { floor: None, token, ..record }));
            let next = documents.lead(2);
            assert_eq!(next.token, next_token, "the floor was 2, and the record had {token}");
            assert!(next.waited >= Timing::default().ttl(), "waited {:?}", next.waited);
            assert!(
                documents.lead(3).waited < Timing::default().ttl() / 10,
                "it has a floor again"
            );
        }
    }

    #[test]
    fn a_floor_that_makes_no_sense_is_reported_and_nothing_is_claimed() {
        let mut machine = candidate(1, Timing::default(), Reads::Linearizable);
        let mut documents = Documents::default();
        documents.lead(2);
        documents.lead(3);
        let now = Moment::default();
        let read = machine.step(now, Input::Tick);
        let [Output::Read { ask }] = read[..] else { panic!("it reads: {read:?}") };
        let (version, record) = documents.record.clone().expect("a record");
        let _ = machine.step(now, Input::Read(ask, Ok(Some(Seen { version, record: Ok(record) }))));
        let now = now + machine.wake(now).expect("a jitter");
        let asks = machine.step(now, Input::Tick);
        let [Output::ReadFloor { ask }] = asks[..] else { panic!("it reads the floor: {asks:?}") };
        let says = RecordError::Field { field: "floor", says: "garbage".into() };
        let seen = SeenFloor { version: Version::new("x"), laid: Err(says.clone()) };
        assert_eq!(
            machine.step(now, Input::ReadFloor(ask, Ok(Some(seen)))),
            [Output::Garbled(says)]
        );
    }
}
