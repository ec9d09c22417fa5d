//! The inbox: a ring of pages on which tasks are accepted, before the leader gives them a slot.
//!
//! Page `n` stands at place `n` modulo [`INBOX_PAGES`]. Whoever submits writes on the first page that is empty, by a
//! compare-and-set on the empty page; the leader reads pages in order and, once the cursor says that a page is taken, writes the
//! place anew as the empty page `n` + [`INBOX_PAGES`]. A writer that comes late finds another version. Where
//! no document stands, page `n` < [`INBOX_PAGES`] is empty.

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::slot::{Assignment, check_assignment};
use super::{DocumentError, Format, MemberId, check_number};
use crate::lease::record::Op;

/// How many pages the inbox has. When all are full, submitting waits.
pub const INBOX_PAGES: u64 = 256;
/// The most bytes of a page's entries, as they are written.
pub const MAX_PAGE_BYTES: usize = 44 * 1024;

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
    /// Bring this dead letter back.
    Retry(u64),
}

/// One page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// Which page stands here just now.
    pub number: u64,
    /// What is on it; an empty page is one that nobody has written yet.
    pub entries: Vec<Entry>,
    /// Rises by one at every write.
    pub revision: u64,
    /// Which write made this.
    pub op: Op,
}

impl Format for Page {
    const WHAT: &'static str = "inbox page";

    fn check(&self) -> Result<(), DocumentError> {
        check_number::<Page>("number", self.number)?;
        check_number::<Page>("revision", self.revision)?;
        self.entries.iter().try_for_each(|entry| match entry {
            Entry::Task(order) => order.check(),
            Entry::Retry(serial) => check_number::<Page>("retry", *serial),
        })
    }
}
