//! The main loop of `tenure share`, from joining the group to leaving it.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tenure::Timing;
use tenure_cluster::ClusterError;
use tenure_cluster::{Cluster, ClusterClient, Event, MemberView, Totals};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::watch;

use super::others::Others;
use super::pool::GuardianPool;
use super::printer::Printer;
use super::progress::{Progress, Standing};
use super::reader::{Read, Reader};
use super::report::{Ended, Missed, Summary, Tally, Why};
use crate::exit::{Ending, Failure, NOT_LED};
use crate::show;
use crate::signals::{Asked, Signals};
use crate::systemd::Systemd;

/// The pause between two reads of the group's totals.
const LOOK: Duration = Duration::from_millis(500);
/// How often the progress line is redrawn.
const DRAW: Duration = Duration::from_millis(200);

/// How long to wait for the store after the third interrupt.
const HURRY: Duration = Duration::from_millis(200);

/// Everything that the main loop needs.
pub(super) struct Run {
    pub(super) cluster: Cluster,
    pub(super) pool: Arc<GuardianPool>,
    pub(super) signals: Signals,
    pub(super) systemd: Systemd,
    pub(super) name: String,
    /// Whether a single read of the store may show an old state.
    pub(super) weak: bool,
    /// Whether this process ends when everything is done.
    pub(super) ends: bool,
    /// The state of the group before this process came.
    pub(super) before: Before,
    pub(super) timing: Timing,
    pub(super) json: bool,
    /// The kinds of tasks that this process runs.
    pub(super) kinds: Vec<&'static str>,
}

/// The state of the group when a process comes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Before {
    /// How many items were accepted.
    pub(super) accepted: u64,
    /// Whether the group had finished. The source that this process would list was read to its end,
    /// and everything was done.
    pub(super) finished: bool,
}

/// The totals of the whole group at one moment.
#[derive(Clone, Copy, Debug)]
struct Look {
    /// When the read began. Later changes may be missing.
    began: Instant,
    totals: Totals,
}

/// The progress of this process so far.
struct Course {
    began: Instant,
    tally: Tally,
    running: usize,
    members: usize,
    totals: Totals,
    /// How many reads in a row found nothing left to do.
    idle_looks: u32,
    /// When this process had read its own source to the end. `None` while it is being read. Equal
    /// to `began` if this process has no source of its own.
    read: Option<Instant>,
    faults: u64,
    before: Before,
    /// How many items of its own source this process has submitted so far.
    submitted: Option<Arc<AtomicU64>>,
    /// How often this process was interrupted, and the last signal.
    interrupts: u32,
    signal: u8,
    printer: Option<Printer>,
    progress: Progress,
}

impl Run {
    /// Shares work until it is over. Afterwards no process that this one started is left.
    ///
    /// # Errors
    /// When the store refuses an item that this process reads.
    ///
    /// # Cancel safety
    /// Not cancel safe: work may be left running.
    pub(super) async fn run(mut self, reader: Option<Reader>) -> Ending {
        let mut course = Course::new(self.json, reader.is_none());
        course.submitted = reader.as_ref().map(Reader::submitted);
        course.before = self.before;
        let mut events = self.cluster.events();
        let stop_reading = reader.as_ref().map(Reader::stopper);
        let reading = reader.map(|reader| reader.run().boxed());
        let outcome = self.oversee(&mut course, &mut events, reading, stop_reading).await;
        course.progress.clear();
        // Read the members before leaving: their counts are in the node list only while they are
        // members.
        let patience = course.patience(self.timing);
        let members = tokio::time::timeout(patience, self.cluster.members()).await;
        let members = members.ok().and_then(Result::ok).unwrap_or_default();
        let left = tokio::time::timeout(patience, self.cluster.leave()).await;
        self.pool.disband().await;
        if left.is_err() {
            let why = match course.interrupts {
                0..=2 => "the store does not answer",
                _ => "the store was not waited for",
            };
            show::say(&format!("{why}; this member is removed when its lock has run out"));
        }
        course.drain(&mut events);
        self.conclude(course, &members, outcome).await
    }

