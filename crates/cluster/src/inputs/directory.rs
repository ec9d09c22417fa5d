//! The files of a directory and its subdirectories, in order.

mod walk;

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use self::walk::{Found, Walk, is_gone, native};
use super::confined::{is_plain, remove_below};
use super::{MOST_ITEMS, Recent, USUAL_POLL, blocking};
use crate::documents::{MAX_ID_BYTES, MAX_POSITION_BYTES, Order};
use crate::input::{End, InputError, Template, Window, Windowed};

/// Replaces the cut-off beginning of a path that is too long for a name.
const CUT: &str = "…";
/// The most paths remembered as reported, so that they are not reported again.
const MOST_REPORTED: usize = 1024;

/// The regular files under a directory. Each is a task.
///
/// A task's item is the file's path below the directory, with `/`. The paths come in byte order,
/// and the position is the last path that was given out. Links are neither followed nor given out;
/// [`open_below`](super::open_below) opens an item in the same way, even if the file has been
/// replaced since. A subdirectory that may not be listed is given out as an item itself, with a `/`
/// at the end of its path. It is thus accounted for, and opening it fails. As with `find`, a file
/// that is created while the directory is being listed may or may not be given out.
///
/// The item is the path byte for byte, whether it is UTF-8 or not. The id is for people: bytes that
/// are not UTF-8 are replaced, and of more than 1,024 bytes only the end is shown. Paths of more
/// than 4,096 bytes (2,047 if they are not UTF-8), which few systems open, are reported and left
/// out.
///
/// The walk keeps only part of the names of each directory on its way in memory, 131,072 in all, so
/// a directory may have millions of files.
pub struct DirectorySource {
    root: Arc<Path>,
    template: Template,
    follow: Option<Duration>,
    removes: bool,
    /// The state after the last window; taken while a window is being put together.
    reading: Mutex<Option<Reading>>,
}

impl DirectorySource {
    /// Creates a source of the files of this directory, with tasks from this template.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>, template: Template) -> DirectorySource {
        let (root, reading) = (root.into().into(), Mutex::default());
        DirectorySource { root, template, follow: None, removes: false, reading }
    }

    /// Makes the source endless: it waits for files with paths after the last one.
    ///
    /// This suits files named by date, for example. Names that begin with a dot are left out, since
    /// files that are still being written are often named so.
    #[must_use]
    pub fn following(self) -> DirectorySource {
        self.polling(USUAL_POLL)
    }

    /// Like [`following`](DirectorySource::following), with this poll interval.
    #[must_use]
    pub fn polling(mut self, poll: Duration) -> DirectorySource {
        self.follow = Some(poll);
        self
    }

    /// Makes the source remove files once they are done.
    ///
    /// Files that failed for good or were cancelled stay.
    #[must_use]
    pub fn removing(mut self) -> DirectorySource {
        self.removes = true;
        self
    }

    async fn window(&self, position: Option<&str>, max: usize) -> Result<Window, InputError> {
        let kept = self.reading.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (root, hidden) = (self.root.clone(), self.follow.is_none());
        let position = position.map(str::to_owned);
        let reading = blocking("listing a directory", move || {
            let mut reading = Reading::go_on(kept, root, hidden, position.as_deref())?;
            reading.fill(max)?;
            Ok(reading)
        })
        .await?;
        let order = |item: &String| path_of(item).map(|path| self.order(path));
        let orders: Vec<Order> = reading.recent.first(max).map(order).collect::<Result<_, _>>()?;
        let position = reading.recent.position_after(orders.len());
        let at_the_end = reading.ended && orders.len() == reading.recent.len();
        if !at_the_end {
            *self.reading.lock().unwrap_or_else(PoisonError::into_inner) = Some(reading);
        }
        Ok(Window { orders, position, drained: at_the_end && self.follow.is_none() })
    }

    fn order(&self, path: Vec<u8>) -> Order {
        self.template.order(name_of(&path), path)
    }
}

#[async_trait]
impl Windowed for DirectorySource {
    async fn outstanding(&self, position: Option<&str>, max: usize) -> Result<Window, InputError> {
        let max = max.clamp(1, MOST_ITEMS);
        loop {
            let window = self.window(position, max).await?;
            match self.follow {
                Some(poll) if window.orders.is_empty() => tokio::time::sleep(poll).await,
                Some(_) | None => return Ok(window),
            }
        }
    }

