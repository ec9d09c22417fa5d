//! A lost leadership is reported as one, even if other things fail as well.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};

use support::{Running, Scene, Stopped, boot_time, mandate_end, wait_for, wait_for_death};

/// A leader with a guardian that hangs, while the store does not answer.
///
/// Returns the guardian, and the lock that stops the store.
fn losing_with_a_hung_guardian(scene: &Scene, flags: &[&str]) -> (Running, Pid, fs::File) {
    let script = r#"trap "" TERM; echo "$TENURE_TOKEN" >> "$LED"; exec sleep 600"#;
    let line = [&["run", "job", "--ttl", "4s"], flags, &["--", "sh", "-c", script]].concat();
    let mut command = scene.tenure(&line);
    command.env("LED", scene.path("led"));
    let tenure = Running::start(command);
    scene.lines("led", 1);
    let guardian = tenure.guardian();
    kill_process(guardian, Signal::STOP).unwrap();
    let locked = lock(scene);
    (tenure, guardian, locked)
}

/// Locks the store, as a process that hangs in the middle of a write would.
fn lock(scene: &Scene) -> fs::File {
    let elections = fs::File::open(scene.path("store/elections")).unwrap();
    flock(&elections, FlockOperation::LockExclusive).unwrap();
    elections
}

#[test]
fn a_lost_lease_stays_lost_when_the_guardian_is_slow() {
    let scene = Scene::new();
    let (tenure, _guardian, _locked) = losing_with_a_hung_guardian(&scene, &[]);
    let ended = tenure.end();
    assert_eq!(ended.code, Some(75), "{ended:?}");
    assert!(ended.err.contains("leadership lost"), "{ended:?}");
}

#[test]
fn with_keep_a_lost_lease_and_a_slow_guardian_do_not_end_the_candidacy() {
    let scene = Scene::new();
    let (_tenure, guardian, locked) = losing_with_a_hung_guardian(&scene, &["--keep"]);
    wait_for_death(&[guardian.as_raw_nonzero().get()]);
    drop(locked);
    assert_eq!(scene.lines("led", 2), ["1", "2"]);
}

/// Issue 13, 8: `--keep` stood again although the service had been told to stop.
#[test]
fn a_stop_while_a_lost_cmd_winds_down_ends_the_candidacy_too() {
    let scene = Scene::new();
    let script = r#"trap 'echo told >> "$TOLD"' TERM; echo leads >> "$LED"
        while :; do sleep 0.05; done"#;
    let line = ["run", "job", "--keep", "--ttl", "20s", "--grace", "8s", "--", "sh", "-c", script];
    let mut command = scene.tenure(&line);
    command.env("TOLD", scene.path("told")).env("LED", scene.path("led"));
    let tenure = Running::start(command);
    scene.lines("led", 1);
    let _locked = lock(&scene);
    // From here on CMD has three quarters of the grace, and uses them.
    scene.lines("told", 1);
    tenure.signal(Signal::TERM);
    let ended = tenure.end();
    assert_eq!(ended.code, Some(75), "{ended:?}");
    assert!(ended.err.contains("leadership lost"), "{ended:?}");
}

#[test]
fn a_lease_that_ended_while_both_guards_slept_is_lost_although_the_guardian_died() {
    let scene = Scene::new();
    let script = r#"echo "$TENURE_MANDATE" >> "$OUT"; exec sleep 600"#;
    let mut command = scene.tenure(&["run", "job", "--ttl", "2s", "--", "sh", "-c", script]);
    command.env("OUT", scene.path("out"));
    let tenure = Running::start(command);
    let mandate = scene.lines("out", 1)[0].clone();
    let guardian = tenure.guardian();
    let supervisor = Stopped::new(tenure.pid());
    let stopped = Stopped::new(guardian);
    let end = mandate_end(Path::new(&mandate)).unwrap();
    wait_for("the end of the lease", || (boot_time() > end).then_some(()));
    kill_process(guardian, Signal::KILL).unwrap();
    drop((stopped, supervisor));
    let ended = tenure.end();
    assert_eq!(ended.code, Some(75), "{ended:?}");
}

/// Found by the campaign: a record was deleted by hand, and a candidate that was just starting put
/// it back before the leader had looked. The record names its leader again, so nothing is lost.
#[test]
fn a_record_that_a_newcomer_puts_back_keeps_its_leader() {
    let scene = Scene::new();
    let script = r#"echo "$TENURE_TOKEN" >> "$LED"; exec sleep 600"#;
    let stand = |id| {
        let line = ["run", "job", "--id", id, "--ttl", "20s", "--", "sh", "-c", script];
        let mut command = scene.tenure(&line);
        command.env("LED", scene.path("led"));
        Running::start(command)
    };
    let leader = stand("leader");
    scene.lines("led", 1);
    let stopped = Stopped::new(leader.pid());
    let record = scene.path("store/elections/job.json");
    fs::remove_file(&record).unwrap();
    let _newcomer = stand("newcomer");
    let back = wait_for("the record to be back", || fs::read_to_string(&record).ok());
    drop(stopped);
    wait_for("a renewal", || (fs::read_to_string(&record).ok()? != back).then_some(()));
    let who = scene.who("job");
    assert_eq!((&who["leader"]["name"], &who["token"]), (&"leader".into(), &1.into()), "{who}");
    leader.signal(Signal::TERM);
    let ended = leader.end();
    assert_eq!(ended.code, Some(143), "{ended:?}");
    assert_eq!(scene.lines("led", 2), ["1", "2"]);
}
