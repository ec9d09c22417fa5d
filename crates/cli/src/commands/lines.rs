//! Reads lines from an input that may block.

use std::io::{self, BufRead, BufReader, Read};

use bytes::Bytes;
use tenure_cluster::documents::MAX_TASK_BYTES;
use tokio::sync::mpsc;

/// How many lines may be read ahead.
const AHEAD: usize = 1024;
/// The most bytes of a line in its task's name. The name is for people.
const MOST_NAME: usize = 200;

/// The result of reading one line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// A line that is not empty, without its end.
    Line(Bytes),
    /// The number of a line that is longer than a task can be, counted from 1. It was skipped.
    TooLong(u64),
    /// Reading failed, and no more lines follow.
    Failed(String),
}

/// Begins to read on a thread of its own.
///
/// The thread ends with the input, with the receiver, or with this process.
pub(super) fn read(input: impl Read + Send + 'static) -> mpsc::Receiver<Heard> {
    let (say, lines) = mpsc::channel(AHEAD);
    std::thread::spawn(move || {
        let mut input = BufReader::new(input);
        let mut number = 0;
        loop {
            number += 1;
            let read = match next(&mut input) {
                Ok(None) => return,
                Ok(Some(Line { bytes, cut: true })) => {
                    debug_assert!(bytes.len() <= MAX_TASK_BYTES);
                    Heard::TooLong(number)
                }
                Ok(Some(Line { bytes, cut: false })) if bytes.is_empty() => continue,
                Ok(Some(Line { bytes, cut: false })) => Heard::Line(bytes.into()),
                Err(error) => Heard::Failed(error.to_string()),
            };
            let last = matches!(read, Heard::Failed(_));
            if say.blocking_send(read).is_err() || last {
                return;
            }
        }
    });
    lines
}

#[derive(Debug, PartialEq, Eq)]
struct Line {
    bytes: Vec<u8>,
    /// Whether the line was longer than a task can be.
    cut: bool,
}

/// The next line, cut to the size of a task; `None` at the end.
fn next(input: &mut impl BufRead) -> io::Result<Option<Line>> {
    let mut line = Line { bytes: Vec::new(), cut: false };
    let mut begun = false;
    loop {
        let there = match input.fill_buf() {
            Ok(there) => there,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if there.is_empty() {
            return Ok(begun.then_some(line));
        }
        begun = true;
        let end = there.iter().position(|byte| *byte == b'\n');
        let part = &there[..end.unwrap_or(there.len())];
        let room = MAX_TASK_BYTES - line.bytes.len();
        line.cut |= part.len() > room;
        line.bytes.extend_from_slice(&part[..part.len().min(room)]);
        let used = part.len() + usize::from(end.is_some());
        input.consume(used);
        if end.is_some() {
            if line.bytes.last() == Some(&b'\r') {
                line.bytes.pop();
            }
            return Ok(Some(line));
        }
    }
}

/// The name of a line's task: the beginning of the line.
pub(super) fn name(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let text = text.trim();
    match text.len() {
        0 => "(blank)".to_owned(),
        1..=MOST_NAME => text.to_owned(),
        _ => format!("{}…", &text[..text.floor_char_boundary(MOST_NAME)]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(input: &[u8]) -> Vec<Heard> {
        let mut lines = read(io::Cursor::new(input.to_vec()));
        std::iter::from_fn(|| lines.blocking_recv()).collect()
    }

    fn line(text: &str) -> Heard {
        Heard::Line(Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn lines_come_in_order_without_their_ends_and_empty_ones_do_not() {
        assert_eq!(all(b"a\n\nb c\r\n \nlast"), [line("a"), line("b c"), line(" "), line("last")]);
        assert_eq!(all(b""), []);
    }

    #[test]
    fn a_line_that_is_too_long_is_passed_over_and_the_next_one_read() {
        let mut input = vec![b'x'; MAX_TASK_BYTES + 1];
        input.extend_from_slice(b"\nshort\n");
        input.extend(vec![b'y'; MAX_TASK_BYTES]);
        let found = all(&input);
        assert_eq!(found[..2], [Heard::TooLong(1), line("short")]);
        assert_eq!(found[2], Heard::Line(vec![b'y'; MAX_TASK_BYTES].into()));
    }

    #[test]
    fn the_name_of_a_line_is_its_beginning() {
        assert_eq!(name(b" a b "), "a b");
        assert_eq!(name(b"\xff"), "\u{fffd}");
        assert_eq!(name(b"  "), "(blank)");
        assert!(name("é".repeat(500).as_bytes()).len() <= MOST_NAME + 3);
    }
}
