//! Work that an earlier leader left behind: the next leader kills it, or starts nothing.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, Signal, getuid, kill_process, pidfd_getfd, pidfd_open,
};
use serde_json::json;

use support::{Ran, Running, Scene, alive, ran, wait_for, wait_for_death};

/// A user that owns nothing here.
const STRANGER: u32 = 65534;

/// Writes its number down.
const ALONE: &str = r#"echo $$ >> "$PIDS"; exec sleep 600"#;

/// The same, and starts a process that leaves its parent, its group and its session.
const WORK: &str = r#"(setsid sh -c 'echo $$ >> "$PIDS"; exec sleep 600' &)
echo $$ >> "$PIDS"; exec sleep 600"#;

/// A leader whose work runs.
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

    /// Kills the supervisor and the guardian. Stopped first, neither can act on the other's death.
    fn kill_both_guards(&self) {
        let guardian = self.tenure.guardian();
        kill_process(guardian, Signal::STOP).unwrap();
        self.tenure.signal(Signal::STOP);
        self.tenure.signal(Signal::KILL);
        kill_process(guardian, Signal::KILL).unwrap();
    }
}

/// Process numbers that the work wrote down.
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

/// The number of the work file's descriptor in a process, and the file.
fn work_file(process: i32) -> (i32, PathBuf) {
    wait_for("the work file", || {
        (0..64).find_map(|number| {
            let link = fs::read_link(format!("/proc/{process}/fd/{number}")).ok()?;
            link.to_string_lossy().contains("/presence/").then_some((number, link))
        })
    })
}

/// A copy of the work file's descriptor, as the process has it. `None` where that is not allowed.
fn take_work(process: i32) -> Option<OwnedFd> {
    let pidfd = pidfd_open(Pid::from_raw(process).unwrap(), PidfdFlags::empty()).unwrap();
    pidfd_getfd(&pidfd, work_file(process).0, PidfdGetfdFlags::empty()).ok()
}

fn skip(test: &str, why: &str) {
    eprintln!("SKIPPED {test}: {why}");
}

/// How a forged control group leads astray.
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

