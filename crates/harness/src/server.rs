use crate::process::{Life, Limit, Process};
use crate::recipe::{Member, Recipe};
use crate::{Failure, directory};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How long a server may take to end or to stand still after a signal.
const END_WITHIN: Duration = Duration::from_secs(15);
/// The pause between two checks of a server.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);

/// One real server. It keeps its ports and its data over restarts.
///
/// Ends when dropped.
#[derive(Debug)]
pub struct Server {
    name: String,
    recipe: Arc<dyn Recipe>,
    member: Arc<Member>,
    process: Process,
}

impl Server {
    pub(crate) fn prepare(
        recipe: &Arc<dyn Recipe>,
        members: &[Member],
        index: usize,
    ) -> Result<Process, Failure> {
        let own = &members[index];
        let launch = recipe.prepare(members, index)?;
        let launch = match &own.namespace {
            Some(namespace) => launch.inside(namespace),
            None => launch,
        };
        Ok(Process::new(launch, own.directory.clone()))
    }

    pub(crate) fn new(
        recipe: Arc<dyn Recipe>,
        member: Member,
        process: Process,
        index: usize,
    ) -> Server {
        let name = format!("{} #{index}", recipe.title());
        Server { name, recipe, member: Arc::new(member), process }
    }

    /// The address for its clients.
    pub fn address(&self) -> SocketAddr {
        self.member.address(0)
    }

    /// Its process id, while it runs or is stopped.
    pub fn id(&self) -> Option<u32> {
        self.process.id()
    }

    /// The file it logs to, over all restarts.
    pub fn log(&self) -> PathBuf {
        directory::log(&self.member.directory)
    }

    /// Its directory, for files that its options name.
    pub fn directory(&self) -> PathBuf {
        self.member.directory.clone()
    }

    /// Kills it with SIGKILL, and returns when it is gone.
    ///
    /// Fails with [`Failure::Down`] if it was not running.
    ///
    /// # Cancel safety
    /// It takes effect at the first poll.
    pub async fn kill(&self) -> Result<(), Failure> {
        self.done("killing", self.process.kill())
    }

    /// Stops it with SIGSTOP, and returns when it stands still.
    ///
    /// Its connections stay open, but it answers nothing.
    ///
    /// Fails with [`Failure::Down`] if it is not running.
    ///
    /// # Cancel safety
    /// The signal is sent at the first poll; call it again to wait for its effect.
    pub async fn stop(&self) -> Result<(), Failure> {
        self.done("stopping", self.process.pause())?;
        let limit = Limit::within(END_WITHIN);
        // A busy thread answers one more request before it sees the signal.
        while !self.process.frozen().map_err(self.while_doing("stopping"))? {
            if limit.reached() {
                return Err(self.late("its standstill"));
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    /// Lets it go on after [`stop`](Server::stop).
    ///
    /// Fails with [`Failure::Down`] if it is not running.
    ///
    /// # Cancel safety
    /// It takes effect at the first poll.
    pub async fn cont(&self) -> Result<(), Failure> {
        self.done("continuing", self.process.resume())
    }

    /// Ends it with SIGTERM, as an operator does, and returns when it is gone.
    ///
    /// Fails with [`Failure::Down`] if it was not running, and with [`Failure::Late`] if it does
    /// not end.
    ///
    /// # Cancel safety
    /// The signal is sent at the first poll; call it again to wait for the end.
    pub async fn terminate(&self) -> Result<(), Failure> {
        self.done("terminating", self.process.ask_to_end())?;
        let limit = Limit::within(END_WITHIN);
        while self.ended()?.is_none() {
            if limit.reached() {
                return Err(self.late("its end"));
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Starts it again with its data, on its port, without waiting. Does nothing if it is running.
    ///
    /// For a server that cannot be ready alone, such as one of three.
    pub fn start(&self) -> Result<(), Failure> {
        self.ended()?;
        self.process.start().map_err(self.while_doing("starting"))
    }

    /// Kills it if it runs, starts it again and waits until it is ready.
    ///
    /// Fails as [`ready`](Server::ready) does.
    ///
    /// # Cancel safety
    /// If dropped while waiting, the server is started and may not be ready.
    pub async fn restart(&self) -> Result<(), Failure> {
        match self.kill().await {
            Ok(()) | Err(Failure::Down { .. }) => {}
            Err(failure) => return Err(failure),
        }
        self.start()?;
        self.ready().await
    }

    /// Waits until it serves clients.
    ///
    /// Fails with [`Failure::Ended`] if it ends instead and with [`Failure::Late`] if it takes too
    /// long.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn ready(&self) -> Result<(), Failure> {
        let limit = Limit::within(self.recipe.ready_within());
        loop {
            if let Some(status) = self.ended()? {
                return Err(Failure::Ended {
                    server: self.name.clone(),
                    status: status.to_string(),
                    log: directory::end_of_log(&self.member.directory),
                });
            }
            if self.recipe.ready(&self.member).await {
                return Ok(());
            }
            if limit.reached() {
                return Err(self.late("readiness"));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Returns true if it believes that it leads; false if it is down or stopped.
    pub(crate) async fn leads(&self) -> bool {
        self.process.life() == Life::Running && self.recipe.leads(&self.member).await
    }

    /// The address of another of its ports, by the recipe's number.
    pub(crate) fn port(&self, index: usize) -> Option<SocketAddr> {
        (index < self.member.ports.len()).then(|| self.member.address(index))
    }

    pub(crate) fn late(&self, awaited: &'static str) -> Failure {
        let log = directory::end_of_log(&self.member.directory);
        Failure::Late { server: self.name.clone(), awaited, log }
    }

    fn ended(&self) -> Result<Option<std::process::ExitStatus>, Failure> {
        self.process.ended().map_err(self.while_doing("looking at it"))
    }

    fn done(&self, doing: &str, done: io::Result<bool>) -> Result<(), Failure> {
        match done {
            Ok(true) => Ok(()),
            Ok(false) => Err(Failure::Down { server: self.name.clone() }),
            Err(error) => Err(self.while_doing(doing)(error)),
        }
    }

    fn while_doing(&self, doing: &str) -> impl FnOnce(io::Error) -> Failure + use<> {
        Failure::system(format!("{}: {doing}", self.name))
    }
}
