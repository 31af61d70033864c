//! iSCSI in a shard: its connections and sessions.

mod management;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use sanwire_buffer::Region;
use sanwire_core::{Instant, NexusId};
use sanwire_device::{LogicalUnits, NexusPorts, Seat};
use sanwire_engine::{Meter, Which};
use sanwire_io::{Poller, Ready};
use sanwire_iscsi::{CommandHandle, ManageHandle, Server, ServerConfig as ProtocolConfig, ServerEvent, TargetId};
use sanwire_scsi::Reply;
use sanwire_scsi::reservation::TransportId;

use super::Shard;
use crate::command::{self, Selection};
use crate::copy_targets::Guest;
use crate::counting::{User, Uses};
use crate::directory::TargetNodes;
use crate::logging::LogLines;
use crate::login_listener::{Arrival, turn_away};
use crate::messages::{ShardMessage, Wanted};
use crate::past_uses::Host;
use crate::registry::Registry;
use crate::streams::Streams;
use crate::wire::iscsi_port;
use crate::writes::writer;

/// Commands between two waits that are few. Who has so few under way waits for each answer and comes again after a round
/// trip, which has a wake-up in it at the other end: longer than that is watched for, and the wake-up at this end spared.
const FEW_COMMANDS: u32 = 2;
const FEW_SPIN: Duration = Duration::from_micros(100);
/// Many commands come without a pause, or with one that lets the next batch grow.
const MANY_SPIN: Duration = Duration::from_micros(20);

/// So many commands at once are answered in parts, so that the initiator works on the first answers while we make the next,
/// instead of each end waiting for the other's whole batch.
const CROWD_COMMANDS: usize = 24;
const PART_COMMANDS: usize = 8;
/// Longer answers keep both ends busy anyhow, and are sent with fewer calls.
const PART_MAX_BYTES: usize = PART_COMMANDS * (16 << 10);

/// What a session sees, and as whom.
struct Session {
    units: Arc<LogicalUnits>,
    ports: Arc<NexusPorts>,
    host: Host,
    uses: Uses,
    /// Its share of the memory.
    memory: Region,
}

impl Session {
    fn seat(&self) -> Seat<'_> {
        Seat { units: &self.units, memory: &self.memory, weight: 1 }
    }
}

/// The target's end of iSCSI in one shard.
pub(super) struct IscsiEnd {
    pub(super) server: Server,
    streams: Streams,
    sessions: BTreeMap<NexusId, Session>,
    /// Resets after which the sessions of a target are dropped.
    cold_resets: BTreeMap<ManageHandle, TargetId>,
    exports: Arc<TargetNodes>,
    registry: Arc<Registry>,
    /// Events since the last wait, nearly all of them commands.
    events: u32,
}

impl IscsiEnd {
    pub(super) fn new(config: ProtocolConfig, exports: Arc<TargetNodes>, registry: Arc<Registry>) -> Self {
        IscsiEnd {
            server: Server::new(config),
            streams: Streams::default(),
            sessions: BTreeMap::new(),
            cold_resets: BTreeMap::new(),
            exports,
            registry,
            events: 0,
        }
    }

    fn admit(&mut self, arrival: Arrival, poller: &mut Poller, lines: &mut LogLines, now: Instant) {
        let Arrival { stream, admitted, admission, seat } = arrival;
        if admitted.request.tsih == 0 && self.registry.has_lost_place(&admission) {
            turn_away(stream, &admitted);
            return self.registry.closed(admission.nexus, admission.tsih);
        }
        match self.streams.add(stream, seat, poller, now) {
            Ok(id) => self.server.admit(id, *admitted, admission, now),
            Err((stream, error)) => {
                let (initiator, peer) = (&admitted.initiator, admitted.peer);
                lines.warn(format_args!("{initiator} at {peer} is turned away: {error}"), now);
                turn_away(*stream, &admitted);
                // A further connection of a session takes nothing with it.
                if admitted.request.tsih == 0 {
                    self.registry.closed(admission.nexus, admission.tsih);
                }
            }
        }
    }

    /// The sessions that have used volumes.
    pub(super) fn users(&self) -> impl Iterator<Item = User> {
        let users = self.sessions.values().filter(|session| session.uses != Uses::default());
        users.map(|Session { host, uses, .. }| User::of_target(host, *uses))
    }

    /// Another volume has this slot now.
    pub(super) fn forget_uses(&mut self, slot: u16) {
        self.sessions.values_mut().for_each(|session| session.uses.clear(slot));
    }

