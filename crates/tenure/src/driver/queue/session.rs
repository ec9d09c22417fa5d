//! The session that all machines of a backend share.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::watch;

use super::super::SlotId;
use crate::queue::{Life, Pace, Session, SessionQueue};

/// The current session, and how eagerly it must prove its life.
pub(in crate::driver) struct Sessions {
    pub(in crate::driver) queue: Arc<dyn SessionQueue>,
    pub(in crate::driver) now: Session,
    /// Counts the changes of `now`.
    pub(in crate::driver) version: u64,
    changes: watch::Receiver<Session>,
    /// The backend is gone: no more changes will come.
    closed: bool,
    /// The slots that lead, or are next. Only they need to hear of a mere proof of life.
    near: BTreeSet<SlotId>,
    pace: Pace,
}

/// The slots that a change of the session concerns.
pub(in crate::driver) enum Concerns {
    Everybody,
    These(Vec<SlotId>),
}

impl Sessions {
    pub(in crate::driver) fn new(queue: Arc<dyn SessionQueue>) -> Sessions {
        let mut changes = queue.session();
        let now = *changes.borrow_and_update();
        Sessions {
            queue,
            now,
            version: 1,
            changes,
            closed: false,
            near: BTreeSet::new(),
            pace: Pace::default(),
        }
    }

    /// Resolves when there is a change for [`Sessions::take`]. Cancel safe.
    pub(in crate::driver) async fn changed(&mut self) {
        if self.closed {
            std::future::pending::<()>().await;
        }
        self.closed = self.changes.changed().await.is_err();
    }

    /// Takes the newest session, and returns the slots it concerns if it has changed.
    pub(in crate::driver) fn take(&mut self) -> Option<Concerns> {
        let before = self.now;
        self.now = *self.changes.borrow_and_update();
        if self.closed {
            self.now.life = Life::Closed;
        }
        if self.now == before {
            return None;
        }
        self.version += 1;
        let mere_proof = self.now.is_live()
            && Session { life: before.life, ..self.now } == before
            && before.is_live();
        Some(if mere_proof {
            Concerns::These(self.near.iter().copied().collect())
        } else {
            Concerns::Everybody
        })
    }

    /// Notes the pace that this slot needs.
    ///
    /// It tells the backend when the highest pace of all slots has changed.
    pub(in crate::driver) fn note(&mut self, id: SlotId, pace: Pace) {
        match pace {
            Pace::Leading => self.near.insert(id),
            Pace::Waiting => self.near.remove(&id),
        };
        let most = if self.near.is_empty() { Pace::Waiting } else { Pace::Leading };
        if most != self.pace {
            self.pace = most;
            self.queue.pace(most);
        }
    }
}
