//! Checks that the decoders withstand any input, with one function for each.
//!
//! Each function takes bytes from anywhere and panics when a decoder breaks its promises: a decoder
//! never panics, its output is bounded, and a decoded value survives encoding and decoding.

use bytes::Bytes;
use tenure::lease::floor::Laid;
use tenure::lease::record::{Op, Record};
use tenure::lease::ruling::{self, Ruling, Terms};
use tenure::store::MAX_DOCUMENT_BYTES;
use tenure::{
    CandidateId, Key, MAX_SEGMENT_BYTES, MAX_SEGMENTS, MAX_VALUE_BYTES, Name, Registered, Timing,
};
use tenure_cluster::documents::{
    ClusterConfig, Cursor, Entry, FILLS_KEPT, Format, Letter, MAX_TASK_BYTES, MOST_NODES,
    MOST_SLOTS, MemberLock, Nodes, Outcome, Page, Piece, Plan, Progress, Settings, Slot, WakeUp,
    first_token,
};
use tenure_stores::Location;

/// The most bytes of a message about untrusted bytes: it fits on a screen.
const LONGEST_MESSAGE: usize = 512;

/// Decodes the record of an election, and its floor.
pub fn record(data: &[u8]) {
    match Laid::decode(data) {
        Ok(laid) => assert_eq!(Laid::decode(&laid.encode()), Ok(laid)),
        Err(error) => check_message(&error),
    }
    let record = match Record::decode(data) {
        Ok(record) => record,
        Err(error) => return check_message(&error),
    };
    survives(&record);
    let op = Op::new(&CandidateId::from_bits(7), 1);
    let terms = Terms { ttl: Timing::default().ttl(), delay: None, floor: true };
    for ruling in [
        ruling::create(Some(&record), terms, op.clone()),
        ruling::end(Some(&record), terms, op.clone()),
        ruling::delete(Some(&record), op.clone()),
    ] {
        match ruling {
            Ruling::Stands => {}
            Ruling::Write(next) => {
                assert!(next.token >= record.token, "a ruling took a token back");
                assert!(next.revision > record.revision, "a ruling took the order back");
            }
        }
    }
}

fn survives(record: &Record) {
    let encoded: Bytes = record.encode();
    assert!(encoded.len() <= MAX_DOCUMENT_BYTES, "{} bytes", encoded.len());
    assert!(!encoded[..encoded.len() - 1].contains(&b'\n'), "more than one line");
    let again = Record::decode(&encoded);
    assert_eq!(again.as_ref(), Ok(record));
    assert!(again.is_ok_and(|again| again.encode() == encoded));
}

/// Decodes a document of a cluster with every decoder.
pub fn cluster(data: &[u8]) {
    for decode in
        [slot, cursor, page, nodes, member, cluster_config, wake_up, letter, piece, outcome]
    {
        decode(data);
    }
    settings(data);
    plan(data);
}

/// Decodes a slot of a cluster. Its successor keeps its token and its task.
pub fn slot(data: &[u8]) {
    let Some(slot) = document::<Slot>(data) else { return };
    assert!(slot.task.payload.len() <= MAX_TASK_BYTES || !slot.is_live());
    assert!(slot.token >= first_token(slot.task.serial));
    let op = Op::new(&CandidateId::from_bits(7), 1);
    let next = slot.following(op, Progress::Outstanding { avoid: None, error: None });
    assert!(next.revision > slot.revision && next.token == slot.token && next.task == slot.task);
}

/// Decodes the cursor of a cluster.
pub fn cursor(data: &[u8]) {
    let Some(cursor) = document::<Cursor>(data) else { return };
    assert!(cursor.open() <= cursor.accepted);
    assert!(cursor.intents.iter().all(|intent| intent.serial < cursor.next));
}

/// Decodes a page of a cluster's inbox. Its successor remembers which writes filled it.
pub fn page(data: &[u8]) {
    let Some(page) = document::<Page>(data) else { return };
    let op = Op::new(&CandidateId::from_bits(7), 1);
    let freed = page.freed(op.clone());
    assert!(freed.number > page.number && freed.entries.is_empty() && freed.filled == page.filled);
    let filled = Page::filling(freed.number, Some(&freed), vec![Entry::NOTHING], op.clone());
    assert!(filled.filled.len() <= FILLS_KEPT && filled.filled.last() == Some(&op));
    let cancelled = page.cancelling(0, CandidateId::from_bits(8), op);
    assert!(cancelled.entries.len() == page.entries.len() && cancelled.filled == page.filled);
}

/// Decodes the node list of a cluster.
pub fn nodes(data: &[u8]) {
    let Some(nodes) = document::<Nodes>(data) else { return };
    assert!(nodes.nodes.len() <= MOST_NODES && nodes.dead.len() <= MOST_NODES);
}

/// Decodes the lock of a cluster's member.
pub fn member(data: &[u8]) {
    document::<MemberLock>(data);
}

/// Decodes a cluster's configuration: the number of slots of a cluster.
pub fn cluster_config(data: &[u8]) {
    let Some(cluster_config) = document::<ClusterConfig>(data) else { return };
    assert!((1..=MOST_SLOTS).contains(&cluster_config.slots));
}

/// Decodes a wake-up document of a cluster.
pub fn wake_up(data: &[u8]) {
    document::<WakeUp>(data);
}

/// Decodes a dead letter.
pub fn letter(data: &[u8]) {
    document::<Letter>(data);
}

/// Decodes a piece of results.
pub fn piece(data: &[u8]) {
    document::<Piece>(data);
}

/// Decodes the outcome of a task that a caller waits for.
pub fn outcome(data: &[u8]) {
    document::<Outcome>(data);
}

