//! Reads of several documents at once.

use futures_util::future::join_all;
use tenure::store::Document;

use super::client::{Client, Error, Pending};
use super::record;
use super::wire::{Found, Stat};

/// How many documents one request asks for.
///
/// Even if all of them have the maximum length, the answer is far below the limit that we accept.
const MOST_TOGETHER: usize = 64;

/// The request before a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behind {
    /// None, or the caller's own `sync`. The read proves nothing.
    Nothing,
    /// A write that a quorum takes. The read shows every write that was acknowledged before.
    Barrier,
}

/// Reads on their way to the server.
pub(super) enum Asked {
    /// One answer for several documents, and their number.
    Together(Vec<(usize, Pending<Vec<Found>>)>),
    /// One answer for each document.
    Singly(Vec<Pending<(Vec<u8>, Stat)>>),
}

/// Asks for the documents at these paths.
pub(super) fn ask(client: &Client, paths: Vec<String>, behind: Behind) -> Asked {
    if paths.len() > 1 && client.reads_many() {
        let mut chunks = Vec::with_capacity(paths.len().div_ceil(MOST_TOGETHER));
        let mut rest = paths.into_iter();
        loop {
            let chunk: Vec<String> = rest.by_ref().take(MOST_TOGETHER).collect();
            if chunk.is_empty() {
                return Asked::Together(chunks);
            }
            chunks.push((chunk.len(), client.many_data(chunk, behind == Behind::Barrier)));
        }
    }
    let read = |path: &String| match behind {
        Behind::Nothing => client.data(path),
        Behind::Barrier => client.proven_data(path),
    };
    Asked::Singly(paths.iter().map(read).collect())
}

impl Asked {
    /// Waits for the documents, in the order they were asked for; `None` if one does not exist.
    pub(super) async fn documents(self) -> Result<Vec<Option<Document>>, Error> {
        match self {
            Asked::Singly(asked) => join_all(asked).await.into_iter().map(document).collect(),
            Asked::Together(asked) => {
                let mut documents = Vec::new();
                for (count, asked) in asked {
                    let found = asked.await?;
                    if found.len() != count {
                        return Err(Error::Malformed);
                    }
                    for found in found {
                        documents.push(document(found.map_err(Error::from))?);
                    }
                }
                Ok(documents)
            }
        }
    }
}

/// The document that a read found, or `None` if it does not exist.
fn document(read: Result<(Vec<u8>, Stat), Error>) -> Result<Option<Document>, Error> {
    match read {
        Ok((data, stat)) => Ok(Some(record::document(data, &stat))),
        Err(Error::NoNode) => Ok(None),
        Err(error) => Err(error),
    }
}
