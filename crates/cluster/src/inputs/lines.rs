//! The lines of a file.

use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::confined::open_regular;
use super::{MOST_ITEMS, USUAL_POLL, blocking};
use crate::documents::{MAX_TASK_BYTES, Order};
use crate::input::{End, InputError, Template, Window, Windowed};

/// The most bytes of all lines of a window.
const MOST_BYTES: usize = 1024 * 1024;
/// The most bytes of a file's name in the ids of its lines.
const MOST_NAME_BYTES: usize = 900;

/// The lines of a file. Each is a task.
///
/// A task's item is the line without its end, and its id is `FILE:NUMBER`. The position is the byte
/// after the last line that was given out, and that line's number. Empty lines are left out. A line
/// of more than 16 KiB is given out shortened to one byte more than that, which no cluster takes:
/// it becomes a dead letter.
///
/// The file may grow, and must not change otherwise. A file that has become shorter, or in which
/// the position is no longer the beginning of a line, is refused.
pub struct LinesSource {
    file: Arc<Path>,
    name: String,
    template: Template,
    follow: Option<Duration>,
}

impl LinesSource {
    /// Creates a source of the lines of this file, with tasks from this template.
    #[must_use]
    pub fn new(file: impl Into<PathBuf>, template: Template) -> LinesSource {
        let file: Arc<Path> = file.into().into();
        let name = file.to_string_lossy();
        // The end of a long name says more than its beginning.
        let start = name.ceil_char_boundary(name.len().saturating_sub(MOST_NAME_BYTES));
        let name = name[start..].to_owned();
        LinesSource { file, name, template, follow: None }
    }

    /// Makes the source endless: it waits for more lines.
    ///
    /// It also waits for the end of a last line that has none yet.
    #[must_use]
    pub fn following(self) -> LinesSource {
        self.polling(USUAL_POLL)
    }

    /// Like [`following`](LinesSource::following), with this poll interval.
    #[must_use]
    pub fn polling(mut self, poll: Duration) -> LinesSource {
        self.follow = Some(poll);
        self
    }

    async fn window(&self, place: Place, max: usize) -> Result<Window, InputError> {
        let (file, open_ended) = (self.file.clone(), self.follow.is_some());
        let read = blocking("reading lines", move || read_lines(&file, place, max, open_ended));
        let Lines { lines, place, ended } = read.await?;
        let orders = lines.into_iter().map(|(number, line)| self.order(number, line)).collect();
        let position = Some(place.to_string());
        Ok(Window { orders, position, drained: ended && self.follow.is_none() })
    }

    fn order(&self, number: u64, line: Bytes) -> Order {
        self.template.order(format!("{}:{number}", self.name), line)
    }
}

#[async_trait]
impl Windowed for LinesSource {
    async fn outstanding(&self, position: Option<&str>, max: usize) -> Result<Window, InputError> {
        let place = position.map_or(Ok(Place::default()), Place::parse)?;
        loop {
            let window = self.window(place, max.clamp(1, MOST_ITEMS)).await?;
            match self.follow {
                Some(poll) if window.orders.is_empty() => tokio::time::sleep(poll).await,
                Some(_) | None => return Ok(window),
            }
        }
    }

    async fn commit(&self, _id: &str, _payload: &[u8], _end: End) -> Result<(), InputError> {
        // A file of lines stays as it is.
        Ok(())
    }
}

impl fmt::Debug for LinesSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinesSource")
            .field("file", &self.file)
            .field("template", &self.template)
            .field("follow", &self.follow)
            .finish_non_exhaustive()
    }
}

/// The offset of the next line, and the number of lines before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Place {
    offset: u64,
    lines: u64,
}

impl Place {
    fn parse(position: &str) -> Result<Place, InputError> {
        let parsed = position.split_once(':').and_then(|(offset, lines)| {
            Some(Place { offset: offset.parse().ok()?, lines: lines.parse().ok()? })
        });
        // The position comes from the store, so check it: each line has at least one byte.
        let parsed = parsed.filter(|place| place.lines <= place.offset);
        parsed.ok_or_else(|| InputError(format!("{position:?} is no position in a file of lines")))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.offset, self.lines)
    }
}

/// Lines with their numbers, the place after them, and whether the file ends there.
struct Lines {
    lines: Vec<(u64, Bytes)>,
    place: Place,
    ended: bool,
}

fn read_lines(
    file: &Path,
    place: Place,
    max: usize,
    open_ended: bool,
) -> Result<Lines, InputError> {
    let says =
        |error: std::io::Error| InputError::new(format!("reading {}", file.display()), &error);
    let mut reader = BufReader::new(open_regular(file).map_err(says)?);
    check_place(file, &mut reader, place)?;
    let (mut lines, mut place, mut bytes) = (Vec::new(), place, 0);
    while lines.len() < max && bytes < MOST_BYTES {
        let Some(Line { content, length, whole }) = read_line(&mut reader).map_err(says)? else {
            return Ok(Lines { lines, place, ended: true });
        };
        if open_ended && !whole {
            // The line is still being written.
            return Ok(Lines { lines, place, ended: true });
        }
        place = Place { offset: place.offset + length, lines: place.lines + 1 };
        if !content.is_empty() {
            bytes += content.len();
            lines.push((place.lines, content));
        }
    }
    Ok(Lines { lines, place, ended: false })
}

/// Moves the reader to the place, if the file still has it.
fn check_place(file: &Path, reader: &mut BufReader<File>, place: Place) -> Result<(), InputError> {
    let says =
        |error: std::io::Error| InputError::new(format!("reading {}", file.display()), &error);
    let refuse = |what: &str| {
        let (file, offset) = (file.display(), place.offset);
        Err(InputError(format!(
            "{file} {what} since it was read up to byte {offset}; it may only grow"
        )))
    };
    let length = reader.get_ref().metadata().map_err(says)?.len();
    if length < place.offset {
        return refuse("has become shorter");
    }
    if place.offset == 0 {
        return Ok(());
    }
    reader.seek(SeekFrom::Start(place.offset - 1)).map_err(says)?;
    let mut before = [0];
    reader.read_exact(&mut before).map_err(says)?;
    // The last line needs no end, as long as nothing follows it.
    if before != *b"\n" && length > place.offset {
        return refuse("has changed");
    }
    Ok(())
}

struct Line {
    /// Without the line's end, and at most one byte longer than a task can be.
    content: Bytes,
    /// The bytes that the line takes in the file.
    length: u64,
    /// The line has an end.
    whole: bool,
}

/// Reads a line, and keeps at most as much of it as can be used.
fn read_line(reader: &mut impl BufRead) -> std::io::Result<Option<Line>> {
    let (mut content, mut length) = (Vec::new(), 0);
    loop {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            let line = Line { content: shortened(content), length, whole: false };
            return Ok((length > 0).then_some(line));
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let part = &buffer[..end.unwrap_or(buffer.len())];
        // One more byte for a carriage return, which may turn out to belong to the end.
        let room = (MAX_TASK_BYTES + 2).saturating_sub(content.len());
        content.extend_from_slice(&part[..part.len().min(room)]);
        let used = part.len() + usize::from(end.is_some());
        length += used as u64;
        reader.consume(used);
        if end.is_some() {
            return Ok(Some(Line { content: shortened(content), length, whole: true }));
        }
    }
}

fn shortened(mut content: Vec<u8>) -> Bytes {
    if content.last() == Some(&b'\r') {
        content.pop();
    }
    content.truncate(MAX_TASK_BYTES + 1);
    content.into()
}

#[cfg(test)]
mod tests;
