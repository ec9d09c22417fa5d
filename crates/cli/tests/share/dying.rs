//! Members that die or hang. Their work does not outlive their lease, and others do it.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::support::{Running, Scene, alive, children, wait_for, wait_for_death};
use super::{counts, done, told};

/// Hangs in the first run, as a tree of which a part has left its session. Later runs only check
/// that the first tree is dead.
const HANGS_ONCE: &str = r#"if mkdir "$SCENE/began" 2>/dev/null; then
    echo $$ >> "$SCENE/pids"
    setsid sleep 600 & echo $! >> "$SCENE/pids"
    while :; do sleep 600; done
fi
for pid in $(cat "$SCENE/pids"); do kill -0 $pid 2>/dev/null && echo "$pid lives"; done; true"#;

struct Hanging {
    scene: Scene,
    first: Running,
    tree: Vec<i32>,
}

impl Hanging {
    fn with(ttl: &str) -> Hanging {
        let scene = Scene::with_files(1);
        let flags = ["--ttl", ttl, "--workers", "2"];
        let first = Running::start(scene.share_files("g", &flags, HANGS_ONCE));
        let tree: Vec<i32> =
            scene.lines("pids", 2).iter().map(|pid| pid.parse().unwrap()).collect();
        assert!(tree.iter().all(|pid| alive(*pid)));
        Hanging { scene, first, tree }
    }

    fn second(&self, ttl: &str) -> Running {
        Running::start(self.scene.share_files("g", &["--ttl", ttl], HANGS_ONCE))
    }
}

#[test]
fn the_tree_dies_with_its_process_and_another_does_the_item_at_once() {
    let hanging = Hanging::with("30s");
    let second = hanging.second("30s");
    let killed = Instant::now();
    hanging.first.signal(Signal::KILL);
    let ran = second.end();
    assert!(killed.elapsed() < Duration::from_secs(20), "the lease was waited out");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let (lines, summary) = told(&ran);
    assert_eq!(counts(&summary), [1, 1, 0, 0, 0]);
    assert_eq!(done(&lines)["0000"], "", "nothing of the first lived when the second began");
    assert_eq!(lines[0]["attempt"], 2);
}

#[test]
fn a_process_that_hangs_loses_its_tree_before_anybody_else_begins() {
    let hanging = Hanging::with("2s");
    let second = hanging.second("2s");
    hanging.first.signal(Signal::STOP);
    let ran = second.end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let (lines, _) = told(&ran);
    assert_eq!(done(&lines)["0000"], "", "nothing of the first lived when the second began");
    wait_for_death(&hanging.tree);
    hanging.first.resume();
    let first = hanging.first.end();
    assert_eq!(first.code, Some(0), "{first:?}");
    let (lines, summary) = told(&first);
    assert_eq!(counts(&summary), [1, 1, 0, 0, 0]);
    assert!(done(&lines).is_empty(), "{lines:?}");
}

#[test]
fn a_guardian_that_is_killed_costs_one_attempt_and_its_tree_dies() {
    let hanging = Hanging::with("30s");
    let me = hanging.first.pid().as_raw_nonzero().get();
    for guardian in children(me) {
        kill_process(Pid::from_raw(guardian).unwrap(), Signal::KILL).unwrap();
    }
    let ran = hanging.first.end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let (lines, _) = told(&ran);
    assert_eq!(lines[0]["state"], "failed");
    assert!(lines[0]["error"].as_str().unwrap().contains("its guardian died or hung"), "{lines:?}");
    assert_eq!(done(&lines)["0000"], "", "the tree was dead before the next attempt");
}

#[test]
fn cmd_dies_when_process_and_guardian_are_killed_at_once() {
    let scene = Scene::with_files(1);
    let script = "echo $$ >> $SCENE/pids; exec sleep 600";
    let tenure = Running::start(scene.share_files("g", &["--ttl", "30s"], script));
    let cmd: i32 = scene.lines("pids", 1)[0].parse().unwrap();
    wait_for("sleep", || {
        fs::read_to_string(format!("/proc/{cmd}/comm")).ok().filter(|comm| comm == "sleep\n")
    });
    let guardians = children(tenure.pid().as_raw_nonzero().get());
    // All are stopped first, so that none can react to another's death.
    tenure.signal(Signal::STOP);
    for signal in [Signal::STOP, Signal::KILL] {
        for guardian in &guardians {
            kill_process(Pid::from_raw(*guardian).unwrap(), signal).unwrap();
        }
    }
    tenure.signal(Signal::KILL);
    wait_for_death(&[cmd]);
}

#[test]
fn a_process_that_is_killed_takes_the_command_that_finds_items_with_it() {
    let scene = Scene::new();
    let from = "cmd:echo a; echo $$ >> $SCENE/pids; sleep 600 & echo $! >> $SCENE/pids; wait";
    let tenure = Running::start(scene.share("g", &["--from", from], "true"));
    let pids: Vec<i32> = scene.lines("pids", 2).iter().map(|pid| pid.parse().unwrap()).collect();
    wait_for("the first item", || (scene.totals("g")["done"] == 1).then_some(()));
    tenure.signal(Signal::KILL);
    wait_for_death(&pids);
}
