//! One time to live, and all the times that follow from it.

use std::time::Duration;

/// How much faster one clock may run than another: 5/4.
///
/// The holder counts its window as `ttl / R` of its own clock; every other candidate waits `ttl` of
/// its own.
pub(crate) const RATE_NUMERATOR: u32 = 5;
pub(crate) const RATE_DENOMINATOR: u32 = 4;

/// The shortest that a request, or the stop budget, may be.
const LEAST_PART: Duration = Duration::from_millis(30);
/// The longest request time-out.
///
/// A request unanswered for this long will not be answered in practice.
const MOST_REQUEST: Duration = Duration::from_secs(2);
/// The longest lease, and the longest lock delay.
pub const MAX_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// The times of a lease, all derived from one `ttl`.
///
/// ```
/// use std::time::Duration;
/// use tenure::Timing;
/// let timing = Timing::new(Duration::from_secs(15))?;
/// assert_eq!(timing.window(), Duration::from_secs(12));
/// assert_eq!(timing.heartbeat(), Duration::from_millis(2500));
/// assert_eq!(timing.grace(), Duration::from_millis(2375));
/// # Ok::<(), tenure::TimingError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timing {
    ttl: Duration,
    heartbeat: Duration,
    request: Duration,
    grace: Duration,
    /// True if the caller chose this grace.
    chosen: bool,
    spread: Option<Duration>,
}

impl Default for Timing {
    /// A ttl of 15 seconds.
    fn default() -> Timing {
        Timing::new(Duration::from_secs(15)).expect("15 s leaves room for every part")
    }
}

impl Timing {
    /// Derives all times from a time to live.
    ///
    /// # Errors
    /// [`TimingError`] shows the sum when the parts do not fit.
    pub fn new(ttl: Duration) -> Result<Timing, TimingError> {
        Timing::derive(ttl, None, None)
    }

    /// Sets the stop budget (`--grace`).
    ///
    /// # Errors
    /// [`TimingError`] when the rest is too little for three requests.
    pub fn with_grace(self, grace: Duration) -> Result<Timing, TimingError> {
        let derived = Timing::derive(self.ttl, Some(self.heartbeat), Some(grace))?;
        Ok(Timing { spread: self.spread, ..derived })
    }

    /// Sets the heartbeat (a feed does).
    ///
    /// # Errors
    /// [`TimingError`] when the rest is too little for the other parts.
    pub fn with_heartbeat(self, heartbeat: Duration) -> Result<Timing, TimingError> {
        let derived = Timing::derive(self.ttl, Some(heartbeat), None)?;
        Ok(Timing { spread: self.spread, ..derived })
    }

    /// Sets the longest random wait of a candidate beyond the ttl.
    ///
    /// A feed uses it for its election time-outs.
    ///
    /// Longer waits are never unsafe.
    ///
    /// # Errors
    /// [`TimingError::TooLong`] when that is more than 24 hours.
    pub fn with_spread(self, spread: Duration) -> Result<Timing, TimingError> {
        if spread > MAX_TTL {
            return Err(TimingError::TooLong { ttl: spread });
        }
        Ok(Timing { spread: Some(spread), ..self })
    }

    fn derive(
        ttl: Duration,
        heartbeat: Option<Duration>,
        grace: Option<Duration>,
    ) -> Result<Timing, TimingError> {
        if ttl > MAX_TTL {
            return Err(TimingError::TooLong { ttl });
        }
        let window = window_of(ttl);
        let heartbeat = heartbeat.unwrap_or(ttl / 6);
        let Some(rest) = window.checked_sub(heartbeat).filter(|rest| !rest.is_zero()) else {
            return Err(TimingError::NoRoom { ttl, window, heartbeat });
        };
        let refused = |part: Duration, grace: Duration| TimingError::TooShort {
            ttl,
            window,
            heartbeat,
            grace,
            part,
        };
        let grace_or_part = grace.unwrap_or(rest / 4);
        let Some(for_requests) = rest.checked_sub(grace_or_part) else {
            return Err(refused(Duration::ZERO, grace_or_part));
        };
        let part = for_requests / 3;
        if part < LEAST_PART || grace_or_part < LEAST_PART {
            return Err(refused(part.min(grace_or_part), grace_or_part));
        }
        let request = part.min(MOST_REQUEST);
        let (grace, chosen) = (grace_or_part, grace.is_some());
        Ok(Timing { ttl, heartbeat, request, grace, chosen, spread: None })
    }

    /// T: how long every other candidate waits before it takes a lease without renewal.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// W = T/R: how long the holder may believe in a lease after it sent the request for it.
    #[must_use]
    pub fn window(&self) -> Duration {
        window_of(self.ttl)
    }

    /// H: the time between two renewals.
    #[must_use]
    pub fn heartbeat(&self) -> Duration {
        self.heartbeat
    }

    /// Q: the time after which an unanswered request is given up.
    ///
    /// A later read shows its outcome.
    #[must_use]
    pub fn request(&self) -> Duration {
        self.request
    }

    /// B, the stop budget: how long before the end of the window work is told to stop.
    #[must_use]
    pub fn grace(&self) -> Duration {
        self.grace
    }

    /// The chosen stop budget, if one was chosen ([`Timing::with_grace`]).
    ///
    /// A queue derives its own from the ttl that the server granted for the session.
    #[must_use]
    pub fn chosen_grace(&self) -> Option<Duration> {
        self.chosen.then_some(self.grace)
    }

    /// J: the longest time a candidate waits beyond a lease of length `ttl`.
    ///
    /// It spreads the candidates, so that not all claim at once.
    #[must_use]
    pub fn jitter(&self, ttl: Duration) -> Duration {
        self.spread.unwrap_or(ttl / 10)
    }

