//! No work of a former leader runs when it no longer leads.
//!
//! That holds even if its guards die or hang.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::io::{Read, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, Signal, kill_process, pidfd_getfd, pidfd_open,
};

use support::{
    Running, Scene, Stopped, alive, boot_time, mandate_end, ran, wait_for, wait_for_death,
};

/// A tree of three processes. One left its session and its parent, and one has a parent that ended
/// before it began.
const TREE: &str = r#"
[ -n "$STUBBORN" ] && trap "" TERM
case $1 in
root) echo "$TENURE_MANDATE" > "$MANDATE"; setsid sh "$0" middle & (setsid sh "$0" leaf &); echo $$ >> "$PIDS"; exec sleep 600 ;;
middle) sh "$0" leaf & exit 0 ;;
leaf) echo $$ >> "$PIDS"; exec sleep 600 ;;
esac
"#;

/// A leader with a running tree.
struct Leading {
    scene: Scene,
    tenure: Running,
    tree: Vec<i32>,
}

impl Leading {
    fn with(ttl: &str, stubborn: &str) -> Leading {
        Leading::with_flags(&["--ttl", ttl], stubborn)
    }

    /// A leader with a stubborn tree, which is killed 2 s before the lease ends.
    fn stubborn() -> Leading {
        Leading::with_flags(&["--ttl", "24s", "--grace", "8s"], "yes")
    }

    fn with_flags(flags: &[&str], stubborn: &str) -> Leading {
        let scene = Scene::new();
        fs::write(scene.path("tree.sh"), TREE).unwrap();
        let tree = scene.path("tree.sh");
        let command = ["--", "sh", tree.to_str().unwrap(), "root"];
        let mut command = scene.tenure(&[&["run", "job"], flags, &command].concat());
        command.env("PIDS", scene.path("pids")).env("STUBBORN", stubborn);
        command.env("MANDATE", scene.path("mandate"));
        let tenure = Running::start(command);
        let tree = scene.lines("pids", 3).iter().map(|pid| pid.parse().unwrap()).collect();
        let leading = Leading { scene, tenure, tree };
        assert!(leading.tree.iter().all(|pid| alive(*pid)));
        leading
    }

    /// The end of the lease, according to the supervisor's file.
    fn lease_end(&self) -> u64 {
        let file = self.scene.lines("mandate", 1);
        mandate_end(file[0].as_ref()).unwrap()
    }

    /// Waits for a renewal.
    ///
    /// The guardian learns of it a moment before the file is written, so the next one is far away.
    fn wait_for_renewal(&self) {
        let before = self.lease_end();
        wait_for("a renewal", || (self.lease_end() > before).then_some(()));
    }

    /// Stops the supervisor, and returns the end of its lease.
    fn stop_after_a_renewal(&self) -> u64 {
        self.wait_for_renewal();
        // The process goes on, or is killed, when the test ends.
        std::mem::forget(Stopped::new(self.tenure.pid()));
        self.lease_end()
    }

    /// The next leader; its work reports processes of the former tree that live.
    fn successor(&self) -> Running {
        let script = r#"for pid in $(cat "$PIDS"); do kill -0 "$pid" 2>/dev/null && echo "$pid lives"
            done; echo "$TENURE_TOKEN""#;
        let mut command =
            self.scene.tenure(&["run", "job", "--ttl", "2s", "--", "sh", "-c", script]);
        command.env("PIDS", self.scene.path("pids"));
        Running::start(command)
    }
}

#[test]
fn the_tree_dies_with_the_supervisor_and_the_next_leads_at_once() {
    let leading = Leading::with("30s", "");
    let successor = leading.successor();
    leading.tenure.signal(Signal::KILL);
    let killed = Instant::now();
    let next = successor.end();
    assert_eq!((next.code, next.out.as_str()), (Some(0), "2\n"), "{next:?}");
    assert!(killed.elapsed() < Duration::from_secs(20), "the lease was waited out");
}

