//! Every exit code, and every bad input with its message.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;

use support::{Ran, Running, Scene, bare, ran};

#[track_caller]
fn fails(ran: &Ran, code: i32, says: &str) {
    assert_eq!(ran.code, Some(code), "{ran:?}");
    assert!(ran.err.contains(says), "{says:?} is not in {ran:?}");
    assert!(!ran.err.contains("panicked"), "{ran:?}");
    assert_eq!(ran.out, "", "errors are no data");
}

#[test]
fn run_exits_as_its_child_did() {
    let scene = Scene::new();
    for code in [0, 1, 2, 7, 75, 127, 255] {
        let script = format!("exit {code}");
        assert_eq!(ran(scene.tenure(&["run", "job", "--", "sh", "-c", &script])).code, Some(code));
    }
    let killed = ran(scene.tenure(&["run", "job", "--", "sh", "-c", "kill -KILL $$"]));
    assert_eq!(killed.code, Some(128 + 9), "{killed:?}");
}

#[test]
fn what_cannot_be_run_is_told_from_what_exits_like_it() {
    let scene = Scene::new();
    let missing = ran(scene.tenure(&["run", "job", "--", "no-such-program"]));
    fails(&missing, 127, "running no-such-program: No such file");
    fs::write(scene.path("text"), "no program").unwrap();
    let text = scene.path("text");
    let denied = ran(scene.tenure(&["run", "job", "--", text.to_str().unwrap()]));
    fails(&denied, 126, "Permission denied");
    let own = ran(scene.tenure(&["run", "job", "--", "sh", "-c", "exit 127"]));
    assert_eq!((own.code, own.err.as_str()), (Some(127), ""));
    assert_eq!(scene.state("job"), "free", "each has released");
}

#[test]
fn not_being_elected_in_time_is_1_or_what_the_user_says() {
    let scene = Scene::new();
    let _leader = Running::start(scene.tenure(&["run", "job", "--", "sleep", "600"]));
    scene.wait_for_state("job", "led");
    for (flags, code) in [
        (vec!["-n"], 1),
        (vec!["--nonblock", "-E", "42"], 42),
        (vec!["-w", "100ms"], 1),
        (vec!["--wait", "100ms", "--conflict-exit-code", "0"], 0),
    ] {
        let arguments = [vec!["run", "job"], flags, vec!["--", "echo", "led"]].concat();
        let ended = ran(scene.tenure(&arguments));
        assert_eq!((ended.code, ended.out.as_str()), (Some(code), ""), "{arguments:?} {ended:?}");
    }
}

#[test]
fn nonblock_leads_where_nobody_does() {
    let scene = Scene::new();
    for token in ["1\n", "2\n"] {
        let ended =
            ran(scene.tenure(&["run", "job", "-n", "--", "sh", "-c", "echo $TENURE_TOKEN"]));
        assert_eq!((ended.code, ended.out.as_str()), (Some(0), token), "{ended:?}");
    }
}

#[test]
fn who_is_0_when_led_and_1_when_not() {
    let scene = Scene::new();
    assert_eq!(ran(scene.tenure(&["who", "job"])).code, Some(1));
    let _leader = Running::start(scene.tenure(&["run", "job", "--", "sleep", "600"]));
    scene.wait_for_state("job", "led");
    assert_eq!(ran(scene.tenure(&["who", "job"])).code, Some(0));
}

#[test]
fn an_ended_election_is_1_until_it_is_created_again() {
    let scene = Scene::new();
    fails(&ran(scene.tenure(&["end", "job"])), 1, "there is no election job; --force");
    assert!(!scene.path("store/elections/job.json").exists(), "a typo leaves no record");
    assert_eq!(ran(scene.tenure(&["end", "job", "--force"])).code, Some(0));
    let ended = ran(scene.tenure(&["run", "job", "--", "true"]));
    fails(&ended, 1, "the election job has ended");
    assert_eq!(ran(scene.tenure(&["watch", "job"])).code, Some(1));
    assert_eq!(ran(scene.tenure(&["create", "job"])).code, Some(0));
    assert_eq!(ran(scene.tenure(&["run", "job", "--", "true"])).code, Some(0));
    assert_eq!(ran(scene.tenure(&["delete", "job"])).out, "deleted\n");
    assert_eq!(ran(scene.tenure(&["delete", "job"])).out, "there is no such election\n");
    assert_eq!(ran(scene.tenure(&["run", "job", "--", "true"])).code, Some(0));
}

#[test]
fn a_missing_election_is_1_when_it_is_not_to_be_created() {
    let scene = Scene::new();
    let ended = ran(scene.tenure(&["run", "job", "--no-create", "--", "true"]));
    fails(&ended, 1, "there is no election job; create it first");
}

