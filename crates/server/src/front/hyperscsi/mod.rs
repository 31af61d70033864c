//! HyperSCSI in a shard: its sessions, and what the client of each of them sees.

pub(crate) mod clients;
mod open;
mod tallies;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use sanwire_buffer::{Arrival, Packet, Region, Shortage, Slice};
use sanwire_core::quota::Usage;
use sanwire_core::text::printable;
use sanwire_core::{ClientId, Instant, Lun, NexusId, Path, Principal, Protection};
use sanwire_device::NexusPorts;
use sanwire_engine::task_aborted;
use sanwire_hyperscsi::wire::links::{Address, LINKS_MAX};
use sanwire_hyperscsi::{Agreed, CommandHandle, Server, ServerEvent};
use sanwire_scsi::{Reply, reservation::TransportId, vpd::TargetPort};

pub(crate) use sanwire_hyperscsi::{ETHERTYPE, Identity, Psk, Recovery, UDP_PORT};

pub(crate) use self::open::open;
use super::administration::{Administration, InBandRequest};
use super::{
    ConnectionStatus, DatagramEnd, FrontEnd, FrontEvent, Function, LinkState, ManageOutcome, NewNexus, NexusSelection,
    NexusView, Offence, Tally,
};
use crate::command::CommandRef;
use crate::front::hyperscsi::clients::Clients;
use crate::link::LinkAddress;
use crate::writes::writer;

/// The target port of all HyperSCSI wires: a session goes over any of them, so they are one port.
const HYPERSCSI_PORT: TargetPort = TargetPort { relative_id: 1, group: 1, port_name: None, device_name: None };

/// What the shard calls this wire.
pub(crate) const NAME: &str = "hyperscsi";

/// The session of a client: what its protocol, and the terms for clients, are asked about. All else is the shard's.
struct Session {
    client: ClientId,
    /// Where it is, by the handshake of its connection.
    path: Path,
    /// It wants to write nothing.
    is_read_only: bool,
    priority: u8,
    locks_media: bool,
}

impl Session {
    /// Who it is: it has shown its key when it connected.
    fn principal(&self) -> Principal {
        Principal { address: Some(self.path.peer.into()), client: Some(self.client), ..Principal::default() }
    }
}

/// The server's end of HyperSCSI in one shard.
pub(crate) struct HyperScsi {
    /// Its place among the front ends.
    front: u8,
    server: Server,
    clients: Arc<Clients>,
    administration: Administration,
    sessions: BTreeMap<NexusId, Session>,
    /// What is to be told besides what the protocol tells.
    events: VecDeque<FrontEvent>,
}

impl HyperScsi {
    fn command(&self, handle: CommandHandle) -> CommandRef {
        CommandRef { front: self.front, nexus: handle.nexus(), number: handle.number() }
    }

    /// What the front end tells of what the protocol has told; `None` when the shard need not know.
    fn translate(&mut self, event: ServerEvent, now: Instant) -> Option<FrontEvent> {
        match event {
            ServerEvent::Command { handle, task } => Some(FrontEvent::Command { command: self.command(handle), task }),
            ServerEvent::Administer { handle, request, room_bytes } => {
                self.administer(handle, request, room_bytes, now);
                None
            }
            ServerEvent::Abort { handle } => Some(FrontEvent::Abort(self.command(handle))),
            ServerEvent::Reset { handle, lun } => {
                let function = Function::LogicalUnitReset(lun);
                Some(FrontEvent::TaskManagement { request: self.command(handle), function })
            }
            ServerEvent::SessionOpened { nexus, client, run, name, path, options, memory } => {
                let line = self.clients.shown(client, &printable(&name));
                let line = format!("{line} connected from {}", path.peer);
                self.session_opened(nexus, (client, run), path, &options, memory, line)
            }
            ServerEvent::SessionResumed { nexus, path, options } => {
                self.moved(nexus, path);
                self.take_options(nexus, &options)
            }
            ServerEvent::Disconnected { nexus } => {
                (!self.server.is_connected(nexus)).then_some(FrontEvent::Disconnected(nexus))
            }
            ServerEvent::Held { nexus, is_held } => Some(FrontEvent::Held { nexus, is_held }),
            ServerEvent::Options { nexus, options } => self.take_options(nexus, &options),
            ServerEvent::Refused { offence, client, path, count } => {
                let offence = Offence { what: offence.to_string(), is_proven: offence.is_proven() };
                Some(FrontEvent::Refused { client, path, offence, count })
            }
            ServerEvent::NotAllowed { client, path, packets } => Some(FrontEvent::NotAllowed { client, path, packets }),
            ServerEvent::SessionClosed { nexus, end } => {
                let session = self.sessions.remove(&nexus)?;
                self.clients.leave(session.client, session.is_read_only);
                // It has left, or was away for longer than clients come back after.
                Some(FrontEvent::NexusClosed { nexus, session: None, is_for_good: true, end })
            }
        }
    }

