//! HDSP in a shard: its sessions, each with one disk, and what their clients may use.
//!
//! Clients, their keys, passwords and rules are those of HyperSCSI ([`Clients`]); which volume has which disk address say [`disks`].

mod commands;
mod directory;
pub(crate) mod disks;
mod open;
mod tallies;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use sanwire_ata::{Ask, Drive};
use sanwire_buffer::{Arrival, Packet, Region, Shortage};
use sanwire_core::quota::Usage;
use sanwire_core::{ClientId, Instant, LinkId, Lun, NexusId, Path, Principal, Protection};
use sanwire_device::NexusPorts;
use sanwire_hdsp::{Disk, GivenAt, Server, ServerEvent};
use sanwire_scsi::{Receipts, Reply, reservation::TransportId, vpd::TargetPort};

pub(crate) use sanwire_hdsp::{DATA_AT, ETHERTYPE};

use self::commands::Running;
use self::disks::{Disks, SERVER_ADDRESS};
pub(crate) use self::open::open;
use super::{
    ConnectionStatus, DatagramEnd, FrontEnd, FrontEvent, LinkState, ManageOutcome, NewNexus, NexusSelection, NexusView,
    Offence, Tally,
};
use crate::command::CommandRef;
use crate::front::hyperscsi::clients::Clients;
use crate::link::LinkAddress;
use crate::protection_table::ProtectionTable;
use crate::writes::writer;

/// What the shard calls this wire.
pub(super) const NAME: &str = "hdsp";

/// The word that chooses the shard: the server's port and the client's. A server draws its ports so that this leads to the shard that
/// draws; before there is one, the client's alone counts, which stays the same as long as its session.
pub(crate) const WORD_AT: usize = 4;

/// The target port of this wire.
const HDSP_PORT: TargetPort = TargetPort { relative_id: 0xffef, group: 1, port_name: None, device_name: None };

/// The session of a client with a disk.
struct Session {
    client: ClientId,
    path: Path,
    disk: Disk,
    /// The name of the volume; `None` of the server as a whole.
    volume: Option<Arc<str>>,
    /// Its number, while it is there.
    lun: Option<Lun>,
    protection: Protection,
    memory: Region,
    /// What the client has set of an ATA disk.
    drive: Drive,
    /// The newest command that was there when another session of the client with the disk began: those up to it are not given again.
    followed: Option<u64>,
    /// Answers of which it must be known that they were heard: to which commands.
    receipts: Receipts<GivenAt>,
}

/// The server's end in one shard.
pub(crate) struct Hdsp {
    /// Its place among the front ends.
    front: u8,
    server: Server,
    clients: Arc<Clients>,
    levels: Arc<ProtectionTable>,
    disks: Arc<Disks>,
    sessions: BTreeMap<NexusId, Session>,
    /// By the numbers of their handles.
    commands: BTreeMap<u64, Running>,
    /// What is asked again of units that were busy.
    later: BTreeMap<(Instant, u64), Ask>,
    events: VecDeque<FrontEvent>,
    /// What links take now, of which the protocol has not heard yet.
    links: Vec<(LinkId, u16)>,
    is_ending: bool,
}

impl Hdsp {
    /// What the shard is told of what the protocol has told.
    fn take(&mut self, event: ServerEvent, now: Instant) {
        let told = match event {
            ServerEvent::Command { handle, nexus, request, given, .. } => {
                return self.begin(handle, nexus, (request, given), now);
            }
            ServerEvent::SessionOpened { nexus, client, run, path, disk, protection, memory } => {
                let place = self.disks.at(disk.address).filter(|place| place.uuid == disk.volume);
                let volume = match disk.address {
                    SERVER_ADDRESS => None,
                    _ => Some(place.as_ref().map_or_else(|| Arc::from(""), |place| Arc::clone(&place.name))),
                };
                let lun = place.map(|place| place.lun);
                let (drive, receipts) = (Drive::default(), Receipts::default());
                self.follow(client, &disk, now);
                let followed = None;
                let session =
                    Session { client, path, disk, volume, lun, protection, memory, drive, followed, receipts };
                self.opened(nexus, run, session)
            }
            ServerEvent::SessionResumed { nexus, path, protection } => self.resumed(nexus, path, protection),
            ServerEvent::Disconnected { nexus } => Some(FrontEvent::Disconnected(nexus)),
            ServerEvent::SessionClosed { nexus, end } => self.sessions.remove(&nexus).map(|session| {
                self.clients.leave_disk(session.client, session.volume);
                FrontEvent::NexusClosed { nexus, session: None, is_for_good: true, end }
            }),
            ServerEvent::NotAllowed { client, path } => Some(FrontEvent::NotAllowed { client, path, packets: 1 }),
            ServerEvent::WrongPassword { client, path } => {
                let what = "it does not know the password, or is not who it says it is".to_owned();
                let offence = Offence { what, is_proven: false };
                Some(FrontEvent::Refused { client: Some(client), path, offence, count: 1 })
            }
            ServerEvent::Violation { client, path } => {
                let offence = Offence { what: "the rules of the protocol are broken".to_owned(), is_proven: true };
                Some(FrontEvent::Refused { client: Some(client), path, offence, count: 1 })
            }
        };
        self.events.extend(told);
    }

