//! etcd: the whole suite on one server and on three, and the failures of servers.
//!
//! Needs the servers that `scripts/servers` installs. Without them every test prints that it was
//! skipped.
#![cfg(feature = "etcd")]

#[path = "support/mod.rs"]
mod support;

#[path = "support/faults.rs"]
mod faults;

#[path = "support/chaos.rs"]
mod chaos;

#[path = "etcd/kind.rs"]
mod kind;

#[path = "etcd/batches.rs"]
mod batches;

#[path = "etcd/secured.rs"]
mod secured;

#[path = "etcd/queue/mod.rs"]
mod queue;

mod single {
    use super::*;
    support::suite!(kind::single());
}

mod lines {
    use super::*;
    support::suite!(kind::lines());
}

mod three_lines {
    use super::*;
    support::suite!(kind::three_lines());
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

    mod lines {
        use super::*;

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn leaders_follow_each_other_in_line() {
            use crate::faults::Servers as _;
            let version = tenure_harness::Version::Debian;
            let servers = tenure_harness::require!(kind::Lines::start(1, version).await);
            queue::leaders_follow_each_other(&servers.addresses()).await;
        }
    }
}

mod cluster {
    use super::*;
    support::cluster_suite!(kind::single());
}
