//! Opening a store that may not serve yet: at boot, or while it is being repaired.

use std::time::Duration;

use rustix::process::Signal;
use tenure_stores::Opened;

use crate::args::WaitForStore;
use crate::exit::{Failure, UNKNOWN, UNREACHABLE};
use crate::session::Session;
use crate::show;
use crate::signals::{Asked, Signals};
use crate::systemd::{Systemd, is_service};

/// The pause between two attempts; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// What came of opening the store.
pub(crate) enum Opening {
    Opened(Box<Opened>),
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
/// Cancel safe.
pub(crate) async fn open(
    session: &Session,
    create: bool,
    wait: WaitForStore,
    patient: bool,
) -> Result<Opening, Failure> {
    let waits = match wait {
        WaitForStore::Auto => patient && is_service(),
        WaitForStore::Always => true,
        WaitForStore::Never => false,
    };
    let request = session.timing.request();
    let mut waiting: Option<(Signals, Systemd)> = None;
    let mut pause = FIRST_PAUSE;
    loop {
        let failure = match session.open_with(request, None, create).await {
            Ok(opened) => return Ok(Opening::Opened(Box::new(opened))),
            Err(failure) => failure,
        };
        if !waits || !matches!(failure.code, UNREACHABLE | UNKNOWN) {
            return Err(failure);
        }
        let (signals, _systemd) = match &mut waiting {
            Some(waiting) => waiting,
            None => {
                let signals = Signals::listen()?;
                show::say(&format!("waiting for the store: {}", show::chain(&failure.error)));
                let systemd = Systemd::of_this_process();
                // As ready as a candidate whose store goes away later.
                systemd.ready();
                systemd.status("waiting for the store");
                waiting.insert((signals, systemd))
            }
        };
        if let Some(signal) = interrupted_within(signals, pause).await {
            return Ok(Opening::Interrupted(signal));
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn interrupted_within(signals: &mut Signals, pause: Duration) -> Option<Signal> {
    let pause = tokio::time::sleep(pause);
    tokio::pin!(pause);
    loop {
        tokio::select! {
            () = &mut pause => return None,
            asked = signals.next() => match asked {
                Asked::Stop(signal) | Asked::PassOn(signal) => return Some(signal),
                Asked::Mention(_) | Asked::StepDown | Asked::Resume => {}
            },
        }
    }
}
