//! The ports of one wire, one for each shard: opened together, at the start and again when the link was away. The kernel numbers the
//! shards by the order in which their ports are opened, and would give the packets of shards whose ports are not there to others.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sanwire_io::interface::Interface;
use sanwire_io::{LocalAddress, PacketPort, Port, ReceivePath, UdpPort, XdpWish};

use crate::front::DATA_AT;
use crate::wire::{ReceiveChoice, Wire};

/// How to open the ports of one wire.
pub(crate) struct Opener {
    wire: Wire,
    /// The wire's place among the server's.
    number: u16,
    shards: u32,
    ring_bytes: usize,
    /// How packets come, by the last opening.
    receive_path: Mutex<Option<ReceivePath>>,
    /// How often they were opened again. Held while they are.
    round: Mutex<u32>,
    /// As many openings were told to be lost: each is told once, by the shard that finds it first.
    told_lost: AtomicU32,
}

/// A port that was opened again, for its shard.
pub(crate) struct Reopened {
    /// The wire's place among the server's.
    pub(crate) wire: u16,
    /// How often it was opened again with this time.
    pub(crate) round: u32,
    pub(crate) port: Port,
}

impl Opener {
    /// Opens the ports of a wire for the first time, in the order of the shards. A port that the kernel chooses is kept.
    ///
    /// # Errors
    /// The kernel's: `AddrInUse` also where another process shares the port, as our shards do among themselves.
    pub(crate) fn open(wire: &Wire, number: u16, shards: u32, ring_bytes: usize) -> io::Result<(Opener, Vec<Port>)> {
        let mut opener = Opener {
            wire: wire.clone(),
            number,
            shards,
            ring_bytes,
            receive_path: Mutex::default(),
            round: Mutex::default(),
            told_lost: AtomicU32::new(0),
        };
        let ports = opener.open_round(0)?;
        if let Some(LocalAddress::Udp(bound)) = ports.first().map(Port::local_address) {
            opener.wire = opener.wire.at(bound);
        }
        Ok((opener, ports))
    }

    /// The wire, with the port that it has.
    pub(crate) fn wire(&self) -> &Wire {
        &self.wire
    }

    /// The wire's place among the server's.
    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    /// Whether the link can go away: a UDP socket is bound to an address, and works again when that is back.
    pub(crate) fn is_bound_to_an_interface(&self) -> bool {
        self.wire.interface().is_some()
    }

    /// Whether the link is there again, or never goes.
    pub(crate) fn is_there(&self, interfaces: &[Interface]) -> bool {
        let interface = self.wire.interface();
        interface.is_none_or(|interface| interfaces.iter().any(|known| known.name == *interface))
    }

    /// Whether the loss of this opening is news: no shard has told of it.
    pub(crate) fn is_lost_first(&self, round: u32) -> bool {
        let openings = round.saturating_add(1);
        self.told_lost.fetch_max(openings, Ordering::Relaxed) < openings
    }

    /// Opens the ports again, if nobody has done so since this round.
    ///
    /// # Errors
    /// The kernel's, when the link is still away.
    pub(crate) fn reopen(&self, seen: u32) -> io::Result<Option<impl Iterator<Item = Reopened>>> {
        let mut round = self.round.lock().unwrap_or_else(PoisonError::into_inner);
        if *round != seen {
            return Ok(None);
        }
        let ports = self.open_round(seen.wrapping_add(1))?;
        *round = seen.wrapping_add(1);
        let (wire, round) = (self.number, *round);
        Ok(Some(ports.into_iter().map(move |port| Reopened { wire, round, port })))
    }

