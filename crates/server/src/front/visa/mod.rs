//! VISA in a shard: its sessions, over UDP and TCP, and what the client of each of them sees.
//!
//! Clients, their keys, passwords and rules are those of HyperSCSI ([`Clients`]).

mod greeting;
mod open;
mod streams;
mod tallies;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use sanwire_buffer::{Arrival, Packet, Region, Shortage, Slice};
use sanwire_core::quota::Usage;
use sanwire_core::{ClientId, Instant, LinkId, NexusId, Path, Principal};
use sanwire_device::NexusPorts;
use sanwire_engine::task_aborted;
use sanwire_scsi::{Reply, reservation::TransportId, vpd::TargetPort};
use sanwire_visa::framing::framed;
use sanwire_visa::{CommandHandle, Server, ServerEvent};

pub(crate) use sanwire_visa::PORT;
pub use sanwire_visa::Wishes;

use self::greeting::Greeted;
pub(crate) use self::greeting::{Greetings, LOGIN_RESULTS};
pub(crate) use self::open::open;
use self::streams::Streams;
use super::administration::{Administration, InBandRequest};
use super::{
    Admission, ConnectionStatus, DatagramEnd, FrontEnd, FrontEvent, Function, LinkState, ManageOutcome, NewNexus,
    NexusSelection, NexusView, Offence, PassedLogin, StreamEnd, StreamId, Tally,
};
use crate::command::CommandRef;
use crate::front::hyperscsi::clients::Clients;
use crate::link::LinkAddress;
use crate::writes::writer;

/// What the shard calls this wire.
pub(super) const NAME: &str = "visa";

/// The target port of both carriers: a session goes over either, so they are one port.
const VISA_PORT: TargetPort = TargetPort { relative_id: 0xffee, group: 1, port_name: None, device_name: None };

/// The session of a client: what its protocol, and the terms for clients, are asked about. All else is the shard's.
struct Session {
    client: ClientId,
    path: Path,
}

impl Session {
    /// Who it is: it has shown its key when it connected.
    fn principal(&self) -> Principal {
        Principal { address: Some(self.path.peer.into()), client: Some(self.client), ..Principal::default() }
    }
}

/// The server's end of VISA in one shard.
pub(crate) struct Visa {
    /// Its place among the front ends.
    front: u8,
    server: Server,
    clients: Arc<Clients>,
    administration: Administration,
    sessions: BTreeMap<NexusId, Session>,
    streams: Streams,
    events: VecDeque<FrontEvent>,
    /// The time of this turn.
    now: Instant,
}

impl Visa {
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
            ServerEvent::SessionOpened { nexus, client, run, path, memory, .. } => {
                self.opened(nexus, (client, run), path, memory)
            }
            ServerEvent::SessionResumed { nexus, path, .. } => {
                let session = self.sessions.get_mut(&nexus)?;
                session.path = path;
                // What it may see may depend on its address.
                let client = session.client;
                self.clients.enter(client, path.peer, false);
                self.clients.leave(client, false);
                Some(FrontEvent::NexusChanged(nexus, self.view(self.sessions.get(&nexus)?)?))
            }
            ServerEvent::Disconnected { nexus } => {
                (!self.server.is_connected(nexus)).then_some(FrontEvent::Disconnected(nexus))
            }
            ServerEvent::Hangup { path } => {
                let stream = self.streams.of(path)?;
                Some(FrontEvent::CloseStream { stream, is_at_once: false })
            }
            ServerEvent::Refused { offence, client, path, count } => {
                let offence = Offence { what: offence.to_string(), is_proven: offence.is_proven() };
                Some(FrontEvent::Refused { client, path, offence, count })
            }
            ServerEvent::NotAllowed { client, path, packets } => Some(FrontEvent::NotAllowed { client, path, packets }),
            ServerEvent::SessionClosed { nexus, end } => {
                let session = self.sessions.remove(&nexus)?;
                self.clients.leave(session.client, false);
                // It has left, or was away for longer than clients come back after.
                Some(FrontEvent::NexusClosed { nexus, session: None, is_for_good: true, end })
            }
        }
    }

    fn opened(
        &mut self,
        nexus: NexusId,
        (client, run): (ClientId, u64),
        path: Path,
        memory: Region,
    ) -> Option<FrontEvent> {
        let session = Session { client, path };
        self.clients.enter(client, path.peer, false);
        let view = self.view(&session)?;
        self.sessions.insert(nexus, session);
        let line = format!("{} connected over VISA", view.who);
        let initiator = TransportId::hyperscsi(client);
        Some(FrontEvent::NexusOpened(Box::new(NewNexus {
            nexus,
            ports: Arc::new(NexusPorts { initiator, target: VISA_PORT, principal: view.principal.clone() }),
            writer: writer(&[&client.0, &run.to_be_bytes()]),
            port: format!("{client},{run:010x}"),
            target: None,
            memory,
            view,
            // As of HyperSCSI's clients: a program that was killed says nothing, and may run again before it is missed.
            ends_own: true,
            line,
        })))
    }

    fn view(&self, session: &Session) -> Option<NexusView> {
        let Session { client, path } = session;
        Some(NexusView {
            units: self.clients.seen_by(*client, false)?,
            who: format!("{} at {}", self.clients.shown(*client, ""), path.peer),
            principal: session.principal(),
            address: path.peer.to_string(),
            is_read_only: false,
            weight: self.clients.memory_weight(*client, 0),
            locks_media: false,
        })
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
}

fn handle(command: CommandRef) -> CommandHandle {
    CommandHandle::new(command.nexus, command.number)
}

