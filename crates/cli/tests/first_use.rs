//! The first experiences of a new user: times, logs, and an unnamed store.
#![cfg(all(feature = "etcd", feature = "zookeeper"))]
#![allow(clippy::unwrap_used)]

mod support;

use std::io::{BufRead, BufReader};

use rustix::process::Signal;
use support::{Ran, Running, Scene, bare, ran};
use tenure_harness::{Etcd, Version, Zookeeper, etcd, require, zookeeper};

/// Starts a server, and returns the runtime that keeps it alive.
fn on<T>(future: impl Future<Output = T>) -> (tokio::runtime::Runtime, T) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let started = runtime.block_on(future);
    (runtime, started)
}

fn says(ran: &Ran, code: i32, text: &str) {
    assert_eq!(ran.code, Some(code), "{ran:?}");
    assert!(format!("{}{}", ran.out, ran.err).contains(text), "{text:?} is not in {ran:?}");
}

/// Issue 13, 29: the lease's times were shown for queues. A ttl that the server changed was not
/// mentioned.
#[test]
fn the_times_of_a_queue_are_those_that_etcd_grants() {
    let (_runtime, started) = on(Etcd::single(etcd::Options::default()));
    let server = require!(started);
    let store = format!("etcd://{}/first", server[0].address());
    let tenure = |line: &[&str]| ran(bare(&[line, &["--store", &store]].concat()));
    says(&tenure(&["doctor"]), 0, "ttl 15.0 s, as the server granted: ");
    says(&tenure(&["doctor"]), 0, "work told to stop 1.5 s before");
    // etcd counts in whole seconds.
    let rounded = "ttl 10.0 s, as the server granted (9.5 s were asked for)";
    says(&tenure(&["doctor", "--ttl", "9500ms"]), 0, rounded);
    let dry = ["run", "job", "--dry-run"];
    let dry = ran(bare(&[&dry[..], &["--store", &store, "--", "true"]].concat()));
    says(&dry, 0, "with a ttl of 15.0 s and a grace of 1.5 s");
    let run = ["run", "job", "--store", &store, "--ttl", "9500ms", "--", "sleep", "0.2"];
    says(&ran(bare(&run)), 0, "the ttl is 10.0 s, as the server granted; 9.5 s were asked for");
    // As on ZooKeeper: a grace of more than a quarter is refused.
    let run = ["run", "job", "--store", &store, "--grace", "9s", "--", "true"];
    says(&ran(bare(&run)), 78, "a grace of 9s is too long for a session of 15s");
    says(&tenure(&["doctor", "--grace", "9s"]), 78, "--grace may be at most 3.75s");
}

#[test]
fn the_times_of_a_queue_are_those_that_zookeeper_grants() {
    // Less than is asked for, and long enough for a busy machine.
    let settings = vec![("maxSessionTimeout".to_owned(), "15000".to_owned())];
    let options = zookeeper::Options { settings, ..zookeeper::Options::default() };
    let (_runtime, started) = on(Zookeeper::single(options));
    let server = require!(started);
    let store = format!("zookeeper://{}/first", server[0].address());
    let tenure = |line: &[&str]| ran(bare(&[line, &["--store", &store]].concat()));
    let doctor = tenure(&["doctor", "--ttl", "60s"]);
    says(&doctor, 0, "ttl 15.0 s, as the server granted (60.0 s were asked for)");
    says(&doctor, 0, "work told to stop 1.5 s before");
    let run = ["run", "job", "--store", &store, "--ttl", "60s", "--", "sleep", "0.2"];
    says(&ran(bare(&run)), 0, "the ttl is 15.0 s, as the server granted; 60.0 s were asked for");
    let run = ["run", "job", "--store", &store, "--ttl", "60s", "--grace", "9s", "--", "true"];
    says(&ran(bare(&run)), 78, "a grace of 9s is too long for a session of 15s");
}

/// Issue 13, 1: candidates with different prefixes both led.
#[test]
fn a_candidate_whose_nodes_have_another_prefix_exits_78_and_names_both() {
    let (_runtime, started) = on(Zookeeper::single(zookeeper::Options::default()));
    let server = require!(started);
    let store = format!("zookeeper://{}/first", server[0].address());
    let kazoo = format!("{store}?recipe=kazoo");
    let run = |store: &str| ran(bare(&["run", "job", "--store", store, "--", "echo", "it led"]));
    says(&run(&kazoo), 0, "it led");
    let refused = run(&store);
    for text in ["`__lock__`", "`n-`", "`recipe=kazoo`"] {
        says(&refused, 78, text);
    }
    assert!(!refused.out.contains("it led"), "{refused:?}");
    says(&run(&kazoo), 0, "it led");
}

/// Earlier, only a directory was tested.
#[test]
fn a_line_that_does_not_exist_is_ended_only_by_force() {
    let (_runtime, started) = on(Etcd::single(etcd::Options::default()));
    let server = require!(started);
    let store = format!("etcd://{}/first", server[0].address());
    let tenure = |line: &[&str]| ran(bare(&[line, &["--store", &store]].concat()));
    says(&tenure(&["end", "job"]), 1, "there is no election job; --force");
    says(&tenure(&["who", "job"]), 1, "there is no such election");
    assert_eq!(tenure(&["end", "job", "--force"]).code, Some(0));
    says(&tenure(&["who", "job"]), 1, "ended");
}

