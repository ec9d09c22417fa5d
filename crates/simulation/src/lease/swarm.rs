//! The kinds and rates of the faults of a seed.
//!
//! A swarm: the seed switches each kind on or off, and draws its rate. Worlds in which everything
//! fails at once would hide bugs that show only when one part fails and the rest works.

use std::time::Duration;

use crate::kernel::{REAL_RATE, Rates, Rng};
use tenure::Timing;
use tenure::lease::mutant::Mutant;
use tenure::store::Reads;

crate::listed! {
    /// The part of the swarm that worlds are drawn from.
    ///
    /// Every profile is a part of [`Profile::Any`], so the sound machine is tried on all of them. If
    /// only one kind of world can show a mutant, the mutant is hunted there.
    pub enum Profile {
        /// The whole swarm.
        Any,
        /// Clocks at the ends of the tolerance, late messages, and a cut-off leader.
        Tight,
        /// Leaders that end their election, and outsiders that create it again at once.
        Recreated,
        /// Operators that delete the record, and tenures with different terms.
        Deleted,
    }
}

impl Profile {
    /// The profile where a broken rule shows soonest.
    #[must_use]
    #[allow(clippy::wildcard_enum_match_arm, reason = "most show anywhere, and so may the next")]
    pub fn hunting(mutant: Mutant) -> Profile {
        match mutant {
            Mutant::OpReused | Mutant::ObservedAtSend | Mutant::WindowFromAnswer => Profile::Tight,
            Mutant::LeaseKeptWhileEnding | Mutant::RecreateCutsDelay => Profile::Recreated,
            Mutant::FloorNotRaised
            | Mutant::FloorKeepsFirstTerms
            | Mutant::FloorBelievedOnWeakRead
            | Mutant::DeletedTokenForgotten
            | Mutant::DeletedTenureNotWaitedFor
            | Mutant::CreationNamed => Profile::Deleted,
            _ => Profile::Any,
        }
    }
}

/// The properties of a world.
#[derive(Clone, Debug)]
pub(super) struct Swarm {
    pub(super) reads: Reads,
    /// By how many tokens the floor is raised, if there is one.
    pub(super) block: Option<u64>,
    pub(super) nodes: usize,
    pub(super) timings: Vec<Timing>,
    pub(super) delays: Vec<Option<Duration>>,
    pub(super) rates: Vec<u64>,
    pub(super) notified: bool,
    pub(super) presence: bool,
    /// How long the active phase lasts, in real time.
    pub(super) active: u64,
    /// The average time from one fault to the next.
    pub(super) pace: u64,
    /// The kinds of faults, each as often as it is listed.
    pub(super) injections: Vec<FaultInjection>,
    pub(super) network: Network,
    pub(super) early_ticks: u32,
    pub(super) slow_stop: u32,
    /// How often a leader that was granted by a read is cut off at once. Then its lease is at its
    /// shortest.
    pub(super) cut_after_read: u32,
    /// How often an outsider creates an election again as soon as it has ended.
    pub(super) recreate: u32,
    /// The longest wait of a process between two candidacies.
    pub(super) away: u64,
}

/// Chances in a thousand, and spans in real nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Network {
    pub(super) least: u64,
    pub(super) most: u64,
    /// Requests that take up to their time-out.
    pub(super) slow_request: u32,
    /// Answers that take up to a request's time-out.
    pub(super) slow_answer: u32,
    /// Requests that arrive just after their sender has given them up.
    pub(super) late: u32,
    /// The only node that slow and late messages affect; `None` for all nodes.
    pub(super) only: Option<usize>,
    /// Messages that take up to three leases.
    pub(super) very_slow: u32,
    pub(super) lose_request: u32,
    pub(super) lose_answer: u32,
    pub(super) unavailable: u32,
    pub(super) indeterminate: u32,
    pub(super) denied: u32,
    pub(super) false_conflict: u32,
    pub(super) stale_read: u32,
    pub(super) to_branch: u32,
    pub(super) hint: u32,
}

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FaultInjection {
    Pause,
    Suspend,
    Crash,
    Partition,
    Outage,
    Resign,
    EndByHolder,
    Publish,
    ForceLoss,
    Abandon,
    OutsiderEnd,
    OutsiderCreate,
    OutsiderDelete,
    WallJump,
    Batch,
    Branch,
    Vandal,
    /// An operator deletes the record.
    DeleteRecord,
    /// Cuts off the leader.
    CutLeader,
    /// Cuts off the leader, while outsiders end the election and create it again.
    RecreateBehindLeader,
}