    /// How packets come.
    pub(crate) fn receive_path(&self) -> Option<ReceivePath> {
        *self.receive_path.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_round(&self, round: u32) -> io::Result<Vec<Port>> {
        let shards = self.shards;
        let ports: Vec<Port> = match (self.wire.interface().zip(self.wire.ethertype()), self.wire.address()) {
            (Some((interface, ethertype)), _) => match self.open_xdp(interface, ethertype, round) {
                Some(ports) => ports,
                None => self.open_packet(interface, ethertype, round)?,
            },
            (None, Some(address)) if shards == 1 => vec![self.open_udp(address)?.into()],
            (None, Some(address)) => {
                // It says whether another process has the port, which ours share among themselves.
                drop(UdpPort::open(address)?);
                let ports = UdpPort::open_shards(address, shards)?;
                ports.iter().filter(|_| self.wire.may_fragment()).try_for_each(UdpPort::let_ip_fragment)?;
                ports.into_iter().map(Port::from).collect()
            }
            // A wire without packets.
            (None, None) => return Err(io::ErrorKind::Unsupported.into()),
        };
        *self.receive_path.lock().unwrap_or_else(PoisonError::into_inner) = ports.first().map(Port::receive_path);
        Ok(ports)
    }

    fn open_udp(&self, address: SocketAddr) -> io::Result<UdpPort> {
        let port = UdpPort::open(address)?;
        if self.wire.may_fragment() {
            port.let_ip_fragment()?;
        }
        Ok(port)
    }

    fn open_packet(&self, interface: &str, ethertype: u16, round: u32) -> io::Result<Vec<Port>> {
        if self.shards == 1 {
            return Ok(vec![PacketPort::open(interface, ethertype, self.ring_bytes)?.into()]);
        }
        // Another group each time: the former one is bound to the interface that is gone.
        let group = group(std::process::id(), self.number, round);
        let ports = PacketPort::open_shards(interface, ethertype, self.ring_bytes, self.steering(), group)?;
        Ok(ports.into_iter().map(Port::from).collect())
    }

    /// Ports whose packets come by AF_XDP; `None` where they do not, with a line that says why.
    fn open_xdp(&self, interface: &str, ethertype: u16, round: u32) -> Option<Vec<Port>> {
        let (choice, (answer_bits, keeps_packets)) = self.wire.receive_choice().zip(self.wire.arrivals())?;
        if choice == ReceiveChoice::Packet || choice == ReceiveChoice::Automatic && !keeps_packets {
            return None;
        }
        let zero_copy_only = choice == ReceiveChoice::Automatic;
        let wish = XdpWish { data_at: DATA_AT, answer_bits, is_reopened: round > 0, zero_copy_only };
        // All shards take their packets from one memory.
        let ring_bytes = self.ring_bytes * self.shards as usize;
        match PacketPort::open_xdp(interface, ethertype, ring_bytes, self.steering(), wish) {
            Ok(ports) => return Some(ports.into_iter().map(Port::from).collect()),
            // The interface is not there: that is said of it, whatever its path.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if choice == ReceiveChoice::Automatic => {
                tracing::info!("wire {}: packets of {interface} come by AF_PACKET, not by AF_XDP: {error}", self.wire);
            }
            Err(error) => {
                tracing::warn!("wire {}: packets of {interface} come by AF_PACKET, not by AF_XDP: {error}", self.wire);
            }
        }
        None
    }

    fn steering(&self) -> (usize, u32) {
        (self.wire.word_at().unwrap_or_default(), self.shards)
    }
}

/// How the packets of raw Ethernet wires come now, by wires.
pub(crate) fn receive_paths(openers: &[Arc<Opener>]) -> BTreeMap<String, String> {
    let on_ethernet = openers.iter().filter(|opener| opener.is_bound_to_an_interface());
    on_ethernet.filter_map(|opener| Some((opener.to_string(), opener.receive_path()?.to_string()))).collect()
}

impl fmt::Display for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.wire.fmt(f)
    }
}

/// A number that the shards share for one interface, and hardly anybody else on this host.
fn group(process: u32, wire: u16, round: u32) -> u16 {
    let mixed =
        process.wrapping_mul(0x9e37_79b1) ^ u32::from(wire).wrapping_mul(0x85eb_ca6b) ^ round.wrapping_mul(0xc2b2_ae35);
    (mixed >> 16) as u16
}

#[cfg(test)]
impl Opener {
    /// Of the first wire, whose ports somebody else has.
    pub(crate) fn unopened(wire: Wire, shards: u32) -> Opener {
        Opener {
            wire,
            number: 0,
            shards,
            ring_bytes: 0,
            receive_path: Mutex::default(),
            round: Mutex::default(),
            told_lost: AtomicU32::new(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_wires_and_rounds_differ() {
        let mut groups: Vec<u16> = (0..8).flat_map(|wire| (0..4).map(move |round| group(4711, wire, round))).collect();
        groups.sort_unstable();
        groups.dedup();
        assert_eq!(groups.len(), 32);
    }

    #[test]
    fn a_wire_that_another_shard_has_opened_again_is_not_opened_once_more() {
        let wire = "hs-eth:absent".parse().unwrap();
        let opener = Opener {
            wire,
            number: 3,
            shards: 4,
            ring_bytes: 0,
            receive_path: Mutex::default(),
            round: Mutex::new(7),
            told_lost: AtomicU32::new(0),
        };
        assert!(opener.reopen(6).unwrap().is_none());
        let away = opener.reopen(7).map(drop).unwrap_err();
        assert_eq!((away.kind(), *opener.round.lock().unwrap()), (io::ErrorKind::NotFound, 7), "it is tried again");
    }
    #[test]
    fn a_lost_wire_is_told_once_by_all_shards_together() {
        let wire = "hs-eth:absent".parse().unwrap();
        let opener = Opener {
            wire,
            number: 0,
            shards: 1,
            ring_bytes: 0,
            receive_path: Mutex::default(),
            round: Mutex::default(),
            told_lost: AtomicU32::new(0),
        };
        let told = [0, 0, 1, 0, 1].map(|round| opener.is_lost_first(round));
        assert_eq!(told, [true, false, true, false, false]);
    }
}
