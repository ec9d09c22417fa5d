//! The outcomes of tasks: results and dead letters.

use tenure::Key;
use tenure::store::Document;

use super::Garbled;
use crate::client::ClusterClient;
use crate::documents::{Cursor, Format, Letter, Piece, Report};
use crate::error::ClusterError;

/// How many pieces are read at a time.
const PIECES: u64 = 16;

/// Some outcomes, in the order in which the leader collected them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Results {
    /// The outcomes. Every task that ended is in exactly one piece.
    pub reports: Vec<Report>,
    /// The piece to go on from.
    pub next: u64,
    /// There were more pieces when this was read.
    pub more: bool,
    /// Invalid pieces. Missing ones are only logged.
    pub garbled: Vec<Garbled>,
}

/// Some dead letters, in the order of their serial numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Letters {
    /// The letters.
    pub items: Vec<Letter>,
    /// The key to go on after, if there may be more.
    pub next: Option<Key>,
    /// Invalid letters.
    pub garbled: Vec<Garbled>,
}

impl ClusterClient {
    /// The outcomes of tasks, from this piece on; 0 is the first.
    ///
    /// Returns a bounded part: go on from [`Results::next`].
    ///
    /// # Errors
    /// [`ClusterError::Store`] if the store does not serve, [`ClusterError::Document`] if the
    /// cursor is invalid.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn results(&self, from: u64) -> Result<Results, ClusterError> {
        // A leader may still rewrite a piece beyond the cursor's count.
        let cursor = self.read::<Cursor>(&self.keys.cursor()).await?;
        let pieces = cursor.map_or(0, |(_, cursor)| cursor.pieces);
        let end = pieces.min(from.saturating_add(PIECES)).max(from);
        let keys: Vec<Key> = (from..end).map(|number| self.keys.piece(number)).collect();
        let found = self.find_many::<Piece>(&keys).await?;
        let mut results = Results { next: end, more: end < pieces, ..Results::default() };
        if results.more && found.iter().all(Option::is_none) {
            // The cursor counts pieces that are missing; only the store knows where the next one
            // is.
            let next = self.next_piece(end).await?.filter(|next| *next < pieces);
            (results.next, results.more) = (next.unwrap_or(pieces), next.is_some());
        }
        for (key, found) in keys.into_iter().zip(found) {
            match found.map(|found| found.content) {
                Some(Ok(piece)) => results.reports.extend(piece.reports),
                Some(Err(error)) => results.garbled.push((key, error)),
                None => tracing::warn!(%key, "a piece of results is gone"),
            }
        }
        Ok(results)
    }

    /// The number of the first piece in the store, from this one on.
    async fn next_piece(&self, from: u64) -> Result<Option<u64>, ClusterError> {
        let pieces = self.keys.pieces();
        let before = from.checked_sub(1).map(|number| self.keys.piece(number));
        let page = self.store().list(&pieces, before.as_ref(), 1).await?;
        let number = |(key, _): &(Key, Document)| key.below(&pieces)?.parse().ok();
        Ok(page.documents.first().and_then(number))
    }

    /// At most `most` dead letters, after the [`Letters::next`] of an earlier call.
    ///
    /// # Errors
    /// [`ClusterError::Store`] if the store does not serve.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn letters(&self, after: Option<&Key>, most: usize) -> Result<Letters, ClusterError> {
        let page = self.store().list(&self.keys.letters(), after, most).await?;
        // A backend that does not move on would keep its caller here for ever.
        let next = page.next.filter(|next| after.is_none_or(|after| after < next));
        let mut letters = Letters { next, ..Letters::default() };
        for (key, document) in page.documents {
            match Letter::decode(&document.body) {
                Ok(letter) => letters.items.push(letter),
                Err(error) => letters.garbled.push((key, error)),
            }
        }
        Ok(letters)
    }
}
