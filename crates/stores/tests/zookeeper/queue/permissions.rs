//! Servers that check permissions themselves, and a root that permits no deletion.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use futures_util::future::join_all;
use tenure_harness::{Version, Zookeeper, require, zookeeper};
use tenure_stores::zookeeper::{Acl, Client, ClientOptions, Error, Lifetime};

use crate::world::*;

/// All permissions except to delete below the node and to change permissions.
const ALL_BUT_DELETE: i32 = 1 + 2 + 4;

/// Makes a server refuse a write by itself if a permission is missing.
fn eager() -> zookeeper::Options {
    let check = ("zookeeper.enableEagerACLCheck".to_owned(), "true".to_owned());
    zookeeper::Options { version: Version::Current, properties: vec![check], ..options() }
}

/// Takes away the permission to delete below the root. Our own client has no request for that.
fn lock_the_root(server: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let text = |out: &mut Vec<u8>, text: &str| {
        out.extend(u32::try_from(text.len()).expect("short").to_be_bytes());
        out.extend(text.as_bytes());
    };
    // Version, zxid, time-out, session, and a password of 16 bytes.
    let mut greeting = vec![0; 4 + 8];
    greeting.extend(10_000_i32.to_be_bytes());
    greeting.extend([0; 8]);
    greeting.extend(16_i32.to_be_bytes());
    greeting.extend([0; 16]);
    exchange(&mut stream, &greeting)?;
    // Request 1, `setACL`.
    let mut request = Vec::new();
    for number in [1_i32, 7] {
        request.extend(number.to_be_bytes());
    }
    text(&mut request, "/");
    for number in [1, ALL_BUT_DELETE] {
        request.extend(number.to_be_bytes());
    }
    text(&mut request, "world");
    text(&mut request, "anyone");
    request.extend((-1_i32).to_be_bytes());
    let answer = exchange(&mut stream, &request)?;
    // Number, zxid, error.
    assert_eq!(answer.get(12..16), Some(&[0; 4][..]), "the server refused: {answer:?}");
    Ok(())
}

fn exchange(stream: &mut TcpStream, body: &[u8]) -> io::Result<Vec<u8>> {
    let length = u32::try_from(body.len()).expect("short").to_be_bytes();
    stream.write_all(&[&length[..], body].concat())?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

/// The newest transaction of a server.
async fn newest(server: SocketAddr) -> u64 {
    let answer = zookeeper::ask(server, "srvr").await.expect("it answers");
    let zxid = answer.lines().find_map(|line| line.strip_prefix("Zxid: 0x")).expect("it says so");
    u64::from_str_radix(zxid, 16).expect("a number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_heartbeat_needs_no_permission_and_is_a_transaction_on_every_version() {
    for version in [Version::Debian, Version::Current] {
        let servers =
            require!(Zookeeper::ensemble(1, zookeeper::Options { version, ..eager() }).await);
        let address = servers[0].address();
        lock_the_root(address).expect("the root is locked");
        let program = Program::at(&[address], CALM).await;
        let leader = program.lead("a").await;
        let before = newest(address).await;
        for _ in 0..3 {
            soon("extended", leader.mandate().renewed()).await;
        }
        assert!(newest(address).await > before, "{version:?}: a quorum took its heartbeats");
        leader.resign().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_cut_off_server_refuses_by_itself_stops_before_the_next_leads() {
    let mut options = zookeeper::Options { partitions: true, ..eager() };
    // The server notices after 20 s that it is cut off. The session ends after 12 s.
    options.settings.push(("syncLimit".to_owned(), "100".to_owned()));
    let servers = require!(Zookeeper::ensemble(3, options).await);
    let cut = (servers.settled(None).await.expect("somebody leads") + 1) % 3;
    lock_the_root(servers[cut].address()).expect("the root is locked");
    let mut referee = Referee::default();
    let program = Program::at(&[servers[cut].address()], CALM).await;
    let leader = program.lead("a").await;
    referee.saw(&leader);
    let others: Vec<SocketAddr> =
        (0..3).filter(|index| *index != cut).map(|index| servers[index].address()).collect();
    let other = Program::at(&others, CALM).await;
    let mut waiting = other.stand("b", 1).await;
    servers.isolate(cut).expect("it is cut off");
    let second = soon("the other leads", waiting.elected()).await.expect("elected");
    referee.saw(&second);
    servers.rejoin(cut).expect("it is back");
    soon("it is told", leader.lost()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_that_overtakes_other_answers_keeps_the_connection() {
    let servers = require!(Zookeeper::ensemble(1, eager()).await);
    let address = servers[0].address();
    let own = ClientOptions::new([address.to_string()]).with_digest("ann", "canary");
    let own = Client::new(own);
    own.connected(Duration::from_secs(30)).await.expect("it connects");
    own.create("/own", "", Lifetime::Lasting, &Acl::creator_and_readers()).await.expect("created");
    let stranger = operator(address).await;
    let connection = stranger.session().borrow().connection;
    for round in 0..100 {
        let reads: Vec<_> = (0..16).map(|_| stranger.children("/")).collect();
        let write = stranger.set_data("/own", "theirs", None);
        let more: Vec<_> = (0..16).map(|_| stranger.data("/own")).collect();
        assert_eq!(write.await.expect_err("not permitted"), Error::Denied, "round {round}");
        for read in join_all(reads).await {
            read.expect("every read before it is answered");
        }
        for read in join_all(more).await {
            read.expect("every read after it is answered");
        }
    }
    assert_eq!(stranger.session().borrow().connection, connection, "on one connection");
}
