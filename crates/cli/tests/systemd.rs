//! What systemd is told.
#![allow(clippy::unwrap_used)]

mod support;

use std::os::unix::net::UnixDatagram;
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
