//! The one feed over which all changes of the table arrive.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, timeout};

use super::connection::Connection;
use super::document;
use super::fault::{Failure, Kind};
use super::link::Cursor;
use super::response::Response;
use super::term::{Term, WHO_ARE_YOU};
use super::waits::Waits;

/// How often a server that has nothing to say is asked whether it is still there.
pub(super) const ASK: Duration = Duration::from_secs(10);
/// The pause after a feed that failed; it doubles up to the longest.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Serves all waits, for as long as it is polled.
pub(super) async fn listen(connection: Connection, table: Term, waits: Arc<Waits>) {
    let mut pause = SHORTEST_PAUSE;
    loop {
        waits.somebody().await;
        let feed = open(&connection, &table).await;
        let (failure, served) = match feed {
            Err(failure) => (failure, false),
            Ok(mut cursor) => {
                waits.begun();
                match hear(&connection, &mut cursor, &waits).await {
                    Ok(()) => {
                        waits.rests();
                        continue;
                    }
                    Err(failure) => {
                        connection.give_up(&cursor);
                        (failure, true)
                    }
                }
            }
        };
        tracing::debug!(error = %failure.source, "rethinkdb: nothing is heard of changes");
        waits.fell_silent(served);
        pause = if served { SHORTEST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
        sleep(pause).await;
    }
}

/// Begins a feed; once the server has answered, it shows every later change.
async fn open(connection: &Connection, table: &Term) -> Result<Cursor, Failure> {
    let question = table.clone().changes().identities();
    let mut cursor = connection.follow(&question).await?;
    // What has changed already was before anybody relied on this feed.
    if next(&mut cursor, connection.request()).await?.is_none() {
        return Err(Failure::broken(Kind::Read, "the feed ended at once"));
    }
    cursor.more().await.map_err(|lost| Failure::broken(Kind::Read, lost))?;
    Ok(cursor)
}

/// Ends well when nobody waits any more.
async fn hear(connection: &Connection, cursor: &mut Cursor, waits: &Waits) -> Result<(), Failure> {
    let mut tick = interval_at(Instant::now() + ASK, ASK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let link = cursor.link().clone();
        tokio::select! {
            part = cursor.next() => {
                let rows = understand(part.map_err(|lost| Failure::broken(Kind::Read, lost))?)?;
                let rows = rows.ok_or_else(|| Failure::broken(Kind::Read, "the server ended the feed"))?;
                for row in &rows {
                    take(row, waits)?;
                }
                cursor.more().await.map_err(|lost| Failure::broken(Kind::Read, lost))?;
            }
            () = link.retirement() => {
                return Err(Failure::broken(Kind::Read, "the connection was given up"));
            }
            _ = tick.tick() => {
                if waits.is_idle() {
                    return Ok(());
                }
                let limit = connection.request();
                let answer = timeout(limit, link.ask(WHO_ARE_YOU)).await;
                let answer = answer.map_err(|_| Failure::late(Kind::Read, limit))?;
                answer.map_err(|lost| Failure::broken(Kind::Read, lost))?;
            }
        }
    }
}

fn take(row: &Value, waits: &Waits) -> Result<(), Failure> {
    if let Some(error) = row.get("error").and_then(Value::as_str) {
        // The server could not keep up, and has left changes out.
        return Err(Failure::broken(Kind::Read, error.chars().take(200).collect::<String>()));
    }
    if let Some((key, state)) = document::changed(row) {
        waits.heard(&key, state);
    }
    Ok(())
}

async fn next(cursor: &mut Cursor, limit: Duration) -> Result<Option<Vec<Value>>, Failure> {
    let part = timeout(limit, cursor.next()).await;
    let part = part.map_err(|_| Failure::late(Kind::Read, limit))?;
    understand(part.map_err(|lost| Failure::broken(Kind::Read, lost))?)
}

/// What a feed says; nothing when it is over.
fn understand(part: Response) -> Result<Option<Vec<Value>>, Failure> {
    match part {
        Response::Partial(rows) => Ok(Some(rows)),
        Response::Refused(refusal) => Err(Failure::refused(Kind::Read, refusal)),
        Response::Atom(_) | Response::Sequence(_) => Ok(None),
    }
}
