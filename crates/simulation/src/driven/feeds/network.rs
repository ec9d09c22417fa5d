//! The table, and the network that delays, loses and refuses the calls to it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure::feed::{Found, MemoryFeed};
use tokio::sync::{Notify, broadcast};

use super::super::setting::{self, part_of};
use crate::kernel::Rng;

/// The rates of faults in one seed, in chances out of 1,000.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Weather {
    delay: Duration,
    straggling: Duration,
    stragglers: u32,
    lost_requests: u32,
    lost_answers: u32,
    refusals: u32,
    /// A heartbeat is shown that is never committed.
    pub(super) forgeries: u32,
    /// Items are shown late.
    lags: u32,
}

impl Weather {
    pub(super) fn draw(rng: &mut Rng, ttl: Duration) -> Weather {
        let mut sometimes = |most| setting::chance(rng, most);
        Weather {
            stragglers: sometimes(120),
            lost_requests: sometimes(150),
            lost_answers: sometimes(150),
            refusals: sometimes(150),
            forgeries: sometimes(300),
            lags: sometimes(500),
            delay: ttl * u32::try_from(rng.between(1, 30)).unwrap_or(1) / 1000,
            straggling: ttl * 3,
        }
    }
}

/// The table, and the network between it and the nodes.
pub(super) struct Sky {
    pub(super) table: MemoryFeed,
    state: Mutex<SkyState>,
    pub(super) broken: Notify,
    /// Writes that every subscription shows, and that never commit.
    pub(super) uncommitted: broadcast::Sender<Found>,
}

pub(super) struct SkyState {
    pub(super) weather: Weather,
    pub(super) rng: Rng,
    pub(super) cut: BTreeSet<u64>,
    pub(super) silent: BTreeSet<u64>,
    pub(super) dead: BTreeSet<u64>,
}

/// The fate of one call.
pub(super) struct Fate {
    pub(super) out: Duration,
    pub(super) back: Duration,
    pub(super) arrives: bool,
    pub(super) refused: bool,
    pub(super) answered: bool,
}

impl Sky {
    pub(super) fn new(weather: Weather, seed: u64) -> Arc<Sky> {
        let state = SkyState {
            weather,
            rng: Rng::new(seed),
            cut: BTreeSet::new(),
            silent: BTreeSet::new(),
            dead: BTreeSet::new(),
        };
        Arc::new(Sky {
            table: MemoryFeed::new(),
            state: Mutex::new(state),
            broken: Notify::new(),
            uncommitted: broadcast::Sender::new(64),
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, SkyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn fate(&self, node: u64) -> Fate {
        let mut state = self.lock();
        let (weather, cut) = (state.weather, state.cut.contains(&node));
        let mut way = || {
            let most = if state.rng.permille(weather.stragglers) {
                weather.straggling
            } else {
                weather.delay
            };
            part_of(&mut state.rng, most)
        };
        let (out, back) = (way(), way());
        Fate {
            out,
            back,
            arrives: !cut && !state.rng.permille(weather.lost_requests),
            refused: state.rng.permille(weather.refusals),
            answered: !state.rng.permille(weather.lost_answers),
        }
    }

    /// The delay of an item, and whether a forgery follows; `None` if it is not shown.
    pub(super) fn showing(&self, node: u64) -> Option<(Duration, bool)> {
        let mut state = self.lock();
        if state.silent.contains(&node) || state.cut.contains(&node) {
            return None;
        }
        let weather = state.weather;
        let most =
            if state.rng.permille(weather.lags) { weather.straggling } else { weather.delay };
        let lag = part_of(&mut state.rng, most);
        Some((lag, state.rng.permille(weather.forgeries)))
    }
}