    async fn oversee(
        &mut self,
        course: &mut Course,
        events: &mut Receiver<Event>,
        mut reading: Option<BoxFuture<'static, Result<Read, Failure>>>,
        stop_reading: Option<watch::Sender<bool>>,
    ) -> Result<Why, Failure> {
        let (looks, mut looked) = watch::channel(None);
        let others = Others::new(self.kinds.clone());
        let looking = look_again_and_again(self.cluster.client().clone(), looks, others);
        tokio::pin!(looking);
        let mut draw = tokio::time::interval(DRAW);
        let mut leaving: Option<BoxFuture<'static, ()>> = None;
        let left = self.cluster.clone();
        let left = async move { left.left().await };
        tokio::pin!(left);
        loop {
            tokio::select! {
                biased;
                event = events.recv() => match event {
                    Ok(event) => course.learn(&event),
                    Err(RecvError::Lagged(count)) => course.missed(count),
                    Err(RecvError::Closed) => return Ok(Why::Drained),
                },
                asked = self.signals.next() => match asked {
                    Asked::Stop(signal) | Asked::PassOn(signal) => {
                        course.interrupts += 1;
                        course.signal = u8::try_from(signal.as_raw()).unwrap_or(0);
                        self.systemd.stopping();
                        if let Some(stop) = &stop_reading {
                            stop.send_replace(true);
                        }
                        course.progress.clear();
                        let cluster = self.cluster.clone();
                        leaving = Some(match course.interrupts {
                            1 => {
                                course.say_what_is_waited_for();
                                async move { cluster.drain().await }.boxed()
                            }
                            2 => {
                                show::say("interrupted again: stopping what runs");
                                reading = None;
                                async move { cluster.leave().await }.boxed()
                            }
                            // The guardians stop CMD.
                            _ => return Ok(Why::Interrupted),
                        });
                    }
                    Asked::Mention(_) | Asked::StepDown | Asked::Resume => {}
                },
                read = wait_for(&mut reading) => {
                    reading = None;
                    course.read = Some(Instant::now());
                    course.faults += read?.faults;
                }
                () = wait_for(&mut leaving), if reading.is_none() => return Ok(Why::Interrupted),
                () = &mut left, if leaving.is_none() => return Ok(Why::Drained),
                Ok(()) = looked.changed() => {
                    let look = *looked.borrow_and_update();
                    if let Some(look) = look
                        && course.is_finished(&look, self.weak)
                        && self.ends
                        && leaving.is_none()
                    {
                        return Ok(Why::Finished);
                    }
                }
                _ = draw.tick() => course.draw(),
                () = &mut looking => {}
            }
        }
    }

    async fn conclude(
        self,
        mut course: Course,
        members: &[MemberView],
        outcome: Result<Why, Failure>,
    ) -> Ending {
        let client = self.cluster.client();
        let why = outcome.as_ref().map_or(Why::Failed, |why| *why);
        // If the store does not answer, the totals that were read last will do.
        let patience = course.patience(self.timing);
        let totals = tokio::time::timeout(patience, client.totals()).await;
        if let Ok(Ok(totals)) = totals {
            course.totals = totals;
        }
        let letters = match tokio::time::timeout(patience, client.letters(None, 1)).await {
            Ok(Ok(letters)) => !letters.items.is_empty() || !letters.garbled.is_empty(),
            Ok(Err(_)) | Err(_) => course.totals.dead > 0,
        };
        let (group, took) = (client.name().to_string(), course.began.elapsed());
        let (totals, tally) = (course.totals, course.tally);
        if course.progress.is_shown() {
            show::say(&told(&group, &totals, letters || totals.dead > 0, tally, took));
        }
        if let Some(printer) = course.printer.take() {
            let here = (self.cluster.id().as_str(), self.name.as_str(), tally);
            let summary = Summary::new((&group, why), &totals, letters, here, members, took);
            let missed = printer.close(&summary);
            if missed > 0 {
                show::say(&format!("{missed} lines are missing: nobody read them in time"));
            }
        }
        if why == Why::Finished && course.before.finished {
            let says = format!(
                "{group} had been read to the end of its source before, and nothing was left to do; for another \
                 walk through it take another name, such as {group}/2"
            );
            show::say(&says);
        }
        let ended = match outcome? {
            Why::Finished => 0,
            Why::Interrupted if !self.ends => 0,
            Why::Interrupted => 128 + course.signal,
            Why::Drained | Why::Failed => 0,
        };
        // An item that cannot become a task is dead without a letter.
        let dead = letters || totals.dead > 0;
        let cut_short = why == Why::Drained && self.ends && !course.is_over(&totals);
        let failed = dead || course.faults > 0 || cut_short;
        Ok(ExitCode::from(if ended == 0 && failed { NOT_LED } else { ended }))
    }
}

