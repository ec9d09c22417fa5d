//! Prints lines of data on standard output. A slow reader holds nothing else up.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use serde::Serialize;

use crate::escape;

/// How many lines may wait for a reader.
const MOST_WAITING: usize = 64 * 1024;

/// Prints on a thread of its own.
#[derive(Debug)]
pub(super) struct Printer {
    lines: SyncSender<String>,
    thread: JoinHandle<()>,
    missed: u64,
}

impl Printer {
    /// Starts the thread.
    pub(super) fn new() -> Printer {
        let (lines, waiting) = sync_channel(MOST_WAITING);
        let thread = std::thread::spawn(move || print_all(&waiting));
        Printer { lines, thread, missed: 0 }
    }

    /// Prints one line of JSON. If too many lines wait already, it only counts the line.
    pub(super) fn print(&mut self, value: &impl Serialize) {
        let line = match serde_json::to_string(value) {
            Ok(line) => escape::json(&line).into_owned(),
            // Numbers and texts always encode.
            Err(error) => return tracing::error!(%error, "a line that is no JSON"),
        };
        match self.lines.try_send(line) {
            // The reader closed our output. The work goes on.
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
            Err(TrySendError::Full(_)) => self.missed += 1,
        }
    }

    /// Prints the last line, and waits until everything is printed.
    ///
    /// Returns the number of lines that were dropped because the reader was too slow.
    pub(super) fn close(self, last: &impl Serialize) -> u64 {
        if let Ok(line) = serde_json::to_string(last) {
            // This send may wait: nothing else is left to do.
            let _ = self.lines.send(escape::json(&line).into_owned());
        }
        drop(self.lines);
        // The thread does not panic.
        let _ = self.thread.join();
        self.missed
    }
}

/// Prints lines until the channel closes or the reader has gone.
fn print_all(waiting: &Receiver<String>) {
    let mut stdout = io::stdout().lock();
    while let Ok(line) = waiting.recv() {
        let mut printed = writeln!(stdout, "{line}");
        // Print all waiting lines before the flush.
        while let (Ok(()), Ok(line)) = (&printed, waiting.try_recv()) {
            printed = writeln!(stdout, "{line}");
        }
        if printed.and_then(|()| stdout.flush()).is_err() {
            return;
        }
    }
}
