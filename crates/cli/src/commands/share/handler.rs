//! A task of `tenure share`: CMD, run once for one item.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tenure_cluster::documents::MAX_NOTE_BYTES;
use tenure_cluster::{Context, Handler, TaskError};

use super::errand::{How, Returned};
use super::item::{Prepared, Sort};
use super::pool::{Errand, GuardianPool};
use crate::supervise::Status;

/// Runs CMD for the items of one sort.
#[derive(Debug)]
pub(super) struct RunsCommand {
    pub(super) pool: Arc<GuardianPool>,
    pub(super) group: String,
    pub(super) sort: Sort,
    /// Whether the item is an argument of CMD; otherwise it is CMD's standard input.
    pub(super) as_argument: bool,
}

#[async_trait]
impl Handler for RunsCommand {
    async fn handle(&self, payload: Bytes, context: &Context) -> Result<Option<String>, TaskError> {
        let prepared = tokio::select! {
            prepared = self.sort.prepare(&payload, self.as_argument) => prepared,
            // Fetching a copy may take a while.
            _ = context.stopped() => Err("stopped before it began".to_owned()),
        };
        let Prepared { item, stdin, copy } = prepared.map_err(TaskError::new)?;
        let own = context.clone();
        let errand = Errand {
            item,
            stdin,
            copy,
            environment: self.environment(context),
            mandate: context.mandate().clone(),
            told_to_stop: Box::pin(async move {
                own.stopped().await;
            }),
        };
        judge(self.pool.run(errand).await)
    }
}

impl RunsCommand {
    fn environment(&self, context: &Context) -> Vec<(String, String)> {
        [
            ("TENURE_GROUP", self.group.clone()),
            // No variable can hold a NUL byte, and the name comes from the store.
            ("TENURE_TASK", context.id().replace('\0', "\u{fffd}")),
            ("TENURE_SERIAL", context.serial().to_string()),
            ("TENURE_ATTEMPT", context.attempt().to_string()),
            ("TENURE_TOKEN", context.mandate().token().to_string()),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
    }
}

/// The result of a run: the end of its output, or the reason of its failure.
fn judge(returned: Returned) -> Result<Option<String>, TaskError> {
    let Returned { how, out, err } = returned;
    let why = match how {
        How::Ended(Status::Code(0)) => return Ok(out.text(MAX_NOTE_BYTES)),
        How::Ended(Status::Code(code)) => format!("exit code {code}"),
        How::Ended(Status::Signal(number)) => format!("killed by {}", signal(number)),
        How::Refused(why) => format!("CMD cannot be run: {why}"),
        How::Unstarted(why) => format!("no process could be started: {why}"),
        How::Lost(loss) => format!("stopped, because its lease was lost: {loss}"),
        How::Stopped => "stopped before its end".to_owned(),
        How::GuardianFailed => "killed, because its guardian died or hung".to_owned(),
    };
    let room = MAX_NOTE_BYTES.saturating_sub(why.len() + 2);
    Err(TaskError::new(match err.text(room) {
        Some(says) => format!("{why}: {says}"),
        None => why,
    }))
}

fn signal(number: u8) -> String {
    match nix::sys::signal::Signal::try_from(i32::from(number)) {
        Ok(signal) => format!("signal {number} ({})", signal.as_str()),
        Err(_) => format!("signal {number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tail::Tail;
    use super::*;

    fn judged(how: How) -> Result<Option<String>, String> {
        let returned = Returned { how, out: Tail::empty(), err: Tail::empty() };
        judge(returned).map_err(|error| error.to_string())
    }

    #[test]
    fn how_it_ended_is_said_in_words() {
        assert_eq!(judged(How::Ended(Status::Code(0))), Ok(None));
        assert_eq!(judged(How::Ended(Status::Code(3))), Err("exit code 3".into()));
        let killed = Err("killed by signal 9 (SIGKILL)".into());
        assert_eq!(judged(How::Ended(Status::Signal(9))), killed);
        assert!(judged(How::Refused("no such file".into())).is_err());
    }
}
