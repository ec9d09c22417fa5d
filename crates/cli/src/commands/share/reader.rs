//! Reads the items of this process's own source, and submits them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tenure_cluster::ClusterClient;
use tenure_cluster::input::Template;
use tokio::sync::{mpsc, watch};

use super::finder::Finder;
use super::from::From;
use super::pool::GuardianPool;
use crate::commands::lines::{self, Heard};
use crate::commands::submit::{enter, order};
use crate::exit::Failure;
use crate::show;

/// How many items are submitted together.
const TOGETHER: usize = 500;

/// Reads lines and submits them.
#[derive(Debug)]
pub(super) struct Reader {
    pool: Arc<GuardianPool>,
    client: ClusterClient,
    template: Template,
    heard: mpsc::Receiver<Heard>,
    finder: Option<Finder>,
    stop: watch::Receiver<bool>,
    stopper: watch::Sender<bool>,
    submitted: Arc<AtomicU64>,
    faults: u64,
}

/// The result of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Read {
    /// The number of faults: lines that were refused, or sources that failed.
    pub(super) faults: u64,
}

impl Reader {
    /// Begins to read `--from`, if it is a source that this process reads itself.
    ///
    /// # Errors
    /// When no process can be started.
    pub(super) fn open(
        from: &From,
        pool: &Arc<GuardianPool>,
        client: &ClusterClient,
        template: Template,
    ) -> Result<Reader, Failure> {
        let (finder, heard) = match from {
            From::Command(text) => {
                let (finder, output) = Finder::start(pool, text)?;
                (Some(finder), lines::read(output))
            }
            From::Input | From::Directory(_) | From::Lines(_) | From::Objects(_) => {
                (None, lines::read(io::stdin()))
            }
        };
        let (stopper, stop) = watch::channel(false);
        let (pool, client) = (Arc::clone(pool), client.clone());
        let submitted = Arc::default();
        Ok(Reader { pool, client, template, heard, finder, stop, stopper, submitted, faults: 0 })
    }

    /// Stops the reading, after the items just read have been accepted.
    pub(super) fn stopper(&self) -> watch::Sender<bool> {
        self.stopper.clone()
    }

    /// The number of items accepted so far.
    pub(super) fn submitted(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.submitted)
    }

    /// Reads to the end, or until it is stopped.
    ///
    /// # Errors
    /// When the store does not serve, or refuses.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future leaves it open which items were accepted.
    pub(super) async fn run(mut self) -> Result<Read, Failure> {
        let read = self.read().await;
        let stopped = *self.stop.borrow();
        // Close the channel, so that a process that still writes notices.
        self.heard.close();
        if let Some(mut finder) = self.finder.take() {
            if stopped || read.is_err() {
                finder.stop();
            }
            let ended = finder.ended().await;
            if let (Err(why), false) = (ended, stopped) {
                show::say(&format!("the command of --from failed: {why}"));
                self.faults += 1;
            }
            self.pool.dismiss(finder.into_guardian()).await;
        }
        read.map(|()| Read { faults: self.faults })
    }

    async fn read(&mut self) -> Result<(), Failure> {
        let mut stop = self.stop.clone();
        loop {
            let mut together = Vec::new();
            tokio::select! {
                biased;
                // The sender lives in this reader, so the wait cannot fail.
                _ = stop.wait_for(|stop| *stop) => return Ok(()),
                count = self.heard.recv_many(&mut together, TOGETHER) => if count == 0 {
                    return Ok(());
                },
            }
            let mut orders = Vec::with_capacity(together.len());
            for heard in together {
                match heard {
                    Heard::Line(line) => orders.push(order(&self.template, &line)),
                    Heard::TooLong(number) => {
                        self.faults += 1;
                        show::say(&format!("line {number} is left out: it has more than 16 KiB"));
                    }
                    Heard::Failed(says) => {
                        self.faults += 1;
                        show::say(&format!("reading --from: {says}"));
                    }
                }
            }
            let count = orders.len() as u64;
            enter(&self.client, orders).await?;
            self.submitted.fetch_add(count, Ordering::Relaxed);
        }
    }
}
