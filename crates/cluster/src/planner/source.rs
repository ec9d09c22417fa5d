//! Reads the windowed source: one request at a time, while rounds go on.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tenure::Moment;

use crate::client::ClusterClient;
use crate::documents::{Cursor, MAX_POSITION_BYTES};
use crate::input::{InputError, Window, Windowed};

/// The most items of one request, at first and later.
const FIRST_MOST: usize = 256;
const EVER_MOST: usize = 1024;
/// How long a round waits for the answer to a request that it has just made.
const GRACE: Duration = Duration::from_millis(5);

/// A source, and the last request to it.
pub(super) struct Source {
    what: Option<Arc<dyn Windowed>>,
    state: State,
    /// The most items to ask for: as many as fit into the cursor at once.
    most: usize,
    /// It is not asked before this time, because it failed or answered with nothing.
    rests: Option<Moment>,
}

enum State {
    Silent,
    Asked { position: Option<String>, max: usize, answer: Answer },
    Answered { position: Option<String>, max: usize, window: Window },
}

type Answer = BoxFuture<'static, Result<Window, InputError>>;

impl Source {
    pub(super) fn new(what: Option<Arc<dyn Windowed>>) -> Source {
        Source { what, state: State::Silent, most: FIRST_MOST, rests: None }
    }

    pub(super) fn windowed(&self) -> Option<&Arc<dyn Windowed>> {
        self.what.as_ref()
    }

    /// Asks for the items after the cursor, if there is room. Returns the answer, if there is one.
    pub(super) async fn offer(
        &mut self,
        client: &ClusterClient,
        pause: Duration,
        cursor: &Cursor,
        room: usize,
    ) -> Option<&Window> {
        let source = self.what.clone().filter(|_| !cursor.drained)?;
        let is_current = match &self.state {
            State::Silent => false,
            State::Asked { position, .. } | State::Answered { position, .. } => {
                *position == cursor.position
            }
        };
        if !is_current {
            self.state = State::Silent;
            let now = client.backend.clock().now();
            if room == 0 || self.rests.is_some_and(|until| until.boot > now.boot) {
                return None;
            }
            self.rests = None;
            let (position, max) = (cursor.position.clone(), room.min(self.most));
            let answer = ask(source, position.clone(), max);
            self.state = State::Asked { position, max, answer };
            tokio::select! {
                biased;
                () = self.answered(client, pause) => {}
                () = client.sleep(GRACE) => {}
            }
        }
        if let State::Asked { .. } = &self.state {
            // Polls once without waiting: the source answers when it has items.
            let _ = self.answered(client, pause).now_or_never();
        }
        match &self.state {
            State::Answered { window, .. } => Some(window),
            State::Silent | State::Asked { .. } => None,
        }
    }

    /// Resolves when the source has answered; never while no request is under way.
    pub(super) async fn answered(&mut self, client: &ClusterClient, pause: Duration) {
        let State::Asked { position, max, answer } = &mut self.state else {
            return std::future::pending().await;
        };
        let answer = answer.await;
        let (position, max) = (position.take(), *max);
        self.state = match answer.and_then(|window| check(&position, max, window)) {
            Ok(window) => State::Answered { position, max, window },
            Err(error) => {
                tracing::warn!(%error, "the source failed; it is asked again");
                self.rests = Some(client.backend.clock().now() + pause);
                State::Silent
            }
        };
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

fn ask(source: Arc<dyn Windowed>, position: Option<String>, max: usize) -> Answer {
    Box::pin(async move {
        let asked = AssertUnwindSafe(source.outstanding(position.as_deref(), max)).catch_unwind();
        asked.await.unwrap_or_else(|_| Err(InputError("it panicked".into())))
    })
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
