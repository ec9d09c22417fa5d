//! The kinds and rates of the faults of a seed.

use std::time::Duration;

use tenure::queue::mutant::Mutant;

use super::Options;
use crate::kernel::{REAL_RATE, Rates, Rng, nanos};

/// The rules that the servers follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Sessions are touched by requests, and reported with pings.
    Zookeeper,
    /// Leases are kept alive by the leader alone.
    Etcd,
}

crate::listed! {
    /// The part of the swarm that worlds are drawn from.
    ///
    /// Every profile is a part of [`Profile::Any`], so the sound machine is tried on all of them. If
    /// only one kind of world can show a mutant, the mutant is hunted there.
    pub enum Profile {
        /// The whole swarm.
        Any,
        /// ZooKeeper's rules, in worlds without a speciality.
        Zookeeper,
        /// etcd's rules, in worlds without a speciality.
        Etcd,
        /// ZooKeeper's pings at their latest. Clocks are at the ends of the tolerance, and there are
        /// naps and stuck replies.
        Pings,
        /// etcd's leader is deposed, and the election's leader is cut off soon after.
        Deposed,
        /// Leaders that come back just in time, and then stand still until it is too late.
        Hiccups,
        /// Operators delete entries, and connections are lost.
        Operated,
        /// A lock delay, and tenures that end badly.
        Delayed,
        /// The servers are replaced by others that count from a lower number.
        Rebuilt,
        /// ZooKeeper's servers refuse requests by themselves, and some of them are cut off.
        Refusing,
        /// Others use ZooKeeper's sessions for one kind of request. The servers that they ask are cut
        /// off.
        Whims,
        /// Two candidates of each process stand in the line, which ends now and then.
        Companions,
        /// Operators delete the entry of an etcd leader that is reading its line, and answers are slow.
        Overtaken,
        /// Candidates withdraw while they join, ZooKeeper's connections break, and its servers lag
        /// behind.
        Doubtful,
    }
}

impl Profile {
    /// The profile where a broken rule shows soonest.
    #[must_use]
    #[allow(clippy::wildcard_enum_match_arm, reason = "most show anywhere, and so may the next")]
    pub fn hunting(mutant: Mutant) -> Profile {
        match mutant {
            Mutant::SilentConnectionCounts
            | Mutant::NewestAnswerCounts
            | Mutant::PingByOwnClock
            | Mutant::OneAnswerCounts
            | Mutant::RequestUnderWayCounts => Profile::Pings,
            Mutant::ArrivalNeedsNoWrite | Mutant::SyncCountsAsWrite | Mutant::ReadCountsAsSync => {
                Profile::Whims
            }
            Mutant::DeposedKeepAliveCounts
            | Mutant::LeaseOfEarlierTermCounts
            | Mutant::LaterTermConfirms
            | Mutant::LeasedBeforeMoved
            | Mutant::LeasedAfterFirstMoved => Profile::Deposed,
            Mutant::RefusalCounts | Mutant::RefusedBarrierCounts => Profile::Refusing,
            Mutant::InputBeforeExpiry => Profile::Hiccups,
            Mutant::ResumedUnverified => Profile::Operated,
            Mutant::DelayIgnored
            | Mutant::EarlierMarkCounts
            | Mutant::BeginNotAwaited
            | Mutant::OutlivedCountsAsClean
            | Mutant::LostBeginForgotten => Profile::Delayed,
            Mutant::RegressionIgnored => Profile::Rebuilt,
            Mutant::OwnDeletionAfterEndCounts => Profile::Companions,
            Mutant::OldLineGivesUpEntry => Profile::Overtaken,
            Mutant::DoubtWithoutBarrier | Mutant::LeavesInDoubt => Profile::Doubtful,
            _ => Profile::Any,
        }
    }
}

