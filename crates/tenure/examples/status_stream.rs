//! Follows a candidacy by its stream of statuses, and an election by an observer.
//!
//! `cargo run -p tenure --example status_stream`

use futures_util::StreamExt as _;
use tenure::{Backend, Candidate, Election, Role};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let backend = Backend::memory(); // or a directory, or `tenure_stores::open(url)`
    let election =
        Election::builder(&backend, "examples/status").create_if_missing(true).open().await?;

    // A dashboard observes without standing. It hears of each change.
    let mut observer = election.observe()?;
    let dashboard = tokio::spawn(async move {
        while let Some(standing) = observer.next().await {
            match standing {
                Ok(standing) => println!("dashboard: {:?}", standing.leader.map(|it| it.name)),
                Err(error) => println!("dashboard: unknown ({error})"),
            }
        }
    });

    let mut candidacy = election.stand(Candidate::new("host-a")?)?;
    let mut statuses = candidacy.statuses();
    let log = tokio::spawn(async move {
        // The stream begins with the current status and ends when the candidacy is over. A slow
        // reader misses older statuses, never the newest.
        while let Some(status) = statuses.next().await {
            match status.role {
                Role::Leading { token } => println!("host-a leads with token {token}"),
                Role::Suspended { remaining, .. } => {
                    println!("the store does not answer; the lease lasts {remaining:?}");
                }
                Role::Over(outcome) => println!("host-a is out: {outcome:?}"),
                role @ (Role::Waiting | Role::Stopping { .. } | Role::Lost { .. } | _) => {
                    println!("host-a: {role:?}");
                }
            }
        }
    });
    let leadership = candidacy.elected().await?;
    leadership.resign().await;
    log.await?;
    dashboard.abort();
    Ok(())
}