impl Course {
    fn new(json: bool, nothing_to_read: bool) -> Course {
        let began = Instant::now();
        Course {
            began,
            tally: Tally::default(),
            running: 0,
            members: 1,
            totals: Totals::default(),
            idle_looks: 0,
            read: nothing_to_read.then_some(began),
            faults: 0,
            before: Before::default(),
            submitted: None,
            interrupts: 0,
            signal: 0,
            printer: json.then(Printer::new),
            progress: Progress::new(json),
        }
    }

    /// How long to wait at the end for a store that does not answer.
    fn patience(&self, timing: Timing) -> Duration {
        if self.interrupts > 2 { HURRY } else { timing.ttl() }
    }

    fn learn(&mut self, event: &Event) {
        match event {
            Event::Began { .. } => self.running += 1,
            Event::Ended { serial, id, attempt, ending, again, verdict, took } => {
                self.running = self.running.saturating_sub(1);
                let ended = Ended::new((*serial, id, *attempt), ending, *again, *verdict, *took);
                self.tally.count(ended.state);
                if let Some(printer) = &mut self.printer {
                    printer.print(&ended);
                }
                if self.progress.is_shown()
                    && let Some(complaint) = ended.complaint()
                {
                    self.progress.clear();
                    show::say(&complaint);
                }
            }
            Event::Members(count) => self.members = *count,
            // The library logs all other events.
            Event::Leading(_)
            | Event::Garbled { .. }
            | Event::Refused { .. }
            | Event::Retired
            | _ => {}
        }
    }

    fn missed(&mut self, count: u64) {
        if let Some(printer) = &mut self.printer {
            printer.print(&Missed::new(count));
        }
    }

    /// Handles the events that came before this process left.
    fn drain(&mut self, events: &mut Receiver<Event>) {
        loop {
            match events.try_recv() {
                Ok(event) => self.learn(&event),
                Err(TryRecvError::Lagged(count)) => self.missed(count),
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            }
        }
    }

    /// Returns true if nothing is left to do, and no more items can come.
    fn is_finished(&mut self, look: &Look, weak: bool) -> bool {
        self.totals = look.totals;
        let totals = &look.totals;
        let read = self.read.is_some_and(|read| read == self.began || look.began > read);
        let finished = read && self.is_over(totals);
        self.idle_looks = if finished { self.idle_looks + 1 } else { 0 };
        // Where reads are weak, one read may show an older state.
        self.idle_looks > u32::from(weak)
    }

    /// Returns true if the source has been read to its end and everything is done.
    fn is_over(&self, totals: &Totals) -> bool {
        match self.read {
            // The leader reads the source, and the totals say when it is at the end.
            Some(read) if read == self.began => totals.is_finished(),
            Some(_) => totals.open == 0 && !totals.waiting,
            None => false,
        }
    }

    fn draw(&mut self) {
        let Totals { done, dead, cancelled, drained, .. } = self.totals;
        let own = self.read.is_some_and(|read| read != self.began);
        let accepted = self.accepted();
        let complete = drained || own;
        let (running, members) = (self.running, self.members);
        let standing = Standing { accepted, done, dead, cancelled, complete, running, members };
        self.progress.draw(&standing);
    }

    /// How many items there are. Accepted items that the leader has not taken in count, too.
    fn accepted(&self) -> u64 {
        let submitted = self.submitted.as_ref().map_or(0, |count| count.load(Ordering::Relaxed));
        self.totals.accepted.max(self.before.accepted + submitted)
    }

