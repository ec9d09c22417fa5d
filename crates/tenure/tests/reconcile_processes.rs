//! Handlers that are real processes: their environment, and how they are ended.
#![cfg(all(feature = "process", unix))]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tenure::reconcile::{
    Builder, Event, Finished, Handler, Identity, ReconcileError, Reconciler, Release, Script,
    ScriptedSource, State, Stopper,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;

struct Play {
    folder: tempfile::TempDir,
    script: Script,
    stopper: Stopper,
    states: watch::Receiver<State>,
    run: JoinHandle<Result<Finished, ReconcileError>>,
}

impl Play {
    /// Starts a reconciliation with these handlers.
    ///
    /// `$OUT` in their texts stands for the test's own folder; it is not a value of the election.
    fn new(handlers: impl FnOnce(Builder, &dyn Fn(&str) -> Handler) -> Builder) -> Play {
        Play::named("jobs", "host-a", handlers)
    }

    fn named(
        election: &str,
        id: &str,
        handlers: impl FnOnce(Builder, &dyn Fn(&str) -> Handler) -> Builder,
    ) -> Play {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().display().to_string();
        let shell = move |text: &str| Handler::shell(text.replace("$OUT", &out));
        let builder = Reconciler::builder()
            // Long enough for a trap to run on a busy machine.
            .kill_after(Duration::from_secs(20))
            .error_timeout(Duration::from_millis(50));
        let reconciler = handlers(builder, &shell).build().expect("good settings");
        let (script, source) = ScriptedSource::with_identity(Identity {
            election: election.to_owned(),
            id: id.to_owned(),
            ttl: Duration::from_secs(15),
            stop_budget: Duration::from_secs(5),
        });
        let (stopper, states) = (reconciler.stopper(), reconciler.states());
        let run = tokio::spawn(async move { reconciler.run(source).await });
        Play { folder, script, stopper, states, run }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    async fn until(&mut self, state: State) {
        let seen = self.states.wait_for(|seen| *seen == state);
        let seen = tokio::time::timeout(Duration::from_secs(60), seen).await;
        assert!(seen.is_ok(), "never {state:?}");
    }

    async fn stop(self) -> (Result<Finished, ReconcileError>, tempfile::TempDir) {
        self.stopper.stop();
        (self.run.await.expect("no panic"), self.folder)
    }
}

async fn written(path: &Path) -> String {
    for _ in 0..4000 {
        match std::fs::read_to_string(path) {
            Ok(text) if text.ends_with('\n') => return text.trim().to_owned(),
            Ok(_) | Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
    panic!("nobody wrote {}", path.display());
}

fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // A zombie with a parent that is not ours no longer runs.
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}

#[tokio::test]
async fn handlers_are_told_everything_in_their_environment() {
    let mut play = Play::new(|builder, shell| {
        builder
            .begin_timeout(Duration::from_secs(20))
            .begin(shell("env | grep ^TENURE_ | grep -v ^TENURE_SERVERS= | sort > $OUT/begin"))
            .end(shell("env | grep ^TENURE_ | sort > $OUT/end"))
    });
    play.script.say(Event::leader(42)).await;
    play.until(State::Leading { token: 42 }).await;
    play.script.say(Event::lost(tenure::Loss::Expired)).await;
    play.until(State::NotLeading).await;
    let (begin, end) = (play.read("begin"), play.read("end"));
    assert_eq!(
        begin.lines().collect::<Vec<_>>(),
        [
            "TENURE_DEADLINE_MS=20000",
            "TENURE_ELECTION=jobs",
            "TENURE_ID=host-a",
            "TENURE_REASON=elected",
            "TENURE_STATE=begin",
            "TENURE_TOKEN=42",
            "TENURE_TTL_MS=15000",
        ]
    );
    assert!(end.contains("TENURE_STATE=end\n"), "{end}");
    assert!(end.contains("TENURE_REASON=expired: the store did not answer"), "{end}");
    assert!(end.contains("TENURE_DEADLINE_MS=5000\n"), "{end}");
}

#[tokio::test]
async fn shell_metacharacters_in_names_ids_and_reasons_reach_no_shell() {
    let bait = tempfile::tempdir().expect("a folder");
    let touch = format!("$(touch {0}/a)`touch {0}/b`", bait.path().display());
    let quote = format!("'; touch {0}/c; \"; touch {0}/d; #", bait.path().display());
    let mut play = Play::named(&touch, &quote, |builder, shell| {
        builder
            .begin(shell("printf '%s\\n' \"$TENURE_ELECTION\" \"$TENURE_ID\" > $OUT/begin"))
            .end(Handler::command(["sh", "-c", "test \"$TENURE_STATE\" = end"]))
            .error(shell("printf '%s\\n' \"$TENURE_REASON\" > $OUT/error"))
    });
    play.script.say(Event::leader(1)).await;
    play.until(State::Leading { token: 1 }).await;
    play.script.say(Event::error(format!("{quote}{touch}"))).await;
    assert_eq!(play.script.released().await, Some(Release::GiveUp));
    let reason = written(&play.path("error")).await;
    assert_eq!(reason, format!("error: {quote}{touch}"));
    assert_eq!(play.read("begin"), format!("{touch}\n{quote}\n"));
    let baited: Vec<_> = std::fs::read_dir(bait.path()).expect("a folder").collect();
    assert!(baited.is_empty(), "{baited:?}");
}

#[tokio::test]
async fn a_nul_in_a_reason_stops_no_handler() {
    let mut play = Play::new(|builder, shell| {
        builder.error(shell("printf '%s\\n' \"$TENURE_REASON\" > $OUT/error"))
    });
    play.script.say(Event::error("a\0b")).await;
    assert_eq!(written(&play.path("error")).await, "error: a\u{fffd}b");
    play.until(State::NotLeading).await;
}

#[tokio::test]
async fn a_begin_that_fails_is_an_error_and_nothing_it_started_goes_on() {
    let mut play = Play::new(|builder, shell| {
        builder
            .kill_after(Duration::from_millis(300))
            .begin(shell("trap '' TERM; sleep 60 & echo $! > $OUT/sleep; exit 3"))
            .end(shell("touch $OUT/end"))
            .error(shell("echo \"$TENURE_REASON\" > $OUT/error"))
    });
    play.script.say(Event::leader(1)).await;
    assert_eq!(play.script.released().await, Some(Release::GiveUp));
    assert!(!runs(&written(&play.path("sleep")).await), "not while somebody else may lead");
    let reason = written(&play.path("error")).await;
    assert_eq!(reason, "begin-failed: it ended with exit status: 3");
    assert!(!play.path("end").exists());
}

#[tokio::test]
async fn a_program_that_does_not_exist_is_a_failure_like_any_other() {
    let mut play = Play::new(|builder, shell| {
        builder
            .begin(Handler::command(["/no/such/program", "-x"]))
            .error(shell("echo \"$TENURE_REASON\" > $OUT/error"))
    });
    play.script.say(Event::leader(1)).await;
    assert_eq!(play.script.released().await, Some(Release::GiveUp));
    let reason = written(&play.path("error")).await;
    assert!(reason.starts_with("begin-failed: starting \"/no/such/program\""), "{reason}");
}

#[tokio::test]
async fn what_a_begin_that_succeeded_left_running_goes_on_until_the_end() {
    let mut play = Play::new(|builder, shell| {
        builder.begin(shell("sleep 60 & echo $! > $OUT/sleep")).end(shell("kill $(cat $OUT/sleep)"))
    });
    play.script.say(Event::leader(1)).await;
    play.until(State::Leading { token: 1 }).await;
    let sleep = written(&play.path("sleep")).await;
    assert!(runs(&sleep));
    let (result, _folder) = play.stop().await;
    assert_eq!(result, Ok(Finished::Stopped));
    for _ in 0..4000 {
        if !runs(&sleep) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{sleep} was told to end, and runs");
}

#[tokio::test]
async fn an_end_that_fails_twelve_times_is_stuck_and_runs_the_last_resort() {
    let mut play = Play::new(|builder, shell| {
        builder
            .end_retry(Duration::from_millis(10), 12)
            .end(shell("echo x >> $OUT/end; exit 1"))
            .on_stuck(shell("echo \"$TENURE_STATE $TENURE_TOKEN $TENURE_REASON\" > $OUT/stuck"))
    });
    play.script.say(Event::leader(5)).await;
    play.until(State::Leading { token: 5 }).await;
    play.script.say(Event::not_leader("")).await;
    let error = (&mut play.run).await.expect("no panic").expect_err("stuck");
    assert!(matches!(error, ReconcileError::Stuck { token: 5, attempts: 12, .. }), "{error}");
    assert_eq!(play.read("end").lines().count(), 12);
    let stuck = written(&play.path("stuck")).await;
    assert_eq!(stuck, "stuck 5 end-failed: it ended with exit status: 1");
    assert_eq!(play.script.released().await, Some(Release::Abandon));
    assert_eq!(play.script.released().await, None);
}

#[tokio::test]
async fn a_handler_that_hangs_and_ignores_term_is_killed_with_its_grandchild() {
    let mut play = Play::new(|builder, shell| {
        builder
            .kill_after(Duration::from_millis(300))
            // Long enough for both processes to begin.
            .begin_timeout(Duration::from_secs(8))
            .begin(shell(
                "trap '' TERM; sh -c 'trap \"\" TERM; echo $$ > $OUT/grandchild; while :; do sleep 1; done' & \
                 echo $$ > $OUT/child; while :; do sleep 1; done",
            ))
            .end(shell("touch $OUT/end"))
    });
    play.script.say(Event::leader(1)).await;
    let child = written(&play.path("child")).await;
    let grandchild = written(&play.path("grandchild")).await;
    assert!(runs(&child) && runs(&grandchild));
    assert_eq!(play.script.released().await, Some(Release::GiveUp));
    assert!(!is_there(&child), "the child is reaped");
    assert!(!runs(&grandchild), "the grandchild");
    assert!(play.path("end").exists(), "it may have half-started something");
}

#[tokio::test]
async fn a_begin_that_is_stopped_gets_a_term_to_clean_up_with() {
    let mut play = Play::new(|builder, shell| {
        builder
            .begin(shell(
                "trap 'echo cleaned > $OUT/trap; exit 0' TERM; echo x > $OUT/up; sleep 60 & wait",
            ))
            .end(shell("cat $OUT/trap > $OUT/end"))
    });
    play.script.say(Event::leader(1)).await;
    written(&play.path("up")).await;
    let asked = Instant::now();
    play.script.say(Event::not_leader("")).await;
    assert_eq!(play.script.released().await, Some(Release::StandAgain));
    assert!(asked.elapsed() < Duration::from_secs(50), "the sleep was waited for");
    assert_eq!(play.read("end"), "cleaned\n");
}

#[tokio::test]
async fn a_stop_during_begin_and_during_end_leaves_no_process_and_no_zombie() {
    let mut play = Play::new(|builder, shell| {
        builder
            .begin(shell("echo $$ > $OUT/begin; sleep 60"))
            .end(shell("echo $$ > $OUT/end; sleep 0.2; echo done > $OUT/done"))
    });
    play.script.say(Event::leader(1)).await;
    let begin = written(&play.path("begin")).await;
    play.stopper.stop();
    let end = written(&play.path("end")).await;
    assert!(!is_there(&begin), "an end starts when the begin is gone and reaped");
    play.stopper.stop();
    assert_eq!((&mut play.run).await.expect("no panic"), Ok(Finished::Stopped));
    assert_eq!(play.read("done"), "done\n", "a stop does not cut an end short");
    assert!(!is_there(&end));
}

#[tokio::test]
async fn a_run_that_is_dropped_kills_the_handler_and_its_group() {
    let play = Play::new(|builder, shell| {
        builder.begin(shell("sleep 61 & echo $! > $OUT/grandchild; echo $$ > $OUT/begin; wait"))
    });
    play.script.say(Event::leader(1)).await;
    let begin = written(&play.path("begin")).await;
    let grandchild = written(&play.path("grandchild")).await;
    play.run.abort();
    let _ = play.run.await;
    for _ in 0..4000 {
        if !runs(&begin) && !runs(&grandchild) && !is_there(&begin) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{begin} or {grandchild} is still there");
}

/// Returns true if the process exists, even as a zombie.
fn is_there(pid: &str) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}
