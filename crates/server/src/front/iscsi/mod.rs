//! iSCSI in a shard: its sessions, and what the initiator of each of them sees.

pub(crate) mod copy_targets;
pub(crate) mod directory;
mod entrance;
mod login;
pub(crate) mod own_target;
pub(crate) mod redirection;
mod tallies;
pub(crate) mod target_node;
pub(crate) mod target_settings;
pub(crate) mod target_table;
mod whereabouts;

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use sanwire_buffer::{Packet, Region, Shortage};
use sanwire_core::limits::LONG_TRANSFER_MAX_BYTES;
use sanwire_core::quota::{ISCSI_COMMANDS_OF_SESSION, Usage};
use sanwire_core::{Instant, Lun, NexusId, Principal};
use sanwire_device::NexusPorts;
use sanwire_iscsi::{
    CommandHandle, ConnectionId, Directory, Function as Asked, IscsiName, Isid, ManageHandle, ManageOutcome as Outcome,
    PortalCarrier, Server, ServerConfig, ServerEvent, SessionStatus, TargetId,
};
use sanwire_scsi::Reply;
use sanwire_scsi::reservation::TransportId;

pub(crate) use sanwire_iscsi::{Authentication, ISCSI_PORT as PORT};

use self::login::Passed;
pub(crate) use self::login::{LOGIN_RESULTS, Logins, Spoken};
use self::target_node::iscsi_port;
use super::{
    Admission, Carried, ConnectionStatus, FrontBuilder, FrontEnd, FrontEvent, FrontParts, Function, LoginStatus,
    ManageOutcome, NewNexus, NexusSelection, NexusView, PassedLogin, StreamEnd, StreamId, Tally,
};
use crate::command::CommandRef;
use crate::error::StartError;
use crate::front::iscsi::copy_targets::Guest;
use crate::front::iscsi::directory::TargetNodes;
use crate::writes::writer;

/// What the shard calls this wire.
pub(crate) const NAME: &str = "iscsi";

/// Connections that were given up because they kept memory that others waited for, under the name that all wires have for it.
const HOARDERS: &str = "memory kept from others";

/// The server's end of iSCSI in one shard.
pub(crate) struct Iscsi {
    /// Its place among the front ends.
    front: u8,
    server: Server,
    targets: Arc<TargetNodes>,
    /// Resets after which the sessions of a target are dropped.
    cold_resets: BTreeMap<CommandRef, TargetId>,
    /// What is to be told besides what the protocol tells.
    events: VecDeque<FrontEvent>,
}

/// Prepares the end of a shard.
pub(crate) fn open(parts: &FrontParts<'_>) -> Result<FrontBuilder, StartError> {
    let config = ServerConfig {
        memory: parts.memory.clone(),
        directory: Arc::clone(parts.targets) as Arc<dyn Directory>,
        commands_max: ISCSI_COMMANDS_OF_SESSION.limit as u32,
        transfer_max_bytes: LONG_TRANSFER_MAX_BYTES as u32,
    };
    let targets = Arc::clone(parts.targets);
    Ok(Box::new(move |front| {
        Box::new(Iscsi {
            front,
            server: Server::new(config),
            targets,
            cold_resets: BTreeMap::new(),
            events: VecDeque::new(),
        })
    }))
}

/// A session that begins, by the words of the protocol.
struct Opened {
    nexus: NexusId,
    target: TargetId,
    initiator: IscsiName,
    isid: Isid,
    user: Option<String>,
    peer: IpAddr,
    group_tag: u16,
    memory: Region,
}

impl Iscsi {
    fn command(&self, handle: CommandHandle) -> CommandRef {
        CommandRef { front: self.front, nexus: handle.nexus(), number: handle.number() }
    }

    /// What the front end tells of what the protocol has told; `None` when the shard need not know.
    fn translate(&mut self, event: ServerEvent, now: Instant) -> Option<FrontEvent> {
        match event {
            ServerEvent::Command { handle, task, .. } => {
                Some(FrontEvent::Command { command: self.command(handle), task })
            }
            ServerEvent::Manage { handle, target, lun, function } => self.manage(handle, target, lun, function, now),
            ServerEvent::SessionOpened { nexus, target, initiator, isid, user, peer, group_tag, memory, .. } => {
                let opened = Opened { nexus, target, initiator, isid, user, peer, group_tag, memory };
                let event = self.session_opened(opened);
                if event.is_none() {
                    // The target went away during the login, or is for others now.
                    self.server.drop_session(nexus);
                }
                event
            }
            ServerEvent::SessionClosed { nexus, end, tsih } => {
                self.targets.guests().left(nexus);
                // Perhaps only its connection was lost, and it comes again.
                Some(FrontEvent::NexusClosed { nexus, session: Some(tsih), is_for_good: false, end })
            }
            ServerEvent::Broken { nexus, why } => Some(FrontEvent::Broken { nexus, why }),
            ServerEvent::Cut { connection } => Some(close(connection, true)),
            ServerEvent::Close { connection } => Some(close(connection, false)),
        }
    }

