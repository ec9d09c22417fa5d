//! The kind of a world: which faults happen in it, and how often.

use crate::kernel::Rng;

crate::listed! {
    /// The parts of the swarm.
    pub enum Profile {
        /// The whole swarm.
        Any,
        /// Reads prove nothing.
        Weak,
        /// Several leaders at once.
        Races,
        /// Dead letters are brought back.
        Retries,
    }
}

/// How rough the store is. Each fault happens once in this many times, or never (0).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Manner {
    /// The request does not arrive.
    pub(super) refused: u64,
    /// The request arrives, but its answer does not.
    pub(super) unanswered: u64,
    /// The request arrives long after it was given up.
    pub(super) late: u64,
    /// Reads are weak: they prove nothing.
    pub(super) weak: bool,
    /// A weak read shows an earlier state.
    pub(super) stale: u64,
    /// A weak read shows a write that never lasts.
    pub(super) phantom: u64,
}

/// The kind of a world.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plot {
    pub(super) manner: Manner,
    /// Several leaders work at once, and all but one of them should not.
    pub(super) races: bool,
    /// Dead letters are brought back.
    pub(super) retries: bool,
    /// A leader is cut off once in this many acts.
    pub(super) cuts: u64,
    /// The node list says that there are billions of workers.
    pub(super) forged: bool,
    /// The store notifies of changes.
    pub(super) notifies: bool,
}

impl Plot {
    /// Draws the kind of a world.
    ///
    /// A late write of a dead letter may restore the letter after it was brought back, and only
    /// another retry of it would show that. So no world has both late writes and retries.
    pub(super) fn draw(rng: &mut Rng, profile: Profile) -> Plot {
        let one_in = |rng: &mut Rng, often| rng.below(often) == 0;
        let weak = one_in(rng, 2) || profile == Profile::Weak;
        let retries = match profile {
            Profile::Races => false,
            Profile::Retries => true,
            Profile::Any | Profile::Weak => one_in(rng, 2),
        };
        let rough = |rng: &mut Rng, often| {
            if rng.below(3) == 0 { 0 } else { often + rng.below(often) }
        };
        let manner = Manner {
            refused: rough(rng, 60),
            unanswered: rough(rng, 60),
            late: if retries { 0 } else { rough(rng, 80) },
            weak,
            stale: if weak { rough(rng, 40) } else { 0 },
            phantom: if weak { rough(rng, 60) } else { 0 },
        };
        let cuts = if one_in(rng, 4) { 0 } else { 5 + rng.below(60) };
        let races = !retries && (one_in(rng, 2) || profile == Profile::Races);
        let (forged, notifies) = (one_in(rng, 2), one_in(rng, 2));
        Plot { manner, races, retries, cuts, forged, notifies }
    }
}