    fn session_opened(
        &mut self,
        nexus: NexusId,
        (client, run): (ClientId, u64),
        path: Path,
        options: &Agreed,
        memory: Region,
        line: String,
    ) -> Option<FrontEvent> {
        let is_read_only = options.peer_is_read_only;
        let session =
            Session { client, path, is_read_only, priority: options.priority, locks_media: options.medium_lock };
        self.clients.enter(client, path.peer, is_read_only);
        let view = self.view(&session)?;
        self.sessions.insert(nexus, session);
        let initiator = TransportId::hyperscsi(client);
        Some(FrontEvent::NexusOpened(Box::new(NewNexus {
            nexus,
            ports: Arc::new(NexusPorts { initiator, target: HYPERSCSI_PORT, principal: view.principal.clone() }),
            writer: writer(&[&client.0, &run.to_be_bytes()]),
            port: format!("{client},{run:016x}"),
            target: None,
            memory,
            view,
            // A program that was killed says nothing, and may run again before it is missed here: what it has under way must not
            // come after what its next run writes. Programs of the client that live lose no more by it than their turn for memory,
            // and give what is ended again.
            ends_own: true,
            line,
        })))
    }

    fn view(&self, session: &Session) -> Option<NexusView> {
        let Session { client, path, is_read_only, priority, locks_media } = session;
        Some(NexusView {
            units: self.clients.seen_by(*client, *is_read_only)?,
            who: self.shown(*client, *path),
            principal: session.principal(),
            address: path.peer.to_string(),
            is_read_only: *is_read_only,
            weight: self.clients.memory_weight(*client, *priority),
            locks_media: *locks_media,
        })
    }

    /// A client goes on with its session from here: whether it may is asked by its address.
    fn moved(&mut self, nexus: NexusId, path: Path) {
        let Some(session) = self.sessions.get_mut(&nexus) else { return };
        session.path = path;
        // What it may see may depend on the address too.
        self.clients.enter(session.client, path.peer, session.is_read_only);
        self.clients.leave(session.client, session.is_read_only);
    }

    /// What was agreed on with a client has changed.
    fn take_options(&mut self, nexus: NexusId, options: &Agreed) -> Option<FrontEvent> {
        let session = self.sessions.get_mut(&nexus)?;
        if options.peer_is_read_only != session.is_read_only {
            let before = std::mem::replace(&mut session.is_read_only, options.peer_is_read_only);
            self.clients.enter(session.client, session.path.peer, session.is_read_only);
            self.clients.leave(session.client, before);
        }
        (session.priority, session.locks_media) = (options.priority, options.medium_lock);
        Some(FrontEvent::NexusChanged(nexus, self.view(self.sessions.get(&nexus)?)?))
    }

    /// A client, for people.
    fn shown(&self, client: ClientId, path: Path) -> String {
        format!("{} at {}", self.clients.shown(client, ""), path.peer)
    }

    /// Has a request to manage the server answered, at once or later.
    fn administer(&mut self, handle: CommandHandle, json: Option<Slice>, room_bytes: u32, now: Instant) {
        let Some(session) = self.sessions.get(&handle.nexus()) else { return };
        let (client, address, principal) = (session.client, session.path.peer.to_string(), session.principal());
        let request = self.command(handle);
        let asked = InBandRequest { client, address, principal, json, room_bytes, request };
        if let Some(answer) = self.administration.ask(asked) {
            self.server.administered(handle, Some(answer.into()), now);
        }
    }

    fn drop_client(&mut self, client: ClientId, now: Instant) {
        tracing::info!("client {client} is dropped");
        self.server.drop_client(client, now);
    }
}

fn handle(command: CommandRef) -> CommandHandle {
    CommandHandle::new(command.nexus, command.number)
}

