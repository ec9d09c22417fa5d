//! The inbox: a ring of pages that accept tasks until they get a slot.
//!
//! Page `n` stands at place `n` modulo [`INBOX_PAGES`]. A submitter writes on the first page that
//! is empty, by a compare-and-set on the empty page. The leader reads pages in order. Once the
//! cursor says that a page is taken, the leader rewrites its place as the empty page `n` +
//! [`INBOX_PAGES`]. A late writer then finds another version. A place without a document counts as
//! the empty page that is due there.
//!
//! Page `n` moves on only after it has held entries, and each place remembers which writes filled
//! it ([`Page::filled`]). So a writer that got no answer can find out later, if it looks within a
//! few laps: either its write is among those, or the write never happened and never will, because
//! the version it expected is gone.
//!
//! Other processes than the leader also rewrite pages: to confirm a page on a store with weak
//! reads, and to cancel a task. They change neither the page's number nor the number of its
//! entries. So a process that loses a compare-and-set on a page must look again.
//!
//! On a store with weak reads, the leader confirms a page by rewriting it ([`Page::rewritten`])
//! before it takes entries from it. Otherwise the entries it took could vanish from the page, and
//! others would write on a page that is never read again.

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tenure::lease::record::Op;

use super::slot::{Assignment, check_assignment};
use super::{DocumentError, Format, MemberId, check_number, refuse};

/// How many pages the inbox has. When all are full, submitters wait.
pub const INBOX_PAGES: u64 = 256;
/// The most bytes of a page's entries, as they are written.
pub const MAX_PAGE_BYTES: usize = 44 * 1024;
/// How many of the writes that filled a place it remembers.
pub const FILLS_KEPT: usize = 4;
/// How often a task may be begun by default.
const USUAL_ATTEMPTS: u32 = 3;

/// A task before it has a serial number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Its name for people.
    pub id: String,
    /// The registered type that runs it.
    pub kind: String,
    /// The input for that type.
    #[serde(rename = "task", with = "super::base64_bytes")]
    pub payload: Bytes,
    /// How often it may be begun.
    pub attempts: u32,
    /// How long one attempt may take.
    #[serde(default, with = "super::maybe_millis", skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// The only member that may take it, as long as that member is in the node list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<MemberId>,
    /// The name of the outcome document, if the submitter waits for the outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<MemberId>,
}

impl Order {
    /// Creates a task of this kind, which may be begun three times.
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

    /// Sets how often the task may be begun.
    #[must_use]
    pub fn with_attempts(self, attempts: u32) -> Order {
        Order { attempts, ..self }
    }

    /// Sets how long one attempt may take.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Order {
        Order { timeout: Some(timeout), ..self }
    }

    /// Reserves the task for this member, as long as it is in the node list.
    #[must_use]
    pub fn with_member(self, member: MemberId) -> Order {
        Order { to: Some(member), ..self }
    }

    /// The task with its serial number.
    #[must_use]
    pub fn numbered(self, serial: u64) -> Assignment {
        let Order { id, kind, payload, attempts, timeout, to, receipt } = self;
        Assignment { serial, id, kind, payload, attempts, timeout, to, receipt }
    }

    /// Checks the values.
    ///
    /// # Errors
    /// [`DocumentError::Field`] names the field.
    pub fn check(&self) -> Result<(), DocumentError> {
        check_assignment::<Page>(&self.clone().numbered(1))
    }
}

/// One request in the inbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Entry {
    /// A task.
    Task(Order),
    /// Bring this dead letter back. Serial numbers begin with 1, so 0 brings nothing back.
    Retry(u64),
    /// The receipt of a task that was cancelled before any leader took it. It replaces the task, so
    /// that the entries after it keep their places. A leader that passes it writes the outcome for
    /// the waiting submitter.
    Cancelled(MemberId),
}

impl Entry {
    /// An entry without effect, for a page that only has to be passed.
    pub const NOTHING: Entry = Entry::Retry(0);
}

/// One page of the inbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// The number of the page that stands here now.
    pub number: u64,
    /// Its entries. A page without entries is free to be written.
    pub entries: Vec<Entry>,
    /// The writes that filled this place, the newest last, at most [`FILLS_KEPT`]. They filled this
    /// page, if it has entries, and earlier pages at this place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filled: Vec<Op>,
    /// Rises by one at every write.
    pub revision: u64,
    /// The write that made this version.
    pub op: Op,
}

impl Page {
    /// An empty page at a place where the page before is unknown or missing.
    #[must_use]
    pub fn empty(number: u64, op: Op) -> Page {
        Page { number, entries: Vec::new(), filled: Vec::new(), revision: 1, op }
    }

    /// This page with entries; `before` is the empty page that stands there, if any.
    #[must_use]
    pub fn filling(number: u64, before: Option<&Page>, entries: Vec<Entry>, op: Op) -> Page {
        let earlier = before.map_or(&[][..], |before| &before.filled);
        let kept = &earlier[earlier.len().saturating_sub(FILLS_KEPT - 1)..];
        let filled = kept.iter().chain([&op]).cloned().collect();
        let revision = before.map_or(0, |before| before.revision) + 1;
        Page { number, entries, filled, revision, op }
    }

    /// The empty page that follows this one at its place. Write it only once the cursor says that
    /// all of this page is taken.
    #[must_use]
    pub fn freed(&self, op: Op) -> Page {
        Page { number: self.number + INBOX_PAGES, entries: Vec::new(), ..self.rewritten(op) }
    }

    /// The same page with the next revision.
    #[must_use]
    pub fn rewritten(&self, op: Op) -> Page {
        Page { revision: self.revision + 1, op, ..self.clone() }
    }

    /// The same page with the task at `index` replaced by its cancelled receipt.
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
