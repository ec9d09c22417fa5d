//! CMD and setuid programs.
//!
//! Guards may not kill such work, and a CMD can be kept from new privileges.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal, getuid, kill_process};

use support::{Running, Scene, alive, as_stranger, ran, skip, user_of, wait_for};

/// An unprivileged tenure, and a program that makes its child a process of root.
struct Unprivileged {
    scene: Scene,
}

impl Unprivileged {
    /// The error says why this test cannot run.
    fn new() -> Result<Unprivileged, &'static str> {
        if !getuid().is_root() {
            return Err("only root makes setuid programs of root's");
        }
        let scene = Scene::new();
        scene.admit_stranger();
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
        let mut run =
            scene.tenure_of_stranger(&[&["run", "job"], flags, &["--"], command].concat());
        run.env("STARTED", scene.path("home/started")).env("PIDS", scene.path("pids"));
        run
    }

    /// A leader with work that belongs to root.
    fn leader(&self) -> (Running, i32) {
        let become_root = self.scene.path("become");
        let script = r#"trap "" TERM; echo $$ >> "$PIDS"; exec sleep 600"#;
        let work = ["--reuid", "0", "--regid", "0", "--clear-groups", "sh", "-c", script];
        let command = [&[become_root.to_str().unwrap()], work.as_slice()].concat();
        let leader = Running::start(self.run(&["--ttl", "4s"], &command));
        let work = self.scene.lines("pids", 1)[0].parse().unwrap();
        assert_eq!(user_of(u32::try_from(work).unwrap()), Some(0));
        (leader, work)
    }

    fn who(&self) -> serde_json::Value {
        let who = self.scene.tenure_of_stranger(&["who", "job", "--json"]);
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
    // The guardian acts when the lease ends, but may not kill.
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

/// The kernel's flag that says whether CMD may gain privileges.
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
