//! The options for running CMD, and the environment and signals that CMD gets.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};

use support::{Running, Scene, alive, ran, wait_for, wait_for_death};

/// A script that records the signals it receives.
const LISTENER: &str = r#"for s in TERM QUIT INT; do trap "echo $s >> \"$HEARD\"; exit 0" $s; done
    echo ready >> "$HEARD"; while :; do sleep 0.01; done"#;

fn listener(scene: &Scene, flags: &[&str]) -> Running {
    let line = [&["run", "job"], flags, &["--", "sh", "-c", LISTENER]].concat();
    let mut command = scene.tenure(&line);
    command.env("HEARD", scene.path("heard"));
    let tenure = Running::start(command);
    scene.lines("heard", 1);
    tenure
}

#[test]
fn the_signal_that_stops_cmd_can_be_chosen() {
    let scene = Scene::new();
    let tenure = listener(&scene, &["--signal", "sigquit"]);
    tenure.signal(Signal::TERM);
    assert_eq!(tenure.end().code, Some(0));
    assert_eq!(scene.lines("heard", 2), ["ready", "QUIT"]);
    let refused = ran(scene.tenure(&["run", "job", "--signal", "STOP", "--", "true"]));
    assert_eq!(refused.code, Some(2), "{refused:?}");
}

#[test]
fn an_orphans_grace_buys_a_term_before_the_kill() {
    let scene = Scene::new();
    let tenure = listener(&scene, &["--orphan-grace", "20s", "--ttl", "10m"]);
    tenure.signal(Signal::KILL);
    assert_eq!(scene.lines("heard", 2), ["ready", "TERM"]);
}

#[test]
fn without_an_orphans_grace_the_kill_comes_at_once() {
    let scene = Scene::new();
    let tenure = listener(&scene, &["--ttl", "10m"]);
    let next = Running::start(scene.tenure(&["run", "job", "--", "true"]));
    tenure.signal(Signal::KILL);
    assert_eq!(next.end().code, Some(0));
    assert_eq!(scene.lines("heard", 1), ["ready"]);
}

#[test]
fn the_next_leader_waits_for_the_orphans_grace() {
    let scene = Scene::new();
    let script = r#"trap "" TERM; echo $$ >> "$PIDS"; while :; do sleep 600; done"#;
    let line = ["run", "job", "--orphan-grace", "500ms", "--ttl", "10m", "--", "sh", "-c", script];
    let mut command = scene.tenure(&line);
    command.env("PIDS", scene.path("pids"));
    let tenure = Running::start(command);
    let child: i32 = scene.lines("pids", 1)[0].parse().unwrap();
    let next = Running::start(scene.tenure(&["run", "job", "--", "true"]));
    let killed = Instant::now();
    tenure.signal(Signal::KILL);
    assert_eq!(next.end().code, Some(0));
    assert!(killed.elapsed() >= Duration::from_millis(500), "{:?}", killed.elapsed());
    assert!(!alive(child));
}

#[test]
fn a_held_leadership_lasts_beyond_cmd_and_keeps_its_exit_code() {
    let scene = Scene::new();
    let line = ["run", "job", "--hold", "2s", "--", "sh", "-c", "exit 3"];
    let begun = Instant::now();
    let tenure = Running::start(scene.tenure(&line));
    wait_for("a leader", || (scene.state("job") == "led").then_some(()));
    assert_eq!(ran(scene.tenure(&["run", "job", "-n", "-E", "9", "--", "true"])).code, Some(9));
    assert_eq!(tenure.end().code, Some(3));
    assert!(begun.elapsed() >= Duration::from_secs(2));
    assert_eq!(scene.state("job"), "free");
}

#[test]
fn an_interrupt_ends_a_hold() {
    let scene = Scene::new();
    let script = r#"echo done >> "$DONE"; exit 5"#;
    let mut command = scene.tenure(&["run", "job", "--hold", "1h", "--", "sh", "-c", script]);
    command.env("DONE", scene.path("done"));
    let tenure = Running::start(command);
    scene.lines("done", 1);
    // Once the guardian has gone, no process is left to be stopped.
    let me = tenure.pid().as_raw_nonzero().get();
    wait_for("the hold", || support::children(me).is_empty().then_some(()));
    tenure.signal(Signal::TERM);
    assert_eq!(tenure.end().code, Some(5));
    assert_eq!(scene.state("job"), "free");
}