    pub(super) fn receive(&mut self, poller: &mut Poller, now: Instant) -> io::Result<usize> {
        self.streams.receive(&mut self.server, poller, now)
    }

    /// How long the hot streams are worth trying before the shard sleeps.
    pub(super) fn spin(&mut self) -> Duration {
        if std::mem::take(&mut self.events) <= FEW_COMMANDS { FEW_SPIN } else { MANY_SPIN }
    }

    /// How many of the commands that are there are executed before their answers are sent.
    fn part_commands(&self) -> usize {
        if self.server.events_waiting() >= CROWD_COMMANDS { PART_COMMANDS } else { usize::MAX }
    }

    /// See [`Streams::is_hot`].
    pub(super) fn is_hot(&self) -> bool {
        self.streams.is_hot()
    }

    pub(super) fn receive_hot(&mut self, now: Instant) -> usize {
        self.streams.receive_hot(&mut self.server, now)
    }

    /// Whether something has happened that waits to be polled.
    pub(super) fn has_events(&self) -> bool {
        self.server.events_waiting() > 0
    }

    /// Takes note of why the shard has woken.
    pub(super) fn note(&mut self, ready: Ready) {
        if ready.streams {
            self.streams.ask();
        }
    }

    pub(super) fn transmit(&mut self, poller: &mut Poller, now: Instant) -> usize {
        self.streams.transmit(&mut self.server, poller, now)
    }

    pub(super) fn handle_timeout(&mut self, poller: &mut Poller, now: Instant) {
        if self.server.poll_timeout().is_some_and(|at| at <= now) {
            self.server.handle_timeout(now);
        }
        self.streams.handle_timeout(&mut self.server, poller, now);
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.server.poll_timeout().into_iter().chain(self.streams.poll_timeout()).min()
    }

    pub(super) fn poll_event(&mut self) -> Option<ServerEvent> {
        let event = self.server.poll_event();
        self.events = self.events.saturating_add(event.is_some().into());
        event
    }

    pub(super) fn answer(&mut self, handle: CommandHandle, reply: Option<Reply>, now: Instant) {
        match reply {
            Some(reply) => self.server.reply(handle, reply, now),
            None => self.server.aborted(handle, now),
        }
    }

    pub(super) fn shut_down(&mut self, now: Instant) {
        self.server.shut_down(now);
    }

    /// Whether all connections are closed.
    pub(super) fn is_drained(&self) -> bool {
        self.streams.is_empty()
    }
}

impl Shard {
    pub(super) fn read_mail(&mut self, now: Instant) {
        while let Ok(mail) = self.mail.try_recv() {
            match mail {
                ShardMessage::Admit(arrival) => {
                    self.iscsi.admit(*arrival, &mut self.poller, &mut self.lines.sessions, now)
                }
                ShardMessage::Look(newcomer) => {
                    self.iscsi.streams.ask_now();
                    self.newcomers.push(newcomer);
                }
                ShardMessage::Abort(selection, barrier) => {
                    self.engine.abort(&selection, Some(&barrier));
                    self.answer(now);
                }
                ShardMessage::BarrierPassed(Wanted::By(request)) => self.managed(request, now),
                ShardMessage::BarrierPassed(Wanted::ByClient(request)) => self.server.managed(request, true, now),
                ShardMessage::BarrierPassed(Wanted::ByCommand(number)) => self.engine.barrier_passed(number, now),
                ShardMessage::MoveTarget(target) => self.iscsi.server.move_target(target, now),
                ShardMessage::DropTarget(target) => self.iscsi.server.drop_target(target, now),
                ShardMessage::Pause(client, is_paused) => self.server.pause(client, is_paused, now),
                ShardMessage::DropClient(client) => self.drop_client(client, now),
                ShardMessage::DropInitiator(initiator) => self.iscsi.server.drop_initiator(&initiator),
                ShardMessage::ClientsConfig => self.apply_terms(now),
                ShardMessage::DemandsMore(lun, than) => self.server.unit_demands_more(lun, than, now),
                ShardMessage::CutSession(nexus) => self.iscsi.server.cut_session(nexus, now),
                // Who has asked may have lost patience.
                ShardMessage::Count(answer) => drop(answer.send(self.count())),
                ShardMessage::Administered(handle, answer) => {
                    self.server.administered(handle, Some(answer.into()), now)
                }
                ShardMessage::CountFromZero(slot) => {
                    self.counters.clear(slot);
                    self.visitors.forget_uses(slot);
                    self.iscsi.forget_uses(slot);
                }
                ShardMessage::Reopened(reopened) => {
                    self.links.take(reopened);
                    self.tell_addresses(now);
                }
            }
        }
    }

