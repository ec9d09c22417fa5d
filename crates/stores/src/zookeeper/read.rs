//! Documents that are read together.

use futures_util::future::join_all;
use tenure::Document;

use super::client::{Client, Error, Pending};
use super::record;
use super::wire::{Found, Stat};

/// How many documents one request asks for. All of them may be as long as documents get, and the
/// answer is still far shorter than what we take.
const MOST_TOGETHER: usize = 64;

/// The request before a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behind {
    /// None, or the caller's own `sync`: the read proves nothing.
    Nothing,
    /// A write that a quorum takes: the read shows every write that was acknowledged before.
    Barrier,
}

/// What was asked; all of it is on its way.
pub(super) enum Asked {
    /// As many in each answer as fit.
    Together(Vec<(usize, Pending<Vec<Found>>)>),
    /// One in each answer.
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
    /// The documents, in the order they were asked for; nothing where there is none.
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

/// What a read found; nothing is an answer too.
fn document(read: Result<(Vec<u8>, Stat), Error>) -> Result<Option<Document>, Error> {
    match read {
        Ok((data, stat)) => Ok(Some(record::document(data, &stat))),
        Err(Error::NoNode) => Ok(None),
        Err(error) => Err(error),
    }
}
