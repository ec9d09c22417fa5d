//! Handlers on a store, through the program.
//!
//! The tests cover each transition, signals, and handlers that misbehave.
#![allow(clippy::unwrap_used)]

mod support;

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use support::{Running, Scene, alive, ran, wait_for, wait_for_death};

/// The handlers, which write a line each.
const BEGIN: &str = r#"echo "begin $TENURE_TOKEN" >> "$TOLD""#;
const END: &str = r#"echo "end $TENURE_TOKEN ${TENURE_REASON%%:*}" >> "$TOLD""#;

fn handlers(scene: &Scene, begin: &str, end: &str, flags: &[&str]) -> Command {
    let line = ["run", "job", "--leader-begin-command", begin, "--leader-end-command", end];
    let mut command = scene.tenure(&[&line[..], flags].concat());
    command.env("TOLD", scene.path("told"));
    command
}

#[test]
fn becoming_and_ceasing_to_lead_run_the_handlers() {
    let scene = Scene::new();
    let tenure = Running::start(handlers(&scene, BEGIN, END, &[]));
    assert_eq!(scene.lines("told", 1), ["begin 1"]);
    assert_eq!(scene.state("job"), "led");
    tenure.signal(Signal::TERM);
    let ended = tenure.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(scene.lines("told", 2), ["begin 1", "end 1 stop"]);
    assert_eq!(scene.state("job"), "free");
}

#[test]
fn a_begin_that_fails_lets_somebody_else_lead_meanwhile() {
    let scene = Scene::new();
    let error = r#"echo "error ${TENURE_REASON%%:*}" >> "$TOLD""#;
    let flags = ["--error-command", error, "--error-timeout", "10m", "--ttl", "2s"];
    let begin = r#"echo "begin $TENURE_TOKEN" >> "$TOLD"; exit 3"#;
    let tenure = Running::start(handlers(&scene, begin, END, &flags));
    assert_eq!(scene.lines("told", 2), ["begin 1", "error begin-failed"]);
    let other = ran(scene.tenure(&["run", "job", "--wait", "20s", "--", "echo", "led"]));
    assert_eq!((other.code, other.out.as_str()), (Some(0), "led\n"), "{other:?}");
    tenure.signal(Signal::TERM);
    assert_eq!(tenure.end().code, Some(0));
    assert_eq!(scene.lines("told", 2).len(), 2, "what never began is not ended");
}

#[test]
fn after_the_error_timeout_it_stands_again() {
    let scene = Scene::new();
    let begin = r#"echo "begin $TENURE_TOKEN" >> "$TOLD"; [ "$TENURE_TOKEN" -gt 1 ]"#;
    let flags = ["--error-timeout", "10ms", "--ttl", "2s"];
    let tenure = Running::start(handlers(&scene, begin, END, &flags));
    assert_eq!(scene.lines("told", 2), ["begin 1", "begin 2"]);
    wait_for("it to lead", || (scene.state("job") == "led").then_some(()));
    tenure.signal(Signal::TERM);
    assert_eq!(tenure.end().code, Some(0));
    assert_eq!(scene.lines("told", 3)[2], "end 2 stop");
}

#[test]
fn an_end_that_fails_for_good_is_stuck_and_releases_nothing() {
    let scene = Scene::new();
    let end = r#"echo end >> "$TOLD"; exit 1"#;
    let stuck = r#"echo "stuck $TENURE_TOKEN" >> "$TOLD""#;
    let flags = ["--end-retry", "1ms", "--on-stuck", stuck, "--ttl", "2s"];
    let tenure = Running::start(handlers(&scene, BEGIN, end, &flags));
    scene.lines("told", 1);
    tenure.signal(Signal::TERM);
    let ended = tenure.end();
    assert_eq!(ended.code, Some(70), "{ended:?}");
    assert!(ended.err.contains("failed 12 times"), "{ended:?}");
    let mut expected = vec!["end"; 14];
    (expected[0], expected[13]) = ("begin 1", "stuck 1");
    assert_eq!(scene.lines("told", 14), expected);
    assert_ne!(scene.state("job"), "free", "it was left to expire");
}

