//! One conditional write.

use futures_util::future::join_all;
use tenure::{Expect, MAX_DOCUMENT_BYTES, Put, Version, Write};
use zookeeper_client::{Client, CreateMode, Error};

use super::Shared;
use super::link::Link;
use super::record::{Edition, Number};

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
pub(super) async fn carry_out(link: &Link, shared: &Shared, write: &Write) -> Result<Put, Error> {
    let path = shared.paths.document(&write.key);
    let client = &link.client;
    match (&write.expect, &write.body) {
        (Expect::Absent, Some(body)) => create(client, shared, &path, body).await,
        (Expect::Absent, None) => match client.check_stat(&path).await? {
            Some(_) => Ok(Put::Conflict),
            None => Ok(Put::Stored(Version::new("absent"))),
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
    let options = CreateMode::Persistent.with_acls(shared.acls);
    for attempt in 1.. {
        let mut together = client.new_multi_writer();
        together.add_create(path, &number.with(body), &options)?;
        together.add_create(&number.below(path), b"", &options)?;
        match together.commit().await.map_err(Error::from) {
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
    let mode = |at| if at < lasting { CreateMode::Persistent } else { CreateMode::Container };
    let options: Vec<_> = (0..nodes.len()).map(|at| mode(at).with_acls(shared.acls)).collect();
    let created =
        nodes.iter().zip(&options).map(|(node, options)| client.create(node, b"", options));
    // All of them are sent before the first is answered, in this order.
    let created: Vec<_> = created.collect();
    for outcome in join_all(created).await {
        match outcome {
            // Where we may not create it mostly exists; if not, the document's own creation says so.
            Ok(_) | Err(Error::NodeExists | Error::NoAuth | Error::NoNode) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn replace(client: &Client, path: &str, edition: Edition, body: &[u8]) -> Result<Put, Error> {
    let mut together = client.new_multi_writer();
    // Any version of it: that it exists is what counts.
    together.add_check_version(&edition.number.below(path), -1)?;
    together.add_set_data(path, &edition.number.with(body), Some(edition.version))?;
    let committed = together.commit().await.map_err(Error::from);
    outcome(committed.map(drop), || edition.next().name())
}

async fn delete(client: &Client, path: &str, edition: Edition) -> Result<Put, Error> {
    let mut together = client.new_multi_writer();
    together.add_delete(&edition.number.below(path), None)?;
    together.add_delete(path, Some(edition.version))?;
    let committed = together.commit().await.map_err(Error::from);
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
    let (data, stat) = match client.get_data(path).await {
        Ok(found) => found,
        Err(Error::NoNode) => return Ok(Put::Conflict),
        Err(error) => return Err(error),
    };
    if super::record::document(data, &stat).version != *version {
        return Ok(Put::Conflict);
    }
    let children = match client.list_children(path).await {
        Ok(children) => children,
        Err(Error::NoNode) => return Ok(Put::Conflict),
        Err(error) => return Err(error),
    };
    let mut together = client.new_multi_writer();
    for child in children {
        together.add_delete(&format!("{path}/{child}"), None)?;
    }
    let number = Number::fresh();
    match body {
        Some(body) => {
            let options = CreateMode::Persistent.with_acls(shared.acls);
            together.add_create(&number.below(path), b"", &options)?;
            together.add_set_data(path, &number.with(body), Some(stat.version))?;
        }
        None => together.add_delete(path, Some(stat.version))?,
    }
    let committed = together.commit().await.map_err(Error::from);
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
