//! Bells, the notifications of file changes: one inotify instance and one task per store.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::directory::{Root, open_directory};
use crate::descriptor;

const BUFFER_BYTES: usize = 16 * 1024;

/// The events to watch for.
///
/// A document is only ever renamed into place or deleted; a presence file is only ever closed.
const EVENTS: WatchFlags = WatchFlags::MOVED_TO
    .union(WatchFlags::DELETE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::MASK_ADD);

/// The events that end a watch: no more events can come from that directory.
const ENDED: ReadFlags = ReadFlags::DELETE_SELF
    .union(ReadFlags::MOVE_SELF)
    .union(ReadFlags::UNMOUNT)
    .union(ReadFlags::IGNORED);

/// All watchers of a store.
#[derive(Debug)]
pub(super) struct FileWatchers {
    root: Arc<Root>,
    live: Mutex<Option<Live>>,
    broken: Arc<AtomicBool>,
}

/// The instance and its task, while there is a runtime for it.
#[derive(Debug)]
struct Live {
    board: Arc<Board>,
    task: JoinHandle<()>,
}

impl Drop for Live {
    fn drop(&mut self) {
        self.task.abort();
        // Waiters that are left must listen anew.
        self.board.watches().clear();
    }
}

/// The inotify instance, and the listeners by watch and name.
#[derive(Debug)]
struct Board {
    descriptor: AsyncFd<OwnedFd>,
    watches: Mutex<HashMap<i32, Names>>,
}

type Names = HashMap<String, watch::Sender<()>>;

impl Board {
    fn watches(&self) -> MutexGuard<'_, HashMap<i32, Names>> {
        // Every change below is a single insert or remove.
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FileWatchers {
    pub(super) fn new(root: Arc<Root>) -> FileWatchers {
        FileWatchers { root, live: Mutex::new(None), broken: Arc::new(AtomicBool::new(false)) }
    }

    /// Returns true if watchers notify, as far as is known.
    pub(super) fn work(&self) -> bool {
        !self.broken.load(Ordering::Relaxed)
    }

    /// Starts to listen for a document's file, or for its directory if that is missing.
    ///
    /// `None` when the kernel has no more watches for us.
    pub(super) fn listen(&self, directory: &[String], name: &str) -> Option<FileWatcher> {
        self.hang(directory, name, EVENTS)
    }

    /// Starts to listen for the last writer of a file to close it.
    pub(super) fn listen_for_close(&self, directory: &[String], name: &str) -> Option<FileWatcher> {
        self.hang(directory, name, EVENTS | WatchFlags::CLOSE_WRITE)
    }

    fn hang(&self, directory: &[String], name: &str, events: WatchFlags) -> Option<FileWatcher> {
        if !self.work() {
            return None;
        }
        match self.try_hang(directory, name, events) {
            Ok(watcher) => watcher,
            Err(error) => {
                if !self.broken.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        %error,
                        "file: no notifications of changes; raise fs.inotify.max_user_instances \
                         and fs.inotify.max_user_watches"
                    );
                }
                None
            }
        }
    }

    fn board(&self) -> io::Result<Arc<Board>> {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        match &*live {
            // The task ends with the runtime it was started on.
            Some(running) if !running.task.is_finished() => Ok(Arc::clone(&running.board)),
            Some(_) | None => {
                let descriptor = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
                let descriptor = descriptor::watch(descriptor)?;
                let board = Arc::new(Board { descriptor, watches: Mutex::default() });
                let task = tokio::spawn(ring(Arc::clone(&board), Arc::clone(&self.broken)));
                *live = Some(Live { board: Arc::clone(&board), task });
                Ok(board)
            }
        }
    }

    /// Fails when inotify does; `Ok(None)` where there is nothing to listen to.
    fn try_hang(
        &self,
        directory: &[String],
        name: &str,
        events: WatchFlags,
    ) -> io::Result<Option<FileWatcher>> {
        let board = self.board()?;
        loop {
            let (deepest, missing) = match self.deepest(directory) {
                Ok(found) => found,
                Err(errno) => {
                    tracing::debug!(?directory, %errno, "cannot be listened to");
                    return Ok(None);
                }
            };
            let Some(missing) = missing else {
                return Ok(Some(FileWatcher::hang(board, &deepest, name, events, Reach::Exact)?));
            };
            let events = EVENTS | WatchFlags::CREATE;
            let watcher =
                FileWatcher::hang(Arc::clone(&board), &deepest, missing, events, Reach::Above)?;
            // The directory may have been made before the watch was set.
            if matches!(open_directory(&deepest, missing), Err(Errno::NOENT)) {
                return Ok(Some(watcher));
            }
        }
    }

    /// Walks down as far as the directories exist; returns the first missing name.
    fn deepest<'d>(&self, directory: &'d [String]) -> Result<(OwnedFd, Option<&'d str>), Errno> {
        let mut at = open_directory(self.root.descriptor(), ".")?;
        for name in directory {
            at = match open_directory(&at, name) {
                Ok(below) => below,
                Err(Errno::NOENT) => return Ok((at, Some(name))),
                Err(errno) => return Err(errno),
            };
        }
        Ok((at, None))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// The watcher watches in the file's own directory.
    Exact,
    /// The watcher watches further up, where the next directory on the way will appear.
    Above,
}

