//! Elects a leader among the processes that share a directory, and works while leading.
//!
//! `cargo run --example directory [DIRECTORY] [NAME]`, in two terminals.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tenure::file::{FileOptions, FileStore};
use tenure::{Backend, Candidate, Election};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory =
        arguments.next().map_or(std::env::temp_dir().join("tenure-example"), PathBuf::from);
    let name = arguments.next().unwrap_or("example".into());
    let store = FileStore::open(&directory, FileOptions::default())?;
    let presence = store.presence();
    let backend = Backend::new(Arc::new(store)).with_presence(presence);

    let election = Election::open(&backend, "examples/directory").await?;
    println!("{name} stands in {}", directory.display());
    let leadership = election.campaign(Candidate::new(&name)?).await?;
    let token = leadership.mandate().token();
    let work = async {
        for step in 1..=3 {
            println!("{name} leads with token {token}: step {step}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    match leadership.scope(work).await {
        Ok(()) => println!("{name} resigns: {:?}", leadership.resign().await),
        Err(error) => println!("{name} stopped: {error}"),
    }
    Ok(())
}
