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

/// What came of opening the store.
pub(crate) enum Opening {
    /// It is open. The signals go with it: one that came meanwhile, or comes before the caller listens, is
    /// lost with any other listener.
    Opened(Box<Opened>, Signals),
    /// A signal came before the store did.
    Interrupted(Signal),
}

/// Opens the store, and waits for one that cannot be reached if that is wanted.
///
/// `patient`: this process would wait to be elected, or for work. Only then does a service wait by itself.
///
/// # Errors
/// When the store refuses; when it cannot be reached and is not waited for.
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
            // As ready as a candidate whose store goes away later.
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
