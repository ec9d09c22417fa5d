//! The one stream over which all changes arrive.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use mongodb::Collection;
use mongodb::bson::{Document as Bsons, doc};
use mongodb::change_stream::ChangeStream;
use mongodb::change_stream::event::{ChangeStreamEvent, OperationType};
use mongodb::error::Error;
use mongodb::options::{CollectionOptions, ReadConcern, ReadPreference, SelectionCriteria};
use tenure::{Key, Version};
use tokio::time::{sleep, timeout};

use super::fault::{Failure, Kind, told};
use super::table::{MOST_READS, Table};
use super::waits::Waits;

/// How long the server may say nothing when nothing happens.
pub(super) const TICK: Duration = Duration::from_secs(3);
/// A stream that nobody needs is kept for so many ticks: whoever is woken mostly waits again.
const LINGER: u32 = 7;
/// The pause after a stream that failed; it doubles up to the longest.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Serves all waits, for as long as it is polled.
pub(super) async fn listen(table: Table, waits: Arc<Waits>) {
    join(follow(&table, &waits), settle(&table, &waits)).await;
}

/// Follows the changes while anybody waits; again, a little later each time, when that fails.
async fn follow(table: &Table, waits: &Waits) {
    let mut pause = SHORTEST_PAUSE;
    loop {
        waits.somebody().await;
        match subscribe(table).await {
            Ok(mut stream) => {
                waits.begun();
                pause = SHORTEST_PAUSE;
                match tail(table, waits, &mut stream).await {
                    // Nobody waits: it begins again with the next who does.
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

/// The collection, as a stream follows it.
pub(super) fn followed(table: &Table) -> Collection<Bsons> {
    // Whatever the caller's client has been told: a stream shows what the majority has, and the
    // primary has it first.
    let options = CollectionOptions::builder()
        .read_concern(ReadConcern::majority())
        .selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Primary))
        .build();
    table.database.collection_with_options(&table.collection, options)
}

/// Ends well when nobody has waited for a while. The driver resumes by itself where it can, and
/// nothing is missed.
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
    // What is no key is somebody else's.
    let Some(key) = id.and_then(|id| Key::parse(id).ok()) else { return Ok(()) };
    // A replacement shows the whole, or what of it is another; our versions always are. Who changes
    // a document by hand may show none; it is another one all the same.
    let whole = event.full_document.as_ref();
    let part = event.update_description.as_ref().map(|update| &update.updated_fields);
    let version = whole.or(part).and_then(|fields| fields.get_str("version").ok());
    let version = (!gone).then(|| Version::new(version.unwrap_or_default()));
    waits.event(key, version);
    Ok(())
}

/// Looks at documents that are waited for and of which nothing is known: those seen before the
/// stream began.
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
