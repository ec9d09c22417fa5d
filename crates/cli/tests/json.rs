//! The shapes of `--json`, fixed. docs/json.md shows the same.
#![allow(clippy::unwrap_used)]

mod support;

use std::io::{BufRead, BufReader};

use rustix::process::{Signal, kill_process};
use support::{Running, Scene, ran, wait_for};

/// The text with variable parts replaced: ids, and times.
fn golden(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['"', ':']) {
        let (before, from) = rest.split_at(at);
        shown.push_str(before);
        let quoted = from.strip_prefix('"').and_then(|from| from.split_once('"'));
        if let Some((word, after)) = quoted {
            let id = word.len() == 32 && word.chars().all(|digit| digit.is_ascii_hexdigit());
            shown.push_str(&format!("\"{}\"", if id { "ID" } else { word }));
            rest = after;
            if matches!(word, "remaining_ms" | "since_ms" | "seen_ms")
                && rest.starts_with(':')
                && !rest.starts_with(":null")
            {
                let end = rest[1..].find(|c: char| !c.is_ascii_digit()).unwrap() + 1;
                assert!(end > 1, "{text}");
                shown.push_str(":TIME");
                rest = &rest[end..];
            }
        } else {
            shown.push_str(&from[..1]);
            rest = &from[1..];
        }
    }
    shown + rest
}

fn json(scene: &Scene, arguments: &[&str]) -> String {
    let ran = ran(scene.tenure(&[arguments, &["--json"]].concat()));
    assert_eq!(ran.err, "");
    golden(&ran.out)
}

fn leader(scene: &Scene) -> Running {
    let arguments =
        ["run", "a/b", "--id", "host-a", "--value", "10.0.0.7:80", "--", "sleep", "600"];
    let leader = Running::start(scene.tenure(&arguments));
    scene.wait_for_state("a/b", "led");
    leader
}

const NONE: &str =
    r#"{"election":"a/b","state":"none","leader":null,"token":0,"remaining_ms":null}"#;
const FREE: &str =
    r#"{"election":"a/b","state":"free","leader":null,"token":0,"remaining_ms":null}"#;
const LED: &str = r#"{"election":"a/b","state":"led","leader":{"id":"ID","name":"host-a","value":"10.0.0.7:80"},"token":1,"remaining_ms":TIME}"#;
const LAPSED: &str = r#"{"election":"a/b","state":"lapsed","leader":{"id":"ID","name":"host-a","value":"10.0.0.7:80"},"token":1,"remaining_ms":null}"#;
const FREED: &str =
    r#"{"election":"a/b","state":"free","leader":null,"token":1,"remaining_ms":null}"#;
const ENDED: &str =
    r#"{"election":"a/b","state":"ended","leader":null,"token":1,"remaining_ms":null}"#;

#[test]
fn an_election_has_one_shape_in_each_state() {
    let scene = Scene::new();
    assert_eq!(json(&scene, &["who", "a/b"]), format!("{NONE}\n"));
    assert_eq!(json(&scene, &["create", "a/b"]), format!("{FREE}\n"));
    let running = leader(&scene);
    assert_eq!(json(&scene, &["who", "a/b"]), format!("{LED}\n"));
    assert_eq!(json(&scene, &["list"]), format!("{{\"elections\":[{LED}]}}\n"));
    running.signal(Signal::TERM);
    running.end();
    assert_eq!(json(&scene, &["who", "a/b"]), format!("{FREED}\n"));
    assert_eq!(json(&scene, &["end", "a/b"]), format!("{ENDED}\n"));
    assert_eq!(json(&scene, &["who", "a/b"]), format!("{ENDED}\n"));
    let none = NONE.replace("\"token\":0", "\"token\":1");
    assert_eq!(json(&scene, &["delete", "a/b"]), format!("{none}\n"));
    assert_eq!(json(&scene, &["list"]), "{\"elections\":[]}\n");
}

#[test]
fn a_leader_that_died_has_lapsed() {
    let scene = Scene::new();
    let running = leader(&scene);
    let guardian = running.guardian();
    running.signal(Signal::STOP);
    kill_process(guardian, Signal::KILL).unwrap();
    drop(running);
    wait_for("the proof", || {
        (json(&scene, &["who", "a/b"]) == format!("{LAPSED}\n")).then_some(())
    });
}

#[test]
fn candidates_have_a_fixed_shape() {
    let scene = Scene::new();
    assert_eq!(json(&scene, &["candidates", "a/b"]), format!("{NONE}\n"));
    let _running = leader(&scene);
    let expected = concat!(
        r#"{"election":"a/b","candidates":[{"id":"ID","name":"host-a","value":"10.0.0.7:80","#,
        r#""since_ms":TIME,"position":null,"leads":true,"stale":false}]}"#,
        "\n"
    );
    wait_for("the registration", || {
        (json(&scene, &["candidates", "a/b"]) == expected).then_some(())
    });
}

#[test]
fn watch_prints_the_same_objects_as_lines() {
    let scene = Scene::new();
    ran(scene.tenure(&["create", "a/b"]));
    let mut watching = Running::start(scene.tenure(&["watch", "a/b", "--json"]));
    let mut lines = BufReader::new(watching.child().stdout.take().unwrap()).lines();
    let mut next = || golden(&lines.next().unwrap().unwrap());
    let seen = |object: &str| format!("{},\"seen_ms\":TIME}}", object.trim_end_matches('}'));
    assert_eq!(next(), seen(FREE));
    let running = leader(&scene);
    assert_eq!(next(), seen(LED));
    running.signal(Signal::TERM);
    running.end();
    assert_eq!(next(), seen(FREED));
    ran(scene.tenure(&["end", "a/b"]));
    assert_eq!(next(), seen(ENDED));
    assert_eq!(watching.end().code, Some(1));
}

#[test]
fn doctor_has_a_fixed_shape_and_leaves_nothing_behind() {
    let scene = Scene::new();
    let ran = ran(scene.tenure(&["doctor", "--json"]));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let found: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(found["store"], scene.store());
    assert_eq!(found["healthy"], true);
    let checks = found["checks"].as_array().unwrap();
    let names: Vec<&str> = checks.iter().map(|check| check["check"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "store",
            "file system",
            "permissions",
            "wall clock",
            "round trip",
            "compare-and-set",
            "notification",
            "crash detection",
            "clock",
            "times"
        ]
    );
    for check in checks {
        assert!(["ok", "warning"].contains(&check["result"].as_str().unwrap()), "{check}");
        assert!(!check["says"].as_str().unwrap().is_empty());
    }
    let left = std::fs::read_dir(scene.path("store/doctor")).unwrap().count();
    assert_eq!(left, 0);
}

#[test]
fn a_store_that_cannot_be_opened_is_a_failed_check() {
    let ran = ran(support::bare(&["doctor", "--json", "--store", "file:///proc/self/x"]));
    let found: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(
        (found["healthy"].as_bool(), found["checks"][0]["result"].as_str()),
        (Some(false), Some("failed"))
    );
    assert_ne!(ran.code, Some(0));
}

#[test]
fn the_memory_store_can_be_examined_too() {
    let ran = ran(support::bare(&["doctor", "--store", "memory:"]));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains("ok      compare-and-set"), "{ran:?}");
    assert!(!ran.out.contains('\u{1b}'));
}
