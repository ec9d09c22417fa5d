//! The reconciliation with a scripted source, closures and paused time.
//!
//! Each transition has a test of its name.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::reconcile::{
    BuildError, Builder, Context, Event, Finished, Handler, ReconcileError, Reconciler, Release,
    Script, ScriptedSource, State, Step, Stopper,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// The action of a test handler when it is run.
#[derive(Clone, Copy, Debug)]
enum Act {
    Succeed,
    Fail,
    Take(Duration),
    Hang,
}

/// The handlers' side: their next acts, and a log of their runs.
#[derive(Clone)]
struct Stage {
    log: watch::Sender<Vec<String>>,
    acts: Arc<Mutex<VecDeque<Act>>>,
    contexts: Arc<Mutex<Vec<Context>>>,
    start: Instant,
}

impl Stage {
    fn new(acts: impl IntoIterator<Item = Act>) -> Stage {
        Stage {
            log: watch::Sender::new(Vec::new()),
            acts: Arc::new(Mutex::new(acts.into_iter().collect())),
            contexts: Arc::default(),
            start: Instant::now(),
        }
    }

    /// A handler that plays the next act; when there are no acts left, it succeeds.
    fn handler(&self) -> Handler {
        let stage = self.clone();
        Handler::closure(move |context| stage.clone().play(context))
    }

    async fn play(self, context: Context) -> Result<(), String> {
        let name = format!("{} {}", context.state.word(), context.token.unwrap_or_default());
        self.contexts.lock().expect("no panic").push(context);
        self.note(&name);
        let act = self.acts.lock().expect("no panic").pop_front().unwrap_or(Act::Succeed);
        let dropped = Dropped { stage: &self, name: &name, done: false };
        let result = match act {
            Act::Succeed => Ok(()),
            Act::Fail => Err("it failed".to_owned()),
            Act::Take(span) => {
                tokio::time::sleep(span).await;
                Ok(())
            }
            Act::Hang => std::future::pending().await,
        };
        dropped.finished();
        result
    }

    fn note(&self, what: &str) {
        self.log.send_modify(|log| log.push(what.to_owned()));
    }

    fn log(&self) -> Vec<String> {
        self.log.borrow().clone()
    }

    async fn until(&self, what: &str) {
        let mut log = self.log.subscribe();
        let seen = log.wait_for(|log| log.iter().any(|line| line == what));
        let seen = tokio::time::timeout(Duration::from_secs(3600), seen).await;
        seen.unwrap_or_else(|_| panic!("no {what:?} in {:?}", self.log())).expect("open");
    }

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}

struct Dropped<'a> {
    stage: &'a Stage,
    name: &'a str,
    done: bool,
}

impl Dropped<'_> {
    fn finished(mut self) {
        self.done = true;
    }
}

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.stage.note(&format!("{} was cut short", self.name));
        }
    }
}

struct Play {
    stage: Stage,
    script: Script,
    stopper: Stopper,
    states: watch::Receiver<State>,
    run: JoinHandle<Result<Finished, ReconcileError>>,
}

impl Play {
    fn new(acts: impl IntoIterator<Item = Act>) -> Play {
        Play::with(acts, |builder| builder)
    }

    fn with(
        acts: impl IntoIterator<Item = Act>,
        settings: impl FnOnce(Builder) -> Builder,
    ) -> Play {
        let stage = Stage::new(acts);
        let builder = Reconciler::builder()
            .begin(stage.handler())
            .end(stage.handler())
            .error(stage.handler())
            .on_stuck(stage.handler());
        let reconciler = settings(builder).build().expect("good settings");
        let (script, source) = ScriptedSource::new("jobs", "host-a");
        let (stopper, states) = (reconciler.stopper(), reconciler.states());
        let run = tokio::spawn(async move { reconciler.run(source).await });
        Play { stage, script, stopper, states, run }
    }

    async fn say(&self, event: Event) {
        self.script.say(event).await;
    }

    async fn until(&mut self, state: State) {
        let seen = self.states.wait_for(|seen| *seen == state);
        let seen = tokio::time::timeout(Duration::from_secs(3600), seen).await;
        assert!(seen.is_ok(), "never {state:?}: {:?}", self.stage.log());
    }

    async fn released(&mut self) -> Option<Release> {
        self.script.released().await
    }

    async fn stop(self) -> (Result<Finished, ReconcileError>, Vec<String>) {
        self.stopper.stop();
        (self.run.await.expect("no panic"), self.stage.log())
    }
}

