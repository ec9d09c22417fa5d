//! The formats are fixed, because clusters outlive the programs that run them.

use std::fmt::Debug;
use std::sync::Arc;

use serde_json::{Map, json};
use tenure::lease::record::Op;

use super::*;

const ID: &str = "00000000000000000000000000000007";
const OTHER: &str = "00000000000000000000000000000008";

fn member(bits: u128) -> MemberId {
    MemberId::from_bits(bits)
}

fn op() -> Op {
    Op::new(&member(7), 9)
}

fn mark() -> Mark {
    Mark(Map::from_iter([("pid".to_owned(), 7.into())]))
}

fn assignment() -> Assignment {
    Assignment {
        serial: 3,
        id: "cat.jpg".into(),
        kind: "shrink".into(),
        payload: Bytes::from_static(b"cat"),
        attempts: 3,
        timeout: None,
        to: None,
        receipt: None,
    }
}

fn full_assignment() -> Assignment {
    Assignment {
        timeout: Some(Duration::from_secs(600)),
        to: Some(member(8)),
        receipt: Some(member(7)),
        ..assignment()
    }
}

fn slot(progress: Progress) -> Slot {
    Slot {
        task: Arc::new(assignment()),
        progress,
        cancel: false,
        token: 3 * CLAIMS_A_TASK + 2,
        attempt: 2,
        ttl: Duration::from_secs(15),
        revision: 12,
        op: op(),
    }
}

fn held() -> Slot {
    slot(Progress::Held(Arc::new(Holding {
        member: member(8),
        expire: 1_515_527_529_288,
        presence: Some(mark()),
        status: Some("half".into()),
    })))
}

/// Asserts that this text is the written form of the document, both ways.
#[track_caller]
fn is_fixed<T: Format + PartialEq + Debug>(document: &T, text: &str) {
    let text = text.replace("OTHER", OTHER).replace("ID", ID);
    let encoded = document.encode();
    assert_eq!(std::str::from_utf8(&encoded), Ok(format!("{text}\n").as_str()));
    assert_eq!(T::decode(&encoded).as_ref(), Ok(document));
}

#[track_caller]
fn is_refused<T: Format + Debug>(text: &str, says: &str) {
    let error = T::decode(text.as_bytes()).expect_err("this makes no sense");
    assert!(error.to_string().contains(says), "{error}");
}

/// The same document with one field changed.
fn with<T: Format>(document: &T, field: &str, value: serde_json::Value) -> String {
    let mut fields: Map<String, serde_json::Value> =
        serde_json::from_slice(&document.encode()).expect("an object");
    fields.insert(field.into(), value);
    serde_json::to_string(&fields).expect("it encodes")
}

#[test]
fn the_format_of_an_outstanding_slot_is_fixed() {
    is_fixed(
        &slot(Progress::Outstanding { avoid: None, error: None }),
        r#"{"holder":"","expire":0,"state":"outstanding","serial":3,"id":"cat.jpg","kind":"shrink","task":"Y2F0","attempts":3,"token":3074,"attempt":2,"ttl":15000,"revision":12,"op":"ID-9"}"#,
    );
    let failed = Progress::Outstanding { avoid: Some(member(8)), error: Some("no".into()) };
    is_fixed(
        &Slot { task: Arc::new(full_assignment()), ..slot(failed) },
        r#"{"holder":"","expire":0,"state":"outstanding","serial":3,"id":"cat.jpg","kind":"shrink","task":"Y2F0","attempts":3,"timeout":600000,"to":"OTHER","receipt":"ID","token":3074,"attempt":2,"ttl":15000,"revision":12,"op":"ID-9","error":"no","avoid":"OTHER"}"#,
    );
}

#[test]
fn the_format_of_a_held_slot_is_fixed() {
    is_fixed(
        &Slot { cancel: true, ..held() },
        r#"{"holder":"OTHER","expire":1515527529288,"state":"outstanding","serial":3,"id":"cat.jpg","kind":"shrink","task":"Y2F0","attempts":3,"cancel":true,"token":3074,"attempt":2,"ttl":15000,"revision":12,"op":"ID-9","status":"half","presence":{"pid":7}}"#,
    );
}

