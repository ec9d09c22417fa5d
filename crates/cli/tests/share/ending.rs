//! When and how sharing ends: with the source, by signals, or never.

use std::fs;
use std::os::fd::OwnedFd;
use std::process::Stdio;

use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::support::{Running, Scene, alive, ran, wait_for};
use super::{counts, done, fed, told};

#[test]
fn all_processes_end_when_everything_is_done_whoever_leads() {
    let scene = Scene::with_files(30);
    let flags = ["--workers", "2"];
    let start = || Running::start(scene.share_files("g", &flags, "sleep 0.05; cat \"$0\""));
    let all = [start(), start(), start()].map(Running::end);
    let mut everything = std::collections::BTreeMap::new();
    for ran in &all {
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let (lines, summary) = told(ran);
        assert_eq!((counts(&summary), &summary["why"]), ([30, 30, 0, 0, 0], &"finished".into()));
        for (id, result) in done(&lines) {
            assert_eq!(everything.insert(id, result), None, "each is done once");
        }
    }
    assert_eq!(everything.len(), 30);
    // A process that comes late finds everything done.
    let late = start().end();
    assert_eq!((late.code, told(&late).0.len()), (Some(0), 0), "{late:?}");
    assert!(late.err.contains("nothing was left to do; for another walk"), "{late:?}");
    // A process that follows a source that was read to its end would wait for ever.
    let follower = Running::start(scene.share_files("g", &["--follow"], "true")).end();
    assert_eq!(follower.code, Some(78), "{follower:?}");
    assert!(follower.err.contains("without --follow, and is not read on"), "{follower:?}");
}

#[test]
fn a_source_without_items_is_done_at_once() {
    let scene = Scene::with_files(0);
    let ran = Running::start(scene.share_files("files", &[], "false")).end();
    assert_eq!((ran.code, counts(&told(&ran).1)), (Some(0), [0; 5]), "{ran:?}");
    let ran = fed(scene.share("lines", &["--from", "-"], "false"), b"");
    assert_eq!((ran.code, counts(&told(&ran).1)), (Some(0), [0; 5]), "{ran:?}");
}

#[test]
fn following_takes_what_comes_later_and_ends_well_when_interrupted() {
    let scene = Scene::with_files(2);
    let running = Running::start(scene.share_files("g", &["--follow"], "cat \"$0\""));
    wait_for("the first ones", || (scene.totals("g")["done"] == 2).then_some(()));
    fs::write(scene.path("in/0002"), "2\n").unwrap();
    wait_for("the new one", || (scene.totals("g")["done"] == 3).then_some(()));
    running.signal(Signal::TERM);
    let ran = running.end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let (lines, summary) = told(&ran);
    assert_eq!((done(&lines).len(), &summary["why"]), (3, &"interrupted".into()));
}

#[test]
fn the_first_interrupt_finishes_what_runs_and_takes_nothing_more() {
    let scene = Scene::with_files(3);
    let script = "echo >> $SCENE/began; while [ ! -e $SCENE/go ]; do sleep 0.02; done";
    let mut running = Running::start(scene.share_files("g", &["--workers", "1"], script));
    scene.lines("began", 1);
    running.signal(Signal::INT);
    // The process was told to stop, and is still busy.
    running.hear("taking nothing more; waiting for 1 run of CMD");
    fs::write(scene.path("go"), "").unwrap();
    let ran1 = running.end();
    assert_eq!(ran1.code, Some(130), "{ran1:?}");
    let (lines, summary) = told(&ran1);
    assert_eq!((done(&lines).len(), &summary["why"]), (1, &"interrupted".into()), "{ran1:?}");
    assert_eq!(scene.lines("began", 1).len(), 1);
    // The rest is left for others, from their first attempt.
    let ran2 = Running::start(scene.share_files("g", &[], script)).end();
    assert_eq!(ran2.code, Some(0), "{ran2:?}");
    let (lines, summary) = told(&ran2);
    assert_eq!(counts(&summary), [3, 3, 0, 0, 0]);
    assert!(lines.iter().all(|line| line["attempt"] == 1), "{lines:?}");
}

#[test]
fn the_second_interrupt_stops_what_runs_and_its_attempt_does_not_count() {
    let scene = Scene::with_files(1);
    let script = "echo $$ >> $SCENE/pids; [ -e $SCENE/go ] || exec sleep 600";
    let flags = ["--attempts", "1"];
    let mut running = Running::start(scene.share_files("g", &flags, script));
    let pid: i32 = scene.lines("pids", 1)[0].parse().unwrap();
    running.signal(Signal::TERM);
    // Two signals that come together would merge into one.
    running.hear("taking nothing more; waiting for 1 run of CMD");
    assert!(alive(pid));
    running.signal(Signal::TERM);
    let ran1 = running.end();
    assert_eq!(ran1.code, Some(143), "{ran1:?}");
    assert!(!alive(pid));
    assert_eq!(told(&ran1).0[0]["state"], "returned", "{ran1:?}");
    fs::write(scene.path("go"), "").unwrap();
    let ran2 = Running::start(scene.share_files("g", &flags, script)).end();
    assert_eq!((ran2.code, counts(&told(&ran2).1)), (Some(0), [1, 1, 0, 0, 0]), "{ran2:?}");
}

