//! Leadership by a queue: ordered entries that vanish with their owner's session.
//!
//! ZooKeeper and etcd offer such queues themselves. The first entry, with the lowest token, leads.
//! Every other candidate waits for the entry before its own. That is fair (first come, first led),
//! and a deletion wakes only the next candidate in the queue.
//!
//! # Why there is one leader
//! A new entry never appears before an existing one. So once a candidate has seen a queue with its
//! own entry in it, it knows every entry that will ever stand before it. It leads when all of them
//! are gone, and no two entries can both be first. The candidate must also know that its own entry
//! still stands. The server deletes the entry when it has not heard from the session for `ttl`.
//! Therefore the backend says until when the session's life is *proven* ([`Session`], [`window`]):
//! for `ttl / R`, counted from before a request that is known to have reached the server that
//! counts the `ttl`. A leader believes in itself only inside that window. Any other deletion of an
//! entry has one of two causes: its owner gave it up first, or an operator deleted it, and no
//! protocol can prevent that.
//!
//! # Why tokens never repeat
//! The token is a number that the store gives to the entry's creation (ZooKeeper's czxid, etcd's
//! create revision), and both only rise. Entries lead in the order of their creation. A lost tenure
//! is over for good: its entry is deleted, even if the session lives, and a new entry joins at the
//! end of the queue. An entry left in place would block every entry behind it.
//!
//! A rebuilt store may count from a lower number again, for example after a restore from a backup,
//! or when its contents were copied. Then it would give out old tokens again. To lead, an entry
//! needs a token above every tenure that is recorded for the election, and above every tenure of
//! this process. A lower token is a regression, and ends the candidacy; see the machine's
//! `regression`.
//!
//! # Which reads can be trusted
//! - A queue that shows our own entry may be old, but it is still right that no other entry stands
//!   before us. So a plain read of the session is enough. The exception is after a lost connection:
//!   then we must learn whether our own entry still stands. That read must come after a write that
//!   a quorum took ([`Freshness::Barrier`]).
//! - The predecessor's deletion ([`Gone::Deleted`]) makes us leader without another read only if a
//!   queue with this very entry of ours showed the predecessor as the first. Otherwise the entries
//!   before it may stand, or be gone as well. A deletion makes no leader once the election has
//!   ended: a leader that hears of the end leaves, and the notice of its deletion may overtake the
//!   notice of the end. So a backend says [`Gone::Deleted`] only if it knows that no end is ordered
//!   before the deletion. Everywhere else it says [`Gone::DeletedMaybeEnded`], and one read
//!   decides. The same holds for entries of one process: two candidates of one session stand in one
//!   queue like any others.
//! - An unknown entry of ours was made by a join with a lost answer. We keep it if we wait for that
//!   join, and delete it otherwise: an earlier candidacy's entry is never adopted.
//!
//! # The lock delay
//! In an election with a lock delay, a leader records the beginning of its tenure before it
//! announces it. When the leader leaves after its work has ended, it takes the record back. If the
//! first candidate in the queue finds the record of another tenure, it waits; see the machine's
//! `delay`.
//!
//! # How an election ends
//! A mark says that the election has ended, and which generation. Every candidate sees the mark,
//! ends its work and deletes its own entry. No candidate deletes the entry of another, because that
//! entry's owner could be a leader with work in progress. If an election was deleted, or made anew
//! with another generation, it has ended for the candidates that had joined before.
//!
//! `machine` is the protocol, pure. [`window`] is the arithmetic of sessions that backends share.
//! `mutant` breaks the rules on purpose.

mod entry;
#[cfg(not(feature = "unstable"))]
pub(crate) mod machine;
#[cfg(feature = "unstable")]
pub mod machine;
#[cfg(not(feature = "unstable"))]
pub(crate) mod mutant;
#[cfg(feature = "unstable")]
pub mod mutant;
mod session;
pub mod window;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch;

