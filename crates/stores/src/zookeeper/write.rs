//! One conditional write.

use super::Shared;
use super::client::{Client, Error};
use super::record::{Edition, Number};
use super::wire::{Code, Lifetime, Request, Results};
use bytes::Bytes;
use futures_util::future::join_all;
use tenure::store::{Expect, MAX_DOCUMENT_BYTES, Put, Version, Write};

/// How often a write is tried while levels above it are missing.
///
/// The server removes empty levels in the background. If levels are missing more often than this,
/// another client deletes them.
const MOST_ATTEMPTS: usize = 3;

/// Refuses writes that must not be sent to a server.
pub(super) fn check(write: &Write) -> Result<(), String> {
    match &write.body {
        Some(body) if body.len() > MAX_DOCUMENT_BYTES => {
            Err(format!("{} bytes are more than {MAX_DOCUMENT_BYTES}", body.len()))
        }
        _ => Ok(()),
    }
}

/// Sends a single write. It is sent again only if it certainly had no effect.
pub(super) async fn carry_out(
    client: &Client,
    shared: &Shared,
    write: &Write,
) -> Result<Put, Error> {
    if let Some(change) = Change::of(shared, write) {
        return alone(client, shared, &change).await;
    }
    let path = shared.paths.document(&write.key);
    match &write.expect {
        Expect::Absent => match client.exists(&path).await {
            Ok(_) => Ok(Put::Conflict),
            Err(Error::NoNode) => Ok(Put::Stored(Version::new("absent"))),
            Err(error) => Err(error),
        },
        // This version is not one of ours, so only a document written by hand can be at it.
        Expect::At(version) => mend(client, shared, &path, version, write.body.as_deref()).await,
    }
}

/// The form of nearly every write: two operations that happen together or not at all.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) operations: [Request; 2],
    /// The document's version after the write.
    version: Version,
}

/// The meaning of a refused operation for its change.
#[derive(Debug)]
pub(super) enum Refusal<'a> {
    /// Levels above the document at this path are missing. The change can be tried again once they
    /// exist.
    LevelsMissing(&'a str),
    /// The change has this outcome.
    Decided(Result<Put, Error>),
}

impl Change {
    /// Returns `None` for a write that needs more than two operations.
    pub(super) fn of(shared: &Shared, write: &Write) -> Option<Change> {
        let edition = match &write.expect {
            Expect::Absent => None,
            Expect::At(version) => Some(Edition::parse(version)?),
        };
        let path = shared.paths.document(&write.key);
        match (edition, &write.body) {
            (None, None) => None,
            (None, Some(body)) => Some(Change::creating(shared, path, body)),
            (Some(edition), Some(body)) => Some(Change::replacing(path, edition, body)),
            (Some(edition), None) => Some(Change::deleting(path, edition)),
        }
    }

    fn creating(shared: &Shared, path: String, body: &[u8]) -> Change {
        let number = Number::fresh();
        let below = lasting(shared, number.below(&path), Vec::new());
        let document = lasting(shared, path, number.with(body));
        Change { operations: [document, below], version: Edition::first(number).name() }
    }

    fn replacing(path: String, edition: Edition, body: &[u8]) -> Change {
        let Edition { number, version } = &edition;
        let data = number.with(body).into();
        let operations = [
            // The node must exist, at any version.
            Request::Check { path: number.below(&path), version: -1 },
            Request::SetData { path, data, version: *version },
        ];
        Change { operations, version: edition.next().name() }
    }

    fn deleting(path: String, edition: Edition) -> Change {
        let Edition { number, version } = &edition;
        let operations = [
            Request::Delete { path: number.below(&path), version: -1 },
            Request::Delete { path, version: *version },
        ];
        Change { operations, version: edition.next().name() }
    }

    pub(super) fn stored(&self) -> Put {
        Put::Stored(self.version.clone())
    }

