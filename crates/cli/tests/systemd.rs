//! What systemd is told.
#![allow(clippy::unwrap_used)]

mod support;

use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use support::{Running, Scene};

struct Manager(UnixDatagram);

impl Manager {
    fn new(scene: &Scene) -> Manager {
        let socket = UnixDatagram::bind(scene.path("notify")).unwrap();
        socket.set_read_timeout(Some(support::PATIENCE)).unwrap();
        Manager(socket)
    }

    /// Reads until it was told this, and gives all that came before.
    fn wait_for(&self, expected: &str) -> Vec<String> {
        let mut heard = Vec::new();
        loop {
            let mut datagram = [0; 4096];
            let length = self.0.recv(&mut datagram).unwrap_or_else(|error| {
                panic!("{error}: no {expected} among {heard:?}");
            });
            let text = String::from_utf8(datagram[..length].to_vec()).unwrap();
            if text == expected {
                return heard;
            }
            heard.push(text);
        }
    }
}

#[test]
fn a_service_is_ready_when_it_stands_and_says_what_it_does() {
    let scene = Scene::new();
    let manager = Manager::new(&scene);
    let script = r#"echo "${NOTIFY_SOCKET-none} ${WATCHDOG_USEC-none}" >> "$OUT"; exec sleep 600"#;
    let mut command = scene.tenure(&["run", "job", "--", "sh", "-c", script]);
    command.env("NOTIFY_SOCKET", scene.path("notify")).env("WATCHDOG_USEC", "100000");
    command.env("OUT", scene.path("out"));
    let tenure = Running::start(command);
    manager.wait_for("READY=1");
    manager.wait_for("STATUS=waiting to lead job");
    manager.wait_for("STATUS=leading job with token 1");
    // It goes on: the loop still turns.
    for _ in 0..3 {
        manager.wait_for("WATCHDOG=1");
    }
    assert_eq!(scene.lines("out", 1), ["none none"], "CMD does not speak for the service");
    tenure.signal(Signal::TERM);
    manager.wait_for("STOPPING=1");
    assert_eq!(tenure.end().code, Some(128 + 15));
}

#[test]
fn handlers_tell_it_too() {
    let scene = Scene::new();
    let manager = Manager::new(&scene);
    let line = ["run", "job", "--leader-begin-command", "true", "--leader-end-command", "true"];
    let mut command = scene.tenure(&line);
    command.env("NOTIFY_SOCKET", scene.path("notify"));
    let tenure = Running::start(command);
    manager.wait_for("READY=1");
    manager.wait_for("STATUS=leading, token 1");
    tenure.signal(Signal::TERM);
    manager.wait_for("STOPPING=1");
    assert_eq!(tenure.end().code, Some(0));
}

#[test]
fn a_stopped_loop_feeds_no_watchdog() {
    let scene = Scene::new();
    let manager = Manager::new(&scene);
    let mut command = scene.tenure(&["run", "job", "--", "sleep", "600"]);
    command.env("NOTIFY_SOCKET", scene.path("notify")).env("WATCHDOG_USEC", "100000");
    let tenure = Running::start(command);
    manager.wait_for("STATUS=leading job with token 1");
    tenure.signal(Signal::STOP);
    manager.0.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let mut datagram = [0; 4096];
    while manager.0.recv(&mut datagram).is_ok() {}
    tenure.resume();
}

/// The units that the documentation gives away.
fn units() -> Vec<std::path::PathBuf> {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/systemd");
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|kind| kind == "service")).collect()
}

#[test]
fn every_unit_waits_for_the_network_and_keeps_its_store_to_itself() {
    for path in units() {
        let text = std::fs::read_to_string(&path).unwrap();
        for line in ["After=network-online.target", "Wants=network-online.target"] {
            assert!(text.lines().any(|found| found == line), "{line} is not in {path:?}");
        }
        assert!(text.contains("\nStateDirectoryMode=0700\n"), "{path:?}");
        if text.contains("\nRestart=") {
            assert!(text.contains("\nRestartSec="), "{path:?}");
            assert!(text.contains("\nStartLimitIntervalSec=0\n"), "{path:?}");
        }
    }
}

