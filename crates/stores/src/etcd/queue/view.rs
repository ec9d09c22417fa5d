//! Reads a queue, for one of its candidates or for display.

use std::sync::Arc;

use tenure::Key;
use tenure::protocol::Holder;
use tenure::queue::{Entry, Place, Queue, Ticket};
use tenure::store::StoreError;

use super::super::proto::KeyValue;
use super::super::waits::Topic;
use super::claims::{Own, Stage};
use super::contents::{Part, entry, is_candidate, only, stood, whole};
use super::keys::{is_entry, of_name};
use super::record::{self, Mark};
use super::{Shared, requests, unavailable};

impl Shared {
    pub(super) async fn read_queue(
        &self,
        election: &Key,
        ticket: &Ticket,
    ) -> Result<Queue, StoreError> {
        let doing = || format!("reading the queue of {election}");
        let held = self.claims.of(election, &ticket.candidate);
        let key = held.as_ref().map(|own| self.keys.entry(election, own.seat.name));
        let token = held.as_ref().and_then(|own| match own.stage {
            Stage::Standing { token } => Some(token),
            Stage::Joining | Stage::Lost { .. } => None,
        });
        let entries = self.keys.entries(election);
        let seat = held.as_ref().map(|own| own.seat.name);
        let mut ranges = requests::own(&self.keys, election, seat);
        let heard = self.core.waits.heard(&Topic::one(self.keys.mark(election)));
        // If the mark has changed, the election has most likely ended, and the rest of the queue
        // does not matter. To read all of it for each candidate that leaves would cost much.
        let ending = held.as_ref().is_some_and(|own| heard.is_some_and(|heard| heard > own.mark));
        if !ending {
            ranges.push(requests::first(entries.clone()));
            ranges.extend(token.map(|token| requests::before(entries.clone(), token)));
        }
        let mut read = self.read(ranges, doing).await?;
        let revision = read.revision;
        let (mark, tenure) = (only(read.next()), only(read.next()));
        let own = key.as_ref().and_then(|_| only(read.next()));
        let record = key.as_ref().and_then(|_| only(read.next()));
        let is_open = matches!(Mark::read(mark.as_ref()), Mark::Open { .. });
        let found = own.as_ref().map(|own| entry(own).token);
        let part = if !is_open {
            Part { own, ..Part::default() }
        } else {
            let (first, before) = match found {
                _ if ending => self.around(election, found).await?,
                Some(own) if token != Some(own) => self.around(election, found).await?,
                Some(_) => (only(read.next()), only(read.next())),
                None => (only(read.next()), None),
            };
            let odd = |found: &Option<KeyValue>| {
                found.as_ref().is_some_and(|found| !is_candidate(&entries, found))
            };
            if odd(&first) || odd(&before) {
                self.all(election, key.as_deref()).await?
            } else {
                Part { first, before, own }
            }
        };
        let stood =
            part.own.as_ref().and_then(|own| stood(&self.keys, election, own, record.as_ref()));
        let found = part.own.as_ref().map(entry);
        // Only if the record was deleted by hand, the join that we wait for stands in for it.
        let made_by =
            stood.map(|stood| stood.ticket).or(held.as_ref().map(|own| own.ticket.clone()));
        if let (Some(key), Some(held)) = (key, &held) {
            if !self.is_kept(election, held, part.own.as_ref()) {
                return Err(unavailable(doing(), "our own entry is under a lease that lapses"));
            }
            self.saw(&[(key, part.own.as_ref())], revision);
            if !self.learn(election, held, found.as_ref(), made_by.as_ref()) {
                return Err(unavailable(doing(), "our own entry was given up meanwhile"));
            }
        }
        self.saw(&[(self.keys.mark(election), mark.as_ref())], revision);
        let mut queue = self.assemble(election, ticket, &mark, &tenure, part, revision).await;
        self.sign(&mut queue, found.as_ref(), made_by);
        Ok(queue)
    }

