//! Take-overs on real servers, which know nothing of processes. A leader that is not asked to stop
//! is replaced after its ttl.

use std::process::{Command, Stdio};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use tenure_harness::{Cluster, Etcd, Zookeeper, available, etcd, zookeeper};
use tokio::runtime::Runtime;

use crate::campaign::{Campaign, Figures, Ground, Terms, Victim};
use crate::support::Scene;

/// Long enough that a busy machine does not expire a session by itself.
const TTL: Duration = Duration::from_secs(4);
/// How many elections have one fault at the same time.
const ELECTIONS: usize = 4;

/// The faults of a leader: the description, the victim, and the lock delay.
const FAULTS: [(&str, Victim, &str); 6] = [
    ("supervisor killed (kill -9)", Victim::Supervisor, "0s"),
    ("guardian killed (kill -9)", Victim::Guardian, "0s"),
    ("both killed at once", Victim::Both, "0s"),
    ("supervisor asked to stop (TERM)", Victim::Asked, "0s"),
    ("supervisor hung (SIGSTOP)", Victim::Hung, "0s"),
    ("entry deleted or session ended by an operator, lock delay 1 s", Victim::Deposed, "1s"),
];
const AWAY: &str = "server stopped for one and a half ttl";

enum Kind {
    Etcd(Etcd),
    Zookeeper(Zookeeper),
}

struct Server {
    kind: Kind,
    runtime: Runtime,
}

impl Server {
    fn etcd() -> Option<Arc<Server>> {
        let runtime = Runtime::new().unwrap();
        let etcd = available(runtime.block_on(Etcd::single(etcd::Options::default())))?;
        Some(Arc::new(Server { kind: Kind::Etcd(etcd), runtime }))
    }

    fn zookeeper() -> Option<Arc<Server>> {
        let runtime = Runtime::new().unwrap();
        let options = zookeeper::Options::default();
        let zookeeper = available(runtime.block_on(Zookeeper::single(options)))?;
        Some(Arc::new(Server { kind: Kind::Zookeeper(zookeeper), runtime }))
    }

    fn cluster(&self) -> &Cluster {
        match &self.kind {
            Kind::Etcd(etcd) => etcd,
            Kind::Zookeeper(zookeeper) => zookeeper,
        }
    }

    fn address(&self) -> String {
        self.cluster()[0].address().to_string()
    }

    fn etcdctl(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &self.address()]).args(arguments);
        answered(command)
    }
}

impl Ground for Server {
    fn url(&self, _scene: &Scene) -> String {
        match &self.kind {
            Kind::Etcd(_) => format!("etcd://{}/tenure", self.address()),
            Kind::Zookeeper(_) => format!("zookeeper://{}/tenure", self.address()),
        }
    }

    fn depose(&self, _scene: &Scene, election: &str, round: usize) {
        match &self.kind {
            Kind::Etcd(_) => {
                let below = format!("tenure/{election}/");
                let first =
                    ["--prefix", "--sort-by=CREATE", "--order=ASCEND", "--limit=1", "--keys-only"];
                let key = self.etcdctl(&[&["get", &below][..], &first].concat());
                let key = key.trim();
                if round.is_multiple_of(2) {
                    let lease = key.rsplit('/').next().unwrap();
                    self.etcdctl(&["lease", "revoke", lease]);
                } else {
                    self.etcdctl(&["del", key]);
                }
            }
            Kind::Zookeeper(_) => {
                let mut command = Command::new("python3");
                command.env("PYTHONPATH", tenure_harness::downloads().join("python"));
                command.args(["-c", DEPOSE, &self.address(), &format!("/tenure/{election}")]);
                answered(command);
            }
        }
    }

    fn deposes_everybody(&self) -> bool {
        false
    }

    fn cut_off(&self, _scene: &Scene, span: Duration) {
        self.runtime.block_on(self.cluster()[0].stop()).unwrap();
        thread::sleep(span);
        self.runtime.block_on(self.cluster()[0].cont()).unwrap();
    }
}

/// Several elections on one server, which is away from all of them at once.
struct Together {
    server: Arc<Server>,
    all: Barrier,
}

impl Ground for Together {
    fn url(&self, scene: &Scene) -> String {
        self.server.url(scene)
    }