    fn opened(&mut self, nexus: NexusId, run: u64, session: Session) -> Option<FrontEvent> {
        let Session { client, path, ref volume, ref memory, .. } = session;
        self.clients.enter_disk(client, path.peer, volume.clone());
        let (memory, view) = (memory.clone(), self.view(&session)?);
        let what = volume.as_ref().map_or_else(|| "to look around".to_owned(), |name| format!("to volume {name}"));
        let line = format!("{} connected over HDSP {what}", view.who);
        self.sessions.insert(nexus, session);
        let initiator = TransportId::hyperscsi(client);
        Some(FrontEvent::NexusOpened(Box::new(NewNexus {
            nexus,
            ports: Arc::new(NexusPorts { initiator, target: HDSP_PORT, principal: view.principal.clone() }),
            writer: writer(&[&client.0, &run.to_be_bytes()]),
            port: format!("{client},{run:016x}"),
            target: None,
            memory,
            view,
            // As of HyperSCSI's clients: a program that was killed says nothing, and may run again before it is missed.
            ends_own: true,
            line,
        })))
    }

    fn resumed(&mut self, nexus: NexusId, path: Path, protection: Protection) -> Option<FrontEvent> {
        let session = self.sessions.get_mut(&nexus)?;
        (session.path, session.protection) = (path, protection);
        // What it may see may depend on its address.
        self.clients.enter_disk(session.client, path.peer, session.volume.clone());
        self.clients.leave_disk(session.client, session.volume.clone());
        Some(FrontEvent::NexusChanged(nexus, self.view(self.sessions.get(&nexus)?)?))
    }

    fn view(&self, session: &Session) -> Option<NexusView> {
        let Session { client, path, volume, .. } = session;
        Some(NexusView {
            units: self.clients.disk_seen_by(*client, volume.clone())?,
            who: format!("{} at {}", self.clients.shown(*client, ""), path.peer),
            principal: Principal { address: Some(path.peer.into()), client: Some(*client), ..Principal::default() },
            address: path.peer.to_string(),
            is_read_only: false,
            weight: self.clients.memory_weight(*client, 0),
            locks_media: false,
        })
    }

    /// The sessions that are guarded less than their volumes demand by now.
    fn guarded_too_little(&self) -> Vec<NexusId> {
        let units = |session: &Session| match session.disk.address {
            SERVER_ADDRESS => self.clients.units_of(session.client, session.path.peer),
            _ => session.lun.into_iter().collect(),
        };
        let is_less = |session: &Session| {
            units(session).into_iter().any(|lun| session.is_guarded_too_little(lun, &self.clients, &self.levels))
        };
        self.sessions.iter().filter(|(_, session)| is_less(session)).map(|(nexus, _)| *nexus).collect()
    }
}

