//! `tenure feed`

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use tenure::Error;
use tenure::feed::{Event, Events, Intervals};

use crate::args::Feed;
use crate::escape;
use crate::exit::{Ending, Failure, REFUSED};
use crate::opening::{self, Opening};
use crate::redact;
use crate::session::{self, Session};
use crate::show;
use crate::signals::Asked;

/// The least time that a request to the store is given.
const SHORTEST_REQUEST: Duration = Duration::from_secs(2);

pub(crate) async fn feed(session: &Session, wanted: &Feed) -> Ending {
    let intervals = Intervals {
        heartbeat: wanted.heartbeat_interval,
        election_timeout_min: wanted.election_timeout_min,
        election_timeout_max: wanted.election_timeout_max,
    };
    // The feed itself gives up late requests. Opening the store, and creating a table, may take
    // longer than a request of the feed.
    let request = intervals.timing()?.request().max(SHORTEST_REQUEST);
    let (table, create) = (wanted.table.as_deref(), !wanted.no_create);
    let attempt = async || session.open_with(request, table, create).await;
    let opening = opening::open(attempt, wanted.opening.wait_for_store, true).await?;
    let (opened, mut signals) = match opening {
        Opening::Opened(opened, signals) => (*opened, signals),
        Opening::Interrupted(_) => return Ok(ExitCode::SUCCESS),
    };
    if opened.backend.feed().is_none() {
        return Err(no_feed(session));
    }
    let mut builder = tenure::feed::Feed::builder(&opened.backend)
        .id(id(session))
        .intervals(intervals)
        .create_if_missing(!wanted.no_create)
        .from_start(wanted.from_start);
    if let Some(table) = &wanted.table {
        builder = builder.table(table);
    }
    let feed = builder.build()?;
    let mut events = feed.events();
    let Ok(started) = signals.unless_interrupted(feed.start()).await else {
        feed.stop().await;
        return Ok(ExitCode::SUCCESS);
    };
    started?;
    let ending = loop {
        tokio::select! {
            biased;
            asked = signals.next() => match asked {
                Asked::Stop(_) | Asked::PassOn(_) => break Ok(ExitCode::SUCCESS),
                Asked::Mention(_) | Asked::StepDown | Asked::Resume => {}
            },
            Some(event) = events.next() => print(session, &event)?,
            error = feed.failed() => break Err(error.into()),
        }
    };
    feed.stop().await;
    print_the_rest(session, &mut events)?;
    ending
}

/// Prints the events that came before the feed stopped.
fn print_the_rest(session: &Session, events: &mut Events) -> io::Result<()> {
    while let Some(Some(event)) = events.next().now_or_never() {
        print(session, &event)?;
    }
    Ok(())
}

fn print(session: &Session, event: &Event) -> io::Result<()> {
    if !session.json {
        return show::print(line(event));
    }
    // A driver's error may quote its URL. The content of a table is not redacted: it belongs to its
    // users.
    let is_error = matches!(event, Event::SubscribeError(_) | Event::HeartbeatError(_));
    let json = event.to_json();
    show::print(escape::json(&if is_error { redact::json(&json) } else { json }))
}

/// The event in words.
fn line(event: &Event) -> String {
    let error = |error: &Error| redact::text(&show::chain(&error.clone().into()));
    show::escape(&match event {
        Event::Change(change) => format!("change {change}"),
        Event::NewState(state) => format!("new state: {state}"),
        Event::NewLeader { leader, token } => format!("new leader: {leader}, token {token}"),
        Event::SubscribeStarted => "subscribe started".into(),
        Event::SubscribeError(says) => format!("subscribe error: {}", error(says)),
        Event::HeartbeatError(says) => format!("heartbeat error: {}", error(says)),
        Event::Missed(count) => format!("missed {count} events"),
        // The library may learn of new events before the program does.
        other => other.to_json(),
    })
}

/// The feed's id: `--id`, or a unique one.
///
/// Several feeds may run on a host.
fn id(session: &Session) -> String {
    let host = || format!("{}-{}", session::name(None), std::process::id());
    session.id.clone().unwrap_or_else(host)
}

fn no_feed(session: &Session) -> Failure {
    let store = session.location.to_string();
    let scheme = store.split(':').next().unwrap_or_default();
    let says = "a leader feed needs a database with change feeds: MongoDB or RethinkDB";
    Failure::new(REFUSED, anyhow::anyhow!("the store `{scheme}:` has no change feed; {says}"))
}
