//! Lines over TCP.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{PATIENCE, start};
use tenure_cluster::documents::MAX_TASK_BYTES;
use tenure_cluster::input::Template;
use tenure_cluster::inputs::{Limits, TcpLines};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

fn lines() -> Arc<TcpLines> {
    limited(Limits::default())
}

fn limited(limits: Limits) -> Arc<TcpLines> {
    let lines = TcpLines::bind("127.0.0.1:0", Template::new("line")).expect("a free port");
    Arc::new(lines.limits(limits))
}

async fn connect(lines: &TcpLines) -> TcpStream {
    let address = lines.local_addr().expect("a bound port");
    TcpStream::connect(address).await.expect("it listens")
}

#[tokio::test]
async fn each_line_is_a_task_the_last_one_too_when_it_has_no_end() {
    let lines = lines();
    let mut running = start(&lines, 16);
    let mut stream = connect(&lines).await;
    stream.write_all(b"one\r\ntw").await.expect("sent");
    let first = running.next().await;
    assert_eq!((first.kind.as_str(), first.payload.as_ref()), ("line", &b"one"[..]));
    assert_eq!(first.id, format!("{}:1", stream.local_addr().expect("connected")));
    stream.write_all(b"o\n\nthree").await.expect("sent");
    assert_eq!(running.next_items(1).await, ["two"]);
    stream.shutdown().await.expect("shut down");
    assert_eq!(running.next_items(1).await, ["three"]);
    // The server closes its side when it has read everything.
    let closed = tokio::time::timeout(PATIENCE, stream.read(&mut [0])).await;
    assert_eq!(closed.expect("in time").expect("closed"), 0);
}

#[tokio::test]
async fn a_line_that_is_too_long_is_left_out_and_the_connection_goes_on() {
    let lines = lines();
    let mut running = start(&lines, 16);
    let mut stream = connect(&lines).await;
    let (just, long) = ("x".repeat(MAX_TASK_BYTES), "x".repeat(MAX_TASK_BYTES + 1));
    stream.write_all(format!("{long}\n{just}\nend\n").as_bytes()).await.expect("sent");
    assert_eq!(running.next_items(2).await, [just, "end".to_owned()]);
}

#[tokio::test]
async fn senders_wait_while_the_store_takes_nothing_and_nothing_is_lost() {
    const LINES: usize = 8 * 1024;
    let lines = lines();
    let mut running = start(&lines, 1);
    let mut stream = connect(&lines).await;
    let mut sending = tokio::spawn(async move {
        for number in 0..LINES {
            stream.write_all(format!("{number:08191}\n").as_bytes()).await.expect("sent");
        }
    });
    // 64 MiB are more than all the buffers in between hold.
    let early = tokio::time::timeout(Duration::from_millis(300), &mut sending).await;
    assert!(early.is_err(), "the sender did not have to wait");
    for number in 0..LINES {
        assert_eq!(running.next_items(1).await, [format!("{number:08191}")]);
    }
    sending.await.expect("everything was sent");
}

#[tokio::test]
async fn it_can_be_started_again_on_the_same_port() {
    let lines = lines();
    let mut stream = connect(&lines).await;
    drop(start(&lines, 16));
    let mut running = start(&lines, 16);
    stream.write_all(b"one\n").await.expect("sent");
    let mut other = connect(&lines).await;
    other.write_all(b"two\n").await.expect("sent");
    let mut items = running.next_items(2).await;
    items.sort();
    assert_eq!(items, ["one", "two"]);
}

/// Regression: connections that send nothing, or one byte now and then, kept their places forever,
/// and others waited.
#[tokio::test]
async fn connections_that_are_idle_or_slow_give_their_places_to_others() {
    // The times also apply to the connection that follows, so they are long enough for a busy
    // machine.
    let (idle, slow) = (Duration::from_secs(1), Duration::from_secs(1));
    for beginning in ["", "before\n", "a line that"] {
        let lines = limited(Limits { connections: 1, idle, slow, ..Limits::default() });
        let mut running = start(&lines, 16);
        let mut stream = connect(&lines).await;
        stream.write_all(beginning.as_bytes()).await.expect("sent");
        let mut other = connect(&lines).await;
        other.write_all(b"after\n").await.expect("sent");
        while running.next_items(1).await != ["after"] {}
    }
}

#[tokio::test]
async fn a_line_that_comes_byte_by_byte_must_end_in_time() {
    let slow = Duration::from_millis(200);
    let lines = limited(Limits { slow, ..Limits::default() });
    let mut running = start(&lines, 16);
    let mut stream = connect(&lines).await;
    let sending = async {
        while stream.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, sending).await.expect("closed in time");
    assert!(running.arrived().is_empty(), "what is not whole is no task");
}

#[tokio::test]
async fn a_peer_with_too_many_connections_keeps_out_only_itself() {
    let lines = limited(Limits { per_peer: 2, ..Limits::default() });
    let mut running = start(&lines, 16);
    let mut kept = [connect(&lines).await, connect(&lines).await];
    for stream in &mut kept {
        stream.write_all(b"kept\n").await.expect("sent");
    }
    assert_eq!(running.next_items(2).await, ["kept", "kept"]);
    let mut refused = connect(&lines).await;
    let closed = tokio::time::timeout(PATIENCE, refused.read(&mut [0])).await.expect("in time");
    assert!(matches!(closed, Ok(0) | Err(_)), "{closed:?}");
    // Another address of the loopback is another peer.
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.2:0".parse().expect("an address")).expect("bound");
    let mut other = socket.connect(lines.local_addr().expect("bound")).await.expect("it listens");
    other.write_all(b"other\n").await.expect("sent");
    assert_eq!(running.next_items(1).await, ["other"]);
    // A place that was released can be used again.
    drop(kept);
    loop {
        let mut stream = connect(&lines).await;
        // It may be refused while the listener has not noticed yet that the others ended.
        let sent = stream.write_all(b"again\n").await;
        let next = tokio::time::timeout(Duration::from_millis(100), running.next()).await;
        if sent.is_ok() && next.is_ok() {
            break;
        }
    }
}