    /// Executes what was received, and answers it.
    pub(super) fn handle_iscsi_events(&mut self, now: Instant) {
        let part = self.iscsi.part_commands();
        let mut handled = 0usize;
        while let Some(event) = self.iscsi.poll_event() {
            self.handle_iscsi_event(event, now);
            handled += 1;
            if handled.is_multiple_of(part) && self.answers_bytes() <= PART_MAX_BYTES {
                self.answer(now);
                self.iscsi.transmit(&mut self.poller, now);
            }
        }
    }

    /// Data of the answers that are to be given.
    fn answers_bytes(&self) -> usize {
        let data = self.engine.ended().filter_map(|ended| ended.reply.as_ref()?.data_in.as_ref());
        data.map(|data| data.len()).sum()
    }

    fn handle_iscsi_event(&mut self, event: ServerEvent, now: Instant) {
        match event {
            ServerEvent::Command { handle, task, .. } if task.is_further_piece() => {
                if let Some(session) = self.iscsi.sessions.get(&handle.nexus()) {
                    let handle = command::CommandHandle::Iscsi(handle);
                    self.engine.go_on_with_piece(handle, session.seat(), task, now);
                }
            }
            ServerEvent::Command { handle, task, .. } => {
                // A session whose target went away meanwhile gets no answers.
                if let Some(session) = self.iscsi.sessions.get_mut(&handle.nexus()) {
                    let meter = Meter::start(&session.units, &task, now);
                    self.past_uses.note(&mut session.uses, &session.host, &session.units, &meter, &task);
                    self.engine.begin(command::CommandHandle::Iscsi(handle), meter, session.seat(), task, now);
                }
            }
            ServerEvent::Manage { handle, target, lun, function } => self.manage(handle, target, lun, function, now),
            ServerEvent::SessionOpened { nexus, target, initiator, isid, user, peer, group_tag, memory, .. } => {
                let shown = user.as_ref().map(|user| format!(" (user {user})")).unwrap_or_default();
                let line = format_args!("initiator {initiator}{shown}, port {isid}, connected from {peer}");
                self.lines.sessions.info(line, now);
                let session = self.iscsi.exports.by_id(target).and_then(|export| {
                    let credential = export.credential(user.as_deref());
                    let guest = Guest { target, initiator: initiator.clone(), isid, credential, peer, group_tag };
                    self.iscsi.exports.guests().came(nexus, guest);
                    let target = export.config.name.to_string();
                    let port = format!("{initiator},{isid},{target}");
                    let who = format!("initiator {initiator} at {peer}");
                    let host = Host { port, who, target: Some(target), address: None };
                    let initiator = TransportId::iscsi_port(initiator.as_str(), isid.0).ok()?;
                    let ports = NexusPorts { initiator, target: iscsi_port(&export.config.name, group_tag) };
                    let (units, ports) = (Arc::clone(&export.units), Arc::new(ports));
                    let uses = self.past_uses.came(&host, &units);
                    Some(Session { units, ports, host, uses, memory })
                });
                match session {
                    Some(session) => {
                        session.units.nexus_established(nexus, Arc::clone(&session.ports));
                        session.units.name_writer(nexus, writer(&[session.ports.initiator.as_bytes()]));
                        self.iscsi.sessions.insert(nexus, session);
                    }
                    // The target went away during the login.
                    None => self.iscsi.server.drop_target(target, now),
                }
            }
            ServerEvent::SessionClosed { nexus, tsih } => {
                self.iscsi.exports.guests().left(nexus);
                if let Some(Session { units, host, .. }) = self.iscsi.sessions.remove(&nexus) {
                    // Perhaps only its connection was lost, and it comes again.
                    self.past_uses.left(&host, false);
                    self.lines.sessions.info(format_args!("a session of {} is over", host.who), now);
                    let own = Selection { by: nexus, which: Which::Own };
                    self.engine.leave(&own, None);
                    units.nexus_lost(nexus);
                }
                // From now on its port may have its next session in another shard.
                self.iscsi.registry.closed(nexus, tsih);
            }
            ServerEvent::Cut { connection } => self.iscsi.streams.cut(connection),
            ServerEvent::Close { connection } => {
                self.iscsi.streams.close(connection, &mut self.iscsi.server, &mut self.poller, now);
            }
        }
    }
}