#[test]
fn a_candidate_is_told_when_the_election_ends() {
    let scene = Scene::new();
    let _leader = Running::start(scene.tenure(&["run", "job", "--", "sleep", "600"]));
    scene.wait_for_state("job", "led");
    let waiting = Running::start(scene.tenure(&["run", "job", "--", "true"]));
    waiting.guardian();
    assert_eq!(ran(scene.tenure(&["end", "job"])).code, Some(0));
    fails(&waiting.end(), 1, "the election job has ended");
}

#[test]
fn watch_is_0_when_interrupted() {
    let scene = Scene::new();
    ran(scene.tenure(&["create", "job"]));
    let mut watching = Running::start(scene.tenure(&["watch", "job"]));
    let mut line = String::new();
    let output = watching.child().stdout.as_mut().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).unwrap();
    let (time, rest) = line.split_once("  ").unwrap();
    assert!(time.starts_with("20") && time.ends_with('Z') && time.len() == 20, "{line}");
    assert_eq!(rest, "free\n");
    watching.signal(Signal::INT);
    assert_eq!(watching.end().code, Some(0));
}

#[test]
fn a_command_line_that_makes_no_sense_is_2() {
    let scene = Scene::new();
    for (arguments, says) in [
        (vec![], "Usage"),
        (vec!["rule"], "unrecognized subcommand"),
        (vec!["who"], "ELECTION"),
        (vec!["who", "a", "b"], "unexpected argument"),
        (vec!["who", "a", "--frobnicate"], "unexpected argument"),
        (vec!["run", "a"], "CMD"),
        (vec!["run", "a", "--"], "CMD"),
        (vec!["run", "a", "true"], "unexpected argument"),
        (vec!["run", "a", "-n", "-w", "1s", "--", "true"], "cannot be used with"),
        (vec!["run", "a", "-E", "256", "--", "true"], "256"),
        (vec!["run", "a", "-w", "soon", "--", "true"], "write for example 15s"),
        (vec!["who", "a", "--ttl", "15"], "write for example 15s"),
        (vec!["who", "a", "--ttl", "-1s"], "-1"),
        (vec!["who", "a", "--ttl", ""], "--ttl"),
        (vec!["who", "a", "--grace", "x"], "--grace"),
        (vec!["demo", "--candidates", "1"], "1"),
        (vec!["completions", "tcsh"], "tcsh"),
    ] {
        fails(&ran(scene.tenure(&arguments)), 2, says);
    }
}

#[test]
fn a_bad_name_is_2_and_says_why() {
    let scene = Scene::new();
    let long = "x".repeat(129);
    for (name, says) in [
        ("", "the name is empty"),
        ("/a", "begins with `/`"),
        ("a/", "ends with `/`"),
        ("a//b", "segment 2 of the name is empty"),
        (".", "segment 1 of the name is `.`"),
        ("a/../b", "segment 2 of the name is `..`"),
        ("a\nb", "control character U+000A"),
        ("a\u{1b}b", "control character U+001B"),
        (&long, "has 129 bytes; at most 128"),
        ("1/2/3/4/5/6/7/8/9", "has 9 segments; at most 8"),
    ] {
        for arguments in [
            vec!["who", name],
            vec!["watch", name],
            vec!["candidates", name],
            vec!["create", name],
            vec!["end", name],
            vec!["delete", name],
            vec!["run", name, "--", "true"],
        ] {
            fails(&ran(scene.tenure(&arguments)), 2, says);
        }
    }
}

#[test]
fn a_bad_candidate_is_2_and_says_why() {
    let scene = Scene::new();
    let long = "v".repeat(5000);
    for (flags, says) in [
        (["--id", ""], "the candidate's name is refused"),
        (["--id", "a/b"], "the candidate's name is refused"),
        (["--instance-id", "a\tb"], "control character U+0009"),
        (["--value", &long], "has 5000 bytes; at most 4096"),
    ] {
        let arguments = [&["run", "job"][..], &flags[..], &["--", "true"][..]].concat();
        fails(&ran(scene.tenure(&arguments)), 2, says);
    }
}

#[test]
fn a_bad_url_is_2_and_shows_no_password() {
    for (url, says) in [
        ("", "it is empty"),
        ("/var/lib", "does not begin with a scheme"),
        ("redis://u:canary@h", "unknown scheme"),
        ("canary://u@h", "unknown scheme"),
        ("file://u:canary@h/a", "a user or a password"),
        ("file://relative/a", "names a host"),
        ("file:relative", "not absolute"),
        ("file:///a?canary=1", "unknown setting"),
        ("file:///a%00", "control character"),
        ("memory:x", "nothing may follow"),
    ] {
        for ran in [
            ran(bare(&["who", "job", "--store", url])),
            ran({
                let mut command = bare(&["list"]);
                command.env("TENURE_STORE", url);
                command
            }),
        ] {
            fails(&ran, 2, says);
            assert!(!ran.err.contains("canary"), "{ran:?}");
        }
    }
}

