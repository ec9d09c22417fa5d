//! Tasks that were lost with their documents, and how an operator gives them up.
//!
//! A task that was taken in stands in a slot until the leader has counted it. If that document is
//! deleted, or overwritten so that it makes no sense, no node can work on the task, and it stays
//! open for ever. The cluster's records show *that* tasks are lost: more are open than stand in
//! slots. While the cursor still has the intent that put a task there, the task can be put there
//! again, as a new leader does. The content of all other lost tasks is unknown. Only an operator
//! knows that a document does not come back. When the operator says so, each of these tasks gets a
//! slot in which it stands as cancelled, and the leader counts it like any other.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tenure::Key;
use tenure::store::{Durability, Expect, Fault, Put, StoreExt as _, Version, Write};

use super::client::{ClusterClient, Found};
use super::documents::{Assignment, Cursor, Format as _, Progress, Slot, first_token};
use crate::error::ClusterError;

/// How many looks to take when giving tasks up. The leader changes the cluster's records meanwhile.
const MOST_LOOKS: u32 = 64;
/// How many looks to take when only counting lost tasks.
const FEW_LOOKS: u32 = 8;
/// The pause before another look.
const PAUSE: Duration = Duration::from_millis(50);
/// The serial number of a task with an unknown number. Those that are given out begin with 1.
const UNKNOWN: u64 = 0;

/// The result of giving up lost tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GivenUp {
    /// How many were still known to the cluster's records, and wait in their slots again.
    pub restored: u64,
    /// How many are counted as cancelled.
    pub lost: u64,
}

/// The state of all slots at one moment.
#[derive(Default)]
struct Look {
    /// How many tasks are open but stand nowhere. Their content is unknown.
    lost: u64,
    /// Tasks that the cursor still has, but that are not in their slots. The leader is about to
    /// write them, or has written them.
    known: Vec<(Key, Expect, Assignment)>,
    /// Slots that make no sense, and into which the cursor puts nothing.
    garbled: Vec<(Key, Version)>,
    /// A slot without a readable task: it makes no sense, is vacant or is absent.
    place: Option<(Key, Expect)>,
}

impl Look {
    /// The number of missing tasks.
    ///
    /// A slot that the leader is yet to write may be absent, so it does not count. If it is there,
    /// it must make sense.
    fn missing(&self) -> u64 {
        let overwritten = |(_, expect, _): &&(Key, Expect, Assignment)| *expect != Expect::Absent;
        self.lost + self.known.iter().filter(overwritten).count() as u64
    }
}

impl ClusterClient {
    /// Counts the tasks that were lost with the documents of their slots.
    ///
    /// The documents were overwritten or deleted. Returns `None` if the cluster's records change
    /// faster than they can be read.
    ///
    /// # Errors
    /// [`ClusterError::Store`] when the store does not serve, [`ClusterError::Document`] when the
    /// cursor or the cluster document makes no sense.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn lost(&self) -> Result<Option<u64>, ClusterError> {
        for _ in 0..FEW_LOOKS {
            if let Some(look) = self.look_for_lost().await? {
                return Ok(Some(look.missing()));
            }
            self.sleep(PAUSE).await;
        }
        Ok(None)
    }

    /// Restores the lost tasks that the cluster's records still know, and gives up the others.
    ///
    /// Each task that is given up is counted as cancelled. Slots that make no sense are freed.
    ///
    /// Call this only if the documents do not come back: a document that is restored later would be
    /// counted once more. Where [reads prove nothing](tenure::store::Reads::Weak), two looks that are a ttl
    /// apart must agree.
    ///
    /// # Errors
    /// As for [`ClusterClient::lost`], and [`ClusterError::Contended`] when the cluster's records
    /// changed all the time: then [pause](ClusterClient::pause) the cluster.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future leaves it open how many tasks were given up.
    pub async fn give_up_lost(&self) -> Result<GivenUp, ClusterError> {
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
                // Every slot is full: the next task that ends makes room.
                None => self.sleep(PAUSE).await,
            }
        }
        Err(ClusterError::Contended { attempts: MOST_LOOKS })
    }

    async fn surely_lost(&self) -> Result<Option<Look>, ClusterError> {
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

    /// Reads all slots, between two reads of the cursor.
    ///
    /// While the cursor stands still, only ends and claims are written into slots, and no task goes
    /// in or out. Returns `None` if the cursor changed.
    async fn look_for_lost(&self) -> Result<Option<Look>, ClusterError> {
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

    /// Puts a task of unknown content into a slot, ended as cancelled.
    async fn put_as_cancelled(&self, key: &Key, expect: Expect) -> Result<(), ClusterError> {
        let nobody = self.backend.fresh_id();
        let task = Assignment {
            serial: UNKNOWN,
            id: "(lost)".into(),
            kind: "(lost)".into(),
            payload: Bytes::new(),
            attempts: 1,
            timeout: None,
            // No member has this id. A task with an address does not come from the source, so the
            // source is not told of it.
            to: Some(nobody),
            receipt: None,
        };
        let error = "the document of its slot was overwritten or deleted, and it was given up";
        let slot = Slot { cancel: true, ..self.slot(task, Progress::Dead { error: error.into() }) };
        match self.store().put(key, expect, slot.encode()).await {
            // The next look shows whether the write took effect.
            Ok(Put::Stored(_) | Put::Conflict) => Ok(()),
            Err(error) if error.fault == Fault::Indeterminate => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes tasks into their slots as the cursor says.
    ///
    /// Otherwise only a leader does this. If both write, the slower one conflicts.
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

    /// Deletes slots that make no sense and hold no task.
    ///
    /// A conflict is fine: the slot was written anew meanwhile.
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

/// Finds the lost tasks, from the slots and the intents of the cursor.
fn tell(cursor: &Cursor, keys: Vec<Key>, slots: Vec<Option<Found<Slot>>>) -> Look {
    // If the cluster document lost count, there may be slots that were not looked at.
    let beyond = cursor.intents.iter().filter(|intent| intent.slot >= keys.len());
    let mut there = beyond.filter(|intent| intent.task.is_some()).count() as u64;
    let (mut known, mut garbled, mut empty) = (Vec::new(), Vec::new(), None);
    for (number, (key, found)) in keys.into_iter().zip(slots).enumerate() {
        let token = found.as_ref().and_then(|found| Some(found.content.as_ref().ok()?.token));
        let intent = cursor.intents.iter().find(|intent| {
            intent.slot == number && token.is_none_or(|token| token < first_token(intent.serial))
        });
        match (intent, found) {
            // The intent is about to be written, or was written and is gone again.
            (Some(intent), found) => {
                there += u64::from(intent.task.is_some());
                let readable = found.as_ref().is_some_and(|found| found.content.is_ok());
                let expect = found.map_or(Expect::Absent, |found| Expect::At(found.version));
                // Only the leader writes over a readable slot.
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
