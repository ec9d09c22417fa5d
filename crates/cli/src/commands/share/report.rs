//! Reports on the items that ended here, and on the whole group at the end.

use std::time::Duration;

use serde::Serialize;
use tenure_cluster::{Ending, Verdict};
use tenure_cluster::{MemberView, Totals};

use crate::commands::tasks::TotalsJson;
use crate::show;

/// One attempt that ended here.
#[derive(Debug, Serialize)]
pub(super) struct Ended<'a> {
    event: &'static str,
    pub(super) id: &'a str,
    pub(super) serial: u64,
    pub(super) attempt: u32,
    pub(super) state: State,
    pub(super) result: Option<&'a str>,
    pub(super) error: Option<&'a str>,
    pub(super) seconds: f64,
}

/// The state that the cluster's records record for an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    Done,
    /// The task will be tried again.
    Failed,
    Dead,
    Cancelled,
    /// The task was given back before its end, and the attempt does not count.
    Returned,
    /// Another member has the task by now: this end does not count.
    Refused,
}

impl<'a> Ended<'a> {
    pub(super) fn new(
        (serial, id, attempt): (u64, &'a str, u32),
        ending: &'a Ending,
        again: bool,
        verdict: Verdict,
        took: Duration,
    ) -> Ended<'a> {
        let (state, result, error) = match ending {
            Ending::Done(result) => (State::Done, result.as_deref(), None),
            Ending::Failed(error) if again => (State::Failed, None, Some(error.as_str())),
            Ending::Failed(error) => (State::Dead, None, Some(error.as_str())),
            Ending::Cancelled => (State::Cancelled, None, None),
            Ending::Returned => (State::Returned, None, None),
        };
        let state = if verdict == Verdict::Refused { State::Refused } else { state };
        // Milliseconds are precise enough.
        let seconds = (took.as_secs_f64() * 1000.0).round() / 1000.0;
        Ended { event: "ended", id, serial, attempt, state, result, error, seconds }
    }

    /// A message for people, if the attempt went wrong.
    pub(super) fn complaint(&self) -> Option<String> {
        let id = show::value(self.id.as_bytes());
        let error = super::super::group::first_line(self.error.unwrap_or_default());
        let attempt = self.attempt;
        match self.state {
            State::Done | State::Cancelled | State::Returned => None,
            State::Failed => Some(format!("{id}: attempt {attempt} failed: {error}")),
            State::Dead => Some(format!("{id}: failed for good at attempt {attempt}: {error}")),
            State::Refused => Some(format!("{id}: attempt {attempt} came too late to count")),
        }
    }
}

/// Events that were lost because this process was too slow.
#[derive(Debug, Serialize)]
pub(super) struct Missed {
    event: &'static str,
    count: u64,
}

impl Missed {
    pub(super) fn new(count: u64) -> Missed {
        Missed { event: "missed", count }
    }
}

/// The reason why this process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Why {
    /// The source is read to its end, and everything is done.
    Finished,
    /// A signal interrupted it.
    Interrupted,
    /// A user drained it.
    Drained,
    /// The store, or the source, failed.
    Failed,
}

/// The number of attempts that ended in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) done: u64,
    pub(super) failed: u64,
}

impl Tally {
    pub(super) fn count(&mut self, state: State) {
        match state {
            State::Done => self.done += 1,
            State::Failed | State::Dead => self.failed += 1,
            State::Cancelled | State::Returned | State::Refused => {}
        }
    }
}

/// The last line of the output.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    event: &'static str,
    group: String,
    why: Why,
    #[serde(flatten)]
    totals: TotalsJson,
    letters: bool,
    here: Here,
    members: Vec<Finished>,
    seconds: f64,
}

#[derive(Debug, Serialize)]
struct Here {
    id: String,
    name: String,
    done: u64,
    failed: u64,
}

#[derive(Debug, Serialize)]
struct Finished {
    id: String,
    name: String,
    finished: u64,
}

impl Summary {
    pub(super) fn new(
        (group, why): (&str, Why),
        totals: &Totals,
        letters: bool,
        (id, name, tally): (&str, &str, Tally),
        members: &[MemberView],
        took: Duration,
    ) -> Summary {
        let Tally { done, failed } = tally;
        let here = Here { id: id.to_owned(), name: name.to_owned(), done, failed };
        let members = members.iter().map(|member| Finished {
            id: member.id.to_string(),
            name: member.name.clone(),
            finished: member.finished(),
        });
        Summary {
            event: "summary",
            group: group.to_owned(),
            why,
            totals: TotalsJson::of(totals),
            letters,
            here,
            members: members.collect(),
            seconds: (took.as_secs_f64() * 1000.0).round() / 1000.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(ending: &Ending, again: bool, verdict: Verdict) -> String {
        let took = Duration::from_micros(12_345);
        let ended = Ended::new((7, "a.txt", 2), ending, again, verdict, took);
        serde_json::to_string(&ended).expect("JSON")
    }

    #[test]
    fn an_end_has_one_shape() {
        let line = |state: &str, result: &str, error: &str| {
            format!(
                r#"{{"event":"ended","id":"a.txt","serial":7,"attempt":2,"state":"{state}","result":{result},"error":{error},"seconds":0.012}}"#
            )
        };
        let done = Ending::Done(Some("3".into()));
        let failed = Ending::Failed("exit code 1".into());
        let (accepted, refused) = (Verdict::Accepted, Verdict::Refused);
        assert_eq!(ended(&done, false, accepted), line("done", r#""3""#, "null"));
        assert_eq!(ended(&failed, true, accepted), line("failed", "null", r#""exit code 1""#));
        assert_eq!(ended(&failed, false, accepted), line("dead", "null", r#""exit code 1""#));
        assert_eq!(ended(&done, true, refused), line("refused", r#""3""#, "null"));
        assert_eq!(ended(&Ending::Cancelled, false, accepted), line("cancelled", "null", "null"));
        assert_eq!(ended(&Ending::Returned, true, accepted), line("returned", "null", "null"));
    }
}