#[test]
fn the_tree_dies_with_the_guardian_and_the_leadership_is_released() {
    let leading = Leading::with("30s", "");
    kill_process(leading.tenure.guardian(), Signal::KILL).unwrap();
    let ended = leading.tenure.end();
    assert_eq!(ended.code, Some(125), "{ended:?}");
    assert!(ended.err.contains("the guardian died or hung; CMD was killed"), "{ended:?}");
    assert!(leading.tree.iter().all(|pid| !alive(*pid)), "before the supervisor has gone");
    assert_eq!(leading.scene.state("job"), "free");
}

#[test]
fn the_child_dies_when_both_are_killed_at_once() {
    let scene = Scene::new();
    let tenure =
        Running::start(scene.tenure(&["run", "job", "--ttl", "30s", "--", "sleep", "600"]));
    let guardian = tenure.guardian();
    let guardian_number = guardian.as_raw_nonzero().get();
    let child = wait_for("the child", || support::children(guardian_number).first().copied());
    wait_for("sleep", || {
        fs::read_to_string(format!("/proc/{child}/comm")).ok().filter(|comm| comm == "sleep\n")
    });
    // Both are stopped first, so that neither can react to the other's death.
    kill_process(guardian, Signal::STOP).unwrap();
    tenure.signal(Signal::STOP);
    tenure.signal(Signal::KILL);
    kill_process(guardian, Signal::KILL).unwrap();
    wait_for_death(&[child]);
}

#[test]
fn a_hung_supervisor_loses_its_tree_before_the_next_one_leads() {
    let leading = Leading::with("2s", "yes");
    let successor = leading.successor();
    leading.tenure.signal(Signal::STOP);
    wait_for_death(&leading.tree);
    let next = successor.end();
    assert_eq!((next.code, next.out.as_str()), (Some(0), "2\n"), "{next:?}");
    leading.tenure.signal(Signal::CONT);
    let ended = leading.tenure.end();
    assert_eq!(ended.code, Some(75), "{ended:?}");
    assert!(ended.err.contains("leadership lost"), "{ended:?}");
}

#[test]
fn a_hung_supervisor_loses_its_tree_before_its_lease_can_expire() {
    let leading = Leading::with("12s", "");
    let end = leading.stop_after_a_renewal();
    wait_for_death(&leading.tree);
    assert!(boot_time() < end, "{} ms late", (boot_time() - end) / 1_000_000);
}

#[test]
fn a_store_that_stops_answering_costs_the_leadership_before_the_lease_can_expire() {
    let leading = Leading::stubborn();
    leading.wait_for_renewal();
    // As a process that hangs in the middle of a write would.
    let elections = fs::File::open(leading.scene.path("store/elections")).unwrap();
    flock(&elections, FlockOperation::LockExclusive).unwrap();
    let end = leading.lease_end();
    wait_for_death(&leading.tree);
    assert!(boot_time() < end, "{} ms late", (boot_time() - end) / 1_000_000);
    let ended = leading.tenure.end();
    assert_eq!(ended.code, Some(75), "{ended:?}");
    assert!(ended.err.contains("leadership lost: the store did not answer"), "{ended:?}");
}

#[test]
fn a_hung_guardian_is_killed_with_the_tree() {
    let leading = Leading::with("5s", "yes");
    kill_process(leading.tenure.guardian(), Signal::STOP).unwrap();
    leading.tenure.signal(Signal::TERM);
    let ended = leading.tenure.end();
    assert_eq!(ended.code, Some(125), "{ended:?}");
    assert!(leading.tree.iter().all(|pid| !alive(*pid)));
    assert_eq!(leading.scene.state("job"), "free");
}

#[test]
fn a_tree_that_ignores_term_is_killed_after_the_grace_and_then_released() {
    let leading = Leading::with("2s", "yes");
    leading.tenure.signal(Signal::TERM);
    let ended = leading.tenure.end();
    assert_eq!(ended.code, Some(128 + 9), "{ended:?}");
    assert!(leading.tree.iter().all(|pid| !alive(*pid)));
    assert_eq!(leading.scene.state("job"), "free");
}

