//! Many conditional writes in few transactions.
//!
//! One transaction with many documents is several times less work for a server than one transaction
//! per document. But a transaction happens as a whole or not at all, and the writes of a batch are
//! independent. So when the server refuses one write and says which, that write has its outcome.
//! The others certainly had no effect, and are sent again without it.

use std::collections::HashMap;

use futures_util::future::{join, join_all};
use tenure::Key;
use tenure::store::{Fault, Put, StoreError, Write};
use tokio::time::{Instant, timeout_at};

use super::ZookeeperStore;
use super::client::Error;
use super::fault::{Kind, failed, late};
use super::wire::Code;
use super::write::{Change, Refusal};

/// The maximum number of documents in a transaction.
const MOST_TOGETHER: usize = 64;
/// The maximum size of a transaction. Servers accept a mebibyte.
const MOST_BYTES: usize = 256 << 10;
/// How often the writes of a transaction are sent together. Concurrent writes of other clients may
/// refuse one write after the other.
const MOST_ROUNDS: usize = 3;

/// One of the writes that are sent together.
#[derive(Debug)]
struct Part {
    /// The write's index in the batch.
    place: usize,
    write: Write,
    change: Change,
}

/// A write's index in the batch, and its outcome.
type Outcome = (usize, Result<Put, StoreError>);