    fn depose(&self, scene: &Scene, election: &str, round: usize) {
        self.server.depose(scene, election, round);
    }

    fn deposes_everybody(&self) -> bool {
        self.server.deposes_everybody()
    }

    fn cut_off(&self, scene: &Scene, span: Duration) {
        if self.all.wait().is_leader() {
            self.server.cut_off(scene, span);
        }
        self.all.wait();
    }
}

/// A script that deletes the first entry in line.
const DEPOSE: &str = "
import sys
from kazoo.client import KazooClient
client = KazooClient(hosts=sys.argv[1])
client.start()
entries = [name for name in client.get_children(sys.argv[2]) if name[-10:].isdigit()]
client.delete(sys.argv[2] + '/' + min(entries, key=lambda name: int(name[-10:])))
client.stop()
";

fn answered(mut command: Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The same fault in several elections at a time.
fn suffer(
    server: &Arc<Server>,
    elections: usize,
    rounds: usize,
    victim: Victim,
    delay: &'static str,
) -> Figures {
    let mut all = Figures::default();
    let ground = Arc::new(Together { server: server.clone(), all: Barrier::new(elections) });
    let campaigns: Vec<_> = (0..elections)
        .map(|index| {
            let ground = ground.clone();
            thread::spawn(move || {
                let election = format!("{victim:?}-{index}");
                Campaign::new(ground, &election, Terms { ttl: TTL, delay }).run(rounds, victim)
            })
        })
        .collect();
    for campaign in campaigns {
        all.add(campaign.join().unwrap());
    }
    all
}

/// Runs all faults at the same time, except the one that affects all elections.
fn never_are_there_two(server: Option<Arc<Server>>) {
    let Some(server) = server else { return };
    let faults = FAULTS.map(|(what, victim, delay)| {
        let server = server.clone();
        (what, thread::spawn(move || suffer(&server, 1, 2, victim, delay)))
    });
    for (what, fault) in faults {
        let figures = fault.join().unwrap();
        assert_eq!(figures.overlaps, 0, "{what}: {figures:?}");
        assert!(figures.worst() < TTL * 4, "{what}: {figures:?}");
    }
    let figures = suffer(&server, 2, 1, Victim::CutOff, "0s");
    assert_eq!(figures.overlaps, 0, "{AWAY}: {figures:?}");
}

#[test]
fn on_etcd_never_are_there_two() {
    never_are_there_two(Server::etcd());
}

#[test]
fn on_zookeeper_never_are_there_two() {
    never_are_there_two(Server::zookeeper());
}

fn campaign(name: &str, server: Option<Arc<Server>>) {
    let rounds: usize =
        std::env::var("TENURE_ROUNDS").map_or(100, |rounds| rounds.parse().unwrap());
    let Some(server) = server else { return };
    let each = rounds.div_ceil(ELECTIONS);
    println!(
        "| {name}, ttl 4 s: what happened to the leader | rounds | median ms | worst ms | overlaps |"
    );
    println!("|---|---:|---:|---:|---:|");
    let mut all = Figures::default();
    for (what, victim, delay) in FAULTS {
        let figures = suffer(&server, ELECTIONS, each, victim, delay);
        println!("{}", figures.row(what));
        all.add(figures);
    }
    // One stop of the server is one round for each election.
    let mut away = Figures::default();
    for _ in 0..rounds.div_ceil(20) {
        away.add(suffer(&server, 20, 1, Victim::CutOff, "0s"));
    }
    println!("{}", away.row(AWAY));
    all.add(away);
    println!("{}", all.stops_row("from the operator's deed to the death of the child"));
    assert_eq!(all.overlaps, 0);
    let slow = all.stops.iter().filter(|stop| **stop >= Duration::from_millis(100)).count();
    assert_eq!(slow, 0, "children that lived on for 100 ms");
}

#[test]
#[ignore = "scripts/campaign runs it"]
fn campaign_on_etcd() {
    campaign("etcd", Server::etcd());
}

#[test]
#[ignore = "scripts/campaign runs it"]
fn campaign_on_zookeeper() {
    campaign("ZooKeeper", Server::zookeeper());
}
