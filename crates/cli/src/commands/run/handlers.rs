//! Handlers instead of CMD: commands for when leadership begins, ends or fails.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tenure::reconcile::{Builder, Finished, Handler, Reconciler, Source, State};

use super::steered::Steering;
use crate::args::HandlerOptions;
use crate::exit::{self, Failure};
use crate::mandate_file::MandateFile;
use crate::redact;
use crate::secrets::secrets;
use crate::show;
use crate::signals::{Asked, Signals};
use crate::systemd::Systemd;

/// The settings of the loop, without its source.
pub(super) struct Handlers<'a> {
    pub(super) options: &'a HandlerOptions,
    /// Only print the commands that would be run.
    pub(super) dry_run: bool,
    /// How long to wait to lead for the first time, and the exit code if that fails.
    pub(super) patience: Option<Duration>,
    pub(super) conflict_exit_code: u8,
    pub(super) mandate_file: Option<Arc<MandateFile>>,
    pub(super) signals: Signals,
    pub(super) systemd: Systemd,
}

/// How the loop ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Handled {
    /// It is over, with this exit code.
    Exit(u8),
    /// The source has no more events.
    SourceEnded,
}

impl Handled {
    pub(super) fn code(self) -> ExitCode {
        match self {
            Handled::Exit(code) => ExitCode::from(code),
            Handled::SourceEnded => ExitCode::SUCCESS,
        }
    }
}

impl Handlers<'_> {
    /// Builds the loop from its settings.
    ///
    /// # Errors
    /// When a handler is empty.
    pub(super) fn reconciler(&self) -> Result<Reconciler, Failure> {
        let options = self.options;
        let mut builder = Reconciler::builder()
            .error_timeout(options.error_timeout)
            .end_retry(options.end_retry, options.end_attempts);
        let handler = |step: &'static str, text: &String| match self.dry_run {
            true => saying(step, text.clone()),
            false => Handler::shell(text),
        };
        type Set = fn(Builder, Handler) -> Builder;
        let handlers: [(&'static str, &Option<String>, Set); 4] = [
            ("begin", &options.leader_begin_command, Builder::begin),
            ("end", &options.leader_end_command, Builder::end),
            ("error", &options.error_command, Builder::error),
            ("stuck", &options.on_stuck, Builder::on_stuck),
        ];
        for (step, text, set) in handlers {
            if let Some(text) = text {
                builder = set(builder, handler(step, text));
            }
        }
        if let Some(span) = options.begin_timeout {
            builder = builder.begin_timeout(span);
        }
        if let Some(span) = options.end_timeout {
            builder = builder.end_timeout(span);
        }
        for name in secrets() {
            builder = builder.variable(name, None);
        }
        let path =
            self.mandate_file.as_ref().map(|file| file.path().to_string_lossy().into_owned());
        builder = builder.variable("TENURE_MANDATE", path);
        builder.build().map_err(|error| Failure::new(exit::USAGE, error))
    }

    /// Runs the loop until it is over.
    ///
    /// # Errors
    /// When the end command failed for good.
    ///
    /// # Cancel safety
    /// Not cancel safe: a running handler is killed, and no end command is run.
    pub(super) async fn run(
        mut self,
        reconciler: &Reconciler,
        source: impl Source,
        steering: Steering,
    ) -> Result<Handled, Failure> {
        let stopper = reconciler.stopper();
        let mut states = reconciler.states();
        let running = reconciler.run(source);
        tokio::pin!(running);
        let patience = self.patience;
        let patience = async {
            match patience {
                Some(patience) => tokio::time::sleep(patience).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(patience);
        let (mut led, mut interrupted, mut code) = (false, false, 0);
        self.systemd.ready();
        loop {
            tokio::select! {
                biased;
                finished = &mut running => return match finished {
                    Ok(Finished::Stopped) => Ok(Handled::Exit(code)),
                    Ok(Finished::SourceEnded) => Ok(Handled::SourceEnded),
                    Err(error) => Err(Failure::new(exit::STUCK, error)),
                },
                Ok(()) = states.changed() => {
                    let state = *states.borrow_and_update();
                    led |= matches!(state, State::Beginning { .. });
                    self.systemd.status(&told(state));
                }
                asked = self.signals.next() => match asked {
                    Asked::Stop(Signal::INT) if interrupted => {
                        show::say("interrupted again: handlers are killed, the lease is left to run out");
                        return Ok(Handled::Exit(128 + 2));
                    }
                    Asked::Stop(_) | Asked::PassOn(_) => {
                        interrupted = true;
                        self.systemd.stopping();
                        stopper.stop();
                    }
                    Asked::StepDown => steering.step_down(),
                    // The loop handles events first, and checks the clock each time.
                    Asked::Mention(_) | Asked::Resume => {}
                },
                () = &mut patience, if !led && !interrupted => {
                    interrupted = true;
                    code = self.conflict_exit_code;
                    stopper.stop();
                }
            }
        }
    }
}

/// A handler that only prints the command that would be run.
fn saying(step: &'static str, text: String) -> Handler {
    Handler::closure(move |_| {
        let printed =
            show::print(format_args!("would run ({step}): {}", show::escape(&redact::text(&text))));
        async move { printed }
    })
}

/// The state in words.
pub(super) fn told(state: State) -> String {
    match state {
        State::NotLeading => "not leading".to_owned(),
        State::Beginning { token } => format!("beginning to lead, token {token}"),
        State::Leading { token } => format!("leading, token {token}"),
        State::Ending { token, attempt: 1 } => format!("ceasing to lead, token {token}"),
        State::Ending { token, attempt } => {
            format!("ceasing to lead, token {token}, attempt {attempt}")
        }
        State::Failing => "error: keeping away for a while".to_owned(),
        State::Stuck { token } => format!("STUCK: may still act as leader, token {token}"),
        State::Stopped => "stopped".to_owned(),
    }
}