    pub(super) async fn look(&self, election: &Key) -> Result<Queue, StoreError> {
        let doing = || format!("reading the queue of {election}");
        let mut read = self.read(requests::everything(&self.keys, election), doing).await?;
        let (mark, tenure) = (only(read.next()), only(read.next()));
        let (entries, records) = (read.next().kvs, read.next().kvs);
        let range = self.keys.entries(election);
        self.report_unleased(&range, &entries);
        let first = entries.iter().find(|found| is_candidate(&range, found));
        let mut looks = vec![(self.keys.mark(election), mark.as_ref())];
        looks.extend(first.map(|first| (first.key.clone(), Some(first))));
        self.saw(&looks, read.revision);
        let (mark, tenure) = (Mark::read(mark.as_ref()), record::read_tenure(tenure.as_ref()));
        Ok(whole(&self.keys, election, mark, tenure, entries, &records))
    }

    /// Returns true unless our own entry is under a lease that is not kept alive.
    ///
    /// When a seat moves to another lease, the entries claimed there move with it. An entry that
    /// was not claimed then, but is now, would vanish while it leads. So it is left to lapse.
    fn is_kept(&self, election: &Key, held: &Own, own: Option<&KeyValue>) -> bool {
        let now = self.claims.of(election, &held.ticket.candidate);
        // The seat may have moved during the read, in either order.
        let seats = [Some(held.seat), now.map(|now| now.seat)];
        own.is_none_or(|own| seats.into_iter().flatten().any(|seat| seat.keeps(own.lease)))
    }

    /// Records the result of a look at our own entry.
    ///
    /// Returns false if the entry was given up during the look. It may be deleted at any moment,
    /// and must not be taken for ours.
    fn learn(
        &self,
        election: &Key,
        held: &Own,
        own: Option<&Entry>,
        made_by: Option<&Ticket>,
    ) -> bool {
        let candidate = &held.ticket.candidate;
        match own {
            Some(own) if made_by.is_some_and(|ticket| ticket.candidate == *candidate) => {
                let stage = Stage::Standing { token: own.token };
                return self.claims.note(election, &held.ticket, held.session, stage);
            }
            // A join of an earlier candidacy arrived late.
            Some(_) => self.claims.haunt(election, held.seat.name),
            None => {
                if !matches!(held.stage, Stage::Standing { .. }) {
                    // It may still arrive, and then it must be deleted.
                    self.claims.haunt(election, held.seat.name);
                }
                let now = self.claims.of(election, candidate);
                if now.is_some_and(|now| now.ticket == held.ticket && now.stage == held.stage) {
                    self.claims.release(election, candidate, held.session);
                }
            }
        }
        true
    }

    /// Assembles a queue, with the holder of its first entry.
    pub(super) async fn assemble(
        &self,
        election: &Key,
        ticket: &Ticket,
        mark: &Option<KeyValue>,
        tenure: &Option<KeyValue>,
        part: Part,
        revision: i64,
    ) -> Queue {
        let entries = part.in_order();
        let looks: Vec<_> = entries.iter().map(|found| (found.key.clone(), Some(*found))).collect();
        self.saw(&looks, revision);
        let own = part.own.as_ref().map(entry);
        let place = |found: &&KeyValue| Place { entry: entry(found), ticket: None, holder: None };
        let mut places: Vec<Place> = entries.iter().map(place).collect();
        match Mark::read(mark.as_ref()) {
            Mark::Open { generation } => {
                let candidate = &ticket.candidate;
                let written = mark.as_ref().map_or(0, |mark| mark.mod_revision);
                self.claims.saw_mark(election, candidate, written);
                let at = places.iter().position(|place| Some(&place.entry) == own.as_ref());
                let before = at.and_then(|at| places.get(at.checked_sub(1)?));
                let before = before.map(|place| place.entry.token);
                self.claims.saw_before(election, candidate, before, revision);
                if let (Some(first), Some(found)) = (places.first_mut(), entries.first()) {
                    let holder = self.see(election, found).await;
                    let (token, revision) = (first.entry.token, found.mod_revision);
                    self.claims.saw_leader(election, candidate, token, revision, &holder);
                    first.holder = Some(holder);
                }
                let unclean = record::read_tenure(tenure.as_ref());
                Queue::Open { generation, places, unclean, highest: unclean.unwrap_or(0) }
            }
            mark @ (Mark::Ended { .. } | Mark::Missing) => {
                places.retain(|place| Some(&place.entry) == own.as_ref());
                match mark {
                    Mark::Ended { generation } => Queue::Ended { generation, places },
                    Mark::Missing if places.is_empty() => Queue::Missing,
                    // The mark was removed by hand: every generation until now is over, and our
                    // entry must go.
                    Mark::Missing | Mark::Open { .. } => {
                        Queue::Ended { generation: u64::try_from(revision).unwrap_or(0), places }
                    }
                }
            }
        }
    }

