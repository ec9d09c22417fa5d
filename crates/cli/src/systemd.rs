//! Notifications to systemd: ready, status, stopping, and the watchdog.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

/// Variables that must not reach CMD: with them CMD could speak for this process.
pub(crate) const VARIABLES: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

/// Returns true if systemd started this very process as a service. The child processes of a service
/// inherit most of its variables, so the process id is compared.
pub(crate) fn is_service() -> bool {
    let started = std::env::var("SYSTEMD_EXEC_PID").ok().and_then(|pid| pid.parse().ok());
    std::env::var_os("NOTIFY_SOCKET").is_some() || started == Some(std::process::id())
}

/// The service manager, if there is one.
#[derive(Debug)]
pub(crate) struct Systemd {
    manager: Option<Arc<Manager>>,
    /// Feeds the watchdog; aborted when this is dropped.
    watchdog: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Manager {
    socket: UnixDatagram,
    address: SocketAddr,
}

impl Systemd {
    /// The manager that the environment names. Begins to feed its watchdog, if systemd wants that.
    pub(crate) fn of_this_process() -> Systemd {
        let manager = manager().map(Arc::new);
        let watchdog = manager.clone().zip(interval()).map(|(manager, interval)| {
            tokio::spawn(async move {
                loop {
                    manager.send("WATCHDOG=1");
                    // Half of the allowed interval, as systemd's manual recommends.
                    tokio::time::sleep(interval / 2).await;
                }
            })
        });
        Systemd { manager, watchdog }
    }

    /// Tells systemd that this process is up and can do its work.
    pub(crate) fn ready(&self) {
        self.send("READY=1");
    }

    /// Shows people a line about the current state.
    pub(crate) fn status(&self, text: &str) {
        self.send(&format!("STATUS={}", crate::show::escape(text)));
    }

    /// Tells systemd that this process is about to end.
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