    pub(super) fn refused(&self, error: Error) -> Refusal<'_> {
        match &self.operations {
            [Request::Create { path, .. }, _] if error == Error::NoNode => {
                Refusal::LevelsMissing(path)
            }
            [Request::Create { .. }, _] if error == Error::NodeExists => {
                Refusal::Decided(Ok(Put::Conflict))
            }
            [Request::Create { .. }, _] => Refusal::Decided(Err(error)),
            [_, _] => Refusal::Decided(unless_at_odds(error)),
        }
    }

    /// The change's size in a request.
    pub(super) fn length(&self) -> usize {
        self.operations.iter().map(Request::length).sum()
    }
}

async fn alone(client: &Client, shared: &Shared, change: &Change) -> Result<Put, Error> {
    let mut attempt = 1;
    loop {
        let refused = match commit(client, change.operations.to_vec()).await {
            Ok(_) => return Ok(change.stored()),
            Err(error) => change.refused(error),
        };
        match refused {
            Refusal::Decided(outcome) => return outcome,
            Refusal::LevelsMissing(_) if attempt == MOST_ATTEMPTS => return Err(Error::NoNode),
            Refusal::LevelsMissing(path) => create_levels(client, shared, path).await?,
        }
        attempt += 1;
    }
}

/// Creates the missing levels above a document.
pub(super) async fn create_levels(
    client: &Client,
    shared: &Shared,
    path: &str,
) -> Result<(), Error> {
    let (nodes, lasting) = shared.paths.above(path);
    // The server removes container nodes once they are empty.
    let lifetime = |at| if at < lasting { Lifetime::Lasting } else { Lifetime::Container };
    let created = nodes
        .iter()
        .enumerate()
        .map(|(at, node)| client.create(node, Bytes::new(), lifetime(at), &shared.acl));
    // All of them are sent, in this order, before the first is answered.
    let created: Vec<_> = created.collect();
    for outcome in join_all(created).await {
        match outcome {
            // A level that we may not create mostly exists. If it does not, creating the document
            // fails.
            Ok(_) | Err(Error::NodeExists | Error::Denied | Error::NoNode) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Replaces or deletes a document that was written by hand.
///
/// It also deletes the nodes below it, such as the number of the document before.
async fn mend(
    client: &Client,
    shared: &Shared,
    path: &str,
    version: &Version,
    body: Option<&[u8]>,
) -> Result<Put, Error> {
    let (data, stat) = match client.data(path).await {
        Ok(found) => found,
        Err(Error::NoNode) => return Ok(Put::Conflict),
        Err(error) => return Err(error),
    };
    if super::record::document(data, &stat).version != *version {
        return Ok(Put::Conflict);
    }
    let children = match client.children(path).await {
        Ok((children, _)) => children,
        Err(Error::NoNode) => return Ok(Put::Conflict),
        Err(error) => return Err(error),
    };
    let mut together: Vec<Request> = children
        .iter()
        .map(|child| Request::Delete { path: format!("{path}/{child}"), version: -1 })
        .collect();
    let number = Number::fresh();
    let (path, version) = (path.to_owned(), stat.version);
    match body {
        Some(body) => {
            together.push(lasting(shared, number.below(&path), Vec::new()));
            let data = number.with(body).into();
            together.push(Request::SetData { path, data, version });
        }
        None => together.push(Request::Delete { path, version }),
    }
    match commit(client, together).await {
        Ok(_) => Ok(Put::Stored(Edition { number, version: stat.version }.next().name())),
        Err(error) => unless_at_odds(error),
    }
}

/// Turns a refused replacement or deletion into a conflict, if it is one.
fn unless_at_odds(error: Error) -> Result<Put, Error> {
    let conflicts = matches!(error, Error::NoNode | Error::BadVersion | Error::NotEmpty);
    if conflicts { Ok(Put::Conflict) } else { Err(error) }
}

fn lasting(shared: &Shared, path: String, data: Vec<u8>) -> Request {
    let (lifetime, acl) = (Lifetime::Lasting, shared.acl.clone());
    Request::Create { path, data: data.into(), lifetime, acl }
}

/// Commits all operations, or none.
async fn commit(client: &Client, together: Vec<Request>) -> Result<Results, Error> {
    client.transaction(together).await?.map_err(|(_, code): (usize, Code)| code.into())
}
