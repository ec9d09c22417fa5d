//! `tenure run`: wait, lead, run CMD while leading, stop it in time, release.

mod lead;

use std::process::ExitCode;
use std::time::Duration;

use futures_util::StreamExt;
use tenure::file::{FilePresence, WorkFile};
use tenure::{
    Candidacy, Candidate, Election, ElectionState, Leadership, Loss, Resignation, Status,
};
use tenure_stores::Opened;

use self::lead::{Cause, Led};
use crate::args::Run;
use crate::exit::{self, Ending, Failure};
use crate::session::Session;
use crate::show;
use crate::signals::{Asked, Signals};
use crate::supervise::Guardian;

/// A child that keeps failing is tried again after pauses from the first to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

pub(crate) async fn run(session: &Session, wanted: Run) -> Ending {
    let candidate = session.candidate(&wanted.value)?;
    let opened = session.open().await?;
    if session.embedded {
        show::say(&format!(
            "no --store given: electing among this machine's processes only, in {}",
            session.location
        ));
    }
    let mut builder = Election::builder(&opened.backend, &wanted.target.election)
        .timing(session.timing)
        .create_if_missing(!wanted.no_create);
    if let Some(delay) = wanted.lock_delay {
        builder = builder.lock_delay(delay);
    }
    let election = builder.open().await?;
    let signals = Signals::listen()?;
    let mut runner = Runner { session, wanted, candidate, opened, election, signals };
    runner.rounds().await
}

struct Runner<'a> {
    session: &'a Session,
    wanted: Run,
    candidate: Candidate,
    opened: Opened,
    election: Election,
    signals: Signals,
}

/// How one candidacy ended.
enum Round {
    /// With this exit code, for good.
    Over(u8),
    /// With this exit code, unless it is to stand again, after a pause.
    Again { code: u8, pause: bool },
}

/// What came of waiting.
enum Waited {
    Elected(Box<Leadership>),
    Interrupted,
    SteppedDown,
    TooLong,
    GuardianDied,
}