#[tokio::test(start_paused = true)]
async fn leader_while_not_leading_runs_begin_and_leads() {
    let mut play = Play::new([]);
    play.say(Event::leader(7)).await;
    play.until(State::Leading { token: 7 }).await;
    assert_eq!(play.stage.log(), ["begin 7"]);
    let context = play.stage.contexts.lock().expect("no panic")[0].clone();
    assert_eq!((context.election.as_str(), context.id.as_str()), ("jobs", "host-a"));
    assert_eq!((context.state, context.token, context.deadline), (Step::Begin, Some(7), None));
}

#[tokio::test(start_paused = true)]
async fn not_leader_while_leading_runs_end_and_stands_again() {
    let mut play = Play::new([]);
    play.say(Event::leader(1)).await;
    play.until(State::Leading { token: 1 }).await;
    play.say(Event::lost(tenure::Loss::Deposed)).await;
    assert_eq!(play.released().await, Some(Release::StandAgain));
    play.until(State::NotLeading).await;
    assert_eq!(play.stage.log(), ["begin 1", "end 1"]);
    let end = play.stage.contexts.lock().expect("no panic")[1].clone();
    assert_eq!(end.reason.word(), "deposed");
    assert_eq!(end.deadline, Some(Duration::from_secs(2)), "the stop budget");
}

#[tokio::test(start_paused = true)]
async fn a_begin_that_fails_is_an_error_and_the_leadership_is_given_up_at_once() {
    let mut play = Play::new([Act::Fail]);
    play.say(Event::leader(1)).await;
    assert_eq!(play.released().await, Some(Release::GiveUp));
    assert_eq!(play.stage.elapsed(), Duration::ZERO, "others may lead meanwhile");
    play.until(State::Failing).await;
    assert_eq!(play.released().await, Some(Release::StandAgain));
    assert_eq!(play.stage.elapsed(), Duration::from_secs(30));
    assert_eq!(play.stage.log(), ["begin 1", "error 0"]);
}

#[tokio::test(start_paused = true)]
async fn an_error_while_leading_runs_end_then_the_error_handler_then_waits() {
    let mut play = Play::with([], |builder| builder.error_timeout(Duration::from_secs(7)));
    play.say(Event::leader(1)).await;
    play.until(State::Leading { token: 1 }).await;
    play.say(Event::error("the disk is full")).await;
    assert_eq!(play.released().await, Some(Release::GiveUp));
    play.stage.until("error 0").await;
    assert_eq!(play.stage.log(), ["begin 1", "end 1", "error 0"]);
    let told = play.stage.contexts.lock().expect("no panic")[2].reason.to_string();
    assert_eq!(told, "error: the disk is full");
    assert_eq!(play.released().await, Some(Release::StandAgain));
    assert_eq!(play.stage.elapsed(), Duration::from_secs(7));
    play.say(Event::leader(2)).await;
    play.until(State::Leading { token: 2 }).await;
}

#[tokio::test(start_paused = true)]
async fn an_error_while_not_leading_runs_only_the_error_handler() {
    let mut play = Play::new([]);
    play.say(Event::error("no store")).await;
    assert_eq!(play.released().await, Some(Release::GiveUp));
    assert_eq!(play.released().await, Some(Release::StandAgain));
    play.until(State::NotLeading).await;
    assert_eq!(play.stage.log(), ["error 0"]);
    assert_eq!(play.stage.elapsed(), Duration::from_secs(30));
}

#[tokio::test(start_paused = true)]
async fn an_end_that_fails_is_tried_again_after_five_seconds_then_it_is_an_error() {
    let mut play = Play::new([Act::Succeed, Act::Fail, Act::Fail, Act::Succeed]);
    play.say(Event::leader(1)).await;
    play.until(State::Leading { token: 1 }).await;
    play.say(Event::not_leader("")).await;
    assert_eq!(play.released().await, Some(Release::GiveUp));
    assert_eq!(play.stage.elapsed(), Duration::from_secs(10));
    play.stage.until("error 0").await;
    assert_eq!(play.stage.log(), ["begin 1", "end 1", "end 1", "end 1", "error 0"]);
}

#[tokio::test(start_paused = true)]
async fn an_end_that_fails_twelve_times_is_stuck_and_nothing_is_ever_given_up() {
    let acts = std::iter::once(Act::Succeed).chain(std::iter::repeat_n(Act::Fail, 12));
    let mut play = Play::new(acts);
    play.say(Event::leader(9)).await;
    play.until(State::Leading { token: 9 }).await;
    play.say(Event::not_leader("")).await;
    let error = (&mut play.run).await.expect("no panic").expect_err("stuck");
    let last = "it failed".to_owned();
    assert_eq!(error, ReconcileError::Stuck { token: 9, attempts: 12, last });
    assert!(error.to_string().contains("may still act as leader"), "{error}");
    assert_eq!(play.stage.elapsed(), Duration::from_secs(55), "eleven pauses of five seconds");
    assert_eq!(play.released().await, Some(Release::Abandon));
    assert_eq!(play.released().await, None);
    assert_eq!(*play.states.borrow(), State::Stuck { token: 9 });
    let log = play.stage.log();
    assert_eq!(log.iter().filter(|line| *line == "end 9").count(), 12);
    assert_eq!(log.last().map(String::as_str), Some("stuck 9"));
}

