//! A program that shuts down without leaving others to wait, as leader or as candidate.
//!
//! Run `cargo run --example graceful_shutdown [DIRECTORY] [NAME]` in two terminals, then end one of
//! them with Ctrl-C or TERM. The other one leads at once: neither a leadership nor a place in the
//! election is left to run out.

use std::path::PathBuf;
use std::sync::Arc;

use tenure::file::{FileOptions, FileStore};
use tenure::{Backend, Candidate, Election};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory =
        arguments.next().map_or(std::env::temp_dir().join("tenure-example"), PathBuf::from);
    let name = arguments.next().unwrap_or("example".into());
    let store = FileStore::open(&directory, FileOptions::default())?;
    let presence = store.presence();
    let backend = Backend::new(Arc::new(store)).with_presence(presence);
    let election = Election::open(&backend, "examples/graceful-shutdown").await?;

    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut shutdown = std::pin::pin!(async {
        tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
    });

    let mut candidacy = election.stand(Candidate::new(&name)?)?;
    println!("{name} stands");
    // Dropping the wait leaves the candidacy standing: a shutdown withdraws it.
    let leadership = tokio::select! {
        leadership = candidacy.elected() => leadership?,
        () = &mut shutdown => {
            candidacy.withdraw().await;
            println!("{name} withdrew");
            return Ok(());
        }
    };
    println!("{name} leads with token {}", leadership.mandate().token());
    tokio::select! {
        loss = leadership.lost() => println!("{name} lost its leadership: {loss}"),
        () = &mut shutdown => println!("{name} resigned: {:?}", leadership.resign().await),
    }
    // Close last: it waits for every release that still goes on in the background.
    backend.close().await;
    Ok(())
}
