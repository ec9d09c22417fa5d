//! Work that an earlier leader left behind. The next leader kills it, or starts nothing.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, Signal, getuid, kill_process, pidfd_getfd, pidfd_open,
};
use serde_json::json;

use support::{
    Ran, Running, STRANGER, Scene, Stopped, alive, as_stranger, ran, skip, user_of, wait_for,
    wait_for_death,
};

/// A script that writes down its process id.
const ALONE: &str = r#"echo $$ >> "$PIDS"; exec sleep 600"#;

/// The same. It also starts a process that leaves its parent, its group and its session.
const WORK: &str = r#"(setsid sh -c 'echo $$ >> "$PIDS"; exec sleep 600' &)
echo $$ >> "$PIDS"; exec sleep 600"#;

/// A leader with running work.
struct Leading {
    tenure: Running,
    work: Vec<i32>,
}

impl Leading {
    fn with(scene: &Scene, script: &str, processes: usize) -> Leading {
        let mut command = scene.tenure(&["run", "job", "--ttl", "4s", "--", "sh", "-c", script]);
        command.env("PIDS", scene.path("pids"));
        let tenure = Running::start(command);
        Leading { tenure, work: numbers(scene, processes) }
    }

    /// Kills the supervisor and the guardian. Both are stopped first, so that neither can react.
    fn kill_both_guards(&self) {
        let guardian = self.tenure.guardian();
        kill_process(guardian, Signal::STOP).unwrap();
        self.tenure.signal(Signal::STOP);
        self.tenure.signal(Signal::KILL);
        kill_process(guardian, Signal::KILL).unwrap();
    }
}

/// The process ids that the work wrote down.
fn numbers(scene: &Scene, count: usize) -> Vec<i32> {
    scene.lines("pids", count).iter().map(|pid| pid.parse().unwrap()).collect()
}

/// A process that is killed when the test ends.
struct Bystander(Child);

impl Bystander {
    fn start(mut command: Command) -> Bystander {
        Bystander(command.stdout(Stdio::null()).spawn().unwrap())
    }

