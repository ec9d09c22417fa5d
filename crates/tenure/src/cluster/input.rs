//! Where work comes from: inputs, in three kinds.
//!
//! - [`Local`]: a listener, which runs on every node that has it.
//! - [`Supervised`]: pollers and consumers, whose parts the leader shares out among the members;
//!   each part runs under a lease of its own.
//! - [`Windowed`]: something that the leader lists, a window at a time, with its place kept in the
//!   store.
//!
//! [`inputs`](super::inputs) has those that need nothing but a file system, the crate
//! `tenure-inputs` those that need a network.

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

use super::documents::{NodeEntry, Order};
use crate::name::check_segment;
use crate::{Error, Mandate, NameError};

pub use emitter::Emitter;
pub(super) use local::run_local;
pub(super) use supervised::run_supervised;
pub use template::Template;

/// The most bytes of an input's name: it is a part of the names of its leases.
pub const MAX_INPUT_NAME_BYTES: usize = 64;

/// Why an input failed, in words; it is tried again after a pause.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct InputError(pub String);

impl InputError {
    /// Says what was attempted, and what came of it with all its causes.
    pub fn new(doing: impl fmt::Display, error: &dyn std::error::Error) -> InputError {
        let mut says = format!("{doing}: {error}");
        let mut cause = error.source();
        while let Some(next) = cause {
            let words = next.to_string();
            // Some errors say what their cause says.
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
    /// Whatever ended it.
    async fn run(&self, emitter: &Emitter) -> Result<(), InputError>;
}

/// One part of a supervised input: whatever its maker understands. Parts with equal values are the
/// same part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Partition(pub serde_json::Value);

/// What a partition runs with.
#[derive(Clone, Debug)]
pub struct PartitionContext {
    /// The right to run this partition; its token rises whenever it changes hands.
    pub mandate: Mandate,
    /// Where to put what it finds.
    pub emitter: Emitter,
}

/// An input that is partitioned once, and stopped, repartitioned and started again when members
/// change: a poller, a consumer group.
///
/// A part never runs twice at once, whoever is slow to hear of a change: it runs under a lease of
/// its own, named by its value. Parts whose values differ are taken to be independent of each
/// other. So rather give the same parts whatever the members are (`["orders", 0]` to `["orders",
/// 63]`) than ranges that depend on how many there are: the old ranges may still run somewhere for
/// a moment when the new ones start.
#[async_trait]
pub trait Supervised: Send + Sync + 'static {
    /// Its parts for these members, at most 1,024, and 60 KiB as JSON together with the members.
    /// The leader asks.
    ///
    /// # Errors
    /// Whatever keeps it from saying; it is asked again after a pause.
    ///
    /// # Cancel safety
    /// Must be cancel safe: it is dropped when the leader stops leading.
    async fn partitions(&self, members: &[NodeEntry]) -> Result<Vec<Partition>, InputError>;

    /// Runs one part until it is dropped, which happens when it moves to another member or the
    /// right to run it is lost.
    ///
    /// # Errors
    /// Whatever ended it; it is started again after a pause.
    ///
    /// # Cancel safety
    /// Must be cancel safe.
    async fn run(
        &self,
        partition: &Partition,
        context: &PartitionContext,
    ) -> Result<(), InputError>;
}

/// What a windowed input has to offer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// The next items, in order.
    pub orders: Vec<Order>,
    /// Where to go on after them; kept in the store with them. At most 4 KiB.
    pub position: Option<String>,
    /// There will never be more.
    pub drained: bool,
}

/// How an item ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// It was done.
    Done,
    /// Its attempts were used up; it is among the dead letters, and may be retried.
    Dead,
    /// Somebody cancelled it.
    Cancelled,
}

/// An input that the leader reads a window at a time, with its place kept in the store: files in a
/// directory or a bucket.
#[async_trait]
pub trait Windowed: Send + Sync + 'static {
    /// The next items after `position`, at most `max`. Waits while there are none and it is not
    /// drained.
    ///
    /// Asked twice for the same position it must give the same items, or more of them.
    ///
    /// # Errors
    /// Whatever keeps it from saying; it is asked again after a pause.
    ///
    /// # Cancel safety
    /// Must be cancel safe.
    async fn outstanding(&self, position: Option<&str>, max: usize) -> Result<Window, InputError>;

    /// Told that this item is at its end and in the books, and how it ended. At least once; the
    /// item's place is used again afterwards. It is told of tasks that came from elsewhere too, if
    /// they look the same.
    ///
    /// # Errors
    /// Whatever keeps it from taking note; it is told again.
    async fn commit(&self, id: &str, payload: &[u8], end: End) -> Result<(), InputError>;
}

/// The inputs of a node.
///
/// Names must be the same on all nodes for supervised inputs, and each is used once.
#[derive(Clone, Default)]
pub struct Inputs {
    pub(super) local: Vec<(String, Arc<dyn Local>)>,
    pub(super) supervised: Vec<(String, Arc<dyn Supervised>)>,
    pub(super) windowed: Option<Arc<dyn Windowed>>,
}

impl Inputs {
    /// None yet.
    #[must_use]
    pub fn new() -> Inputs {
        Inputs::default()
    }

    /// The same, and one that runs on this node.
    #[must_use]
    pub fn local(mut self, name: &str, input: impl Local) -> Inputs {
        self.local.push((name.into(), Arc::new(input)));
        self
    }

    /// The same, and one whose parts are shared out among the members.
    #[must_use]
    pub fn supervised(mut self, name: &str, input: impl Supervised) -> Inputs {
        self.supervised.push((name.into(), Arc::new(input)));
        self
    }

    /// The same, and the one that the leader lists; the cluster keeps one position, so there is
    /// one, and the last counts.
    #[must_use]
    pub fn windowed(mut self, input: impl Windowed) -> Inputs {
        self.windowed = Some(Arc::new(input));
        self
    }

    /// Refuses names that cannot be used, before anything starts.
    pub(super) fn check(&self) -> Result<(), Error> {
        let local = self.local.iter().map(|(name, _)| name);
        let names: Vec<&String> =
            local.chain(self.supervised.iter().map(|(name, _)| name)).collect();
        for (index, name) in names.iter().enumerate() {
            check_segment(name)?;
            if name.len() > MAX_INPUT_NAME_BYTES {
                let (position, bytes) = (1, name.len());
                return Err(Error::Name(NameError::SegmentTooLong { position, bytes }));
            }
            if names[..index].contains(name) {
                return Err(Error::InputTwice { name: name.to_string() });
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
