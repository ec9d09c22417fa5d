//! Tests against a server that exists only as bytes.

mod answers;
mod heartbeats;
mod joins;
mod sessions;

use bytes::{BufMut, Bytes};
use proptest::prelude::*;
use tokio::sync::oneshot;

use super::super::super::wire::{Acl, Lifetime, Reader, Request};
use super::*;

const TTL: Duration = Duration::from_secs(10);

fn at(millis: u64) -> Moment {
    Moment::default() + Duration::from_millis(millis)
}

fn connected() -> State {
    let mut state = State::new(TTL);
    state.accepted(7, vec![1; 16], TTL, at(0));
    state
}

fn read(path: &str) -> Request {
    Request::Exists { path: path.into(), watch: false }
}

fn entry(root: &str) -> Request {
    let (lifetime, acl) = (Lifetime::EphemeralSequential, Acl::open());
    Request::Create { path: format!("{root}/n-"), data: Bytes::new(), lifetime, acl }
}

fn join(state: &mut State, root: &str) -> oneshot::Receiver<Result<Made, Error>> {
    let (reply, made) = oneshot::channel();
    state.join(Join { root: root.into(), entry: entry(root), alone: false, reply });
    made
}

/// The numbers and codes of the requests that were sent.
fn sent(state: &mut State, now: Moment) -> Vec<(i32, i32)> {
    let mut out = Vec::new();
    state.send(now, &mut out);
    let mut requests = Vec::new();
    let mut rest = out.as_slice();
    while let Some((length, body)) = rest.split_first_chunk::<4>() {
        let (body, after) = body.split_at(u32::from_be_bytes(*length) as usize);
        let mut reader = Reader::new(body);
        requests.push((reader.int().expect("a number"), reader.int().expect("a code")));
        rest = after;
    }
    requests
}

fn head(number: i32, code: i32) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.put_i32(number);
    frame.put_i64(99);
    frame.put_i32(code);
    frame
}

fn stat(out: &mut Vec<u8>, created: i64) {
    out.put_i64(created);
    out.put_slice(&[0; 60]);
}

/// The answer to a transaction that created this many nodes.
fn created(number: i32, count: usize) -> Vec<u8> {
    let mut frame = head(number, 0);
    for _ in 0..count {
        frame.put_i32(15);
        frame.put_u8(0);
        frame.put_i32(-1);
        frame.put_i32(2);
        frame.put_slice(b"/x");
        stat(&mut frame, 42);
    }
    frame.put_i32(-1);
    frame.put_u8(1);
    frame.put_i32(-1);
    frame
}

/// The answer to a transaction that was refused.
fn refused(number: i32, codes: &[i32]) -> Vec<u8> {
    let mut frame = head(number, 0);
    for code in codes {
        frame.put_i32(-1);
        frame.put_u8(0);
        frame.put_i32(*code);
        frame.put_i32(*code);
    }
    frame.put_i32(-1);
    frame.put_u8(1);
    frame.put_i32(-1);
    frame
}

fn write() -> Request {
    Request::Delete { path: "/a".into(), version: -1 }
}

fn many() -> Request {
    Request::ManyData(vec!["/a".to_owned(), "/b".to_owned()])
}

proptest! {
    #[test]
    fn no_bytes_of_a_server_panic(
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..8),
        numbered in any::<bool>(),
    ) {
        let mut state = connected();
        let _asked = [
            state.ask(read("/a"), false),
            state.ask(Request::Multi(vec![entry("/a")]), false),
            state.ask(many(), false),
        ];
        let _joined = [join(&mut state, "/a"), join(&mut state, "/b")];
        let _listed = state.list("/a".into(), true);
        let _watching = state.watches.begin(&read("/a"));
        sent(&mut state, at(1));
        for (number, frame) in (1..).zip(frames) {
            let frame = if numbered { [head(number, 0), frame].concat() } else { frame };
            if state.receive(at(2), &frame).is_err() {
                state.ended();
                state.accepted(7, vec![1; 16], TTL, at(3));
            }
        }
    }
}
