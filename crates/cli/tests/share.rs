//! `tenure share` and the commands around it, through the real program.
#![allow(clippy::unwrap_used)]

mod support;

#[cfg(feature = "etcd")]
#[path = "share/chaos.rs"]
mod chaos;
#[path = "share/dying.rs"]
mod dying;
#[path = "share/ending.rs"]
mod ending;
#[path = "share/hostile.rs"]
mod hostile;
#[path = "share/losing.rs"]
mod losing;
#[path = "share/many.rs"]
mod many;
#[cfg(feature = "objects")]
#[path = "share/objects.rs"]
mod objects;
#[path = "share/operating.rs"]
mod operating;
#[path = "share/refusing.rs"]
mod refusing;
#[path = "share/running.rs"]
mod running;
#[cfg(feature = "etcd")]
#[path = "share/servers.rs"]
mod servers;
#[path = "share/shapes.rs"]
mod shapes;

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};

use serde_json::Value;
use support::{Ran, Running, Scene, ran};

impl Scene {
    /// Makes a directory `in` with `count` files, each with its own number in it.
    fn with_files(count: usize) -> Scene {
        let scene = Scene::new();
        fs::create_dir(scene.path("in")).unwrap();
        for number in 0..count {
            fs::write(scene.path("in").join(format!("{number:04}")), format!("{number}\n"))
                .unwrap();
        }
        scene
    }

    /// `tenure share GROUP FLAGS… -- sh -c SCRIPT {}`: in the script `$0` is the item.
    fn share(&self, group: &str, flags: &[&str], script: &str) -> Command {
        let line = [&["share", group], flags, &["--", "sh", "-c", script, "{}"]].concat();
        let mut command = self.tenure(&line);
        command.current_dir(self.path("")).env("SCENE", self.path(""));
        command
    }

    /// The same, for the directory `in`.
    fn share_files(&self, group: &str, flags: &[&str], script: &str) -> Command {
        self.share(group, &[flags, &["--from", "in"]].concat(), script)
    }

    /// The output of `tasks --json` with another flag.
    fn listed(&self, group: &str, flag: &str) -> Vec<Value> {
        let ran = ran(self.tenure(&["tasks", group, flag, "--json"]));
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{ran:?}");
        values(&ran.out)
    }

    /// The output of `tasks --json`; null before there is such a group.
    fn totals(&self, group: &str) -> Value {
        let ran = ran(self.tenure(&["tasks", group, "--json"]));
        match ran.code {
            Some(0) => values(&ran.out).remove(0),
            // The group did not exist yet.
            Some(1) => Value::Null,
            _ => panic!("{ran:?}"),
        }
    }
}

fn values(lines: &str) -> Vec<Value> {
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The lines of items that ended, and the last line.
fn told(ran: &Ran) -> (Vec<Value>, Value) {
    let mut lines = values(&ran.out);
    let summary = lines.pop().unwrap_or_else(|| panic!("nothing was told: {ran:?}"));
    assert_eq!(summary["event"], "summary", "{ran:?}");
    assert!(lines.iter().all(|line| line["event"] == "ended"), "{ran:?}");
    (lines, summary)
}

/// The numbers of the last line: accepted, done, dead, cancelled, open.
fn counts(summary: &Value) -> [u64; 5] {
    ["accepted", "done", "dead", "cancelled", "open"].map(|key| summary[key].as_u64().unwrap())
}

/// The results of the items that were done here.
fn done(lines: &[Value]) -> BTreeMap<String, String> {
    let done = lines.iter().filter(|line| line["state"] == "done");
    done.map(|line| {
        let result = line["result"].as_str().unwrap_or_default();
        (line["id"].as_str().unwrap().to_owned(), result.to_owned())
    })
    .collect()
}

/// Writes to the program's input, closes it, and waits for the program's end.
fn fed(mut command: Command, input: &[u8]) -> Ran {
    use std::io::Write;
    let mut running = Running::start({
        command.stdin(Stdio::piped());
        command
    });
    let mut stdin = running.child().stdin.take().unwrap();
    stdin.write_all(input).unwrap();
    drop(stdin);
    running.end()
}
