//! The fault proxy, in front of an echo server.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tenure_harness::{Direction, Framing, Proxy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(10);
const SILENCE: Duration = Duration::from_millis(200);

/// A server that echoes and remembers all bytes.
struct Echo {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<u8>>>,
    _tasks: JoinSet<()>,
}

impl Echo {
    async fn start() -> Echo {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let heard = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        let hearing = Arc::clone(&heard);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(echo(stream, Arc::clone(&hearing)));
            }
        });
        Echo { address, heard, _tasks: tasks }
    }

    fn heard(&self) -> Vec<u8> {
        self.heard.lock().expect("nobody panics with it").clone()
    }
}

async fn echo(mut stream: TcpStream, heard: Arc<Mutex<Vec<u8>>>) {
    stream.set_nodelay(true).expect("an open socket");
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = stream.read(&mut buffer).await {
        heard.lock().expect("nobody panics with it").extend_from_slice(&buffer[..length]);
        if stream.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}

async fn connect(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.address()).await.expect("the proxy listens");
    stream.set_nodelay(true).expect("an open socket");
    stream
}

/// Sends `message` and waits for its echo.
async fn exchange(stream: &mut TcpStream, message: &[u8]) -> io::Result<Vec<u8>> {
    stream.write_all(message).await?;
    receive(stream, message.len()).await
}

async fn receive(stream: &mut TcpStream, length: usize) -> io::Result<Vec<u8>> {
    let mut answer = vec![0; length];
    timeout(PATIENCE, stream.read_exact(&mut answer)).await??;
    Ok(answer)
}

/// Returns true if nothing arrives for a while.
async fn silent(stream: &mut TcpStream) -> bool {
    timeout(SILENCE, stream.read(&mut [0])).await.is_err()
}

fn framed(text: &[u8]) -> Vec<u8> {
    let length = u32::try_from(text.len()).expect("short");
    [&length.to_be_bytes(), text].concat()
}

#[tokio::test]
async fn bytes_pass_both_ways_and_are_counted() {
    let server = Echo::start().await;
    let proxy = Proxy::start(server.address, Framing::Zookeeper).expect("a proxy");
    let mut client = connect(&proxy).await;
    let two = [framed(b"one"), framed(b"three")].concat();
    assert_eq!(exchange(&mut client, &two).await.expect("an echo"), two);
    let mut other = connect(&proxy).await;
    exchange(&mut other, &framed(b"x")).await.expect("an echo");

    let connections = proxy.connections();
    assert_eq!(connections.len(), 2);
    assert_eq!(connections[0].to_server.messages, 2);
    assert_eq!(connections[0].to_client.bytes, 16);
    assert_eq!(connections[0].client, client.local_addr().expect("it is connected"));
    assert_eq!(proxy.forwarded(Direction::ToClient).messages, 3);
    assert_eq!(proxy.forwarded(Direction::ToServer).bytes, 21);
}

