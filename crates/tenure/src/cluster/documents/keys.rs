//! Where the documents of a cluster are.

use super::MemberId;
use crate::{Key, Name, NameError};

/// The most segments of a cluster's name: its tasks' locks are elections named up to three segments
/// longer.
const MOST_SEGMENTS: usize = 5;

/// The keys of one cluster, all under `clusters/<name>/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    root: Key,
}

impl Keys {
    /// The keys of the cluster of this name.
    ///
    /// # Errors
    /// [`NameError`] when it is refused; it has at most five segments.
    pub fn new(name: &str) -> Result<Keys, NameError> {
        let segments = Name::parse(name)?.segments().count();
        if segments > MOST_SEGMENTS {
            return Err(NameError::TooManySegments { segments, most: MOST_SEGMENTS });
        }
        Ok(Keys { root: Key::parse(&format!("clusters/{name}"))? })
    }

    /// What everything is under.
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

    /// How many slots there are.
    #[must_use]
    pub fn charter(&self) -> Key {
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

    /// What the slots are under.
    #[must_use]
    pub fn slots(&self) -> Key {
        self.below(format_args!("slots"))
    }

    /// A numbered slot.
    #[must_use]
    pub fn slot(&self, number: usize) -> Key {
        self.below(format_args!("slots/{number:05}"))
    }

    /// The books of the leader.
    #[must_use]
    pub fn cursor(&self) -> Key {
        self.below(format_args!("cursor"))
    }

    /// Rung by the leader when there is work.
    #[must_use]
    pub fn bell(&self) -> Key {
        self.below(format_args!("bell"))
    }

    /// Rung by everyone else when the leader should look: work came in, or was done and nothing is
    /// left.
    #[must_use]
    pub fn call(&self) -> Key {
        self.below(format_args!("call"))
    }

    /// A page of the inbox; pages are used again in turn.
    #[must_use]
    pub fn page(&self, number: u64) -> Key {
        self.below(format_args!("inbox/{:03}", number % super::INBOX_PAGES))
    }

    /// What the dead letters are under.
    #[must_use]
    pub fn letters(&self) -> Key {
        self.below(format_args!("dead"))
    }

    /// A dead letter.
    #[must_use]
    pub fn letter(&self, serial: u64) -> Key {
        self.below(format_args!("dead/{serial:016}"))
    }

    /// What the results are under.
    #[must_use]
    pub fn pieces(&self) -> Key {
        self.below(format_args!("results"))
    }

    /// A piece of the results.
    #[must_use]
    pub fn piece(&self, number: u64) -> Key {
        self.below(format_args!("results/{number:016}"))
    }

    /// What outcomes that somebody waits for are under.
    #[must_use]
    pub fn outcomes(&self) -> Key {
        self.below(format_args!("outcomes"))
    }

    /// What became of a task that somebody waits for.
    #[must_use]
    pub fn outcome(&self, receipt: &MemberId) -> Key {
        self.below(format_args!("outcomes/{receipt}"))
    }

    /// The settings of the cluster.
    #[must_use]
    pub fn settings(&self) -> Key {
        self.below(format_args!("settings"))
    }

    /// How a supervised input is shared out.
    ///
    /// # Errors
    /// [`NameError`] when its name is not one segment.
    pub fn plan(&self, input: &str) -> Result<Key, NameError> {
        self.below(format_args!("plans")).child(input)
    }
}