/// Writes a description of dead work of `job` through the work file that a process inherited. The
/// process needs no privilege for it: it has the descriptor, and knows the file by `fstat`.
fn forge(process: i32, group: &Path) -> bool {
    let Some(work) = take_work(process) else { return false };
    let name = work_file(process).1.file_name().unwrap().to_str().unwrap().to_owned();
    let found = fs::metadata(work_file(process).1).unwrap();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let (device, inode) = (found.dev().to_string(), found.ino().to_string());
    let text = json!({
        "boot": boot.trim(),
        "pidns": fs::metadata("/proc/self/ns/pid").unwrap().ino().to_string(),
        // Above every number that this machine gives to a process.
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

/// The next leader of `job`, after this work was killed with its guards.
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
    // It was handed the descriptor, so it holds the lock; it is in no control group of the work.
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

fn user_of(process: u32) -> Option<u32> {
    fs::metadata(format!("/proc/{process}")).ok().map(|found| found.uid())
}

/// A program, run as another user.
fn as_stranger(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    let user = STRANGER.to_string();
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]).arg(program);
    command
}

/// An unprivileged tenure, and a program that makes its child root's.
struct Unprivileged {
    scene: Scene,
}

impl Unprivileged {
    /// `Err` says why there can be none.
    fn new() -> Result<Unprivileged, &'static str> {
        if !getuid().is_root() {
            return Err("only root makes setuid programs of root's");
        }
        let scene = Scene::new();
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(scene.path(""), open).unwrap();
        fs::create_dir(scene.path("home")).unwrap();
        chown(scene.path("home"), Some(STRANGER), Some(STRANGER)).unwrap();
        // The build directory may lie where another user cannot go.
        fs::copy(env!("CARGO_BIN_EXE_tenure"), scene.path("tenure")).unwrap();
        let Some(setpriv) = ["/usr/bin/setpriv", "/bin/setpriv"]
            .iter()
            .find_map(|path| Path::new(path).exists().then_some(Path::new(path)))
        else {
            return Err("no setpriv(1)");
        };
        fs::copy(setpriv, scene.path("become")).unwrap();
        let setuid = fs::Permissions::from_mode(0o4755);
        fs::set_permissions(scene.path("become"), setuid).unwrap();
        let unprivileged = Unprivileged { scene };
        let mut whoami = as_stranger(&unprivileged.scene.path("become"));
        whoami.args(["--reuid", "0", "--regid", "0", "--clear-groups", "id", "-u"]);
        match ran(whoami).out.as_str() {
            "0\n" => Ok(unprivileged),
            _ => Err("setuid programs do not work here (nosuid)"),
        }
    }

    fn run(&self, flags: &[&str], command: &[&str]) -> Command {
        let scene = &self.scene;
        let mut run = as_stranger(&scene.path("tenure"));
        let store = format!("file://{}", scene.path("home/store").display());
        run.args(["run", "job", "--store", &store]).args(flags).arg("--");
        run.args(command).stdin(Stdio::null());
        run.env("XDG_CONFIG_HOME", "/nonexistent").env_remove("TENURE_STORE");
        run.env("STARTED", scene.path("home/started")).env("PIDS", scene.path("pids"));
        run
    }

    /// A leader whose work is root's.
    fn leader(&self) -> (Running, i32) {
        let become_root = self.scene.path("become");
        let script = r#"trap "" TERM; echo $$ >> "$PIDS"; exec sleep 600"#;
        let work = ["--reuid", "0", "--regid", "0", "--clear-groups", "sh", "-c", script];
        let command = [&[become_root.to_str().unwrap()], work.as_slice()].concat();
        let leader = Running::start(self.run(&["--ttl", "4s"], &command));
        let work = numbers(&self.scene, 1)[0];
        assert_eq!(user_of(u32::try_from(work).unwrap()), Some(0));
        (leader, work)
    }

    fn who(&self) -> serde_json::Value {
        let mut who = as_stranger(&self.scene.path("tenure"));
        let store = format!("file://{}", self.scene.path("home/store").display());
        who.args(["who", "job", "--json", "--store", &store]);
        serde_json::from_str(&ran(who).out).unwrap()
    }
}

fn kill(process: i32) {
    kill_process(Pid::from_raw(process).unwrap(), Signal::KILL).unwrap();
}