    fn session_opened(&mut self, opened: Opened) -> Option<FrontEvent> {
        let Opened { nexus, target, initiator, isid, user, peer, group_tag, memory } = opened;
        let export = self.targets.by_id(target)?;
        let shown = user.as_ref().map(|user| format!(" (user {user})")).unwrap_or_default();
        let credential = export.credential(user.as_deref());
        let guest = Guest { target, initiator: initiator.clone(), isid, credential, peer, group_tag };
        let (name, port) = (export.config.name.to_string(), guest.port(&export.config.name));
        self.targets.guests().came(nexus, guest.clone());
        // Who changes the target from now on finds it among those whose sessions end; what was changed before is seen here.
        self.targets.by_id(target).filter(|export| guest.may_stay(export))?;
        let id = TransportId::iscsi_port(initiator.as_str(), isid.0).ok()?;
        let principal = Principal {
            address: Some(peer.into()),
            initiator_name: Some(initiator.as_str().into()),
            chap_user: user.as_deref().map(Into::into),
            ..Principal::default()
        };
        let target = iscsi_port(&export.config.name, group_tag);
        let ports = NexusPorts { initiator: id, target, principal: principal.clone() };
        let event = NewNexus {
            nexus,
            writer: writer(&[ports.initiator.as_bytes()]),
            ports: Arc::new(ports),
            port,
            target: Some(name.clone()),
            memory,
            view: NexusView {
                units: Arc::clone(&export.units),
                who: format!("initiator {initiator} at {peer}"),
                principal,
                address: peer.to_string(),
                is_read_only: false,
                weight: 1,
                locks_media: false,
            },
            ends_own: false,
            line: format!("initiator {initiator}{shown}, port {isid}, connected to {name} from {peer}"),
        };
        Some(FrontEvent::NexusOpened(Box::new(event)))
    }

    fn manage(
        &mut self,
        handle: ManageHandle,
        target: TargetId,
        lun: Option<Lun>,
        function: Asked,
        now: Instant,
    ) -> Option<FrontEvent> {
        let request = CommandRef { front: self.front, nexus: handle.nexus(), number: handle.number() };
        let function = match function {
            Asked::AbortTask(command) => Function::AbortTask(self.command(command)),
            Asked::AbandonTask(command) => Function::AbandonTask(self.command(command)),
            Asked::AbortTaskSet => Function::AbortTaskSet(lun),
            Asked::ClearTaskSet => Function::ClearTaskSet(lun),
            Asked::LogicalUnitReset => Function::LogicalUnitReset(lun),
            Asked::NexusReset => Function::NexusReset,
            Asked::TargetReset { is_cold } => {
                let export = self.targets.by_id(target);
                let Some(units) = export.and_then(|export| export.may_reset(request.nexus, is_cold, now)) else {
                    self.server.managed(handle, Outcome::Rejected, now);
                    return None;
                };
                if is_cold {
                    self.cold_resets.insert(request, target);
                }
                Function::TargetReset(units)
            }
        };
        Some(FrontEvent::TaskManagement { request, function })
    }
}

fn close(connection: ConnectionId, is_at_once: bool) -> FrontEvent {
    FrontEvent::CloseStream { stream: StreamId(connection.0), is_at_once }
}

fn handle(command: CommandRef) -> CommandHandle {
    CommandHandle::new(command.nexus, command.number)
}

/// As [`LoginStatus::iser_path`].
fn iser_path(carrier: PortalCarrier) -> Option<&'static str> {
    match carrier {
        PortalCarrier::Tcp => None,
        PortalCarrier::Iwarp => Some("tcp"),
        PortalCarrier::Adapter => Some("rdma"),
    }
}

