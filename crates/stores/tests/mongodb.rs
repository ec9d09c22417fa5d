//! MongoDB: the whole suite on one server and on three, and what happens when servers fail.
//!
//! Needs the servers that `scripts/servers` installs; without them every test says what it skipped.
#![cfg(feature = "mongodb")]

#[path = "support/mod.rs"]
mod support;

#[path = "support/faults.rs"]
mod faults;

#[path = "mongodb/kind.rs"]
mod kind;

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

mod following {
    use super::*;
    faults::smoke!(kind::Kind);
}
