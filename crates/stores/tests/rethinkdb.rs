//! RethinkDB: the whole suite, and tests with a failing server or network.
//!
//! The tests use the server that `TENURE_RETHINKDB_URL` names, else a `rethinkdb` on the search
//! path, else the emulator that `scripts/servers` installs; the output says which. Without any of
//! them every test reports that it was skipped.
#![cfg(feature = "rethinkdb")]

#[path = "support/mod.rs"]
mod support;

#[path = "support/faults.rs"]
#[allow(
    dead_code,
    unused_macros,
    unused_imports,
    reason = "the emulator forgets when it is restarted"
)]
mod faults;

#[path = "rethinkdb/creating.rs"]
mod creating;

#[path = "rethinkdb/kind.rs"]
mod kind;

#[path = "rethinkdb/secured.rs"]
mod secured;

#[path = "rethinkdb/broken.rs"]
mod broken;

mod single {
    use super::*;
    support::suite!(kind::single());
}

mod feed {
    use super::*;
    tenure_conformance::feed_conformance!(match kind::followed() {
        Ok(followed) => followed,
        Err(skipped) => {
            tenure_harness::available::<()>(Err(skipped.clone().into()));
            return;
        }
    });
}

mod failing {
    use super::*;
    // The tests in which the server keeps its data. The emulator has its data in memory, so the
    // network fails instead.
    faults::failures! { kind::Kind:
        1 a_server_that_stands_still_for_a_moment_costs_nothing
        1 a_claim_whose_answer_is_lost_is_found_by_reading
        1 connections_that_break_cost_nothing
        1 a_connection_that_falls_silent_is_replaced
        1 a_write_that_was_given_up_does_not_happen_later
        1 a_server_that_is_down_is_told_when_opening
        1 a_batch_is_sent_at_once
        1 leaders_follow_each_other
    }
}
