//! Puts a canary in every place where a secret may be. No output may show it.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
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

/// URLs with a secret in them, valid and invalid.
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
        "etcd:u:{}",
        "etcd://u:{}",
        "{}://u:p@h",
        "{}://h",
        "etcd://h/x?{}=1",
        "mongodb://h/x?{}",
        "etcd://u:1\n{}@h",
        "s3://u:a@{}@bucket",
    ]
    .iter()
    .map(|url| url.replace("{}", CANARY))
    .collect()
}

/// Every character that could end a password too early, around the canary.
fn odd_urls() -> Vec<String> {
    let odd =
        ["'", "\"", "<", ">", "`", " ", "@", "/", "?", "#", ":", ",", "&", "=", "\\", "%", "\n"];
    let forms = [
        "etcd://u:1{o}{c}{o}2@h/x",
        "etcd:///u:1{o}{c}@h",
        "etcd:u:1{o}{c}@h",
        "mongodb://u:1{o}{c}@h",
    ];
    odd.into_iter()
        .flat_map(|odd| forms.map(|form| form.replace("{o}", odd).replace("{c}", CANARY)))
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
        assert_eq!(shown.out.matches("etcd://h:2379/x").count(), 1, "{shown:?}");
        assert_eq!(shown.out.matches("***").count(), 1, "{shown:?}");
    }
}

#[test]
fn a_handler_of_several_lines_is_shown_but_for_its_secrets() {
    let scene = Scene::new();
    let file = scene.path("config.toml");
    let script = format!("curl 'https://u:{CANARY}@h/x'\nmail admin@example.com\ntrue");
    let setting = serde_json::json!(script);
    fs::write(&file, format!("leader-begin-command = {setting}\n")).unwrap();
    for line in [vec!["config", "show"], vec!["config", "show", "--json"]] {
        let shown = with_url(&line, |command| command.env("TENURE_CONFIG", &file));
        silent(&shown);
        for part in ["curl 'https://***@h/x'", "mail admin@example.com"] {
            assert!(shown.out.contains(part), "{part}: {shown:?}");
        }
    }
}

#[test]
fn a_password_with_any_character_is_shown_by_no_setting() {
    for url in urls().into_iter().chain(odd_urls()) {
        silent(&with_url(&["config", "show"], |command| command.env("TENURE_STORE", &url)));
        silent(&with_url(&["config", "show", "--json", "--store", &url], |command| command));
    }
    for url in odd_urls() {
        for name in ["TENURE_ETCD_MEMBERS", "ELECTOR_ETCD_MEMBERS", "TENURE_ID"] {
            silent(&with_url(&["config", "show"], |command| command.env(name, &url)));
        }
        let line = ["who", "a", "--ttl", "1s"];
        silent(&with_url(&line, |command| command.env("TENURE_STORE", &url)));
    }
}