    fn say_what_is_waited_for(&self) {
        if self.running > 0 {
            show::say(&format!(
                "taking nothing more; waiting for {} (interrupt again to stop)",
                super::super::group::count(self.running as u64, "run of CMD", "runs of CMD")
            ));
        }
    }
}

/// Reads the group's totals again and again, until it is dropped.
async fn look_again_and_again(
    client: ClusterClient,
    looks: watch::Sender<Option<Look>>,
    mut others: Others,
) {
    let mut told = false;
    loop {
        let began = Instant::now();
        match client.totals().await {
            Ok(totals) => {
                told = false;
                looks.send_replace(Some(Look { began, totals }));
                others.look(&client, &totals).await;
            }
            Err(error) if !told => {
                told = true;
                complain(error);
            }
            Err(_) => {}
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn complain(error: ClusterError) {
    show::say(&format!("waiting on: {}", show::chain(&error.into())));
}

/// Waits for the future; forever, if there is none.
async fn wait_for<T>(future: &mut Option<BoxFuture<'static, T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

/// The summary for people.
fn told(group: &str, totals: &Totals, letters: bool, tally: Tally, took: Duration) -> String {
    let Totals { accepted, done, dead, cancelled, .. } = totals;
    let group = show::escape(group);
    let mut text = format!(
        "{group}: {accepted} accepted, {done} done, {dead} dead, {cancelled} cancelled; {} done here in {}",
        tally.done,
        show::span(took)
    );
    if letters {
        text.push_str(&format!("; what failed: tenure tasks {group} --dead"));
    } else if *done > 0 {
        text.push_str(&format!("; what came of it: tenure tasks {group} --results"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(after: Duration, began: Instant, totals: Totals) -> Look {
        Look { began: began + after, totals }
    }

    #[test]
    fn a_source_that_the_leader_reads_ends_when_the_leader_says_so() {
        let mut course = Course::new(false, true);
        let open = Totals { accepted: 3, open: 1, drained: true, ..Totals::default() };
        let reading = Totals { accepted: 3, done: 3, ..Totals::default() };
        let over = Totals { drained: true, ..reading };
        let began = course.began;
        for (totals, finished) in [(open, false), (reading, false), (over, true)] {
            let look = look(Duration::from_secs(1), began, totals);
            assert_eq!(course.is_finished(&look, false), finished, "{totals:?}");
        }
    }

    #[test]
    fn an_own_source_ends_only_by_a_look_that_began_after_it_was_read() {
        let mut course = Course::new(false, false);
        let (began, second) = (course.began, Duration::from_secs(1));
        let over = Totals { accepted: 3, done: 3, ..Totals::default() };
        assert!(!course.is_finished(&look(second, began, over), false), "it is being read");
        course.read = Some(began + 2 * second);
        assert!(!course.is_finished(&look(second, began, over), false), "too early a look");
        let waiting = Totals { waiting: true, ..over };
        assert!(!course.is_finished(&look(3 * second, began, waiting), false));
        assert!(course.is_finished(&look(3 * second, began, over), false));
    }

    #[test]
    fn what_was_accepted_counts_before_the_leader_has_taken_it_in() {
        let mut course = Course::new(false, false);
        course.before.accepted = 10;
        course.submitted = Some(Arc::new(AtomicU64::new(1000)));
        course.totals = Totals { accepted: 266, done: 100, ..Totals::default() };
        assert_eq!(course.accepted(), 1010);
        // Others submit items, too.
        course.totals.accepted = 2000;
        assert_eq!(course.accepted(), 2000);
    }

    #[test]
    fn where_reads_prove_nothing_two_looks_must_agree() {
        let mut course = Course::new(false, true);
        let (began, second) = (course.began, Duration::from_secs(1));
        let over = Totals { accepted: 3, done: 3, drained: true, ..Totals::default() };
        assert!(!course.is_finished(&look(second, began, over), true));
        assert!(course.is_finished(&look(2 * second, began, over), true));
    }
}
