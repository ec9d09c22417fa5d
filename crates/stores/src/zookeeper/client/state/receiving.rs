//! Handles the server's frames: finds the request of each answer, and tells its callers.

use std::time::Duration;

use bytes::Bytes;
use tenure::Moment;
use tenure::queue::window::Voice;

use super::super::error::Error;
use super::super::voice::{overtakes, voice};
use super::requests::{Answer, Awaited, Join, Made};
use super::{End, FEWEST_FLYING, MOST_FLYING, State};
use crate::zookeeper::wire::{self, Code, Head, Malformed, NOTIFICATION, Reader};

impl State {
    /// Handles one frame.
    pub(in super::super) fn receive(&mut self, now: Moment, frame: &[u8]) -> Result<(), End> {
        let mut reader = Reader::new(frame);
        let head = Head::read(&mut reader)?;
        self.contact = Some(now);
        if head.number == NOTIFICATION {
            if let Some(event) = wire::Event::read(reader)? {
                self.watches.ring(event);
            }
            return Ok(());
        }
        check_session(head.refused)?;
        match head.refused {
            // A server before 3.6 refuses this ahead of its other answers, and closes the
            // connection.
            Some(Code::Unimplemented) if self.is_about_many(head.number) => {
                self.many_from = u64::MAX;
                return Err(End::Lost("the server reads nodes one by one only".to_owned()));
            }
            Some(_) | None => {}
        }
        let place = self.place(head)?;
        if self.flying[place].is_transaction {
            // A follower passes on the leader's verdict on the session in the body.
            let refused = wire::results(&mut { reader }).ok().and_then(Result::err);
            check_session(refused.map(|(_, code)| code))?;
        }
        let flying = self.flying.remove(place).ok_or(End::Malformed)?;
        self.seen = self.seen.max(head.zxid);
        self.weight -= flying.weight;
        self.many_answered |= flying.reads_many;
        self.adapt(now.at_most_since(flying.sent), flying.number, flying.weight);
        let voice = voice(flying.kind, head.refused);
        match place {
            0 => self.window.answered(now, voice),
            _ => self.window.overtaken(place),
        }
        if let (Awaited::Barrier(barrier), Voice::Ensemble) = (&flying.awaited, voice) {
            self.proven_barrier = *barrier;
        }
        self.answer(flying.awaited, head.refused, reader);
        Ok(())
    }

    /// Finds the request that was answered.
    ///
    /// Answers come in the order of the requests. Only a refusal by a server that checks
    /// permissions itself may overtake others. Any other order breaks ZooKeeper's protocol.
    fn place(&self, head: Head) -> Result<usize, End> {
        let place = self.flying.iter().position(|flying| flying.number == head.number);
        let place = place.ok_or(End::Malformed)?;
        let in_order = place == 0 || overtakes(self.flying[place].kind, head.refused);
        if in_order { Ok(place) } else { Err(End::Malformed) }
    }

    fn is_about_many(&self, number: i32) -> bool {
        self.flying.iter().any(|flying| flying.reads_many && flying.number == number)
    }

    /// Raises the limit while answers come quickly, and lowers it when they do not.
    fn adapt(&mut self, waited: Duration, number: i32, weight: usize) {
        let request = self.window.request();
        if waited > request / 3 {
            if number > self.lowered {
                self.limit = (self.limit / 2).max(FEWEST_FLYING);
                self.lowered = self.requests;
            }
        } else if waited < request / 6 {
            self.limit = (self.limit + weight).min(MOST_FLYING);
        }
    }

    fn answer(&mut self, awaited: Awaited, refused: Option<Code>, mut reader: Reader<'_>) {
        let session = self.number;
        match (awaited, refused) {
            (Awaited::Nobody | Awaited::Barrier(_), _) => {}
            (Awaited::Answer(reply), refused) => {
                let body = Bytes::copy_from_slice(reader.rest());
                let _ = reply.send(match refused {
                    Some(code) => Err(code.into()),
                    None => Ok(Answer { body }),
                });
            }
            (Awaited::Answers { replies, barrier }, refused) => {
                let body = Bytes::copy_from_slice(reader.rest());
                // Answers keep their order, so the barrier before it has been answered.
                let unproven = barrier.is_some_and(|barrier| self.proven_barrier < barrier);
                let outcome = match refused {
                    Some(_) | None if unproven => Err(Error::Unproven),
                    Some(code) => Err(Error::from(code)),
                    None => Ok(Answer { body }),
                };
                for reply in replies {
                    let _ = reply.send(outcome.clone());
                }
            }
            (Awaited::Join(join), refused) => {
                let made = match refused {
                    Some(code) => Err(code.into()),
                    None => wire::created(&mut reader)
                        .map(|(path, stat)| Made { path, stat, session })
                        .map_err(Error::from),
                };
                let _ = join.reply.send(made);
            }
            (Awaited::Joins(joins), Some(_)) => self.one_by_one(joins),
            (Awaited::Joins(joins), None) => match wire::results(&mut reader) {
                Ok(Ok(made)) if made.len() == joins.len() => {
                    for (join, made) in joins.into_iter().zip(made) {
                        // A candidate that gets no token must look for its entry. The next entries
                        // are sent alone.
                        self.joins_together &= made.is_some();
                        let made = made.map(|(path, stat)| Made { path, stat, session });
                        let _ = join.reply.send(made.ok_or(Error::Malformed));
                    }
                }
                Ok(Ok(_)) | Err(Malformed) => {
                    for join in joins {
                        let _ = join.reply.send(Err(Error::Malformed));
                    }
                }
                Ok(Err(_)) => self.one_by_one(joins),
            },
        }
    }

    /// Queues the entries of a refused transaction again, each to be sent alone.
    ///
    /// None of them was created.
    fn one_by_one(&mut self, joins: Vec<Join>) {
        for join in joins.into_iter().rev() {
            self.joins.push_front(Join { alone: true, ..join });
        }
    }
}

/// Ends the connection if the server says that the session is over, or has moved.
fn check_session(refused: Option<Code>) -> Result<(), End> {
    if refused == Some(Code::SessionExpired) {
        return Err(End::Expired);
    }
    if refused == Some(Code::SessionMoved) {
        // Another connection has taken the session over, so this one is of no use.
        return Err(End::Lost("the session moved".to_owned()));
    }
    Ok(())
}