impl Swarm {
    pub(super) fn draw(rng: &mut Rng, rates: Rates, profile: Profile) -> Swarm {
        let vandal = rng.permille(40);
        let reads = if vandal || rng.permille(500) { Reads::Linearizable } else { Reads::Weak };
        let nodes = usize::try_from(rng.between(2, 5).min(rng.between(2, 5))).unwrap_or(2);
        let base = *rng.pick(&[600, 1000, 2000, 5000, 15_000]);
        let uneven = rng.permille(300);
        let timings = (0..nodes).map(|_| timing(rng, base, uneven)).collect();
        let delay = if rng.permille(350) { rng.between(1, base) } else { 0 };
        let delays = (0..nodes)
            .map(|_| match rng.below(3) {
                _ if delay == 0 => None,
                0 => Some(Duration::from_millis(rng.between(0, delay))),
                1 => None,
                _ => Some(Duration::from_millis(delay)),
            })
            .collect();
        let t = base * 1_000_000;
        let block = rng.permille(800).then(|| *rng.pick(&[1, 2, 3, 1024]));
        let swarm = Swarm {
            reads,
            block,
            nodes,
            timings,
            delays,
            rates: draw_rates(rng, nodes, rates),
            notified: rng.permille(500),
            presence: rng.permille(300),
            active: rng.between(3 * t, 15 * t),
            pace: rng.between(t / 5, 2 * t),
            injections: draw_injections(rng, reads, vandal, block.is_some()),
            network: Network::draw(rng, t, reads),
            early_ticks: if rng.permille(200) { 200 } else { 0 },
            slow_stop: *rng.pick(&[0, 100, 400]),
            cut_after_read: if rng.permille(250) { 300 } else { 0 },
            recreate: if rng.permille(300) { 600 } else { 0 },
            away: *rng.pick(&[t / 20, t / 2, 2 * t]),
        };
        match (profile, rng.below(20)) {
            (Profile::Tight, _) | (Profile::Any, 0 | 1) => swarm.tight(rng, rates),
            (Profile::Recreated, _) | (Profile::Any, 2) => swarm.recreated(),
            (Profile::Deleted, _) | (Profile::Any, 3 | 4) => swarm.deleted(rng, base),
            (Profile::Any, _) => swarm,
        }
    }

    /// A world in which an election is created again before its end is known.
    fn recreated(mut self) -> Swarm {
        // A loss while the work winds down makes the following end an unclean one.
        self.injections = vec![
            FaultInjection::EndByHolder,
            FaultInjection::EndByHolder,
            FaultInjection::ForceLoss,
            FaultInjection::ForceLoss,
            FaultInjection::OutsiderEnd,
        ];
        self.slow_stop = 500;
        self.recreate = 1000;
        self.away /= 10;
        self.network.lose_answer = self.network.lose_answer.max(200);
        self.network.slow_answer = self.network.slow_answer.max(200);
        self
    }

    /// A world where an operator sometimes deletes the record, but not the floor.
    fn deleted(mut self, rng: &mut Rng, base: u64) -> Swarm {
        self.block = Some(*rng.pick(&[1, 2, 3]));
        self.timings = (0..self.nodes).map(|_| timing(rng, base, true)).collect();
        if rng.permille(500) {
            let mut delay = || Some(Duration::from_millis(rng.between(0, base)));
            self.delays = (0..self.nodes).map(|_| delay()).collect();
        }
        self.injections.retain(|injection| *injection != FaultInjection::Vandal);
        self.injections.extend([FaultInjection::DeleteRecord; 4]);
        self.injections.extend([
            FaultInjection::Resign,
            FaultInjection::Resign,
            FaultInjection::CutLeader,
        ]);
        self.injections.extend([
            FaultInjection::Crash,
            FaultInjection::ForceLoss,
            FaultInjection::ForceLoss,
        ]);
        self
    }

    /// A world with only the faults that bring two windows closest.
    ///
    /// Clocks are at the ends of the tolerance, messages arrive just too late, and then the leader
    /// is cut off.
    fn tight(self, rng: &mut Rng, rates: Rates) -> Swarm {
        let nodes = self.nodes.min(3);
        let timings = vec![self.timings[0]; nodes];
        // Node 0 has the slowest clock, and so the longest window. Node 1 has the fastest, and is
        // the first to claim. A delay that helps one of them hurts the other.
        let (only, slow_request, slow_answer, late) =
            *rng.pick(&[(Some(0), 0, 600, 400), (Some(1), 600, 0, 0), (None, 200, 200, 100)]);
        let mut network =
            Network { slow_request, slow_answer, late, only, hint: 1000, ..self.network };
        network.most = network.least * 4;
        for off in [
            &mut network.very_slow,
            &mut network.lose_request,
            &mut network.lose_answer,
            &mut network.unavailable,
            &mut network.indeterminate,
            &mut network.denied,
            &mut network.false_conflict,
        ] {
            *off = 0;
        }
        // A weak store never grants by a read, so a late write means nothing there.
        let reads = if only == Some(0) { Reads::Linearizable } else { self.reads };
        Swarm {
            reads,
            nodes,
            timings,
            delays: vec![None; nodes],
            rates: extremes(rng, nodes, rates),
            injections: vec![FaultInjection::CutLeader],
            network,
            early_ticks: 0,
            slow_stop: 0,
            cut_after_read: 500,
            recreate: 0,
            ..self
        }
    }

