//! The keys of a cluster's documents.

use tenure::{Key, Name, NameError};

use super::MemberId;

/// The most segments of a cluster's name. Its tasks' locks are elections with names up to three
/// segments longer.
const MOST_SEGMENTS: usize = 5;

/// The keys of one cluster, all under `clusters/<name>/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    root: Key,
}

impl Keys {
    /// Creates the keys of the cluster of this name.
    ///
    /// # Errors
    /// [`NameError`] if the name is refused; it has at most five segments.
    pub fn new(name: &str) -> Result<Keys, NameError> {
        let segments = Name::parse(name)?.segments().count();
        if segments > MOST_SEGMENTS {
            return Err(NameError::TooManySegments { segments, most: MOST_SEGMENTS });
        }
        Ok(Keys { root: Key::parse(&format!("clusters/{name}"))? })
    }

    /// The prefix of all keys of the cluster.
    #[must_use]
    pub fn root(&self) -> &Key {
        &self.root
    }

    fn below(&self, path: std::fmt::Arguments<'_>) -> Key {
        let key = Key::parse(&format!("{}/{path}", self.root));
        key.expect("what follows a cluster's name is short and printable")
    }

    /// The lock of the leader.
    #[must_use]
    pub fn leader(&self) -> Key {
        self.below(format_args!("leader"))
    }

    /// The cluster document: the number of slots, and whether the leader is paused.
    #[must_use]
    pub fn cluster_config(&self) -> Key {
        self.below(format_args!("cluster"))
    }

    /// The node list.
    #[must_use]
    pub fn nodes(&self) -> Key {
        self.below(format_args!("nodes"))
    }

    /// The lock of a member.
    #[must_use]
    pub fn member(&self, member: &MemberId) -> Key {
        self.below(format_args!("members/{member}"))
    }

    /// The prefix of the slots.
    #[must_use]
    pub fn slots(&self) -> Key {
        self.below(format_args!("slots"))
    }

    /// The slot with this number.
    #[must_use]
    pub fn slot(&self, number: usize) -> Key {
        self.below(format_args!("slots/{number:05}"))
    }

    /// The cursor: the leader's records.
    #[must_use]
    pub fn cursor(&self) -> Key {
        self.below(format_args!("cursor"))
    }

    /// The wake-up document: the leader rewrites it to wake the nodes when there is work.
    #[must_use]
    pub fn wake_up(&self) -> Key {
        self.below(format_args!("bell"))
    }

    /// The call: nodes and submitters rewrite it to wake the leader.
    ///
    /// They do so when work has come in, or when the last of the work is done.
    #[must_use]
    pub fn leader_wake_up(&self) -> Key {
        self.below(format_args!("call"))
    }

    /// A page of the inbox. Page numbers share [`INBOX_PAGES`](super::INBOX_PAGES) places in turn.
    #[must_use]
    pub fn page(&self, number: u64) -> Key {
        self.below(format_args!("inbox/{:03}", number % super::INBOX_PAGES))
    }

    /// The prefix of the dead letters.
    #[must_use]
    pub fn letters(&self) -> Key {
        self.below(format_args!("dead"))
    }

    /// A dead letter.
    #[must_use]
    pub fn letter(&self, serial: u64) -> Key {
        self.below(format_args!("dead/{serial:016}"))
    }

    /// The prefix of the results.
    #[must_use]
    pub fn pieces(&self) -> Key {
        self.below(format_args!("results"))
    }

    /// A piece of the results.
    #[must_use]
    pub fn piece(&self, number: u64) -> Key {
        self.below(format_args!("results/{number:016}"))
    }

    /// The prefix of the outcomes that submitters wait for.
    #[must_use]
    pub fn outcomes(&self) -> Key {
        self.below(format_args!("outcomes"))
    }

    /// The outcome of a task that its submitter waits for.
    #[must_use]
    pub fn outcome(&self, receipt: &MemberId) -> Key {
        self.below(format_args!("outcomes/{receipt}"))
    }

    /// The settings of the cluster.
    #[must_use]
    pub fn settings(&self) -> Key {
        self.below(format_args!("settings"))
    }

    /// The plan of a supervised input: its partitions for each member.
    ///
    /// # Errors
    /// [`NameError`] if the input's name is not one segment.
    pub fn plan(&self, input: &str) -> Result<Key, NameError> {
        self.below(format_args!("plans")).child(input)
    }
}
