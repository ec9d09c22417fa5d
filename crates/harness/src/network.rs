use std::io::Write;
use std::net::Ipv4Addr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram};
use std::process::{Command, Stdio};

/// A network for each member of a cluster, joined by a bridge with this process.
///
/// The addresses are from 198.18.0.0/15, which is reserved for such tests.
#[derive(Debug)]
pub(crate) struct Network {
    number: u16,
    members: usize,
    /// As for ports: no other test uses this number.
    _claim: UnixDatagram,
}

/// How many networks there can be at once, each with 256 addresses.
const MOST: u16 = 512;
/// The bridge's own address in each network.
const BRIDGE: u8 = 254;
/// Packets sent to this address are lost.
const NOBODY: &str = "02:00:00:00:00:01";

impl Network {
    /// Creates a network; the error says why it failed.
    pub(crate) fn create(members: usize) -> Result<Network, String> {
        assert!(members < usize::from(BRIDGE), "a network has that many addresses");
        let (number, claim) = (0..MOST)
            .find_map(|number| Some((number, claim(number)?)))
            .ok_or("every network of the range is taken")?;
        let network = Network { number, members, _claim: claim };
        // Left by a test that was killed: we have the claim, so that test is gone.
        network.remove();
        network.build()?;
        Ok(network)
    }

    /// The address of a member.
    pub(crate) fn host(&self, member: usize) -> Ipv4Addr {
        self.address(u8::try_from(member + 1).expect("asserted in create"))
    }

    /// The name of a member's network namespace.
    pub(crate) fn namespace(&self, member: usize) -> String {
        format!("tenure{}-{member}", self.number)
    }

    /// Blocks all packets between a member and the others, silently.
    pub(crate) fn isolate(&self, member: usize) -> Result<(), String> {
        self.between(member, |to| {
            format!("neigh replace {to} lladdr {NOBODY} dev eth0 nud permanent")
        })
    }

    /// Undoes [`isolate`](Network::isolate).
    pub(crate) fn rejoin(&self, member: usize) -> Result<(), String> {
        self.between(member, |to| format!("neigh del {to} dev eth0"))
    }

    fn between(&self, member: usize, command: impl Fn(Ipv4Addr) -> String) -> Result<(), String> {
        for other in (0..self.members).filter(|other| *other != member) {
            ip(Some(&self.namespace(member)), &[command(self.host(other))])?;
            ip(Some(&self.namespace(other)), &[command(self.host(member))])?;
        }
        Ok(())
    }

    fn build(&self) -> Result<(), String> {
        let bridge = self.bridge();
        let mut commands = vec![
            format!("link add {bridge} type bridge"),
            format!("addr add {}/24 dev {bridge}", self.address(BRIDGE)),
            format!("link set {bridge} up"),
        ];
        for member in 0..self.members {
            // The outer end of the cable has the name of the namespace.
            let name = self.namespace(member);
            commands.push(format!("netns add {name}"));
            commands.push(format!("link add {name} type veth peer name eth0 netns {name}"));
            commands.push(format!("link set {name} master {bridge} up"));
        }
        ip(None, &commands)?;
        for member in 0..self.members {
            let inside = [
                "link set lo up".to_owned(),
                format!("addr add {}/24 dev eth0", self.host(member)),
                "link set eth0 up".to_owned(),
            ];
            ip(Some(&self.namespace(member)), &inside)?;
        }
        Ok(())
    }

    fn remove(&self) {
        // Missing parts are no failure. Removing one end of a cable removes both.
        for member in 0..self.members {
            let name = self.namespace(member);
            let _ = ip(None, &[format!("link del {name}")]);
            let _ = ip(None, &[format!("netns del {name}")]);
        }
        let _ = ip(None, &[format!("link del {}", self.bridge())]);
    }

    fn bridge(&self) -> String {
        format!("tenure{}", self.number)
    }

    fn address(&self, host: u8) -> Ipv4Addr {
        let [high, low] = self.number.to_be_bytes();
        Ipv4Addr::new(198, 18 + high, low, host)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.remove();
    }
}

fn claim(number: u16) -> Option<UnixDatagram> {
    let name = UnixAddress::from_abstract_name(format!("tenure-network-{number}")).ok()?;
    UnixDatagram::bind_addr(&name).ok()
}

/// Runs commands of `ip`, in a namespace if one is given.
fn ip(namespace: Option<&str>, commands: &[String]) -> Result<(), String> {
    let inside = namespace.into_iter().flat_map(|namespace| ["-n", namespace]);
    let mut ip = Command::new("ip")
        .args(inside)
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("ip (iproute2): {error}"))?;
    let mut input = ip.stdin.take().expect("it is piped");
    // If `ip` ended early, its message says more than the broken pipe.
    let _ = input.write_all((commands.join("\n") + "\n").as_bytes());
    drop(input);
    let output = ip.wait_with_output().map_err(|error| format!("ip: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    Err(format!("ip: {}", words.lines().next().unwrap_or("no reason given")))
}