/// Debian's etcd loses leases: `run` warned of it, `doctor` did not.
#[test]
fn doctor_warns_of_an_etcd_that_loses_leases() {
    let options = etcd::Options { version: Version::Debian, ..etcd::Options::default() };
    let (_runtime, started) = on(Etcd::single(options));
    let server = require!(started);
    let store = format!("etcd://{}/first", server[0].address());
    // The program that the harness starts.
    let version = std::process::Command::new("/usr/bin/etcd").arg("--version").output().unwrap();
    let version = String::from_utf8(version.stdout).unwrap();
    let patch = version.lines().find_map(|line| line.strip_prefix("etcd Version: 3.4."));
    if patch.is_none_or(|patch| patch.trim().parse::<u32>().unwrap() >= 31) {
        eprintln!("SKIPPED doctor_warns_of_an_etcd_that_loses_leases: Debian's etcd is newer");
        return;
    }
    let doctor = ran(bare(&["doctor", "--store", &store]));
    says(&doctor, 0, "warn    version          this is etcd 3.4.");
}

/// Issue 13, 28: a leader whose store died said nothing until it was stopped.
#[test]
fn a_leader_whose_store_dies_and_comes_back_says_so() {
    let (runtime, started) = on(Etcd::single(etcd::Options::default()));
    let server = require!(started);
    let store = format!("etcd://{}/first", server[0].address());
    // The server may take 24 s to come back.
    let line = ["run", "job", "-v", "--store", &store, "--ttl", "30s", "--", "sleep", "600"];
    let mut tenure = Running::start(bare(&line));
    let mut lines = BufReader::new(tenure.child().stderr.take().unwrap()).lines();
    let mut wait_for = |text: &str| {
        let found = lines.find(|line| line.as_ref().unwrap().contains(text));
        found.unwrap_or_else(|| panic!("no {text}")).unwrap()
    };
    let runs = wait_for("CMD runs");
    assert!(!runs.contains("Pid("), "{runs}");
    runtime.block_on(server[0].kill()).unwrap();
    wait_for("the store does not answer: suspended");
    runtime.block_on(server[0].restart()).unwrap();
    wait_for("the store answers again: resumed");
    runtime.block_on(server[0].kill()).unwrap();
    let stops = wait_for("the work must stop");
    assert!(stops.contains("WARN"), "{stops}");
    drop(tenure);
}

/// Issue 13, 28: the warning comes without -v, too.
#[test]
fn a_leadership_that_is_lost_is_warned_of() {
    let scene = Scene::new();
    let mut leader = Running::start(scene.tenure(&["run", "job", "--", "sleep", "600"]));
    scene.wait_for_state("job", "led");
    std::fs::remove_file(scene.path("store/elections/job.json")).unwrap();
    let heard = leader.hear("the leadership is lost");
    assert!(heard.contains("WARN"), "{heard}");
    assert_eq!(leader.end().code, Some(75));
}

#[test]
fn the_log_is_ours_and_json_lines_name_their_target() {
    let (_runtime, started) = on(Etcd::single(etcd::Options::default()));
    let server = require!(started);
    let store = format!("etcd://{}/first", server[0].address());
    let line = ["run", "job", "-vv", "--log-format", "json", "--store", &store, "--", "true"];
    let ended = ran(bare(&line));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!ended.err.is_empty());
    for line in ended.err.lines() {
        let json: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(json["target"].as_str().unwrap().starts_with("tenure"), "{line}");
    }
    assert!(!ended.err.contains("Pid("), "{ended:?}");
}

#[test]
fn an_error_of_a_connection_names_the_host() {
    for scheme in ["etcd", "zookeeper", "mongodb", "rethinkdb", "elasticsearch+http"] {
        let store = format!("{scheme}://127.0.0.1:1/x");
        let refused = ran(bare(&["who", "job", "--ttl", "2s", "--store", &store]));
        says(&refused, 69, "127.0.0.1:1");
    }
}

/// Issue 13, 30: "no such election" did not say which place had been searched.
#[test]
fn a_store_that_was_not_named_is_mentioned_by_those_who_only_look() {
    let scene = Scene::new();
    for line in [vec!["who", "job"], vec!["list"], vec!["candidates", "job"], vec!["end", "job"]] {
        let mut command = bare(&line);
        command.env("XDG_STATE_HOME", scene.path("state"));
        let looked = ran(command);
        let notice = "no --store given: looking among this machine's processes only, in file:///";
        assert!(looked.err.contains(notice), "{looked:?}");
    }
    let mut command = bare(&["watch", "job"]);
    command.env("XDG_STATE_HOME", scene.path("state"));
    let mut watching = Running::start(command);
    let mut notice = String::new();
    let output = watching.child().stderr.as_mut().unwrap();
    BufReader::new(output).read_line(&mut notice).unwrap();
    assert!(notice.contains("no --store given"), "{notice}");
    watching.signal(Signal::INT);
    let looked = ran(scene.tenure(&["who", "job"]));
    assert_eq!(looked.err, "", "a store was named");
}
