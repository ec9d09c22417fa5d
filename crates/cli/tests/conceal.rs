//! No process of the same user, CMD least of all, reads a store's password out of `/proc`.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

use rustix::process::getuid;

use support::{Scene, bare, ran};

const CANARY: &str = "C4N4RY";
/// A user that owns nothing here.
const STRANGER: u32 = 65534;

/// Prints the ancestors whose environment has the canary in it.
const SEARCH: &str = r#"process=$PPID
while [ "$process" -gt 1 ]; do
    grep -q C4N4RY "/proc/$process/environ" 2>/dev/null && echo "$(cat /proc/$process/comm) has it"
    process=$(sed 's/.*) . //' "/proc/$process/stat" | cut -d ' ' -f 1)
done; echo searched"#;

#[test]
fn no_ancestor_of_cmd_has_a_password_in_its_environment() {
    let scene = Scene::new();
    fs::write(scene.path("items"), "one\n").unwrap();
    let items = scene.path("items");
    for variable in ["TENURE_STORE_PASSWORD", "TENURE_STORE_API_KEY"] {
        let mut command = scene.tenure(&["run", "job", "--", "sh", "-c", SEARCH]);
        command.env(variable, CANARY);
        let ended = ran(command);
        assert_eq!(
            (ended.code, ended.out.as_str()),
            (Some(0), "searched\n"),
            "{variable}: {ended:?}"
        );
    }
    let from = ["share", "group", "--from", items.to_str().unwrap()];
    let script = format!("({SEARCH}) > \"$FOUND\"");
    let mut command = scene.tenure(&[&from[..], &["--", "sh", "-c", &script]].concat());
    command.env("TENURE_STORE_PASSWORD", CANARY).env("FOUND", scene.path("found"));
    let ended = ran(command);
    assert_eq!((ended.code, scene.read("found").as_str()), (Some(0), "searched\n"), "{ended:?}");
}

#[test]
fn a_url_that_left_the_environment_is_still_the_store() {
    let mut command = bare(&["run", "job", "--dry-run", "--", "true"]);
    command.env("TENURE_STORE", format!("etcd://root:{CANARY}@127.0.0.1:1/below"));
    let ended = ran(command);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.out.contains("at etcd://127.0.0.1:1/below"), "{ended:?}");
    assert!(!ended.out.contains(CANARY), "{ended:?}");
    // A flag is closer at hand than a variable, wherever that went.
    let scene = Scene::new();
    let store = scene.store();
    let mut command = bare(&["run", "job", "--store", &store, "--", "true"]);
    command.env("TENURE_STORE", format!("etcd://root:{CANARY}@127.0.0.1:1/below"));
    assert_eq!(ran(command).code, Some(0));
}

#[test]
fn a_password_that_left_the_environment_is_still_used() {
    // The name of the election is a word that has the program start itself again. Nothing listens at
    // that port; without a password nothing is asked there at all.
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
        return eprintln!("SKIPPED {test}: only root starts processes of other users");
    }
    let scene = Scene::new();
    fs::set_permissions(scene.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(scene.path("home")).unwrap();
    chown(scene.path("home"), Some(STRANGER), Some(STRANGER)).unwrap();
    // The build directory may lie where another user cannot go.
    fs::copy(env!("CARGO_BIN_EXE_tenure"), scene.path("tenure")).unwrap();
    let script = r#"process=$PPID
        for guard in guardian supervisor; do
            cat "/proc/$process/environ" > /dev/null 2>&1 && echo "$guard can be read"
            process=$(sed 's/.*) . //' "/proc/$process/stat" | cut -d ' ' -f 1)
        done; cat "/proc/$$/environ" > /dev/null && echo looked"#;
    let user = STRANGER.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]).arg(scene.path("tenure"));
    let store = format!("file://{}", scene.path("home/store").display());
    command.args(["run", "job", "--store", &store, "--", "sh", "-c", script]);
    command.env("XDG_CONFIG_HOME", "/nonexistent");
    let ended = ran(command);
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "looked\n"), "{ended:?}");
}