#[test]
fn an_end_that_fails_at_first_is_tried_again_and_then_releases() {
    let scene = Scene::new();
    let end = r#"echo end >> "$TOLD"; [ "$(grep -c end "$TOLD")" -ge 3 ]"#;
    let tenure = Running::start(handlers(&scene, BEGIN, end, &["--end-retry", "1ms"]));
    scene.lines("told", 1);
    tenure.signal(Signal::TERM);
    let ended = tenure.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(scene.lines("told", 4), ["begin 1", "end", "end", "end"]);
    assert_eq!(scene.state("job"), "free");
}

#[test]
fn a_signal_during_begin_stops_it_and_ends() {
    let scene = Scene::new();
    let begin = r#"echo "$$" >> "$TOLD"; exec sleep 600"#;
    let tenure = Running::start(handlers(&scene, begin, END, &[]));
    let begin: i32 = scene.lines("told", 1)[0].parse().unwrap();
    tenure.signal(Signal::TERM);
    assert_eq!(tenure.end().code, Some(0));
    assert!(!alive(begin));
    assert_eq!(scene.lines("told", 2)[1], "end 1 stop");
    assert_eq!(scene.state("job"), "free");
}

#[test]
fn a_signal_during_end_lets_it_finish() {
    let scene = Scene::new();
    let end = r#"echo ending >> "$TOLD"; until [ -e "$TOLD.go" ]; do sleep 0.01; done; echo ended >> "$TOLD""#;
    let tenure = Running::start(handlers(&scene, BEGIN, end, &["--end-timeout", "1m"]));
    scene.lines("told", 1);
    tenure.signal(Signal::TERM);
    scene.lines("told", 2);
    tenure.signal(Signal::TERM);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(scene.state("job"), "led", "it is released after the end");
    std::fs::write(scene.path("told.go"), "").unwrap();
    assert_eq!(tenure.end().code, Some(0));
    assert_eq!(scene.lines("told", 3), ["begin 1", "ending", "ended"]);
    assert_eq!(scene.state("job"), "free");
}

#[test]
fn a_second_interrupt_kills_the_handler_that_hangs() {
    let scene = Scene::new();
    let end = r#"trap "" TERM INT; echo $$ >> "$TOLD"; while :; do sleep 600; done"#;
    let tenure = Running::start(handlers(&scene, BEGIN, end, &["--end-timeout", "10m"]));
    scene.lines("told", 1);
    tenure.signal(Signal::INT);
    let end: i32 = scene.lines("told", 2)[1].parse().unwrap();
    tenure.signal(Signal::INT);
    let ended = tenure.end();
    assert_eq!(ended.code, Some(130), "{ended:?}");
    wait_for_death(&[end]);
    assert_eq!(scene.state("job"), "led", "left to run out: something may still act as leader");
}

#[test]
fn a_begin_that_hangs_is_stopped_by_its_deadline() {
    let scene = Scene::new();
    let begin = r#"echo $$ >> "$TOLD"; trap "" TERM; while :; do sleep 600; done"#;
    let flags = ["--begin-timeout", "100ms", "--error-timeout", "10m"];
    let tenure = Running::start(handlers(&scene, begin, END, &flags));
    let begin: i32 = scene.lines("told", 1)[0].parse().unwrap();
    assert!(scene.lines("told", 2)[1].starts_with("end 1"));
    assert!(!alive(begin), "the end comes after it");
    tenure.signal(Signal::TERM);
    assert_eq!(tenure.end().code, Some(0));
}

#[test]
fn an_end_that_hangs_fails_and_is_tried_again() {
    let scene = Scene::new();
    let end = r#"echo end >> "$TOLD"; [ "$(grep -c end "$TOLD")" -ge 2 ] || exec sleep 600"#;
    let flags = ["--end-timeout", "200ms", "--end-retry", "1ms"];
    let tenure = Running::start(handlers(&scene, BEGIN, end, &flags));
    scene.lines("told", 1);
    tenure.signal(Signal::TERM);
    assert_eq!(tenure.end().code, Some(0));
    assert_eq!(scene.lines("told", 3), ["begin 1", "end", "end"]);
}