/// The meaning of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ring {
    /// The file may have changed; the watcher goes on.
    Rang,
    /// The watcher watches the wrong place by now: watch anew.
    Moved,
}

/// One listener for one name in one directory.
#[derive(Debug)]
pub(super) struct FileWatcher {
    board: Arc<Board>,
    watch: i32,
    name: String,
    reach: Reach,
    receiver: watch::Receiver<()>,
}

impl FileWatcher {
    fn hang(
        board: Arc<Board>,
        directory: &OwnedFd,
        name: &str,
        events: WatchFlags,
        reach: Reach,
    ) -> Result<FileWatcher, Errno> {
        // Through the descriptor, because a path could lead elsewhere by now.
        let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
        let mut watches = board.watches();
        let watch = inotify::add_watch(&board.descriptor, path, events)?;
        let names = watches.entry(watch).or_default();
        let receiver = match names.get(name) {
            Some(sender) => sender.subscribe(),
            None => names.entry(name.to_owned()).or_default().subscribe(),
        };
        drop(watches);
        Ok(FileWatcher { board, watch, name: name.to_owned(), reach, receiver })
    }

    /// Waits for the next ring. Cancel safe: a ring is kept until it was waited for.
    pub(super) async fn rung(&mut self) -> Ring {
        match (self.receiver.changed().await, self.reach) {
            (Ok(()), Reach::Exact) => Ring::Rang,
            (Ok(()), Reach::Above) | (Err(_), _) => Ring::Moved,
        }
    }
}

impl Drop for FileWatcher {
    fn drop(&mut self) {
        let mut watches = self.board.watches();
        let Some(names) = watches.get_mut(&self.watch) else { return };
        // Our own receiver is still in the count.
        if names.get(&self.name).is_some_and(|sender| sender.receiver_count() <= 1) {
            names.remove(&self.name);
        }
        if names.is_empty() {
            watches.remove(&self.watch);
            // It fails if the directory is gone, and the watch with it.
            let _ = inotify::remove_watch(&self.board.descriptor, self.watch);
        }
    }
}

/// Reads events, and notifiess.
async fn ring(board: Arc<Board>, broken: Arc<AtomicBool>) {
    let mut buffer = vec![MaybeUninit::uninit(); BUFFER_BYTES];
    loop {
        let Ok(mut ready) = board.descriptor.readable().await else { break };
        match drain(&board, &mut buffer) {
            Errno::AGAIN => ready.clear_ready(),
            Errno::INTR => {}
            errno => {
                tracing::warn!(%errno, "file: notifications of changes ended");
                break;
            }
        }
    }
    broken.store(true, Ordering::Relaxed);
    board.watches().clear();
}

/// Rings for all events that can be read now; returns the error that ended the reading.
fn drain(board: &Board, buffer: &mut [MaybeUninit<u8>]) -> Errno {
    let mut reader = inotify::Reader::new(&board.descriptor, buffer);
    loop {
        let event = match reader.next() {
            Ok(event) => event,
            Err(errno) => return errno,
        };
        let mut watches = board.watches();
        if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
            // Events were lost, so any file may have changed.
            watches.values().flat_map(HashMap::values).for_each(|sender| sender.send_replace(()));
        } else if event.events().intersects(ENDED) {
            if watches.remove(&event.wd()).is_some() {
                let _ = inotify::remove_watch(&board.descriptor, event.wd());
            }
        } else if let Some(names) = watches.get(&event.wd())
            && let Some(name) = event.file_name().and_then(|name| name.to_str().ok())
            && let Some(sender) = names.get(name)
        {
            sender.send_replace(());
        }
    }
}
