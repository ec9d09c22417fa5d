//! The errors of a leader feed.

use super::settings::FeedTimingError;
use crate::Error;
use crate::candidate::CandidateError;
use crate::name::NameError;
use crate::store::StoreError;
use crate::timing::TimingError;

/// Why a feed could not be built, started or handed over.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FeedError {
    /// The election behind the feed failed.
    #[error(transparent)]
    Election(#[from] Error),
    /// The times of a feed do not fit.
    #[error(transparent)]
    Intervals(#[from] FeedTimingError),
    /// The store's tables cannot be followed.
    #[error("this store has no change feed, and a leader feed needs one")]
    NoFeed,
    /// The table's name is refused.
    #[error("the table's name is refused: {0}")]
    Table(NameError),
    /// The feed is not started, or has stopped.
    #[error("the feed is not started")]
    NotStarted,
}

impl From<CandidateError> for FeedError {
    fn from(error: CandidateError) -> FeedError {
        FeedError::Election(error.into())
    }
}

impl From<StoreError> for FeedError {
    fn from(error: StoreError) -> FeedError {
        FeedError::Election(error.into())
    }
}

impl From<TimingError> for FeedError {
    fn from(error: TimingError) -> FeedError {
        FeedError::Election(error.into())
    }
}