/// Decodes the settings of a cluster.
pub fn settings(data: &[u8]) {
    if let Some(settings) = document::<Settings>(data) {
        assert!(settings.encode().len() <= MAX_DOCUMENT_BYTES);
    }
}

/// Decodes the plan for sharing out a supervised input.
pub fn plan(data: &[u8]) {
    document::<Plan>(data);
}

fn document<T: Format + PartialEq + std::fmt::Debug>(data: &[u8]) -> Option<T> {
    let document = match T::decode(data) {
        Ok(document) => document,
        Err(error) => {
            check_message(&error);
            return None;
        }
    };
    let encoded: Bytes = document.encode();
    assert!(!encoded[..encoded.len() - 1].contains(&b'\n'), "more than one line");
    // The encoder writes fields that were left out, and may write numbers with more digits.
    if encoded.len() > MAX_DOCUMENT_BYTES {
        assert!(data.len() > MAX_DOCUMENT_BYTES / 3, "{} bytes of {}", encoded.len(), data.len());
        return None;
    }
    let again = T::decode(&encoded);
    assert_eq!(again.as_ref(), Ok(&document));
    assert!(again.is_ok_and(|again| again.encode() == encoded));
    Some(document)
}

/// Decodes a candidate's entry. The first line is its id, the rest its body.
pub fn registration(data: &[u8]) {
    let (id, body) = match data.iter().position(|byte| *byte == b'\n') {
        Some(end) => (String::from_utf8_lossy(&data[..end]), &data[end + 1..]),
        None => ("id".into(), data),
    };
    let Some(entry) = Registered::decode(&id, body, 0) else { return };
    assert_eq!(entry.id.as_str(), id);
    assert!(entry.value.len() <= MAX_VALUE_BYTES && entry.name.len() <= MAX_SEGMENT_BYTES);
    assert!(!entry.name.chars().any(char::is_control));
    assert!(!entry.stale, "a clock that stands at zero proves nothing");
    let late = Registered::decode(&id, body, u64::MAX).expect("time changes nothing but staleness");
    assert_eq!(Registered { stale: false, ..late }, entry);
}

/// The name of an election, and the keys made of it.
pub fn name(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Err(error) = Key::parse(&text) {
        check_message(&error);
    }
    if let Err(error) = CandidateId::parse(&text) {
        check_message(&error);
    }
    let name = match Name::parse(&text) {
        Ok(name) => name,
        Err(error) => return check_message(&error),
    };
    assert_eq!(name.as_str(), text);
    assert!((1..=MAX_SEGMENTS).contains(&name.segments().count()));
    assert!(name.segments().all(|segment| (1..=MAX_SEGMENT_BYTES).contains(&segment.len())));
    assert!(name.segments().all(|segment| segment != "." && segment != ".."));
    assert!(!name.as_str().chars().any(char::is_control));
    let keys = [Key::election(&name), Key::candidates(&name)];
    for key in &keys {
        assert_eq!(Key::parse(key.as_str()).as_ref(), Ok(key));
        assert!(key.child("id").is_ok_and(|child| child.is_under(key)));
    }
    assert_eq!(keys[0].below(&Key::elections()), Some(name.as_str()));
    assert!(name.ancestors().all(|above| Name::parse(above.as_str()) == Ok(above)));
}

/// Parses the URL of a store.
pub fn url(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let _ = tenure_stores::holds_credentials(&text);
    let location = match tenure_stores::parse(&text) {
        Ok(location) => location,
        Err(error) => {
            check_message(&error);
            // A password comes before an `@`, and no error shows it.
            let secret = text.split_once("://").and_then(|(_, rest)| rest.split_once('@'));
            let secret = secret.map(|(secret, _)| secret).filter(|secret| secret.len() > 16);
            assert!(secret.is_none_or(|secret| !error.to_string().contains(secret)));
            return;
        }
    };
    let shown = location.to_string();
    if let Location::File { directory, .. } = &location {
        assert!(directory.is_absolute(), "{}", directory.display());
        assert!(!directory.as_os_str().as_encoded_bytes().contains(&0));
    }
    // Everything except the user's credentials is shown.
    let same = |made: fn(tenure_stores::Servers) -> Location, servers| {
        assert_eq!(tenure_stores::parse(&shown), Ok(made(without_user(servers))));
    };
    match location {
        Location::File { .. } | Location::Memory => {
            assert_eq!(tenure_stores::parse(&shown), Ok(location));
        }
        Location::Elasticsearch(servers) => same(Location::Elasticsearch, servers),
        Location::Opensearch(servers) => same(Location::Opensearch, servers),
        Location::Etcd(servers) => same(Location::Etcd, servers),
        Location::Rethinkdb(servers) => same(Location::Rethinkdb, servers),
        Location::Zookeeper(servers) => same(Location::Zookeeper, servers),
        Location::Mongodb(mut url) => {
            (url.user, url.password, url.password_file) = (None, None, None);
            assert_eq!(tenure_stores::parse(&shown), Ok(Location::Mongodb(url)));
        }
        _ => panic!("a kind of store that is not fuzzed: {shown}"),
    }
}

fn without_user(mut servers: tenure_stores::Servers) -> tenure_stores::Servers {
    (servers.user, servers.password) = (None, None);
    (servers.password_file, servers.api_key_file) = (None, None);
    servers
}

fn check_message(error: &dyn std::error::Error) {
    let message = error.to_string();
    assert!(!message.is_empty() && message.len() <= LONGEST_MESSAGE, "{message:?}");
    assert!(!message.chars().any(char::is_control), "{message:?}");
}
