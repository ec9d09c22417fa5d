//! A canary in every place where a secret may be, and it is seen nowhere.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::process::Command;

use support::{Ran, Running, Scene, bare, ran};

const CANARY: &str = "C4N4RY";

#[track_caller]
fn silent(ran: &Ran) {
    assert!(!ran.err.contains(CANARY), "{ran:?}");
    assert!(!ran.out.contains(CANARY), "{ran:?}");
    assert!(!ran.err.contains("panicked"), "{ran:?}");
    assert_ne!(ran.code, None, "{ran:?}");
}

/// URLs with a secret in them, sound and not.
fn urls() -> Vec<String> {
    [
        "etcd://root:{}@127.0.0.1:1/x",
        "etcd://{}@127.0.0.1:1",
        "etcd+https://root:p/{}@127.0.0.1:1/x?y",
        "mongodb://u:a@{}@h,h2/db?tls=true",
        "zookeeper://h/x?auth=digest:u:{}",
        "elasticsearch+https://u:{}@h:9200/i",
        "https://u:{}@h/",
        "nothing://u:{}@h",
        "file://u:{}@h/srv",
        "file:///srv?password={}",
        "memory:{}",
        "{}",
        "://u:{}@h",
        "etcd:/\u{1}/u:{}@h",
        "etcd://u:{}@h:99999999/%zz",
    ]
    .iter()
    .map(|url| url.replace("{}", CANARY))
    .collect()
}

fn every_command() -> Vec<Vec<&'static str>> {
    vec![
        vec!["who", "a"],
        vec!["list", "--json"],
        vec!["doctor", "-vv"],
        vec!["doctor", "--json"],
        vec!["watch", "a", "-vvv"],
        vec!["create", "a", "--log-format", "json"],
        vec!["run", "a", "-vv", "--", "true"],
        vec!["run", "a", "--dry-run", "--", "true"],
        vec!["run", "a", "--leader-begin-command", "true"],
        vec!["who", "a", "--ttl", "1ns"],
    ]
}

fn with_url(line: &[&str], set: impl Fn(&mut Command) -> &mut Command) -> Ran {
    let mut command = bare(line);
    command.env("RUST_BACKTRACE", "1");
    set(&mut command);
    ran(command)
}

#[test]
fn no_error_shows_the_stores_url() {
    let scene = Scene::new();
    for url in urls() {
        let (file, config) = (scene.path("url"), scene.path("config.toml"));
        fs::write(&file, &url).unwrap();
        fs::write(&config, format!("store = {}\n", serde_json::json!(url))).unwrap();
        for line in every_command() {
            silent(&with_url(&line, |command| command.env("TENURE_STORE", &url)));
        }
        let line = ["run", "a", "-vv", "--", "true"];
        silent(&with_url(&line, |command| command.env("TENURE_STORE_FILE", &file)));
        silent(&with_url(&line, |command| command.env("TENURE_CONFIG", &config)));
        silent(&with_url(&["who", "a", "--store", &url], |command| command));
        silent(&with_url(&["run", "--help"], |command| {
            command.env("TENURE_STORE", &url).env("TENURE_CONFIG", &config)
        }));
    }
}

#[test]
fn settings_are_shown_without_their_secrets() {
    let url = format!("etcd://root:{CANARY}@h/x");
    for line in [vec!["config", "show"], vec!["config", "show", "--json"]] {
        let shown = with_url(&line, |command| {
            command.env("TENURE_STORE", &url).env("TENURE_ETCD_MEMBERS", format!("{url},{url}"))
        });
        silent(&shown);
        assert!(shown.out.contains("etcd://***@h/x"), "{shown:?}");
    }
}

#[test]
fn a_command_line_that_makes_no_sense_is_quoted_without_its_secrets() {
    let url = format!("etcd://root:{CANARY}@h/x");
    let flag = format!("--stoer={url}");
    for line in [
        vec!["who", "a", url.as_str()],
        vec!["who", "a", &flag],
        vec!["who", "a", "--ttl", &url],
        vec!["run", "a", "--backend", &url],
        vec![url.as_str()],
        vec!["run", "a", "--store", &url, "--store", &url, "--", "true"],
    ] {
        silent(&with_url(&line, |command| command));
    }
}

#[test]
fn a_mistake_in_the_file_is_told_without_its_line() {
    let scene = Scene::new();
    let file = scene.path("config.toml");
    for text in [
        format!("store = \"etcd://u:{CANARY}@h\n"),
        format!("store = etcd://u:{CANARY}@h\n"),
        format!("store = [\"etcd://u:{CANARY}@h\"]\n"),
        format!("ttl = \"etcd://u:{CANARY}@h\"\n"),
        format!("backend = \"{CANARY}\"\n"),
        format!("signal = \"{CANARY}\"\n"),
    ] {
        fs::write(&file, &text).unwrap();
        let refused = with_url(&["list"], |command| command.env("TENURE_CONFIG", &file));
        silent(&refused);
        assert_eq!(refused.code, Some(78), "{text} {refused:?}");
    }
}

#[test]
fn no_process_of_ours_shows_a_secret_and_the_work_does_not_inherit_it() {
    let scene = Scene::new();
    let secret = format!("a:1,etcd://u:{CANARY}@h");
    fs::write(scene.path("url"), scene.store()).unwrap();
    let script = r#"env > "$SEEN"; echo done >> "$DONE"; exec sleep 600"#;
    let handler = r#"env > "$SEEN"; echo done >> "$DONE""#;
    for line in [
        vec!["run", "a", "--", "sh", "-c", script],
        vec!["run", "b", "--leader-begin-command", handler],
    ] {
        let _ = fs::remove_file(scene.path("done"));
        let mut command = bare(&line);
        // The file is the store; what is in the environment is a secret that is not needed.
        command.env("TENURE_STORE_FILE", scene.path("url"));
        command.env("TENURE_ETCD_MEMBERS", &secret).env("ELECTOR_ETCD_MEMBERS", &secret);
        command.env("SEEN", scene.path("seen")).env("DONE", scene.path("done"));
        let tenure = Running::start(command);
        scene.lines("done", 1);
        let seen = scene.read("seen");
        assert!(seen.contains("TENURE_TOKEN=1") && !seen.contains(CANARY), "{seen}");
        let me = tenure.pid().as_raw_nonzero().get();
        for pid in support::children(me).into_iter().chain([me]) {
            let title = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            assert!(!String::from_utf8_lossy(&title).contains(CANARY));
        }
        drop(tenure);
    }
}
