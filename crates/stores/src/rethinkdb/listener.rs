//! The single feed that delivers all changes of the table.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, timeout};

use super::document::{self, Change};
use super::fault::{Failure, Kind};
use super::home::Home;
use super::json::Json;
use super::link::Cursor;
use super::response::Response;
use super::term::{Term, WHO_ARE_YOU};
use super::waits::Waits;

/// How often a silent server is asked whether it is still there.
pub(super) const ASK: Duration = Duration::from_secs(10);
/// The pause after a failed feed. It doubles up to the longest.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Serves all waits. Never returns.
pub(super) async fn listen(home: Arc<Home>, table: Term, waits: Arc<Waits>) {
    let mut pause = SHORTEST_PAUSE;
    loop {
        waits.somebody().await;
        let feed = open(&home, &table).await;
        let (failure, served) = match feed {
            Err(failure) => (failure, false),
            Ok(mut cursor) => {
                waits.begun();
                match hear(&home, &mut cursor, &waits).await {
                    Ok(()) => {
                        waits.rests();
                        continue;
                    }
                    Err(failure) => {
                        home.lose(&cursor, &failure);
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

/// Starts a feed. It shows every change after the server's first answer.
async fn open(home: &Home, table: &Term) -> Result<Cursor, Failure> {
    let question = table.clone().changes().identities();
    let mut cursor = home.follow(&question).await?;
    // Changes in the first part came before any wait relied on this feed.
    let first = next(&mut cursor, home.connection().request()).await;
    if home.heed(first)?.is_none() {
        return Err(Failure::broken(Kind::Read, "the feed ended at once"));
    }
    cursor.more().await.map_err(|lost| Failure::broken(Kind::Read, lost))?;
    Ok(cursor)
}

/// Hears changes, and ends without an error when no wait is left.
async fn hear(home: &Home, cursor: &mut Cursor, waits: &Waits) -> Result<(), Failure> {
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
                let limit = home.connection().request();
                let answer = timeout(limit, link.ask(WHO_ARE_YOU)).await;
                let answer = answer.map_err(|_| Failure::late(Kind::Read, limit))?;
                answer.map_err(|lost| Failure::broken(Kind::Read, lost))?;
            }
        }
    }
}

fn take(row: &Json, waits: &Waits) -> Result<(), Failure> {
    let change: Change<'_> = row.read().map_err(|garbled| Failure::broken(Kind::Read, garbled))?;
    if let Some(error) = change.error() {
        return Err(Failure::skipped(&error));
    }
    if let Some((key, state)) = document::changed(&change) {
        waits.heard(&key, state);
    }
    Ok(())
}

async fn next(cursor: &mut Cursor, limit: Duration) -> Result<Option<Vec<Json>>, Failure> {
    let part = timeout(limit, cursor.next()).await;
    let part = part.map_err(|_| Failure::late(Kind::Read, limit))?;
    understand(part.map_err(|lost| Failure::broken(Kind::Read, lost))?)
}

/// The rows in a part of a feed; none if the feed is over.
fn understand(part: Response) -> Result<Option<Vec<Json>>, Failure> {
    match part {
        Response::Partial(rows) => Ok(Some(rows)),
        Response::Refused(refusal) => Err(Failure::refused(Kind::Read, refusal)),
        Response::Atom(_) | Response::Sequence(_) => Ok(None),
    }
}