impl Runner<'_> {
    async fn rounds(&mut self) -> Ending {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.round().await? {
                Round::Over(code) => return Ok(ExitCode::from(code)),
                Round::Again { pause: false, .. } => pause = FIRST_PAUSE,
                Round::Again { code, pause: true } => {
                    show::say(&format!("standing again in {} (CMD: {code})", show::span(pause)));
                    if self.interrupted_within(pause).await {
                        return Ok(ExitCode::from(code));
                    }
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    async fn interrupted_within(&mut self, pause: Duration) -> bool {
        let pause = tokio::time::sleep(pause);
        tokio::pin!(pause);
        loop {
            tokio::select! {
                () = &mut pause => return false,
                asked = self.signals.next() => match asked {
                    Asked::Stop(_) | Asked::PassOn(_) => return true,
                    Asked::Mention(_) | Asked::StepDown => {}
                },
            }
        }
    }

    /// One candidacy, with a guardian of its own.
    async fn round(&mut self) -> Result<Round, Failure> {
        // The work file comes first: the candidacy's proof of life names it.
        let presence = self.opened.presence.clone();
        let work = presence.as_deref().map(FilePresence::work).transpose()?;
        let share = presence.as_deref().map(FilePresence::share).transpose()?;
        let mut guardian = Guardian::post(&self.wanted.command, &secrets(), share)?;
        tracing::info!(guardian = ?guardian.pid(), "the guardian waits");
        if self.wanted.nonblock && self.election.standing().await?.state == ElectionState::Led {
            guardian.dismiss().await;
            return Ok(Round::Over(self.wanted.conflict_exit_code));
        }
        let candidacy = self.election.stand(self.candidate.clone())?;
        let waited = self.wait(candidacy, &mut guardian).await;
        let ending = match waited {
            Ok(Waited::Elected(leadership)) => return self.lead(*leadership, guardian, work).await,
            Ok(Waited::Interrupted) => Ok(Round::Over(0)),
            Ok(Waited::SteppedDown) => Ok(Round::Again { code: 0, pause: false }),
            Ok(Waited::TooLong) => Ok(Round::Over(self.wanted.conflict_exit_code)),
            Ok(Waited::GuardianDied) => {
                show::say("the guardian died; withdrawing");
                Ok(Round::Over(exit::FAILURE))
            }
            Err(error) => Err(error),
        };
        guardian.dismiss().await;
        // What the candidacy may just have won is freed before we go.
        self.opened.backend.close().await;
        ending
    }

    /// Waits to be elected. Dropping the candidacy withdraws it.
    async fn wait(
        &mut self,
        candidacy: Candidacy,
        guardian: &mut Guardian,
    ) -> Result<Waited, Failure> {
        let patience = self.patience();
        let patience = async {
            match patience {
                Some(patience) => tokio::time::sleep(patience).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(patience);
        let mut statuses = candidacy.statuses();
        let mut told = false;
        let elected = candidacy.elected();
        tokio::pin!(elected);
        loop {
            tokio::select! {
                // Who has won has won, however late it is.
                biased;
                leadership = &mut elected => return Ok(Waited::Elected(Box::new(leadership?))),
                asked = self.signals.next() => match asked {
                    Asked::Stop(_) | Asked::PassOn(_) => return Ok(Waited::Interrupted),
                    Asked::StepDown => return Ok(Waited::SteppedDown),
                    Asked::Mention(_) => {}
                },
                _ = guardian.event() => return Ok(Waited::GuardianDied),
                () = &mut patience => return Ok(Waited::TooLong),
                Some(status) = statuses.next() => tell(&status, &mut told),
            }
        }
    }

    fn patience(&self) -> Option<Duration> {
        if self.wanted.nonblock {
            // Nobody leads; what is left is to claim, and to lose against others who do.
            return Some(self.session.timing.request() * 3);
        }
        self.wanted.wait
    }

    async fn lead(
        &mut self,
        leadership: Leadership,
        guardian: Guardian,
        work: Option<WorkFile>,
    ) -> Result<Round, Failure> {
        let token = leadership.mandate().token();
        tracing::info!(election = %self.election.name(), token, "leading");
        let led = lead::Lead {
            mandate: leadership.mandate(),
            grace: self.session.timing.grace(),
            environment: self.environment(token),
            signals: &mut self.signals,
        }
        .run(guardian, work.as_ref())
        .await;
        let resigned = release(leadership, work, self.session).await;
        Ok(self.judge(&led, resigned))
    }

    fn environment(&self, token: u64) -> Vec<(String, String)> {
        let ttl = self.session.timing.ttl().as_millis();
        [
            ("TENURE_ELECTION", self.election.name().to_string()),
            ("TENURE_ID", self.candidate.name().to_owned()),
            ("TENURE_TOKEN", token.to_string()),
            ("TENURE_TTL_MS", ttl.to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    /// What it all means for the exit code.
    fn judge(&self, led: &Led, resigned: Released) -> Round {
        let own = led.status.map_or(exit::FAILURE, crate::supervise::Status::shell_code);
        let keep = self.wanted.keep;
        match (&led.cause, &led.refused) {
            (Cause::GuardianFailed, _) => {
                show::say("the guardian died or hung; CMD was killed");
                Round::Over(exit::FAILURE)
            }
            (_, Some((code, why))) => {
                let command = self.wanted.command.first().map(|first| first.to_string_lossy());
                show::say(&format!("running {}: {why}", command.unwrap_or_default()));
                Round::Over(*code)
            }
            (Cause::Lost(Loss::Ended), None) => {
                show::say("the election has ended; CMD was stopped");
                Round::Over(exit::NOT_LED)
            }
            (Cause::Lost(loss), None) if resigned == Released::Escaped => {
                show::say(&format!("leadership lost: {loss}"));
                Round::Over(exit::LOST)
            }
            (Cause::Lost(loss), None) => {
                show::say(&format!("leadership lost: {loss}; CMD was stopped"));
                match keep {
                    true => Round::Again { code: exit::LOST, pause: false },
                    false => Round::Over(exit::LOST),
                }
            }
            // Its work may still run: this process must go, and renew nothing.
            _ if resigned == Released::Escaped => {
                Round::Over(if own == 0 { exit::UNKNOWN } else { own })
            }
            (Cause::SteppedDown, None) => Round::Again { code: own, pause: false },
            (Cause::Interrupted, None) => Round::Over(own),
            (Cause::Itself, None) if keep => Round::Again { code: own, pause: true },
            (Cause::Itself, None) => match resigned {
                Released::Unknown if own == 0 => Round::Over(exit::UNKNOWN),
                Released::Unknown | Released::Escaped | Released::Yes => Round::Over(own),
            },
        }
    }
}

/// Tells people what is waited for. A store that does not answer is mentioned once, until it does.
fn tell(status: &Status, told: &mut bool) {
    match &status.error {
        Some(error) if !*told => {
            show::say(&format!("waiting on: {}", show::chain(&error.clone().into())));
        }
        Some(_) | None => {}
    }
    *told = status.error.is_some();
    if let Some(leader) = &status.follows {
        tracing::info!(leader = %show::escape(&leader.name), "waiting");
    }
}

/// Whether others may lead now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Released {
    Yes,
    /// The store did not say.
    Unknown,
    /// No: something of its work still runs.
    Escaped,
}

/// Gives the leadership up, if nothing of its work can be left.
async fn release(leadership: Leadership, work: Option<WorkFile>, session: &Session) -> Released {
    if let Some(probe) = work.map(WorkFile::close) {
        // The kernel closes the files of a dead process a moment after its parent has heard of it.
        let patience = session.timing.grace() / 4;
        if tokio::time::timeout(patience, probe.freed()).await.is_err() {
            show::say(&format!(
                "a process that CMD started has escaped and still has the work file open; not \
                 releasing: others lead when the lease has expired, within {}",
                show::span(session.timing.ttl())
            ));
            // Dropped, it would release.
            std::mem::forget(leadership);
            return Released::Escaped;
        }
    }
    match leadership.resign().await {
        Resignation::Released | Resignation::AlreadyLost => Released::Yes,
        Resignation::Unknown { frees_within } => {
            show::say(&format!(
                "the store did not say whether the leadership was released; others lead within {}",
                show::span(frees_within)
            ));
            Released::Unknown
        }
    }
}

/// What CMD may not see: a store's URL with a password in it.
fn secrets() -> Vec<&'static str> {
    let url = std::env::var("TENURE_STORE");
    let secret = match &url {
        Ok(url) => tenure_stores::holds_credentials(url),
        Err(std::env::VarError::NotPresent) => false,
        Err(std::env::VarError::NotUnicode(_)) => true,
    };
    if secret { vec!["TENURE_STORE"] } else { Vec::new() }
}
