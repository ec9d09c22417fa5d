//! Leadership as a queue: an ordered line of entries that vanish with their owner's session.
//!
//! ZooKeeper and etcd offer such lines themselves. The lowest entry leads; everybody else waits for the one
//! before it. That is fair (first come, first led), and nobody but the next in line is woken.
//!
//! # Why there is one leader
//! An entry never appears before one that is already there: whoever has once seen a line that shows its own
//! entry knows all who will ever stand before it. It leads when all of them are gone, and no two entries can
//! both have nobody before them. What is left is to know that one's own entry still stands. The server deletes it
//! when it has not heard of the session for `ttl`; the backend therefore tells until when life is *proven*
//! ([`Session`], [`window`]), counted from before a request that is known to have reached the server that
//! counts, for `ttl / R`; and a leader believes in itself only inside that window. An entry that is deleted
//! otherwise is given up first, by its owner, or was taken by an operator, whom no protocol can stop.
//!
//! # Why tokens never repeat
//! The token is what the store says of the entry's creation (czxid, create revision), and both only rise.
//! Entries lead in the order in which they were made. A tenure that was lost is over for good: its entry is
//! deleted, though the session may live, and a new one joins at the end of the line. An entry left in place would
//! block everybody behind it.
//!
//! A store that was rebuilt may count from a lower number again: from a backup, or with its contents copied. Then
//! tokens that were given out would be given out again. An entry whose token is not above every tenure that is
//! recorded for the election, or that this process has led, never leads: that is a regression, and ends the
//! candidacy; see the machine's `regression`.
//!
//! # What may be believed
//! - A line that shows our own entry may be old, and is still right about who is *not* before us: that is why
//!   a plain read of the session is enough, except after a lost connection, when the question is whether our own
//!   entry still stands. Then the read must come after a write that a quorum took ([`Freshness::Barrier`]).
//! - The predecessor's deletion ([`Gone::Deleted`]) makes us leader without another look only if it was first in
//!   a line that showed this very entry of ours. If it was not, those before it may stand, or be gone as well. It
//!   makes no leader once the election has ended: a leader that hears of the end leaves, and the notice of its
//!   deletion may overtake the notice of the end. So a backend says [`Gone::Deleted`] only where it knows that no end
//!   is ordered before the deletion. Everywhere else it says [`Gone::DeletedMaybeEnded`], and one read decides. That
//!   holds for the entries of one process too: two candidates of one session stand in one line like any others.
//! - An entry of ours that we did not know of was made by a join whose answer was lost. It is taken if that
//!   join is the one we wait for, and deleted otherwise: an earlier candidacy's entry is never adopted.
//!
//! # The lock delay
//! In an election that has one, a leader records that its tenure begins before that is announced, and takes the
//! record back when it leaves after its work. Whoever is first and finds another's record waits; see the
//! machine's `delay`.
//!
//! # How an election ends
//! A mark says so, with the generation it ends. Every candidate sees it, ends its work and deletes its own
//! entry; nobody deletes another's, because that could be a leader's whose work goes on. An election that was
//! deleted, or made anew with another generation, has ended for those who had joined before.
//!
//! [`machine`] is the protocol, pure; [`window`] the arithmetic of sessions that backends share; [`mutant`] the
//! rules broken on purpose.

mod line;
pub mod machine;
pub mod mutant;
mod session;
pub mod window;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch;

use crate::lease::record::Holder;
use crate::{Key, StoreError};

pub use line::{Entry, Freshness, Gone, Joined, Left, Line, Place, Ticket};
pub use session::{Life, Pace, Proof, Session};

