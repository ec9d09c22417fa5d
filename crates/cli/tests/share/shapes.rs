//! The shapes of `--json`, fixed. docs/json.md shows the same.

use serde_json::Value;

use super::support::{Running, Scene, ran};
use super::{fed, values};

/// The text with variable parts replaced.
fn golden(mut value: Value) -> String {
    fn mask(value: &mut Value) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(mask),
            Value::Object(fields) => {
                for (key, value) in fields.iter_mut() {
                    let is_id = value.as_str().is_some_and(|text| {
                        text.len() == 32 && text.chars().all(|digit| digit.is_ascii_hexdigit())
                    });
                    match key.as_str() {
                        "seconds" | "at_ms" if value.is_number() => *value = "TIME".into(),
                        _ if is_id => *value = "ID".into(),
                        _ => mask(value),
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    mask(&mut value);
    value.to_string()
}

fn json(scene: &Scene, arguments: &[&str]) -> Vec<String> {
    let ran = ran(scene.tenure(&[arguments, &["--json"]].concat()));
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{ran:?}");
    values(&ran.out).into_iter().map(golden).collect()
}

#[test]
fn every_answer_has_a_fixed_shape() {
    let scene = Scene::new();
    assert_eq!(json(&scene, &["submit", "g", "one"]), [r#"{"accepted":1,"group":"g"}"#]);
    assert_eq!(
        json(&scene, &["tasks", "g"]),
        [
            r#"{"accepted":0,"cancelled":0,"dead":0,"done":0,"drained":false,"group":"g","inbox":{"next":[{"id":"one","kind":"command"}],"retries":0,"tasks":1},"lost":0,"open":0,"paused":false,"tasks":[]}"#
        ]
    );
    let flags = ["--from", "-", "--id", "host-a", "--attempts", "1", "--workers", "1"];
    let ran1 = fed(scene.share("g", &flags, "echo \"did $0\"; [ \"$0\" = one ]"), b"two\n");
    assert_eq!(ran1.code, Some(1), "{ran1:?}");
    let mut lines: Vec<String> = values(&ran1.out).into_iter().map(golden).collect();
    let last = lines.pop().unwrap();
    lines.sort();
    assert_eq!(
        lines,
        [
            r#"{"attempt":1,"error":"exit code 1","event":"ended","id":"two","result":null,"seconds":"TIME","serial":2,"state":"dead"}"#,
            r#"{"attempt":1,"error":null,"event":"ended","id":"one","result":"did one","seconds":"TIME","serial":1,"state":"done"}"#,
        ]
    );
    // A member reports at its next heartbeat how many tasks it has finished.
    let last = last
        .replace("\"finished\":0", "\"finished\":N")
        .replace("\"finished\":1", "\"finished\":N");
    let last = last.replace("\"finished\":2", "\"finished\":N");
    assert_eq!(
        last,
        r#"{"accepted":2,"cancelled":0,"dead":1,"done":1,"drained":false,"event":"summary","group":"g","here":{"done":1,"failed":1,"id":"ID","name":"host-a"},"letters":true,"members":[{"finished":N,"id":"ID","name":"host-a"}],"open":0,"paused":false,"seconds":"TIME","why":"finished"}"#
    );
    assert_eq!(
        json(&scene, &["tasks", "g", "--dead"]),
        [
            r#"{"at_ms":"TIME","attempt":1,"attempts":1,"error":"exit code 1","id":"two","kind":"command","serial":2,"value":"two"}"#
        ]
    );
    let mut results = json(&scene, &["tasks", "g", "--results"]);
    results.sort();
    assert_eq!(
        results,
        [
            r#"{"attempt":1,"error":"exit code 1","id":"two","result":null,"serial":2,"state":"dead"}"#,
            r#"{"attempt":1,"error":null,"id":"one","result":"did one","serial":1,"state":"done"}"#,
        ]
    );
    assert_eq!(json(&scene, &["retry", "g", "two"]), [r#"{"group":"g","missing":[],"retried":1}"#]);
    assert_eq!(
        json(&scene, &["drain", "g"]),
        [r#"{"done":false,"group":"g","members":null,"paused":true}"#]
    );
    assert_eq!(
        json(&scene, &["drain", "g", "--resume"]),
        [r#"{"done":false,"group":"g","members":null,"paused":false}"#]
    );
}

#[test]
fn members_and_their_tasks_have_a_fixed_shape() {
    let scene = Scene::with_files(1);
    let script = "echo >> $SCENE/began; while [ ! -e $SCENE/go ]; do sleep 0.02; done";
    let flags = ["--workers", "1", "--id", "host-a"];
    let running = Running::start(scene.share_files("g", &flags, script));
    scene.lines("began", 1);
    // A member reports at its next heartbeat whether it is idle.
    let members = json(&scene, &["members", "g"])[0].replace("\"idle\":1", "\"idle\":0");
    assert_eq!(
        members,
        r#"{"group":"g","members":[{"finished":0,"id":"ID","idle":0,"name":"host-a","state":"alive","workers":1}]}"#
    );
    assert_eq!(
        json(&scene, &["tasks", "g"]),
        [
            r#"{"accepted":1,"cancelled":0,"dead":0,"done":0,"drained":true,"group":"g","inbox":{"next":[],"retries":0,"tasks":0},"lost":0,"open":1,"paused":false,"tasks":[{"attempt":1,"attempts":3,"cancelled":false,"error":null,"id":"0000","kind":"file","member":"ID","serial":1,"state":"running","status":null}]}"#
        ]
    );
    std::fs::write(scene.path("go"), "").unwrap();
    assert_eq!(running.end().code, Some(0));
}
