//! Where work comes from: inputs, in three kinds.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::books::Books;
use super::documents::{NodeEntry, Order};
use crate::{Error, Mandate};

/// Why an input failed, in words; it is tried again after a pause.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct InputError(pub String);

/// Where an input puts what it finds.
#[derive(Clone, Debug)]
pub struct Emitter {
    pub(super) books: Books,
}

impl Emitter {
    /// Accepts tasks: when this returns they are in the store, and will be done. Waits while the inbox is full.
    ///
    /// # Errors
    /// As for [`Books::submit`].
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future leaves it open whether they were accepted.
    pub async fn emit(&self, orders: Vec<Order>) -> Result<(), Error> {
        self.books.submit(orders).await
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

/// One part of a supervised input: whatever its maker understands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partition(pub serde_json::Value);

/// What a partition runs with.
#[derive(Clone, Debug)]
pub struct PartitionContext {
    /// The right to run this partition; its token rises whenever it changes hands.
    pub mandate: Mandate,
    /// Where to put what it finds.
    pub emitter: Emitter,
}

/// An input that is partitioned once, and stopped, repartitioned and started again when members change: a poller, a
/// consumer group.
#[async_trait]
pub trait Supervised: Send + Sync + 'static {
    /// Its parts for these members, at most 1,024. The leader asks.
    ///
    /// # Errors
    /// Whatever keeps it from saying; it is asked again after a pause.
    async fn partitions(&self, members: &[NodeEntry]) -> Result<Vec<Partition>, InputError>;

    /// Runs one part until it is dropped, which happens when members change or the right to run it is lost.
    ///
    /// # Errors
    /// Whatever ended it; it is started again after a pause.
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
    /// Where to go on after them; kept in the store with them.
    pub position: Option<String>,
    /// There will never be more.
    pub drained: bool,
}

/// An input that the leader reads a window at a time, with its place kept in the store: files in a directory or a bucket.
#[async_trait]
pub trait Windowed: Send + Sync + 'static {
    /// The next items after `position`, at most `max`. Waits while there are none and it is not drained.
    ///
    /// Asked twice for the same position it must give the same items, or more of them.
    ///
    /// # Errors
    /// Whatever keeps it from saying; it is asked again after a pause.
    ///
    /// # Cancel safety
    /// Must be cancel safe.
    async fn outstanding(&self, position: Option<&str>, max: usize) -> Result<Window, InputError>;

    /// Told that this item is at its end and in the books. At least once; the item's place is used again afterwards.
    ///
    /// # Errors
    /// Whatever keeps it from taking note; it is told again.
    async fn commit(&self, id: &str, payload: &[u8]) -> Result<(), InputError>;
}

/// The inputs of a node.
#[derive(Clone, Default)]
pub struct Inputs {
    pub(super) local: Vec<(String, Arc<dyn Local>)>,
    pub(super) supervised: Vec<(String, Arc<dyn Supervised>)>,
    pub(super) windowed: Option<Arc<dyn Windowed>>,
}

impl std::fmt::Debug for Inputs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inputs")
            .field("local", &self.local.len())
            .field("supervised", &self.supervised.len())
            .field("windowed", &self.windowed.is_some())
            .finish()
    }
}
