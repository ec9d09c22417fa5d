//! Notifications to systemd, and the units of the documentation.
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

    /// Reads until this message comes, and returns all earlier ones.
    fn wait_for(&self, expected: &str) -> Vec<String> {
        self.wait_until(expected, |text| text == expected)
    }

    /// Reads until a message with this beginning comes.
    fn wait_for_start(&self, expected: &str) {
        self.wait_until(expected, |text| text.starts_with(expected));
    }

    fn wait_until(&self, expected: &str, fits: impl Fn(&str) -> bool) -> Vec<String> {
        let mut heard = Vec::new();
        loop {
            let mut datagram = [0; 4096];
            let length = self.0.recv(&mut datagram).unwrap_or_else(|error| {
                panic!("{error}: no {expected} among {heard:?}");
            });
            let text = String::from_utf8(datagram[..length].to_vec()).unwrap();
            if fits(&text) {
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
    // The watchdog messages go on: the loop still runs.
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

/// The units in the documentation.
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
        // Two services of different users would take a directory away from each other.
        let name = path.file_stem().unwrap().to_str().unwrap().strip_prefix("tenure-").unwrap();
        assert!(text.contains(&format!("\nStateDirectory=tenure/{name}\n")), "{path:?}");
        assert!(text.contains(&format!("file:///var/lib/tenure/{name}:")), "{path:?}");
        if text.contains("\nRestart=") {
            assert!(text.contains("\nRestartSec="), "{path:?}");
            assert!(text.contains("\nStartLimitIntervalSec=0\n"), "{path:?}");
        }
    }
}

/// Issue 13, 33: the units were rated 9.6, "UNSAFE".
#[test]
fn systemd_accepts_every_unit_and_rates_it_as_safe() {
    let test = "systemd_accepts_every_unit_and_rates_it_as_safe";
    let analyze = |line: &[&std::ffi::OsStr]| Command::new("systemd-analyze").args(line).output();
    if analyze(&["--version".as_ref()]).is_err() {
        return support::skip(test, "no systemd-analyze");
    }
    for path in units() {
        let line = [
            "security".as_ref(),
            "--offline=true".as_ref(),
            "--threshold=30".as_ref(),
            path.as_ref(),
        ];
        let rated = analyze(&line).unwrap();
        let (says, error) =
            (String::from_utf8_lossy(&rated.stdout), String::from_utf8_lossy(&rated.stderr));
        if error.contains("unrecognized option") {
            return support::skip(test, "this systemd-analyze rates no files");
        }
        assert!(rated.status.success(), "{path:?}: {says}{error}");
        assert!(says.contains("Overall exposure level"), "{path:?}: {says}");
        let verified = analyze(&["verify".as_ref(), path.as_ref()]).unwrap();
        let says = String::from_utf8_lossy(&verified.stderr);
        // Other units of this machine may be wrong, too, and the tested program is not installed.
        let name = path.file_name().unwrap().to_str().unwrap();
        let ours = says.lines().filter(|line| line.contains(name));
        let wrong: Vec<&str> = ours.filter(|line| !line.contains("is not executable")).collect();
        assert_eq!(wrong, Vec::<&str>::new(), "{path:?}");
    }
}

#[cfg(feature = "etcd")]
mod waiting {
    use tenure_harness::{Etcd, etcd, require};

    use super::*;
    use support::{bare, ran};

    /// Starts and kills a server, and returns its future address.
    fn down() -> Result<(tokio::runtime::Runtime, Etcd, String), tenure_harness::Failure> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let server = runtime.block_on(Etcd::single(etcd::Options::default()))?;
        runtime.block_on(server[0].kill()).unwrap();
        let store = format!("etcd://{}/waiting", server[0].address());
        Ok((runtime, server, store))
    }

    /// A store that was down at boot ended a service five times, and then for good.
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
        let sharing = Scene::new();
        let second = Manager::new(&sharing);
        let mut command = bare(&["share", "group", "--store", &store, "--", "true"]);
        command.env("NOTIFY_SOCKET", sharing.path("notify"));
        let share = Running::start(command);
        second.wait_for("STATUS=waiting for the store");
        runtime.block_on(server[0].restart()).unwrap();
        manager.wait_for_start("STATUS=leading job with token");
        second.wait_for("STATUS=shares the work of group");
        tenure.signal(Signal::TERM);
        assert_eq!(tenure.end().code, Some(128 + 15));
        share.signal(Signal::TERM);
        assert_eq!(share.end().code, Some(0));
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
        let heard = waiting.hear("\n");
        assert!(heard.contains("waiting for the store: opening the store: etcd: "), "{heard}");
        waiting.signal(Signal::TERM);
        assert_eq!(waiting.end().code, Some(0));
    }

    #[test]
    fn a_stop_while_the_store_is_being_opened_is_obeyed() {
        for line in [vec!["run", "job", "--", "true"], vec!["share", "group", "--", "true"]] {
            let server = support::NoStore::start();
            let store = format!("etcd://127.0.0.1:{}/waiting", server.port());
            let flags = ["--store", &store, "--wait-for-store"];
            let (name, command) = line.split_at(2);
            let mut waiting = Running::start(bare(&[name, &flags, command].concat()));
            waiting.hear("waiting for the store");
            server.hang();
            server.wait_for_another();
            waiting.signal(Signal::TERM);
            assert_eq!(waiting.end().code, Some(0), "{line:?}");
        }
    }
}

/// `feed` has no other wait of its own, and exited with 69 at boot.
#[cfg(feature = "rethinkdb")]
#[test]
fn a_feed_waits_for_its_store_as_a_service_and_on_request() {
    let scene = Scene::new();
    let manager = Manager::new(&scene);
    let server = support::NoStore::start();
    let store = format!("rethinkdb://127.0.0.1:{}/waiting", server.port());
    let feed = |flags: &[&str]| support::bare(&[&["feed", "--store", &store], flags].concat());
    let ended = support::ran(feed(&[]));
    assert_eq!(ended.code, Some(69), "{ended:?}");
    let mut service = feed(&[]);
    service.env("NOTIFY_SOCKET", scene.path("notify"));
    for command in [service, feed(&["--wait-for-store"])] {
        let mut waiting = Running::start(command);
        waiting.hear("waiting for the store");
        waiting.signal(Signal::TERM);
        assert_eq!(waiting.end().code, Some(0));
    }
    manager.wait_for("STATUS=waiting for the store");
}