#[test]
fn a_child_that_keeps_failing_is_run_after_longer_and_longer_pauses() {
    let scene = Scene::new();
    let script = r#"echo "$TENURE_TOKEN" >> "$LED"; exit 7"#;
    let line = ["run", "job", "--keep", "--ttl", "2s", "--", "sh", "-c", script];
    let mut command = scene.tenure(&line);
    command.env("LED", scene.path("led"));
    let tenure = Running::start(command);
    scene.lines("led", 3);
    tenure.signal(Signal::TERM);
    let ended = tenure.end();
    assert!(ended.err.contains("standing again in 1.0 s (CMD: 7)"), "{ended:?}");
    assert!(ended.err.contains("standing again in 2.0 s (CMD: 7)"), "{ended:?}");
}

#[test]
fn once_on_the_command_line_beats_keep_in_the_environment() {
    let scene = Scene::new();
    let mut command = scene.tenure(&["run", "job", "--once", "--", "true"]);
    command.env("TENURE_KEEP", "yes");
    assert_eq!(ran(command).code, Some(0));
    let both = ran(scene.tenure(&["run", "job", "--once", "--keep", "--", "true"]));
    assert_eq!(both.code, Some(2), "{both:?}");
}

#[test]
fn cmd_is_told_how_long_it_may_go_on() {
    let scene = Scene::new();
    let script = r#"env | grep ^TENURE_ | sort > "$OUT"; cat "$TENURE_MANDATE" >> "$READ"
        while :; do cat "$TENURE_MANDATE"; sleep 0.05; done >> "$READ""#;
    let mut command =
        scene.tenure(&["run", "job", "--id", "me", "--ttl", "2s", "--", "sh", "-c", script]);
    command.env("OUT", scene.path("out")).env("READ", scene.path("read"));
    let tenure = Running::start(command);
    let parse = |line: &String| serde_json::from_str::<serde_json::Value>(line).unwrap();
    let first = parse(&scene.lines("read", 1)[0]);
    assert_eq!(first["token"], 1);
    assert!(first["remaining_ms"].as_u64().unwrap() > first["must_stop_in_ms"].as_u64().unwrap());
    wait_for("a renewal", || {
        let text = scene.read("read");
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let last = parse(&whole.lines().next_back()?.to_owned());
        let until = |value: &serde_json::Value| value["until_boottime_ns"].as_u64();
        (until(&last) > until(&first)).then_some(())
    });
    let told = scene.read("out");
    for expected in [
        "TENURE_ELECTION=job",
        "TENURE_ID=me",
        "TENURE_TOKEN=1",
        "TENURE_STATE=leading",
        "TENURE_REASON=elected",
        "TENURE_TTL_MS=2000",
    ] {
        assert!(told.lines().any(|line| line == expected), "{expected} is not in {told}");
    }
    let path = told.lines().find_map(|line| line.strip_prefix("TENURE_MANDATE=")).unwrap();
    let directory = Path::new(path).parent().unwrap().to_owned();
    assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
    tenure.signal(Signal::TERM);
    tenure.end();
    assert!(!directory.exists());
}

#[test]
fn the_guardian_clears_up_after_a_killed_supervisor() {
    let scene = Scene::new();
    let script = r#"echo "$TENURE_MANDATE" >> "$OUT"; exec sleep 600"#;
    let mut command = scene.tenure(&["run", "job", "--", "sh", "-c", script]);
    command.env("OUT", scene.path("out"));
    let tenure = Running::start(command);
    let path = scene.lines("out", 1)[0].clone();
    let directory = Path::new(&path).parent().unwrap().to_owned();
    tenure.signal(Signal::KILL);
    wait_for("the directory to go", || (!directory.exists()).then_some(()));
}