#[test]
fn a_second_interrupt_kills_at_once() {
    let scene = Scene::new();
    let script = r#"trap 'echo heard >> "$HEARD"' TERM INT; echo ready >> "$HEARD"
        while :; do sleep 0.05; done"#;
    let mut command = scene.tenure(&["run", "job", "--ttl", "10m", "--", "sh", "-c", script]);
    command.env("HEARD", scene.path("heard"));
    let tenure = Running::start(command);
    scene.lines("heard", 1);
    let begun = Instant::now();
    tenure.signal(Signal::INT);
    // Pending signals merge, so the second one must come after the first was passed on.
    scene.lines("heard", 2);
    tenure.signal(Signal::INT);
    let ended = tenure.end();
    assert_eq!(ended.code, Some(128 + 9), "{ended:?}");
    assert!(begun.elapsed() < Duration::from_secs(60), "the grace is 95 s");
}

#[test]
fn a_signal_to_the_whole_service_stops_it_gracefully() {
    let leading = Leading::with("30s", "");
    // As `systemctl stop` does it.
    for pid in [leading.tenure.guardian(), leading.tenure.pid()] {
        kill_process(pid, Signal::TERM).unwrap();
    }
    let ended = leading.tenure.end();
    assert_eq!(ended.code, Some(128 + 15), "{ended:?}");
    assert_eq!(leading.scene.state("job"), "free");
}

#[test]
fn what_a_child_leaves_behind_is_stopped_before_the_release() {
    let scene = Scene::new();
    let script = r#"(setsid sh -c 'echo $$ >> "$PIDS"; exec sleep 600' &)
        until [ -s "$PIDS" ]; do :; done; exit 3"#;
    let mut command = scene.tenure(&["run", "job", "--", "sh", "-c", script]);
    command.env("PIDS", scene.path("pids"));
    let ended = ran(command);
    assert_eq!(ended.code, Some(3), "{ended:?}");
    let left: i32 = scene.lines("pids", 1)[0].parse().unwrap();
    assert!(!alive(left));
    assert_eq!(scene.state("job"), "free");
}

#[test]
fn work_that_escaped_keeps_the_leadership_from_being_released() {
    let leading = Leading::with("30s", "");
    // The test takes a copy of the work file, which no process can do by itself.
    let child = Pid::from_raw(leading.tree[0]).unwrap();
    let pidfd = pidfd_open(child, PidfdFlags::empty()).unwrap();
    let is_work = |number: &i32| {
        let link = fs::read_link(format!("/proc/{}/fd/{number}", child.as_raw_nonzero()));
        link.is_ok_and(|link| link.to_string_lossy().contains("/presence/"))
    };
    let number = (0..64).find(is_work).expect("the child has the work file open");
    let Ok(_escaped) = pidfd_getfd(&pidfd, number, PidfdGetfdFlags::empty()) else {
        eprintln!("SKIPPED work_that_escaped_…: not allowed to take a descriptor");
        return;
    };
    leading.tenure.signal(Signal::TERM);
    let ended = leading.tenure.end();
    assert_eq!(ended.code, Some(128 + 15), "{ended:?}");
    assert!(ended.err.contains("has escaped"), "{ended:?}");
    assert_eq!(leading.scene.state("job"), "led", "until the lease has expired");
}

#[test]
fn a_child_holds_nothing_open_but_its_own_and_the_work_file() {
    let scene = Scene::new();
    let ended = ran(scene.tenure(&["run", "job", "--", "ls", "-l", "/proc/self/fd"]));
    let ours = scene.path("store");
    let is_ours = |line: &&str| {
        line.contains(ours.to_str().unwrap())
            || ["socket:", "anon_inode:", "timerfd"].iter().any(|kind| line.contains(kind))
    };
    let files: Vec<&str> = ended.out.lines().filter(is_ours).collect();
    assert_eq!(files.len(), 1, "{ended:?}");
    assert!(files[0].contains("/presence/"), "{ended:?}");
}

#[test]
fn a_child_begins_with_no_signal_blocked() {
    let scene = Scene::new();
    let ended = ran(scene.tenure(&["run", "job", "--", "cat", "/proc/self/status"]));
    assert!(ended.out.contains("SigBlk:\t0000000000000000"), "{ended:?}");
}

