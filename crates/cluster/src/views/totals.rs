//! The number of tasks that are done and that are left.

use tenure::Key;

use crate::client::{ClusterClient, Found};
use crate::documents::{ClusterConfig, Cursor, Page, Progress, Slot};
use crate::error::ClusterError;

/// How often the inbox and the cursor are read together at most.
const MOST_LOOKS: u32 = 8;

/// The totals of all tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// The number of accepted tasks: `done` + `dead` + `cancelled` + `open`.
    pub accepted: u64,
    /// The number of tasks that are done.
    pub done: u64,
    /// The number of dead letters. A dead letter that is brought back is open again.
    pub dead: u64,
    /// The number of cancelled tasks.
    pub cancelled: u64,
    /// The number of tasks that are neither done nor dead nor cancelled.
    pub open: u64,
    /// The source has no more tasks.
    pub drained: bool,
    /// The leader accepts no tasks now.
    pub paused: bool,
    /// The inbox holds entries that the leader has not taken in yet.
    pub waiting: bool,
    /// The number of tasks in slots that a member works on now.
    pub running: u64,
    /// The number of tasks in slots that wait for a member.
    pub outstanding: u64,
}

impl Totals {
    /// Returns true if all submitted tasks and all tasks of the source have ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.drained && self.open == 0 && !self.waiting
    }
}

impl ClusterClient {
    /// Counts the tasks that are done and that are left.
    ///
    /// Invalid slots are not counted.
    ///
    /// # Errors
    /// [`ClusterError::Store`] if the store does not serve, [`ClusterError::Document`] if the
    /// cursor or the cluster document is invalid.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn totals(&self) -> Result<Totals, ClusterError> {
        let cluster_config = self
            .read::<ClusterConfig>(&self.keys.cluster_config())
            .await?
            .map(|(_, cluster_config)| cluster_config);
        let slots = cluster_config.as_ref().map_or(0, |cluster_config| cluster_config.slots);
        let keys: Vec<Key> = (0..slots).map(|number| self.keys.slot(number)).collect();
        let slots = self.find_many::<Slot>(&keys).await?;
        let mut totals = Totals {
            paused: cluster_config.is_some_and(|cluster_config| cluster_config.paused),
            ..Totals::default()
        };
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

    /// Whether the inbox holds entries, and the cursor, both at one moment. Otherwise an entry that
    /// moves from the inbox to the cursor meanwhile could be missing from both.
    async fn look_at_both(&self) -> Result<(bool, Option<Cursor>), ClusterError> {
        let mut cursor = self.read_cursor().await?;
        for _ in 0..MOST_LOOKS {
            let place = place(cursor.as_ref());
            let waiting = self.is_waiting(place).await?;
            cursor = self.read_cursor().await?;
            if self::place(cursor.as_ref()) == place {
                return Ok((waiting, cursor));
            }
        }
        // The leader takes entries in faster than we read them, so it certainly has not finished.
        Ok((true, cursor))
    }

    async fn read_cursor(&self) -> Result<Option<Cursor>, ClusterError> {
        Ok(self.read::<Cursor>(&self.keys.cursor()).await?.map(|(_, cursor)| cursor))
    }

    /// Returns true if the inbox has entries beyond `taken` ones of page `number`.
    async fn is_waiting(&self, (number, taken): (u64, usize)) -> Result<bool, ClusterError> {
        let found = self.pages(&[number, number + 1]).await?;
        let entries = |found: &Option<Found<Page>>, number| match found {
            Some(Found { content: Ok(page), .. }) if page.number == number => page.entries.len(),
            // The leader still has to pass this page.
            Some(Found { content: Err(_), .. }) => usize::MAX,
            Some(_) | None => 0,
        };
        let on_the_page = entries(&found[0], number);
        Ok(on_the_page > taken || on_the_page > 0 && entries(&found[1], number + 1) > 0)
    }
}

/// The place up to which the leader has taken the inbox in.
fn place(cursor: Option<&Cursor>) -> (u64, usize) {
    cursor.map_or((0, 0), |cursor| (cursor.page, cursor.taken))
}
