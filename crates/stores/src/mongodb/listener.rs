//! The single change stream that delivers all changes.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use mongodb::Collection;
use mongodb::bson::{Document as Bsons, doc};
use mongodb::change_stream::ChangeStream;
use mongodb::change_stream::event::{ChangeStreamEvent, OperationType};
use mongodb::error::Error;
use mongodb::options::{CollectionOptions, ReadConcern, ReadPreference, SelectionCriteria};
use tenure::Key;
use tenure::store::Version;
use tokio::time::{sleep, timeout};

use super::fault::{Failure, Kind, told};
use super::table::{MOST_READS, Table};
use super::waits::Waits;

/// How long the server may stay silent when nothing happens.
pub(super) const TICK: Duration = Duration::from_secs(3);
/// How many ticks a stream without waits is kept. Most woken callers soon wait again.
const LINGER: u32 = 7;
/// The pause after a failed stream. It doubles up to the longest.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Serves all waits. Never returns.
pub(super) async fn listen(table: Table, waits: Arc<Waits>) {
    join(follow(&table, &waits), settle(&table, &waits)).await;
}

/// Follows the changes while there are waits. Retries with growing pauses when that fails.
async fn follow(table: &Table, waits: &Waits) {
    let mut pause = SHORTEST_PAUSE;
    loop {
        waits.somebody().await;
        match subscribe(table).await {
            Ok(mut stream) => {
                waits.begun();
                pause = SHORTEST_PAUSE;
                match tail(table, waits, &mut stream).await {
                    // There are no waits: the stream begins again with the next one.
                    Ok(()) => {
                        waits.rest();
                        continue;
                    }
                    Err(says) => tracing::debug!("mongodb: the stream of changes ended: {says}"),
                }
            }
            Err(says) => tracing::debug!("mongodb: listening for changes failed: {says}"),
        }
        waits.fell_silent();
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn subscribe(table: &Table) -> Result<ChangeStream<ChangeStreamEvent<Bsons>>, String> {
    let collection = followed(table);
    let wanted = doc! {
        "operationType": 1,
        "ns": 1,
        "documentKey": 1,
        "fullDocument.version": 1,
        "updateDescription": {
            "updatedFields": { "version": "$updateDescription.updatedFields.version" },
            "removedFields": [],
        },
    };
    let watching = collection.watch().pipeline([doc! { "$project": wanted }]).max_await_time(TICK);
    match timeout(table.request, async { watching.await }).await {
        Ok(stream) => stream.map_err(|error: Error| told(&error)),
        Err(_) => Err(Failure::late(Kind::Read, table.request).says),
    }
}

/// The collection, with the options for a stream.
pub(super) fn followed(table: &Table) -> Collection<Bsons> {
    // These override the options of the caller's client: a stream shows changes that the majority
    // has, and the primary has them first.
    let options = CollectionOptions::builder()
        .read_concern(ReadConcern::majority())
        .selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Primary))
        .build();
    table.database.collection_with_options(&table.collection, options)
}

/// Reads the stream, and ends without an error when there was no wait for a while.
///
/// The driver resumes the stream by itself where it can, and no change is missed.
async fn tail(
    table: &Table,
    waits: &Waits,
    stream: &mut ChangeStream<ChangeStreamEvent<Bsons>>,
) -> Result<(), String> {
    let mut idle = 0;
    while stream.is_alive() {
        match timeout(TICK + table.request, stream.next_if_any()).await {
            Err(_) => return Err(Failure::late(Kind::Read, TICK + table.request).says),
            Ok(Err(error)) => return Err(told(&error)),
            Ok(Ok(Some(event))) => tell(waits, event)?,
            Ok(Ok(None)) => {
                idle = if waits.anybody() { 0 } else { idle + 1 };
                if idle > LINGER {
                    return Ok(());
                }
            }
        }
    }
    Err("the server ended it".to_owned())
}

fn tell(waits: &Waits, event: ChangeStreamEvent<Bsons>) -> Result<(), String> {
    let gone = match &event.operation_type {
        OperationType::Insert | OperationType::Update | OperationType::Replace => false,
        OperationType::Delete => true,
        // The collection was dropped or renamed.
        other => return Err(format!("{other:?} of the collection")),
    };
    let id = event.document_key.as_ref().and_then(|key| key.get_str("_id").ok());
    // An id that is not a key is not ours.
    let Some(key) = id.and_then(|id| Key::parse(id).ok()) else { return Ok(()) };
    // A replacement shows the whole document or the fields that changed, and our versions always
    // change. A change by hand may show no version; the empty version differs from all of ours,
    // too.
    let whole = event.full_document.as_ref();
    let part = event.update_description.as_ref().map(|update| &update.updated_fields);
    let version = whole.or(part).and_then(|fields| fields.get_str("version").ok());
    let version = (!gone).then(|| Version::new(version.unwrap_or_default()));
    waits.event(key, version);
    Ok(())
}

/// Reads documents with waits and unknown states. They were seen before the stream began.
async fn settle(table: &Table, waits: &Waits) {
    loop {
        let doubts = waits.doubts().await;
        let mut failed = false;
        for keys in doubts.chunks(MOST_READS) {
            let place = waits.place();
            match table.read(keys).await {
                Ok(found) => {
                    let versions = found.into_iter().map(|found| found.map(|found| found.version));
                    waits.saw(place, keys.iter().cloned().zip(versions));
                }
                Err(failure) => {
                    tracing::debug!("mongodb: looking at what is waited for: {}", failure.says);
                    failed = true;
                }
            }
        }
        if failed {
            sleep(SHORTEST_PAUSE * 10).await;
        }
    }
}