#[test]
fn standard_input_reaches_the_child() {
    let scene = Scene::new();
    let mut command = scene.tenure(&["run", "job", "--", "cat"]);
    command.stdin(Stdio::piped());
    let mut tenure = Running::start(command);
    let mut input = tenure.child().stdin.take().unwrap();
    input.write_all(b"to whom it may concern\n").unwrap();
    drop(input);
    let ended = tenure.end();
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "to whom it may concern\n"));
}

#[test]
fn a_gigabyte_of_output_comes_through() {
    let scene = Scene::new();
    let count = 1_000_000_000_u64.to_string();
    let command =
        scene.tenure(&["run", "job", "--ttl", "2s", "--", "head", "-c", &count, "/dev/zero"]);
    let mut tenure = Running::start(command);
    let mut output = tenure.child().stdout.take().unwrap();
    let (mut total, mut chunk) = (0, vec![0; 1 << 20]);
    loop {
        match output.read(&mut chunk).unwrap() {
            0 => break,
            read => total += read as u64,
        }
    }
    assert_eq!(total, 1_000_000_000);
    assert_eq!(tenure.end().code, Some(0));
}

#[test]
fn a_child_that_closes_its_output_goes_on() {
    let scene = Scene::new();
    let script = "exec >&- 2>&-; sleep 0.2; exit 9";
    assert_eq!(ran(scene.tenure(&["run", "job", "--", "sh", "-c", script])).code, Some(9));
}

#[test]
fn signals_are_passed_on() {
    let scene = Scene::new();
    let script = r#"for s in HUP USR2 WINCH; do trap "echo $s >> \"$HEARD\"" $s; done
        trap 'echo QUIT >> "$HEARD"; exit 4' QUIT
        echo ready >> "$HEARD"; while :; do sleep 0.01; done"#;
    let mut command = scene.tenure(&["run", "job", "--", "sh", "-c", script]);
    command.env("HEARD", scene.path("heard"));
    let tenure = Running::start(command);
    scene.lines("heard", 1);
    for (count, signal) in
        [(2, Signal::HUP), (3, Signal::USR2), (4, Signal::WINCH), (5, Signal::QUIT)]
    {
        tenure.signal(signal);
        scene.lines("heard", count);
    }
    assert_eq!(scene.lines("heard", 5), ["ready", "HUP", "USR2", "WINCH", "QUIT"]);
    assert_eq!(tenure.end().code, Some(4));
}

#[test]
fn usr1_steps_down_and_stands_again() {
    let scene = Scene::new();
    let script = r#"echo "$TENURE_TOKEN" >> "$LED"; exec sleep 600"#;
    let mut command = scene.tenure(&["run", "job", "--ttl", "2s", "--", "sh", "-c", script]);
    command.env("LED", scene.path("led"));
    let tenure = Running::start(command);
    scene.lines("led", 1);
    tenure.signal(Signal::USR1);
    assert_eq!(scene.lines("led", 2), ["1", "2"]);
    tenure.signal(Signal::TERM);
    assert_eq!(tenure.end().code, Some(128 + 15));
}

#[test]
fn an_interrupt_while_waiting_withdraws() {
    let scene = Scene::new();
    let _leader = Running::start(scene.tenure(&["run", "job", "--", "sleep", "600"]));
    scene.wait_for_state("job", "led");
    for signal in [Signal::TERM, Signal::INT] {
        let waiting = Running::start(scene.tenure(&["run", "job", "--", "false"]));
        let guardian = waiting.guardian();
        wait_for("it to stand", || {
            let listed = ran(scene.tenure(&["candidates", "job", "--json"]));
            let listed: serde_json::Value = serde_json::from_str(&listed.out).ok()?;
            (listed["candidates"].as_array()?.len() == 2).then_some(())
        });
        waiting.signal(signal);
        let ended = waiting.end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        wait_for_death(&[guardian.as_raw_nonzero().get()]);
    }
}