#[test]
fn a_lost_leadership_ends_and_stands_again() {
    let scene = Scene::new();
    let tenure = Running::start(handlers(&scene, BEGIN, END, &["--ttl", "2s"]));
    scene.lines("told", 1);
    tenure.signal(Signal::STOP);
    let other = ran(scene.tenure(&["run", "job", "--ttl", "2s", "--", "true"]));
    assert_eq!(other.code, Some(0), "{other:?}");
    tenure.signal(Signal::CONT);
    let told = scene.lines("told", 3);
    assert!(told[1].starts_with("end 1 "), "{told:?}");
    assert_eq!(told[2], "begin 3");
}

#[test]
fn usr1_ends_and_lets_somebody_else_lead() {
    let scene = Scene::new();
    let tenure = Running::start(handlers(&scene, BEGIN, END, &["--ttl", "2s"]));
    scene.lines("told", 1);
    tenure.signal(Signal::USR1);
    assert_eq!(scene.lines("told", 3), ["begin 1", "end 1 not-leader", "begin 2"]);
}

#[test]
fn the_end_of_the_election_ends_and_exits_1() {
    let scene = Scene::new();
    let tenure = Running::start(handlers(&scene, BEGIN, END, &[]));
    scene.lines("told", 1);
    assert_eq!(ran(scene.tenure(&["end", "job"])).code, Some(0));
    let ended = tenure.end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_eq!(scene.lines("told", 2), ["begin 1", "end 1 ended"]);
}

#[test]
fn not_being_elected_in_time_is_the_conflict_exit_code() {
    let scene = Scene::new();
    let _leader = Running::start(scene.tenure(&["run", "job", "--", "sleep", "600"]));
    scene.wait_for_state("job", "led");
    for flags in [["--wait", "100ms", "-E", "42"], ["--nonblock", "--no-create", "-E", "42"]] {
        let begun = Instant::now();
        let ended = ran(handlers(&scene, BEGIN, END, &flags));
        assert_eq!(ended.code, Some(42), "{ended:?} {:?}", begun.elapsed());
    }
    assert_eq!(scene.read("told"), "");
}

#[test]
fn handlers_and_a_command_do_not_go_together() {
    let scene = Scene::new();
    for (line, says) in [
        (
            vec!["run", "job", "--leader-begin-command", "x", "--", "true"],
            "cannot be used with CMD",
        ),
        (vec!["run", "job", "--error-timeout", "1s", "--", "true"], "cannot be used with CMD"),
        (vec!["run", "job", "--leader-begin-command", "x", "--keep"], "--keep is about CMD"),
        (vec!["run", "job"], "nothing to run"),
        (vec!["run", "--leader-begin-command", "x"], "which election?"),
    ] {
        let refused = ran(scene.tenure(&line));
        assert_eq!(refused.code, Some(2), "{line:?} {refused:?}");
        assert!(refused.err.contains(says), "{line:?} {refused:?}");
    }
}

#[test]
fn names_and_values_reach_no_shell() {
    let scene = Scene::new();
    let nasty = "$(touch pwned)`touch pwned`;touch pwned;'\"|&";
    let begin = r#"printf '%s\n' "$TENURE_ID" "$TENURE_ELECTION" >> "$TOLD""#;
    let line = ["run", nasty, "--id", nasty, "--value", nasty, "--leader-begin-command", begin];
    let mut command = scene.tenure(&line);
    command.env("TOLD", scene.path("told")).current_dir(scene.path(""));
    let tenure = Running::start(command);
    assert_eq!(scene.lines("told", 2), [nasty, nasty]);
    tenure.signal(Signal::TERM);
    assert_eq!(tenure.end().code, Some(0));
    let mut child = scene.tenure(&["run", nasty, "--id", nasty, "--", "sh", "-c", begin]);
    child.env("TOLD", scene.path("told")).current_dir(scene.path(""));
    assert_eq!(ran(child).code, Some(0));
    assert_eq!(scene.lines("told", 4)[2..], [nasty, nasty]);
    assert!(!scene.path("pwned").exists());
}