impl FrontEnd for Hdsp {
    fn name(&self) -> &'static str {
        NAME
    }

    fn poll_event(&mut self, now: Instant) -> Option<FrontEvent> {
        for (link, packet_max_bytes) in std::mem::take(&mut self.links) {
            self.server.set_link(link, packet_max_bytes, now);
        }
        if self.is_ending {
            self.server.release_idle(now);
        }
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            let event = self.server.poll_event()?;
            self.take(event, now);
        }
    }

    fn events_waiting(&self) -> usize {
        self.events.len() + self.server.events_waiting()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.server.handle_timeout(now);
        self.ask_again(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let later = self.later.first_key_value().map(|((at, _), _)| *at);
        later.into_iter().chain(self.server.poll_timeout()).min()
    }

    fn datagrams(&mut self) -> Option<&mut dyn DatagramEnd> {
        Some(self)
    }

    fn reply(&mut self, command: CommandRef, reply: Option<Reply>, now: Instant) {
        self.task_over(command, reply, now);
    }

    fn managed(&mut self, _request: CommandRef, _outcome: ManageOutcome, _now: Instant) {}

    fn withdrawn(&mut self, command: CommandRef, now: Instant) {
        self.withdraw_command(command.number, now);
    }

    /// Each session has room for what it may write: nothing is collected beyond.
    fn hold_back(&mut self, _commands: &[CommandRef], _now: Instant) {}

    fn is_starved(&self) -> bool {
        self.server.is_starved()
    }

    fn starving(&self) -> Box<dyn Iterator<Item = (NexusId, &Region)> + '_> {
        Box::new(self.server.starving())
    }

    fn relieve(&mut self, shortage: &Shortage, now: Instant) {
        self.server.relieve(shortage, now);
    }

    fn drop_nexuses(&mut self, selection: &NexusSelection, _now: Instant) {
        let is_meant = |(nexus, session): &(&NexusId, &Session)| match selection {
            NexusSelection::One(id) | NexusSelection::Dropped(id) => *nexus == id,
            NexusSelection::Of(principal) => session.client.to_string() == *principal,
            NexusSelection::With(_) => false,
        };
        let meant: Vec<NexusId> = self.sessions.iter().filter(is_meant).map(|(nexus, _)| *nexus).collect();
        meant.into_iter().for_each(|nexus| self.server.end(nexus));
    }

    /// Ends the sessions of clients that may not connect any more, or may not use the volume.
    fn terms_changed(&mut self, now: Instant) {
        let is_unwelcome = |session: &Session| {
            !self.clients.permits(session.path.peer, Some(session.client))
                || session.volume.as_ref().is_some_and(|name| !self.clients.may_see(session.client, name))
        };
        let unwelcome = self.sessions.iter().filter(|(_, session)| is_unwelcome(session)).map(|(nexus, _)| *nexus);
        unwelcome.collect::<Vec<NexusId>>().into_iter().for_each(|nexus| self.server.end(nexus));
        self.guarded_too_little().into_iter().for_each(|nexus| self.server.disconnect_session(nexus, now));
        let views = self.sessions.iter().filter_map(|(nexus, session)| Some((*nexus, self.view(session)?)));
        let changed: Vec<_> = views.map(|(nexus, view)| FrontEvent::NexusChanged(nexus, view)).collect();
        self.events.extend(changed);
        self.server.terms_changed();
    }

    fn shut_down(&mut self, _now: Instant) {
        self.is_ending = true;
        self.server.admit_no_more();
    }

    fn is_drained(&self) -> bool {
        self.server.connections().next().is_none()
    }

    fn connections(&self) -> Vec<ConnectionStatus> {
        tallies::connections(&self.server)
    }

    fn dropped(&self) -> Vec<(&'static str, u64)> {
        self.server.counters().reasons().to_vec()
    }

    fn links(&self) -> Vec<LinkState> {
        tallies::links(&self.server)
    }

    fn tallies(&self) -> Vec<Tally> {
        tallies::of(&self.server)
    }

    fn quotas(&self) -> Vec<Usage> {
        self.server.quotas().collect()
    }
}

impl DatagramEnd for Hdsp {
    fn handle_input(&mut self, path: Path, packet: Arrival<'_>, now: Instant) {
        self.server.handle_arrival(path, packet, now);
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<(Path, Packet)> {
        self.server.poll_transmit(now)
    }

    fn set_addresses(&mut self, _addresses: &[LinkAddress], _now: Instant) {}

    fn set_packet_max(&mut self, link: LinkId, of_port: usize) {
        self.links.push((link, packet_max_bytes(of_port)));
    }
}

/// The largest packet of a link, as the protocol counts it.
fn packet_max_bytes(of_port: usize) -> u16 {
    u16::try_from(of_port).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests;
