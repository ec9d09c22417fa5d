//! Flags, then the environment, then a file, then built-in values.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::process::Command;

use support::{Ran, Scene, bare, ran};

/// Returns the value of one setting, and its origin.
fn asked(mut command: Command, name: &str) -> (String, String) {
    command.args(["config", "show", "--json"]);
    let shown = ran(command);
    let json: serde_json::Value =
        serde_json::from_str(&shown.out).unwrap_or_else(|error| panic!("{error}: {shown:?}"));
    let settings = json["settings"].as_array().unwrap();
    let setting = settings.iter().find(|setting| setting["name"] == name).unwrap();
    let text = |key: &str| setting[key].as_str().unwrap_or_default().to_owned();
    (text("value"), text("origin"))
}

#[test]
fn each_layer_beats_the_ones_below_it() {
    let scene = Scene::new();
    let file = scene.path("config.toml");
    fs::write(&file, "ttl = \"3s\"\nkeep = true\nend-attempts = 4\nid = \"file\"\n").unwrap();
    // The layers that have a value, and the one that wins.
    for (flag, variable, in_file, value, origin) in [
        (false, false, false, "15s", "default"),
        (false, false, true, "3s", "file"),
        (false, true, false, "2s", "environment"),
        (false, true, true, "2s", "environment"),
        (true, false, false, "1s", "flag"),
        (true, false, true, "1s", "flag"),
        (true, true, false, "1s", "flag"),
        (true, true, true, "1s", "flag"),
    ] {
        let mut command = bare(if flag { &["--ttl", "1s"] } else { &[] });
        if variable {
            command.env("TENURE_TTL", "2s");
        }
        if in_file {
            command.env("TENURE_CONFIG", &file);
        }
        assert_eq!(asked(command, "ttl"), (value.into(), origin.into()));
    }
    let with_file = || {
        let mut command = bare(&[]);
        command.arg("--config").arg(&file);
        command
    };
    assert_eq!(asked(with_file(), "keep"), ("true".into(), "file".into()));
    assert_eq!(asked(with_file(), "end-attempts"), ("4".into(), "file".into()));
    let mut elector = with_file();
    elector.env("ELECTOR_INSTANCE_ID", "elector");
    assert_eq!(asked(elector, "id"), ("elector".into(), "environment".into()));
}

#[test]
fn the_file_is_found_where_such_files_are() {
    let scene = Scene::new();
    fs::create_dir(scene.path("tenure")).unwrap();
    fs::write(scene.path("tenure/config.toml"), "ttl = '4s'\n").unwrap();
    let mut command = bare(&["config", "show"]);
    command.env("XDG_CONFIG_HOME", scene.path(""));
    let shown = ran(command);
    let line = shown.out.lines().find(|line| line.starts_with("ttl = 4s")).unwrap();
    assert!(line.ends_with("tenure/config.toml:1"), "{line}");
}

#[test]
fn a_setting_of_the_file_takes_effect() {
    let scene = Scene::new();
    let text =
        format!("store = \"{}\"\nleader_begin_command = \"echo up; exit 1\"\n", scene.store());
    fs::write(scene.path("config.toml"), text + "error-timeout = \"1ms\"\n").unwrap();
    let mut command = bare(&["run", "job", "--ttl", "2s", "--", "sh", "-c", "echo $TENURE_TTL_MS"]);
    command.env("TENURE_CONFIG", scene.path("config.toml"));
    let ended = ran(command);
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "2000\n"), "{ended:?}");
    assert!(scene.path("store/elections/job.json").exists(), "it elected where the file says");
}

fn refused(text: &str) -> Ran {
    let scene = Scene::new();
    let file = scene.path("config.toml");
    fs::write(&file, text).unwrap();
    let mut command = scene.tenure(&["list"]);
    command.env("TENURE_CONFIG", &file);
    let refused = ran(command);
    assert_eq!(refused.code, Some(78), "{text:?} {refused:?}");
    refused
}

#[test]
fn what_is_wrong_with_a_file_is_said_with_its_place() {
    for (text, says) in [
        ("ttl = \"5s\"\ncolour = \"red\"\n", "config.toml:2: colour: there is no such setting"),
        ("ttl = true\n", "config.toml:1: ttl: expected a text in quotes, found true or false"),
        ("ttl = 5\n", "config.toml:1: ttl: "),
        ("\n\nttl = \"soon\"\n", "config.toml:3: ttl: "),
        ("keep = \"yes\"\n", "config.toml:1: keep: expected true or false, found a text"),
        ("end-attempts = 0\n", "config.toml:1: end-attempts: 0 is not in 1..=1000"),
        ("backend = \"paper\"\n", "config.toml:1: backend: expected one of console, etcd-lock"),
        ("[ttl]\nx = 1\n", "config.toml:1: ttl: expected a text in quotes, found a table"),
        ("ttl = \n", "config.toml:1: "),
        ("a = 1\na = 2\n", "config.toml:2: "),
        ("config = \"x\"\n", "config.toml:1: config: there is no such setting"),
    ] {
        let refused = refused(text);
        assert!(refused.err.contains(says), "{says:?} is not in {refused:?}");
    }
}

