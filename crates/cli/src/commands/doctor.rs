//! `tenure doctor`: says in words whether the store is reachable and safe.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde::Serialize;
use tenure::store::{Expect, Fault, Put, Reads, Store, StoreError, StoreExt, Version};
use tenure::{Backend, Key, Timing};
use tenure_stores::{Location, Opened};

use crate::exit::{self, Ending};
use crate::redact;
use crate::session::Session;
use crate::show::{self, Colour, paint, span};

/// How often each request is measured.
const SAMPLES: usize = 9;
/// The longest wait for a notification; a later one counts as none.
const LONGEST_NOTIFICATION: Duration = Duration::from_secs(2);
/// The longest wait for a session, unless its ttl is longer.
const LONGEST_SESSION: Duration = Duration::from_secs(5);
/// How long two clocks are compared, and by how much they may differ in that time.
const COMPARED: Duration = Duration::from_millis(50);
const CLOCK_TOLERANCE: Duration = Duration::from_millis(5);
/// A file's time is coarse, and is taken a little earlier.
const FILE_TIME_TOLERANCE: Duration = Duration::from_secs(2);

#[derive(Debug, Serialize)]
struct Examination {
    store: String,
    healthy: bool,
    checks: Vec<Check>,
    #[serde(skip)]
    code: u8,
}

#[derive(Debug, Serialize)]
struct Check {
    check: &'static str,
    result: Verdict,
    says: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Ok,
    Warning,
    Failed,
}

pub(crate) async fn doctor(session: &Session) -> Ending {
    let mut examination = Examination {
        store: session.location.to_string(),
        healthy: true,
        checks: Vec::new(),
        code: 0,
    };
    examination.examine(session).await;
    if session.json {
        show::print_json(&examination)?;
    } else {
        for check in &examination.checks {
            let verdict = match check.result {
                Verdict::Ok => paint(Colour::Green, "ok    "),
                Verdict::Warning => paint(Colour::Yellow, "warn  "),
                Verdict::Failed => paint(Colour::Red, "FAILED"),
            };
            show::print(format_args!(
                "{verdict}  {:15}  {}",
                check.check,
                show::escape(&check.says)
            ))?;
        }
    }
    Ok(ExitCode::from(examination.code))
}

impl Examination {
    async fn examine(&mut self, session: &Session) {
        let begun = Instant::now();
        let opened = match session.open().await {
            Ok(opened) => opened,
            Err(failure) => {
                self.note("store", Verdict::Failed, show::chain(&failure.error));
                self.code = failure.code;
                return;
            }
        };
        self.ok("store", format!("{} opened in {}", self.store, span(begun.elapsed())));
        self.file_system(&session.location);
        self.permissions(&session.location);
        let store = opened.backend.store().clone();
        match self.requests(&*store, session).await {
            Ok(()) => {}
            Err(error) => {
                self.code = match error.fault {
                    Fault::Denied => exit::DENIED,
                    Fault::Unavailable => exit::UNREACHABLE,
                    Fault::Permanent | Fault::Indeterminate => exit::REFUSED,
                };
                self.note("requests", Verdict::Failed, show::chain(&error.into()));
            }
        }
        self.presence(&opened);
        self.clocks(&opened.backend).await;
        self.version(session).await;
        self.times(session, &opened.backend).await;
    }

    /// Warns if the servers should be upgraded.
    async fn version(&mut self, session: &Session) {
        match session.advice().await {
            Ok(Some(says)) => self.note("version", Verdict::Warning, says),
            Ok(None) => {}
            Err(failure) => {
                self.note("version", Verdict::Warning, show::chain(&failure.error));
            }
        }
    }