#[test]
fn what_is_refused_is_78() {
    let scene = Scene::new();
    for (arguments, says) in [
        (vec!["who", "a", "--ttl", "10ms"], "window of 8ms"),
        (vec!["who", "a", "--ttl", "0s"], "ttl of 0ns"),
        (vec!["who", "a", "--ttl", "2days"], "at most 24h"),
        (vec!["who", "a", "--grace", "14s"], "use a longer ttl or a shorter grace"),
        (vec!["run", "a", "--lock-delay", "2days", "--", "true"], "24h"),
    ] {
        let ran = ran(scene.tenure(&arguments));
        fails(&ran, 78, says);
        assert!(!ran.err.contains("canary"), "{ran:?}");
    }
    ran(scene.tenure(&["create", "a/b"]));
    fails(&ran(scene.tenure(&["run", "a", "--", "true"])), 78, "cannot stand beside a/b");
    fs::write(scene.path("store/elections/broken.json"), "{\"holder\": 7").unwrap();
    fails(&ran(scene.tenure(&["who", "broken"])), 78, "makes no sense");
    let homeless = {
        let mut command = bare(&["list"]);
        command.env_remove("HOME").env_remove("XDG_STATE_HOME");
        ran(command)
    };
    fails(&homeless, 78, "no place for the embedded store");
}

#[test]
fn a_network_file_system_is_refused_with_78() {
    // The file system /proc supports neither locks nor renames.
    fails(&ran(bare(&["list", "--store", "file:///proc/self"])), 78, "");
}

