//! What systemd is told: ready, what is going on, stopping, and that the loop still turns.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

/// What must not reach CMD: it speaks for this process.
pub(crate) const VARIABLES: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

/// Whether systemd started this very process as a service. What a service starts inherits most of
/// its variables.
pub(crate) fn is_service() -> bool {
    let started = std::env::var("SYSTEMD_EXEC_PID").ok().and_then(|pid| pid.parse().ok());
    std::env::var_os("NOTIFY_SOCKET").is_some() || started == Some(std::process::id())
}

/// The service manager, if there is one.
#[derive(Debug)]
pub(crate) struct Systemd {
    manager: Option<Arc<Manager>>,
    /// Ends with this.
    watchdog: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Manager {
    socket: UnixDatagram,
    address: SocketAddr,
}

impl Systemd {
    /// The one that the environment names. Begins to feed its watchdog, if that is wanted.
    pub(crate) fn of_this_process() -> Systemd {
        let manager = manager().map(Arc::new);
        let watchdog = manager.clone().zip(interval()).map(|(manager, interval)| {
            tokio::spawn(async move {
                loop {
                    manager.send("WATCHDOG=1");
                    // Half of what is allowed, as its manual says.
                    tokio::time::sleep(interval / 2).await;
                }
            })
        });
        Systemd { manager, watchdog }
    }

    /// This process stands: it can do what it is for.
    pub(crate) fn ready(&self) {
        self.send("READY=1");
    }

    /// What is going on, in a line for people.
    pub(crate) fn status(&self, text: &str) {
        self.send(&format!("STATUS={}", crate::show::escape(text)));
    }

    /// This process is about to end.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1");
    }

    fn send(&self, state: &str) {
        if let Some(manager) = &self.manager {
            manager.send(state);
        }
    }
}

impl Drop for Systemd {
    fn drop(&mut self) {
        if let Some(watchdog) = &self.watchdog {
            watchdog.abort();
        }
    }
}

impl Manager {
    fn send(&self, state: &str) {
        // A manager that does not listen is no reason to stop leading.
        if let Err(error) = self.socket.send_to_addr(state.as_bytes(), &self.address) {
            tracing::debug!(%error, "telling systemd");
        }
    }
}

fn manager() -> Option<Manager> {
    let name = std::env::var_os("NOTIFY_SOCKET")?;
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&name),
    };
    let socket = UnixDatagram::unbound().ok()?;
    socket.set_nonblocking(true).ok()?;
    Some(Manager { socket, address: address.ok()? })
}

fn interval() -> Option<Duration> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
    let interval = number("WATCHDOG_USEC").filter(|interval| ours && *interval > 0)?;
    Some(Duration::from_micros(interval))
}
