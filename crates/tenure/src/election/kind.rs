//! The seam between elections and the two ways to decide them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use async_trait::async_trait;
use tokio::sync::watch;

use super::Election;
use crate::Error;
use crate::backend::Backend;
use crate::driver::{Participant, Shared};
use crate::observer::{Seen, Standing};
use crate::protocol::Holder;
use crate::queue::Session;
use crate::registry::Registered;

/// How an election is decided: by a lease in its record, or by a queue of entries.
///
/// Methods with the name of a method of [`Election`] do its work.
#[async_trait]
pub(super) trait Kind: fmt::Debug + Send + Sync {
    /// Makes sure that the election exists and has not ended; creates it only if `create`.
    async fn ensure(&self, of: &Election, create: bool) -> Result<(), Error>;
    async fn create(&self, of: &Election) -> Result<(), Error>;
    async fn end(&self, of: &Election) -> Result<(), Error>;
    async fn delete(&self, of: &Election) -> Result<(), Error>;
    async fn standing(&self, of: &Election) -> Result<Standing, Error>;
    async fn candidates(&self, of: &Election) -> Result<Vec<Registered>, Error>;

    /// Fills in the state of a listed election, where its record does not say it.
    async fn complete(&self, on: &Backend, listed: Standing) -> Result<Standing, Error>;

    /// A candidacy and an observer, for the driver.
    fn candidacy(&self, of: &Election, who: Holder, shared: Arc<Shared>) -> Box<dyn Participant>;
    fn observer(&self, of: &Election, seen: watch::Sender<Option<Seen>>) -> Box<dyn Participant>;

    /// The sessions whose ttl counts instead of the ttl of the election's timing.
    fn sessions(&self) -> Option<watch::Receiver<Session>>;

    /// The highest token that a candidacy of this handle led under, if the handle must remember it.
    fn led(&self) -> Option<&AtomicU64>;
}
