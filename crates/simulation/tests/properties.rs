//! Properties of the wire format, over random records and random JSON.

use std::sync::Arc;
use std::time::Duration;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use serde_json::{Map, Value};
use tenure::lease::floor::Floor;
use tenure::lease::record::{MAX_NUMBER, Op, Record, State};
use tenure::protocol::Holder;
use tenure::store::Mark;
use tenure::{CandidateId, MAX_TTL, Name, Protocol};
use tenure_simulation::fuzz;

fn segment() -> impl Strategy<Value = String> {
    "[^/\\p{Cc}]{1,32}".prop_filter("dots are no segment", |text| text != "." && text != "..")
}

fn span(least: u64) -> impl Strategy<Value = Duration> {
    let most = u64::try_from(MAX_TTL.as_millis()).expect("a day is not that long");
    (least..=most).prop_map(Duration::from_millis)
}

fn mark() -> impl Strategy<Value = Mark> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        "\\PC{0,16}".prop_map(Value::from),
    ];
    btree_map("[a-z]{1,8}", leaf, 0..6).prop_map(|fields| Mark(Map::from_iter(fields)))
}

prop_compose! {
    fn holder()(
        bits in any::<u128>(),
        name in segment(),
        value in vec(any::<u8>(), 0..64),
        presence in option::of(mark()),
    ) -> Arc<Holder> {
        let id = CandidateId::from_bits(bits);
        Arc::new(Holder { id, name: name.into(), value: value.into(), presence })
    }
}

fn state() -> impl Strategy<Value = State> {
    prop_oneof![
        any::<bool>().prop_map(|clean| State::Free { clean }),
        holder().prop_map(State::Held),
        (option::of(holder()), any::<bool>())
            .prop_map(|(kept, deleted)| State::Ended { kept, deleted }),
    ]
}

prop_compose! {
    fn record()(
        state in state(),
        expire in any::<u64>(),
        token in 1..=MAX_NUMBER,
        ttl in span(1),
        delay in span(0),
        next_delay in option::of(span(0)),
        generation in 0..=MAX_NUMBER,
        revision in 0..=MAX_NUMBER - 1,
        writer in any::<u128>(),
        number in any::<u64>(),
        queue in any::<bool>(),
        floored in any::<bool>(),
    ) -> Record {
        let op = Op::new(&CandidateId::from_bits(writer), number);
        // A queue's record names no holder.
        let protocol = match &state {
            State::Free { .. } if queue => Protocol::Queue,
            State::Free { .. } | State::Held(_) | State::Ended { .. } => Protocol::Lease,
        };
        let floor = floored.then(|| Floor { id: op.clone(), token, ttl, delay });
        Record {
            protocol,
            state,
            expire,
            token,
            ttl,
            delay,
            next_delay,
            generation,
            revision,
            op,
            floor,
        }
    }
}

/// Any JSON, most of it with fields that a record has.
fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,16}".prop_map(Value::from),
        prop_oneof!["held", "free", "ended"].prop_map(Value::from),
    ];
    let field = prop_oneof![
        Just("holder"),
        Just("name"),
        Just("expire"),
        Just("token"),
        Just("ttl"),
        Just("delay"),
        Just("next_delay"),
        Just("state"),
        Just("clean"),
        Just("deleted"),
        Just("generation"),
        Just("revision"),
        Just("op"),
        Just("value"),
        Just("value_base64"),
        Just("presence"),
        Just("since"),
        Just("seen"),
    ];
    leaf.prop_recursive(6, 64, 16, move |inner| {
        let fields = vec((field.clone(), inner.clone()), 0..16);
        prop_oneof![
            vec(inner, 0..8).prop_map(Value::from),
            fields.prop_map(|fields| {
                Value::Object(
                    fields.into_iter().map(|(name, value)| (name.into(), value)).collect(),
                )
            }),
        ]
    })
}

proptest! {
    #[test]
    fn every_valid_record_survives_the_wire(record in record()) {
        let encoded = record.encode();
        prop_assert_eq!(Record::decode(&encoded), Ok(record));
        fuzz::record(&encoded);
    }

    #[test]
    fn any_json_is_decoded_without_harm(json in json()) {
        let text = json.to_string();
        fuzz::record(text.as_bytes());
        fuzz::registration(text.as_bytes());
    }

    #[test]
    fn a_record_with_one_field_replaced_is_decoded_without_harm(
        record in record(),
        field in 0_usize..16,
        with in json(),
    ) {
        let mut object: Map<String, Value> =
            serde_json::from_slice(&record.encode()).expect("a record is an object");
        let name = object.keys().nth(field % object.len()).cloned().expect("it has fields");
        object.insert(name, with);
        fuzz::record(Value::Object(object).to_string().as_bytes());
    }

    #[test]
    fn good_segments_make_good_names(segments in vec(segment(), 1..=8)) {
        let text = segments.join("/");
        prop_assert!(Name::parse(&text).is_ok());
        fuzz::name(text.as_bytes());
    }

    #[test]
    fn any_bytes_are_checked_without_harm(data in vec(any::<u8>(), 0..512)) {
        fuzz::record(&data);
        fuzz::registration(&data);
        fuzz::name(&data);
    }
}