/// The properties of a world.
#[derive(Clone, Debug)]
pub(super) struct Swarm {
    pub(super) dialect: Dialect,
    pub(super) nodes: usize,
    pub(super) servers: usize,
    pub(super) ttl: Duration,
    /// The lock delay, mostly zero.
    pub(super) delay: Duration,
    pub(super) rates: Vec<u64>,
    pub(super) server_rates: Vec<u64>,
    /// How much longer than T the server keeps a session, at most, in real nanoseconds.
    pub(super) tick: u64,
    pub(super) active: u64,
    pub(super) pace: u64,
    pub(super) injections: Vec<FaultInjection>,
    pub(super) least: u64,
    pub(super) most: u64,
    /// Chances in a thousand.
    pub(super) slow: u32,
    pub(super) slow_server: u32,
    pub(super) lose_notification: u32,
    pub(super) break_up: u32,
    pub(super) break_down: u32,
    pub(super) indeterminate: u32,
    pub(super) slow_stop: u32,
    /// A leader that is back just in time stands still until it is too late.
    pub(super) hiccup: u32,
    /// Other users of the same session send a request as soon as anything is answered.
    pub(super) chatter: u32,
    /// Other users of the same session send a request at the moment of a heartbeat.
    pub(super) burst: u32,
    /// A candidate withdraws as soon as its join was sent, and its connection is lost.
    pub(super) fickle: u32,
    /// The first process's work never ends once it was told to stop.
    pub(super) stuck: bool,
    /// Another candidate of each process stands beside its first.
    pub(super) companions: bool,
}

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FaultInjection {
    Pause,
    Suspend,
    Crash,
    Cut,
    CutLeader,
    Disconnect,
    IsolateServer,
    IsolateLeader,
    StallServer,
    /// A server refuses requests by itself, and is mostly cut off.
    RefuseAlone,
    /// The servers' leader refuses and is cut off. The election's leader is cut off, too, and an
    /// operator deletes its entry.
    DeleteBehindDeposed,
    /// Others use a session for one kind of request, perhaps to a cut-off server.
    Whim,
    /// A process stands still for most of a session's time.
    Nap,
    /// All waiting processes stand still like that, and the leader resigns.
    NapOfTheNext,
    /// The next reply to a ping is stuck, and everything behind it.
    StickReply,
    /// A late ping, and a stuck reply while the leader naps. Then the leader is cut off.
    StickDuringNap,
    /// The servers' leader is cut off, and soon after it the election's leader.
    DeposeUnderLeader,
    Resign,
    EndByHolder,
    Withdraw,
    ForceLoss,
    /// A leader's work cannot be ended, and its caller abandons it.
    Abandon,
    Publish,
    OutsiderEnd,
    OutsiderCreate,
    OutsiderDelete,
    RecreateBehindLeader,
    Operator,
    /// The leader reads its line, and an operator deletes its entry before the answer arrives.
    DeleteDuringLook,
    /// All servers are down for a while, and come back with lower numbers.
    Rebuild,
}

impl Swarm {
    pub(super) fn draw(rng: &mut Rng, options: &Options) -> Swarm {
        let mut swarm = Swarm::draw_any(rng);
        let drawn = rng.below(16);
        match (options.profile, drawn) {
            (Profile::Pings, _) | (Profile::Any, 0) => swarm.make_pings_late(rng),
            (Profile::Hiccups, _) | (Profile::Any, 1) => swarm.make_hiccups(),
            (Profile::Deposed, _) | (Profile::Any, 2) => swarm.make_deposed(),
            (Profile::Delayed, _) | (Profile::Any, 3) => swarm.make_delayed(),
            (Profile::Refusing, _) | (Profile::Any, 4) => swarm.make_refusing(),
            (Profile::Whims, _) | (Profile::Any, 5) => swarm.make_whims(),
            (Profile::Rebuilt, _) | (Profile::Any, 6) => swarm.make_rebuilt(),
            (Profile::Companions, _) | (Profile::Any, 7) => swarm.make_companions(),
            (Profile::Overtaken, _) | (Profile::Any, 8) => swarm.make_overtaken(),
            (Profile::Doubtful, _) | (Profile::Any, 9) => swarm.make_doubtful(),
            (Profile::Operated, _) => swarm.make_operated(),
            (Profile::Zookeeper, _) => swarm.dialect = Dialect::Zookeeper,
            (Profile::Etcd, _) => swarm.dialect = Dialect::Etcd,
            (Profile::Any, _) => {}
        }
        if options.rates == Rates::Beyond {
            // Servers that count faster than the tolerance allows.
            swarm.rates = vec![REAL_RATE; swarm.nodes];
            swarm.server_rates = vec![Rates::Beyond.fastest(); swarm.servers];
        }
        swarm
    }

