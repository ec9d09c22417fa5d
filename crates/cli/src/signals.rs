//! The signals by which users control a running `tenure`.

use std::io;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

/// The request that a signal makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Stop the work and leave.
    Stop(Signal),
    /// Pass the signal on to the work; leave if there is none.
    PassOn(Signal),
    /// Pass the signal on to the work; ignore it if there is none.
    Mention(Signal),
    /// Let others lead, and stand again.
    StepDown,
    /// Check the mandate. This process was stopped, and the mandate may have run out meanwhile.
    Resume,
}

const HEARD: [Asked; 8] = [
    Asked::Resume,
    Asked::Stop(Signal::TERM),
    Asked::Stop(Signal::INT),
    Asked::PassOn(Signal::HUP),
    Asked::PassOn(Signal::QUIT),
    Asked::Mention(Signal::USR2),
    Asked::Mention(Signal::WINCH),
    Asked::StepDown,
];

/// The signals of this process, from now on.
#[derive(Debug)]
pub(crate) struct Signals(Vec<(Asked, unix::Signal)>);

impl Signals {
    /// Listens for all of [`HEARD`], except signals that this process must ignore.
    ///
    /// A process may be started to ignore a signal (`nohup`). CMD must ignore it too, and would not
    /// if we had a handler.
    ///
    /// # Errors
    /// When the runtime cannot listen.
    pub(crate) fn listen() -> io::Result<Signals> {
        let ignored = ignored();
        HEARD
            .into_iter()
            .filter(|asked| ignored >> (asked.number() - 1) & 1 == 0)
            .map(|asked| Ok((asked, unix::signal(SignalKind::from_raw(asked.number()))?)))
            .collect::<io::Result<_>>()
            .map(Signals)
    }

    /// Waits for the next signal.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn next(&mut self) -> Asked {
        std::future::poll_fn(|context| {
            for (asked, signal) in &mut self.0 {
                if let std::task::Poll::Ready(Some(())) = signal.poll_recv(context) {
                    return std::task::Poll::Ready(*asked);
                }
            }
            std::task::Poll::Pending
        })
        .await
    }

    /// Waits for the future, unless a signal asks this process to leave first.
    ///
    /// # Errors
    /// The signal that asked this process to leave.
    ///
    /// # Cancel safety
    /// As cancel safe as the future. The future must be cancel safe, because a signal drops it.
    pub(crate) async fn unless_interrupted<T>(
        &mut self,
        future: impl Future<Output = T>,
    ) -> Result<T, Signal> {
        tokio::pin!(future);
        loop {
            tokio::select! {
                biased;
                asked = self.next() => match asked {
                    Asked::Stop(signal) | Asked::PassOn(signal) => return Err(signal),
                    Asked::Mention(_) | Asked::StepDown | Asked::Resume => {}
                },
                done = &mut future => return Ok(done),
            }
        }
    }
}

impl Asked {
    fn number(self) -> i32 {
        match self {
            Asked::Stop(signal) | Asked::PassOn(signal) | Asked::Mention(signal) => signal.as_raw(),
            Asked::StepDown => Signal::USR1.as_raw(),
            Asked::Resume => Signal::CONT.as_raw(),
        }
    }
}

/// The signals this process ignores, one bit each.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
