//! What the decoders must withstand: one plain function each, for any fuzzer and any corpus.
//!
//! Each takes bytes from anywhere and panics when a decoder breaks its promise: no panic of its own,
//! bounded output, and what was decoded is encoded and decoded again to the same.

use bytes::Bytes;
use tenure::lease::record::{Op, Record};
use tenure::lease::ruling::{self, Ruling, Terms};
use tenure::{
    CandidateId, Key, MAX_DOCUMENT_BYTES, MAX_SEGMENT_BYTES, MAX_SEGMENTS, MAX_VALUE_BYTES, Name,
    Registered, Timing,
};
use tenure_stores::Location;

/// Text for people that came of untrusted bytes fits on a screen.
const LONGEST_MESSAGE: usize = 512;

/// The record of an election.
pub fn record(data: &[u8]) {
    let record = match Record::decode(data) {
        Ok(record) => record,
        Err(error) => return check_message(&error),
    };
    survives(&record);
    let op = Op::new(&CandidateId::from_bits(7), 1);
    let terms = Terms { ttl: Timing::default().ttl(), delay: None };
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

/// A candidate's entry. The first line is its id, the rest its body.
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

/// The URL of a store.
pub fn url(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let _ = tenure_stores::holds_credentials(&text);
    let location = match tenure_stores::parse(&text) {
        Ok(location) => location,
        Err(error) => {
            check_message(&error);
            // A password stands before an `@`, and no error shows it.
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
    // All but who we are is shown.
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
