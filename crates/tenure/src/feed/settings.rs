//! The settings of a feed.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;

use super::FeedError;
use super::event::{Callback, Event, State, Teller};
use super::work::Work;
use super::{Feed, Shared};
use crate::Timing;
use crate::backend::Backend;
use crate::candidate::Candidate;

/// The shortest heartbeat. With a shorter one, a database would do little else.
const LEAST_HEARTBEAT: Duration = Duration::from_millis(100);
/// The default heartbeat.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// The times of a feed; unset times follow from the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Intervals {
    /// How often the leader writes; default 1 s.
    pub heartbeat: Option<Duration>,
    /// The shortest time without a heartbeat after which a follower elects itself.
    ///
    /// The default is twice the heartbeat.
    pub election_timeout_min: Option<Duration>,
    /// The longest time without a heartbeat after which a follower elects itself.
    ///
    /// The default is twice the shortest.
    pub election_timeout_max: Option<Duration>,
}

impl Intervals {
    /// The times of the lease behind the feed, if there is room for all its parts.
    ///
    /// # Errors
    /// [`FeedError::Intervals`] and [`FeedError::Election`] name the rule that is broken.
    pub fn timing(&self) -> Result<Timing, FeedError> {
        let heartbeat = self.heartbeat.unwrap_or(HEARTBEAT);
        if heartbeat < LEAST_HEARTBEAT {
            return Err(FeedTimingError::HeartbeatTooShort { heartbeat }.into());
        }
        let min = self.election_timeout_min.unwrap_or(heartbeat.saturating_mul(2));
        if min < heartbeat.saturating_mul(2) {
            return Err(FeedTimingError::MinTooShort { min, heartbeat }.into());
        }
        let max = self.election_timeout_max.unwrap_or(min.saturating_mul(2));
        if max < min.saturating_mul(2) {
            return Err(FeedTimingError::MaxTooShort { max, min }.into());
        }
        let timing = Timing::new(min)?.with_heartbeat(heartbeat)?;
        Ok(timing.with_spread(max - min)?)
    }
}

/// A feed in the making. Clones are independent of each other, and of the feeds they make.
#[derive(Clone)]
#[must_use = "nothing happens until the feed is built and started"]
pub struct Builder {
    backend: Backend,
    id: Option<String>,
    table: Option<String>,
    intervals: Intervals,
    create: bool,
    from_start: bool,
    callbacks: Vec<Callback>,
}

impl Builder {
    pub(super) fn new(backend: &Backend) -> Builder {
        Builder {
            backend: backend.clone(),
            id: None,
            table: None,
            intervals: Intervals::default(),
            create: true,
            from_start: false,
            callbacks: Vec::new(),
        }
    }

    /// Sets the id of this feed: the `value` of the leader's document while it leads.
    ///
    /// The default is random; no two feeds of a table should share one.
    pub fn id(mut self, id: impl Into<String>) -> Builder {
        self.id = Some(id.into());
        self
    }

    /// Sets the table; the default is the backend's own.
    pub fn table(mut self, table: impl Into<String>) -> Builder {
        self.table = Some(table.into());
        self
    }

    /// Sets how often the leader writes; default 1 s.
    pub fn heartbeat_interval(mut self, interval: Duration) -> Builder {
        self.intervals.heartbeat = Some(interval);
        self
    }

    /// Sets the shortest time without a heartbeat after which a follower elects itself.
    ///
    /// The default is twice the heartbeat interval. It is the ttl that this feed writes when it
    /// leads.
    pub fn election_timeout_min(mut self, min: Duration) -> Builder {
        self.intervals.election_timeout_min = Some(min);
        self
    }

    /// Sets the longest time without a heartbeat after which a follower elects itself.
    ///
    /// The default is twice the shortest. Each follower draws anew at each heartbeat.
    pub fn election_timeout_max(mut self, max: Duration) -> Builder {
        self.intervals.election_timeout_max = Some(max);
        self
    }

    /// Sets all three times at once.
    pub fn intervals(mut self, intervals: Intervals) -> Builder {
        self.intervals = intervals;
        self
    }

    /// Sets whether to create a missing database or table; default `true`.
    pub fn create_if_missing(mut self, create: bool) -> Builder {
        self.create = create;
        self
    }

    /// Sets whether to show the present content of the table as changes first; default `false`.
    pub fn from_start(mut self, from_start: bool) -> Builder {
        self.from_start = from_start;
        self
    }

    /// Calls this with every event, in order. It must not block: the feed waits for it.
    pub fn on_event(mut self, callback: impl Fn(&Event) + Send + Sync + 'static) -> Builder {
        self.callbacks.push(Arc::new(callback));
        self
    }

    /// Calls this with every change of the table.
    pub fn on_change(
        self,
        callback: impl Fn(&serde_json::Value) + Send + Sync + 'static,
    ) -> Builder {
        self.on_event(move |event| {
            if let Event::Change(change) = event {
                callback(change);
            }
        })
    }

