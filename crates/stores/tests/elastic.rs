//! Elasticsearch and OpenSearch: the whole suite on each, and what happens when servers fail.
//!
//! Needs the servers that `scripts/servers` installs; without them every test says what it skipped.
#![cfg(feature = "elastic")]

#[path = "support/mod.rs"]
mod support;

#[path = "support/faults.rs"]
#[allow(dead_code, reason = "these servers take too long to start for a new one in each case")]
mod faults;

#[path = "elastic/kind.rs"]
mod kind;

mod elasticsearch {
    use super::*;
    support::suite!(kind::elasticsearch());
}

mod opensearch {
    use super::*;
    support::suite!(kind::opensearch());
}