#[test]
fn the_format_of_a_slot_at_its_end_is_fixed() {
    is_fixed(
        &slot(Progress::Done { result: Some("small".into()) }),
        r#"{"holder":"","expire":0,"state":"done","serial":3,"id":"cat.jpg","kind":"shrink","task":"Y2F0","attempts":3,"token":3074,"attempt":2,"ttl":15000,"revision":12,"op":"ID-9","result":"small"}"#,
    );
    is_fixed(
        &slot(Progress::Dead { error: "no".into() }),
        r#"{"holder":"","expire":0,"state":"dead","serial":3,"id":"cat.jpg","kind":"shrink","task":"Y2F0","attempts":3,"token":3074,"attempt":2,"ttl":15000,"revision":12,"op":"ID-9","error":"no"}"#,
    );
}

#[test]
fn the_format_of_a_vacant_slot_is_fixed() {
    let nothing = Assignment {
        id: String::new(),
        kind: String::new(),
        payload: Bytes::new(),
        attempts: 0,
        ..assignment()
    };
    is_fixed(
        &Slot { task: Arc::new(nothing), attempt: 0, ..slot(Progress::Vacant) },
        r#"{"holder":"","expire":0,"state":"done","serial":3,"attempts":0,"token":3074,"attempt":0,"ttl":15000,"revision":12,"op":"ID-9"}"#,
    );
}

#[test]
fn the_format_of_the_cursor_is_fixed() {
    is_fixed(
        &Cursor::new(op()),
        r#"{"leader":0,"next":1,"page":0,"taken":0,"accepted":0,"done":0,"dead":0,"cancelled":0,"pieces":0,"intents":[],"revision":0,"op":"ID-9"}"#,
    );
    let fill = Intent { slot: 5, serial: 3, task: Some(assignment()), letter: Some(1) };
    let vacate = Intent { slot: 6, serial: 4, task: None, letter: None };
    is_fixed(
        &Cursor {
            leader: 2,
            next: 5,
            position: Some("z.jpg".into()),
            drained: true,
            page: 7,
            taken: 1,
            accepted: 4,
            done: 2,
            dead: 1,
            cancelled: 1,
            pieces: 1,
            intents: vec![fill, vacate],
            revision: 12,
            op: op(),
        },
        r#"{"leader":2,"next":5,"position":"z.jpg","drained":true,"page":7,"taken":1,"accepted":4,"done":2,"dead":1,"cancelled":1,"pieces":1,"intents":[{"slot":5,"serial":3,"task":{"serial":3,"id":"cat.jpg","kind":"shrink","task":"Y2F0","attempts":3},"letter":1},{"slot":6,"serial":4}],"revision":12,"op":"ID-9"}"#,
    );
}

