//! Reads events that a user types, to try out handlers without a store.

use std::io::{self, BufRead, IsTerminal, Write};
use std::time::Duration;

use async_trait::async_trait;
use tenure::reconcile::{Event, Identity, Release, Source, State};
use tokio::sync::{mpsc, watch};

use crate::show;

const HELP: &str = "type LEADER, NOTLEADER or ERROR; the end of input ends";
/// How many lines may be typed ahead.
const MOST_WAITING: usize = 16;
/// How long the loop, and then a handler, has to act before the prompt.
const PAUSE: Duration = Duration::from_millis(50);

/// A source of events: LEADER, NOTLEADER and ERROR on standard input.
#[derive(Debug)]
pub(super) struct Console {
    identity: Identity,
    lines: mpsc::Receiver<String>,
    states: watch::Receiver<State>,
    /// Whether a user at a terminal types the lines. A user may type another event while a handler
    /// runs; a script must wait for the handler.
    interactive: bool,
    token: u64,
    leads: bool,
}

impl Console {
    /// Begins to read.
    pub(super) fn new(identity: Identity, states: watch::Receiver<State>) -> Console {
        let (say, lines) = mpsc::channel(MOST_WAITING);
        // The thread ends with the input, or with this process.
        std::thread::spawn(move || {
            for line in io::stdin().lock().lines() {
                let Ok(line) = line else { return };
                if say.blocking_send(line).is_err() {
                    return;
                }
            }
        });
        let interactive = io::stdin().is_terminal();
        show::say(HELP);
        Console { identity, lines, states, interactive, token: 0, leads: false }
    }

    fn understand(&mut self, line: &str) -> Option<Event> {
        match line.trim().to_ascii_uppercase().as_str() {
            "LEADER" => {
                // A repeated LEADER continues the same tenure.
                if !std::mem::replace(&mut self.leads, true) {
                    self.token += 1;
                }
                Some(Event::leader(self.token))
            }
            "NOTLEADER" => {
                self.leads = false;
                Some(Event::not_leader("the console says so"))
            }
            "ERROR" => Some(Event::error("the console says so")),
            "" => None,
            _ => {
                show::say(&format!("{line:?} is none of them; {HELP}"));
                None
            }
        }
    }
}

#[async_trait]
impl Source for Console {
    fn identity(&self) -> Identity {
        self.identity.clone()
    }

    async fn next(&mut self) -> Option<Event> {
        loop {
            // Let the loop act on the previous line first.
            tokio::time::sleep(PAUSE).await;
            if self.interactive {
                prompt(*self.states.borrow());
            } else {
                // A script's next line is read only after the loop has handled the last one.
                let settled =
                    |state: &State| matches!(state, State::NotLeading | State::Leading { .. });
                if self.states.wait_for(settled).await.is_err() {
                    return None;
                }
            }
            let line = self.lines.recv().await?;
            if let Some(event) = self.understand(&line) {
                return Some(event);
            }
        }
    }

    async fn release(&mut self, how: Release) {
        match how {
            Release::GiveUp | Release::Abandon => self.leads = false,
            Release::StandAgain => {}
        }
    }
}

fn prompt(state: State) {
    let word = match state {
        State::NotLeading | State::Stopped => "not leading",
        State::Beginning { .. } => "beginning",
        State::Leading { .. } => "leading",
        State::Ending { .. } => "ending",
        State::Failing => "error",
        State::Stuck { .. } => "STUCK",
    };
    // Without an output no prompt is needed.
    let _ = write!(io::stderr(), "{word}> ").and_then(|()| io::stderr().flush());
}
