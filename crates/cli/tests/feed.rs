//! `tenure feed`: its lines, its signals and its exit codes.
#![allow(clippy::unwrap_used)]

mod support;

use std::io::{BufRead, BufReader};

use rustix::process::Signal;
use support::{Running, Scene, bare, ran};

const MEMORY: [&str; 3] = ["feed", "--store", "memory:"];

fn memory(arguments: &[&str]) -> std::process::Command {
    bare(&[&MEMORY[..], arguments].concat())
}

/// Reads until the feed leads, stops it by a signal, and returns its whole output.
fn led_and_stopped(arguments: &[&str], signal: Signal) -> (Vec<String>, Option<i32>, String) {
    let mut running = Running::start(memory(arguments));
    let mut output = BufReader::new(running.child().stdout.take().unwrap());
    let mut lines = Vec::new();
    while !lines.iter().any(|line: &String| line.contains("new leader")) {
        let mut line = String::new();
        assert!(output.read_line(&mut line).unwrap() > 0, "it ended: {lines:?}");
        lines.push(line.trim_end().to_owned());
    }
    running.signal(signal);
    lines.extend(output.lines().map(Result::unwrap));
    let ended = running.end();
    (lines, ended.code, ended.err)
}

#[test]
fn the_lines_are_fixed_and_term_stops_it_cleanly() {
    let (lines, code, err) = led_and_stopped(&["--json", "--id", "host-a"], Signal::TERM);
    assert_eq!(
        lines,
        [
            r#"{"event":"subscribe started"}"#,
            r#"{"event":"new state","state":"follower"}"#,
            r#"{"event":"new state","state":"leader"}"#,
            r#"{"event":"new leader","leader":"host-a","token":1}"#,
            r#"{"event":"new state","state":"follower"}"#,
        ]
    );
    assert_eq!((code, err.as_str()), (Some(0), ""));
}

#[test]
fn people_read_the_same_without_json() {
    let (lines, code, _) = led_and_stopped(&["--id", "host-a", "--table", "orders"], Signal::INT);
    assert_eq!(
        lines,
        [
            "subscribe started",
            "new state: follower",
            "new state: leader",
            "new leader: host-a, token 1",
            "new state: follower",
        ]
    );
    assert_eq!(code, Some(0));
}

#[test]
fn a_store_without_a_change_feed_is_refused_by_name() {
    let scene = Scene::new();
    let refused = ran(scene.tenure(&["feed", "--json"]));
    assert_eq!((refused.code, refused.out.as_str()), (Some(78), ""));
    assert!(refused.err.contains("the store `file:` has no change feed"), "{}", refused.err);
}

#[test]
fn times_that_are_too_small_are_refused_with_the_rule() {
    for (arguments, rule) in [
        (["--heartbeat-interval", "50ms"], "at least 100ms"),
        (["--election-timeout-min", "1s"], "at least twice the heartbeat interval"),
        (["--election-timeout-max", "3s"], "at least twice its minimum"),
    ] {
        let refused = ran(memory(&arguments));
        assert_eq!(refused.code, Some(78), "{refused:?}");
        assert!(refused.err.contains(rule), "{}", refused.err);
    }
}

#[test]
fn a_missing_table_is_refused_when_it_is_not_to_be_created() {
    let refused = ran(memory(&["--no-create", "--table", "nowhere"]));
    assert_eq!(refused.code, Some(78), "{refused:?}");
    assert!(refused.err.contains("the table nowhere"), "{}", refused.err);
}

#[test]
fn a_bad_table_or_id_is_a_usage_error() {
    for arguments in [["--table", "a/b"], ["--id", "a/b"]] {
        let refused = ran(memory(&arguments));
        assert_eq!(refused.code, Some(2), "{refused:?}");
    }
}

#[test]
fn settings_of_a_feed_may_stand_in_the_file() {
    let scene = Scene::new();
    let file = scene.path("config.toml");
    std::fs::write(&file, "heartbeat-interval = \"50ms\"\n").unwrap();
    let mut command = memory(&[]);
    command.env("TENURE_CONFIG", &file);
    let refused = ran(command);
    assert!(refused.err.contains("at least 100ms"), "{refused:?}");
}
