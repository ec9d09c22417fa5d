//! RethinkDB starts, is killed and starts again, and the harness tells its kind.

use tenure_harness::{Failure, Rethinkdb, require};
use tokio::net::TcpStream;

#[tokio::test]
async fn a_server_serves_is_killed_and_serves_again() {
    let server = require!(Rethinkdb::single().await);
    println!("{:?}", server.kind());
    let address = server[0].address();
    assert!(address.ip().is_loopback());
    TcpStream::connect(address).await.expect("it listens");
    server[0].kill().await.expect("it runs");
    TcpStream::connect(address).await.expect_err("nobody listens");
    assert!(matches!(server[0].kill().await, Err(Failure::Down { .. })));
    server[0].restart().await.expect("it starts again");
    TcpStream::connect(address).await.expect("it listens again");
}

#[tokio::test]
async fn only_the_loopback_address_is_listened_on() {
    let server = require!(Rethinkdb::single().await);
    let port = server[0].address().port();
    // 127.0.0.2 is this machine as well: a server that listens on all addresses would answer.
    TcpStream::connect(("127.0.0.2", port)).await.expect_err("nobody listens");
}
