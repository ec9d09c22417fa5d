//! Opening a store that may not serve yet: at boot, or while it is being repaired.

use std::time::Duration;

use rustix::process::Signal;
use tenure_stores::Opened;

use crate::args::WaitForStore;
use crate::exit::{Failure, UNKNOWN, UNREACHABLE};
use crate::show;
use crate::signals::Signals;
use crate::systemd::{Systemd, is_service};

/// The pause between two attempts; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// The outcome of opening the store.
pub(crate) enum Opening {
    /// The store is open. The signal listener is handed on: a signal that came meanwhile, or that
    /// comes before the caller listens, would be lost with a new listener.
    Opened(Box<Opened>, Signals),
    /// A signal came before the store did.
    Interrupted(Signal),
}

/// Opens the store, and waits for an unreachable one if that is wanted.
///
/// `patient` says that this process would wait to be elected, or for work. With
/// [`WaitForStore::Auto`] only a patient process that runs as a service waits for the store.
///
/// # Errors
/// When the store refuses, or when it cannot be reached and `wait` says not to wait for it.
///
/// # Cancel safety
/// Cancel safe, if `attempt` is.
pub(crate) async fn open(
    attempt: impl AsyncFn() -> Result<Opened, Failure>,
    wait: WaitForStore,
    patient: bool,
) -> Result<Opening, Failure> {
    let waits = match wait {
        WaitForStore::Auto => patient && is_service(),
        WaitForStore::Always => true,
        WaitForStore::Never => false,
    };
    let mut signals = Signals::listen()?;
    let mut waiting: Option<Systemd> = None;
    let mut pause = FIRST_PAUSE;
    loop {
        let failure = match signals.unless_interrupted(attempt()).await {
            Ok(Ok(opened)) => return Ok(Opening::Opened(Box::new(opened), signals)),
            Ok(Err(failure)) => failure,
            Err(signal) => return Ok(Opening::Interrupted(signal)),
        };
        if !waits || !matches!(failure.code, UNREACHABLE | UNKNOWN) {
            return Err(failure);
        }
        if waiting.is_none() {
            show::say(&format!("waiting for the store: {}", show::chain(&failure.error)));
            let systemd = Systemd::of_this_process();
            // To systemd this process is as ready as a candidate that loses its store later.
            systemd.ready();
            systemd.status("waiting for the store");
            waiting = Some(systemd);
        }
        if let Err(signal) = signals.unless_interrupted(tokio::time::sleep(pause)).await {
            return Ok(Opening::Interrupted(signal));
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::{getpid, kill_process};
    use tenure_stores::OpenOptions;

    use super::*;
    use crate::signals::Asked;

    fn told_to_stop() {
        kill_process(getpid(), Signal::TERM).expect("sent");
    }

    /// Regression: a stop was obeyed only after the whole request. If that succeeded, it was lost.
    #[tokio::test]
    async fn a_stop_during_an_attempt_is_obeyed_at_once_and_is_not_lost_when_that_succeeds() {
        let hangs = async || {
            told_to_stop();
            std::future::pending().await
        };
        let opening = open(hangs, WaitForStore::Always, true);
        let opening = tokio::time::timeout(Duration::from_secs(30), opening).await.expect("obeyed");
        assert!(matches!(opening, Ok(Opening::Interrupted(Signal::TERM))));

        let succeeds = async || {
            let memory = tenure_stores::parse("memory:").expect("a good URL");
            let opened = tenure_stores::open_at(&memory, &OpenOptions::default()).await?;
            told_to_stop();
            Ok(opened)
        };
        match open(succeeds, WaitForStore::Always, true).await {
            Ok(Opening::Interrupted(signal)) => assert_eq!(signal, Signal::TERM),
            Ok(Opening::Opened(_, mut signals)) => {
                let heard = tokio::time::timeout(Duration::from_secs(30), signals.next()).await;
                assert_eq!(heard.expect("handed on"), Asked::Stop(Signal::TERM));
            }
            Err(failure) => panic!("{failure:?}"),
        }
    }
}