    fn lives(&self) -> bool {
        alive(i32::try_from(self.0.id()).unwrap())
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The number of the work file's descriptor in a process, and the file's path.
fn work_file(process: i32) -> (i32, PathBuf) {
    wait_for("the work file", || {
        (0..64).find_map(|number| {
            let link = fs::read_link(format!("/proc/{process}/fd/{number}")).ok()?;
            link.to_string_lossy().contains("/presence/").then_some((number, link))
        })
    })
}

/// A copy of the process's descriptor of the work file. `None` where that is not allowed.
fn take_work(process: i32) -> Option<OwnedFd> {
    let pidfd = pidfd_open(Pid::from_raw(process).unwrap(), PidfdFlags::empty()).unwrap();
    pidfd_getfd(&pidfd, work_file(process).0, PidfdGetfdFlags::empty()).ok()
}

/// The way in which a forged control group does harm.
#[derive(Clone, Copy, Debug)]
enum Trap {
    /// `cgroup.kill` is a link to a file of another user.
    Link,
    /// `cgroup.procs` names a process of another user.
    Number,
}

/// A directory that looks like a control group of ours.
fn forged_group(scene: &Scene, trap: Trap, victim: &Bystander) -> PathBuf {
    let group = scene.path(&format!("tenure-{trap:?}"));
    fs::create_dir(&group).unwrap();
    fs::write(group.join("cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
    fs::write(group.join("cgroup.procs"), format!("{}\n", victim.0.id())).unwrap();
    match trap {
        Trap::Link => symlink(scene.path("precious"), group.join("cgroup.kill")).unwrap(),
        Trap::Number => fs::create_dir(group.join("cgroup.kill")).unwrap(),
    }
    group
}

/// Writes a description of dead work of `job` through an inherited work file.
///
/// The process needs no privilege for that: it has the descriptor, and knows the file by `fstat`.
fn forge(process: i32, group: &Path) -> bool {
    let Some(work) = take_work(process) else { return false };
    let name = work_file(process).1.file_name().unwrap().to_str().unwrap().to_owned();
    let found = fs::metadata(work_file(process).1).unwrap();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let (device, inode) = (found.dev().to_string(), found.ino().to_string());
    let text = json!({
        "boot": boot.trim(),
        "pidns": fs::metadata("/proc/self/ns/pid").unwrap().ino().to_string(),
        // Above every process id of this machine.
        "pid": i32::MAX,
        "start": "1",
        "file": name, "dev": device, "ino": inode,
        "work": name, "work_dev": device, "work_ino": inode,
        "election": "job",
        "cgroup": group,
    });
    rustix::fs::ftruncate(&work, 0).unwrap();
    rustix::io::pwrite(&work, text.to_string().as_bytes(), 0).unwrap();
    true
}

/// Runs the next leader of `job`, after this work was killed with its guards.
fn next_after_forgery(scene: &Scene, trap: Trap, work: i32, kill: impl FnOnce()) -> Option<Ran> {
    let victim = {
        let mut sleep = Command::new("sleep");
        sleep.arg("600");
        Bystander::start(sleep)
    };
    fs::write(scene.path("precious"), "precious").unwrap();
    if !forge(work, &forged_group(scene, trap, &victim)) {
        return None;
    }
    kill();
    wait_for_death(&[work]);
    let next = ran(scene.tenure(&["run", "job", "--", "true"]));
    assert_eq!(scene.read("precious"), "precious", "{trap:?}: {next:?}");
    assert!(victim.lives(), "{trap:?}: {next:?}");
    Some(next)
}

#[test]
fn what_cmd_writes_into_its_work_file_is_believed_by_no_leader() {
    for trap in [Trap::Link, Trap::Number] {
        let scene = Scene::new();
        let leading = Leading::with(&scene, ALONE, 1);
        let next = next_after_forgery(&scene, trap, leading.work[0], || leading.kill_both_guards());
        let Some(next) = next else {
            return skip(
                "what_cmd_writes_into_its_work_file_…",
                "not allowed to take a descriptor",
            );
        };
        assert_eq!(next.code, Some(0), "{trap:?}: {next:?}");
    }
}

#[test]
fn what_a_shared_cmd_writes_into_its_work_file_is_believed_by_no_leader() {
    for trap in [Trap::Link, Trap::Number] {
        let scene = Scene::new();
        fs::write(scene.path("items"), "one\n").unwrap();
        let items = scene.path("items");
        let line = ["share", "group", "--from", items.to_str().unwrap(), "--", "sh", "-c", ALONE];
        let mut command = scene.tenure(&line);
        command.env("PIDS", scene.path("pids"));
        let sharing = Running::start_quietly(command);
        let work = numbers(&scene, 1)[0];
        let next = next_after_forgery(&scene, trap, work, || sharing.signal(Signal::KILL));
        let Some(next) = next else {
            return skip("what_a_shared_cmd_writes_…", "not allowed to take a descriptor");
        };
        assert_eq!(next.code, Some(0), "{trap:?}: {next:?}");
    }
}

#[test]
fn a_process_that_only_reads_the_work_file_is_left_alone() {
    let scene = Scene::new();
    let leading = Leading::with(&scene, WORK, 2);
    // As a backup program would.
    let mut reader = Command::new("sleep");
    reader.arg("600").stdin(fs::File::open(work_file(leading.work[0]).1).unwrap());
    let reader = Bystander::start(reader);
    leading.kill_both_guards();
    let next = ran(scene.tenure(&["run", "job", "--", "true"]));
    assert_eq!(next.code, Some(0), "{next:?}");
    assert!(leading.work.iter().all(|pid| !alive(*pid)), "holders of the lock are killed");
    assert!(reader.lives(), "{next:?}");
}

#[test]
fn a_holder_that_is_another_users_is_not_killed_and_nothing_is_started() {
    let name = "a_holder_that_is_another_users_…";
    if !getuid().is_root() {
        return skip(name, "only root starts processes of other users");
    }
    let scene = Scene::new();
    let leading = Leading::with(&scene, WORK, 2);
    let Some(work) = take_work(leading.work[0]) else {
        return skip(name, "not allowed to take a descriptor");
    };
    // This process was handed the descriptor, so it holds the lock. It is in no control group of
    // the work.
    let mut holder = as_stranger(Path::new("sleep"));
    holder.arg("600").stdin(work);
    let holder = Bystander::start(holder);
    wait_for("the other user", || (user_of(holder.0.id())? == STRANGER).then_some(()));
    leading.kill_both_guards();
    let script = r#"echo started >> "$STARTED""#;
    let mut command = scene.tenure(&["run", "job", "--", "sh", "-c", script]);
    command.env("STARTED", scene.path("started"));
    let next = ran(command);
    assert_eq!(next.code, Some(125), "{next:?}");
    assert!(next.err.contains(&holder.0.id().to_string()), "it names the process: {next:?}");
    assert!(holder.lives() && !scene.path("started").exists(), "{next:?}");
    assert_eq!(scene.state("job"), "free", "it has resigned");
}

/// Returns true if this process is in a control group that tenure made.
fn has_group(process: i32) -> bool {
    let groups = fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap_or_default();
    groups.lines().any(|line| line.starts_with("0::") && line.contains("/tenure-"))
}

/// Runs the next leader of `job`. Its work reports which of these processes live, and leaves a
/// file.
fn next_beside(scene: &Scene, processes: &[i32]) -> Ran {
    let script = r#"echo started >> "$STARTED"
        for pid in $WORK; do case $(sed -n 's/^State:.//p' "/proc/$pid/status" 2>/dev/null) in
        ""|Z*) ;; *) echo "$pid lives" ;; esac; done; echo looked"#;
    let mut command = scene.tenure(&["run", "job", "--", "sh", "-c", script]);
    let work: Vec<String> = processes.iter().map(ToString::to_string).collect();
    command.env("STARTED", scene.path("started")).env("WORK", work.join(" "));
    ran(command)
}

#[test]
fn work_that_closed_the_work_file_is_killed_by_its_control_group_before_the_next_starts() {
    let scene = Scene::new();
    let script = r#"(setsid sh -c 'for fd in 3 4 5 6 7 8 9; do eval "exec $fd>&-"; done
        echo $$ >> "$PIDS"; exec sleep 600' &)
        until [ -s "$PIDS" ]; do sleep 0.01; done; echo $$ >> "$PIDS"; exec sleep 600"#;
    let leading = Leading::with(&scene, script, 2);
    let hidden = leading.work[0];
    if !has_group(hidden) {
        return skip("work_that_closed_the_work_file_…", "no control group may be made here");
    }
    let open = fs::read_dir(format!("/proc/{hidden}/fd")).unwrap().flatten();
    let has_work = |path: PathBuf| path.to_string_lossy().contains("/presence/");
    assert!(!open.flat_map(|entry| fs::read_link(entry.path())).any(has_work), "it closed them");
    leading.kill_both_guards();
    let next = next_beside(&scene, &[hidden]);
    assert_eq!((next.code, next.out.as_str()), (Some(0), "looked\n"), "{next:?}");
    assert!(!alive(hidden));
}

/// A starter that only hangs may go on at any moment, and stop its work itself.
#[test]
fn work_whose_starter_is_not_proven_dead_is_not_killed_and_nothing_is_started() {
    let scene = Scene::new();
    let leading = Leading::with(&scene, WORK, 2);
    let guardian = Stopped::new(leading.tenure.guardian());
    let supervisor = Stopped::new(leading.tenure.pid());
    let next = next_beside(&scene, &[]);
    assert_eq!(next.code, Some(125), "{next:?}");
    assert!(leading.work.iter().all(|pid| alive(*pid)), "{next:?}");
    assert!(!scene.path("started").exists(), "{next:?}");
    drop((guardian, supervisor));
    let ended = leading.tenure.end();
    assert_eq!(ended.code, Some(75), "{ended:?}");
    wait_for_death(&leading.work);
}

/// Issue 13, 5: CMD could have root's services killed. An unprivileged CMD of a root leader had to
/// hand them the descriptor.
#[test]
fn a_holder_outside_of_the_works_control_group_is_not_killed_and_nothing_is_started() {
    let name = "a_holder_outside_of_the_works_control_group_…";
    let scene = Scene::new();
    let leading = Leading::with(&scene, WORK, 2);
    if !has_group(leading.work[0]) {
        return skip(name, "no control group may be made here");
    }
    let Some(work) = take_work(leading.work[0]) else {
        return skip(name, "not allowed to take a descriptor");
    };
    let mut holder = Command::new("sleep");
    holder.arg("600").stdin(work);
    let holder = Bystander::start(holder);
    leading.kill_both_guards();
    let next = next_beside(&scene, &[]);
    assert_eq!(next.code, Some(125), "{next:?}");
    assert!(next.err.contains(&holder.0.id().to_string()), "it names the process: {next:?}");
    assert!(holder.lives() && !scene.path("started").exists(), "{next:?}");
    wait_for_death(&leading.work);
}

#[test]
fn without_a_control_group_holders_of_the_lock_are_killed() {
    let name = "without_a_control_group_…";
    if !getuid().is_root() {
        return skip(name, "this user's other tests show it where no group may be made");
    }
    let scene = Scene::new();
    scene.admit_stranger();
    let line = ["run", "job", "--ttl", "4s", "--", "sh", "-c", WORK];
    let mut command = scene.tenure_of_stranger(&line);
    command.env("PIDS", scene.path("home/pids"));
    let tenure = Running::start(command);
    let numbers = scene.lines("home/pids", 2);
    let work = numbers.iter().map(|pid| pid.parse().unwrap()).collect();
    let leading = Leading { tenure, work };
    if has_group(leading.work[0]) {
        return skip(name, "another user may make control groups here");
    }
    leading.kill_both_guards();
    let next = ran(scene.tenure_of_stranger(&["run", "job", "--", "true"]));
    assert_eq!(next.code, Some(0), "{next:?}");
    assert!(leading.work.iter().all(|pid| !alive(*pid)), "{next:?}");
}
