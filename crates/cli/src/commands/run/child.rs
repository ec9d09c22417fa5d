//! Runs CMD: waits, leads, runs it while leading, stops it in time, releases.

use std::process::ExitCode;
use std::time::Duration;

use futures_util::StreamExt;
use tenure::file::{FilePresence, WorkFile, WorkProbe, WorkStart};
use tenure::{
    Candidacy, Candidate, Election, ElectionState, Leadership, Loss, Resignation, Status,
};
use tenure_stores::Opened;

use super::lead::{self, Cause, Led};
use super::wanted::{Patience, Wanted, last_in_line};
use crate::exit::{self, Ending, Failure};
use crate::mandate_file::MandateFile;
use crate::secrets::secrets;
use crate::session::Session;
use crate::show;
use crate::signals::{Asked, Signals};
use crate::supervise::{BootTime, Cgroup, Guardian, end_leftovers};
use crate::systemd::Systemd;

/// The first and the longest pause before a failing CMD is tried again.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Runs CMD each time this process leads.
pub(super) struct Runner<'a> {
    pub(super) session: &'a Session,
    pub(super) wanted: Wanted,
    pub(super) candidate: Candidate,
    pub(super) opened: Opened,
    pub(super) election: Election,
    pub(super) signals: Signals,
    pub(super) systemd: Systemd,
}

/// How one candidacy ended.
enum Round {
    /// The last one, with this exit code.
    Over(u8),
    /// With this exit code. The process stands again, at once or after a pause.
    Again { code: u8, pause: Pause },
}

/// How long to stay away before standing again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pause {
    None,
    /// It stepped down: others come first.
    LastInQueue,
    /// CMD succeeded: a short pause, so that CMD does not run in a tight loop.
    Short,
    /// CMD failed: longer each time.
    Backoff,
    /// Work of an earlier leader still runs, so CMD was not started. Longer each time.
    WorkLeft,
}

/// The outcome of waiting.
enum Waited {
    Elected(Box<Leadership>),
    Interrupted,
    SteppedDown,
    TooLong,
    GuardianDied,
}