#[test]
fn with_keep_it_stands_again_when_the_child_has_ended() {
    let scene = Scene::new();
    let script = r#"echo "$TENURE_TOKEN" >> "$LED""#;
    let mut command =
        scene.tenure(&["run", "job", "--keep", "--ttl", "2s", "--", "sh", "-c", script]);
    command.env("LED", scene.path("led"));
    let tenure = Running::start(command);
    assert_eq!(scene.lines("led", 2), ["1", "2"]);
    tenure.signal(Signal::TERM);
    assert_eq!(tenure.end().code, Some(0));
}

#[test]
fn a_dead_candidate_leaves_no_process_behind() {
    let scene = Scene::new();
    let _leader = Running::start(scene.tenure(&["run", "job", "--", "sleep", "600"]));
    scene.wait_for_state("job", "led");
    let waiting = Running::start(scene.tenure(&["run", "job", "--", "false"]));
    let guardian = waiting.guardian();
    waiting.signal(Signal::KILL);
    wait_for_death(&[guardian.as_raw_nonzero().get()]);
}

#[test]
fn the_end_of_an_election_stops_the_work() {
    let leading = Leading::with("30s", "");
    assert_eq!(ran(leading.scene.tenure(&["end", "job"])).code, Some(0));
    let ended = leading.tenure.end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("the election has ended"), "{ended:?}");
    assert!(leading.tree.iter().all(|pid| !alive(*pid)));
}

#[test]
fn a_deleted_record_kills_the_tree_at_once() {
    // The grace is 95 s, and the store is polled every 30 s.
    let leading = Leading::with("10m", "yes");
    fs::remove_file(leading.scene.path("store/elections/job.json")).unwrap();
    let deleted = Instant::now();
    wait_for_death(&leading.tree);
    assert!(deleted.elapsed() < Duration::from_secs(20), "not for the grace, nor until a poll");
    let ended = leading.tenure.end();
    assert_eq!(ended.code, Some(75), "{ended:?}");
}

#[test]
fn a_command_at_a_terminal_has_it() {
    let scene = Scene::new();
    let line = format!(
        "{} run job --store {} -- sh -c 'read x; echo got $x; ps -o pgid=,tpgid= -p $$'",
        env!("CARGO_BIN_EXE_tenure"),
        scene.store()
    );
    let mut command = std::process::Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut terminal) = command.spawn() else {
        eprintln!("SKIPPED a_command_at_a_terminal_has_it: no script(1)");
        return;
    };
    let mut keyboard = terminal.stdin.take().unwrap();
    keyboard.write_all(b"hello\n").unwrap();
    let output = terminal.wait_with_output().unwrap();
    drop(keyboard);
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.contains("got hello"), "{shown:?}");
    let groups: Vec<&str> = shown.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(groups[0], groups[1], "its group is the terminal's: {shown:?}");
}

/// The last step before CMD asks the kernel to be killed with its guardian.
///
/// If the guardian died before that, the step has another parent, and no signal would ever come.
#[test]
fn cmd_is_not_begun_below_another_parent_than_its_guardian() {
    let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    ours.set_read_timeout(Some(support::PATIENCE)).unwrap();
    // The parent is this test; the step expects another process as its guardian.
    let mut stage = std::process::Command::new(env!("CARGO_BIN_EXE_tenure"))
        .args(["__stage", "1", "true"])
        .stdin(std::os::fd::OwnedFd::from(theirs))
        .spawn()
        .unwrap();
    let mut refusal = String::new();
    let read = std::io::BufRead::read_line(&mut std::io::BufReader::new(&mut ours), &mut refusal);
    let told = read.is_ok() && refusal.contains("the guardian is dead");
    drop(ours);
    let status = stage.wait().unwrap();
    assert!(told, "it waits for a word of a guardian that is not its parent: {refusal:?}");
    assert_eq!(status.code(), Some(125));
}

/// The guardian's own timing, without the supervisor. It kills a quarter of the grace before the
/// end.
#[test]
fn a_stubborn_tree_of_a_hung_supervisor_is_dead_before_the_lease_ends() {
    let leading = Leading::stubborn();
    let end = leading.stop_after_a_renewal();
    wait_for_death(&leading.tree);
    assert!(boot_time() < end, "{} ms late", (boot_time() - end) / 1_000_000);
}
