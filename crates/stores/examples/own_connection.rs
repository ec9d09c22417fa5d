//! An election on a ZooKeeper session that the program owns and uses for other things, too.
//!
//! `cargo run -p tenure-stores --example own_connection 127.0.0.1:2181`

use std::sync::Arc;
use std::time::Duration;

use tenure::{Backend, Candidate, Election};
use tenure_stores::zookeeper::{Client, ClientOptions, ZookeeperQueue, ZookeeperStore};

const REQUEST: Duration = Duration::from_secs(2);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    run(std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:2181".into())).await
}

/// Apart from `main`, so that a test runs it on a server of its own.
pub async fn run(server: String) -> Result<(), Box<dyn std::error::Error>> {
    let options = ClientOptions::new([server]).with_session(Duration::from_secs(10));
    let client = Client::new(options);
    client.connected(REQUEST).await?;

    // The program's own request, on the same session.
    let (nodes, _) = client.children("/").await?;
    println!("the server has {} nodes at its root", nodes.len());

    let store = ZookeeperStore::new(client.clone(), "/examples", REQUEST);
    let queue = ZookeeperQueue::new(client.clone(), "/examples", REQUEST);
    let backend = Backend::new(Arc::new(store)).with_queue(Arc::new(queue));
    let election =
        Election::builder(&backend, "own-connection").create_if_missing(true).open().await?;
    let leadership = election.campaign(Candidate::new("host-a")?).await?;
    println!("host-a leads with token {}", leadership.mandate().token());
    leadership.resign().await;
    // The session is the program's: it outlives the backend.
    backend.close().await;
    let (nodes, _) = client.children("/").await?;
    println!("the session goes on: {} nodes", nodes.len());
    client.close().await;
    Ok(())
}
