//! A fake server of version 3.5, as far as reads go: it does not know requests for many nodes.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tenure::Key;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::open;

const SYNC: i32 = 9;
const MULTI: i32 = 14;
const MULTI_READ: i32 = 22;
const UNIMPLEMENTED: i32 = -6;
const NO_NODE: i32 = -101;

async fn frame(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; stream.read_u32().await? as usize];
    stream.read_exact(&mut frame).await?;
    Ok(frame)
}

async fn answer(stream: &mut TcpStream, parts: &[&[u8]]) -> io::Result<()> {
    let body = parts.concat();
    let length = u32::try_from(body.len()).expect("a few bytes").to_be_bytes();
    stream.write_all(&[&length[..], &body].concat()).await
}

/// The body of the answer to a transaction with a single part that was refused.
fn refused(error: i32) -> Vec<u8> {
    let head =
        |done: u8, error: i32| [&(-1i32).to_be_bytes()[..], &[done], &error.to_be_bytes()].concat();
    [head(0, error), error.to_be_bytes().to_vec(), head(1, -1)].concat()
}

/// Serves one connection until it is asked for many nodes.
async fn serve(mut stream: TcpStream, many: &AtomicUsize) -> io::Result<()> {
    frame(&mut stream).await?;
    let session = [&[0, 0, 0, 0, 0, 0, 0x0f, 0xa0][..], &7i64.to_be_bytes(), &16i32.to_be_bytes()];
    answer(&mut stream, &[&session.concat(), &[1; 16], &[0]]).await?;
    // A sync goes the way of writes: its answer waits, while an unknown request is refused at once.
    let mut synced: Option<Vec<u8>> = None;
    loop {
        let request = frame(&mut stream).await?;
        let number = &request[..4];
        let code = i32::from_be_bytes(request[4..8].try_into().expect("four bytes"));
        let head = |error: i32| [number, &1i64.to_be_bytes(), &error.to_be_bytes()].concat();
        match code {
            SYNC => synced = Some([&head(0), &request[8..]].concat()),
            // A transaction that checks a missing node.
            MULTI => synced = Some([head(0), refused(NO_NODE)].concat()),
            MULTI_READ => {
                many.fetch_add(1, Ordering::Relaxed);
                // Then the connection is closed.
                return answer(&mut stream, &[&head(UNIMPLEMENTED)]).await;
            }
            _ => {
                if let Some(synced) = synced.take() {
                    answer(&mut stream, &[&synced]).await?;
                }
                answer(&mut stream, &[&head(NO_NODE)]).await?;
            }
        }
    }
}

#[tokio::test]
async fn a_server_that_does_not_know_it_is_asked_for_many_documents_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let many = Arc::new(AtomicUsize::new(0));
    let counter = many.clone();
    let server = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // A client that goes away is no failure of the server.
            let _ = serve(stream, &counter).await;
        }
    });
    let backend = open(&format!("zookeeper://{address}/old"), Duration::from_secs(20)).await;
    let key = |number| Key::parse(&format!("elections/{number}")).expect("a good key");
    let keys: Vec<Key> = (0..10).map(key).collect();
    for _ in 0..3 {
        let found = backend.store().get_many(&keys).await.expect("read one by one");
        assert_eq!(found, vec![None; keys.len()]);
    }
    assert_eq!(many.load(Ordering::Relaxed), 1);
    server.abort();
}