    pub(super) fn longest_ttl(&self) -> Duration {
        self.timings.iter().map(Timing::ttl).max().unwrap_or_default()
    }
}

impl Network {
    fn draw(rng: &mut Rng, t: u64, reads: Reads) -> Network {
        let weak = reads == Reads::Weak;
        let mut maybe = |on: u32, most: u64| -> u32 {
            if rng.permille(on) { u32::try_from(rng.between(1, most)).unwrap_or(0) } else { 0 }
        };
        let slow_request = maybe(500, 250);
        let slow_answer = maybe(500, 250);
        let late = maybe(300, 300);
        let very_slow = maybe(400, 120);
        let lose_request = maybe(400, 200);
        let lose_answer = maybe(500, 300);
        let unavailable = maybe(250, 150);
        let indeterminate = maybe(250, 150);
        let denied = maybe(60, 30);
        let false_conflict = maybe(250, 150);
        let stale_read = if weak { maybe(600, 400) } else { 0 };
        let to_branch = if weak { maybe(700, 700) } else { 0 };
        let hint = if maybe(700, 1) > 0 { 1000 } else { maybe(700, 900) };
        let least = t / 20_000;
        let spread = t / *rng.pick(&[50, 200, 2000]);
        let most = least + rng.between(1, spread);
        Network {
            least,
            most,
            slow_request,
            slow_answer,
            late,
            only: None,
            very_slow,
            lose_request,
            lose_answer,
            unavailable,
            indeterminate,
            denied,
            false_conflict,
            stale_read,
            to_branch,
            hint,
        }
    }
}

fn timing(rng: &mut Rng, base: u64, uneven: bool) -> Timing {
    let millis = if uneven { rng.between(base / 2, base * 3 / 2) } else { base };
    Timing::new(Duration::from_millis(millis)).expect("300 ms and more leave room")
}

fn draw_rates(rng: &mut Rng, nodes: usize, rates: Rates) -> Vec<u64> {
    match rng.below(4) {
        0 if rates == Rates::Tolerated => vec![REAL_RATE; nodes],
        1 => (0..nodes).map(|_| rng.between(REAL_RATE, rates.fastest())).collect(),
        _ => extremes(rng, nodes, rates),
    }
}

/// Rates without any margin.
fn extremes(rng: &mut Rng, nodes: usize, rates: Rates) -> Vec<u64> {
    let ends = [REAL_RATE, rates.fastest()];
    (0..nodes).map(|node| ends.get(node).copied().unwrap_or_else(|| *rng.pick(&ends))).collect()
}

fn draw_injections(rng: &mut Rng, reads: Reads, vandal: bool, floor: bool) -> Vec<FaultInjection> {
    let mut drawn = vec![FaultInjection::Batch];
    for (injection, on, weight) in [
        (FaultInjection::Pause, 350, 3),
        (FaultInjection::Suspend, 250, 3),
        (FaultInjection::Crash, 450, 3),
        (FaultInjection::Partition, 400, 3),
        (FaultInjection::Outage, 200, 1),
        (FaultInjection::Resign, 400, 3),
        (FaultInjection::EndByHolder, 150, 1),
        (FaultInjection::Publish, 200, 1),
        (FaultInjection::ForceLoss, 200, 2),
        (FaultInjection::Abandon, 150, 1),
        (FaultInjection::WallJump, 300, 2),
        (FaultInjection::CutLeader, 350, 4),
    ] {
        if rng.permille(on) {
            drawn.extend(std::iter::repeat_n(injection, weight));
        }
    }
    if rng.permille(300) {
        drawn.extend([
            FaultInjection::OutsiderEnd,
            FaultInjection::OutsiderCreate,
            FaultInjection::OutsiderCreate,
        ]);
        drawn.extend([FaultInjection::OutsiderDelete, FaultInjection::OutsiderCreate]);
        drawn.extend([FaultInjection::RecreateBehindLeader, FaultInjection::RecreateBehindLeader]);
    }
    if reads == Reads::Weak && rng.permille(700) {
        drawn.extend(std::iter::repeat_n(FaultInjection::Branch, 5));
    }
    if floor && rng.permille(150) {
        drawn.push(FaultInjection::DeleteRecord);
    }
    if vandal {
        drawn.extend([FaultInjection::Vandal, FaultInjection::Vandal]);
    }
    drawn
}