impl FrontEnd for HyperScsi {
    fn name(&self) -> &'static str {
        NAME
    }

    fn poll_event(&mut self, now: Instant) -> Option<FrontEvent> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        while let Some(event) = self.server.poll_event() {
            let told = self.translate(event, now);
            if told.is_some() {
                return told;
            }
        }
        None
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.server.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.server.poll_timeout()
    }

    fn datagrams(&mut self) -> Option<&mut dyn DatagramEnd> {
        Some(&mut self.server)
    }

    fn reply(&mut self, command: CommandRef, reply: Option<Reply>, now: Instant) {
        // Clients learn of the end of their commands by answers only.
        self.server.reply(handle(command), reply.unwrap_or_else(task_aborted), now);
    }

    fn managed(&mut self, request: CommandRef, outcome: ManageOutcome, now: Instant) {
        self.server.managed(handle(request), outcome == ManageOutcome::Complete, now);
    }

    fn withdrawn(&mut self, command: CommandRef, now: Instant) {
        self.server.withdraw(handle(command), now);
    }

    fn administered(&mut self, request: CommandRef, answer: Vec<u8>, now: Instant) {
        self.server.administered(handle(request), Some(answer.into()), now);
    }

    fn hold_back(&mut self, commands: &[CommandRef], now: Instant) {
        let own = commands.iter().filter(|command| command.front == self.front);
        let sessions: BTreeSet<NexusId> = own.map(|command| command.nexus).collect();
        self.server.hold_back(sessions, now);
    }

    fn is_starved(&self) -> bool {
        self.server.is_starved()
    }

    fn starving(&self) -> Box<dyn Iterator<Item = (NexusId, &Region)> + '_> {
        Box::new(self.server.starving())
    }

    fn relieve(&mut self, shortage: &Shortage, now: Instant) {
        self.server.relieve(shortage, now);
    }

    fn drop_nexuses(&mut self, selection: &NexusSelection, now: Instant) {
        match selection {
            NexusSelection::Of(principal) => {
                principal.parse().into_iter().for_each(|client| self.drop_client(client, now))
            }
            NexusSelection::Dropped(nexus) => self.server.drop_session(*nexus, now),
            NexusSelection::One(_) | NexusSelection::With(_) => {}
        }
    }

    fn pause(&mut self, principal: &str, is_paused: bool, now: Instant) {
        if let Ok(client) = principal.parse() {
            self.server.pause(client, is_paused, now);
        }
    }

    /// Drops the clients that are not served any more, and shares windows by the terms that hold now.
    fn terms_changed(&mut self, now: Instant) {
        let is_unwelcome = |session: &&Session| !self.clients.permits(session.path.peer, Some(session.client));
        let unwelcome = self.sessions.values().filter(is_unwelcome);
        let unwelcome: Vec<ClientId> = unwelcome.map(|session| session.client).collect();
        unwelcome.into_iter().for_each(|client| self.drop_client(client, now));
        let views = self.sessions.iter().filter_map(|(nexus, session)| Some((*nexus, self.view(session)?)));
        let changed: Vec<_> = views.map(|(nexus, view)| FrontEvent::NexusChanged(nexus, view)).collect();
        self.events.extend(changed);
        self.server.refresh_options(now);
        self.server.share_windows(now);
    }

    fn demands_more(&mut self, lun: Lun, than: Protection, now: Instant) {
        self.server.unit_demands_more(lun, than, now);
    }

    fn shut_down(&mut self, _now: Instant) {
        self.server.admit_no_more();
        self.server.shut_down();
    }

    fn is_drained(&self) -> bool {
        self.server.is_drained()
    }

    fn connections(&self) -> Vec<ConnectionStatus> {
        tallies::connections(&self.server)
    }

    fn dropped(&self) -> Vec<(&'static str, u64)> {
        self.server.counters().reasons().chain([self.administration.dropped()]).collect()
    }

    fn links(&self) -> Vec<LinkState> {
        tallies::links(&self.server)
    }

    fn tallies(&self) -> Vec<Tally> {
        tallies::of(&self.server)
    }

    fn quotas(&self) -> Vec<Usage> {
        self.server.quotas()
    }
}

impl DatagramEnd for Server {
    fn handle_input(&mut self, path: Path, packet: Arrival<'_>, now: Instant) {
        Server::handle_input(self, path, packet.bytes(), now);
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<(Path, Packet)> {
        Server::poll_transmit(self, now)
    }

    fn set_addresses(&mut self, addresses: &[LinkAddress], now: Instant) {
        Server::set_addresses(self, fastest(addresses), now);
    }
}

/// The largest packet of a link: the protocol counts body bytes in 16 bits.
fn packet_max_bytes(of_port: usize) -> u32 {
    of_port.min(65_000) as u32
}

/// As many as a connection may have links, the fastest first; of those that do not say how fast they are, the first.
fn fastest(addresses: &[LinkAddress]) -> Vec<Address> {
    let told = addresses.iter().map(|address| Address {
        peer: address.peer,
        packet_max_bytes: packet_max_bytes(address.packet_max_bytes),
        speed_mbit: address.speed_mbit,
    });
    let mut addresses: Vec<Address> = told.collect();
    addresses.sort_by_key(|address| std::cmp::Reverse(address.speed_mbit));
    addresses.truncate(LINKS_MAX);
    addresses
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, SocketAddr};

    use sanwire_core::Peer;

    use super::*;

    #[test]
    fn of_too_many_addresses_the_fastest_are_told() {
        let speeds = [1000, 0, 100, 1000, 0, 1000, 100, 1000, 10_000, 25_000];
        let address = |(place, speed_mbit)| {
            let peer = Peer::Udp(SocketAddr::new(IpAddr::from([10, 0, 0, place]), 5674));
            LinkAddress { peer, packet_max_bytes: 1500, speed_mbit }
        };
        let told = fastest(&(0..).zip(speeds).map(address).collect::<Vec<_>>());
        assert_eq!(told.len(), LINKS_MAX);
        assert_eq!(told.iter().map(|one| one.speed_mbit).take(3).collect::<Vec<_>>(), [25_000, 10_000, 1000]);
        assert!(told.iter().all(|one| one.speed_mbit > 0) && told[2].peer == address((0, 1000)).peer);
    }
}