/// An ordered line of entries per election, each of which vanishes with its owner's session.
///
/// One value stands for one session at a time, which serves any number of elections. When a session is over the
/// backend begins another by itself, with a higher number; entries of the old one are gone, or going.
///
/// # What every backend promises
/// 1. Tokens rise with every entry, and an entry never appears before one that was already there.
/// 2. [`SessionQueue::session`] never claims too much; the calculators in [`window`] are its proof.
/// 3. No call is retried inside a backend once it may have taken effect: that is
///    [`Fault::Indeterminate`](crate::Fault::Indeterminate).
/// 4. Every call ends within the request time-out; one that does not ends the connection.
/// 5. A barrier read asked for on a new connection shows what became of every request of earlier ones, and none
///    of those can take effect any more. Where a store cannot promise that (etcd), the backend itself watches the
///    keys of its session and deletes entries that no candidacy claims.
///
/// There are no default methods: a wrapper that forgot to forward one would compile.
#[async_trait]
pub trait SessionQueue: fmt::Debug + Send + Sync + 'static {
    /// Puts an entry at the end of the line, and reads the line afterwards.
    ///
    /// An election that has ended or is missing is no error but a [`Line`]; then [`Joined::entry`] says whether
    /// an entry was made all the same.
    ///
    /// # Cancel safety
    /// Not cancel safe: whoever drops it must look for the entry.
    async fn join(
        &self,
        election: &Key,
        ticket: &Ticket,
        holder: &Arc<Holder>,
    ) -> Result<Joined, StoreError>;

    /// Reads the line as it concerns `candidacy`: at least its first, those this process made, and the one
    /// before each of these, in order.
    ///
    /// A line that it refuses for good ([`Fault::Permanent`](crate::Fault::Permanent)) holds no entry of a join that was
    /// not answered: a backend deletes such an entry first.
    ///
    /// # Cancel safety
    /// Cancel safe: whoever drops it asks again.
    async fn line(
        &self,
        election: &Key,
        ticket: &Ticket,
        freshness: Freshness,
    ) -> Result<Line, StoreError>;

    /// Resolves when this entry is gone, or when that can no longer be told without looking.
    ///
    /// [`Gone::Deleted`] also promises that the election had not ended before the deletion. That must not rest on
    /// [`SessionQueue::ended`], whose notice may come later than this one or never.
    /// [`Gone::DeletedMaybeEnded`] promises the deletion alone.
    ///
    /// Resolves at once if the entry is gone already. May never wake.
    ///
    /// # Cancel safety
    /// Cancel safe.
    async fn gone(&self, entry: &Entry) -> Gone;

    /// Resolves when the election may have ended, been deleted or made anew. A hint; may never wake.
    ///
    /// # Cancel safety
    /// Cancel safe.
    async fn ended(&self, election: &Key, generation: u64);

    /// Records that the tenure of this entry begins, before it is announced: until it is left cleanly, lines
    /// show it as `unclean` of [`Line::Open`]. Asked for only in elections with a lock delay.
    ///
    /// It takes the place of an earlier record, and only while this very entry stands: once that is gone,
    /// nothing is recorded, and the answer is [`Fault::Unavailable`](crate::Fault::Unavailable). A line that is
    /// asked for after its answer shows it. Idempotent.
    ///
    /// # Cancel safety
    /// Not cancel safe.
    async fn begin(&self, entry: &Entry) -> Result<(), StoreError>;

    /// Records the token of a tenure that was announced, while its entry stands: from then on lines show it as
    /// `highest` of [`Line::Open`]. Asked for some time after the announcement, which does not wait for it, and only
    /// in elections without a lock delay: [`SessionQueue::begin`] records the token too. Idempotent.
    ///
    /// A backend that keeps no such record does nothing.
    ///
    /// # Cancel safety
    /// Not cancel safe.
    async fn note(&self, entry: &Entry) -> Result<(), StoreError>;

    /// Deletes an entry of this process, and only that very one: same name *and* same token.
    ///
    /// `clean` after [`SessionQueue::begin`] takes the record of that tenure back in the same transaction: its
    /// work has ended, and the next in line need not wait. The record of any other tenure stays, and if the
    /// entry is gone already ([`Left::Absent`]) every record does.
    ///
    /// # Cancel safety
    /// Not cancel safe.
    async fn leave(&self, entry: &Entry, clean: bool) -> Result<Left, StoreError>;

    /// Publishes another value at an entry of this process.
    ///
    /// # Cancel safety
    /// Not cancel safe.
    async fn publish(&self, entry: &Entry, value: &Bytes) -> Result<(), StoreError>;

    /// Makes the election if it is missing, and the next generation of one that has ended; one that is open
    /// stays as it is. Says which generation there is now.
    ///
    /// A record of [`SessionQueue::begin`] outlives its generation, because its entry may: only
    /// [`SessionQueue::remove`] forgets it.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future leaves open whether it was made.
    async fn create(&self, election: &Key) -> Result<u64, StoreError>;

    /// Ends this generation of the election; a later one, or an election that is missing, stays as it is.
    ///
    /// Nobody's entry is deleted. Idempotent.
    ///
    /// # Cancel safety
    /// Not cancel safe.
    async fn end(&self, election: &Key, generation: u64) -> Result<(), StoreError>;

    /// Removes an election that has ended once nobody stands in it; says whether nothing is left of it.
    ///
    /// `false` while the line is not empty, or the election is open: ask again when [`SessionQueue::moved`].
    ///
    /// # Cancel safety
    /// Not cancel safe.
    async fn remove(&self, election: &Key) -> Result<bool, StoreError>;

    /// The whole line with everyone who stands in it, for people and observers. A decision that is final needs
    /// [`Freshness::Barrier`]: a server that lags behind may show an earlier generation, or none.
    ///
    /// # Cancel safety
    /// Cancel safe.
    async fn look(&self, election: &Key, freshness: Freshness) -> Result<Line, StoreError>;

    /// The same, for a process that is about to stand in the line or to make it.
    ///
    /// Refuses ([`Fault::Permanent`](crate::Fault::Permanent)) a line whose candidates would not see ours, or ours
    /// not them, where the store's clients may disagree on that; [`SessionQueue::join`] and
    /// [`SessionQueue::create`] refuse it too.
    ///
    /// # Cancel safety
    /// Cancel safe.
    async fn survey(&self, election: &Key) -> Result<Line, StoreError>;

    /// Resolves when what [`SessionQueue::look`] shows may be another first than `first`, another state of the
    /// election, or another value of the first. A hint; may wake too often, or never.
    ///
    /// # Cancel safety
    /// Cancel safe.
    async fn moved(&self, election: &Key, first: Option<&Entry>);

    /// What is known of the session.
    fn session(&self) -> watch::Receiver<Session>;

    /// The reason why there is no session, or none that is proven, where it is known. It is shown to people.
    ///
    /// A change of it comes with a change of the session.
    fn trouble(&self) -> Option<StoreError>;

    /// How the session is to prove its life from now on: the most that any of its candidacies needs.
    fn pace(&self, pace: Pace);
}