    fn make_pings_late(&mut self, rng: &mut Rng) {
        let (slow, fast) = (REAL_RATE, REAL_RATE * 5 / 4);
        let (clients, servers) = if rng.permille(700) { (fast, slow) } else { (slow, fast) };
        self.dialect = Dialect::Zookeeper;
        self.servers = 3;
        self.rates = vec![clients; self.nodes];
        self.server_rates = vec![servers; 3];
        self.tick = 0;
        self.most = nanos(self.ttl) / 2000;
        self.least = self.least.min(self.most);
        self.chatter = u32::try_from(rng.between(100, 600)).unwrap_or(100);
        self.burst = 400;
        self.pace = nanos(self.ttl) / rng.between(1, 3);
        self.injections = vec![
            FaultInjection::Nap,
            FaultInjection::NapOfTheNext,
            FaultInjection::NapOfTheNext,
            FaultInjection::StickReply,
            FaultInjection::StickReply,
            FaultInjection::StickDuringNap,
            FaultInjection::StickDuringNap,
            FaultInjection::StallServer,
            FaultInjection::Resign,
        ];
    }

    fn make_deposed(&mut self) {
        self.dialect = Dialect::Etcd;
        self.servers = 3;
        self.server_rates = vec![REAL_RATE * 5 / 4; 3];
        self.rates = vec![REAL_RATE; self.nodes];
        self.tick = 0;
        self.most = nanos(self.ttl) / 400;
        self.least = self.least.min(self.most);
        self.injections.extend([FaultInjection::DeposeUnderLeader; 8]);
    }

    fn make_refusing(&mut self) {
        self.dialect = Dialect::Zookeeper;
        self.servers = 3;
        self.server_rates = vec![REAL_RATE * 5 / 4; 3];
        self.rates = vec![REAL_RATE; self.nodes];
        self.tick = 0;
        self.injections.extend([FaultInjection::RefuseAlone; 8]);
        self.injections.extend([FaultInjection::DeleteBehindDeposed; 6]);
    }

    fn make_whims(&mut self) {
        self.dialect = Dialect::Zookeeper;
        self.servers = 3;
        self.server_rates = vec![REAL_RATE * 5 / 4; 3];
        self.rates = vec![REAL_RATE; self.nodes];
        self.tick = 0;
        self.most = nanos(self.ttl) / 2000;
        self.least = self.least.min(self.most);
        self.injections = vec![
            FaultInjection::Whim,
            FaultInjection::Whim,
            FaultInjection::Whim,
            FaultInjection::IsolateLeader,
            FaultInjection::StickReply,
            FaultInjection::Resign,
        ];
    }

    fn make_operated(&mut self) {
        self.lose_notification = 300;
        self.injections.extend([
            FaultInjection::Operator,
            FaultInjection::Disconnect,
            FaultInjection::CutLeader,
        ]);
        self.injections.extend([
            FaultInjection::Operator,
            FaultInjection::Disconnect,
            FaultInjection::CutLeader,
        ]);
    }

    fn make_delayed(&mut self) {
        self.delay = self.ttl * 2;
        self.slow_stop = 500;
        self.injections.extend([
            FaultInjection::Crash,
            FaultInjection::Crash,
            FaultInjection::CutLeader,
        ]);
        self.injections.extend([
            FaultInjection::Resign,
            FaultInjection::ForceLoss,
            FaultInjection::Crash,
        ]);
    }

    fn make_rebuilt(&mut self) {
        self.dialect = Dialect::Zookeeper;
        self.active += nanos(self.ttl) * 8;
        self.injections.extend([
            FaultInjection::Rebuild,
            FaultInjection::Resign,
            FaultInjection::Disconnect,
        ]);
    }

    fn make_companions(&mut self) {
        self.companions = true;
        self.delay = Duration::ZERO;
        self.lose_notification = 300;
        self.injections.extend([
            FaultInjection::OutsiderEnd,
            FaultInjection::OutsiderCreate,
            FaultInjection::Resign,
        ]);
        self.injections.extend([
            FaultInjection::OutsiderEnd,
            FaultInjection::OutsiderCreate,
            FaultInjection::Operator,
        ]);
    }

    fn make_overtaken(&mut self) {
        self.dialect = Dialect::Etcd;
        self.slow = 200;
        self.slow_stop = 500;
        self.lose_notification = 0;
        self.injections.extend([FaultInjection::DeleteDuringLook; 8]);
    }

    fn make_doubtful(&mut self) {
        self.dialect = Dialect::Zookeeper;
        self.servers = 3;
        self.server_rates = vec![REAL_RATE; 3];
        self.slow_server = 300;
        self.fickle = 500;
        self.injections.extend([
            FaultInjection::Withdraw,
            FaultInjection::Resign,
            FaultInjection::Disconnect,
        ]);
    }

