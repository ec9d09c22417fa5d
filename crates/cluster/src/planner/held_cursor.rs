//! The cursor as the leader holds it. Only a compare-and-set of the cursor counts tasks or takes
//! them in.

use tenure::lease::record::MAX_NUMBER;
use tenure::store::{Expect, Fault, Put, StoreError, StoreExt as _, Version};

use crate::client::{ClusterClient, encoded};
use crate::documents::{Cursor, Format as _, Progress, Slot, first_token};
use crate::error::ClusterError;
use crate::mutant::ClusterMutant;

/// How often the cursor may change while it is taken over.
const MOST_ATTEMPTS: u32 = 16;
/// How many documents a listing shows at a time.
const LISTED: usize = 256;

/// Why a round ended early.
#[derive(Debug)]
pub(super) enum Stop {
    /// A later leader has the cursor.
    Deposed(u64),
    /// The outcome of a write of the cursor is unknown.
    ///
    /// Take the cursor over again, and go on from its content.
    Unsure,
    /// The store did not serve, or a document is invalid.
    Failed(ClusterError),
}

impl From<ClusterError> for Stop {
    fn from(error: ClusterError) -> Stop {
        Stop::Failed(error)
    }
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Stop {
        Stop::Failed(error.into())
    }
}

/// The cursor, as our last acknowledged write left it.
#[derive(Debug)]
pub(super) struct HeldCursor {
    version: Version,
    cursor: Cursor,
    /// The indexes of its intents that are not seen applied yet.
    pub(super) unseen: Vec<usize>,
    /// The dead letters that its intents bring back may still be there.
    pub(super) letters_due: bool,
}

impl HeldCursor {
    /// Takes the cursor over: writes of the leaders before conflict from now on.
    pub(super) async fn take(client: &ClusterClient, token: u64) -> Result<HeldCursor, Stop> {
        let key = client.keys.cursor();
        for _ in 0..MOST_ATTEMPTS {
            let (expect, before) = match client.read::<Cursor>(&key).await? {
                Some((version, cursor)) => (Expect::At(version), cursor),
                None => (Expect::Absent, first_cursor(client).await?),
            };
            if before.leader > token {
                return Err(Stop::Deposed(before.leader));
            }
            let cursor = Cursor {
                leader: token,
                revision: before.revision + 1,
                op: client.fresh_op(),
                ..before
            };
            match client.store().put(&key, expect, encoded(&key, &cursor)?).await {
                Ok(Put::Stored(version)) => {
                    let mut held_cursor = HeldCursor::holding(version, cursor);
                    if ClusterMutant::ForgetsRecordedIntents.is_on() {
                        held_cursor.unseen.clear();
                    }
                    return Ok(held_cursor);
                }
                Ok(Put::Conflict) => {}
                // The next read shows the effect of this write, and the write after that settles
                // it.
                Err(error) if error.fault == Fault::Indeterminate => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(ClusterError::Contended { attempts: MOST_ATTEMPTS }.into())
    }

    fn holding(version: Version, cursor: Cursor) -> HeldCursor {
        let unseen = (0..cursor.intents.len()).collect();
        let letters_due = cursor.intents.iter().any(|intent| intent.letter.is_some());
        HeldCursor { version, cursor, unseen, letters_due }
    }

    /// Marks the intents of lost slots as unseen, so that they are written again.
    pub(super) fn doubt(&mut self, is_lost: impl Fn(usize) -> bool) {
        let intents = self.cursor.intents.iter().enumerate();
        let lost = intents.filter(|(_, intent)| is_lost(intent.slot)).map(|(place, _)| place);
        self.unseen.extend(lost);
        self.unseen.sort_unstable();
        self.unseen.dedup();
    }

    /// Returns true if all intents of the cursor are applied.
    pub(super) fn is_seen_through(&self) -> bool {
        self.unseen.is_empty() && !self.letters_due
    }

    pub(super) fn cursor(&self) -> &Cursor {
        &self.cursor
    }

    /// Moves the cursor on, by one compare-and-set.
    pub(super) async fn record(
        &mut self,
        client: &ClusterClient,
        after: Cursor,
    ) -> Result<(), Stop> {
        let expect = Expect::At(self.version.clone());
        let key = client.keys.cursor();
        match client.store().put(&key, expect, encoded(&key, &after)?).await {
            Ok(Put::Stored(version)) => {
                *self = HeldCursor::holding(version, after);
                Ok(())
            }
            Ok(Put::Conflict) => Err(Stop::Unsure),
            Err(error) if error.fault == Fault::Indeterminate => Err(Stop::Unsure),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes sure that no other leader has taken the cursor. Then documents that were read before
    /// this are not a successor's.
    pub(super) async fn confirm(&mut self, client: &ClusterClient) -> Result<(), Stop> {
        if client.is_weak() {
            let revision = self.cursor.revision + 1;
            let again = Cursor { revision, op: client.fresh_op(), ..self.cursor.clone() };
            let (unseen, letters_due) = (std::mem::take(&mut self.unseen), self.letters_due);
            self.record(client, again).await?;
            (self.unseen, self.letters_due) = (unseen, letters_due);
            return Ok(());
        }
        match client.store().get(&client.keys.cursor()).await? {
            Some(document) if document.version == self.version => Ok(()),
            _ => Err(Stop::Unsure),
        }
    }
}

/// The first cursor of a cluster.
///
/// If the cursor was deleted, serial numbers go on after those in the slots: a slot would take an
/// intent with a lower one for already applied.
async fn first_cursor(client: &ClusterClient) -> Result<Cursor, ClusterError> {
    let mut cursor = Cursor::new(client.fresh_op());
    let mut after = None;
    loop {
        let page = client.store().list(&client.keys.slots(), after.as_ref(), LISTED).await?;
        let slots = page.documents.iter().filter_map(|(_, found)| Slot::decode(&found.body).ok());
        for slot in slots {
            cursor.next = cursor.next.max(slot.task.serial + 1);
            // A task in a slot was accepted before, and will be counted.
            cursor.accepted += u64::from(slot.progress != Progress::Vacant);
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(cursor),
        }
    }
}

/// Returns true if this many more serial numbers can be given out.
pub(super) fn has_serials(cursor: &Cursor, more: usize) -> bool {
    let last = cursor.next.saturating_add(u64::try_from(more).unwrap_or(u64::MAX));
    first_token(last.saturating_add(1)) <= MAX_NUMBER
}
