//! Checks that no two candidates lead at once, and that tokens rise.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure::{Leadership, Mandate};

/// Looks at every known mandate many times a second, from a separate thread.
pub(crate) struct Referee {
    state: Arc<Mutex<State>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    mandates: Vec<(String, Mandate)>,
    highest: u64,
    overlaps: Vec<String>,
    looks: u64,
    done: bool,
}

impl Referee {
    pub(crate) fn start() -> Referee {
        let state: Arc<Mutex<State>> = Arc::default();
        let looked_at = state.clone();
        let thread = std::thread::spawn(move || {
            loop {
                let mut state = looked_at.lock().unwrap_or_else(PoisonError::into_inner);
                if state.done {
                    return;
                }
                state.look();
                drop(state);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        Referee { state, thread: Some(thread) }
    }

    /// Records a new leader.
    pub(crate) fn elected(&self, name: &str, leader: &Leadership) {
        let mandate = leader.mandate();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let token = mandate.token();
        assert!(token > state.highest, "{name}: the token {token} is not above {}", state.highest);
        state.highest = token;
        state.mandates.push((name.to_owned(), mandate));
    }

    /// Asserts that nothing was wrong.
    pub(crate) fn done(mut self) {
        let state = self.finish();
        let state = state.lock().unwrap_or_else(PoisonError::into_inner);
        println!("referee: {} tenures, {} looks", state.mandates.len(), state.looks);
        assert!(state.overlaps.is_empty(), "{:?}", state.overlaps);
        assert!(!state.mandates.is_empty(), "nobody led");
    }

    fn finish(&mut self) -> Arc<Mutex<State>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).done = true;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.state.clone()
    }
}

impl Drop for Referee {
    fn drop(&mut self) {
        self.finish();
    }
}

impl State {
    /// Looks twice. A candidate that leads at both looks leads in between, so two of them overlap.
    fn look(&mut self) {
        self.looks += 1;
        let leading: Vec<&(String, Mandate)> =
            self.mandates.iter().filter(|(_, mandate)| mandate.is_leader()).collect();
        let still: Vec<&str> = leading
            .iter()
            .filter(|(_, mandate)| mandate.is_leader())
            .map(|(name, _)| name.as_str())
            .collect();
        // The second look at the first candidate came after the first look at the last one.
        if still.len() > 1 {
            self.overlaps.push(still.join(" and "));
        }
    }
}
