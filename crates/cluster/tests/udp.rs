//! Datagrams over UDP.

mod common;

use std::sync::Arc;

use common::start;
use tenure_cluster::documents::MAX_TASK_BYTES;
use tenure_cluster::input::Template;
use tenure_cluster::inputs::UdpDatagrams;
use tokio::net::UdpSocket;

#[tokio::test]
async fn each_datagram_is_a_task_but_empty_and_too_long_ones() {
    let template = Template::new("datagram").attempts(1);
    let datagrams = UdpDatagrams::bind("127.0.0.1:0", template).expect("a free port");
    let datagrams = Arc::new(datagrams);
    let mut running = start(&datagrams, 16);
    let sender = UdpSocket::bind("127.0.0.1:0").await.expect("a free port");
    sender.connect(datagrams.local_addr().expect("bound")).await.expect("connected");
    let (just, long) = ("x".repeat(MAX_TASK_BYTES), "x".repeat(MAX_TASK_BYTES + 1));
    // The loopback keeps the order, and its buffer holds so few datagrams.
    for datagram in ["one\n", "", &long, &just, "end"] {
        sender.send(datagram.as_bytes()).await.expect("sent");
    }
    let first = running.next().await;
    assert_eq!((first.payload.as_ref(), first.attempts), (&b"one\n"[..], 1));
    assert_eq!(running.next_items(2).await, [just, "end".to_owned()]);
    assert!(running.arrived().is_empty());
}