    async fn commit(&self, id: &str, payload: &[u8], end: End) -> Result<(), InputError> {
        // Any client may submit a task with any id, so remove a file only for a task that this
        // source would have given out.
        let gave = |path: &&[u8]| {
            let order = self.order(path.to_vec());
            order.id == id && order.payload == payload
        };
        // Either the id or the payload may be the path: the id is not if the path was shortened or
        // is no UTF-8, and the payload is not if the template makes it from the path.
        let own = [id.as_bytes(), payload].into_iter().find(gave);
        let Some(path) = own.filter(|path| self.removes && end == End::Done && is_plain(path))
        else {
            return Ok(());
        };
        let (root, path) = (self.root.clone(), PathBuf::from(native(path.to_vec())));
        blocking("removing a file", move || match remove_below(&root, &path) {
            Ok(()) => Ok(()),
            // The file was removed before, by an earlier commit or by another process. Or a link is
            // on the way, and files behind links are never given out.
            Err(error) if is_gone(&error) => Ok(()),
            Err(error) => {
                let path = root.join(path);
                Err(InputError::new(format!("removing {}", path.display()), &error))
            }
        })
        .await
    }
}

impl fmt::Debug for DirectorySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectorySource")
            .field("root", &self.root)
            .field("template", &self.template)
            .field("follow", &self.follow)
            .field("removes", &self.removes)
            .finish_non_exhaustive()
    }
}

/// The name for people of the file at this path.
fn name_of(path: &[u8]) -> String {
    let name = String::from_utf8_lossy(path);
    match name.len() {
        ..=MAX_ID_BYTES => name.into_owned(),
        // The end of a long path says more than its beginning.
        length => {
            let start = name.ceil_char_boundary(length + CUT.len() - MAX_ID_BYTES);
            format!("{CUT}{}", &name[start..])
        }
    }
}

/// A path as a position.
///
/// It is the path itself if that is UTF-8. Otherwise it is a NUL, which no path contains, and the
/// path's bytes in hexadecimal digits.
fn position_of(path: &[u8]) -> String {
    match std::str::from_utf8(path) {
        Ok(text) => text.to_owned(),
        Err(_) => path.iter().fold(String::from('\0'), |text, byte| format!("{text}{byte:02x}")),
    }
}

/// The path of a position. It comes from the store, so it is checked: a walk below the root must be
/// able to reach it.
fn path_of(position: &str) -> Result<Vec<u8>, InputError> {
    let path = match position.strip_prefix('\0') {
        None => Some(position.as_bytes().to_vec()),
        Some(digits) => bytes_of(digits),
    };
    // A directory that was given out as a whole ends with a slash.
    let is_reached = |path: &Vec<u8>| is_plain(path.strip_suffix(b"/").unwrap_or(path));
    path.filter(is_reached).ok_or_else(|| {
        InputError(format!(
            "the position {position:?} in the store is no path below the directory; another program wrote it"
        ))
    })
}

fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let byte = |pair: &[u8]| {
        let is_hexadecimal = pair.len() == 2 && pair.iter().all(u8::is_ascii_hexdigit);
        let pair = std::str::from_utf8(pair).ok().filter(|_| is_hexadecimal)?;
        u8::from_str_radix(pair, 16).ok()
    };
    digits.as_bytes().chunks(2).map(byte).collect()
}

/// A walk, and the items that it gave out last.
struct Reading {
    walk: Walk,
    recent: Recent,
    /// The walk has nothing after `recent`.
    ended: bool,
    reported: BTreeSet<String>,
}

impl Reading {
    /// Goes on with the kept reading if it has the position, or else starts anew.
    fn go_on(
        kept: Option<Reading>,
        root: Arc<Path>,
        hidden: bool,
        position: Option<&str>,
    ) -> Result<Reading, InputError> {
        let reported = match kept {
            Some(mut kept) => {
                if kept.recent.go_on_after(position) {
                    return Ok(kept);
                }
                kept.reported
            }
            None => BTreeSet::new(),
        };
        let passed = position.map(path_of).transpose()?.unwrap_or_default();
        let walk = Walk::after(root, hidden, &passed);
        Ok(Reading { walk, recent: Recent::after(position), ended: false, reported })
    }

    fn fill(&mut self, max: usize) -> Result<(), InputError> {
        while self.recent.len() < max && !self.ended {
            let path = match self.walk.next()? {
                Some(Found::File(path)) => path,
                Some(Found::Closed(path)) => {
                    self.report(&path, "this directory may not be listed, and counts as a file");
                    path
                }
                None => {
                    self.ended = true;
                    break;
                }
            };
            let position = position_of(&path);
            if position.len() <= MAX_POSITION_BYTES {
                self.recent.push(position);
            } else {
                self.report(&path, "a file is left out: its path is too long");
            }
        }
        Ok(())
    }

    fn report(&mut self, path: &[u8], what: &'static str) {
        let path = String::from_utf8_lossy(path).into_owned();
        if self.reported.len() < MOST_REPORTED && !self.reported.contains(&path) {
            tracing::warn!(path, "{what}");
            self.reported.insert(path);
        }
    }
}

#[cfg(test)]
mod tests;