    /// Adds the joins that made our own entries.
    fn sign(&self, queue: &mut Queue, own: Option<&Entry>, made_by: Option<Ticket>) {
        let places = match queue {
            Queue::Open { places, .. } | Queue::Ended { places, .. } => places,
            Queue::Missing => return,
        };
        for place in places {
            place.ticket = if Some(&place.entry) == own {
                made_by.clone()
            } else {
                self.own(&place.entry, String::new()).ok().map(|(_, own)| own.ticket)
            };
        }
    }

    /// The holder of this entry.
    async fn see(&self, election: &Key, found: &KeyValue) -> Arc<Holder> {
        let token = entry(found).token;
        let own = self.own(&entry(found), String::new()).ok().map(|(_, own)| own.holder);
        let seen = || self.claims.leader(election, token, found.mod_revision);
        if let Some(holder) = own.or_else(seen) {
            return holder;
        }
        let beside = match self.keys.holder_of(election, &found.key) {
            Some(key) => {
                let doing = || format!("reading who leads {election}");
                let read = self.read(vec![requests::one(key)], doing).await;
                // The record is only for display, and the entry itself is enough.
                read.ok().and_then(|mut read| only(read.next()))
            }
            None => None,
        };
        record::holder(found, stood(&self.keys, election, found, beside.as_ref()).as_ref())
    }

    /// The first in the queue, and the one before our own entry.
    async fn around(
        &self,
        election: &Key,
        own: Option<u64>,
    ) -> Result<(Option<KeyValue>, Option<KeyValue>), StoreError> {
        let entries = self.keys.entries(election);
        let mut ranges = vec![requests::first(entries.clone())];
        ranges.extend(own.map(|token| requests::before(entries, token)));
        let doing = || format!("reading the queue of {election}");
        let mut read = self.read(ranges, doing).await?;
        Ok((only(read.next()), own.and_then(|_| only(read.next()))))
    }

    /// Returns true if no end of the election came before the deletion of this entry.
    ///
    /// The deletion has been reported. The end writes the first entry in the queue in its own
    /// transaction ([`Shared::end`]). The next candidate has seen that entry as the first, so the
    /// entry either was there at the end or was deleted before. It is enough to know that the entry
    /// was not written after the look that showed it in an open queue. Other writes to it are rare,
    /// and after one a look decides.
    pub(super) fn was_open_until_deleted(&self, election: &Key, entry: &Entry) -> bool {
        let looked = self.claims.looked(election, entry.token);
        let topic = Topic::one(of_name(&entry.name));
        looked.is_some_and(|looked| self.core.waits.is_unwritten_since(&topic, looked))
            && !self.has_heard_of_an_end(election)
    }

    /// Returns true if the mark has changed since a candidacy of ours looked at it.
    fn has_heard_of_an_end(&self, election: &Key) -> bool {
        let heard = self.core.waits.heard(&Topic::one(self.keys.mark(election)));
        heard.zip(self.claims.mark(election)).is_some_and(|(heard, seen)| heard > seen)
    }

    /// Warns once of each entry that belongs to no session.
    fn report_unleased(&self, entries: &Topic, all: &[KeyValue]) {
        let by_hand = |found: &&KeyValue| found.lease == 0 && is_entry(entries, &found.key);
        for found in all.iter().filter(by_hand) {
            if self.is_news(&found.key) {
                let key = String::from_utf8_lossy(&found.key);
                tracing::warn!(
                    %key,
                    "etcd: this key has no lease, so it stands for no candidate: it is ignored, and \
                     best deleted"
                );
            }
        }
    }

    /// Reads all keys of a queue, and returns the part that concerns us.
    pub(super) async fn all(&self, election: &Key, own: Option<&[u8]>) -> Result<Part, StoreError> {
        let entries = self.keys.entries(election);
        let doing = || format!("reading the queue of {election}");
        let mut read = self.read(vec![requests::all(entries.clone())], doing).await?;
        let all = read.next().kvs;
        self.report_unleased(&entries, &all);
        Ok(Part::of(all, &entries, own))
    }
}