/// The CMD of a leader that must not start it yet.
const START: [&str; 3] = ["sh", "-c", r#"echo "$TENURE_TOKEN" >> "$STARTED"; exec sleep 600"#];

#[test]
fn nothing_is_started_while_work_that_no_guardian_could_kill_is_there() {
    let unprivileged = match Unprivileged::new() {
        Ok(unprivileged) => unprivileged,
        Err(why) => return skip("nothing_is_started_while_work_…", why),
    };
    let (leader, work) = unprivileged.leader();
    // Its guardian notices when the lease ends, and may not kill.
    leader.signal(Signal::STOP);
    let next = ran(unprivileged.run(&[], &START));
    assert_eq!(next.code, Some(125), "{next:?}");
    let whose = format!("process {}, token 1", leader.pid().as_raw_nonzero());
    assert!(next.err.contains(&whose), "it names the leader: {next:?}");
    assert!(!unprivileged.scene.path("home/started").exists(), "{next:?}");
    assert!(alive(work));
    assert_eq!(unprivileged.who()["state"], "free", "it has resigned");
    kill(work);
    leader.resume();
    let ended = leader.end();
    assert_eq!(ended.code, Some(75), "{ended:?}");
    let after = Running::start(unprivileged.run(&[], &START));
    unprivileged.scene.lines("home/started", 1);
    after.signal(Signal::TERM);
    assert_eq!(after.end().code, Some(128 + 15));
}

#[test]
fn with_keep_it_stands_again_until_work_that_no_guardian_could_kill_has_ended() {
    let unprivileged = match Unprivileged::new() {
        Ok(unprivileged) => unprivileged,
        Err(why) => return skip("with_keep_it_stands_again_until_…", why),
    };
    let (leader, work) = unprivileged.leader();
    leader.signal(Signal::STOP);
    let next = Running::start(unprivileged.run(&["--keep"], &START));
    wait_for("a leader that resigns", || {
        let who = unprivileged.who();
        (who["state"] == "free" && who["token"].as_u64()? >= 2).then_some(())
    });
    assert!(alive(work) && !unprivileged.scene.path("home/started").exists());
    kill(work);
    unprivileged.scene.lines("home/started", 1);
    next.signal(Signal::TERM);
    let ended = next.end();
    assert_eq!(ended.code, Some(128 + 15), "{ended:?}");
    assert!(ended.err.contains("standing again in 1.0 s"), "{ended:?}");
}

/// A leader whose guardian hangs when the store stops answering; the lock that makes it so.
fn losing_with_a_hung_guardian(scene: &Scene, flags: &[&str]) -> (Running, fs::File) {
    let script = r#"trap "" TERM; echo "$TENURE_TOKEN" >> "$LED"; exec sleep 600"#;
    let line = [&["run", "job", "--ttl", "4s"], flags, &["--", "sh", "-c", script]].concat();
    let mut command = scene.tenure(&line);
    command.env("LED", scene.path("led"));
    let tenure = Running::start(command);
    scene.lines("led", 1);
    kill_process(tenure.guardian(), Signal::STOP).unwrap();
    let elections = fs::File::open(scene.path("store/elections")).unwrap();
    flock(&elections, FlockOperation::LockExclusive).unwrap();
    (tenure, elections)
}

#[test]
fn a_lost_lease_stays_lost_when_the_guardian_is_slow() {
    let scene = Scene::new();
    let (tenure, _locked) = losing_with_a_hung_guardian(&scene, &[]);
    let ended = tenure.end();
    assert_eq!(ended.code, Some(75), "{ended:?}");
    assert!(ended.err.contains("leadership lost"), "{ended:?}");
}

#[test]
fn with_keep_a_lost_lease_and_a_slow_guardian_do_not_end_the_candidacy() {
    let scene = Scene::new();
    let (tenure, locked) = losing_with_a_hung_guardian(&scene, &["--keep"]);
    let guardian = tenure.guardian();
    wait_for_death(&[guardian.as_raw_nonzero().get()]);
    drop(locked);
    assert_eq!(scene.lines("led", 2), ["1", "2"]);
}

/// Whether a process that CMD is may gain privileges.
fn new_privileges(command: Command) -> String {
    let ran = ran(command);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let line = ran.out.lines().find_map(|line| line.strip_prefix("NoNewPrivs:\t"));
    line.unwrap_or_else(|| panic!("{ran:?}")).to_owned()
}

#[test]
fn a_cmd_without_new_privileges_gains_none_by_setuid_programs() {
    let scene = Scene::new();
    let status = ["--", "cat", "/proc/self/status"];
    let run = |flags: &[&str]| scene.tenure(&[&["run", "job"], flags, &status].concat());
    assert_eq!(new_privileges(run(&[])), "0");
    assert_eq!(new_privileges(run(&["--no-new-privs"])), "1");
    let mut command = run(&[]);
    command.env("TENURE_NO_NEW_PRIVS", "yes");
    assert_eq!(new_privileges(command), "1");
}

#[test]
fn a_shared_cmd_without_new_privileges_gains_none_by_setuid_programs() {
    let scene = Scene::new();
    fs::write(scene.path("items"), "one\n").unwrap();
    let items = scene.path("items");
    let script = r#"grep NoNewPrivs /proc/self/status >> "$SEEN""#;
    for (group, flags, seen) in [("a", &[][..], "0"), ("b", &["--no-new-privs"], "1")] {
        let from = ["share", group, "--from", items.to_str().unwrap()];
        let mut command = scene.tenure(&[&from, flags, &["--", "sh", "-c", script]].concat());
        command.env("SEEN", scene.path(group));
        let ended = ran(command);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(scene.lines(group, 1), [format!("NoNewPrivs:\t{seen}")]);
    }
}
