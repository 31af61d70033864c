//! ATA over Ethernet in a shard: which station uses which volume.
//!
//! The protocol guards nothing and nobody shows who he is: stations are let in by their MAC addresses, which can be forged. So volumes
//! that demand more than a checksum are not served by it ([`addresses`]).

pub(crate) mod addresses;
mod settings;

use std::collections::BTreeMap;
use std::sync::Arc;

use sanwire_aoe::{Address, Target, TargetConfig, TargetEvent};
use sanwire_buffer::{Arrival, Packet, Region, Shortage};
use sanwire_core::quota::{AOE_COMMANDS, Usage};
use sanwire_core::{Instant, LinkId, MacAddress, NexusId, Path, Peer, Principal, SessionEnd};
use sanwire_device::{LogicalUnits, NexusPorts};
use sanwire_scsi::Reply;
use sanwire_scsi::reservation::TransportId;
use sanwire_scsi::vpd::TargetPort;

pub(crate) use sanwire_aoe::ETHERTYPE;

use super::{
    CarriedFamilies, ConnectionStatus, DatagramEnd, FrontBuilder, FrontEnd, FrontEvent, FrontParts, ManageOutcome,
    NewNexus, NexusSelection, NexusView, Offence, Tally,
};
use crate::command::CommandRef;
use crate::error::StartError;
use crate::link::LinkAddress;
use crate::writes::writer;

static CARRIED: CarriedFamilies = CarriedFamilies::new("sanwire_aoe_written_bytes", "sanwire_aoe_read_bytes");

/// What the shard calls this wire.
pub(super) const NAME: &str = "aoe";

/// The word that chooses the shard: a byte that is zero in requests, the shelf and the slot. So all commands for a volume meet in one
/// shard.
pub(crate) const WORD_AT: usize = 1;

/// Commands that a station may have under way at a volume: initiators take what they are told if that is less than what they keep.
const BUFFERS: u16 = AOE_COMMANDS.limit as u16;

/// Nexuses of this wire are numbered from here on, far above those of all others.
const NEXUS_BASE: u64 = 3 << 60;

/// The target port of this wire.
const AOE_PORT: TargetPort = TargetPort { relative_id: 0xfff0, group: 1, port_name: None, device_name: None };

/// The station and the target of a nexus.
struct Station {
    path: Path,
    address: Address,
}

/// The target's end in one shard.
pub(crate) struct Aoe {
    /// Its place among the front ends.
    front: u8,
    target: Target,
    units: Arc<LogicalUnits>,
    stations: BTreeMap<NexusId, Station>,
}

/// Prepares the end of a shard.
pub(crate) fn open(parts: &FrontParts<'_>) -> Result<FrontBuilder, StartError> {
    let clients = Arc::clone(parts.clients);
    let config = TargetConfig {
        shelves: parts.addresses.shelves(),
        admission: Box::new(move |station| clients.permits_station(station)),
        memory: parts.memory.clone(),
        links: parts.ports.iter().map(|port| port.packet_max_bytes).collect(),
        buffers: BUFFERS,
        nexuses: (NEXUS_BASE + u64::from(parts.shard), parts.config.shards.max(1).into()),
        run: parts.instance,
        announces: parts.shard == 0,
    };
    let units = Arc::clone(parts.units);
    Ok(Box::new(move |front| Box::new(Aoe { front, target: Target::new(config), units, stations: BTreeMap::new() })))
}

impl Aoe {
    fn opened(&mut self, nexus: NexusId, station: Station, memory: Region) -> FrontEvent {
        let Station { path, address } = station;
        let mac = match path.peer {
            Peer::Ethernet(mac) => mac,
            Peer::Udp(_) => MacAddress([0; 6]),
        };
        let who = format!("station {mac}");
        let principal = Principal { address: Some(path.peer.into()), ..Principal::default() };
        let (initiator, target) = (TransportId::station(mac), AOE_PORT);
        self.stations.insert(nexus, Station { path, address });
        FrontEvent::NexusOpened(Box::new(NewNexus {
            nexus,
            ports: Arc::new(NexusPorts { initiator, target, principal: principal.clone() }),
            writer: writer(&[b"aoe", &mac.0]),
            port: format!("{mac},{address}"),
            target: None,
            memory,
            line: format!("{who} uses the AoE target {address}"),
            view: NexusView {
                units: Arc::clone(&self.units),
                who,
                principal,
                address: path.peer.to_string(),
                is_read_only: false,
                weight: 1,
                locks_media: false,
            },
            // There are no runs of a station: it may use a volume by several interfaces and programs.
            ends_own: false,
        }))
    }

