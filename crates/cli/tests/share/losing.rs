//! Tasks that cannot be done: lost, cancelled, or taken by no cluster.

use std::fs;
use std::path::PathBuf;

use rustix::process::Signal;

use super::support::{Running, Scene, ran, wait_for};
use super::{counts, told};

/// A leader that does not run the items that are handed out.
fn lead(scene: &Scene) -> Running {
    Running::start(scene.share("g", &["--ttl", "3s"], "true"))
}

/// Hands out items of a kind that no member runs.
fn hand_out(scene: &Scene, count: u64) {
    let items: Vec<String> = (0..count).map(|number| format!("item-{number}")).collect();
    let mut line = vec!["submit", "g", "--kind", "other"];
    line.extend(items.iter().map(String::as_str));
    assert_eq!(ran(scene.tenure(&line)).code, Some(0));
    wait_for("the items", || (scene.totals("g")["open"] == count).then_some(()));
}

/// The documents of the slots that hold an item.
fn slots(scene: &Scene) -> Vec<PathBuf> {
    let is_slot = |path: &PathBuf| path.extension().is_some_and(|end| end == "json");
    let holds = |path: &PathBuf| fs::read_to_string(path).unwrap().contains("item-");
    let all = fs::read_dir(scene.path("store/clusters/g/slots")).unwrap();
    let mut slots: Vec<PathBuf> = all.map(|entry| entry.unwrap().path()).filter(is_slot).collect();
    slots.retain(holds);
    slots.sort();
    slots
}

#[test]
fn what_was_lost_with_its_document_is_shown_and_an_operator_can_give_it_up() {
    let scene = Scene::new();
    let leader = lead(&scene);
    hand_out(&scene, 3);
    // The leader takes in something else, and the cluster's records forget in which slots it put
    // the items.
    ran(scene.tenure(&["submit", "g", "another"]));
    wait_for("another", || (scene.totals("g")["done"] == 1).then_some(()));
    // No other process may write the slots meanwhile.
    leader.signal(Signal::TERM);
    assert_eq!(leader.end().code, Some(0));
    let [overwritten, deleted, kept] = slots(&scene).try_into().unwrap();
    fs::write(overwritten, "garbage").unwrap();
    fs::remove_file(deleted).unwrap();
    let kept = fs::read_to_string(kept).unwrap();

    let leader = lead(&scene);
    let shown = ran(scene.tenure(&["tasks", "g"]));
    assert!(shown.out.contains("2 tasks lost: "), "{shown:?}");
    assert!(shown.out.contains("tenure cancel g --lost"), "{shown:?}");
    assert!(shown.err.contains("skipping clusters/g/slots/"), "{shown:?}");
    let totals = scene.totals("g");
    assert_eq!((&totals["open"], &totals["lost"]), (&3.into(), &2.into()), "{totals}");

    let given_up = ran(scene.tenure(&["cancel", "g", "--lost"]));
    assert_eq!((given_up.code, given_up.out.as_str()), (Some(0), "2 lost tasks given up\n"));
    wait_for("the leader to count them", || (scene.totals("g")["open"] == 1).then_some(()));
    let totals = scene.totals("g");
    assert_eq!((&totals["cancelled"], &totals["lost"]), (&2.into(), &0.into()), "{totals}");
    let again = ran(scene.tenure(&["cancel", "g", "--lost", "--json"]));
    let nothing = r#"{"group":"g","cancelled":0,"asked":0,"restored":0,"lost":0,"missing":[]}"#;
    assert_eq!((again.code, again.out.trim_end()), (Some(0), nothing));
    let shown = ran(scene.tenure(&["tasks", "g"]));
    assert_eq!(shown.err, "", "nothing is garbled any more");
    let left = shown.out.lines().nth(1).unwrap().split_whitespace().nth(2).unwrap();
    assert!(kept.contains(left), "what is left is what was whole: {shown:?}, {kept}");
    leader.signal(Signal::TERM);
    assert_eq!(leader.end().code, Some(0));
}

#[test]
fn what_nobody_can_do_is_cancelled_by_its_name_or_number() {
    let scene = Scene::new();
    let leader = lead(&scene);
    hand_out(&scene, 3);
    let serial = scene.totals("g")["tasks"][1]["serial"].to_string();
    let cancelled = ran(scene.tenure(&["cancel", "g", "item-0", &serial, "nothing"]));
    assert_eq!((cancelled.code, cancelled.out.as_str()), (Some(1), "2 tasks cancelled\n"));
    assert!(cancelled.err.contains("\"nothing\" is no task that waits or runs"), "{cancelled:?}");
    wait_for("the leader to count them", || (scene.totals("g")["open"] == 1).then_some(()));
    assert_eq!(scene.totals("g")["cancelled"], 2);
    leader.signal(Signal::TERM);
    assert_eq!(leader.end().code, Some(0), "what was cancelled is no failure");
}

#[test]
fn what_runs_is_stopped_when_it_is_cancelled() {
    let scene = Scene::with_files(2);
    let script = "case $0 in */0000) echo >> $SCENE/began; exec sleep 600 ;; esac";
    let flags = ["--workers", "2", "--ttl", "3s"];
    let running = Running::start(scene.share_files("g", &flags, script));
    scene.lines("began", 1);
    let cancelled = ran(scene.tenure(&["cancel", "g", "0000"]));
    let told_so = "0 tasks cancelled, 1 told to stop\n";
    assert_eq!((cancelled.code, cancelled.out.as_str()), (Some(0), told_so), "{cancelled:?}");
    let ran = running.end();
    assert_eq!((ran.code, counts(&told(&ran).1)), (Some(0), [2, 1, 0, 1, 0]), "{ran:?}");
}

#[test]
fn a_line_of_a_file_that_no_task_can_hold_is_dead_and_shown_and_the_exit_code_is_1() {
    let scene = Scene::new();
    fs::write(scene.path("items"), format!("{}\nshort\n", "x".repeat(20_000))).unwrap();
    let ran1 = Running::start(scene.share("g", &["--from", "items"], "true")).end();
    assert_eq!((ran1.code, counts(&told(&ran1).1)), (Some(1), [2, 1, 1, 0, 0]), "{ran1:?}");
    let dead = ran(scene.tenure(&["tasks", "g", "--dead"]));
    assert!(
        dead.out.contains("1  items:1  refused: ") && dead.out.lines().count() == 1,
        "{dead:?}"
    );
    let dead = scene.listed("g", "--dead");
    assert_eq!((&dead[0]["id"], &dead[0]["attempt"]), (&"items:1".into(), &0.into()), "{dead:?}");
}
