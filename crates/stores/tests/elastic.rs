//! Elasticsearch and OpenSearch: the whole suite, and tests with failing servers.
//!
//! Needs the servers that `scripts/servers` installs; without them every test reports that it was
//! skipped.
#![cfg(feature = "elastic")]

#[path = "support/mod.rs"]
mod support;

#[path = "support/faults.rs"]
#[allow(unused, reason = "these servers start too slowly for a new one in each case")]
mod faults;

#[path = "support/chaos.rs"]
#[allow(unused, reason = "the same")]
mod chaos;

#[path = "elastic/kind.rs"]
mod kind;

// Tests begin in the order of their names, and these take the longest.
#[path = "elastic/away.rs"]
mod away;

#[path = "elastic/index.rs"]
mod index;

#[path = "elastic/links.rs"]
mod links;

#[path = "elastic/secured.rs"]
mod secured;

#[path = "elastic/stub.rs"]
mod stub;

mod elasticsearch {
    use super::*;
    support::suite!(kind::elasticsearch());
}

mod opensearch {
    use super::*;
    support::suite!(kind::opensearch());
}

mod elasticsearch_cluster {
    use super::*;
    support::cluster_suite!(kind::elasticsearch());
}

mod opensearch_cluster {
    use super::*;
    support::cluster_suite!(kind::opensearch());
}