    /// What the shard has to know or do, if anything.
    fn translate(&mut self, event: TargetEvent) -> Option<FrontEvent> {
        Some(match event {
            TargetEvent::Opened { nexus, path, address, memory } => {
                self.opened(nexus, Station { path, address }, memory)
            }
            TargetEvent::Closed { nexus } => {
                self.stations.remove(&nexus);
                FrontEvent::NexusClosed { nexus, session: None, is_for_good: true, end: SessionEnd::Idle }
            }
            TargetEvent::Command { nexus, number, task } => {
                FrontEvent::Command { command: CommandRef { front: self.front, nexus, number }, task }
            }
            TargetEvent::NotAllowed { path } => refused(path, "its MAC is in no rule of `allow`".to_owned()),
            TargetEvent::ListFull { path, address } => refused(
                path,
                format!("it wants more stations in a list of the AoE target {address} than there is room for"),
            ),
            TargetEvent::SettingsFull => {
                tracing::warn!(
                    "more AoE stations have switched their write caches off than can be remembered: stations that come from now on \
                     begin without one, until the server is started again"
                );
                return None;
            }
        })
    }
}

fn refused(path: Path, what: String) -> FrontEvent {
    FrontEvent::Refused { client: None, path, offence: Offence { what, is_proven: false }, count: 1 }
}

impl FrontEnd for Aoe {
    fn name(&self) -> &'static str {
        NAME
    }

    fn poll_event(&mut self, _now: Instant) -> Option<FrontEvent> {
        while let Some(event) = self.target.poll_event() {
            if let Some(event) = self.translate(event) {
                return Some(event);
            }
        }
        None
    }

    /// A reply may be followed by the next task of the same command.
    fn events_waiting(&self) -> usize {
        self.target.events_waiting()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.target.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.target.poll_timeout()
    }

    fn datagrams(&mut self) -> Option<&mut dyn DatagramEnd> {
        Some(self)
    }

    fn reply(&mut self, command: CommandRef, reply: Option<Reply>, now: Instant) {
        self.target.reply(command.nexus, command.number, reply, now);
    }

    fn managed(&mut self, _request: CommandRef, _outcome: ManageOutcome, _now: Instant) {}

    /// Each station has a window that its memory is made for: nothing is collected.
    fn hold_back(&mut self, _commands: &[CommandRef], _now: Instant) {}

    /// What finds no memory is dropped, and given again by its station.
    fn is_starved(&self) -> bool {
        false
    }

    fn starving(&self) -> Box<dyn Iterator<Item = (NexusId, &Region)> + '_> {
        Box::new(std::iter::empty())
    }

    fn relieve(&mut self, _shortage: &Shortage, _now: Instant) {}

    fn drop_nexuses(&mut self, selection: &NexusSelection, _now: Instant) {
        let is_meant = |(nexus, station): &(&NexusId, &Station)| match selection {
            NexusSelection::One(id) | NexusSelection::Dropped(id) => *nexus == id,
            NexusSelection::Of(principal) => station.path.peer.to_string() == *principal,
            NexusSelection::With(_) => false,
        };
        let meant: Vec<NexusId> = self.stations.iter().filter(is_meant).map(|(nexus, _)| *nexus).collect();
        meant.into_iter().for_each(|nexus| self.target.close(nexus));
    }

    fn terms_changed(&mut self, _now: Instant) {
        self.target.look_after();
    }

    /// There is nobody to tell: the protocol has no word for that.
    fn shut_down(&mut self, _now: Instant) {}

    fn connections(&self) -> Vec<ConnectionStatus> {
        let status = |(nexus, _)| ConnectionStatus {
            nexus,
            links: 1,
            security: "none".to_owned(),
            login: None,
            packets: None,
            movement: None,
        };
        self.target.stations().map(status).collect()
    }

    fn dropped(&self) -> Vec<(&'static str, u64)> {
        self.target.counters().reasons().to_vec()
    }

    fn tallies(&self) -> Vec<Tally> {
        CARRIED.tallies(self.target.written(), self.target.answered()).into()
    }

    fn quotas(&self) -> Vec<Usage> {
        self.target.quotas().to_vec()
    }
}

impl DatagramEnd for Aoe {
    fn handle_input(&mut self, path: Path, packet: Arrival<'_>, now: Instant) {
        self.target.handle_input(path, packet.bytes(), now);
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<(Path, Packet)> {
        self.target.poll_transmit()
    }

    fn set_addresses(&mut self, _addresses: &[LinkAddress], _now: Instant) {}

    fn set_packet_max(&mut self, link: LinkId, packet_max_bytes: usize) {
        self.target.set_link(link, packet_max_bytes);
    }
}
