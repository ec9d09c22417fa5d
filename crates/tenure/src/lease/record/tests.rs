//! The wire format of records: fixed, complete, and strict about bad input.

use super::*;

fn held() -> Record {
    let id = CandidateId::from_bits(7);
    let holder = Holder {
        id: id.clone(),
        name: "host-a".into(),
        value: "10.0.0.7:80".into(),
        presence: None,
    };
    Record {
        protocol: Protocol::Lease,
        state: State::Held(Arc::new(holder)),
        expire: 1_515_527_529_288,
        token: 3,
        ttl: Duration::from_secs(15),
        delay: Duration::ZERO,
        next_delay: None,
        generation: 1,
        revision: 12,
        op: Op::new(&id, 9),
        floor: None,
    }
}

fn id_of(number: u128) -> CandidateId {
    CandidateId::from_bits(number)
}

#[test]
fn the_format_is_fixed() {
    let id = "00000000000000000000000000000007";
    assert_eq!(
        std::str::from_utf8(&held().encode()).expect("text"),
        format!(
            "{{\"holder\":\"{id}\",\"name\":\"host-a\",\"expire\":1515527529288,\"token\":3,\
             \"ttl\":15000,\"delay\":0,\"state\":\"held\",\"generation\":1,\"revision\":12,\
             \"op\":\"{id}-9\",\"value\":\"10.0.0.7:80\"}}\n"
        )
    );
    let floor = Floor { token: 1024, ttl: held().ttl, ..Floor::unlaid(Op::new(&id_of(5), 0)) };
    let free =
        Record { state: State::Free { clean: true }, expire: 0, floor: Some(floor), ..held() };
    assert_eq!(
        std::str::from_utf8(&free.encode()).expect("text"),
        format!(
            "{{\"holder\":\"\",\"expire\":0,\"token\":3,\"ttl\":15000,\"delay\":0,\
             \"state\":\"free\",\"clean\":true,\"generation\":1,\"revision\":12,\
             \"op\":\"{id}-9\",\"floor\":{{\"id\":\"{}-0\",\"token\":1024,\"ttl\":15000}}}}\n",
            id_of(5)
        )
    );
}

#[test]
fn the_format_of_a_queues_record_is_fixed() {
    let queue = Record {
        protocol: Protocol::Queue,
        state: State::Free { clean: true },
        expire: 0,
        token: 0,
        delay: Duration::from_secs(2),
        ..held()
    };
    assert_eq!(
        std::str::from_utf8(&queue.encode()).expect("text"),
        "{\"protocol\":\"queue\",\"holder\":\"\",\"expire\":0,\"token\":0,\"ttl\":15000,\
         \"delay\":2000,\"state\":\"free\",\"clean\":true,\"generation\":1,\"revision\":12,\
         \"op\":\"00000000000000000000000000000007-9\"}\n"
    );
    assert_eq!(Record::decode(&queue.encode()), Ok(queue.clone()));
    assert_eq!(Record::decode_lease(&queue.encode()), Err(RecordError::Queue));
    assert_eq!(Record::decode_lease(&held().encode()), Ok(held()));
}

#[test]
fn every_state_survives_the_wire() {
    let holder = held().holder().cloned();
    let binary = Holder {
        value: Bytes::from_static(&[0, 255, 7]),
        presence: Some(Mark(serde_json::Map::from_iter([("pid".to_owned(), 7.into())]))),
        ..(*held().holder().cloned().expect("held")).clone()
    };
    for state in [
        State::Free { clean: true },
        State::Free { clean: false },
        State::Held(Arc::new(binary)),
        State::Ended { kept: None, deleted: true },
        State::Ended { kept: holder, deleted: false },
    ] {
        let floor = Some(Floor::unlaid(Op::new(&id_of(5), 0)));
        let next_delay = Some(Duration::from_secs(1));
        let record = Record { state, next_delay, floor, ..held() };
        assert_eq!(Record::decode(&record.encode()), Ok(record));
    }
}

#[test]
fn each_bad_record_says_what_is_wrong() {
    let with = |field: &str, value: serde_json::Value| {
        let mut map: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(&held().encode()).expect("an object");
        map.insert(field.into(), value);
        serde_json::to_vec(&map).expect("encodes")
    };
    let too_long = vec![b' '; MAX_DOCUMENT_BYTES + 1];
    let twice = String::from_utf8(held().encode().to_vec())
        .expect("text")
        .replace("\"token\":3", "\"token\":3,\"token\":4")
        .into_bytes();
    let deep = with("presence", serde_json::Value::Null);
    let deep = String::from_utf8(deep)
        .expect("text")
        .replace("null", &format!("{{\"a\":{}{}}}", "[".repeat(9000), "]".repeat(9000)))
        .into_bytes();
    for (body, says) in [
        (Vec::new(), "not a record"),
        (b"null".to_vec(), "not a record"),
        (too_long, "65537 bytes"),
        (twice, "duplicate field"),
        (deep, "recursion limit"),
        (with("token", (-1).into()), "not a record"),
        (with("token", 0.into()), "held at token 0"),
        (with("token", (1u64 << 53).into()), "token 9007199254740992, which is out of range"),
        (with("ttl", 0.into()), "ttl 0, which is out of range"),
        (with("ttl", 86_400_001.into()), "ttl 86400001"),
        (with("delay", u64::MAX.into()), "delay"),
        (with("state", "stolen".into()), "not a record"),
        (with("holder", "".into()), "held by nobody"),
        (with("holder", "a/b".into()), "bad holder"),
        (with("name", "\u{1b}[2J".into()), "bad name"),
        (with("value", 5.into()), "not a record"),
        (with("value", "x".repeat(4097).into()), "bad value"),
        (with("value_base64", "AA==".into()), "given twice"),
        (with("op", "".into()), "bad op"),
        (with("protocol", "raft".into()), "not a record"),
        (with("protocol", "queue".into()), "bad state"),
        (with("presence", 5.into()), "not a record"),
        (with("floor", 5.into()), "not a record"),
        (with("floor", serde_json::json!({"id": ""})), "bad floor"),
        (with("floor", serde_json::json!({"id": "a", "token": 1u64 << 53})), "bad floor"),
    ] {
        let error = Record::decode(&body).expect_err(says);
        assert!(error.to_string().contains(says), "{says}: {error}");
    }
}