#[test]
fn what_is_not_allowed_is_77() {
    if rustix::process::geteuid().is_root() {
        // Root may do anything, so another user must run the program.
        let as_nobody = std::process::Command::new("setpriv").arg("--version").output();
        if as_nobody.is_err() {
            eprintln!("SKIPPED what_is_not_allowed_is_77: root, and no setpriv");
            return;
        }
    }
    let scene = Scene::new();
    fs::create_dir(scene.path("locked")).unwrap();
    fs::set_permissions(scene.path("locked"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(scene.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let url = format!("file://{}/store", scene.path("locked").display());
    let program = env!("CARGO_BIN_EXE_tenure");
    let ran = if rustix::process::geteuid().is_root() {
        let copy = scene.path("tenure");
        // Not by this process: a child that another test forks meanwhile would hold the file open
        // for writing.
        let copied = std::process::Command::new("cp").arg(program).arg(&copy).status().unwrap();
        assert!(copied.success(), "{copied}");
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(copy);
        command.args(["list", "--store", &url]);
        ran(command)
    } else {
        fs::set_permissions(scene.path("locked"), fs::Permissions::from_mode(0o500)).unwrap();
        ran(bare(&["list", "--store", &url]))
    };
    fails(&ran, 77, "");
}

#[test]
fn a_store_that_another_user_could_replace_is_78_and_names_the_parent() {
    let scene = Scene::new();
    let parent = scene.path("shared");
    fs::create_dir(&parent).unwrap();
    fs::set_permissions(&parent, fs::Permissions::from_mode(0o777)).unwrap();
    let url = format!("file://{}/store", parent.display());
    let refused = ran(bare(&["list", "--store", &url]));
    fails(&refused, 78, &format!("others may write to {} (mode 0777)", parent.display()));
    assert!(!parent.join("store").exists());
    let trusted = ran(bare(&["list", "--store", &format!("{url}?trust-parents=true")]));
    assert_eq!(trusted.code, Some(0), "{trusted:?}");
    let mut by_variable = bare(&["list", "--store", &url]);
    by_variable.env("TENURE_TRUST_PARENTS", "true");
    assert_eq!(ran(by_variable).code, Some(0));
    // If others may read the directory, another user's lock on it would keep all candidates out.
    fs::set_permissions(&parent, fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(parent.join("store"), fs::Permissions::from_mode(0o755)).unwrap();
    fails(&ran(bare(&["list", "--store", &url])), 78, "chmod 700 it");
}

#[test]
fn the_embedded_store_is_mentioned_once() {
    let scene = Scene::new();
    let mut command = bare(&["run", "job", "--", "true"]);
    command.env("XDG_STATE_HOME", scene.path("state"));
    let ended = ran(command);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let lines: Vec<&str> = ended.err.lines().collect();
    assert_eq!(lines.len(), 1, "{ended:?}");
    assert!(lines[0].contains("among this machine's processes only"), "{ended:?}");
    assert!(scene.path("state/tenure/elections/job.json").exists());
}

#[test]
fn a_child_sees_who_it_is_and_no_credentials() {
    let scene = Scene::new();
    let script = "echo $TENURE_ELECTION $TENURE_ID $TENURE_TOKEN $TENURE_TTL_MS ${TENURE_STORE-unset} \
         ${TENURE_STORE_PASSWORD-unset}";
    let mut command = bare(&["run", "a/b", "--id", "me", "--ttl", "3s", "--store"]);
    command.arg(scene.store()).args(["--", "sh", "-c", script]);
    command.env("TENURE_STORE", "etcd://user:canary@host/x").env("TENURE_STORE_PASSWORD", "canary");
    let ended = ran(command);
    assert_eq!(ended.out, "a/b me 1 3000 unset unset\n", "{ended:?}");
}

#[test]
fn shell_metacharacters_reach_no_shell() {
    let scene = Scene::new();
    let name = "$(touch bad);`touch bad`|&'\"*";
    let value = "; rm -rf $HOME";
    let mut command = scene.tenure(&["run", name, "--id", name, "--value", value, "--"]);
    command.args(["printenv", "TENURE_ELECTION", "TENURE_ID"]).current_dir(scene.path(""));
    let ended = ran(command);
    assert_eq!(ended.out, format!("{name}\n{name}\n"), "{ended:?}");
    assert!(!scene.path("bad").exists());
}

#[test]
fn help_shows_the_exit_codes_and_an_example_of_each_command() {
    let help = ran(bare(&["--help"]));
    assert_eq!(help.code, Some(0));
    for code in ["0", "1", "2", "4", "69", "75", "77", "78", "125", "126", "127"] {
        assert!(help.out.contains(&format!("{code}  ")), "{code}");
    }
    for command in [
        "run",
        "who",
        "watch",
        "candidates",
        "list",
        "create",
        "end",
        "delete",
        "doctor",
        "demo",
        "completions",
    ] {
        let help = ran(bare(&[command, "--help"]));
        assert_eq!(help.code, Some(0));
        assert!(help.out.contains("Example"), "{help:?}");
        assert!(help.out.contains("Exit codes"), "{help:?}");
        assert!(!help.out.contains('\u{1b}'), "no colours but on a terminal");
    }
}

#[test]
fn completions_are_printed_for_each_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let printed = ran(bare(&["completions", shell]));
        assert_eq!(printed.code, Some(0));
        assert!(printed.out.contains("candidates"), "{shell}");
    }
}

#[test]
fn a_reader_that_went_away_is_no_error() {
    let mut listing = Running::start(bare(&["completions", "bash"]));
    drop(listing.child().stdout.take());
    let ended = listing.end();
    assert!(!ended.err.contains("panicked"), "{ended:?}");
    assert_eq!(ended.code, Some(0));
}

#[test]
fn the_demo_ends_by_itself() {
    let shown = ran(bare(&["demo", "--ttl", "5s"]));
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert_eq!(shown.out.matches("took over after").count(), 2, "{shown:?}");
    assert!(shown.out.contains("token 3"), "{shown:?}");
}

/// Locks the elections of a scene, as a process that hangs in a write would.
fn lock(scene: &Scene) -> fs::File {
    let directory = fs::File::open(scene.path("store/elections")).unwrap();
    flock(&directory, FlockOperation::LockExclusive).unwrap();
    directory
}

#[test]
fn a_store_that_does_not_serve_is_69() {
    let scene = Scene::new();
    ran(scene.tenure(&["create", "other"]));
    let _locked = lock(&scene);
    for (command, election) in [("create", "job"), ("end", "other"), ("delete", "other")] {
        fails(&ran(scene.tenure(&[command, election, "--ttl", "1s"])), 69, "file: ");
    }
    fails(&ran(scene.tenure(&["run", "job", "--ttl", "1s", "--", "true"])), 69, "file: ");
}

#[test]
fn a_release_of_which_nothing_is_known_is_4_unless_the_child_failed() {
    for (own, code) in [("0", 4), ("9", 9)] {
        let scene = Scene::new();
        let script =
            r#"echo ready >> "$READY"; until [ -e "$GO" ]; do sleep 0.01; done; exit "$0""#;
        let mut command =
            scene.tenure(&["run", "job", "--ttl", "5s", "--", "sh", "-c", script, own]);
        command.env("READY", scene.path("ready")).env("GO", scene.path("go"));
        let tenure = Running::start(command);
        scene.lines("ready", 1);
        let _locked = lock(&scene);
        fs::write(scene.path("go"), "").unwrap();
        fails(&tenure.end(), code, "the store did not say whether the leadership was released");
    }
}