#[test]
fn a_bad_value_with_any_character_is_not_echoed() {
    for url in odd_urls() {
        let flag = format!("--stoer={url}");
        // As a shell passes it on without quotes.
        let (first, second) = url.split_once(' ').unwrap_or((&url, "x"));
        for line in [
            vec!["who", "a", url.as_str()],
            vec!["who", "a", &flag],
            vec!["who", "a", "--ttl", &url],
            vec!["who", "--store", first, second, "a", "b"],
            vec![url.as_str()],
        ] {
            silent(&with_url(&line, |command| command));
        }
        silent(&with_url(&["who", "a"], |command| command.env("TENURE_TTL", &url)));
        silent(&with_url(&["who", "a"], |command| command.env("TENURE_LOG_FORMAT", &url)));
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
fn help_shows_the_value_of_no_variable() {
    let url = format!("etcd://root:{CANARY}@h/x");
    for line in ["run", "feed", "share", "submit", "who", "config show", "config", ""] {
        for help in ["--help", "-h"] {
            let words: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).collect();
            let text = ran(bare(&[&words[..], &[help]].concat()));
            let variables = text.out.split(['[', ']', '=', ' ', '\n']);
            let mut variables: Vec<&str> =
                variables.filter(|word| word.starts_with("TENURE_")).collect();
            assert!(variables.contains(&"TENURE_STORE_FILE") || line == "config", "{text:?}");
            // The file is read before any help is shown.
            variables.retain(|name| *name != "TENURE_CONFIG");
            for value in [url.as_str(), CANARY] {
                let mut command = bare(&[&words[..], &[help]].concat());
                command.envs(variables.iter().map(|name| (name, value)));
                let shown = ran(command);
                silent(&shown);
                assert_eq!(shown.code, Some(0), "{shown:?}");
            }
        }
    }
}

#[test]
fn a_dry_run_shows_no_secret() {
    let scene = Scene::new();
    for url in odd_urls() {
        let begin = format!("curl '{url}'");
        let line = ["run", "a", "--dry-run", "--leader-begin-command", &begin, "--on-stuck", &url];
        let shown = ran(scene.tenure(&line));
        silent(&shown);
        assert_eq!(shown.code, Some(0), "{shown:?}");
        let shown = ran(scene.tenure(&["run", "a", "--dry-run", "--", "curl", &url]));
        silent(&shown);
        assert!(shown.out.contains("\"curl\""), "{shown:?}");
    }
}

#[test]
fn a_url_where_a_file_belongs_is_not_shown() {
    for url in urls().into_iter().chain(odd_urls()) {
        // A mere word is a file's name, and no secret.
        if url == CANARY {
            continue;
        }
        for flag in ["--store-file", "--config"] {
            silent(&with_url(&["who", "a", flag, &url], |command| command));
            let line = ["config", "show", flag, &url, "--json", "--log-format", "json"];
            silent(&with_url(&line, |command| command));
        }
    }
}

#[test]
fn no_log_and_no_examination_shows_a_secret() {
    for url in [
        "etcd://root:{}@127.0.0.1:1/x",
        "mongodb://u:{}@127.0.0.1:1/x",
        "zookeeper://u:{}@127.0.0.1:1/x",
        "rethinkdb://u:{}@127.0.0.1:1/x",
        "elasticsearch+http://u:{}@127.0.0.1:1/x",
    ] {
        let url = url.replace("{}", CANARY);
        for line in [
            vec!["doctor", "-vvvv", "--ttl", "1s"],
            vec!["doctor", "--json", "-vvvv", "--log-format", "json", "--ttl", "1s"],
        ] {
            let ran = with_url(&line, |command| command.env("TENURE_STORE", &url));
            silent(&ran);
            assert_ne!(ran.code, Some(0), "{ran:?}");
        }
    }
}

#[test]
fn the_place_that_items_come_from_is_shown_without_its_secrets() {
    let scene = Scene::new();
    for url in urls().into_iter().chain(odd_urls()) {
        if url == CANARY {
            continue;
        }
        let ran = ran(scene.tenure(&["share", "g", "--from", &url, "--", "true"]));
        silent(&ran);
        assert_ne!(ran.code, Some(0), "{ran:?}");
    }
}

#[test]
fn a_file_with_a_password_that_others_can_read_is_warned_of() {
    let scene = Scene::new();
    let url = format!("etcd://u:{CANARY}@127.0.0.1:1");
    let (store, config, password) =
        (scene.path("url"), scene.path("config"), scene.path("password"));
    fs::write(&store, &url).unwrap();
    fs::write(&config, format!("store = \"{url}\"\n")).unwrap();
    fs::write(&password, CANARY).unwrap();
    let by_file = format!("etcd://u@127.0.0.1:1?password-file={}", password.display());
    let line = ["who", "a", "--ttl", "1s"];
    for (mode, warned) in [(0o644, true), (0o604, true), (0o600, false), (0o400, false)] {
        for file in [&store, &config, &password] {
            fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
            let ran = with_url(&line, |command| match file {
                file if *file == store => command.env("TENURE_STORE_FILE", file),
                file if *file == config => command.env("TENURE_CONFIG", file),
                _ => command.env("TENURE_STORE", &by_file),
            });
            silent(&ran);
            assert_eq!(ran.err.contains("other users can read"), warned, "{mode:o} {ran:?}");
            assert_eq!(ran.err.contains(file.to_str().unwrap()), warned, "{mode:o} {ran:?}");
        }
    }
    // All users may read a file without a secret.
    fs::write(&config, format!("store = \"{}\"\n", scene.store())).unwrap();
    fs::set_permissions(&config, fs::Permissions::from_mode(0o644)).unwrap();
    let ran = with_url(&line, |command| command.env("TENURE_CONFIG", &config));
    assert_eq!((ran.code, ran.err.as_str()), (Some(1), ""), "{ran:?}");
}

#[test]
fn root_refuses_a_configuration_that_another_user_may_change() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED root_refuses_a_configuration_that_another_user_may_change: not root");
        return;
    }
    let scene = Scene::new();
    let (above, file) = (scene.path("above"), scene.path("above/config.toml"));
    fs::create_dir(&above).unwrap();
    fs::write(&file, "leader-begin-command = \"touch /owned\"\n").unwrap();
    let link = scene.path("link");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let shown = |path: &std::path::Path| {
        with_url(&["config", "show"], |command| command.env("TENURE_CONFIG", path))
    };
    assert_eq!(shown(&link).code, Some(0));
    let refused = |path: &std::path::Path, says: String| {
        let ran = shown(path);
        assert_eq!(ran.code, Some(78), "{ran:?}");
        assert!(ran.err.contains(&says), "{says}: {ran:?}");
    };
    let mode = |path: &std::path::Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    for path in [&file, &above] {
        for bad in [0o766, 0o776, 0o757] {
            mode(path, bad);
            refused(&link, format!("write to {} (mode {bad:04o})", path.display()));
        }
        mode(path, 0o755);
        std::os::unix::fs::chown(path, Some(12345), None).unwrap();
        refused(&link, format!("{} belongs to user 12345", path.display()));
        std::os::unix::fs::chown(path, Some(0), None).unwrap();
    }
    std::os::unix::fs::lchown(&link, Some(12345), None).unwrap();
    refused(&link, format!("{} belongs to user 12345", link.display()));
    assert_eq!(shown(&file).code, Some(0));
}

