//! How much is done, and how much is left.

use crate::Error;
use crate::Key;
use crate::cluster::books::{Books, Found};
use crate::cluster::documents::{Charter, Cursor, Page, Progress, Slot};

/// How often the inbox and the cursor are looked at together before that is given up.
const MOST_LOOKS: u32 = 8;

/// What the books say of all tasks together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// How many were taken in: `done` + `dead` + `cancelled` + `open`.
    pub accepted: u64,
    /// How many are done.
    pub done: u64,
    /// How many are dead letters. One that is brought back is open again.
    pub dead: u64,
    /// How many were cancelled.
    pub cancelled: u64,
    /// How many are neither.
    pub open: u64,
    /// The source has nothing more.
    pub drained: bool,
    /// The leader takes nothing in.
    pub paused: bool,
    /// Something waits in the inbox that was not taken in yet.
    pub waiting: bool,
    /// How many tasks in slots are worked on just now.
    pub running: u64,
    /// How many tasks in slots nobody works on just now.
    pub outstanding: u64,
}

impl Totals {
    /// Whether all that was submitted so far, and all of the source, is at its end.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.drained && self.open == 0 && !self.waiting
    }
}

impl Books {
    /// How much is done, and how much is left.
    ///
    /// Slots that make no sense are not counted.
    ///
    /// # Errors
    /// [`Error::Store`] when the store does not serve, [`Error::Document`] when the cursor or the
    /// cluster document makes no sense.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn totals(&self) -> Result<Totals, Error> {
        let charter = self.read::<Charter>(&self.keys.charter()).await?.map(|(_, charter)| charter);
        let slots = charter.as_ref().map_or(0, |charter| charter.slots);
        let keys: Vec<Key> = (0..slots).map(|number| self.keys.slot(number)).collect();
        let slots = self.find_many::<Slot>(&keys).await?;
        let mut totals =
            Totals { paused: charter.is_some_and(|charter| charter.paused), ..Totals::default() };
        for found in slots.into_iter().flatten() {
            match found.content.map(|slot| slot.progress) {
                Ok(Progress::Held(_)) => totals.running += 1,
                Ok(Progress::Outstanding { .. }) => totals.outstanding += 1,
                Ok(Progress::Vacant | Progress::Done { .. } | Progress::Dead { .. }) | Err(_) => {}
            }
        }
        let (waiting, cursor) = self.look_at_both().await?;
        totals.waiting = waiting;
        if let Some(cursor) = cursor {
            totals = Totals {
                accepted: cursor.accepted,
                done: cursor.done,
                dead: cursor.dead,
                cancelled: cursor.cancelled,
                open: cursor.open(),
                drained: cursor.drained,
                ..totals
            };
        }
        Ok(totals)
    }

    /// Whether something waits in the inbox, and the cursor, as they were at one moment: otherwise
    /// what goes from one into the other meanwhile would be seen in neither.
    async fn look_at_both(&self) -> Result<(bool, Option<Cursor>), Error> {
        let mut cursor = self.read_cursor().await?;
        for _ in 0..MOST_LOOKS {
            let place = place(cursor.as_ref());
            let waiting = self.is_waiting(place).await?;
            cursor = self.read_cursor().await?;
            if self::place(cursor.as_ref()) == place {
                return Ok((waiting, cursor));
            }
        }
        // The leader takes in faster than we read; whatever it has, it is not at its end.
        Ok((true, cursor))
    }

    async fn read_cursor(&self) -> Result<Option<Cursor>, Error> {
        Ok(self.read::<Cursor>(&self.keys.cursor()).await?.map(|(_, cursor)| cursor))
    }

    /// Whether there is something that was not taken in after this many entries of this page.
    async fn is_waiting(&self, (number, taken): (u64, usize)) -> Result<bool, Error> {
        let found = self.pages(&[number, number + 1]).await?;
        let entries = |found: &Option<Found<Page>>, number| match found {
            Some(Found { content: Ok(page), .. }) if page.number == number => page.entries.len(),
            // It has to be passed first.
            Some(Found { content: Err(_), .. }) => usize::MAX,
            Some(_) | None => 0,
        };
        let on_the_page = entries(&found[0], number);
        Ok(on_the_page > taken || on_the_page > 0 && entries(&found[1], number + 1) > 0)
    }
}

/// Up to where the inbox is taken in.
fn place(cursor: Option<&Cursor>) -> (u64, usize) {
    cursor.map_or((0, 0), |cursor| (cursor.page, cursor.taken))
}
