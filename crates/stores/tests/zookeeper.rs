//! ZooKeeper: the whole suite on one server and on three, and the failures of servers.
//!
//! Needs the servers that `scripts/servers` installs. Without them every test prints that it was
//! skipped.
#![cfg(feature = "zookeeper")]

#[path = "support/mod.rs"]
mod support;

#[path = "support/faults.rs"]
mod faults;

#[path = "support/chaos.rs"]
mod chaos;

#[path = "zookeeper/kind.rs"]
mod kind;

#[path = "zookeeper/secured.rs"]
mod secured;

#[path = "zookeeper/batches.rs"]
mod batches;

#[path = "zookeeper/before_3_6.rs"]
mod before_3_6;

#[path = "zookeeper/deposed.rs"]
mod deposed;

mod single {
    use super::*;
    support::suite!(kind::single());
}

mod three {
    use super::*;
    support::suite!(kind::three());
}

mod failing {
    use super::*;
    faults::failures!(kind::Kind);
}

mod under_chaos {
    use super::*;
    chaos::chaos!(kind::Lines);
}

/// A smoke test of the version in a long-lived Debian.
mod debian {
    use super::*;
    faults::smoke!(kind::Kind);
}

mod cluster {
    use super::*;
    support::cluster_suite!(kind::single());
}
