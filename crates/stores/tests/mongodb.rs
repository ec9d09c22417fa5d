//! MongoDB: the whole suite on one and three servers, and tests with failing servers.
//!
//! Needs the servers that `scripts/servers` installs; without them every test reports that it was
//! skipped.
#![cfg(feature = "mongodb")]

#[path = "support/mod.rs"]
mod support;

#[path = "support/faults.rs"]
mod faults;

#[path = "mongodb/kind.rs"]
mod kind;

#[path = "mongodb/cost.rs"]
mod cost;

#[path = "mongodb/opening.rs"]
mod opening;

#[path = "mongodb/primaries.rs"]
mod primaries;

#[path = "mongodb/secured.rs"]
mod secured;

mod single {
    use super::*;
    support::suite!(kind::single());
}

mod three {
    use super::*;
    support::suite!(kind::three());
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
    faults::failures!(kind::Kind);
}

mod following {
    use super::*;
    faults::smoke!(kind::Kind);
}

mod cluster {
    use super::*;
    support::cluster_suite!(kind::single());
}
