//! Tasks that were lost with their documents, and how an operator gives them up.
//!
//! A task that was taken in stands in a slot until the leader has counted it. When somebody
//! overwrites that document with what makes no sense, or deletes it, nobody can work on the task,
//! and it stays open for ever. *That* some are lost follows from the books: more are open than
//! stand in slots. While the cursor still has the intent that put a task there, it can be put there
//! again, as a new leader does. Of the others nobody knows any more what they were. Only an
//! operator knows that a document does not come back; when one says so each of them gets a slot in
//! which it stands as cancelled, and the leader counts that as any other.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::books::{Books, Found};
use super::documents::{Assignment, Cursor, Format as _, Progress, Slot, first_token};
use crate::store::{Durability, Expect, Fault, Put, StoreExt as _, Version, Write};
use crate::{Error, Key};

/// How often it is looked, where the leader changes the books meanwhile.
const MOST_LOOKS: u32 = 64;
/// How often, by somebody who only wants to know.
const FEW_LOOKS: u32 = 8;
/// How long it is waited before one looks again.
const PAUSE: Duration = Duration::from_millis(50);
/// The number of a task whose number nobody knows: those that are given out begin with 1.
const UNKNOWN: u64 = 0;

/// What became of the tasks that were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GivenUp {
    /// So many were still known to the books, and wait in their slots again.
    pub restored: u64,
    /// So many are counted as cancelled.
    pub lost: u64,
}

/// What stands where, at one moment.
#[derive(Default)]
struct Look {
    /// How many tasks are open, and stand nowhere: nobody knows what they were.
    lost: u64,
    /// Tasks that the cursor still has, and that do not stand where it says: the leader is about to
    /// write them, or has.
    known: Vec<(Key, Expect, Assignment)>,
    /// Slots that make no sense, and are none of these.
    garbled: Vec<(Key, Version)>,
    /// A slot in which nothing stands that anybody could read.
    place: Option<(Key, Expect)>,
}

impl Look {
    /// How many are missing. A slot that is yet to be written may be absent, but it makes sense if
    /// it is there.
    fn missing(&self) -> u64 {
        let overwritten = |(_, expect, _): &&(Key, Expect, Assignment)| *expect != Expect::Absent;
        self.lost + self.known.iter().filter(overwritten).count() as u64
    }
}