impl FrontEnd for Iscsi {
    fn name(&self) -> &'static str {
        NAME
    }

    fn iser_path(&self, nexus: NexusId) -> Option<&'static str> {
        self.server.portal(nexus).and_then(|portal| iser_path(portal.carrier))
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

    fn events_waiting(&self) -> usize {
        self.events.len() + self.server.events_waiting()
    }

    fn handle_timeout(&mut self, now: Instant) {
        // Also when nothing is due: memory may have been released.
        self.server.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.server.poll_timeout()
    }

    fn streams(&mut self) -> Option<&mut dyn StreamEnd> {
        Some(&mut self.server)
    }

    fn reply(&mut self, command: CommandRef, reply: Option<Reply>, now: Instant) {
        match reply {
            Some(reply) => self.server.reply(handle(command), reply, now),
            None => self.server.aborted(handle(command), now),
        }
    }

    fn managed(&mut self, request: CommandRef, outcome: ManageOutcome, now: Instant) {
        let outcome = match outcome {
            ManageOutcome::Complete => Outcome::Complete,
            ManageOutcome::NoLogicalUnit => Outcome::NoLogicalUnit,
            ManageOutcome::Rejected => Outcome::Rejected,
        };
        self.server.managed(ManageHandle::new(request.nexus, request.number), outcome, now);
        if let Some(target) = self.cold_resets.remove(&request) {
            // Its own end does so only for a session that is still there.
            self.events.push_back(FrontEvent::Drop(NexusSelection::With(target.0)));
        }
    }

    fn hold_back(&mut self, commands: &[CommandRef], now: Instant) {
        // Of the session's commands for other logical units data is asked for.
        let own = commands.iter().filter(|command| command.front == self.front);
        let commands: Vec<CommandHandle> = own.map(|command| handle(*command)).collect();
        self.server.hold_back(&commands, now);
    }

    fn is_starved(&self) -> bool {
        self.server.is_starved()
    }

    fn starving(&self) -> Box<dyn Iterator<Item = (NexusId, &Region)> + '_> {
        Box::new(self.server.starving())
    }

    fn relieve(&mut self, shortage: &Shortage, now: Instant) {
        self.server.drop_hoards(shortage, now);
    }

    fn give_memory_back(&mut self, now: Instant) -> bool {
        self.server.relieve(now)
    }

    fn admit(&mut self, stream: StreamId, login: Box<dyn PassedLogin>, admission: Admission, now: Instant) {
        let Ok(login) = (login as Box<dyn Any>).downcast::<Passed>() else { return };
        let Admission { session: tsih, nexus } = admission;
        self.server.admit(ConnectionId(stream.0), *login.0, sanwire_iscsi::Admission { tsih, nexus }, now);
    }

    fn drop_nexuses(&mut self, selection: &NexusSelection, now: Instant) {
        match selection {
            NexusSelection::One(nexus) => self.server.cut_session(*nexus, now),
            NexusSelection::Dropped(nexus) => self.server.drop_session(*nexus),
            NexusSelection::With(target) => self.server.drop_target(TargetId(*target), now),
            NexusSelection::Of(principal) => {
                if let Ok(initiator) = principal.parse() {
                    self.server.drop_initiator(&initiator);
                }
            }
        }
    }

    fn redirect(&mut self, target: u32, now: Instant) {
        self.server.move_target(TargetId(target), now);
    }

    fn shut_down(&mut self, now: Instant) {
        self.server.shut_down(now);
    }

    fn connections(&self) -> Vec<ConnectionStatus> {
        let count = |status: SessionStatus<'_>| {
            let SessionStatus { nexus, connections: links, portal, user, digests, movement, adapter } = status;
            let shown = [("chap", user.is_some()), ("header digest", digests.header), ("data digest", digests.data)];
            let shown: Vec<&str> = shown.into_iter().filter(|(_, is_so)| *is_so).map(|(name, _)| name).collect();
            let security = if shown.is_empty() { "none".to_owned() } else { shown.join(", ") };
            let iser_path = iser_path(portal.carrier);
            let portal = format!("{},{}", portal.address, portal.group_tag);
            let login = Some(LoginStatus { portal, user: user.map(str::to_owned), iser_path, adapter });
            ConnectionStatus { nexus, links, security, login, packets: None, movement: Some(movement) }
        };
        self.server.session_statuses().map(count).collect()
    }

    fn dropped(&self) -> Vec<(&'static str, u64)> {
        vec![(HOARDERS, self.server.hoards_dropped())]
    }

    fn tallies(&self) -> Vec<Tally> {
        tallies::of(&self.server)
    }

    fn quotas(&self) -> Vec<Usage> {
        self.server.quotas().into()
    }
}

impl StreamEnd for Server {
    fn spaces(&mut self, stream: StreamId) -> [&mut [u8]; 2] {
        Server::spaces(self, ConnectionId(stream.0))
    }

    fn filled(&mut self, stream: StreamId, count: usize, now: Instant) {
        Server::filled(self, ConnectionId(stream.0), count, now);
    }

    fn lost(&mut self, stream: StreamId, now: Instant) {
        self.connection_lost(ConnectionId(stream.0), now);
    }

    fn poll_ready(&mut self) -> Option<StreamId> {
        Server::poll_ready(self).map(|connection| StreamId(connection.0))
    }

    fn poll_transmit(&mut self, stream: StreamId) -> Option<Packet> {
        Server::poll_transmit(self, ConnectionId(stream.0))
    }

    fn note_unsent(&mut self, stream: StreamId, unsent_bytes: usize) {
        Server::note_unsent(self, ConnectionId(stream.0), unsent_bytes);
    }

    fn handle_ready(&mut self, stream: StreamId, now: Instant) {
        Server::handle_ready(self, ConnectionId(stream.0), now);
    }

    fn carried(&self, stream: StreamId) -> Option<Carried> {
        let connection = ConnectionId(stream.0);
        let sanwire_iscsi::Carried { received_bytes, sent_bytes } = Server::carried(self, connection)?;
        Some(Carried { received_bytes, sent_bytes, is_all_sent: self.is_all_sent(connection) })
    }

    fn note_segment(&mut self, stream: StreamId, segment_bytes: usize) {
        self.note_segment_bytes(ConnectionId(stream.0), segment_bytes);
    }
}

#[cfg(test)]
mod tests;
