//! Enumerations whose members can be listed and named.

use std::fmt::Debug;

/// An enumeration that can be listed.
pub trait Listed: Copy + Debug + Eq + Send + Sync + 'static {
    /// All its members.
    const ALL: &'static [Self];
}

/// Declares an enumeration that is [`Listed`](crate::kernel::Listed).
#[macro_export]
macro_rules! listed {
    ($(#[$of_all:meta])* pub enum $name:ident { $($(#[$of_one:meta])* $member:ident),* $(,)? }) => {
        $(#[$of_all])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$of_one])* $member),* }

        impl $crate::kernel::Listed for $name {
            const ALL: &'static [$name] = &[$($name::$member),*];
        }
    };
}

listed! {
    /// The profile of a simulator with only one kind of world.
    pub enum Whole {
        /// The whole swarm.
        Any,
    }
}
