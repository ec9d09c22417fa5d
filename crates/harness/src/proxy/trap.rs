use super::Direction;
use std::fmt;

type Predicate = Box<dyn Fn(&[u8]) -> bool + Send>;

/// Faults that wait for a certain message.
#[derive(Default)]
pub(super) struct Trap {
    /// Matches requests. The answer to each match is lost, once.
    pub(super) requests: Vec<Predicate>,
    /// How many of the next messages to clients are lost.
    pub(super) answers: u64,
    pub(super) drop_after: Option<(Direction, u64)>,
    pub(super) lost: u64,
}

/// The decision about a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Pass,
    /// Only this many of its bytes pass, and then the connection is closed.
    Part(usize),
    /// The message is swallowed and the connection is closed.
    Lost,
}

impl Trap {
    pub(super) fn disarm(&mut self) {
        *self = Trap { lost: self.lost, ..Trap::default() };
    }

    /// Returns true if the answer to this request must be lost. Each predicate matches once.
    pub(super) fn springs(&mut self, request: &[u8]) -> bool {
        let found = self.requests.iter().position(|matches| matches(request));
        found.map(|index| self.requests.remove(index)).is_some()
    }

    /// Decides about a message. `awaited` is true for an answer that must be lost.
    pub(super) fn judge(&mut self, direction: Direction, length: usize, awaited: bool) -> Verdict {
        let next = direction == Direction::ToClient && self.answers > 0;
        if awaited || next {
            self.answers -= u64::from(!awaited);
            self.lost += 1;
            return Verdict::Lost;
        }
        match &mut self.drop_after {
            Some((way, left)) if *way == direction => match left.checked_sub(length as u64) {
                Some(rest) if rest > 0 => {
                    *left = rest;
                    Verdict::Pass
                }
                Some(_) | None => {
                    // At most the length of the message, which is a usize.
                    let part = *left as usize;
                    self.drop_after = None;
                    Verdict::Part(part)
                }
            },
            Some(_) | None => Verdict::Pass,
        }
    }
}

impl fmt::Debug for Trap {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Trap")
            .field("requests", &self.requests.len())
            .field("answers", &self.answers)
            .field("drop_after", &self.drop_after)
            .field("lost", &self.lost)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Direction::{ToClient, ToServer};

    #[test]
    fn a_request_springs_its_trap_once() {
        let mut trap = Trap::default();
        trap.requests.push(Box::new(|request| request == b"put"));
        assert!(!trap.springs(b"get"));
        assert!(trap.springs(b"put"));
        assert!(!trap.springs(b"put"));
    }

    #[test]
    fn exactly_the_bytes_granted_pass() {
        let mut trap = Trap { drop_after: Some((ToServer, 10)), ..Trap::default() };
        assert_eq!(trap.judge(ToClient, 100, false), Verdict::Pass);
        assert_eq!(trap.judge(ToServer, 6, false), Verdict::Pass);
        assert_eq!(trap.judge(ToServer, 6, false), Verdict::Part(4));
        assert_eq!(trap.judge(ToServer, 6, false), Verdict::Pass);
    }

    #[test]
    fn only_messages_to_clients_are_answers() {
        let mut trap = Trap { answers: 1, ..Trap::default() };
        assert_eq!(trap.judge(ToServer, 1, false), Verdict::Pass);
        assert_eq!(trap.judge(ToClient, 1, false), Verdict::Lost);
        assert_eq!(trap.judge(ToClient, 1, false), Verdict::Pass);
        assert_eq!(trap.lost, 1);
    }

    #[test]
    fn an_awaited_answer_does_not_use_up_the_others() {
        let mut trap = Trap { answers: 1, ..Trap::default() };
        assert_eq!(trap.judge(ToClient, 1, true), Verdict::Lost);
        assert_eq!(trap.answers, 1);
    }
}
