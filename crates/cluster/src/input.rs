//! Inputs, the sources of work, in three kinds.
//!
//! - [`Local`]: a listener, which runs on every node that has it.
//! - [`Supervised`]: pollers and consumers. The leader shares out their parts among the members;
//!   each part runs under its own lease.
//! - [`Windowed`]: a source that the leader lists, a window at a time. Its position is kept in the
//!   store.
//!
//! [`inputs`](super::inputs) has the inputs that come with the crate.

mod emitter;
mod local;
mod pause;
mod spread;
mod supervised;
mod template;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tenure::{Mandate, NameError, check_segment};

use super::documents::{NodeEntry, Order};
use crate::error::ClusterError;

pub use emitter::Emitter;
pub(super) use local::run_local;
pub(super) use supervised::run_supervised;
pub use template::Template;

/// The most bytes of an input's name: it is a part of the names of its leases.
pub const MAX_INPUT_NAME_BYTES: usize = 64;

/// The reason why an input failed, as text. The input is tried again after a pause.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct InputError(pub String);

impl InputError {
    /// Describes an attempt and its error, with all causes of the error.
    pub fn new(doing: impl fmt::Display, error: &dyn std::error::Error) -> InputError {
        let mut says = format!("{doing}: {error}");
        let mut cause = error.source();
        while let Some(next) = cause {
            let words = next.to_string();
            // Some errors repeat the text of their cause.
            if !says.ends_with(&words) {
                says = format!("{says}: {words}");
            }
            cause = next.source();
        }
        InputError(says)
    }
}

/// An input that cannot be partitioned and runs where it is configured: a listener.
#[async_trait]
pub trait Local: Send + Sync + 'static {
    /// Runs until it fails or is dropped. It is started again after a pause.
    ///
    /// # Errors
    /// The reason why it ended.
    async fn run(&self, emitter: &Emitter) -> Result<(), InputError>;
}

/// One part of a supervised input.
///
/// Only the input itself interprets the value. Parts with equal values are the same part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Partition(pub serde_json::Value);

/// The context of a running partition.
#[derive(Clone, Debug)]
pub struct PartitionContext {
    /// The right to run this partition. Its token rises whenever the partition changes hands.
    pub mandate: Mandate,
    /// Accepts the tasks that the partition finds.
    pub emitter: Emitter,
}

/// An input in parts, such as a poller or a consumer group.
///
/// It is partitioned once. When members change, it is stopped, repartitioned and started again.
///
/// A part never runs twice at once, even if a member is slow to hear of a change: it runs under its
/// own lease, named by its value. Parts with different values are taken to be independent of each
/// other. So give the same parts for any members (`["orders", 0]` to `["orders", 63]`), rather than
/// ranges that depend on the number of members: the old ranges may still run somewhere for a moment
/// when the new ones start.
#[async_trait]
pub trait Supervised: Send + Sync + 'static {
    /// Returns the parts for these members. The leader calls this.
    ///
    /// There may be at most 1,024 parts, and 60 KiB as JSON together with the members.
    ///
    /// # Errors
    /// The reason why it cannot answer; it is asked again after a pause.
    ///
    /// # Cancel safety
    /// Must be cancel safe: it is dropped when the leader stops leading.
    async fn partitions(&self, members: &[NodeEntry]) -> Result<Vec<Partition>, InputError>;

    /// Runs one part until it is dropped.
    ///
    /// That happens when the part moves to another member or the right to run it is lost.
    ///
    /// # Errors
    /// The reason why it ended; it is started again after a pause.
    ///
    /// # Cancel safety
    /// Must be cancel safe.
    async fn run(
        &self,
        partition: &Partition,
        context: &PartitionContext,
    ) -> Result<(), InputError>;
}

/// The next items of a windowed input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// The next items, in order.
    pub orders: Vec<Order>,
    /// The position after these items, kept in the store with them. At most 4 KiB.
    pub position: Option<String>,
    /// True if there will never be more items.
    pub drained: bool,
}

/// How an item ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// It was done.
    Done,
    /// Its attempts were used up. It is a dead letter, and may be retried.
    Dead,
    /// It was cancelled.
    Cancelled,
}

/// An input that the leader reads a window at a time, such as files.
///
/// The files may be in a directory or a bucket. The position is kept in the store.
#[async_trait]
pub trait Windowed: Send + Sync + 'static {
    /// Returns the next items after `position`, at most `max`.
    ///
    /// Waits while there are no items, unless the input is drained.
    ///
    /// When asked twice for the same position, it must return the same items, or more of them.
    ///
    /// # Errors
    /// The reason why it cannot answer; it is asked again after a pause.
    ///
    /// # Cancel safety
    /// Must be cancel safe.
    async fn outstanding(&self, position: Option<&str>, max: usize) -> Result<Window, InputError>;

    /// Takes note that an item has ended, and how.
    ///
    /// The end is in the item's slot already. This is called at least once for each item, before
    /// the slot is used again. It is also called for tasks that came from elsewhere, if they look
    /// the same.
    ///
    /// # Errors
    /// The reason why it cannot take note; it is told again.
    async fn commit(&self, id: &str, payload: &[u8], end: End) -> Result<(), InputError>;
}

/// The inputs of a node.
///
/// A supervised input must have the same name on all nodes. Each name is used once.
#[derive(Clone, Default)]
pub struct Inputs {
    pub(super) local: Vec<(String, Arc<dyn Local>)>,
    pub(super) supervised: Vec<(String, Arc<dyn Supervised>)>,
    pub(super) windowed: Option<Arc<dyn Windowed>>,
}

impl Inputs {
    /// Creates an empty set of inputs.
    #[must_use]
    pub fn new() -> Inputs {
        Inputs::default()
    }

    /// Adds an input that runs on this node.
    #[must_use]
    pub fn local(mut self, name: &str, input: impl Local) -> Inputs {
        self.local.push((name.into(), Arc::new(input)));
        self
    }

    /// Adds an input in parts that are shared out among the members.
    #[must_use]
    pub fn supervised(mut self, name: &str, input: impl Supervised) -> Inputs {
        self.supervised.push((name.into(), Arc::new(input)));
        self
    }

    /// Sets the input that the leader lists.
    ///
    /// The cluster keeps one position, so there is one such input, and the last call counts.
    #[must_use]
    pub fn windowed(mut self, input: impl Windowed) -> Inputs {
        self.windowed = Some(Arc::new(input));
        self
    }

    /// Refuses names that cannot be used, before anything starts.
    pub(super) fn check(&self) -> Result<(), ClusterError> {
        let local = self.local.iter().map(|(name, _)| name);
        let names: Vec<&String> =
            local.chain(self.supervised.iter().map(|(name, _)| name)).collect();
        for (index, name) in names.iter().enumerate() {
            check_segment(name)?;
            if name.len() > MAX_INPUT_NAME_BYTES {
                let (position, bytes) = (1, name.len());
                return Err(ClusterError::Name(NameError::SegmentTooLong { position, bytes }));
            }
            if names[..index].contains(name) {
                return Err(ClusterError::InputTwice { name: name.to_string() });
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Inputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inputs")
            .field("local", &self.local.iter().map(|(name, _)| name).collect::<Vec<_>>())
            .field("supervised", &self.supervised.iter().map(|(name, _)| name).collect::<Vec<_>>())
            .field("windowed", &self.windowed.is_some())
            .finish()
    }
}
