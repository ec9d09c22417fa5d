use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, channel};

/// The command that starts a server.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    /// True if the program starts the server as its child. Signals go to all its processes.
    pub(crate) family: bool,
}

// The parent may be gone before the kernel was told to end the child with it, hence the check.
const GUARDED: &str = r#"test "$PPID" = "$0" && exec "$@""#;

impl Launch {
    /// The same command in another network namespace.
    pub(crate) fn inside(self, namespace: &str) -> Launch {
        let entering = [format!("--net=/run/netns/{namespace}"), "--".to_owned()];
        let command = self.program.display().to_string();
        let arguments = entering.into_iter().chain([command]).chain(self.arguments).collect();
        Launch { program: "nsenter".into(), arguments, family: self.family }
    }

    /// Starts it so that the kernel kills it when this process ends in any way.
    pub(crate) fn spawn(&self, directory: &Path, log: File) -> io::Result<Child> {
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "--", "sh", "-c", GUARDED])
            .arg(std::process::id().to_string())
            .arg(&self.program)
            .args(&self.arguments)
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        // Servers read settings from the environment; a test must not depend on the caller's.
        command.env_clear().env("LC_ALL", "C.UTF-8").env("HOME", directory);
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        if self.family {
            command.process_group(0);
        }
        spawn_on_lasting_thread(command)
    }
}

struct Request {
    command: Command,
    answer: Sender<io::Result<Child>>,
}

/// Spawns a command on a thread that never ends.
///
/// "Parent" in the kernel's promise means the thread that forked, and a test's thread ends before
/// its process does: a server shared by tests would die with the first of them. So one thread forks
/// all servers.
fn spawn_on_lasting_thread(command: Command) -> io::Result<Child> {
    static SPAWNER: OnceLock<Sender<Request>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, requests) = channel();
        std::thread::Builder::new()
            .name("tenure-spawner".to_owned())
            .spawn(move || spawn_all(requests))
            .expect("a test process may have one more thread");
        sender
    });
    let (answer, spawned) = channel();
    spawner.send(Request { command, answer }).expect("the spawner never ends");
    spawned.recv().expect("the spawner answers every request")
}

fn spawn_all(requests: Receiver<Request>) {
    for mut request in requests {
        // The receiver is gone only if its thread panicked; then the child is not wanted either.
        if let Err(unwanted) = request.answer.send(request.command.spawn())
            && let Ok(mut child) = unwanted.0
        {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
