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
            Mutant::OldReadGivesUpEntry => Profile::Overtaken,
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
    pub(super) injections: Vec<Injection>,
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
pub(super) enum Injection {
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
        self.shorten_delays(2000);
        self.chatter = u32::try_from(rng.between(100, 600)).unwrap_or(100);
        self.burst = 400;
        self.pace = nanos(self.ttl) / rng.between(1, 3);
        self.injections = vec![
            Injection::Nap,
            Injection::NapOfTheNext,
            Injection::NapOfTheNext,
            Injection::StickReply,
            Injection::StickReply,
            Injection::StickDuringNap,
            Injection::StickDuringNap,
            Injection::StallServer,
            Injection::Resign,
        ];
    }

    /// Three servers that count as fast as clocks may run, for processes with the slowest clocks.
    fn count_fast(&mut self, dialect: Dialect) {
        self.dialect = dialect;
        self.servers = 3;
        self.server_rates = vec![Rates::Tolerated.fastest(); 3];
        self.rates = vec![REAL_RATE; self.nodes];
        self.tick = 0;
    }

    /// Messages take at most this part of a session's time.
    fn shorten_delays(&mut self, part: u64) {
        self.most = nanos(self.ttl) / part;
        self.least = self.least.min(self.most);
    }

    fn make_deposed(&mut self) {
        self.count_fast(Dialect::Etcd);
        self.shorten_delays(400);
        self.injections.extend([Injection::DeposeUnderLeader; 8]);
    }

    fn make_refusing(&mut self) {
        self.count_fast(Dialect::Zookeeper);
        self.injections.extend([Injection::RefuseAlone; 8]);
        self.injections.extend([Injection::DeleteBehindDeposed; 6]);
    }

    fn make_whims(&mut self) {
        self.count_fast(Dialect::Zookeeper);
        self.shorten_delays(2000);
        self.injections = vec![
            Injection::Whim,
            Injection::Whim,
            Injection::Whim,
            Injection::IsolateLeader,
            Injection::StickReply,
            Injection::Resign,
        ];
    }

    fn make_operated(&mut self) {
        self.lose_notification = 300;
        let more = [Injection::Operator, Injection::Disconnect, Injection::CutLeader];
        self.injections.extend(more.repeat(2));
    }

    fn make_delayed(&mut self) {
        self.delay = self.ttl * 2;
        self.slow_stop = 500;
        self.injections.extend([Injection::Crash, Injection::Crash, Injection::CutLeader]);
        self.injections.extend([Injection::Resign, Injection::ForceLoss, Injection::Crash]);
    }

    fn make_rebuilt(&mut self) {
        self.dialect = Dialect::Zookeeper;
        self.active += nanos(self.ttl) * 8;
        self.injections.extend([Injection::Rebuild, Injection::Resign, Injection::Disconnect]);
    }

    fn make_companions(&mut self) {
        self.companions = true;
        self.delay = Duration::ZERO;
        self.lose_notification = 300;
        self.injections.extend([
            Injection::OutsiderEnd,
            Injection::OutsiderCreate,
            Injection::Resign,
        ]);
        self.injections.extend([
            Injection::OutsiderEnd,
            Injection::OutsiderCreate,
            Injection::Operator,
        ]);
    }

    fn make_overtaken(&mut self) {
        self.dialect = Dialect::Etcd;
        self.slow = 200;
        self.slow_stop = 500;
        self.lose_notification = 0;
        self.injections.extend([Injection::DeleteDuringLook; 8]);
    }

    fn make_doubtful(&mut self) {
        self.dialect = Dialect::Zookeeper;
        self.servers = 3;
        self.server_rates = vec![REAL_RATE; 3];
        self.slow_server = 300;
        self.fickle = 500;
        self.injections.extend([Injection::Withdraw, Injection::Resign, Injection::Disconnect]);
    }

    fn make_hiccups(&mut self) {
        self.hiccup = 700;
        self.shorten_delays(400);
        self.injections.extend([Injection::CutLeader; 8]);
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
        let (slow, slow_server) = (rng.rate(400, 40), rng.rate(500, 60));
        let lose_notification = rng.rate(400, 400);
        let (break_up, break_down) = (rng.rate(400, 20), rng.rate(400, 20));
        let indeterminate = rng.rate(300, 60);
        let slow_stop = rng.rate(300, 400);
        let hiccup = rng.rate(400, 500);
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
            injections.push(Injection::Resign);
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

const KINDS: &[(Injection, u32)] = &[
    (Injection::Pause, 350),
    (Injection::Suspend, 200),
    (Injection::Crash, 350),
    (Injection::Cut, 350),
    (Injection::CutLeader, 350),
    (Injection::Disconnect, 400),
    (Injection::IsolateServer, 300),
    (Injection::IsolateLeader, 350),
    (Injection::StallServer, 500),
    (Injection::RefuseAlone, 200),
    (Injection::DeleteBehindDeposed, 60),
    (Injection::Whim, 150),
    (Injection::Nap, 200),
    (Injection::NapOfTheNext, 100),
    (Injection::StickReply, 200),
    (Injection::StickDuringNap, 100),
    (Injection::DeposeUnderLeader, 150),
    (Injection::Resign, 600),
    (Injection::EndByHolder, 120),
    (Injection::Withdraw, 350),
    (Injection::ForceLoss, 200),
    (Injection::Abandon, 150),
    (Injection::Publish, 250),
    (Injection::OutsiderEnd, 150),
    (Injection::OutsiderCreate, 300),
    (Injection::OutsiderDelete, 120),
    (Injection::RecreateBehindLeader, 150),
    (Injection::Operator, 100),
];