    /// Checks round trips, compare-and-set and notifications on a scratch document.
    async fn requests(&mut self, store: &dyn Store, session: &Session) -> Result<(), StoreError> {
        let name = format!("{:x}-{:x}", std::process::id(), begun_nanoseconds());
        let key = Key::parse("doctor").and_then(|key| key.child(&name)).map_err(|error| {
            StoreError::new(Fault::Permanent, "doctor", "naming a scratch document", error)
        })?;
        let examined = self.on_scratch(store, &key, session).await;
        // Remove the document in any case; a leftover is only worth a warning.
        let removed = match store.get(&key).await {
            Ok(Some(document)) => store.delete(&key, document.version).await.map(drop),
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = removed {
            let says = format!("{key} stays behind: {}", show::chain(&error.into()));
            self.note("cleaning up", Verdict::Warning, says);
        }
        examined
    }

    async fn on_scratch(
        &mut self,
        store: &dyn Store,
        key: &Key,
        session: &Session,
    ) -> Result<(), StoreError> {
        let read = median(async || store.get(key).await.map(drop)).await?;
        let Some(first) = stored(store.put(key, Expect::Absent, body(0)).await?) else {
            self.fail("compare-and-set", "a fresh document was refused as if it were there".into());
            return Ok(());
        };
        let mut version = first.clone();
        let mut number = 1;
        let written = median(async || {
            let put = store.put(key, Expect::At(version.clone()), body(number)).await?;
            number += 1;
            if let Some(newer) = stored(put) {
                version = newer;
            }
            Ok(())
        })
        .await?;
        let slow = written > session.timing.request() / 2;
        let verdict = if slow { Verdict::Warning } else { Verdict::Ok };
        let hint = if slow { "; too slow for this ttl, choose a longer one" } else { "" };
        let says = format!(
            "{} to read, {} to write (medians of {SAMPLES}){hint}",
            span(read),
            span(written)
        );
        self.note("round trip", verdict, says);
        self.compare_and_set(store, key, &first, &version, number).await?;
        self.notification(store, key, session).await
    }

    async fn compare_and_set(
        &mut self,
        store: &dyn Store,
        key: &Key,
        first: &Version,
        newest: &Version,
        number: u64,
    ) -> Result<(), StoreError> {
        let create = store.put(key, Expect::Absent, body(9001)).await?;
        let stale = store.put(key, Expect::At(first.clone()), body(9002)).await?;
        let found = store.get(key).await?;
        let intact = found.is_some_and(|document| {
            document.version == *newest && document.body == body(number - 1)
        });
        if create == Put::Conflict && stale == Put::Conflict && intact {
            let reads = match store.reads() {
                Reads::Linearizable => "reads are linearizable",
                Reads::Weak => "reads may be stale, so leaders are proven by writes",
            };
            self.ok("compare-and-set", format!("two conflicting writes were refused; {reads}"));
        } else {
            let says = format!(
                "a conflicting write was not refused (create: {create:?}, stale: {stale:?}, \
                 intact: {intact}): elections here are NOT safe"
            );
            self.fail("compare-and-set", says);
        }
        Ok(())
    }

    async fn notification(
        &mut self,
        store: &dyn Store,
        key: &Key,
        session: &Session,
    ) -> Result<(), StoreError> {
        if !store.notifies() {
            let poll = span(session.timing.poll(false));
            let says = format!("none just now: followers look every {poll} instead");
            self.note("notification", Verdict::Warning, says);
            return Ok(());
        }
        let Some(document) = store.get(key).await? else { return Ok(()) };
        let changed = store.changed(key, Some(&document.version));
        tokio::pin!(changed);
        // The store must listen before the change comes.
        if tokio::time::timeout(COMPARED, &mut changed).await.is_ok() {
            let says = "rang although nothing had changed".into();
            self.note("notification", Verdict::Warning, says);
            return Ok(());
        }
        let written = async {
            let put = store.put(key, Expect::At(document.version.clone()), body(9003)).await;
            (put, Instant::now())
        };
        let waited = tokio::time::timeout(LONGEST_NOTIFICATION, async {
            let ((), (put, at)) = tokio::join!(&mut changed, written);
            (put, at.elapsed())
        });
        match waited.await {
            Ok((put, late)) => {
                let _ = put?;
                self.ok("notification", format!("arrived within {} of the write", span(late)));
            }
            Err(_) => {
                let says = format!("none within {}", span(LONGEST_NOTIFICATION));
                self.note("notification", Verdict::Warning, says);
            }
        }
        Ok(())
    }

    fn presence(&mut self, opened: &Opened) {
        match opened.backend.presence().map(|presence| presence.mark()) {
            Some(Ok(_)) => {
                self.ok("crash detection", "a leader that dies is replaced at once".into());
            }
            Some(Err(error)) => {
                self.note("crash detection", Verdict::Warning, show::chain(&error.into()));
            }
            None => self
                .ok("crash detection", "none: a leader that dies is replaced after the ttl".into()),
        }
    }

    async fn clocks(&mut self, backend: &Backend) {
        let clock = backend.clock();
        let begun = clock.now();
        tokio::time::sleep(COMPARED).await;
        let now = clock.now();
        let (longer, shorter) = (now.at_most_since(begun), now.at_least_since(begun));
        let slept = now.boot.saturating_sub(now.monotonic);
        if longer - shorter > CLOCK_TOLERANCE || shorter.is_zero() {
            let says = format!(
                "BOOTTIME and MONOTONIC disagree: {} and {} for the same while",
                span(longer),
                span(shorter)
            );
            self.fail("clock", says);
        } else {
            let says =
                format!("BOOTTIME and MONOTONIC agree; the machine has slept for {}", span(slept));
            self.ok("clock", says);
        }
    }

    async fn times(&mut self, session: &Session, backend: &Backend) {
        if let (Some(queue), Some(asked)) = (backend.queue(), session.asked()) {
            let mut sessions = queue.session();
            // Without a proof of life no candidate could ever lead in this session.
            let proven = sessions.wait_for(|session| session.proof().is_some());
            // It may take several requests to learn the reason, each of a tenth of the ttl.
            let limit = LONGEST_SESSION.max(asked);
            let granted = match tokio::time::timeout(limit, proven).await {
                Ok(Ok(session)) => session.ttl,
                Ok(Err(_)) | Err(_) => {
                    let says = format!("no session whose life is proven within {}", span(limit));
                    let reason = queue.trouble().map(|error| show::chain(&error.into()));
                    let says = reason.map_or(says.clone(), |reason| format!("{says}: {reason}"));
                    return self.fail("times", says);
                }
            };
            return self.session_times(session, asked, granted);
        }
        let timing = session.timing;
        let says = format!(
            "ttl {}: renewed every {}, requests given up after {}, work told to stop {} before the \
             lease can end",
            span(timing.ttl()),
            span(timing.heartbeat()),
            span(timing.request()),
            span(timing.grace())
        );
        self.ok("times", says);
    }

    /// Checks the times of a queue, which depend on the session that the server grants.
    fn session_times(&mut self, session: &Session, asked: Duration, granted: Duration) {
        let grace = session.timing.chosen_grace().unwrap_or(granted / 10);
        let says = format!(
            "ttl {}, as the server granted{}: requests given up after {}, work told to stop {} before \
             the session can end",
            span(granted),
            if granted == asked {
                String::new()
            } else {
                format!(" ({} were asked for)", span(asked))
            },
            span(granted / 10),
            span(grace)
        );
        let most = Timing::longest_session_grace(granted);
        if grace > most {
            return self
                .fail("times", format!("{says}; --grace may be at most {most:?} of that ttl"));
        }
        let verdict = if granted == asked { Verdict::Ok } else { Verdict::Warning };
        self.note("times", verdict, says);
    }

    fn file_system(&mut self, location: &Location) {
        let Location::File { directory, force, .. } = location else { return };
        let Ok(found) = rustix::fs::statfs(directory) else { return };
        // Opening the store refused other file systems, unless forced.
        let name = match found.f_type as u64 & 0xffff_ffff {
            0xef53 => "ext4",
            0x5846_5342 => "xfs",
            0x9123_683e => "btrfs",
            0x0102_1994 => "tmpfs, which a reboot empties",
            0x2fc1_2fc1 => "zfs",
            0x794c_7630 => "overlay",
            _ if *force => {
                let says = "unknown, and forced: take-overs may be unsafe".into();
                return self.note("file system", Verdict::Warning, says);
            }
            _ => "accepted by the store",
        };
        let free = found.f_bavail.saturating_mul(u64::try_from(found.f_bsize).unwrap_or(0)) >> 20;
        let verdict = if free < 16 { Verdict::Warning } else { Verdict::Ok };
        self.note("file system", verdict, format!("{name}; {free} MiB free"));
    }

    fn permissions(&mut self, location: &Location) {
        use std::os::unix::fs::MetadataExt;
        let Location::File { directory, .. } = location else { return };
        // Opening refused a directory that others may enter, or one with a parent that others may
        // rename.
        match std::fs::metadata(directory) {
            Ok(found) if tenure_stores::trusts_parents(location) => {
                let says = format!(
                    "the directory is its owner's only (user {}); its parents are trusted unseen",
                    found.uid()
                );
                self.note("permissions", Verdict::Warning, says);
            }
            Ok(found) => {
                let says = format!(
                    "the directory is its owner's only (user {}), and no other user can replace it",
                    found.uid()
                );
                self.ok("permissions", says);
            }
            Err(error) => self.fail("permissions", error.to_string()),
        }
        self.file_time(directory);
    }

    /// Checks that files are stamped with the time that this process sees.
    fn file_time(&mut self, directory: &std::path::Path) {
        let scratch = directory.join(format!(".doctor-{}", std::process::id()));
        let stamped = std::fs::write(&scratch, b"").and_then(|()| {
            let modified = std::fs::metadata(&scratch)?.modified()?;
            std::fs::remove_file(&scratch)?;
            Ok(modified)
        });
        let Ok(modified) = stamped else { return };
        let now = std::time::SystemTime::now();
        let apart = now.duration_since(modified).unwrap_or_else(|error| error.duration());
        if apart > FILE_TIME_TOLERANCE {
            let says = format!("the wall clock and the files' are {} apart", span(apart));
            self.note("wall clock", Verdict::Warning, says);
        } else {
            self.ok("wall clock", "files are stamped with the same time".into());
        }
    }

    fn ok(&mut self, check: &'static str, says: String) {
        self.note(check, Verdict::Ok, says);
    }

    fn fail(&mut self, check: &'static str, says: String) {
        self.code = exit::REFUSED;
        self.note(check, Verdict::Failed, says);
    }

    fn note(&mut self, check: &'static str, result: Verdict, says: String) {
        self.healthy &= result != Verdict::Failed;
        // A store's error text may quote the URL that was used.
        self.checks.push(Check { check, result, says: redact::text(&says) });
    }
}

fn body(number: u64) -> Bytes {
    format!("{{\"doctor\":{number}}}\n").into()
}

fn stored(put: Put) -> Option<Version> {
    match put {
        Put::Stored(version) => Some(version),
        Put::Conflict => None,
    }
}

async fn median(
    mut request: impl AsyncFnMut() -> Result<(), StoreError>,
) -> Result<Duration, StoreError> {
    let mut took = Vec::with_capacity(SAMPLES);
    for _ in 0..SAMPLES {
        let begun = Instant::now();
        request().await?;
        took.push(begun.elapsed());
    }
    took.sort_unstable();
    Ok(took[SAMPLES / 2])
}

fn begun_nanoseconds() -> u128 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.as_nanos())
}