/// Issue 13, 33: the units were rated 9.6, "UNSAFE".
#[test]
fn systemd_accepts_every_unit_and_rates_it_as_safe() {
    let analyze = |line: &[&std::ffi::OsStr]| Command::new("systemd-analyze").args(line).output();
    if analyze(&["--version".as_ref()]).is_err() {
        eprintln!("SKIPPED systemd_accepts_every_unit_and_rates_it_as_safe: no systemd-analyze");
        return;
    }
    for path in units() {
        let line = [
            "security".as_ref(),
            "--offline=true".as_ref(),
            "--threshold=30".as_ref(),
            path.as_ref(),
        ];
        let rated = analyze(&line).unwrap();
        let says = String::from_utf8_lossy(&rated.stdout);
        assert!(
            rated.status.success(),
            "{path:?}: {says}{}",
            String::from_utf8_lossy(&rated.stderr)
        );
        assert!(says.contains("Overall exposure level"), "{path:?}: {says}");
        let verified = analyze(&["verify".as_ref(), path.as_ref()]).unwrap();
        let says = String::from_utf8_lossy(&verified.stderr);
        // The program is not installed where it is tested.
        let wrong: Vec<&str> =
            says.lines().filter(|line| !line.contains("is not executable")).collect();
        assert_eq!(wrong, Vec::<&str>::new(), "{path:?}");
    }
}

#[cfg(feature = "etcd")]
mod waiting {
    use std::io::{BufRead, BufReader};

    use tenure_harness::{Etcd, etcd, require};

    use super::*;
    use support::{bare, ran};

    /// A server that is down, and where it will be.
    fn down() -> Result<(tokio::runtime::Runtime, Etcd, String), tenure_harness::Failure> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let server = runtime.block_on(Etcd::single(etcd::Options::default()))?;
        runtime.block_on(server[0].kill()).unwrap();
        let store = format!("etcd://{}/waiting", server[0].address());
        Ok((runtime, server, store))
    }

    /// A store that was down at boot ended a service five times in a row, and then for good.
    #[test]
    fn a_service_waits_for_a_store_that_is_down_when_it_starts() {
        let (runtime, server, store) = require!(down());
        let scene = Scene::new();
        let manager = Manager::new(&scene);
        let mut command = bare(&["run", "job", "--store", &store, "--", "sleep", "600"]);
        command.env("NOTIFY_SOCKET", scene.path("notify")).env("WATCHDOG_USEC", "100000");
        let tenure = Running::start(command);
        manager.wait_for("READY=1");
        manager.wait_for("STATUS=waiting for the store");
        manager.wait_for("WATCHDOG=1");
        runtime.block_on(server[0].restart()).unwrap();
        loop {
            let mut datagram = [0; 4096];
            let length = manager.0.recv(&mut datagram).unwrap();
            if datagram[..length].starts_with(b"STATUS=leading job with token") {
                break;
            }
        }
        tenure.signal(Signal::TERM);
        assert_eq!(tenure.end().code, Some(128 + 15));
    }

    #[test]
    fn a_wait_for_the_store_can_be_asked_for_refused_and_interrupted() {
        let (_runtime, _server, store) = require!(down());
        let scene = Scene::new();
        let _manager = Manager::new(&scene);
        let run = |flags: &[&str], service: bool| {
            let line = [&["run", "job", "--store", &store, "--ttl", "2s"], flags, &["--", "true"]];
            let mut command = bare(&line.concat());
            if service {
                command.env("NOTIFY_SOCKET", scene.path("notify"));
            }
            command
        };
        for (flags, service) in [
            (vec![], false),
            (vec!["--wait-for-store=never"], true),
            (vec!["--nonblock"], true),
            (vec!["--wait", "1s"], true),
        ] {
            let ended = ran(run(&flags, service));
            assert_eq!(ended.code, Some(69), "{flags:?} {ended:?}");
        }
        let mut waiting = Running::start(run(&["--wait-for-store"], false));
        let mut line = String::new();
        let output = waiting.child().stderr.as_mut().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        assert!(line.contains("waiting for the store: opening the store: etcd: "), "{line}");
        waiting.signal(Signal::TERM);
        assert_eq!(waiting.end().code, Some(0));
    }
}