/// Root must not wait for another user to write.
#[test]
fn root_refuses_another_users_pipe_without_opening_it() {
    let test = "root_refuses_another_users_pipe_without_opening_it";
    if !rustix::process::geteuid().is_root() {
        return support::skip(test, "not root");
    }
    let scene = Scene::new();
    let pipe = scene.path("tenure/config.toml");
    fs::create_dir(scene.path("tenure")).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    std::os::unix::fs::chown(&pipe, Some(12345), None).unwrap();
    let shown = |name: &str, value: &std::path::Path| {
        let mut command = bare(&["config", "show"]);
        command.env(name, value);
        Running::start(command).end()
    };
    for ended in [shown("TENURE_CONFIG", &pipe), shown("XDG_CONFIG_HOME", &scene.path(""))] {
        assert_eq!(ended.code, Some(78), "{ended:?}");
        assert!(ended.err.contains("belongs to user 12345"), "{ended:?}");
    }
}

/// An address of this machine that is not a loopback address by name.
const HERE: &str = "0.0.0.0";

/// Issue 13, 25.
#[test]
fn a_password_that_goes_over_the_network_in_plain_text_is_warned_of() {
    let warned = |url: &str, variable: &str| {
        let ran = with_url(&["who", "a", "--ttl", "1s"], |command| {
            command.env("TENURE_STORE", url.replace("HERE", HERE)).env(variable, CANARY)
        });
        silent(&ran);
        ran.err.contains("the password goes to 0.0.0.0:1 in plain text")
    };
    assert!(warned("etcd://u@HERE:1", "TENURE_STORE_PASSWORD"));
    assert!(warned("elasticsearch+http://HERE:1/i", "TENURE_STORE_API_KEY"));
    assert!(!warned("elasticsearch+http://HERE:1/i", "TENURE_STORE_PASSWORD"), "there is no user");
    assert!(!warned("etcd+https://u@HERE:1", "TENURE_STORE_PASSWORD"));
    assert!(!warned("etcd://u@127.0.0.1:1", "TENURE_STORE_PASSWORD"));
}

#[test]
fn a_service_that_waits_for_its_store_says_each_warning_once() {
    let scene = Scene::new();
    fs::write(scene.path("password"), CANARY).unwrap();
    fs::set_permissions(scene.path("password"), fs::Permissions::from_mode(0o644)).unwrap();
    let server = support::NoStore::start();
    let file = scene.path("password");
    let url = format!("etcd://u@{HERE}:{}?password-file={}", server.port(), file.display());
    let mut command = bare(&["run", "a", "--wait-for-store", "--", "true"]);
    command.env("TENURE_STORE", url);
    let mut waiting = Running::start(command);
    let mut heard = waiting.hear("waiting for the store");
    server.wait_for_another();
    waiting.signal(rustix::process::Signal::TERM);
    let ended = waiting.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    heard.push_str(&ended.err);
    for warning in ["in plain text", "other users can read the file"] {
        assert_eq!(heard.matches(warning).count(), 1, "{warning}: {heard}");
    }
    assert!(!heard.contains(CANARY), "{heard}");
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
        // The file names the store; the secret in the environment is not needed.
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