/// Carries out writes and returns an outcome for each.
pub(super) async fn carry_out(
    store: &ZookeeperStore,
    writes: Vec<Write>,
    deadline: Instant,
) -> Vec<Result<Put, StoreError>> {
    let (parts, single) = sort_out(store, writes);
    let together =
        join_all(transactions(parts).into_iter().map(|parts| send(store, parts, deadline)));
    let (together, single) = join(together, one_by_one(store, single, deadline)).await;
    let mut outcomes: Vec<Outcome> = together.into_iter().flatten().chain(single).collect();
    outcomes.sort_unstable_by_key(|(place, _)| *place);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

/// Separates the writes that can be sent together from the others.
fn sort_out(store: &ZookeeperStore, writes: Vec<Write>) -> (Vec<Part>, Vec<(usize, Write)>) {
    // Two writes of one document cannot share a transaction: the first would change the version
    // that the second is checked against.
    let mut counts: HashMap<Key, usize> = HashMap::with_capacity(writes.len());
    for write in &writes {
        *counts.entry(write.key.clone()).or_default() += 1;
    }
    let (mut parts, mut single) = (Vec::with_capacity(writes.len()), Vec::new());
    for (place, write) in writes.into_iter().enumerate() {
        let fits = counts[&write.key] == 1 && super::write::check(&write).is_ok();
        match fits.then(|| Change::of(&store.shared, &write)).flatten() {
            Some(change) => parts.push(Part { place, write, change }),
            None => single.push((place, write)),
        }
    }
    (parts, single)
}

/// Divides writes into transactions of about the same size.
///
/// The server reads one transaction while it applies the one before.
fn transactions(parts: Vec<Part>) -> Vec<Vec<Part>> {
    let count = parts.len().div_ceil(MOST_TOGETHER).max(1);
    let most = parts.len().div_ceil(count);
    let mut all: Vec<Vec<Part>> = Vec::new();
    let mut bytes = 0;
    for part in parts {
        bytes += part.change.length();
        match all.last_mut() {
            Some(last) if last.len() < most && bytes <= MOST_BYTES => last.push(part),
            Some(_) | None => {
                bytes = part.change.length();
                all.push(vec![part]);
            }
        }
    }
    all
}

/// Sends one transaction. If the server refuses a write of it, sends the others again.
async fn send(store: &ZookeeperStore, mut parts: Vec<Part>, deadline: Instant) -> Vec<Outcome> {
    let mut outcomes = Vec::with_capacity(parts.len());
    for _ in 0..MOST_ROUNDS {
        if parts.len() < 2 {
            break;
        }
        match commit(store, &parts, deadline).await {
            Answer::Stored => {
                outcomes
                    .extend(parts.into_iter().map(|part| (part.place, Ok(part.change.stored()))));
                return outcomes;
            }
            Answer::Failed(fail) => {
                outcomes.extend(parts.into_iter().map(|part| (part.place, Err(fail(&part.write)))));
                return outcomes;
            }
            Answer::Refused { at, error } => match parts[at].change.refused(error) {
                Refusal::Decided(outcome) => {
                    let part = parts.remove(at);
                    let doing = || writing(&part.write);
                    let outcome = outcome.map_err(|error| failed(error, Kind::Write, doing()));
                    outcomes.push((part.place, outcome));
                }
                Refusal::LevelsMissing(path) => create_levels(store, path, deadline).await,
            },
            Answer::RefusedForNoOne => break,
        }
    }
    let rest = parts.into_iter().map(|part| (part.place, part.write)).collect();
    outcomes.extend(one_by_one(store, rest, deadline).await);
    outcomes
}

/// The outcome of a transaction.
enum Answer {
    Stored,
    /// The write at `at` was refused, and the transaction had no effect.
    Refused {
        at: usize,
        error: Error,
    },
    /// The transaction had no effect. The server does not say which write it refused.
    RefusedForNoOne,
    /// All writes of the transaction have this outcome.
    Failed(Box<dyn Fn(&Write) -> StoreError + Send>),
}

async fn commit(store: &ZookeeperStore, parts: &[Part], deadline: Instant) -> Answer {
    if let Err(error) = store.client.connected_by(deadline).await {
        // Nothing was sent.
        return Answer::Failed(Box::new(move |write| {
            failed(error.clone(), Kind::Read, writing(write))
        }));
    }
    let operations = parts.iter().flat_map(|part| part.change.operations.iter().cloned());
    let committing = store.client.transaction(operations.collect());
    let Ok(committed) = timeout_at(deadline, committing).await else {
        // A transaction on its way must not happen later.
        store.give_up();
        return Answer::Failed(Box::new(|write| late(Kind::Write, writing(write))));
    };
    match committed {
        Ok(Ok(results)) if results.len() == 2 * parts.len() => Answer::Stored,
        Ok(Err((_, Code::Inconsistent))) => Answer::RefusedForNoOne,
        Ok(Err((at, code))) if at < 2 * parts.len() => {
            Answer::Refused { at: at / 2, error: code.into() }
        }
        Ok(Ok(_) | Err(_)) => all_failed(Error::Malformed),
        Err(error) => all_failed(error),
    }
}

fn all_failed(error: Error) -> Answer {
    Answer::Failed(Box::new(move |write| failed(error.clone(), Kind::Write, writing(write))))
}

/// Creates the levels above a document.
///
/// A failure is only logged: it shows when the document is created.
async fn create_levels(store: &ZookeeperStore, path: &str, deadline: Instant) {
    let creating = super::write::create_levels(&store.client, &store.shared, path);
    match timeout_at(deadline, creating).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "zookeeper: levels were not created"),
        Err(_) => store.give_up(),
    }
}

/// Sends each write as its own transaction, all of them at once.
async fn one_by_one(
    store: &ZookeeperStore,
    writes: Vec<(usize, Write)>,
    deadline: Instant,
) -> Vec<Outcome> {
    let sent = writes
        .into_iter()
        .map(|(place, write)| async move { (place, write_one(store, write, deadline).await) });
    join_all(sent).await
}

/// Carries out a single write.
async fn write_one(
    store: &ZookeeperStore,
    write: Write,
    deadline: Instant,
) -> Result<Put, StoreError> {
    let doing = || writing(&write);
    super::write::check(&write)
        .map_err(|says| StoreError::new(Fault::Permanent, "zookeeper", doing(), says))?;
    let up = store.client.connected_by(deadline).await;
    up.map_err(|error| failed(error, Kind::Read, doing()))?;
    let writing = super::write::carry_out(&store.client, &store.shared, &write);
    let Ok(outcome) = timeout_at(deadline, writing).await else {
        // A write on its way must not happen later.
        store.give_up();
        return Err(late(Kind::Write, doing()));
    };
    outcome.map_err(|error| failed(error, Kind::Write, doing()))
}

fn writing(write: &Write) -> String {
    format!("writing {}", write.key)
}
