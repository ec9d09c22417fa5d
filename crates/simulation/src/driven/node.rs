//! One process of the simulation: a program that campaigns, works and resigns.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tenure::store::{Mark, Presence, StoreError};
use tenure::{Backend, Candidate, Election, Error, Leadership, Resignation, Timing};
use tokio::sync::watch;

use super::clock::SimulatedClock;
use super::network::{Network, Reached};
use super::referee::Referee;
use super::setting;
use crate::kernel::{Breach, Promise, Rng};

const ELECTION: &str = "simulated/election";

pub(super) struct Node {
    number: u64,
    clock: SimulatedClock,
    network: Arc<Network>,
    pauses: Arc<AtomicU64>,
    ending: watch::Sender<Option<bool>>,
}

/// The state of a node's program.
struct Program {
    number: u64,
    backend: Backend,
    clock: SimulatedClock,
    referee: Arc<Referee>,
    timing: Timing,
    rng: Rng,
    pauses: Arc<AtomicU64>,
    ending: watch::Receiver<Option<bool>>,
}

impl Node {
    pub(super) fn start(
        number: u64,
        clock: SimulatedClock,
        network: &Arc<Network>,
        referee: &Arc<Referee>,
        ttl: Duration,
        seed: u64,
    ) -> Node {
        let timing = Timing::new(ttl).unwrap_or_default();
        let store = Reached {
            node: number,
            network: network.clone(),
            clock: clock.clone(),
            timeout: clock.real(timing.request() * 2),
        };
        let presence = Obituaries { number, clock: clock.clone(), network: network.clone() };
        let backend = Backend::new(Arc::new(store))
            .with_clock(Arc::new(clock.clone()))
            .with_presence(Arc::new(presence))
            .with_randomness(setting::randomness(seed));
        let pauses = Arc::new(AtomicU64::new(0));
        let (ending, told) = watch::channel(None);
        let program = Program {
            number,
            backend,
            clock: clock.clone(),
            referee: referee.clone(),
            timing,
            rng: Rng::new(seed ^ 7),
            pauses: pauses.clone(),
            ending: told,
        };
        tokio::spawn(program.run());
        Node { number, clock, network: network.clone(), pauses, ending }
    }

    pub(super) fn pause(&self, span: Duration) {
        self.pauses.fetch_add(1, Ordering::Relaxed);
        let (network, number) = (self.network.clone(), self.number);
        setting::pause(self.clock.clone(), span, move || network.is_dead(number));
    }

    /// Kills the process: it never takes another step, and its death is known.
    pub(super) fn kill(&self) {
        self.clock.set_running(false);
        self.network.bury(self.number);
    }

    pub(super) fn resume(&self) {
        self.clock.set_running(!self.is_dead());
    }

    pub(super) fn is_dead(&self) -> bool {
        self.network.is_dead(self.number)
    }

    /// Tells the node to end the election, or to delete it.
    pub(super) fn end_election(&self, delete: bool) {
        self.ending.send_replace(Some(delete));
    }
}

impl Program {
    async fn run(mut self) {
        loop {
            if let Err(error) = self.campaign().await {
                self.referee.note(format!("node {}: {error}", self.number));
                let rest = self.part_of(self.timing.ttl());
                self.rest(rest).await;
            }
        }
    }

    async fn campaign(&mut self) -> Result<(), Error> {
        let builder = Election::builder(&self.backend, ELECTION).timing(self.timing);
        let election = match builder.clone().open().await {
            Err(Error::Ended { .. }) => builder.create().await?,
            opened => opened?,
        };
        if let Some(delete) = self.take_order() {
            self.referee.note(format!("node {} ends the election", self.number));
            return if delete { election.delete().await } else { election.end().await };
        }
        let name = format!("node-{}", self.number);
        let mut candidacy = election.stand(Candidate::new(&name)?)?;
        // Some candidates lose patience, at any point.
        let patience = self.timing.ttl() * u32::try_from(self.rng.between(1, 8)).unwrap_or(1);
        let elected = tokio::select! {
            biased;
            elected = candidacy.elected() => elected?,
            () = tokio::time::sleep(patience) => return Ok(()),
        };
        let mut leadership = elected;
        loop {
            match self.lead(&leadership).await {
                Verdict::Done => break,
                Verdict::Lost => leadership = leadership.regain().await?,
            }
        }
        match leadership.resign().await {
            Resignation::Released | Resignation::AlreadyLost | Resignation::Unknown { .. } => {
                Ok(())
            }
        }
    }

    /// Works until it is done or must stop.
    async fn lead(&mut self, leadership: &Leadership) -> Verdict {
        let mandate = leadership.mandate();
        self.referee.elected(self.number, &mandate);
        let paused = self.pauses.load(Ordering::Relaxed);
        let work = self.part_of(self.timing.ttl() * 4);
        let loss = tokio::select! {
            biased;
            loss = leadership.lost() => loss,
            () = tokio::time::sleep(work) => return Verdict::Done,
        };
        self.referee.lost(self.number, &mandate, &loss);
        // Work that is told to stop has its whole grace, unless the process itself was stopped.
        let slept = self.pauses.load(Ordering::Relaxed) != paused;
        let enough = self.timing.grace() - Duration::from_millis(3);
        if loss == tenure::Loss::Expired && !slept && mandate.remaining() < enough {
            let how = format!("work was told to stop {:?} before the end", mandate.remaining());
            self.referee.breach(Breach::new(Promise::StopFirst, how));
        }
        let winding = self.part_of(self.timing.grace());
        self.rest(winding).await;
        if self.rng.permille(700) { Verdict::Lost } else { Verdict::Done }
    }

    fn take_order(&mut self) -> Option<bool> {
        if !self.ending.has_changed().unwrap_or(false) {
            return None;
        }
        *self.ending.borrow_and_update()
    }

    async fn rest(&self, span: Duration) {
        tokio::time::sleep(span).await;
        self.clock.while_running().await;
    }

    fn part_of(&mut self, most: Duration) -> Duration {
        setting::part_of(&mut self.rng, most)
    }
}

enum Verdict {
    Done,
    Lost,
}

/// Proof of death: nodes are told of deaths, never of pauses.
#[derive(Debug)]
struct Obituaries {
    number: u64,
    clock: SimulatedClock,
    network: Arc<Network>,
}

#[async_trait]
impl Presence for Obituaries {
    fn mark(&self) -> Result<Mark, StoreError> {
        Ok(Mark(serde_json::Map::from_iter([("node".to_owned(), self.number.into())])))
    }

    async fn gone(&self, mark: &Mark) {
        let node = mark.0.get("node").and_then(serde_json::Value::as_u64);
        match node {
            Some(node) => self.network.died(node).await,
            None => std::future::pending().await,
        }
        self.clock.while_running().await;
    }
}
