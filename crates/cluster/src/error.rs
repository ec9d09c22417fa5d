//! The errors of a cluster.

use std::sync::Arc;

use tenure::store::StoreError;
use tenure::{CandidateError, Error, Key, NameError};

use super::documents::DocumentError;

/// Why a cluster could not be joined, read or changed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The cluster's name is refused.
    #[error("the cluster's name is refused: {0}")]
    Name(#[from] NameError),
    /// The store did not serve.
    #[error("the store does not serve")]
    Store(#[from] StoreError),
    /// An election of the cluster failed: its leader's, a lock's, or an input's.
    #[error(transparent)]
    Election(#[from] Error),
    /// A document of a cluster is invalid.
    #[error("the document {key} makes no sense")]
    Document {
        /// The document.
        key: Key,
        /// The reason.
        #[source]
        source: DocumentError,
    },
    /// A cluster has as many nodes as it can have.
    #[error("the cluster has {most} nodes, which is as many as a node list holds")]
    Full {
        /// The most nodes there can be.
        most: usize,
    },
    /// A submitted task is refused.
    #[error("the task at place {index} (counted from 0) is refused, and with it all of them")]
    Order {
        /// The place of the task, counted from 0.
        index: usize,
        /// The reason.
        #[source]
        source: DocumentError,
    },
    /// Only some of the submitted tasks were accepted, in their order.
    #[error("of {of} tasks {accepted} were accepted, and {doubtful} may have been")]
    PartlyAccepted {
        /// How many of the first tasks are in the store.
        accepted: usize,
        /// For how many of the next tasks this is unknown.
        ///
        /// Either all of them are in the store or none.
        doubtful: usize,
        /// How many were submitted.
        of: usize,
        /// Why not all were accepted.
        #[source]
        source: Arc<ClusterError>,
    },
    /// A page of the inbox was reused too often to know the outcome of a write to it.
    #[error("{key} was used again before it was known what became of a write to it")]
    Overtaken {
        /// The key of the page.
        key: Key,
    },
    /// Two inputs of a node have the same name.
    #[error("two inputs have the name {name}; each needs one of its own")]
    InputTwice {
        /// The name.
        name: String,
    },
    /// The node list was deleted.
    #[error("the cluster's node list was deleted behind our back")]
    Vanished,
    /// The serial numbers of tasks cannot rise any further.
    #[error("the cluster's serial numbers are used up; use another name")]
    Exhausted,
    /// Too many others changed the documents at the same time.
    #[error("other processes changed the cluster's documents {attempts} times meanwhile")]
    Contended {
        /// The number of attempts.
        attempts: u32,
    },
    /// The runtime that served this node has stopped.
    #[error("the runtime that served this node has stopped")]
    Stopped,
}

impl From<CandidateError> for ClusterError {
    fn from(error: CandidateError) -> ClusterError {
        ClusterError::Election(error.into())
    }
}
