//! The inbox: a ring of pages on which tasks are accepted, before the leader gives them a slot.
//!
//! Page `n` stands at place `n` modulo [`INBOX_PAGES`]. Whoever submits writes on the first page
//! that is empty, by a compare-and-set on the empty page; the leader reads pages in order and, once
//! the cursor says that a page is taken, writes the place anew as the empty page `n` +
//! [`INBOX_PAGES`]. A writer that comes late finds another version. Where no document stands, the
//! page that is due there is empty.
//!
//! Page `n` moves on only after somebody's entries stood on it, and each place remembers which
//! writes filled it ([`Page::filled`]). So a writer that got no answer can tell afterwards, as long
//! as it looks within a few laps: its write either is among those, or is not and never will be,
//! because the version it was meant for is gone.
//!
//! Others than the leader rewrite a page too: to confirm it on a store whose reads prove nothing,
//! and to cancel a task. They change neither its number nor how many entries it has. So whoever
//! loses a compare-and-set on a page looks again.
//!
//! On a store whose reads prove nothing the leader confirms a page by rewriting it
//! ([`Page::rewritten`]) before it takes from it: otherwise what it took could vanish from the
//! page, and others would write on a page that is never read again.

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::slot::{Assignment, check_assignment};
use super::{DocumentError, Format, MemberId, check_number, refuse};
use crate::cluster::Task;
use crate::lease::record::Op;

/// How many pages the inbox has. When all are full, submitting waits.
pub const INBOX_PAGES: u64 = 256;
/// The most bytes of a page's entries, as they are written.
pub const MAX_PAGE_BYTES: usize = 44 * 1024;
/// How many of the writes that filled a place are remembered there.
pub const FILLS_KEPT: usize = 4;
/// How often a task may be begun unless somebody says otherwise.
const USUAL_ATTEMPTS: u32 = 3;

/// A task before it has a serial number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Names it for people.
    pub id: String,
    /// Which registered type runs it.
    pub kind: String,
    /// What that type is told.
    #[serde(rename = "task", with = "super::base64_bytes")]
    pub payload: Bytes,
    /// How often it may be begun.
    pub attempts: u32,
    /// How long one attempt may take.
    #[serde(default, with = "super::maybe_millis", skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// Only this member takes it, while it is in the node list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<MemberId>,
    /// Under which name somebody waits for its outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<MemberId>,
}

impl Order {
    /// A task of this kind, which may be begun three times.
    pub fn new(id: impl Into<String>, kind: impl Into<String>, payload: impl Into<Bytes>) -> Order {
        Order {
            id: id.into(),
            kind: kind.into(),
            payload: payload.into(),
            attempts: USUAL_ATTEMPTS,
            timeout: None,
            to: None,
            receipt: None,
        }
    }

    /// A task of a registered type.
    ///
    /// # Errors
    /// [`DocumentError::Shape`] when it does not encode as JSON.
    pub fn of<T: Task>(id: impl Into<String>, task: &T) -> Result<Order, DocumentError> {
        let payload = serde_json::to_vec(task).map_err(|error| DocumentError::Shape {
            document: "task",
            says: error.to_string().chars().take(200).collect(),
        })?;
        Ok(Order::new(id, T::KIND, payload))
    }

    /// The same, begun so often at most.
    #[must_use]
    pub fn with_attempts(self, attempts: u32) -> Order {
        Order { attempts, ..self }
    }

    /// The same, where one attempt may take so long.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Order {
        Order { timeout: Some(timeout), ..self }
    }

    /// The same, for this member only, while it is in the node list.
    #[must_use]
    pub fn with_member(self, member: MemberId) -> Order {
        Order { to: Some(member), ..self }
    }

    /// The task under its serial number.
    #[must_use]
    pub fn numbered(self, serial: u64) -> Assignment {
        let Order { id, kind, payload, attempts, timeout, to, receipt } = self;
        Assignment { serial, id, kind, payload, attempts, timeout, to, receipt }
    }

    /// Refuses what no cluster would take.
    ///
    /// # Errors
    /// [`DocumentError::Field`] names the field.
    pub fn check(&self) -> Result<(), DocumentError> {
        check_assignment::<Page>(&self.clone().numbered(1))
    }
}

/// One thing that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Entry {
    /// A task.
    Task(Order),
    /// Bring this dead letter back. Serial numbers begin with 1, so 0 brings nothing back.
    Retry(u64),
    /// What stands where a task stood that was cancelled before any leader took it, so that the
    /// entries after it keep their places: its receipt. A leader that passes it tells whoever waits
    /// for that.
    Cancelled(MemberId),
}

impl Entry {
    /// What is written on a page that only has to be passed.
    pub const NOTHING: Entry = Entry::Retry(0);
}

/// One page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// Which page stands here just now.
    pub number: u64,
    /// What is on it; an empty page is one that nobody has written yet.
    pub entries: Vec<Entry>,
    /// Which writes filled this place, the newest last, at most [`FILLS_KEPT`]: this page, if
    /// anything is on it, and pages that stood here before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filled: Vec<Op>,
    /// Rises by one at every write.
    pub revision: u64,
    /// Which write made this.
    pub op: Op,
}

impl Page {
    /// A page that nobody has written on, where what stood before is unknown or was nothing.
    #[must_use]
    pub fn empty(number: u64, op: Op) -> Page {
        Page { number, entries: Vec::new(), filled: Vec::new(), revision: 1, op }
    }

    /// This page with entries on it, if `before` is what stands there empty.
    #[must_use]
    pub fn filling(number: u64, before: Option<&Page>, entries: Vec<Entry>, op: Op) -> Page {
        let earlier = before.map_or(&[][..], |before| &before.filled);
        let kept = &earlier[earlier.len().saturating_sub(FILLS_KEPT - 1)..];
        let filled = kept.iter().chain([&op]).cloned().collect();
        let revision = before.map_or(0, |before| before.revision) + 1;
        Page { number, entries, filled, revision, op }
    }

    /// The empty page that follows this one at its place, once the cursor says that all of it is
    /// taken.
    #[must_use]
    pub fn freed(&self, op: Op) -> Page {
        Page { number: self.number + INBOX_PAGES, entries: Vec::new(), ..self.rewritten(op) }
    }

    /// The same page after another write.
    #[must_use]
    pub fn rewritten(&self, op: Op) -> Page {
        Page { revision: self.revision + 1, op, ..self.clone() }
    }

    /// The same page, where the task at this place, which has this receipt, is cancelled.
    #[must_use]
    pub fn cancelling(&self, index: usize, receipt: MemberId, op: Op) -> Page {
        let mut page = self.rewritten(op);
        if let Some(entry) = page.entries.get_mut(index) {
            *entry = Entry::Cancelled(receipt);
        }
        page
    }
}

impl Format for Page {
    const WHAT: &'static str = "inbox page";

    fn check(&self) -> Result<(), DocumentError> {
        check_number::<Page>("number", self.number)?;
        check_number::<Page>("revision", self.revision)?;
        if self.filled.len() > FILLS_KEPT {
            return Err(refuse::<Page>("filled", "too many"));
        }
        self.entries.iter().try_for_each(|entry| match entry {
            Entry::Task(order) => order.check(),
            Entry::Retry(serial) => check_number::<Page>("retry", *serial),
            Entry::Cancelled(_) => Ok(()),
        })
    }
}
