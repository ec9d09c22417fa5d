//! A directory for elections, and the real program.
#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used)]

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tempfile::TempDir;

/// A user that owns nothing here.
pub const STRANGER: u32 = 65534;

/// Far longer than anything takes; only a failure waits this long.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A store of its own, and files beside it.
pub struct Scene {
    directory: TempDir,
}

impl Scene {
    pub fn new() -> Scene {
        Scene { directory: TempDir::new().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn store(&self) -> String {
        format!("file://{}", self.path("store").display())
    }

    /// The program with this scene's store, without the caller's settings.
    pub fn tenure(&self, arguments: &[&str]) -> Command {
        let mut command = bare(arguments);
        command.env("TENURE_STORE", self.store());
        command
    }

    /// Makes a directory, `home`, where a user that owns nothing else runs the program. Only root
    /// may do this.
    pub fn admit_stranger(&self) {
        fs::set_permissions(self.path(""), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(self.path("home")).unwrap();
        chown(self.path("home"), Some(STRANGER), Some(STRANGER)).unwrap();
        // The build directory may be inaccessible for another user.
        fs::copy(env!("CARGO_BIN_EXE_tenure"), self.path("tenure")).unwrap();
    }

    /// The program as that user runs it, with a store of its own.
    pub fn tenure_of_stranger(&self, arguments: &[&str]) -> Command {
        let mut command = as_stranger(&self.path("tenure"));
        let store = format!("file://{}", self.path("home/store").display());
        command.args(arguments).stdin(Stdio::null());
        command.env("XDG_CONFIG_HOME", "/nonexistent").env("TENURE_STORE", store);
        command
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Waits until a file has `count` lines, and returns the lines.
    pub fn lines(&self, name: &str, count: usize) -> Vec<String> {
        wait_for(&format!("{count} lines in {name}"), || {
            let text = self.read(name);
            let whole = text.ends_with('\n') && text.lines().count() >= count;
            whole.then(|| text.lines().map(str::to_owned).collect())
        })
    }

    /// The output of `who --json`.
    pub fn who(&self, election: &str) -> serde_json::Value {
        let ran = ran(self.tenure(&["who", election, "--json"]));
        serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
    }

    pub fn state(&self, election: &str) -> String {
        self.who(election)["state"].as_str().unwrap().to_owned()
    }

    pub fn wait_for_state(&self, election: &str, state: &str) {
        wait_for(&format!("{election} to be {state}"), || {
            (self.state(election) == state).then_some(())
        });
    }
}

/// The program, without the caller's settings.
pub fn bare(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    for (name, _) in std::env::vars_os() {
        let ours = ["TENURE_", "ELECTOR_", "NOTIFY_", "WATCHDOG_"];
        if ours.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command.env("XDG_CONFIG_HOME", "/nonexistent");
    command.args(arguments).stdin(Stdio::null());
    command
}

/// The output of a command, and its exit code.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

pub fn ran(mut command: Command) -> Ran {
    heard(command.output().unwrap())
}

pub fn heard(output: Output) -> Ran {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// A process of ours, killed when the test ends. Its guardian ends the rest.
pub struct Running(Option<Child>);

impl Running {
    pub fn start(mut command: Command) -> Running {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Running(Some(child))
    }

    /// The same, with the output discarded.
    pub fn start_quietly(mut command: Command) -> Running {
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Running(Some(child))
    }

    /// Continues the process, if it was stopped.
    pub fn resume(&self) {
        let _ = kill_process(self.pid(), Signal::CONT);
    }

    pub fn child(&mut self) -> &mut Child {
        self.0.as_mut().unwrap()
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(self.0.as_ref().unwrap())
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// The process's only child, which is its guardian.
    pub fn guardian(&self) -> Pid {
        let me = self.pid().as_raw_nonzero().get();
        wait_for("the guardian", || children(me).first().copied().and_then(Pid::from_raw))
    }

    /// Reads its standard error up to a line with this text, byte by byte.
    ///
    /// The rest is left for [`end`](Running::end).
    pub fn hear(&mut self, expected: &str) -> String {
        let output = self.child().stderr.as_mut().unwrap();
        let (mut heard, mut byte) = (Vec::new(), [0]);
        loop {
            let read = output.read(&mut byte).unwrap();
            heard.extend_from_slice(&byte[..read]);
            let text = String::from_utf8_lossy(&heard);
            if text.ends_with('\n') && text.contains(expected) {
                return text.into_owned();
            }
            assert_ne!(read, 0, "no {expected:?} in {text}");
        }
    }

    /// Waits for its end.
    pub fn end(self) -> Ran {
        self.end_within(PATIENCE)
    }

    /// Waits for its end, for at most this long.
    pub fn end_within(mut self, patience: Duration) -> Ran {
        let mut child = self.0.take().unwrap();
        let deadline = Instant::now() + patience;
        while child.try_wait().unwrap().is_none() {
            if Instant::now() > deadline {
                let _ = child.kill();
                panic!("it did not end: {:?}", heard(child.wait_with_output().unwrap()));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        heard(child.wait_with_output().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Asks until there is an answer.
pub fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub fn alive(pid: i32) -> bool {
    let Some(pid) = Pid::from_raw(pid) else { return false };
    let zombie = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()))
        .is_ok_and(|stat| stat.rsplit(')').next().unwrap().trim_start().starts_with('Z'));
    test_kill_process(pid) != Err(Errno::SRCH) && !zombie
}

pub fn children(parent: i32) -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &i32| {
        fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
            let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
            fields.get(1).and_then(|field| field.parse().ok()) == Some(parent)
        })
    })
    .collect()
}

pub fn wait_for_death(pids: &[i32]) {
    wait_for(&format!("the death of {pids:?}"), || {
        pids.iter().all(|pid| !alive(*pid)).then_some(())
    });
}

/// The owner of a process.
pub fn user_of(process: u32) -> Option<u32> {
    fs::metadata(format!("/proc/{process}")).ok().map(|found| found.uid())
}

/// A program, run as a user that owns nothing here.
pub fn as_stranger(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    let user = STRANGER.to_string();
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]).arg(program);
    command
}

/// Reports that a test, or a part of it, does not run here.
pub fn skip(test: &str, why: &str) {
    eprintln!("SKIPPED {test}: {why}");
}

/// The current time on the clock that mandate files use.
pub fn boot_time() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    u64::try_from(now.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap()
}

/// The end of the mandate in a mandate file, on that clock.
pub fn mandate_end(file: &Path) -> Option<u64> {
    let mandate: serde_json::Value = serde_json::from_str(&fs::read_to_string(file).ok()?).ok()?;
    mandate["until_boottime_ns"].as_u64()
}

/// Stops a process; dropping this continues it.
pub struct Stopped(Pid);

impl Stopped {
    /// Stops the process, and waits until it has stopped.
    pub fn new(process: Pid) -> Stopped {
        kill_process(process, Signal::STOP).unwrap();
        let stopped = Stopped(process);
        wait_for("the stop", || {
            let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
            stat.ok()?.rsplit(')').next()?.trim_start().starts_with('T').then_some(())
        });
        stopped
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// A server where no store answers.
pub struct NoStore {
    port: u16,
    connections: Arc<AtomicUsize>,
    keeps: Arc<AtomicBool>,
}

impl NoStore {
    /// A server that closes every connection at once.
    pub fn start() -> NoStore {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (connections, keeps) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (counted, kept) = (Arc::clone(&connections), Arc::clone(&keeps));
        // The thread ends with the test's process.
        std::thread::spawn(move || {
            let mut open = Vec::new();
            for connection in listener.incoming().flatten() {
                if kept.load(Ordering::SeqCst) {
                    open.push(connection);
                }
                counted.fetch_add(1, Ordering::SeqCst);
            }
        });
        NoStore { port, connections, keeps }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// From now on the server keeps connections open, and sends nothing.
    pub fn hang(&self) {
        self.keeps.store(true, Ordering::SeqCst);
    }

    /// Waits for one more connection.
    pub fn wait_for_another(&self) {
        let before = self.connections.load(Ordering::SeqCst);
        wait_for("a connection", || {
            (self.connections.load(Ordering::SeqCst) > before).then_some(())
        });
    }
}