#[test]
fn who_steps_down_comes_after_those_who_wait() {
    let scene = Scene::new();
    let script = r#"echo "$TENURE_ID" >> "$LED"; exec sleep 600"#;
    let stand = |name: &str| {
        let line = ["run", "job", "--id", name, "--ttl", "20s", "--", "sh", "-c", script];
        let mut command = scene.tenure(&line);
        command.env("LED", scene.path("led"));
        Running::start_quietly(command)
    };
    let one = stand("one");
    scene.lines("led", 1);
    let two = stand("two");
    for (round, leader) in [(1, &one), (2, &two), (3, &one)] {
        wait_for("both to stand", || {
            let listed = ran(scene.tenure(&["candidates", "job", "--json"]));
            let listed: serde_json::Value = serde_json::from_str(&listed.out).ok()?;
            (listed["candidates"].as_array()?.len() == 2).then_some(())
        });
        leader.signal(Signal::USR1);
        scene.lines("led", round + 1);
    }
    assert_eq!(scene.lines("led", 4), ["one", "two", "one", "two"]);
}

/// Three sleepers, two of which left their parents, their group and their session.
const SLEEPERS: &str = r#"
(setsid sh -c 'echo $$ >> "$PIDS"; exec sleep 600' &)
(setsid sh -c '(setsid sh -c "echo \$\$ >> \"\$PIDS\"; exec sleep 600" &)' &)
echo $$ >> "$PIDS"; exec sleep 600"#;

#[test]
fn what_outlived_both_guards_is_dead_before_the_next_child_starts() {
    let scene = Scene::new();
    let mut command = scene.tenure(&["run", "job", "--ttl", "2s", "--", "sh", "-c", SLEEPERS]);
    command.env("PIDS", scene.path("pids"));
    let tenure = Running::start(command);
    let sleepers: Vec<i32> =
        scene.lines("pids", 3).iter().map(|pid| pid.parse().unwrap()).collect();
    let guardian = tenure.guardian();
    // Both are stopped first, so that neither can react to the other's death.
    kill_process(guardian, Signal::STOP).unwrap();
    tenure.signal(Signal::STOP);
    tenure.signal(Signal::KILL);
    kill_process(guardian, Signal::KILL).unwrap();
    // Dead processes may still be zombies; they do nothing.
    let script = r#"for pid in $(cat "$PIDS"); do
            case $(sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null) in ""|Z*|X*) ;; *) echo "$pid lives"; esac
        done; echo "$TENURE_TOKEN""#;
    let mut command = scene.tenure(&["run", "job", "--ttl", "2s", "--", "sh", "-c", script]);
    command.env("PIDS", scene.path("pids"));
    let next = ran(command);
    assert_eq!((next.code, next.out.as_str()), (Some(0), "2\n"), "{next:?}");
    wait_for_death(&sleepers);
}

#[test]
fn the_work_of_another_election_is_left_alone() {
    let scene = Scene::new();
    let mut command = scene.tenure(&["run", "other", "--ttl", "10m", "--", "sh", "-c", SLEEPERS]);
    command.env("PIDS", scene.path("pids"));
    let tenure = Running::start(command);
    let sleepers: Vec<i32> =
        scene.lines("pids", 3).iter().map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(ran(scene.tenure(&["run", "job", "--", "true"])).code, Some(0));
    assert!(sleepers.iter().all(|pid| alive(*pid)));
    tenure.signal(Signal::TERM);
    tenure.end();
    assert!(sleepers.iter().all(|pid| !alive(*pid)));
}

#[test]
fn a_child_that_exits_at_once_leaves_no_zombie_and_no_orphan() {
    let scene = Scene::new();
    for _ in 0..5 {
        assert_eq!(ran(scene.tenure(&["run", "job", "--", "true"])).code, Some(0));
    }
    let ours = scene.store().into_bytes();
    let left: Vec<String> = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().parse::<i32>().is_ok())
        .filter(|entry| {
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            environment.windows(ours.len()).any(|part| part == ours)
        })
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    assert_eq!(left, Vec::<String>::new());
}
