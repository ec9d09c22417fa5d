//! The cursor as the leader holds it. Only a compare-and-set of the cursor counts tasks or takes
//! them in.

use tenure::Key;
use tenure::lease::record::MAX_NUMBER;
use tenure::store::{Expect, Fault, Put, StoreError, Version, Write};

use super::request::{Answer, Common, Next, Request};
use crate::client::{Found, encoded};
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

/// Takes the cursor over: writes of the leaders before conflict from then on.
#[derive(Debug)]
pub(super) struct Taking {
    attempt: u32,
    step: TakingStep,
}

#[derive(Debug)]
enum TakingStep {
    /// The cursor is read.
    Reading,
    /// There is no cursor: the slots are listed to make the first one.
    Listing(Cursor),
    /// The cursor is written under our own token.
    Writing(Cursor),
}

impl Taking {
    pub(super) fn begin(common: &Common) -> (Taking, Request) {
        Taking::read(common, 0)
    }

    fn read(common: &Common, attempt: u32) -> (Taking, Request) {
        let request = Request::read(common.settings.keys.cursor());
        (Taking { attempt, step: TakingStep::Reading }, request)
    }

    pub(super) fn answer(
        self,
        common: &mut Common,
        answer: Answer,
    ) -> Result<Next<Taking, HeldCursor>, Stop> {
        let attempt = self.attempt;
        match self.step {
            TakingStep::Reading => match answer.one::<Cursor>()? {
                Some(Found { version, content }) => {
                    let key = common.settings.keys.cursor();
                    let cursor =
                        content.map_err(|source| ClusterError::Document { key, source })?;
                    Taking::write(common, attempt, Expect::At(version), cursor)
                }
                None => {
                    let first = Cursor::new(common.op());
                    Ok(Taking::list(common, attempt, first, None))
                }
            },
            TakingStep::Listing(mut cursor) => {
                let page = answer.listed()?;
                let documents = page.documents.iter();
                for slot in documents.filter_map(|(_, found)| Slot::decode(&found.body).ok()) {
                    cursor.next = cursor.next.max(slot.task.serial + 1);
                    // A task in a slot was accepted before, and will be counted.
                    cursor.accepted += u64::from(slot.progress != Progress::Vacant);
                }
                match page.next {
                    Some(next) => Ok(Taking::list(common, attempt, cursor, Some(next))),
                    None => Taking::write(common, attempt, Expect::Absent, cursor),
                }
            }
            TakingStep::Writing(cursor) => {
                match answer.put() {
                    Ok(Put::Stored(version)) => {
                        let mut held_cursor = HeldCursor::holding(version, cursor);
                        if ClusterMutant::ForgetsRecordedIntents.is_on() {
                            held_cursor.unseen.clear();
                        }
                        return Ok(Next::Done(held_cursor));
                    }
                    Ok(Put::Conflict) => {}
                    // The next read shows the effect of this write, and the write after that
                    // settles it.
                    Err(error) if error.fault == Fault::Indeterminate => {}
                    Err(error) => return Err(error.into()),
                }
                if attempt + 1 == MOST_ATTEMPTS {
                    return Err(ClusterError::Contended { attempts: MOST_ATTEMPTS }.into());
                }
                let (taking, request) = Taking::read(common, attempt + 1);
                Ok(Next::Ask(taking, request))
            }
        }
    }

    /// Lists slots for the first cursor of a cluster.
    ///
    /// If the cursor was deleted, serial numbers go on after those in the slots: a slot would take
    /// an intent with a lower one for already applied.
    fn list(
        common: &Common,
        attempt: u32,
        first: Cursor,
        after: Option<Key>,
    ) -> Next<Taking, HeldCursor> {
        let request = Request::List { prefix: common.settings.keys.slots(), after, limit: LISTED };
        Next::Ask(Taking { attempt, step: TakingStep::Listing(first) }, request)
    }

    fn write(
        common: &mut Common,
        attempt: u32,
        expect: Expect,
        before: Cursor,
    ) -> Result<Next<Taking, HeldCursor>, Stop> {
        let leader = common.settings.token;
        if before.leader > leader {
            return Err(Stop::Deposed(before.leader));
        }
        let (revision, op) = (before.revision + 1, common.op());
        let cursor = Cursor { leader, revision, op, ..before };
        let request = write(common, expect, &cursor)?;
        Ok(Next::Ask(Taking { attempt, step: TakingStep::Writing(cursor) }, request))
    }
}

/// Writes the cursor, unless a later read would refuse it.
fn write(common: &Common, expect: Expect, cursor: &Cursor) -> Result<Request, ClusterError> {
    let key = common.settings.keys.cursor();
    let body = Some(encoded(&key, cursor)?);
    let durability = tenure::store::Durability::Lasting;
    Ok(Request::Write(vec![Write { key, expect, body, durability }]))
}

impl HeldCursor {
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
    pub(super) fn record(&self, common: &Common, after: &Cursor) -> Result<Request, ClusterError> {
        write(common, Expect::At(self.version.clone()), after)
    }

    /// Takes in the answer to [`HeldCursor::record`].
    pub(super) fn recorded(&mut self, after: Cursor, answer: Answer) -> Result<(), Stop> {
        *self = HeldCursor::holding(stored(answer)?, after);
        Ok(())
    }

    /// Makes sure that no other leader has taken the cursor. Then documents that were read before
    /// this are not a successor's.
    ///
    /// On a weak store this writes the cursor again, and returns it.
    pub(super) fn confirm(
        &self,
        common: &mut Common,
    ) -> Result<(Option<Cursor>, Request), ClusterError> {
        if !common.is_weak() {
            return Ok((None, Request::read(common.settings.keys.cursor())));
        }
        let (revision, op) = (self.cursor.revision + 1, common.op());
        let again = Cursor { revision, op, ..self.cursor.clone() };
        let request = self.record(common, &again)?;
        Ok((Some(again), request))
    }

    /// Takes in the answer to [`HeldCursor::confirm`].
    pub(super) fn confirmed(&mut self, again: Option<Cursor>, answer: Answer) -> Result<(), Stop> {
        match again {
            Some(again) => (self.version, self.cursor) = (stored(answer)?, again),
            None if answer.version()?.as_ref() == Some(&self.version) => {}
            None => return Err(Stop::Unsure),
        }
        Ok(())
    }
}

/// The version of the cursor after a write of it.
fn stored(answer: Answer) -> Result<Version, Stop> {
    match answer.put() {
        Ok(Put::Stored(version)) => Ok(version),
        Ok(Put::Conflict) => Err(Stop::Unsure),
        Err(error) if error.fault == Fault::Indeterminate => Err(Stop::Unsure),
        Err(error) => Err(error.into()),
    }
}

/// Returns true if this many more serial numbers can be given out.
pub(super) fn has_serials(cursor: &Cursor, more: usize) -> bool {
    let last = cursor.next.saturating_add(u64::try_from(more).unwrap_or(u64::MAX));
    first_token(last.saturating_add(1)) <= MAX_NUMBER
}