impl FrontEnd for Visa {
    fn name(&self) -> &'static str {
        NAME
    }

    fn poll_event(&mut self, now: Instant) -> Option<FrontEvent> {
        self.now = now;
        loop {
            if let Some(event) = self.events.pop_front().or_else(|| self.streams.poll_event()) {
                return Some(event);
            }
            let event = self.server.poll_event()?;
            let told = self.translate(event, now);
            if told.is_some() {
                return told;
            }
        }
    }

    fn events_waiting(&self) -> usize {
        self.events.len() + self.streams.events_waiting() + self.server.events_waiting()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        self.server.handle_timeout(now);
        self.streams.handle_timeout(&mut self.server, now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.server.poll_timeout().into_iter().chain(self.streams.poll_timeout()).min()
    }

    fn datagrams(&mut self) -> Option<&mut dyn DatagramEnd> {
        Some(self)
    }

    fn streams(&mut self) -> Option<&mut dyn StreamEnd> {
        Some(self)
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

    /// A request that has no memory keeps the others of its connection back by itself.
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

    fn admit(&mut self, stream: StreamId, login: Box<dyn PassedLogin>, admission: Admission, now: Instant) {
        let Ok(login) = (login as Box<dyn Any>).downcast::<Greeted>() else { return };
        let Greeted { peer, bytes } = *login;
        self.streams.add(stream, (peer, admission), &bytes, (&mut self.server, now));
        self.streams.take_input(stream, &mut self.server, now);
    }

    fn drop_nexuses(&mut self, selection: &NexusSelection, now: Instant) {
        match selection {
            NexusSelection::Of(principal) => {
                principal.parse().into_iter().for_each(|client| self.server.drop_client(client));
            }
            NexusSelection::Dropped(nexus) => self.server.drop_session(*nexus),
            // A connection whose place somebody else has.
            NexusSelection::One(nexus) => {
                self.streams.cut_admitted(*nexus, &mut self.server, now);
            }
            NexusSelection::With(_) => {}
        }
    }

    /// Drops the clients that are not served any more.
    fn terms_changed(&mut self, _now: Instant) {
        self.server.note_listed();
        let is_unwelcome = |session: &&Session| !self.clients.permits(session.path.peer, Some(session.client));
        let unwelcome = self.sessions.values().filter(is_unwelcome).map(|session| session.client);
        unwelcome.collect::<Vec<ClientId>>().into_iter().for_each(|client| self.server.drop_client(client));
        let views = self.sessions.iter().filter_map(|(nexus, session)| Some((*nexus, self.view(session)?)));
        let changed: Vec<_> = views.map(|(nexus, view)| FrontEvent::NexusChanged(nexus, view)).collect();
        self.events.extend(changed);
    }

    fn shut_down(&mut self, now: Instant) {
        self.server.admit_no_more();
        self.server.shut_down();
        self.streams.shut_down(&mut self.server, now);
    }

    fn is_drained(&self) -> bool {
        self.server.is_drained()
    }

    fn connections(&self) -> Vec<ConnectionStatus> {
        tallies::connections(&self.server)
    }

    fn dropped(&self) -> Vec<(&'static str, u64)> {
        self.server.counters().reasons().into_iter().chain([self.administration.dropped()]).collect()
    }

    fn links(&self) -> Vec<LinkState> {
        tallies::links(&self.server)
    }

    fn tallies(&self) -> Vec<Tally> {
        tallies::of(&self.server)
    }

    fn quotas(&self) -> Vec<Usage> {
        self.server.quotas().chain([self.streams.usage()]).collect()
    }
}

impl DatagramEnd for Visa {
    fn handle_input(&mut self, path: Path, packet: Arrival<'_>, now: Instant) {
        self.server.handle_input(path, packet.bytes(), now);
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<(Path, Packet)> {
        self.server.poll_transmit(now)
    }

    fn set_addresses(&mut self, _addresses: &[LinkAddress], _now: Instant) {}

    fn set_packet_max(&mut self, link: LinkId, of_port: usize) {
        self.server.set_link(link, packet_max_bytes(of_port));
    }
}

impl StreamEnd for Visa {
    fn spaces(&mut self, stream: StreamId) -> [&mut [u8]; 2] {
        [self.streams.space(stream, &self.server), &mut []]
    }

    fn filled(&mut self, stream: StreamId, count: usize, now: Instant) {
        self.streams.filled(stream, count);
        self.streams.take_input(stream, &mut self.server, now);
        self.now = now;
    }

    fn lost(&mut self, stream: StreamId, now: Instant) {
        self.streams.remove(stream).into_iter().for_each(|path| self.server.lost(path, now));
    }

    fn poll_ready(&mut self) -> Option<StreamId> {
        while let Some(path) = self.server.poll_stream(self.now) {
            if let Some(stream) = self.streams.of(path) {
                // There may be memory for what waits to be taken.
                self.streams.take_input(stream, &mut self.server, self.now);
                return Some(stream);
            }
        }
        None
    }

    fn poll_transmit(&mut self, stream: StreamId) -> Option<Packet> {
        self.server.poll_transmit_on(self.streams.path(stream)?, self.now).map(framed)
    }

    fn note_unsent(&mut self, stream: StreamId, unsent_bytes: usize) {
        if let Some(path) = self.streams.path(stream) {
            self.server.note_unsent(path, unsent_bytes, self.now);
        }
    }
}

/// The largest packet of a link, as the protocol counts it: 60 KiB of payload, header and tag.
fn packet_max_bytes(of_port: usize) -> u16 {
    of_port.min(60 * 1024 + 40) as u16
}
