//! One conditional write.

use super::Shared;
use super::client::{Client, Error};
use super::record::{Edition, Number};
use super::wire::{Code, Lifetime, Request, Results};
use bytes::Bytes;
use futures_util::future::join_all;
use tenure::{Expect, MAX_DOCUMENT_BYTES, Put, Version, Write};

/// Levels that are empty are removed by the server at times of its own; more often than this it is somebody else.
const MOST_ATTEMPTS: usize = 3;

/// Refuses what no server must see.
pub(super) fn check(write: &Write) -> Result<(), String> {
    match &write.body {
        Some(body) if body.len() > MAX_DOCUMENT_BYTES => {
            Err(format!("{} bytes are more than {MAX_DOCUMENT_BYTES}", body.len()))
        }
        _ => Ok(()),
    }
}

/// Sends it. Only what certainly had no effect is sent again.
pub(super) async fn carry_out(
    client: &Client,
    shared: &Shared,
    write: &Write,
) -> Result<Put, Error> {
    let path = shared.paths.document(&write.key);
    match (&write.expect, &write.body) {
        (Expect::Absent, Some(body)) => create(client, shared, &path, body).await,
        (Expect::Absent, None) => match client.exists(&path).await {
            Ok(_) => Ok(Put::Conflict),
            Err(Error::NoNode) => Ok(Put::Stored(Version::new("absent"))),
            Err(error) => Err(error),
        },
        (Expect::At(version), body) => match Edition::parse(version) {
            // No document was ever at a version that is not one of ours; but see what people write by hand.
            None => mend(client, shared, &path, version, body.as_deref()).await,
            Some(edition) => match body {
                Some(body) => replace(client, &path, edition, body).await,
                None => delete(client, &path, edition).await,
            },
        },
    }
}

async fn create(client: &Client, shared: &Shared, path: &str, body: &[u8]) -> Result<Put, Error> {
    let number = Number::fresh();
    for attempt in 1.. {
        let together = vec![
            lasting(shared, path.to_owned(), number.with(body)),
            lasting(shared, number.below(path), Vec::new()),
        ];
        match commit(client, together).await {
            Ok(_) => break,
            Err(Error::NodeExists) => return Ok(Put::Conflict),
            Err(Error::NoNode) if attempt < MOST_ATTEMPTS => above(client, shared, path).await?,
            Err(error) => return Err(error),
        }
    }
    Ok(Put::Stored(Edition::first(number).name()))
}

/// Creates the levels above a document, those that are missing.
async fn above(client: &Client, shared: &Shared, path: &str) -> Result<(), Error> {
    let (nodes, lasting) = shared.paths.above(path);
    // A level that holds nothing any more is removed by the server.
    let lifetime = |at| if at < lasting { Lifetime::Lasting } else { Lifetime::Container };
    let created = nodes
        .iter()
        .enumerate()
        .map(|(at, node)| client.create(node, Bytes::new(), lifetime(at), &shared.acl));
    // All of them are sent before the first is answered, in this order.
    let created: Vec<_> = created.collect();
    for outcome in join_all(created).await {
        match outcome {
            // Where we may not create it mostly exists; if not, the document's own creation says so.
            Ok(_) | Err(Error::NodeExists | Error::Denied | Error::NoNode) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn replace(client: &Client, path: &str, edition: Edition, body: &[u8]) -> Result<Put, Error> {
    let together = vec![
        // Any version of it: that it exists is what counts.
        Request::Check { path: edition.number.below(path), version: -1 },
        Request::SetData {
            path: path.to_owned(),
            data: edition.number.with(body).into(),
            version: edition.version,
        },
    ];
    let committed = commit(client, together).await;
    outcome(committed.map(drop), || edition.next().name())
}

async fn delete(client: &Client, path: &str, edition: Edition) -> Result<Put, Error> {
    let together = vec![
        Request::Delete { path: edition.number.below(path), version: -1 },
        Request::Delete { path: path.to_owned(), version: edition.version },
    ];
    let committed = commit(client, together).await;
    outcome(committed.map(drop), || edition.next().name())
}

/// Replaces or deletes what somebody wrote by hand, with whatever number was lost.
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
    let committed = commit(client, together).await;
    let edition = Edition { number, version: stat.version };
    outcome(committed.map(drop), || edition.next().name())
}

fn outcome(done: Result<(), Error>, version: impl FnOnce() -> Version) -> Result<Put, Error> {
    match done {
        Ok(()) => Ok(Put::Stored(version())),
        Err(Error::NoNode | Error::BadVersion | Error::NotEmpty) => Ok(Put::Conflict),
        Err(error) => Err(error),
    }
}

fn lasting(shared: &Shared, path: String, data: Vec<u8>) -> Request {
    let (lifetime, acl) = (Lifetime::Lasting, shared.acl.clone());
    Request::Create { path, data: data.into(), lifetime, acl }
}

/// All of it, or nothing.
async fn commit(client: &Client, together: Vec<Request>) -> Result<Results, Error> {
    client.transaction(together).await?.map_err(|(_, code): (usize, Code)| code.into())
}