#[tokio::test]
async fn every_message_is_shown_once() {
    let server = Echo::start().await;
    let proxy = Proxy::start(server.address, Framing::Zookeeper).expect("a proxy");
    let seen = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&seen);
    proxy.observe(move |message| {
        if message.direction == Direction::ToClient && message.bytes.ends_with(b"note") {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    });
    let mut client = connect(&proxy).await;
    for text in [&b"note"[..], b"other", b"note"] {
        exchange(&mut client, &framed(text)).await.expect("an echo");
    }
    assert_eq!(seen.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn closing_one_direction_leaves_the_other_open() {
    let server = Echo::start().await;
    let proxy = Proxy::start(server.address, Framing::Raw).expect("a proxy");
    let mut client = connect(&proxy).await;
    client.write_all(b"last words").await.expect("open");
    client.shutdown().await.expect("open");
    let mut answer = Vec::new();
    timeout(PATIENCE, client.read_to_end(&mut answer)).await.expect("soon").expect("an echo");
    assert_eq!(answer, b"last words");
}

#[tokio::test]
async fn a_delay_of_twenty_milliseconds_each_way_is_forty_a_round_trip() {
    let server = Echo::start().await;
    let proxy = Proxy::start(server.address, Framing::Raw).expect("a proxy");
    let mut client = connect(&proxy).await;
    let mut without: Vec<_> = round_trips(&mut client, 21).await;
    let delay = Duration::from_millis(20);
    proxy.delay(Direction::ToServer, delay);
    proxy.delay(Direction::ToClient, delay);
    let mut with = round_trips(&mut client, 21).await;
    without.sort();
    with.sort();

    // The median, since a busy machine delays some of them. None may be shorter than the delay.
    let (without, median) = (without[10], with[10]);
    println!("round trip: {without:?} without a delay, {median:?} with 2 x {delay:?}");
    assert!(with[0] >= 2 * delay, "{:?}", with[0]);
    // A third delay would be half as much again.
    assert!(median < 3 * delay + without, "{median:?}");
}

async fn round_trips(client: &mut TcpStream, count: usize) -> Vec<Duration> {
    let mut took = Vec::new();
    for _ in 0..count {
        let began = Instant::now();
        exchange(client, b"ping").await.expect("an echo");
        took.push(began.elapsed());
    }
    took
}

#[tokio::test]
async fn a_delay_keeps_order_and_throughput() {
    let server = Echo::start().await;
    let proxy = Proxy::start(server.address, Framing::Zookeeper).expect("a proxy");
    proxy.delay(Direction::ToServer, Duration::from_millis(50));
    proxy.delay(Direction::ToClient, Duration::from_millis(50));
    let mut client = connect(&proxy).await;
    let all: Vec<u8> = (0..2_000u32).flat_map(|number| framed(&number.to_be_bytes())).collect();
    let began = Instant::now();
    assert_eq!(exchange(&mut client, &all).await.expect("an echo"), all);
    // One by one they would take 200 s.
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    assert_eq!(proxy.forwarded(Direction::ToClient).messages, 2_000);
}

#[tokio::test]
async fn a_cut_resets_and_refuses_until_it_heals() {
    let server = Echo::start().await;
    let proxy = Proxy::start(server.address, Framing::Raw).expect("a proxy");
    let mut client = connect(&proxy).await;
    exchange(&mut client, b"before").await.expect("an echo");
    proxy.cut().await;

    let broken = exchange(&mut client, b"during").await.expect_err("it is cut");
    assert_eq!(broken.kind(), io::ErrorKind::ConnectionReset);
    let refused = TcpStream::connect(proxy.address()).await.expect_err("it is cut");
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    assert!(!proxy.connections()[0].open);

    proxy.heal().await;
    let mut client = connect(&proxy).await;
    exchange(&mut client, b"after").await.expect("an echo");
    assert_eq!(server.heard(), b"beforeafter");
}

#[tokio::test]
async fn severed_connections_are_reset_and_new_ones_served() {
    let server = Echo::start().await;
    let proxy = Proxy::start(server.address, Framing::Raw).expect("a proxy");
    let mut client = connect(&proxy).await;
    exchange(&mut client, b"before").await.expect("an echo");
    proxy.sever().await;
    exchange(&mut client, b"during").await.expect_err("it was severed");
    let mut client = connect(&proxy).await;
    exchange(&mut client, b"after").await.expect("an echo");
}

#[tokio::test]
async fn a_half_open_connection_carries_requests_but_no_answers() {
    let server = Echo::start().await;
    let proxy = Proxy::start(server.address, Framing::Raw).expect("a proxy");
    let mut client = connect(&proxy).await;
    exchange(&mut client, b"one").await.expect("an echo");
    proxy.blackhole(Direction::ToClient);
    client.write_all(b"two").await.expect("open");
    assert!(silent(&mut client).await);
    assert_eq!(server.heard(), b"onetwo");

    // As after an outage of a network, the bytes sent meanwhile arrive.
    proxy.heal().await;
    assert_eq!(receive(&mut client, 3).await.expect("an echo"), b"two");
}

#[tokio::test]
async fn a_black_hole_accepts_connections_and_hears_nothing() {
    let server = Echo::start().await;
    let proxy = Proxy::start(server.address, Framing::Raw).expect("a proxy");
    proxy.blackhole(Direction::ToServer);
    let mut client = connect(&proxy).await;
    client.write_all(b"lost?").await.expect("open");
    assert!(silent(&mut client).await);
    assert_eq!(server.heard(), b"");
}

#[tokio::test]
async fn a_client_behind_a_black_hole_does_not_learn_that_the_server_is_gone() {
    let nobody = tenure_harness::Port::claim().expect("a free port");
    let proxy = Proxy::start(nobody.address(), Framing::Raw).expect("a proxy");
    proxy.blackhole(Direction::ToClient);
    let mut client = connect(&proxy).await;
    assert!(silent(&mut client).await);
    proxy.heal().await;
    let gone = timeout(PATIENCE, client.read(&mut [0])).await.expect("soon");
    assert!(!matches!(gone, Ok(1..)));
}

#[tokio::test]
async fn a_connection_is_dropped_after_exactly_the_bytes_granted() {
    let server = Echo::start().await;
    let proxy = Proxy::start(server.address, Framing::Raw).expect("a proxy");
    let mut client = connect(&proxy).await;
    proxy.drop_after(Direction::ToServer, 5);
    exchange(&mut client, b"0123456789").await.expect_err("it is dropped in the middle");
    let mut client = connect(&proxy).await;
    exchange(&mut client, b"again").await.expect("only once");
    assert_eq!(server.heard(), b"01234again");
}

#[tokio::test]
async fn only_the_answer_of_the_matching_request_is_lost() {
    let server = Echo::start().await;
    let proxy = Proxy::start(server.address, Framing::Zookeeper).expect("a proxy");
    let mut client = connect(&proxy).await;
    proxy.lose_answer_of(|request| request.ends_with(b"create"));
    let all = [framed(b"1111get"), framed(b"2222create"), framed(b"3333get")].concat();
    client.write_all(&all).await.expect("open");
    let mut answer = Vec::new();
    let _ = timeout(PATIENCE, client.read_to_end(&mut answer)).await.expect("it is closed");
    assert_eq!(answer, framed(b"1111get"));
    assert_eq!(proxy.answers_lost(), 1);
    assert!(server.heard().ends_with(&all));

    let mut client = connect(&proxy).await;
    exchange(&mut client, &framed(b"2222create")).await.expect("only once");
}

#[tokio::test]
async fn the_next_answers_are_lost_each_with_its_connection() {
    let server = Echo::start().await;
    let proxy = Proxy::start(server.address, Framing::Raw).expect("a proxy");
    proxy.lose_answers(2);
    for _ in 0..2 {
        let mut client = connect(&proxy).await;
        exchange(&mut client, b"put").await.expect_err("the answer is lost");
    }
    let mut client = connect(&proxy).await;
    exchange(&mut client, b"put").await.expect("two were enough");
    assert_eq!(server.heard(), b"putputput");
    assert_eq!(proxy.answers_lost(), 2);
}

#[tokio::test]
async fn many_connections_pass_at_once_and_none_is_left_when_the_proxy_is_dropped() {
    let server = Echo::start().await;
    let proxy = Proxy::start(server.address, Framing::Raw).expect("a proxy");
    let mut clients = Vec::new();
    for _ in 0..200 {
        clients.push(connect(&proxy).await);
    }
    for client in &mut clients {
        exchange(client, b"hello").await.expect("an echo");
    }
    assert_eq!(proxy.connections().iter().filter(|connection| connection.open).count(), 200);
    drop(proxy);
    for client in &mut clients {
        let end = timeout(PATIENCE, client.read(&mut [0])).await.expect("closed at once");
        assert!(!matches!(end, Ok(1..)));
    }
}

#[tokio::test]
async fn a_reader_that_is_slow_holds_up_the_sender_not_the_proxys_memory() {
    let server = Echo::start().await;
    let proxy = Proxy::start(server.address, Framing::Raw).expect("a proxy");
    proxy.delay(Direction::ToServer, Duration::from_secs(60));
    let mut client = connect(&proxy).await;
    let block = vec![7; 1 << 20];
    // The queue takes 4 MiB and the kernel's buffers some more; then the sender waits.
    let all = async {
        for _ in 0..64 {
            client.write_all(&block).await.expect("open");
        }
    };
    assert!(timeout(Duration::from_secs(1), all).await.is_err());
}