#[test]
fn without_a_source_it_works_for_others_until_it_is_interrupted() {
    let scene = Scene::new();
    let worker = Running::start(scene.share("g", &[], "echo \"did $0\""));
    let submitted = ran(scene.tenure(&["submit", "g", "one", "two words"]));
    assert_eq!((submitted.code, submitted.out.as_str()), (Some(0), "2 tasks accepted\n"));
    let more = fed(scene.tenure(&["submit", "g", "-"]), b"three\nfour\n");
    assert_eq!((more.code, more.out.as_str()), (Some(0), "2 tasks accepted\n"));
    wait_for("all four", || (scene.totals("g")["done"] == 4).then_some(()));
    worker.signal(Signal::TERM);
    let ran = worker.end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let results: Vec<String> = done(&told(&ran).0).into_values().collect();
    assert_eq!(results, ["did four", "did one", "did three", "did two words"]);
}

#[test]
fn off_the_terminal_nothing_but_json_is_printed() {
    let scene = Scene::with_files(3);
    let script = "[ $TENURE_ATTEMPT = 2 ]";
    let ran = Running::start(scene.share_files("g", &[], script)).end();
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{ran:?}");
    assert_eq!(told(&ran).0.len(), 6);
}

#[test]
fn on_a_terminal_there_is_a_line_of_progress_and_a_sentence_at_the_end() {
    let scene = Scene::with_files(20);
    let control = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&control).unwrap();
    unlockpt(&control).unwrap();
    let name = ptsname(&control, Vec::new()).unwrap();
    let side = fs::File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    let script = "sleep 0.1; case $0 in */0003) echo broken >&2; exit 4 ;; esac";
    let mut command = scene.share_files("g", &["--attempts", "2", "--workers", "4"], script);
    command.stdout(Stdio::from(side.try_clone().unwrap())).stderr(Stdio::from(side));
    let mut child = command.spawn().unwrap();
    // The command holds the terminal's side, too. Dropping it lets the reader see the end.
    drop(command);
    let reading = std::thread::spawn(move || read_all(control));
    let code = child.wait().unwrap().code();
    let shown = reading.join().unwrap();
    assert_eq!(code, Some(1), "{shown}");
    assert!(shown.contains("running here"), "{shown}");
    assert!(shown.contains("/20 ") && shown.contains("/s"), "{shown}");
    assert!(shown.contains("0003: attempt 1 failed: exit code 4: broken"), "{shown}");
    assert!(shown.contains("0003: failed for good at attempt 2: exit code 4: broken"), "{shown}");
    let told = "g: 20 accepted, 19 done, 1 dead, 0 cancelled; 19 done here in ";
    assert!(shown.contains(told) && shown.contains("tenure tasks g --dead"), "{shown}");
    assert!(!shown.contains("\"event\""), "{shown}");
}

fn read_all(control: OwnedFd) -> String {
    use std::io::Read;
    let mut shown = Vec::new();
    // Reading a terminal ends with an error when the other side is closed.
    let _ = fs::File::from(control).read_to_end(&mut shown);
    String::from_utf8_lossy(&shown).into_owned()
}

#[test]
fn a_worker_without_a_source_leaves_the_lead_to_those_that_have_one() {
    let scene = Scene::with_files(10);
    let flags = ["--ttl", "3s"];
    // The worker leads, since it is alone.
    let worker = Running::start(scene.share("g", &flags, "echo \"did $0\""));
    ran(scene.tenure(&["submit", "g", "first"]));
    wait_for("the first", || (scene.totals("g")["done"] == 1).then_some(()));
    let lister = Running::start(scene.share_files("g", &flags, "true")).end();
    assert_eq!(lister.code, Some(0), "{lister:?}");
    assert_eq!(counts(&told(&lister).1), [11, 11, 0, 0, 0], "{lister:?}");
    // The worker leads again when the others are gone.
    ran(scene.tenure(&["submit", "g", "last"]));
    wait_for("the last", || (scene.totals("g")["done"] == 12).then_some(()));
    worker.signal(Signal::TERM);
    assert_eq!(worker.end().code, Some(0));
}
