//! Questions, feeds and answers on one connection. The test plays the server.

use super::*;
use futures_util::FutureExt as _;
use serde_json::json;
use tokio::io::DuplexStream;

/// A link, and the server's end of its stream.
fn pair() -> (Arc<Link>, DuplexStream) {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    (Link::new(ours, BytesMut::new(), Greeting { version: None }), theirs)
}

/// The next question that the server sees.
async fn heard(server: &mut DuplexStream) -> (u64, String) {
    let mut head = [0; 12];
    server.read_exact(&mut head).await.expect("a question");
    let mut buffer = BytesMut::from(&head[..]);
    let length = u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize;
    let mut text = vec![0; length];
    server.read_exact(&mut text).await.expect("all of it");
    buffer.extend_from_slice(&text);
    let (token, text) = frame::decode(&mut buffer).expect("small").expect("whole");
    (token, String::from_utf8(text.to_vec()).expect("text"))
}

async fn say(server: &mut DuplexStream, token: u64, text: &str) {
    let message = frame::encode(token, text.as_bytes()).expect("small");
    server.write_all(&message).await.expect("it is read");
}

#[tokio::test]
async fn answers_reach_whoever_asked_in_any_order() {
    let (link, mut server) = pair();
    let serving = async {
        let (one, other) = (heard(&mut server).await, heard(&mut server).await);
        assert_eq!((one.1.as_str(), other.1.as_str()), ("a", "b"));
        say(&mut server, 77, r#"{"t":1,"r":["nobody's"]}"#).await;
        say(&mut server, other.0, r#"{"t":1,"r":["to b"]}"#).await;
        say(&mut server, one.0, r#"{"t":1,"r":["to a"]}"#).await;
    };
    let (a, b, ()) = tokio::join!(link.ask(b"a"), link.ask(b"b"), serving);
    assert_eq!(a, Ok(Response::Atom(json!("to a").into())));
    assert_eq!(b, Ok(Response::Atom(json!("to b").into())));
}

#[tokio::test]
async fn a_question_that_was_given_up_before_it_was_written_is_never_written() {
    let (link, mut server) = pair();
    // The writing task has not run yet.
    assert_eq!(link.ask(b"given up").now_or_never(), None);
    let serving = async {
        let (token, text) = heard(&mut server).await;
        assert_eq!(text, "kept");
        say(&mut server, token, r#"{"t":1,"r":[1]}"#).await;
    };
    let (kept, ()) = tokio::join!(link.ask(b"kept"), serving);
    assert_eq!(kept, Ok(Response::Atom(json!(1).into())));
}

#[tokio::test]
async fn a_sequence_comes_in_parts_and_is_ended_when_it_is_dropped() {
    let (link, mut server) = pair();
    let mut cursor = link.follow(b"feed").await.expect("asked");
    let (token, _) = heard(&mut server).await;
    for number in 0..2 {
        say(&mut server, token, &format!(r#"{{"t":3,"r":[{number}]}}"#)).await;
        assert_eq!(cursor.next().await, Ok(Response::Partial(vec![json!(number).into()])));
        assert!(!cursor.is_asked());
        cursor.more().await.expect("asked");
        assert_eq!(heard(&mut server).await, (token, "[2]".to_owned()));
    }
    drop(cursor);
    assert_eq!(heard(&mut server).await, (token, "[3]".to_owned()));
    assert!(link.is_usable());
}

#[tokio::test]
async fn a_sequence_that_is_over_needs_no_end() {
    let (link, mut server) = pair();
    let mut cursor = link.follow(b"list").await.expect("asked");
    let (token, _) = heard(&mut server).await;
    say(&mut server, token, r#"{"t":2,"r":[]}"#).await;
    assert_eq!(cursor.next().await, Ok(Response::Sequence(vec![])));
    drop(cursor);
    let asking = link.ask(b"next");
    let serving = async { heard(&mut server).await.1 };
    let text = tokio::select! { _ = asking => panic!("unanswered"), text = serving => text };
    assert_eq!(text, "next");
}

#[tokio::test]
async fn a_server_that_sends_what_makes_no_sense_is_left() {
    for wrong in [&b"\x01\0\0\0\0\0\0\0\xff\xff\xff\xff"[..], b"\x01\0\0\0\0\0\0\0\x01\0\0\0{"] {
        let (link, mut server) = pair();
        let serving = async {
            heard(&mut server).await;
            server.write_all(wrong).await.expect("it is read");
        };
        let (answer, ()) = tokio::join!(link.ask(b"a"), serving);
        assert!(matches!(answer, Err(Lost::Broken(_))), "{answer:?}");
        assert!(!link.is_usable());
        assert!(matches!(link.ask(b"b").await, Err(Lost::Unsent(_))), "nothing more is sent");
    }
}

/// Before, it ended the connection for all other questions, too.
#[tokio::test]
async fn an_answer_that_is_too_large_ends_only_its_question() {
    let (link, mut server) = pair();
    let serving = async {
        let (token, _) = heard(&mut server).await;
        let length = frame::LARGEST + 1;
        server.write_all(&token.to_le_bytes()).await.expect("it is read");
        server.write_all(&(length as u32).to_le_bytes()).await.expect("it is read");
        server.write_all(&vec![b' '; length]).await.expect("it is read");
        assert_eq!(heard(&mut server).await, (token, "[3]".to_owned()), "the server may end it");
        let rows = "0,".repeat(super::super::json::MOST_ROWS);
        let (token, _) = heard(&mut server).await;
        say(&mut server, token, &format!(r#"{{"t":3,"r":[{rows}0]}}"#)).await;
        assert_eq!(heard(&mut server).await, (token, "[3]".to_owned()), "the server may end it");
        let (token, _) = heard(&mut server).await;
        say(&mut server, token, r#"{"t":1,"r":[1]}"#).await;
    };
    let asking = async {
        for _ in 0..2 {
            let mut cursor = link.follow(b"all").await.expect("asked");
            let Ok(Response::Refused(refusal)) = cursor.next().await else { panic!("too large") };
            assert_eq!(refusal.kind, Refused::TooLarge);
        }
        link.ask(b"one").await
    };
    let (answer, ()) = tokio::join!(asking, serving);
    assert_eq!(answer, Ok(Response::Atom(json!(1).into())));
}

#[tokio::test]
async fn a_server_that_sends_more_than_was_asked_for_is_left() {
    let (link, mut server) = pair();
    let mut cursor = link.follow(b"feed").await.expect("asked");
    let (token, _) = heard(&mut server).await;
    for _ in 0..=UNREAD {
        say(&mut server, token, r#"{"t":3,"r":[]}"#).await;
    }
    let over = async { while cursor.next().await.is_ok() {} };
    over.await;
    assert!(!link.is_usable());
}

#[tokio::test]
async fn a_connection_that_ends_is_told_to_everybody() {
    let (link, server) = pair();
    let mut cursor = link.follow(b"feed").await.expect("asked");
    let ending = async {
        tokio::task::yield_now().await;
        drop(server);
    };
    let (answer, part, ()) = tokio::join!(link.ask(b"a"), cursor.next(), ending);
    assert!(answer.is_err(), "{answer:?}");
    assert!(matches!(part, Err(Lost::Broken(_))), "{part:?}");
}
