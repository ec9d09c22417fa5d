use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram};

/// A free port that stays ours until this is dropped, even if no server uses it.
///
/// The kernel hands out ports only above the range these come from, so an outgoing connection does
/// not take the port of a server that is down for a moment. The tests' processes claim each number
/// with a socket in the abstract namespace, which belongs to the same network namespace as the port
/// and vanishes with the process.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _claim: UnixDatagram,
}

// Below 32768, where the kernel's range for clients starts, and above the ports that people
// configure by hand.
const RANGE: RangeInclusive<u16> = 12_000..=32_000;

impl Port {
    /// Claims a free port of the loopback address.
    ///
    /// Fails when the whole range is taken.
    pub fn claim() -> io::Result<Port> {
        let size = u64::from(RANGE.end() - RANGE.start()) + 1;
        let start = RandomState::new().hash_one(());
        for step in 0..size {
            // Less than the size of the range, which fits into a u16.
            let number = RANGE.start() + (start.wrapping_add(step) % size) as u16;
            if let Some(port) = Port::claim_number(number) {
                return Ok(port);
            }
        }
        Err(io::Error::new(io::ErrorKind::AddrInUse, "every port of the range is taken"))
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// The loopback address with this port.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.number).into()
    }

    fn claim_number(number: u16) -> Option<Port> {
        let name = UnixAddress::from_abstract_name(format!("tenure-port-{number}")).ok()?;
        let claim = UnixDatagram::bind_addr(&name).ok()?;
        TcpListener::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
        Some(Port { number, _claim: claim })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claimed_port_is_free_and_nobody_elses() {
        let port = Port::claim().expect("there are many");
        assert!(Port::claim_number(port.number()).is_none());
        TcpListener::bind(port.address()).expect("claimed, not occupied");
    }

    #[test]
    fn a_dropped_port_can_be_claimed_again() {
        let port = Port::claim().expect("there are many");
        let number = port.number();
        drop(port);
        assert!(Port::claim_number(number).is_some());
    }

    #[test]
    fn a_port_someone_listens_on_is_not_claimed() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let number = listener.local_addr().expect("it is bound").port();
        assert!(Port::claim_number(number).is_none());
    }
}
