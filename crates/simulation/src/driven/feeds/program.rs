//! A simulated program with a feed: it works while it leads, hands over, stops and starts again.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures_util::StreamExt as _;
use tenure::Backend;
use tenure::feed::{Event, Feed, Intervals, State};

use super::super::clock::SimulatedClock;
use super::super::referee::Referee;
use super::super::setting::{self, part_of};
use super::network::Sky;
use super::store::Reached;
use crate::kernel::{Breach, Promise, Rng};

/// A process that runs a feed.
pub(super) struct Program {
    pub(super) number: u64,
    pub(super) clock: SimulatedClock,
    pub(super) sky: Arc<Sky>,
    pub(super) referee: Arc<Referee>,
    pub(super) intervals: Intervals,
    pub(super) rng: Rng,
}

impl Program {
    pub(super) async fn run(mut self) {
        let Ok(timing) = self.intervals.timing() else {
            let breach = Breach::new(Promise::Recovery, "times that do not fit");
            return self.referee.breach(breach);
        };
        let timeout = self.clock.real(timing.request() * 2);
        let (number, clock, sky) = (self.number, self.clock.clone(), self.sky.clone());
        let reached = Reached { number, sky, clock, timeout };
        let random = setting::randomness(self.rng.next());
        let backend = Backend::memory()
            .with_feed(Arc::new(reached))
            .with_clock(Arc::new(self.clock.clone()))
            .with_randomness(random);
        let own: Arc<OnceLock<Weak<Feed>>> = Arc::default();
        let (referee, me) = (self.referee.clone(), own.clone());
        let builder = Feed::builder(&backend)
            .id(format!("node-{number}"))
            .intervals(self.intervals)
            .on_new_state(move |state| {
                let mandate = me.get().and_then(Weak::upgrade).and_then(|feed| feed.mandate());
                match (state, mandate) {
                    (State::Leader, Some(mandate)) => referee.elected(number, &mandate),
                    (State::Leader, None) | (State::Follower, _) => {}
                }
            });
        let Ok(feed) = builder.build().map(Arc::new) else {
            let breach = Breach::new(Promise::Recovery, "a feed that cannot be built");
            return self.referee.breach(breach);
        };
        let _ = own.set(Arc::downgrade(&feed));
        let mut events = feed.events();
        loop {
            if let Err(error) = feed.start().await {
                self.referee.note(format!("node {number}: {error}"));
                self.rest(timing.ttl() / 4).await;
                continue;
            }
            let busy = self.part_of(timing.ttl() * 12);
            let lived = tokio::time::timeout(busy, async {
                while let Some(event) = events.next().await {
                    self.take(&feed, event, timing.ttl()).await;
                }
            });
            let _over = lived.await;
            self.clock.while_running().await;
            self.referee.note(format!("node {number} stops"));
            feed.stop().await;
            let pause = self.part_of(timing.ttl());
            self.rest(pause).await;
        }
    }

    /// Acts as a program would: works while it leads, and hands over now and then.
    async fn take(&mut self, feed: &Feed, event: Event, ttl: Duration) {
        let Event::NewState(State::Leader) = event else { return };
        let Some(working) = feed.working() else { return };
        let (mandate, work) = (working.mandate().clone(), self.part_of(ttl * 3));
        tokio::select! {
            biased;
            loss = mandate.lost() => self.referee.lost(self.number, &mandate, &loss),
            () = tokio::time::sleep(work) => {}
        }
        let winding = self.part_of(ttl / 8);
        self.rest(winding).await;
        drop(working);
        if self.rng.permille(400) {
            let to = format!("node-{}", self.rng.below(4));
            self.referee.note(format!("node {} hands over to {to}", self.number));
            if let Err(error) = feed.elect(&to).await {
                self.referee.note(format!("node {}: {error}", self.number));
            }
        }
    }

    async fn rest(&self, span: Duration) {
        tokio::time::sleep(span).await;
        self.clock.while_running().await;
    }

    fn part_of(&mut self, most: Duration) -> Duration {
        part_of(&mut self.rng, most)
    }
}