#[tokio::test(start_paused = true)]
async fn how_often_and_when_an_end_is_tried_again_can_be_set() {
    let acts = std::iter::once(Act::Succeed).chain(std::iter::repeat_n(Act::Fail, 3));
    let settings = |builder: Builder| builder.end_retry(Duration::from_millis(10), 3);
    let mut play = Play::with(acts, settings);
    play.say(Event::leader(1)).await;
    play.until(State::Leading { token: 1 }).await;
    let (result, _) = play.stop().await;
    assert!(matches!(result, Err(ReconcileError::Stuck { attempts: 3, .. })), "{result:?}");
}

#[tokio::test(start_paused = true)]
async fn a_last_resort_that_hangs_does_not_hang_the_loop() {
    let acts = [Act::Succeed, Act::Fail, Act::Hang];
    let mut play = Play::with(acts, |builder| builder.end_retry(Duration::ZERO, 1));
    play.say(Event::leader(1)).await;
    play.until(State::Leading { token: 1 }).await;
    let stage = play.stage.clone();
    let (result, log) = play.stop().await;
    assert!(matches!(result, Err(ReconcileError::Stuck { .. })));
    assert_eq!(stage.elapsed(), Duration::from_secs(30));
    assert_eq!(log.last().map(String::as_str), Some("stuck 1 was cut short"));
}

#[tokio::test(start_paused = true)]
async fn a_begin_that_still_runs_when_leadership_is_lost_is_stopped_and_ended() {
    let mut play = Play::new([Act::Hang]);
    play.say(Event::leader(1)).await;
    play.stage.until("begin 1").await;
    play.say(Event::not_leader("")).await;
    assert_eq!(play.released().await, Some(Release::StandAgain));
    assert_eq!(play.stage.log(), ["begin 1", "begin 1 was cut short", "end 1"]);
}

#[tokio::test(start_paused = true)]
async fn an_error_during_a_begin_stops_it_ends_it_and_gives_up() {
    let mut play = Play::new([Act::Hang]);
    play.say(Event::leader(1)).await;
    play.stage.until("begin 1").await;
    play.say(Event::error("")).await;
    assert_eq!(play.released().await, Some(Release::GiveUp));
    play.stage.until("error 0").await;
    assert_eq!(play.stage.log(), ["begin 1", "begin 1 was cut short", "end 1", "error 0"]);
}

#[tokio::test(start_paused = true)]
async fn leader_not_leader_leader_during_a_begin_ends_the_first_tenure_before_the_second() {
    let mut play = Play::new([Act::Hang]);
    play.say(Event::leader(1)).await;
    play.stage.until("begin 1").await;
    play.say(Event::not_leader("")).await;
    play.say(Event::leader(2)).await;
    play.until(State::Leading { token: 2 }).await;
    assert_eq!(play.stage.log(), ["begin 1", "begin 1 was cut short", "end 1", "begin 2"]);
}

#[tokio::test(start_paused = true)]
async fn events_during_a_long_end_are_kept_and_only_the_newest_word_counts() {
    let mut play = Play::new([Act::Succeed, Act::Take(Duration::from_secs(1))]);
    play.say(Event::leader(1)).await;
    play.until(State::Leading { token: 1 }).await;
    play.say(Event::not_leader("")).await;
    play.stage.until("end 1").await;
    for token in 2..20 {
        play.say(Event::leader(token)).await;
        play.say(Event::not_leader("")).await;
    }
    play.say(Event::leader(20)).await;
    play.until(State::Leading { token: 20 }).await;
    assert_eq!(play.stage.log(), ["begin 1", "end 1", "begin 20"]);
}

#[tokio::test(start_paused = true)]
async fn a_begin_that_overruns_its_deadline_is_stopped_ended_and_an_error() {
    let settings = |builder: Builder| builder.begin_timeout(Duration::from_secs(3));
    let mut play = Play::with([Act::Hang], settings);
    play.say(Event::leader(1)).await;
    assert_eq!(play.released().await, Some(Release::GiveUp));
    assert_eq!(play.stage.elapsed(), Duration::from_secs(3));
    play.stage.until("error 0").await;
    assert_eq!(play.stage.log(), ["begin 1", "begin 1 was cut short", "end 1", "error 0"]);
    let contexts = play.stage.contexts.lock().expect("no panic").clone();
    assert_eq!(contexts[0].deadline, Some(Duration::from_secs(3)));
    assert_eq!(contexts[2].reason.to_string(), "begin-failed: it did not finish in time");
}

