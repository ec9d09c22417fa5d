//! A member that waits for idle workers polls at the interval of its own timing.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure::{Backend, Clock, Moment, SystemClock, Timer, Timing};
use tenure_cluster::{Cluster, Member};

/// The system clock, which also records every span that a timer was set to.
#[derive(Clone, Debug, Default)]
struct Recording {
    system: SystemClock,
    spans: Arc<Mutex<Vec<Duration>>>,
}

impl Clock for Recording {
    fn now(&self) -> Moment {
        self.system.now()
    }

    fn wall(&self) -> u64 {
        self.system.wall()
    }

    fn timer(&self) -> Box<dyn Timer> {
        Box::new(RecordingTimer { clock: self.clone(), timer: self.system.timer() })
    }
}

struct RecordingTimer {
    clock: Recording,
    timer: Box<dyn Timer>,
}

#[async_trait::async_trait]
impl Timer for RecordingTimer {
    async fn until(&mut self, moment: Moment) {
        let span = moment.boot.saturating_sub(self.clock.now().boot);
        self.clock.spans.lock().unwrap_or_else(PoisonError::into_inner).push(span);
        self.timer.until(moment).await;
    }
}

#[tokio::test]
async fn a_member_looks_for_idle_workers_as_often_as_its_own_ttl_says() {
    let clock = Recording::default();
    let backend = Backend::memory().with_clock(Arc::new(clock.clone()));
    let timing = Timing::new(Duration::from_secs(2)).expect("a good ttl");
    let cluster = Cluster::builder(&backend, "shop").member(Member::new(0)).timing(timing);
    let cluster = cluster.join().await.expect("it joins");
    let quiet = async {
        // The memory store answers at once: by then the member has looked once, and sleeps.
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        found = cluster.idle_workers() => panic!("no member has a worker: {found:?}"),
        () = quiet => {}
    }
    let spans = clock.spans.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let near = |span: Duration, margin: Duration| {
        spans.iter().any(|asked| *asked <= span && *asked + margin > span)
    };
    // A busy machine may take some time between choosing a moment and setting the timer for it.
    assert!(near(timing.poll(false), timing.poll(false) / 2), "{spans:?}");
    assert!(!near(Timing::default().poll(false), Duration::from_millis(20)), "{spans:?}");
    cluster.leave().await;
}