impl Books {
    /// How many tasks were lost, because the documents of their slots were overwritten or deleted;
    /// `None` when the books change faster than they can be read.
    ///
    /// # Errors
    /// [`Error::Store`] when the store does not serve, [`Error::Document`] when the cursor or the
    /// cluster document makes no sense.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn lost(&self) -> Result<Option<u64>, Error> {
        for _ in 0..FEW_LOOKS {
            if let Some(look) = self.look_for_lost().await? {
                return Ok(Some(look.missing()));
            }
            self.sleep(PAUSE).await;
        }
        Ok(None)
    }

    /// Puts those tasks back that were lost and that the books still know, and gives the others up:
    /// each is counted as cancelled. Slots that make no sense are freed.
    ///
    /// Do it only when their documents do not come back: what is restored after this would be
    /// counted once more. Where [reads prove nothing](crate::Reads::Weak) two looks must agree that
    /// are a ttl apart.
    ///
    /// # Errors
    /// As for [`Books::lost`]; [`Error::Contended`] when the books changed all the time:
    /// [pause](Books::pause) them.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future leaves it open how many were given up.
    pub async fn give_up_lost(&self) -> Result<GivenUp, Error> {
        let mut first = None;
        for _ in 0..MOST_LOOKS {
            let Some(look) = self.surely_lost().await? else {
                self.sleep(PAUSE).await;
                continue;
            };
            let restored = look.missing() - look.lost;
            let all = *first.get_or_insert(GivenUp { restored, lost: look.lost });
            if !look.known.is_empty() {
                self.put_back(look.known).await;
                continue;
            }
            if look.lost == 0 {
                self.free(look.garbled).await;
                self.call_leader().await;
                return Ok(all);
            }
            match look.place {
                Some((key, expect)) => self.put_as_cancelled(&key, expect).await?,
                // Every slot is full: the next one that is at its end makes room.
                None => self.sleep(PAUSE).await,
            }
        }
        Err(Error::Contended { attempts: MOST_LOOKS })
    }

    async fn surely_lost(&self) -> Result<Option<Look>, Error> {
        let first = self.look_for_lost().await?;
        let is_news = first.as_ref().is_some_and(|look| look.missing() > 0);
        if !is_news || !self.is_weak() {
            return Ok(first);
        }
        self.sleep(self.timing.ttl()).await;
        let second = self.look_for_lost().await?;
        let lost = |look: &Option<Look>| look.as_ref().map(|look| (look.lost, look.missing()));
        Ok(if lost(&first) == lost(&second) { second } else { None })
    }

    /// One look at everything, between two looks at the cursor: while that stands still only ends
    /// and claims are written into slots, and nothing goes in or out.
    async fn look_for_lost(&self) -> Result<Option<Look>, Error> {
        let Some((version, cursor)) = self.read::<Cursor>(&self.keys.cursor()).await? else {
            return Ok(Some(Look::default()));
        };
        let keys: Vec<Key> =
            (0..self.slots().await?).map(|number| self.keys.slot(number)).collect();
        let slots = self.find_many::<Slot>(&keys).await?;
        let still = self.store().get(&self.keys.cursor()).await?;
        if still.is_none_or(|document| document.version != version) {
            return Ok(None);
        }
        Ok(Some(tell(&cursor, keys, slots)))
    }

    /// Puts a task whose name nobody knows into a slot, at its end.
    async fn put_as_cancelled(&self, key: &Key, expect: Expect) -> Result<(), Error> {
        let nobody = self.backend.parts().fresh_id();
        let task = Assignment {
            serial: UNKNOWN,
            id: "(lost)".into(),
            kind: "(lost)".into(),
            payload: Bytes::new(),
            attempts: 1,
            timeout: None,
            // For nobody: it comes from no source, which need not hear of it either.
            to: Some(nobody),
            receipt: None,
        };
        let error = "the document of its slot was overwritten or deleted, and it was given up";
        let slot = Slot { cancel: true, ..self.slot(task, Progress::Dead { error: error.into() }) };
        match self.store().put(key, expect, slot.encode()).await {
            // The next look shows what happened.
            Ok(Put::Stored(_) | Put::Conflict) => Ok(()),
            Err(error) if error.fault == Fault::Indeterminate => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes tasks into their slots as the cursor says, which only a leader does otherwise:
    /// whoever is slower conflicts.
    async fn put_back(&self, known: Vec<(Key, Expect, Assignment)>) {
        let nobody = Progress::Outstanding { avoid: None, error: None };
        let write = |(key, expect, task)| Write {
            key,
            expect,
            body: Some(self.slot(task, nobody.clone()).encode()),
            durability: Durability::Lasting,
        };
        let writes: Vec<Write> = known.into_iter().map(write).collect();
        for error in self.store().put_many(writes).await.into_iter().filter_map(Result::err) {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            tracing::warn!(cluster = %self.name, %error, cause, "a slot was not written; it is looked at again");
        }
    }

    /// A slot that is written for the first time.
    fn slot(&self, task: Assignment, progress: Progress) -> Slot {
        Slot {
            token: first_token(task.serial),
            task: Arc::new(task),
            progress,
            cancel: false,
            attempt: 0,
            ttl: self.timing.ttl(),
            revision: 1,
            op: self.fresh_op(),
        }
    }

    /// Deletes what makes no sense and holds no task. That somebody wrote something else there
    /// meanwhile is as good.
    async fn free(&self, garbled: Vec<(Key, Version)>) {
        let delete = |(key, version)| Write {
            key,
            expect: Expect::At(version),
            body: None,
            durability: Durability::Lasting,
        };
        let writes: Vec<Write> = garbled.into_iter().map(delete).collect();
        if writes.is_empty() {
            return;
        }
        for error in self.store().put_many(writes).await.into_iter().filter_map(Result::err) {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            tracing::warn!(cluster = %self.name, %error, cause, "a slot that makes no sense was not freed");
        }
    }
}

/// What is lost, by what stands in the slots and what the cursor is about to put there.
fn tell(cursor: &Cursor, keys: Vec<Key>, slots: Vec<Option<Found<Slot>>>) -> Look {
    // Where the cluster document lost count there may be slots that were not looked at.
    let beyond = cursor.intents.iter().filter(|intent| intent.slot >= keys.len());
    let mut there = beyond.filter(|intent| intent.task.is_some()).count() as u64;
    let (mut known, mut garbled, mut empty) = (Vec::new(), Vec::new(), None);
    for (number, (key, found)) in keys.into_iter().zip(slots).enumerate() {
        let token = found.as_ref().and_then(|found| Some(found.content.as_ref().ok()?.token));
        let intent = cursor.intents.iter().find(|intent| {
            intent.slot == number && token.is_none_or(|token| token < first_token(intent.serial))
        });
        match (intent, found) {
            // It is about to be written, or was and is gone again.
            (Some(intent), found) => {
                there += u64::from(intent.task.is_some());
                let readable = found.as_ref().is_some_and(|found| found.content.is_ok());
                let expect = found.map_or(Expect::Absent, |found| Expect::At(found.version));
                // Over what can be read only the leader writes.
                let task = intent.task.clone().filter(|_| !readable);
                known.extend(task.map(|task| (key, expect, task)));
            }
            (None, None) => empty = empty.or(Some((key, Expect::Absent))),
            (None, Some(Found { version, content: Err(_) })) => garbled.push((key, version)),
            (None, Some(Found { version, content: Ok(slot) })) => match slot.progress {
                Progress::Vacant => empty = empty.or(Some((key, Expect::At(version)))),
                Progress::Outstanding { .. }
                | Progress::Held(_)
                | Progress::Done { .. }
                | Progress::Dead { .. } => there += u64::from(slot.task.serial < cursor.next),
            },
        }
    }
    let first = garbled
        .first()
        .map(|(key, version): &(Key, Version)| (key.clone(), Expect::At(version.clone())));
    let (lost, place) = (cursor.open().saturating_sub(there), first.or(empty));
    Look { lost, known, garbled, place }
}