#[test]
fn the_format_of_an_inbox_page_is_fixed() {
    is_fixed(&Page::empty(7, op()), r#"{"number":7,"entries":[],"revision":1,"op":"ID-9"}"#);
    let order = Order::new("cat.jpg", "shrink", "cat");
    let full = Order {
        timeout: Some(Duration::from_secs(600)),
        to: Some(member(8)),
        receipt: Some(member(7)),
        ..order.clone()
    };
    let entries =
        vec![Entry::Task(order), Entry::Task(full), Entry::Retry(3), Entry::Cancelled(member(8))];
    is_fixed(
        &Page::filling(7, None, entries, op()),
        r#"{"number":7,"entries":[{"task":{"id":"cat.jpg","kind":"shrink","task":"Y2F0","attempts":3}},{"task":{"id":"cat.jpg","kind":"shrink","task":"Y2F0","attempts":3,"timeout":600000,"to":"OTHER","receipt":"ID"}},{"retry":3},{"cancelled":"OTHER"}],"filled":["ID-9"],"revision":1,"op":"ID-9"}"#,
    );
}

#[test]
fn the_format_of_the_node_list_is_fixed() {
    let node = NodeEntry { token: member(7), workers: 5, name: String::new(), draining: false };
    let other = NodeEntry { token: member(8), workers: 3, name: "host-a".into(), draining: true };
    is_fixed(
        &Nodes { nodes: vec![node.clone()], dead: Vec::new(), revision: 12, op: op() },
        r#"{"nodes":[{"token":"ID","workers":5}],"revision":12,"op":"ID-9"}"#,
    );
    is_fixed(
        &Nodes { nodes: vec![node, other], dead: vec![member(8)], revision: 12, op: op() },
        r#"{"nodes":[{"token":"ID","workers":5},{"token":"OTHER","workers":3,"name":"host-a","draining":true}],"dead":["OTHER"],"revision":12,"op":"ID-9"}"#,
    );
}

#[test]
fn the_format_of_a_members_lock_is_fixed() {
    let lock = MemberLock {
        holder: member(8),
        expire: 1_515_527_529_288,
        ttl: Duration::from_secs(15),
        idle: 2,
        finished: 40,
        lists: false,
        presence: None,
        revision: 12,
        op: op(),
    };
    is_fixed(
        &lock,
        r#"{"holder":"OTHER","expire":1515527529288,"ttl":15000,"idle":2,"finished":40,"revision":12,"op":"ID-9"}"#,
    );
    is_fixed(
        &MemberLock { lists: true, presence: Some(mark()), ..lock },
        r#"{"holder":"OTHER","expire":1515527529288,"ttl":15000,"idle":2,"finished":40,"lists":true,"presence":{"pid":7},"revision":12,"op":"ID-9"}"#,
    );
}

#[test]
fn the_format_of_the_cluster_document_is_fixed() {
    let cluster_config = ClusterConfig { slots: 256, paused: false, revision: 12, op: op() };
    is_fixed(&cluster_config, r#"{"slots":256,"revision":12,"op":"ID-9"}"#);
    is_fixed(
        &ClusterConfig { paused: true, ..cluster_config },
        r#"{"slots":256,"paused":true,"revision":12,"op":"ID-9"}"#,
    );
}

#[test]
fn the_format_of_a_bell_is_fixed() {
    is_fixed(&WakeUp { rung: 4, op: op() }, r#"{"rung":4,"op":"ID-9"}"#);
}

#[test]
fn the_format_of_a_dead_letter_is_fixed() {
    let at = 1_515_527_529_288;
    is_fixed(
        &Letter { task: full_assignment(), attempt: 3, error: "no".into(), at, op: op() },
        r#"{"serial":3,"id":"cat.jpg","kind":"shrink","task":"Y2F0","attempts":3,"timeout":600000,"to":"OTHER","receipt":"ID","attempt":3,"error":"no","at":1515527529288,"op":"ID-9"}"#,
    );
}

#[test]
fn the_format_of_results_is_fixed() {
    let done = Report {
        serial: 3,
        id: "cat.jpg".into(),
        state: OutcomeState::Done,
        attempt: 1,
        note: Some("small".into()),
    };
    let dead = Report { serial: 4, state: OutcomeState::Dead, note: None, ..done.clone() };
    is_fixed(
        &Piece { reports: vec![done, dead], op: op() },
        r#"{"reports":[{"serial":3,"id":"cat.jpg","state":"done","attempt":1,"note":"small"},{"serial":4,"id":"cat.jpg","state":"dead","attempt":1}],"op":"ID-9"}"#,
    );
}

#[test]
fn the_format_of_an_outcome_is_fixed() {
    let outcome = Outcome {
        serial: 3,
        state: OutcomeState::Cancelled,
        note: None,
        at: 1_515_527_529_288,
        op: op(),
    };
    is_fixed(&outcome, r#"{"serial":3,"state":"cancelled","at":1515527529288,"op":"ID-9"}"#);
    is_fixed(
        &Outcome { state: OutcomeState::Done, note: Some("small".into()), ..outcome },
        r#"{"serial":3,"state":"done","note":"small","at":1515527529288,"op":"ID-9"}"#,
    );
}

#[test]
fn the_format_of_settings_is_fixed() {
    let settings =
        Map::from_iter([("b".to_owned(), json!([1, 0.5])), ("a".to_owned(), json!("x"))]);
    is_fixed(
        &Settings { version: 3, settings, op: op() },
        r#"{"version":3,"settings":{"a":"x","b":[1,0.5]},"op":"ID-9"}"#,
    );
}

#[test]
fn each_bad_slot_says_what_is_wrong() {
    let slot = held();
    for (field, value, says) in [
        ("token", json!(3 * CLAIMS_A_TASK - 1), "bad token: not one of its serial's"),
        ("token", json!(4 * CLAIMS_A_TASK), "bad token: not one of its serial's"),
        ("serial", json!(u64::MAX), "bad serial: out of range"),
        ("revision", json!(1u64 << 53), "bad revision: out of range"),
        ("ttl", json!(0), "bad ttl: out of range"),
        ("ttl", json!(24 * 60 * 60 * 1000 + 1), "bad ttl: out of range"),
        ("kind", json!(""), "bad kind: empty"),
        ("id", json!("x".repeat(MAX_ID_BYTES + 1)), "bad id: too long"),
        ("attempts", json!(0), "bad attempts: out of range"),
        ("attempts", json!(CLAIMS_A_TASK), "bad attempts: out of range"),
        ("timeout", json!(0), "bad timeout: out of range"),
        ("status", json!("x".repeat(MAX_NOTE_BYTES + 1)), "bad status: too long"),
        ("presence", json!({"x": "x".repeat(MAX_MARK_BYTES)}), "bad presence: too long"),
        ("holder", json!("a/b"), "a holder that is no id"),
        ("state", json!("free"), "this is no slot"),
        ("task", json!("cat"), "not base64"),
        ("op", json!(""), "an op that is empty"),
        ("cancel", json!("yes"), "this is no slot"),
    ] {
        is_refused::<Slot>(&with(&slot, field, value), says);
    }
    let long = Bytes::from(vec![0; MAX_TASK_BYTES + 1]);
    let task = Arc::new(Assignment { payload: long, ..assignment() });
    let long = Slot { task, ..held() };
    assert_eq!(Slot::decode(&long.encode()), Err(refuse::<Slot>("task", "too long")));
}

#[test]
fn each_bad_cursor_says_what_is_wrong() {
    let cursor = Cursor::new(op());
    for field in ["leader", "next", "page", "accepted", "done", "dead", "cancelled", "pieces"] {
        is_refused::<Cursor>(&with(&cursor, field, json!(1u64 << 53)), &format!("bad {field}"));
    }
    is_refused::<Cursor>(&with(&cursor, "position", json!("x".repeat(4097))), "bad position");
    for intent in [
        json!({"slot": 0, "serial": 1}),
        json!({"slot": MOST_SLOTS, "serial": 0}),
        json!({"slot": 0, "serial": 0, "task": {"serial": 9, "id": "a", "kind": "b", "task": "", "attempts": 1}}),
        json!({"slot": 0, "serial": 0, "task": {"serial": 0, "id": "", "kind": "b", "task": "", "attempts": 1}}),
    ] {
        is_refused::<Cursor>(&with(&cursor, "intents", json!([intent])), "the cursor has a bad");
    }
}

#[test]
fn each_bad_page_says_what_is_wrong() {
    let page = Page::empty(7, op());
    is_refused::<Page>(&with(&page, "number", json!(1u64 << 53)), "bad number");
    is_refused::<Page>(&with(&page, "filled", json!(["a", "b", "c", "d", "e"])), "bad filled");
    for entry in [
        json!({"task": {"id": "a", "kind": "", "task": "", "attempts": 1}}),
        json!({"task": {"id": "a", "kind": "b", "task": "", "attempts": 0}}),
        json!({"retry": 1u64 << 53}),
    ] {
        is_refused::<Page>(&with(&page, "entries", json!([entry])), "the inbox page has a bad");
    }
    is_refused::<Page>(&with(&page, "entries", json!([{"else": 1}])), "this is no inbox page");
    is_refused::<Page>(&with(&page, "entries", json!([{"cancelled": "a/b"}])), "segments");
}

#[test]
fn what_is_too_many_or_too_long_is_refused_wherever_it_stands() {
    let nodes = Nodes { nodes: Vec::new(), dead: Vec::new(), revision: 1, op: op() };
    let many = vec![json!({"token": "a", "workers": 1}); MOST_NODES + 1];
    is_refused::<Nodes>(&with(&nodes, "nodes", json!(many)), "bad nodes: too many");
    is_refused::<Nodes>(&with(&nodes, "dead", json!(vec!["a"; MOST_NODES + 1])), "too many");
    let named = json!([{"token": "a", "workers": 1, "name": "x".repeat(129)}]);
    is_refused::<Nodes>(&with(&nodes, "nodes", named), "bad name: too long");
    let cluster_config = ClusterConfig { slots: 1, paused: false, revision: 1, op: op() };
    is_refused::<ClusterConfig>(&with(&cluster_config, "slots", json!(0)), "bad slots");
    is_refused::<ClusterConfig>(
        &with(&cluster_config, "slots", json!(MOST_SLOTS + 1)),
        "bad slots",
    );
    is_refused::<WakeUp>(
        &with(&WakeUp { rung: 0, op: op() }, "rung", json!(-1)),
        "this is no bell",
    );
    let letter = Letter { task: assignment(), attempt: 1, error: String::new(), at: 0, op: op() };
    let long = json!("x".repeat(MAX_NOTE_BYTES + 1));
    is_refused::<Letter>(&with(&letter, "error", long.clone()), "bad error: too long");
    is_refused::<Letter>(&with(&letter, "kind", json!("")), "bad kind: empty");
    let (serial, state, at) = (1, OutcomeState::Dead, 0);
    let outcome = Outcome { serial, state, note: None, at, op: op() };
    is_refused::<Outcome>(&with(&outcome, "note", long.clone()), "bad note: too long");
    is_refused::<Outcome>(&with(&outcome, "state", json!("lost")), "this is no outcome");
    let piece = Piece { reports: Vec::new(), op: op() };
    let report = json!([{"serial": 1, "id": "a", "state": "done", "attempt": 1, "note": long}]);
    is_refused::<Piece>(&with(&piece, "reports", report), "bad note: too long");
    let settings = Settings { version: 0, settings: Map::new(), op: op() };
    is_refused::<Settings>(&with(&settings, "version", json!(1u64 << 53)), "bad version");
    is_refused::<Settings>(&with(&settings, "settings", json!([])), "this is no settings");
}

#[test]
fn settings_that_would_be_too_large_to_write_again_are_refused() {
    // 1e5 is written as 100000.0, which is longer.
    let numbers = vec!["1e5"; 15_000].join(",");
    let text = format!(r#"{{"version":1,"settings":{{"a":[{numbers}]}},"op":"{ID}-9"}}"#);
    assert!(text.len() < MAX_DOCUMENT_BYTES);
    is_refused::<Settings>(&text, "it has at most 65536");
}

#[test]
fn a_document_over_the_limit_is_not_even_parsed() {
    let body = vec![b'['; MAX_DOCUMENT_BYTES + 1];
    let error = Slot::decode(&body).expect_err("too long");
    assert_eq!(error, DocumentError::TooLong { document: "slot", bytes: body.len() });
}

#[test]
fn the_largest_documents_there_can_be_fit_into_a_store() {
    // Control characters take the most bytes in JSON.
    let text = |bytes: usize| "\u{1}".repeat(bytes);
    let id = MemberId::parse(&"\"".repeat(128)).expect("an id");
    let op = Op::try_from(text(256)).expect("an op");
    let task = Assignment {
        serial: 1 << 40,
        id: text(MAX_ID_BYTES),
        kind: text(MAX_ID_BYTES),
        payload: vec![255; MAX_TASK_BYTES].into(),
        attempts: 1000,
        timeout: Some(MAX_TTL),
        to: Some(id.clone()),
        receipt: Some(id.clone()),
    };
    let holding = Holding {
        member: id.clone(),
        expire: u64::MAX,
        presence: Some(Mark(Map::from_iter([(
            "x".to_owned(),
            "x".repeat(MAX_MARK_BYTES - 10).into(),
        )]))),
        status: Some(text(MAX_NOTE_BYTES)),
    };
    let slot = Slot {
        task: Arc::new(task.clone()),
        progress: Progress::Held(Arc::new(holding)),
        cancel: true,
        token: (1 << 50) + 1000,
        attempt: u32::MAX,
        ttl: MAX_TTL,
        revision: tenure::lease::record::MAX_NUMBER,
        op: op.clone(),
    };
    let failed = Progress::Outstanding { avoid: Some(id), error: Some(text(MAX_NOTE_BYTES)) };
    let error = text(MAX_NOTE_BYTES);
    let letter = Letter { task, attempt: u32::MAX, error, at: u64::MAX, op: op.clone() };
    for body in [slot.encode(), slot.following(op, failed).encode(), letter.encode()] {
        assert!(body.len() <= MAX_DOCUMENT_BYTES, "{}", body.len());
    }
    assert_eq!(Slot::decode(&slot.encode()), Ok(slot));
}

#[test]
fn the_keys_are_fixed() {
    let keys = Keys::new("a/b").expect("a good name");
    let id = member(7);
    for (key, text) in [
        (keys.leader(), "leader"),
        (keys.cluster_config(), "cluster"),
        (keys.nodes(), "nodes"),
        (keys.member(&id), "members/00000000000000000000000000000007"),
        (keys.slot(7), "slots/00007"),
        (keys.cursor(), "cursor"),
        (keys.wake_up(), "bell"),
        (keys.leader_wake_up(), "call"),
        (keys.page(256 + 7), "inbox/007"),
        (keys.letter(7), "dead/0000000000000007"),
        (keys.piece(7), "results/0000000000000007"),
        (keys.outcome(&id), "outcomes/00000000000000000000000000000007"),
        (keys.settings(), "settings"),
        (keys.plan("poller").expect("a good name"), "plans/poller"),
    ] {
        assert_eq!(key.as_str(), format!("clusters/a/b/{text}"));
    }
    assert!(keys.letter(7).is_under(&keys.letters()) && keys.piece(7).is_under(&keys.pieces()));
    assert!(Keys::new("1/2/3/4/5").is_ok());
    assert!(Keys::new("1/2/3/4/5/6").is_err());
}