    fn make_hiccups(&mut self) {
        self.hiccup = 700;
        self.most = nanos(self.ttl) / 400;
        self.least = self.least.min(self.most);
        self.injections.extend([FaultInjection::CutLeader; 8]);
    }

    fn draw_any(rng: &mut Rng) -> Swarm {
        let dialect = if rng.permille(500) { Dialect::Zookeeper } else { Dialect::Etcd };
        let nodes = usize::try_from(rng.between(2, 5)).unwrap_or(2);
        let ttl = *rng.pick(&[1000, 2000, 4000, 10_000]);
        let span = ttl * 1_000_000;
        let extremes = rng.permille(500);
        let rate = |rng: &mut Rng| match extremes {
            true if rng.permille(500) => REAL_RATE,
            true => REAL_RATE * 5 / 4,
            false => rng.between(REAL_RATE, REAL_RATE * 5 / 4),
        };
        let rates = (0..nodes).map(|_| rate(rng)).collect();
        let servers = if rng.permille(800) { 3 } else { 1 };
        let server_rates = (0..servers).map(|_| rate(rng)).collect();
        // Four hops of this are just within the time of a request.
        let sluggish = rng.permille(150);
        let most = if sluggish { span / 90 } else { rng.between(span / 2000, span / 100) };
        let mut often = |chance: u32, most: u32| -> u32 {
            if rng.permille(chance) {
                u32::try_from(rng.between(1, u64::from(most))).unwrap_or(1)
            } else {
                0
            }
        };
        let (slow, slow_server) = (often(400, 40), often(500, 60));
        let lose_notification = often(400, 400);
        let (break_up, break_down) = (often(400, 20), often(400, 20));
        let indeterminate = often(300, 60);
        let slow_stop = often(300, 400);
        let hiccup = often(400, 500);
        let delay = if rng.permille(650) { 0 } else { rng.between(ttl / 10, ttl * 2) };
        let mut injections = Vec::new();
        let stuck = rng.permille(120);
        for (injection, chance) in KINDS {
            if rng.permille(*chance) {
                let times = usize::try_from(rng.between(1, 4)).unwrap_or(1);
                injections.extend(std::iter::repeat_n(*injection, times));
            }
        }
        if injections.is_empty() {
            injections.push(FaultInjection::Resign);
        }
        Swarm {
            dialect,
            nodes,
            servers,
            ttl: Duration::from_millis(ttl),
            delay: Duration::from_millis(delay),
            rates,
            server_rates,
            tick: if rng.permille(600) { 0 } else { rng.between(1, span / 4) },
            active: span * rng.between(6, 16),
            pace: span / rng.between(1, 6),
            injections,
            least: rng.between(1000, most),
            most,
            slow,
            slow_server,
            lose_notification,
            break_up,
            break_down,
            indeterminate,
            slow_stop,
            hiccup,
            chatter: if rng.permille(300) { 50 } else { 0 },
            burst: if rng.permille(200) { 200 } else { 0 },
            fickle: 0,
            stuck,
            companions: false,
        }
    }
}

const KINDS: &[(FaultInjection, u32)] = &[
    (FaultInjection::Pause, 350),
    (FaultInjection::Suspend, 200),
    (FaultInjection::Crash, 350),
    (FaultInjection::Cut, 350),
    (FaultInjection::CutLeader, 350),
    (FaultInjection::Disconnect, 400),
    (FaultInjection::IsolateServer, 300),
    (FaultInjection::IsolateLeader, 350),
    (FaultInjection::StallServer, 500),
    (FaultInjection::RefuseAlone, 200),
    (FaultInjection::DeleteBehindDeposed, 60),
    (FaultInjection::Whim, 150),
    (FaultInjection::Nap, 200),
    (FaultInjection::NapOfTheNext, 100),
    (FaultInjection::StickReply, 200),
    (FaultInjection::StickDuringNap, 100),
    (FaultInjection::DeposeUnderLeader, 150),
    (FaultInjection::Resign, 600),
    (FaultInjection::EndByHolder, 120),
    (FaultInjection::Withdraw, 350),
    (FaultInjection::ForceLoss, 200),
    (FaultInjection::Abandon, 150),
    (FaultInjection::Publish, 250),
    (FaultInjection::OutsiderEnd, 150),
    (FaultInjection::OutsiderCreate, 300),
    (FaultInjection::OutsiderDelete, 120),
    (FaultInjection::RecreateBehindLeader, 150),
    (FaultInjection::Operator, 100),
];
