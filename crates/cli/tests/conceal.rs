//! No process of the same user, not even CMD, reads a store's password in `/proc`.
#![allow(clippy::unwrap_used)]

mod support;

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;

use rustix::process::{Signal, getuid};

use support::{Running, Scene, bare, ran, skip};

const CANARY: &str = "C4N4RY";

/// A script that prints the ancestors with the canary in their environment.
const SEARCH: &str = r#"process=$PPID
while [ "$process" -gt 1 ]; do
    grep -q C4N4RY "/proc/$process/environ" 2>/dev/null && echo "$(cat /proc/$process/comm) has it"
    process=$(sed 's/.*) . //' "/proc/$process/stat" | cut -d ' ' -f 1)
done; echo searched"#;

/// Every variable that may hold a password, with the canary in it.
fn variables() -> [(&'static str, String); 5] {
    let url = format!("etcd://u:{CANARY}@h");
    [
        ("TENURE_STORE_PASSWORD", CANARY.to_owned()),
        ("TENURE_STORE_API_KEY", CANARY.to_owned()),
        ("TENURE_STORE", url.clone()),
        ("TENURE_ETCD_MEMBERS", format!("a:1,{url}")),
        ("ELECTOR_ETCD_MEMBERS", format!("a:1,{url}")),
    ]
}

#[test]
fn no_ancestor_of_cmd_has_a_password_in_its_environment() {
    if !getuid().is_root() {
        // Without root CMD may not read there anyway, so the test would prove nothing.
        return skip("no_ancestor_of_cmd_has_a_password_…", "only root reads the environment");
    }
    let scene = Scene::new();
    let store = scene.store();
    fs::write(scene.path("items"), "one\n").unwrap();
    let items = scene.path("items");
    for (variable, value) in variables() {
        let mut command = bare(&["run", "job", "--store", &store, "--", "sh", "-c", SEARCH]);
        command.env(variable, value);
        let ended = ran(command);
        assert_eq!(
            (ended.code, ended.out.as_str()),
            (Some(0), "searched\n"),
            "{variable}: {ended:?}"
        );
    }
    let from = ["share", "group", "--store", &store, "--from", items.to_str().unwrap()];
    let script = format!("({SEARCH}) > \"$FOUND\"");
    let mut command = bare(&[&from[..], &["--", "sh", "-c", &script]].concat());
    for (variable, value) in variables() {
        command.env(variable, value);
    }
    command.env("FOUND", scene.path("found"));
    let ended = ran(command);
    assert_eq!((ended.code, scene.read("found").as_str()), (Some(0), "searched\n"), "{ended:?}");
}

#[test]
fn commands_that_run_for_long_have_no_password_in_their_environment_either() {
    if !getuid().is_root() {
        return skip("commands_that_run_for_long_…", "only root reads the environment");
    }
    let scene = Scene::new();
    assert_eq!(ran(scene.tenure(&["create", "job"])).code, Some(0));
    let store = scene.store();
    for line in [vec!["watch", "job", "--store", &store], vec!["feed", "--store", "memory:"]] {
        let mut command = bare(&line);
        for (variable, value) in variables() {
            command.env(variable, value);
        }
        let mut running = Running::start(command);
        // The program prints something only after it has started itself again.
        let mut told = [0];
        running.child().stdout.as_mut().unwrap().read_exact(&mut told).unwrap();
        let environment = format!("/proc/{}/environ", running.pid().as_raw_nonzero());
        let environment = String::from_utf8(fs::read(environment).unwrap()).unwrap();
        assert!(environment.contains("XDG_CONFIG_HOME="), "{line:?}: {environment}");
        assert!(!environment.contains(CANARY), "{line:?}: {environment}");
        running.signal(Signal::TERM);
        assert_eq!(running.end().code, Some(0), "{line:?}");
    }
}

#[test]
fn a_password_that_is_no_text_is_refused_and_not_passed_over() {
    let canary = [CANARY.as_bytes(), b"\xff"].concat();
    for variable in ["TENURE_STORE_PASSWORD", "TENURE_STORE_API_KEY", "ELECTOR_ETCD_MEMBERS"] {
        for line in [&["run", "job", "--", "true"][..], &["who", "job"]] {
            let mut command = bare(line);
            command.env(variable, OsStr::from_bytes(&canary));
            let ended = ran(command);
            assert_eq!(ended.code, Some(78), "{variable}: {ended:?}");
            let says = format!("the value of {variable} is not valid UTF-8");
            assert!(ended.err.contains(&says) && !ended.err.contains(CANARY), "{ended:?}");
        }
    }
}

#[test]
fn a_url_that_left_the_environment_is_still_the_store() {
    let mut command = bare(&["run", "job", "--dry-run", "--", "true"]);
    command.env("TENURE_STORE", format!("etcd://root:{CANARY}@127.0.0.1:1/below"));
    let ended = ran(command);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.out.contains("at etcd://127.0.0.1:1/below"), "{ended:?}");
    assert!(!ended.out.contains(CANARY), "{ended:?}");
    // A flag wins over a variable, even if the variable was taken out of the environment.
    let scene = Scene::new();
    let store = scene.store();
    let mut command = bare(&["run", "job", "--store", &store, "--", "true"]);
    command.env("TENURE_STORE", format!("etcd://root:{CANARY}@127.0.0.1:1/below"));
    assert_eq!(ran(command).code, Some(0));
}

#[test]
fn a_password_that_left_the_environment_is_still_used() {
    // The election's name is a word that makes the program start itself again. No server listens at
    // that port; without a password no request is sent at all.
    let line = ["who", "run", "--ttl", "1s", "--store", "etcd://root@127.0.0.1:1"];
    let missing = "nor TENURE_STORE_PASSWORD a password";
    let without = ran(bare(&line));
    assert!(without.err.contains(missing), "{without:?}");
    let mut command = bare(&line);
    command.env("TENURE_STORE_PASSWORD", CANARY);
    let with = ran(command);
    assert_eq!(with.code, Some(69), "{with:?}");
    assert!(!with.err.contains(missing) && !with.err.contains(CANARY), "{with:?}");
}

#[test]
fn a_cmd_of_the_same_user_reads_no_environment_of_its_guards() {
    let test = "a_cmd_of_the_same_user_reads_no_environment_of_its_guards";
    if !getuid().is_root() {
        return skip(test, "only root starts processes of other users");
    }
    let scene = Scene::new();
    scene.admit_stranger();
    let script = r#"process=$PPID
        for guard in guardian supervisor; do
            cat "/proc/$process/environ" > /dev/null 2>&1 && echo "$guard can be read"
            process=$(sed 's/.*) . //' "/proc/$process/stat" | cut -d ' ' -f 1)
        done; cat "/proc/$$/environ" > /dev/null && echo looked"#;
    let command = scene.tenure_of_stranger(&["run", "job", "--", "sh", "-c", script]);
    let ended = ran(command);
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "looked\n"), "{ended:?}");
}