#[test]
fn a_file_that_was_named_must_be_there() {
    let missing = ran(bare(&["--config", "/nonexistent/x.toml", "config", "show"]));
    assert_eq!(missing.code, Some(78), "{missing:?}");
    assert!(missing.err.contains("/nonexistent/x.toml: No such file"), "{missing:?}");
}

#[test]
fn electors_variables_are_honoured_with_a_hint() {
    let mut command = bare(&["run"]);
    for (name, value) in [
        ("ELECTOR_BACKEND", "console"),
        ("ELECTOR_INSTANCE_ID", "me"),
        ("ELECTOR_START_COMMAND", "echo up"),
        ("ELECTOR_STOP_COMMAND", "echo down"),
        ("ELECTOR_ERROR_TIMEOUT", "1m30s"),
    ] {
        command.env(name, value);
    }
    let ended = ran(command);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let hint = "ELECTOR_START_COMMAND is honoured; here it is called TENURE_LEADER_BEGIN_COMMAND";
    assert!(ended.err.contains(hint), "{ended:?}");
}

#[test]
fn etcd_as_electors_users_name_it_is_mapped() {
    let scene = Scene::new();
    for line in [
        vec![
            "--backend",
            "etcd-lock",
            "--etcd-keyspace",
            "/a/b",
            "--etcd-members",
            "127.0.0.1:1",
            "run",
            "--",
            "true",
        ],
        vec!["run", "--keyspace", "a", "--etcd-members", "http://127.0.0.1:1", "--", "true"],
        vec!["run", "a", "--backend", "etcd-lock", "--ca-file", "/ca.pem", "--", "true"],
    ] {
        let mut command = scene.tenure(&line);
        command.env_remove("TENURE_STORE");
        let refused = ran(command);
        assert!(matches!(refused.code, Some(69 | 78)), "{refused:?}");
        assert!(refused.err.contains("opening the store: etcd: "), "{refused:?}");
    }
    let twice =
        ran(bare(&["run", "a", "--backend", "console", "--store", "memory:", "--", "true"]));
    assert_eq!(twice.code, Some(2), "{twice:?}");
}

#[test]
fn the_stores_url_may_be_in_a_file() {
    let scene = Scene::new();
    fs::write(scene.path("url"), scene.store() + "\n").unwrap();
    let mut command = bare(&["run", "job", "--", "true"]);
    command.env("TENURE_STORE_FILE", scene.path("url"));
    assert_eq!(ran(command).code, Some(0));
    assert!(scene.path("store/elections/job.json").exists());
    let missing = ran(bare(&["who", "job", "--store-file", "/nonexistent"]));
    assert_eq!(missing.code, Some(78), "{missing:?}");
}

#[test]
fn a_dry_run_touches_no_store() {
    let scene = Scene::new();
    let line = ["run", "job", "--id", "me", "--dry-run", "--", "echo", "a b"];
    let ended = ran(scene.tenure(&line));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.out.starts_with("would stand in job as me, at file:///"), "{ended:?}");
    assert!(ended.out.ends_with("would run: \"echo\" \"a b\"\n"), "{ended:?}");
    assert!(!scene.path("store").exists());
}

#[test]
fn the_log_can_be_json() {
    let scene = Scene::new();
    let line = ["run", "job", "-v", "--log-format", "json", "--keep", "--", "no-such-program"];
    let ended = ran(scene.tenure(&line));
    assert_eq!(ended.code, Some(127), "{ended:?}");
    for line in ended.err.lines() {
        let json: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(json["message"].is_string() && json["timestamp"].is_string(), "{line}");
    }
    assert!(ended.err.contains("running no-such-program"), "{ended:?}");
}

#[test]
fn the_settings_of_share_and_feed_are_shown_too() {
    let scene = Scene::new();
    let file = scene.path("config.toml");
    fs::write(&file, "workers = 3\nfollow = true\ntable = \"orders\"\n").unwrap();
    let command = || {
        let mut command = bare(&[]);
        command.env("TENURE_CONFIG", &file).env("TENURE_TIMEOUT", "5s");
        command.env("TENURE_HEARTBEAT_INTERVAL", "3s");
        command
    };
    assert_eq!(asked(command(), "workers"), ("3".into(), "file".into()));
    assert_eq!(asked(command(), "follow"), ("true".into(), "file".into()));
    assert_eq!(asked(command(), "timeout"), ("5s".into(), "environment".into()));
    assert_eq!(asked(command(), "attempts"), ("3".into(), "default".into()));
    assert_eq!(asked(bare(&[]), "follow"), ("false".into(), "default".into()));
    assert_eq!(asked(command(), "table"), ("orders".into(), "file".into()));
    assert_eq!(asked(command(), "heartbeat-interval"), ("3s".into(), "environment".into()));
    assert_eq!(asked(command(), "from-start"), ("false".into(), "default".into()));
}