    /// Calls this whenever this feed becomes a follower or the leader.
    pub fn on_new_state(self, callback: impl Fn(State) + Send + Sync + 'static) -> Builder {
        self.on_event(move |event| {
            if let Event::NewState(state) = event {
                callback(*state);
            }
        })
    }

    /// Calls this with every new leader's id and token.
    pub fn on_new_leader(self, callback: impl Fn(&str, u64) + Send + Sync + 'static) -> Builder {
        self.on_event(move |event| {
            if let Event::NewLeader { leader, token } = event {
                callback(leader, *token);
            }
        })
    }

    /// Checks the settings, and makes the feed. It does nothing until it is started.
    ///
    /// # Errors
    /// [`FeedError::Intervals`] and [`FeedError::Election`] name the rule that the times break,
    /// [`FeedError::Election`] and [`FeedError::Table`] say why the id or the table's name is
    /// refused, [`FeedError::NoFeed`] when the backend has none.
    pub fn build(self) -> Result<Feed, FeedError> {
        let timing = self.intervals.timing()?;
        let default = self.backend.feed().ok_or(FeedError::NoFeed)?.table().to_owned();
        let table = self.table.unwrap_or(default);
        crate::name::check_segment(&table).map_err(FeedError::Table)?;
        let id = match self.id {
            Some(id) => id,
            None => self.backend.parts().fresh_id().as_str().to_owned(),
        };
        let candidate = Candidate::new(&id)?;
        let shared = Shared {
            id,
            candidate,
            table,
            timing,
            create: self.create,
            from_start: self.from_start,
            teller: Arc::new(Teller::new(self.callbacks)),
            backend: Mutex::new(self.backend),
            tenure: Mutex::default(),
            work: Arc::new(Work::default()),
            failure: watch::Sender::default(),
        };
        Ok(Feed { shared: Arc::new(shared), running: tokio::sync::Mutex::default() })
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("backend", &self.backend)
            .field("id", &self.id)
            .field("table", &self.table)
            .field("intervals", &self.intervals)
            .field("create", &self.create)
            .field("from_start", &self.from_start)
            .finish_non_exhaustive()
    }
}

/// Times of a feed that cannot be kept, with the broken rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FeedTimingError {
    /// The database would do little but take heartbeats.
    #[error("a heartbeat interval of {heartbeat:?} is too short; it must be at least 100ms")]
    HeartbeatTooShort {
        /// The interval asked for.
        heartbeat: Duration,
    },
    /// One late heartbeat would depose a leader.
    #[error(
        "an election time-out of at least {min:?} is too short for a heartbeat every {heartbeat:?}; \
         its minimum must be at least twice the heartbeat interval"
    )]
    MinTooShort {
        /// The minimum asked for.
        min: Duration,
        /// The heartbeat interval.
        heartbeat: Duration,
    },
    /// All followers would elect themselves at the same moment.
    #[error(
        "an election time-out of at most {max:?} is too short for one of at least {min:?}; its \
         maximum must be at least twice its minimum"
    )]
    MaxTooShort {
        /// The maximum asked for.
        max: Duration,
        /// The minimum.
        min: Duration,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn refusal(intervals: Intervals) -> String {
        intervals.timing().expect_err("refused").to_string()
    }

    #[test]
    fn a_heartbeat_of_1_s_makes_time_outs_from_2_s_to_4_s() {
        let timing = Intervals::default().timing().expect("the defaults fit");
        let millis = |span: Duration| span.as_millis();
        assert_eq!(millis(timing.heartbeat()), 1000);
        assert_eq!(millis(timing.ttl()), 2000);
        assert_eq!(millis(timing.ttl() + timing.jitter(timing.ttl())), 4000);
        assert_eq!((millis(timing.request()), millis(timing.grace())), (150, 150));
    }

    #[test]
    fn the_time_outs_follow_the_heartbeat_unless_they_are_set() {
        let slow = Intervals { heartbeat: Some(SECOND * 3), ..Intervals::default() };
        assert_eq!(slow.timing().expect("they fit").ttl(), SECOND * 6);
        let long = Intervals { election_timeout_min: Some(SECOND * 5), ..Intervals::default() };
        let timing = long.timing().expect("they fit");
        assert_eq!((timing.ttl(), timing.jitter(timing.ttl())), (SECOND * 5, SECOND * 5));
    }

    #[test]
    fn times_that_are_too_small_are_refused_with_the_rule() {
        let beating = |heartbeat| Intervals { heartbeat: Some(heartbeat), ..Intervals::default() };
        let says = refusal(beating(SECOND / 11));
        assert!(says.contains("at least 100ms"), "{says}");
        let min = Intervals { election_timeout_min: Some(SECOND), ..Intervals::default() };
        let says = refusal(min);
        assert!(says.contains("at least twice the heartbeat interval"), "{says}");
        let max = Intervals { election_timeout_max: Some(SECOND * 3), ..Intervals::default() };
        let says = refusal(max);
        assert!(says.contains("at least twice its minimum"), "{says}");
        // Twice the heartbeat, but still no room for the requests: the lease's own rule shows its
        // sum.
        let says = refusal(beating(SECOND / 10));
        assert!(says.contains("a part must be at least 30ms"), "{says}");
    }
}
