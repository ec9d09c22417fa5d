//! Commands for operators.

use std::fs;

use rustix::process::Signal;

use super::support::{Running, Scene, ran, wait_for};
use super::{counts, told};

const WAITS: &str = "echo >> $SCENE/began; while [ ! -e $SCENE/go ]; do sleep 0.02; done";

#[test]
fn a_member_that_is_drained_finishes_what_it_has_and_leaves() {
    let scene = Scene::with_files(100);
    let flags = ["--workers", "1", "--id", "host-a", "--ttl", "3s"];
    let running = Running::start(scene.share_files("g", &flags, "echo >> $SCENE/began; sleep 0.2"));
    scene.lines("began", 2);
    let members = ran(scene.tenure(&["members", "g"]));
    assert!(members.out.starts_with("host-a  "), "{members:?}");
    // A member reports at a heartbeat whether it is idle, which may be between two items.
    assert!(members.out.contains("  alive  ") && members.out.contains(" of 1 worker idle, "));
    let drained = ran(scene.tenure(&["drain", "g", "host-a", "--wait"]));
    assert_eq!((drained.code, drained.out.as_str()), (Some(0), "1 member left\n"), "{drained:?}");
    let ran1 = running.end();
    assert_eq!(ran1.code, Some(1), "not everything is done: {ran1:?}");
    let (lines, summary) = told(&ran1);
    assert_eq!(summary["why"], "drained", "{ran1:?}");
    // The member notices within a heartbeat; all items would take twenty seconds.
    assert!(lines.len() < 100 && lines.iter().all(|line| line["state"] == "done"), "{ran1:?}");
    assert_eq!(lines.len(), scene.read("began").lines().count(), "what had begun was finished");
    let members = ran(scene.tenure(&["members", "g"]));
    assert_eq!(members.out, "", "{members:?}");
    // The rest is left for others.
    let rest = Running::start(scene.share_files("g", &[], "true")).end();
    assert_eq!((rest.code, counts(&told(&rest).1)), (Some(0), [100, 100, 0, 0, 0]), "{rest:?}");
    assert_eq!(told(&rest).0.len() + lines.len(), 100, "each was done once");
}

#[test]
fn a_group_that_is_drained_takes_nothing_more_until_it_is_resumed() {
    let scene = Scene::new();
    let worker = Running::start(scene.share("g", &[], "true"));
    ran(scene.tenure(&["submit", "g", "before"]));
    wait_for("the first", || (scene.totals("g")["done"] == 1).then_some(()));
    let paused = ran(scene.tenure(&["drain", "g", "--wait"]));
    assert_eq!(paused.out, "paused, and nothing runs any more\n", "{paused:?}");
    ran(scene.tenure(&["submit", "g", "after"]));
    std::thread::sleep(std::time::Duration::from_millis(700));
    let totals = scene.totals("g");
    assert_eq!((&totals["done"], &totals["paused"]), (&1.into(), &true.into()), "{totals}");
    assert_eq!(totals["inbox"]["next"][0]["id"], "after");
    let resumed = ran(scene.tenure(&["drain", "g", "--resume"]));
    assert_eq!(resumed.out, "goes on\n", "{resumed:?}");
    wait_for("the second", || (scene.totals("g")["done"] == 2).then_some(()));
    worker.signal(Signal::TERM);
    assert_eq!(worker.end().code, Some(0));
}

#[test]
fn what_runs_and_what_waits_can_be_seen() {
    let scene = Scene::with_files(2);
    let flags = ["--workers", "1", "--id", "host-a"];
    let running = Running::start(scene.share_files("g", &flags, WAITS));
    scene.lines("began", 1);
    let shown = ran(scene.tenure(&["tasks", "g"]));
    let first = "2 accepted: 0 done, 0 dead, 0 cancelled, 2 open\n";
    assert!(shown.out.starts_with(first), "{shown:?}");
    assert!(shown.out.contains("running  "), "{shown:?}");
    assert!(shown.out.contains("  attempt 1 of 3, host-a"), "{shown:?}");
    assert!(shown.out.contains("waiting  "), "{shown:?}");
    fs::write(scene.path("go"), "").unwrap();
    let ran1 = running.end();
    assert_eq!(counts(&told(&ran1).1), [2, 2, 0, 0, 0], "{ran1:?}");
    let results = ran(scene.tenure(&["tasks", "g", "--results"]));
    assert_eq!(results.out.lines().count(), 2, "{results:?}");
    assert!(results.out.lines().all(|line| line.contains("  done  000")), "{results:?}");
}

#[test]
fn retrying_all_brings_all_back_and_what_is_no_letter_is_told() {
    let scene = Scene::with_files(3);
    let script = "[ -e $SCENE/mended ]";
    let flags = ["--attempts", "1"];
    let ran1 = Running::start(scene.share_files("g", &flags, script)).end();
    assert_eq!(ran1.code, Some(1), "{ran1:?}");
    let odd = ran(scene.tenure(&["retry", "g", "0001", "nothing"]));
    assert_eq!((odd.code, odd.out.as_str()), (Some(1), "1 dead letter comes back\n"), "{odd:?}");
    assert!(odd.err.contains("\"nothing\" is no dead letter"), "{odd:?}");
    // Retrying the first one twice changes nothing.
    let all = ran(scene.tenure(&["retry", "g", "--all"]));
    assert_eq!((all.code, all.out.as_str()), (Some(0), "3 dead letters come back\n"), "{all:?}");
    fs::write(scene.path("mended"), "").unwrap();
    let ran2 = Running::start(scene.share_files("g", &flags, script)).end();
    assert_eq!((ran2.code, counts(&told(&ran2).1)), (Some(0), [3, 3, 0, 0, 0]), "{ran2:?}");
}