use crate::Key;
use crate::protocol::Holder;
use crate::store::StoreError;

pub use entry::{Entry, Freshness, Gone, Joined, Left, Place, Queue, Ticket};
pub use session::{Life, Pace, Proof, Session};

/// The queues of elections: ordered entries, each of which vanishes with its owner's session.
///
/// One value stands for one session at a time, and that session serves any number of elections.
/// When a session is over, the backend begins another by itself, with a higher number. Entries of
/// the old session are gone, or going.
///
/// # What every backend promises
/// 1. Tokens rise with every entry, and an entry never appears before one that was already there.
/// 2. [`SessionQueue::session`] never claims too much; the calculators in [`window`] are its proof.
/// 3. No call is retried inside a backend once it may have taken effect: that is
///    [`Fault::Indeterminate`](crate::store::Fault::Indeterminate).
/// 4. Every call ends within the request time-out; a call that does not ends the connection.
/// 5. A barrier read on a new connection shows the outcome of every request of earlier connections,
///    and none of those requests can take effect any more. If a store cannot promise that (etcd),
///    the backend itself watches the keys of its session and deletes entries that no candidacy
///    claims.
///
/// There are no default methods: a wrapper that forgot to forward one would compile.
#[async_trait]
pub trait SessionQueue: fmt::Debug + Send + Sync + 'static {
    /// Puts an entry at the end of the queue, and reads the queue afterwards.
    ///
    /// An election that has ended or is missing is no error but a [`Queue`]. In that case
    /// [`Joined::entry`] says whether an entry was made all the same.
    ///
    /// # Cancel safety
    /// Not cancel safe: a caller that drops it must look for the entry.
    async fn join(
        &self,
        election: &Key,
        ticket: &Ticket,
        holder: &Arc<Holder>,
    ) -> Result<Joined, StoreError>;

    /// Reads the queue, as far as it concerns the ticket's candidacy.
    ///
    /// The queue has at least its first entry, the entries that this process made, and the entry
    /// before each of these, in order.
    ///
    /// If the queue is refused for good ([`Fault::Permanent`](crate::store::Fault::Permanent)),
    /// then no entry of an unanswered join is left in it: a backend deletes such an entry first.
    ///
    /// # Cancel safety
    /// Cancel safe: a caller that drops it asks again.
    async fn read(
        &self,
        election: &Key,
        ticket: &Ticket,
        freshness: Freshness,
    ) -> Result<Queue, StoreError>;

    /// Resolves when this entry is gone, or when only a read of the queue can tell.
    ///
    /// [`Gone::Deleted`] also promises that the election had not ended before the deletion. That
    /// promise must not rest on [`SessionQueue::ended`], because its notice may come later than
    /// this one or never. [`Gone::DeletedMaybeEnded`] promises the deletion alone.
    ///
    /// Resolves at once if the entry is gone already. May never wake.
    ///
    /// # Cancel safety
    /// Cancel safe.
    async fn gone(&self, entry: &Entry) -> Gone;

    /// Resolves when the election may have ended, been deleted or made anew.
    ///
    /// A hint; may never wake.
    ///
    /// # Cancel safety
    /// Cancel safe.
    async fn ended(&self, election: &Key, generation: u64);

    /// Records that the tenure of this entry begins, before it is announced.
    ///
    /// Until the entry is left cleanly, queues show its token as `unclean` of [`Queue::Open`]. Only
    /// elections with a lock delay use this.
    ///
    /// The record replaces an earlier record, but only while this very entry stands. Once the entry
    /// is gone, the call records nothing and fails with
    /// [`Fault::Unavailable`](crate::store::Fault::Unavailable). A queue that is asked for after
    /// the answer shows the record. Idempotent.
    ///
    /// # Cancel safety
    /// Not cancel safe.
    async fn begin(&self, entry: &Entry) -> Result<(), StoreError>;

    /// Records the token of an announced tenure, while its entry stands.
    ///
    /// From then on queues show it as `highest` of [`Queue::Open`]. The machine asks for it some
    /// time after the announcement, which does not wait for it. Only elections without a lock delay
    /// use this: [`SessionQueue::begin`] records the token too. Idempotent.
    ///
    /// A backend that keeps no such record does nothing.
    ///
    /// # Cancel safety
    /// Not cancel safe.
    async fn note(&self, entry: &Entry) -> Result<(), StoreError>;

    /// Deletes an entry of this process, and only that very entry: same name *and* same token.
    ///
    /// `clean` after [`SessionQueue::begin`] takes the record of that tenure back in the same
    /// transaction: its work has ended, and the next candidate need not wait. The record of any
    /// other tenure stays. If the entry is gone already ([`Left::Absent`]), every record stays.
    ///
    /// # Cancel safety
    /// Not cancel safe.
    async fn leave(&self, entry: &Entry, clean: bool) -> Result<Left, StoreError>;

    /// Publishes another value at an entry of this process.
    ///
    /// # Cancel safety
    /// Not cancel safe.
    async fn publish(&self, entry: &Entry, value: &Bytes) -> Result<(), StoreError>;

    /// Makes the election if it is missing, or the next generation of an ended one.
    ///
    /// An open election stays as it is. Returns the current generation.
    ///
    /// A record of [`SessionQueue::begin`] outlives its generation, because its entry may: only
    /// [`SessionQueue::remove`] forgets it.
    ///
    /// # Cancel safety
    /// Not cancel safe: after dropping the future, the election may or may not have been made.
    async fn create(&self, election: &Key) -> Result<u64, StoreError>;

    /// Ends this generation of the election.
    ///
    /// A later generation, or a missing election, stays as it is.
    ///
    /// No entry is deleted. Idempotent.
    ///
    /// # Cancel safety
    /// Not cancel safe.
    async fn end(&self, election: &Key, generation: u64) -> Result<(), StoreError>;

    /// Removes an ended election once its queue is empty; returns true if nothing is left of it.
    ///
    /// Returns `false` while the queue is not empty, or the election is open: ask again when
    /// [`SessionQueue::moved`].
    ///
    /// # Cancel safety
    /// Not cancel safe.
    async fn remove(&self, election: &Key) -> Result<bool, StoreError>;

    /// The whole queue with everyone who stands in it, for people and observers. A decision that is
    /// final needs
    /// [`Freshness::Barrier`]: a server that lags behind may show an earlier generation, or none.
    ///
    /// # Cancel safety
    /// Cancel safe.
    async fn look(&self, election: &Key, freshness: Freshness) -> Result<Queue, StoreError>;

    /// The same queue, for a process that is about to join or to make the election.
    ///
    /// Where the clients of a store may fail to see each other's entries, this refuses such a queue
    /// ([`Fault::Permanent`](crate::store::Fault::Permanent)). [`SessionQueue::join`] and
    /// [`SessionQueue::create`] refuse it too.
    ///
    /// # Cancel safety
    /// Cancel safe.
    async fn survey(&self, election: &Key) -> Result<Queue, StoreError>;

    /// Resolves when the queue may have another first entry, state or value of the first.
    ///
    /// It compares the queue of [`SessionQueue::look`] with `first`. A hint; may wake too often, or
    /// never.
    ///
    /// # Cancel safety
    /// Cancel safe.
    async fn moved(&self, election: &Key, first: Option<&Entry>);

    /// The current state of the session.
    fn session(&self) -> watch::Receiver<Session>;

    /// The known reason why there is no session, or no proven one. It is shown to people.
    ///
    /// Every change of the reason comes with a change of the session.
    fn trouble(&self) -> Option<StoreError>;

    /// Sets how eagerly the session proves its life from now on.
    ///
    /// It is the most that any of its candidacies needs.
    fn pace(&self, pace: Pace);
}