    /// P: how often a follower reads, with or without notifications of changes.
    #[must_use]
    pub fn poll(&self, notified: bool) -> Duration {
        if notified {
            (self.ttl * 2).min(Duration::from_secs(30))
        } else {
            (self.ttl / 6).min(Duration::from_secs(1))
        }
    }

    /// The longest stop budget in an election that is a queue, for a session of this ttl.
    ///
    /// ZooKeeper's heartbeats leave a leader 0.3 T of its window at any moment, less two round
    /// trips ([`crate::queue::window`]). A longer budget would tell work to stop all the time.
    #[must_use]
    pub fn longest_session_grace(ttl: Duration) -> Duration {
        ttl / 4
    }
}

/// Refuses a stop budget that would leave a session's leader no time to lead.
///
/// # Errors
/// [`TimingError::GraceTooLong`].
pub(crate) fn check_session_grace(grace: Duration, ttl: Duration) -> Result<(), TimingError> {
    let most = Timing::longest_session_grace(ttl);
    if grace > most {
        return Err(TimingError::GraceTooLong { grace, ttl, most });
    }
    Ok(())
}

/// W of a lease of length `ttl`: T/R, rounded down.
pub(crate) fn window_of(ttl: Duration) -> Duration {
    ttl * RATE_DENOMINATOR / RATE_NUMERATOR
}

/// Settings that cannot be kept, with the sum that shows why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TimingError {
    /// The heartbeat does not fit into the window.
    #[error(
        "a ttl of {ttl:?} leaves the leader a window of {window:?} (ttl x 4/5, for clocks that run \
         unevenly), and the first renewal is only sent after {heartbeat:?}; use a longer ttl or a \
         shorter heartbeat"
    )]
    NoRoom {
        /// The ttl asked for.
        ttl: Duration,
        /// The window it leaves the holder.
        window: Duration,
        /// The heartbeat asked for or derived.
        heartbeat: Duration,
    },
    /// A part of the window is shorter than a request can be.
    #[error(
        "a ttl of {ttl:?} leaves the leader a window of {window:?} (ttl x 4/5); less the heartbeat \
         {heartbeat:?} and the grace {grace:?}, three requests must fit, which leaves a part of \
         {part:?}, and a part must be at least 30ms; use a longer ttl or a shorter grace"
    )]
    TooShort {
        /// The ttl asked for.
        ttl: Duration,
        /// The window it leaves the holder.
        window: Duration,
        /// The heartbeat asked for or derived.
        heartbeat: Duration,
        /// The stop budget asked for or derived.
        grace: Duration,
        /// The shortest part.
        part: Duration,
    },
    /// The stop budget takes all the time that a session's proofs of life leave.
    #[error(
        "a grace of {grace:?} is too long for a session of {ttl:?}: between two proofs that it lives, less \
         than half of that is left, so that at most {most:?} can be kept free; use a shorter grace or a longer \
         ttl"
    )]
    GraceTooLong {
        /// The stop budget asked for.
        grace: Duration,
        /// The ttl that the server granted.
        ttl: Duration,
        /// The longest stop budget allowed.
        most: Duration,
    },
    /// A successor would wait for days.
    #[error("a lock delay of {delay:?} is too long; at most 24h are allowed")]
    DelayTooLong {
        /// The delay asked for.
        delay: Duration,
    },
    /// The lease would be held for days after its holder vanished.
    #[error("a ttl of {ttl:?} is too long; at most 24h are allowed")]
    TooLong {
        /// The ttl asked for.
        ttl: Duration,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(duration: Duration) -> u128 {
        duration.as_millis()
    }

    #[test]
    fn the_figures_of_the_protocol_page_come_out() {
        let figures = |ttl: u64| {
            let timing = Timing::new(Duration::from_millis(ttl)).expect("a usable ttl");
            (millis(timing.heartbeat()), millis(timing.request()), millis(timing.grace()))
        };
        assert_eq!(figures(15_000), (2500, 2000, 2375));
        assert_eq!(figures(5_000), (833, 791, 791));
        assert_eq!(figures(1_000), (166, 158, 158));
        let feed = Timing::new(Duration::from_secs(2))
            .and_then(|timing| timing.with_heartbeat(Duration::from_secs(1)))
            .expect("a feed's timing");
        assert_eq!((millis(feed.request()), millis(feed.grace())), (150, 150));
    }

    #[test]
    fn a_ttl_that_leaves_a_part_under_30_ms_is_refused_with_the_sum() {
        assert!(Timing::new(Duration::from_millis(190)).is_ok());
        let error = Timing::new(Duration::from_millis(180)).expect_err("too short");
        assert!(error.to_string().contains("window of 144ms"), "{error}");
        assert!(Timing::new(Duration::ZERO).is_err());
    }

    #[test]
    fn a_heartbeat_beyond_the_window_is_refused_with_the_sum() {
        let error =
            Timing::default().with_heartbeat(Duration::from_secs(12)).expect_err("too long");
        assert!(error.to_string().contains("window of 12s"), "{error}");
    }

    #[test]
    fn a_grace_takes_its_time_from_the_requests() {
        let timing = Timing::default().with_grace(Duration::from_secs(8)).expect("it fits");
        assert_eq!(millis(timing.request()), 500);
        assert!(Timing::default().with_grace(Duration::from_secs(10)).is_err());
        assert!(Timing::default().with_grace(Duration::from_millis(1)).is_err());
    }

    #[test]
    fn a_follower_that_is_notified_polls_rarely() {
        let timing = Timing::default();
        assert_eq!(timing.poll(false), Duration::from_secs(1));
        assert_eq!(timing.poll(true), Duration::from_secs(30));
    }
}
