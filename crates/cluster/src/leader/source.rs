//! Reads the windowed source: one request at a time, while rounds go on.

use std::time::Duration;

use tenure::Moment;

use super::Output;
use super::request::Common;
use crate::documents::{Cursor, MAX_POSITION_BYTES};
use crate::input::{InputError, Window};

/// The most items of one request, at first and later.
const FIRST_MOST: usize = 256;
const EVER_MOST: usize = 1024;
/// How long a round waits for the answer to a request that it has just made.
const GRACE: Duration = Duration::from_millis(5);

/// A source, and the last request to it.
#[derive(Debug)]
pub(super) struct Source {
    state: State,
    /// The most items to ask for: as many as fit into the cursor at once.
    most: usize,
    /// It is not asked before this time, because it failed or answered with nothing.
    rests: Option<Moment>,
}

#[derive(Debug)]
enum State {
    Silent,
    Asked { position: Option<String>, max: usize },
    Answered { position: Option<String>, max: usize, window: Window },
}

impl Source {
    pub(super) fn new() -> Source {
        Source { state: State::Silent, most: FIRST_MOST, rests: None }
    }

    /// Asks for the items after the cursor, if there is room. Returns how long the round waits for
    /// the answer, unless there is nothing to wait for.
    pub(super) fn ask(
        &mut self,
        common: &mut Common,
        cursor: &Cursor,
        room: usize,
    ) -> Option<Moment> {
        if !common.settings.lists || cursor.drained {
            return None;
        }
        match &self.state {
            State::Answered { position, .. } if *position == cursor.position => None,
            // The source answers when it has items, so the round only checks.
            State::Asked { position, .. } if *position == cursor.position => Some(common.now),
            State::Silent | State::Asked { .. } | State::Answered { .. } => {
                self.state = State::Silent;
                if room == 0 || self.rests.is_some_and(|until| until.boot > common.now.boot) {
                    return None;
                }
                self.rests = None;
                let (position, max) = (cursor.position.clone(), room.min(self.most));
                common.outputs.push(Output::Offer { position: position.clone(), max });
                self.state = State::Asked { position, max };
                Some(common.now + GRACE)
            }
        }
    }

    /// Takes in the answer of the source.
    pub(super) fn answered(&mut self, common: &mut Common, answer: Result<Window, InputError>) {
        let State::Asked { position, max } = &mut self.state else { return };
        let (position, max) = (position.take(), *max);
        self.state = match answer.and_then(|window| check(&position, max, window)) {
            Ok(window) => State::Answered { position, max, window },
            Err(error) => {
                common.warn_of("the source failed; it is asked again", "", &error);
                self.rests = Some(common.now + common.settings.timing.request());
                State::Silent
            }
        };
    }

    /// Returns true while its answer is waited for.
    pub(super) fn is_asked(&self) -> bool {
        matches!(self.state, State::Asked { .. })
    }

    /// The items after the cursor, if the source has answered with them.
    pub(super) fn window(&self, cursor: &Cursor) -> Option<&Window> {
        match &self.state {
            State::Answered { position, window, .. }
                if !cursor.drained && *position == cursor.position =>
            {
                Some(window)
            }
            State::Silent | State::Asked { .. } | State::Answered { .. } => None,
        }
    }

    /// Notes that the whole window is in the cursor now.
    pub(super) fn taken(&mut self) {
        if let State::Answered { max, window, .. } = &self.state
            && window.orders.len() == *max
            && *max == self.most
        {
            self.most = (self.most * 2).min(EVER_MOST);
        }
        self.state = State::Silent;
    }

    /// Notes that only `fit` items would have fit, and asks for these alone at once. If none would
    /// have fit, the window waits for room.
    pub(super) fn fits_only(&mut self, fit: usize) {
        if fit > 0 {
            self.most = fit;
            self.state = State::Silent;
        }
    }

    /// The time when it may be asked again after a failure.
    pub(super) fn due(&self) -> Option<Moment> {
        self.rests
    }
}

/// Refuses an answer that leads to the same request again, at once and for ever.
///
/// Also refuses an answer that does not fit into the cursor.
pub(super) fn check(
    asked: &Option<String>,
    max: usize,
    window: Window,
) -> Result<Window, InputError> {
    if window.orders.len() > max {
        return Err(InputError(format!("it was asked for {max} items and gave more")));
    }
    if window.position.as_ref().is_some_and(|position| position.len() > MAX_POSITION_BYTES) {
        return Err(InputError(format!("its position has more than {MAX_POSITION_BYTES} bytes")));
    }
    let is_still = window.position == *asked && !window.drained;
    if is_still && window.orders.is_empty() {
        return Err(InputError("it answered although it has nothing".into()));
    }
    if is_still {
        return Err(InputError("it gave items without a position to go on from".into()));
    }
    Ok(window)
}