#[tokio::test(start_paused = true)]
async fn an_end_that_hangs_is_cut_short_and_tried_again() {
    let mut play = Play::new([Act::Succeed, Act::Hang]);
    play.say(Event::leader(1)).await;
    play.until(State::Leading { token: 1 }).await;
    play.say(Event::not_leader("")).await;
    assert_eq!(play.released().await, Some(Release::GiveUp));
    assert_eq!(
        play.stage.elapsed(),
        Duration::from_secs(7),
        "the budget of 2 s and a pause of 5 s"
    );
}

#[tokio::test(start_paused = true)]
async fn a_stop_while_leading_runs_end_first_then_gives_up() {
    let mut play = Play::new([]);
    play.say(Event::leader(1)).await;
    play.until(State::Leading { token: 1 }).await;
    play.stopper.stop();
    assert_eq!(play.released().await, Some(Release::GiveUp));
    assert_eq!(play.stage.log(), ["begin 1", "end 1"]);
    assert_eq!(play.run.await.expect("no panic"), Ok(Finished::Stopped));
    assert_eq!(*play.states.borrow(), State::Stopped);
}

#[tokio::test(start_paused = true)]
async fn a_stop_during_a_begin_stops_it_and_runs_end() {
    let play = Play::new([Act::Hang]);
    play.say(Event::leader(1)).await;
    play.stage.until("begin 1").await;
    let (result, log) = play.stop().await;
    assert_eq!(result, Ok(Finished::Stopped));
    assert_eq!(log, ["begin 1", "begin 1 was cut short", "end 1"]);
}

#[tokio::test(start_paused = true)]
async fn a_stop_during_an_end_lets_it_finish_and_does_not_run_it_again() {
    let mut play = Play::new([Act::Succeed, Act::Take(Duration::from_secs(1))]);
    play.say(Event::leader(1)).await;
    play.until(State::Leading { token: 1 }).await;
    play.say(Event::not_leader("")).await;
    play.stage.until("end 1").await;
    let (result, log) = play.stop().await;
    assert_eq!(result, Ok(Finished::Stopped));
    assert_eq!(log, ["begin 1", "end 1"]);
}

#[tokio::test(start_paused = true)]
async fn a_stop_during_the_error_timeout_ends_it() {
    let mut play = Play::new([]);
    play.say(Event::error("")).await;
    play.until(State::Failing).await;
    let stage = play.stage.clone();
    let (result, log) = play.stop().await;
    assert_eq!((result, log), (Ok(Finished::Stopped), vec!["error 0".to_owned()]));
    assert_eq!(stage.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_comes_before_the_run_holds() {
    let reconciler = Reconciler::builder().build().expect("good settings");
    reconciler.stopper().stop();
    let (_script, source) = ScriptedSource::new("jobs", "host-a");
    assert_eq!(reconciler.run(source).await, Ok(Finished::Stopped));
}

#[tokio::test(start_paused = true)]
async fn a_source_that_ends_while_leading_runs_end_and_finishes() {
    let mut play = Play::new([]);
    play.say(Event::leader(1)).await;
    play.until(State::Leading { token: 1 }).await;
    drop(play.script);
    assert_eq!(play.run.await.expect("no panic"), Ok(Finished::SourceEnded));
    assert_eq!(play.stage.log(), ["begin 1", "end 1"]);
}

#[tokio::test(start_paused = true)]
async fn running_the_same_reconciler_twice_is_an_error() {
    let reconciler = Arc::new(Reconciler::builder().build().expect("good settings"));
    let (_script, source) = ScriptedSource::new("jobs", "host-a");
    let (_other_script, other) = ScriptedSource::new("jobs", "host-a");
    let (first, second) = tokio::join!(reconciler.run(source), async {
        let second = reconciler.run(other).await;
        reconciler.stopper().stop();
        second
    });
    assert_eq!(first, Ok(Finished::Stopped));
    assert_eq!(second, Err(ReconcileError::AlreadyRunning));
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let refused = Reconciler::builder().end_retry(Duration::ZERO, 0).build();
    assert_eq!(refused.err(), Some(BuildError::NoAttempts));
    #[cfg(all(feature = "process", unix))]
    {
        let nothing: [String; 0] = [];
        let refused = Reconciler::builder().end(Handler::command(nothing)).build();
        assert_eq!(refused.err(), Some(BuildError::EmptyCommand { handler: Step::End }));
    }
}