impl Runner<'_> {
    /// Stands, leads and stands again, until it is over.
    ///
    /// # Errors
    /// When the store refuses, or no process can be started.
    ///
    /// # Cancel safety
    /// Not cancel safe: processes of CMD may live on.
    pub(super) async fn rounds(&mut self) -> Ending {
        let mut backoff = FIRST_PAUSE;
        loop {
            let (code, pause) = match self.round().await? {
                Round::Over(code) => return Ok(ExitCode::from(code)),
                Round::Again { code, pause } => (code, pause),
            };
            let left = pause == Pause::WorkLeft;
            let pause = match pause {
                Pause::None => continue,
                Pause::LastInQueue => {
                    if self.interrupted_within(last_in_line(self.session.timing)).await {
                        return Ok(ExitCode::from(code));
                    }
                    continue;
                }
                Pause::Short => {
                    backoff = FIRST_PAUSE;
                    FIRST_PAUSE
                }
                Pause::Backoff | Pause::WorkLeft => {
                    let longer = (backoff * 2).min(LONGEST_PAUSE);
                    std::mem::replace(&mut backoff, longer)
                }
            };
            let why = if left { String::new() } else { format!(" (CMD: {code})") };
            show::say(&format!("standing again in {}{why}", show::span(pause)));
            self.systemd.status("waiting before it stands again");
            if self.interrupted_within(pause).await {
                return Ok(ExitCode::from(code));
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
                    Asked::Mention(_) | Asked::StepDown | Asked::Resume => {}
                },
            }
        }
    }

    /// Runs one candidacy, with a guardian of its own.
    async fn round(&mut self) -> Result<Round, Failure> {
        // Make the work file first: the candidacy's proof of life names it.
        let presence = self.opened.presence.clone();
        let name = self.election.name().to_string();
        let work = presence.as_deref().map(FilePresence::work).transpose()?;
        let share = presence.as_deref().map(FilePresence::share).transpose()?;
        let mut guardian = Guardian::post(&self.wanted.command, &secrets(), share)?;
        tracing::info!(guardian = guardian.pid().as_raw_nonzero().get(), "the guardian waits");
        let now_or_never = self.wanted.patience == Patience::None;
        if now_or_never && self.election.standing().await?.state == ElectionState::Led {
            guardian.dismiss().await;
            return Ok(Round::Over(self.wanted.conflict_exit_code));
        }
        let candidacy = self.election.stand(self.candidate.clone())?;
        self.systemd.ready();
        self.systemd.status(&format!("waiting to lead {name}"));
        let waited = self.wait(candidacy, &mut guardian).await;
        let ending = match waited {
            Ok(Waited::Elected(leadership)) => {
                return self.lead(*leadership, guardian, work).await;
            }
            Ok(Waited::Interrupted) => Ok(Round::Over(0)),
            Ok(Waited::SteppedDown) => Ok(Round::Again { code: 0, pause: Pause::LastInQueue }),
            Ok(Waited::TooLong) => Ok(Round::Over(self.wanted.conflict_exit_code)),
            Ok(Waited::GuardianDied) => {
                show::say("the guardian died; withdrawing");
                Ok(Round::Over(exit::FAILURE))
            }
            Err(error) => Err(error),
        };
        guardian.dismiss().await;
        // If the candidacy has just won, release the leadership before we exit.
        self.opened.backend.close().await;
        ending
    }

    /// Waits to be elected. Dropping the candidacy withdraws it.
    async fn wait(
        &mut self,
        mut candidacy: Candidacy,
        guardian: &mut Guardian,
    ) -> Result<Waited, Failure> {
        let patience = self.wanted.patience.span(self.session.timing);
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
                // A leadership that was won counts, however late it is.
                biased;
                leadership = &mut elected => return Ok(Waited::Elected(Box::new(leadership?))),
                asked = self.signals.next() => match asked {
                    Asked::Stop(_) | Asked::PassOn(_) => return Ok(Waited::Interrupted),
                    Asked::StepDown => return Ok(Waited::SteppedDown),
                    Asked::Mention(_) | Asked::Resume => {}
                },
                _ = guardian.event() => return Ok(Waited::GuardianDied),
                () = &mut patience => return Ok(Waited::TooLong),
                Some(status) = statuses.next() => tell(&status, &mut told),
            }
        }
    }

    async fn lead(
        &mut self,
        leadership: Leadership,
        guardian: Guardian,
        work: Option<WorkFile>,
    ) -> Result<Round, Failure> {
        let token = leadership.mandate().token();
        let name = self.election.name().to_string();
        let probe = work.as_ref().map(WorkFile::probe);
        let cgroup = match self.prepare(token, work.as_ref()).await {
            Ok(cgroup) => cgroup,
            Err(error) => {
                guardian.dismiss().await;
                drop(work);
                release(leadership, probe, &self.election).await;
                if !self.wanted.keep {
                    return Err(Failure::new(exit::FAILURE, error));
                }
                show::say(&show::chain(&error));
                return Ok(Round::Again { code: exit::FAILURE, pause: Pause::WorkLeft });
            }
        };
        let mandate_file = mandate_file(&leadership);
        self.systemd.status(&format!("leading {name} with token {token}"));
        let begun = BootTime::now();
        let mut led = lead::Lead {
            mandate: leadership.mandate(),
            grace: self.election.grace(),
            environment: self.environment(token, mandate_file.as_ref()),
            signal: self.wanted.signal,
            orphan_grace: self.wanted.orphan_grace,
            cgroup: cgroup.clone(),
            privileges: self.wanted.privileges,
            mandate_file: mandate_file.as_ref(),
            systemd: &self.systemd,
            signals: &mut self.signals,
        }
        .run(guardian, work)
        .await;
        if let (Cause::Itself, Some(_), Some(hold)) = (&led.cause, led.status, self.wanted.hold)
            && self.hold(&leadership, begun.after(hold)).await
        {
            led.cause = Cause::Interrupted;
        }
        let resigned = release(leadership, probe, &self.election).await;
        if let Some(cgroup) = cgroup {
            // Not earlier: the removal takes a while, and others wait to lead.
            cgroup.remove();
        }
        Ok(self.judge(&led, resigned))
    }

    /// Ends all work of a former leader, and records the start of CMD.
    ///
    /// Returns CMD's control group, if it has one.
    ///
    /// # Errors
    /// When CMD must not be started.
    async fn prepare(&self, token: u64, work: Option<&WorkFile>) -> anyhow::Result<Option<Cgroup>> {
        let name = self.election.name().to_string();
        let presence = self.opened.presence.as_ref();
        if let Some(presence) = presence {
            end_leftovers(presence, &name, self.election.grace()).await?;
        }
        let cgroup = Cgroup::create().unwrap_or_else(|error| {
            tracing::info!(%error, "no control group for CMD");
            None
        });
        if let (Some(presence), Some(work)) = (presence, work) {
            let control_group = cgroup.as_ref().map(Cgroup::record);
            let start = WorkStart { election: &name, token, control_group };
            if let Err(error) = presence.record_start(work, &start) {
                cgroup.iter().for_each(Cgroup::remove);
                return Err(error.into());
            }
        }
        Ok(cgroup)
    }

    /// Goes on leading, idle, until then, or until leadership is lost. Returns true if interrupted.
    async fn hold(&mut self, leadership: &Leadership, until: BootTime) -> bool {
        if until.has_passed() {
            return false;
        }
        tracing::info!(
            "CMD has ended; holding the leadership for {}",
            show::span(until.remaining())
        );
        self.systemd.status("CMD has ended; holding the leadership");
        loop {
            tokio::select! {
                biased;
                loss = leadership.lost() => {
                    show::say(&format!("leadership lost while it was held: {loss}"));
                    return false;
                }
                asked = self.signals.next() => match asked {
                    Asked::Stop(_) | Asked::PassOn(_) => return true,
                    Asked::StepDown => return false,
                    Asked::Mention(_) | Asked::Resume => {}
                },
                () = tokio::time::sleep(until.remaining()) => {
                    if until.has_passed() {
                        return false;
                    }
                }
            }
        }
    }

    fn environment(&self, token: u64, mandate: Option<&MandateFile>) -> Vec<(String, String)> {
        let ttl = self.election.ttl().as_millis();
        let path = mandate.and_then(|file| file.path().to_str().map(str::to_owned));
        let variables = [
            ("TENURE_ELECTION", Some(self.election.name().to_string())),
            ("TENURE_ID", Some(self.candidate.name().to_owned())),
            ("TENURE_TOKEN", Some(token.to_string())),
            ("TENURE_STATE", Some("leading".to_owned())),
            ("TENURE_REASON", Some("elected".to_owned())),
            ("TENURE_TTL_MS", Some(ttl.to_string())),
            ("TENURE_MANDATE", path),
        ];
        variables.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }

    /// Decides on the exit code, and whether to stand again.
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
                // A user told the whole process to stop, maybe while CMD was being stopped for
                // another reason.
                match keep && !led.interrupted {
                    true => Round::Again { code: exit::LOST, pause: Pause::None },
                    false => Round::Over(exit::LOST),
                }
            }
            // Work of CMD may still run: this process must exit, and renew nothing.
            _ if resigned == Released::Escaped => {
                Round::Over(if own == 0 { exit::UNKNOWN } else { own })
            }
            (Cause::SteppedDown, None) => Round::Again { code: own, pause: Pause::LastInQueue },
            (Cause::Interrupted, None) => Round::Over(own),
            (Cause::Itself, None) if keep => {
                let pause = if own == 0 { Pause::Short } else { Pause::Backoff };
                Round::Again { code: own, pause }
            }
            (Cause::Itself, None) => match resigned {
                Released::Unknown if own == 0 => Round::Over(exit::UNKNOWN),
                Released::Unknown | Released::Escaped | Released::Yes => Round::Over(own),
            },
        }
    }
}

/// Shows the status of waiting. A store that does not answer is reported once, until it answers.
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

/// Whether other candidates may lead now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Released {
    Yes,
    /// The store did not say.
    Unknown,
    /// No: some process of its work still runs.
    Escaped,
}

/// Gives up the leadership, if none of its work can be left.
async fn release(leadership: Leadership, work: Option<WorkProbe>, election: &Election) -> Released {
    if let Some(probe) = work {
        // The kernel closes the files of a dead process shortly after its parent learns of the
        // death.
        let patience = election.grace() / 4;
        if tokio::time::timeout(patience, probe.freed()).await.is_err() {
            show::say(&format!(
                "a process that CMD started has escaped and still has the work file open; not \
                 releasing: others lead when the lease has expired, within {}",
                show::span(election.ttl())
            ));
            // Dropping the leadership would release it.
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

/// Makes the file that tells CMD how long it may go on. CMD can run without it.
fn mandate_file(leadership: &Leadership) -> Option<MandateFile> {
    let made = MandateFile::new().and_then(|file| file.write(&leadership.mandate()).map(|()| file));
    match made {
        Ok(file) => Some(file),
        Err(error) => {
            tracing::warn!(%error, "CMD runs without TENURE_MANDATE");
            None
        }
    }
}
