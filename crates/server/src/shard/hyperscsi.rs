//! HyperSCSI in a shard: its clients, and what each of them sees.

use std::collections::BTreeMap;
use std::sync::Arc;

use sanwire_buffer::Region;
use sanwire_core::text::printable;
use sanwire_core::{ClientId, Instant, Lun, NexusId, Path};
use sanwire_device::{LogicalUnits, NexusPorts, Seat};
use sanwire_engine::{Meter, Which};
use sanwire_hyperscsi::{Agreed, CommandHandle, ServerEvent};
use sanwire_scsi::reservation::TransportId;

use super::Shard;
use crate::clients::Clients;
use crate::command::{self, Selection};
use crate::counting::{Access, Counted, User, Uses};
use crate::manage::{NOT_PERMITTED, REQUEST_MAX_BYTES, Response};
use crate::management_queue::{Content, ManagementQueue, QueuedRequest};
use crate::messages::Wanted;
use crate::past_uses::Host;
use crate::wire::HYPERSCSI_PORT;
use crate::writes::writer;

/// A client that has a session.
struct Visitor {
    client: ClientId,
    host: Host,
    /// Where it is, by the handshake of its connection.
    path: Path,
    /// It wants to write nothing.
    is_read_only: bool,
    units: Arc<LogicalUnits>,
    uses: Uses,
    /// Its share of the memory, and how much of what comes free it has beside others.
    memory: Region,
    priority: u8,
    weight: u32,
}

impl Visitor {
    fn seat(&self) -> Seat<'_> {
        Seat { units: &self.units, memory: &self.memory, weight: self.weight }
    }
}

/// The clients that have sessions in this shard.
pub(super) struct Visitors {
    clients: Arc<Clients>,
    inbox: ManagementQueue,
    by_nexus: BTreeMap<NexusId, Visitor>,
}

impl Visitors {
    pub(super) fn new(clients: Arc<Clients>, inbox: ManagementQueue) -> Self {
        Visitors { clients, inbox, by_nexus: BTreeMap::new() }
    }

    /// A client goes on with its session from here: whether it may is asked by its address.
    fn moved(&mut self, nexus: NexusId, path: Path) {
        let Some(visitor) = self.by_nexus.get_mut(&nexus) else { return };
        visitor.path = path;
        // What it may see may depend on the address too.
        self.clients.enter(visitor.client, path.peer, visitor.is_read_only);
        self.clients.leave(visitor.client, visitor.is_read_only);
    }

    /// The terms have changed.
    fn refresh_weights(&mut self) {
        for visitor in self.by_nexus.values_mut() {
            visitor.weight = self.clients.memory_weight(visitor.client, visitor.priority);
        }
    }

    /// The sessions that have used volumes.
    fn users(&self) -> impl Iterator<Item = User> {
        let users = self.by_nexus.values().filter(|visitor| visitor.uses != Uses::default());
        users.map(|Visitor { client, path, uses, is_read_only, .. }| {
            let who = self.shown(*client, *path);
            let access = Access::HyperScsi { client: *client, peer: path.peer, is_read_only: *is_read_only };
            User { who, access, uses: *uses }
        })
    }

    fn host(&self, client: ClientId, run: u64, path: Path) -> Host {
        let (port, address) = (format!("{client},{run:016x}"), Some(path.peer.to_string()));
        Host { port, who: self.shown(client, path), target: None, address }
    }

    /// A client, for people.
    fn shown(&self, client: ClientId, path: Path) -> String {
        let known = self.clients.find(&client.to_string()).ok().filter(|known| !known.name.is_empty());
        let name = known.map(|known| format!(" ({})", known.name)).unwrap_or_default();
        format!("client {client}{name} at {}", path.peer)
    }

    /// Another volume has this slot now.
    pub(super) fn forget_uses(&mut self, slot: u16) {
        self.by_nexus.values_mut().for_each(|visitor| visitor.uses.clear(slot));
    }

    /// What was agreed on with a client has changed.
    fn take_options(&mut self, nexus: NexusId, options: &Agreed) {
        let Some(visitor) = self.by_nexus.get_mut(&nexus) else { return };
        if options.peer_is_read_only != visitor.is_read_only {
            let before = std::mem::replace(&mut visitor.is_read_only, options.peer_is_read_only);
            let units = self.clients.enter(visitor.client, visitor.path.peer, visitor.is_read_only);
            visitor.units.hand_over(&units, nexus);
            visitor.units = units;
            self.clients.leave(visitor.client, before);
        }
        visitor.units.lock_media(nexus, options.medium_lock);
        visitor.priority = options.priority;
        visitor.weight = self.clients.memory_weight(visitor.client, visitor.priority);
    }
}

impl Shard {
    pub(super) fn handle_event(&mut self, event: ServerEvent, now: Instant) {
        match event {
            ServerEvent::Command { handle, task } => {
                let Some(visitor) = self.visitors.by_nexus.get_mut(&handle.nexus()) else { return };
                let meter = Meter::start(&visitor.units, &task, now);
                self.past_uses.note(&mut visitor.uses, &visitor.host, &visitor.units, &meter, &task);
                self.engine.begin(command::CommandHandle::HyperScsi(handle), meter, visitor.seat(), task, now);
            }
            ServerEvent::Administer { handle, request, room_bytes } => {
                let json = request.map_or_else(Vec::new, |request| request.to_vec());
                self.administer(handle, json, room_bytes, now);
            }
            ServerEvent::Abort { handle } => {
                let which = Which::Command(command::CommandHandle::HyperScsi(handle));
                self.engine.abort(&Selection { by: handle.nexus(), which }, None);
            }
            ServerEvent::Reset { handle, lun } => {
                if self.reset(handle, lun, now).is_none() {
                    self.server.managed(handle, false, now);
                }
            }
            ServerEvent::SessionOpened { nexus, client, run, name, path, options, memory } => {
                let name = printable(&name);
                self.lines.sessions.info(format_args!("client {client} ({name}) connected from {path}"), now);
                self.succeed_runs(client, nexus);
                let is_read_only = options.peer_is_read_only;
                let units = self.visitors.clients.enter(client, path.peer, is_read_only);
                let initiator = TransportId::hyperscsi(client);
                let ports = Arc::new(NexusPorts { initiator, target: HYPERSCSI_PORT });
                units.nexus_established(nexus, ports);
                units.name_writer(nexus, writer(&[&client.0, &run.to_be_bytes()]));
                units.lock_media(nexus, options.medium_lock);
                let host = self.visitors.host(client, run, path);
                let (priority, uses) = (options.priority, self.past_uses.came(&host, &units));
                let weight = self.visitors.clients.memory_weight(client, priority);
                let visitor = Visitor { client, host, path, is_read_only, units, uses, memory, priority, weight };
                self.visitors.by_nexus.insert(nexus, visitor);
            }
            ServerEvent::SessionResumed { nexus, path, options } => {
                self.visitors.moved(nexus, path);
                self.visitors.take_options(nexus, &options);
            }
            ServerEvent::Disconnected { nexus } => self.withdraw(nexus, now),
            ServerEvent::Held { nexus, is_held } => self.engine.withhold(nexus, is_held),
            ServerEvent::Options { nexus, options } => self.visitors.take_options(nexus, &options),
            ServerEvent::Refused { offence, client, path, count } => {
                let who = client.map_or_else(|| "somebody".to_owned(), |client| format!("client {client}"));
                let lines = self.lines.about(offence.is_proven());
                lines.warn(format_args!("{who} at {path} is refused: {offence} ({count} within a second)"), now);
                // What cannot be written down was counted.
                let (address, content) = (path.peer.to_string(), Content::SecurityEvent(offence, count));
                self.visitors.inbox.put(QueuedRequest { client, address, content });
            }
            ServerEvent::SessionClosed { nexus } => {
                let Some(visitor) = self.visitors.by_nexus.remove(&nexus) else { return };
                self.lines.sessions.info(format_args!("a session of client {} is over", visitor.client), now);
                // It has left, or was away for longer than clients come back after.
                self.past_uses.left(&visitor.host, true);
                let own = Selection { by: nexus, which: Which::Own };
                self.engine.leave(&own, None);
                self.engine.withhold(nexus, false);
                visitor.units.nexus_lost(nexus);
                self.visitors.clients.leave(visitor.client, visitor.is_read_only);
            }
        }
    }

    /// A program that was killed says nothing, and may run again before it is missed here: what it has under way must not come
    /// after what its next run writes. Programs of the client that live lose no more by it than their turn for memory, and give what is ended
    /// again.
    fn succeed_runs(&mut self, client: ClientId, by: NexusId) {
        for (nexus, _) in self.visitors.by_nexus.iter().filter(|(_, visitor)| visitor.client == client) {
            self.engine.keep_blocks(*nexus, by);
        }
    }

    /// What a session without a connection waits for memory with is not begun before it is asked again.
    fn withdraw(&mut self, nexus: NexusId, now: Instant) {
        if self.server.is_connected(nexus) {
            return;
        }
        for command in self.engine.withdraw_starved(nexus) {
            if let command::CommandHandle::HyperScsi(handle) = command {
                self.server.withdraw(handle, now);
            }
        }
    }

    /// Resets a logical unit and ends its commands, of whomever they are; `None` when there is no such unit, or it may not be reset.
    fn reset(&mut self, request: CommandHandle, lun: Option<Lun>, now: Instant) -> Option<()> {
        let by = request.nexus();
        let units = &self.visitors.by_nexus.get(&by)?.units;
        let disk = units.may_reset(by, lun?, now)?;
        units.logical_unit_reset(lun?);
        self.abort_everywhere(Wanted::ByClient(request), &Selection { by, which: Which::On(vec![disk]) });
        Some(())
    }

    /// Passes on a request to manage the server, of a client that may. No shard works on one itself.
    fn administer(&mut self, handle: CommandHandle, json: Vec<u8>, room_bytes: u32, now: Instant) {
        let Some(visitor) = self.visitors.by_nexus.get(&handle.nexus()) else { return };
        let (client, address) = (visitor.client, visitor.path.peer.to_string());
        let home = self.shards[self.index].clone();
        let refusal = if !self.visitors.clients.may_manage(client) {
            self.unpermitted += 1;
            // What cannot be written down was counted.
            self.visitors.inbox.put(QueuedRequest { client: Some(client), address, content: Content::Attempt });
            let verb = if self.visitors.clients.is_listed(client) { "set-client" } else { "add-client" };
            format!("{NOT_PERMITTED}: `sanwire ctl {verb} {client} --manage` on its host permits it")
        } else if json.len() > REQUEST_MAX_BYTES {
            "the request is too long".to_owned()
        } else {
            let content = Content::Request { json, room_bytes, handle, home };
            if self.visitors.inbox.put(QueuedRequest { client: Some(client), address, content }) {
                return;
            }
            "the server has too many other requests to do, or is not managed: ask again".to_owned()
        };
        let answer = Response::Refused(refusal).to_json(room_bytes);
        self.server.administered(handle, Some(answer.into()), now);
    }

    /// Drops the clients that are not served any more, and shares windows by the terms that hold now.
    pub(super) fn apply_terms(&mut self, now: Instant) {
        let visitors = self.visitors.by_nexus.values();
        let is_unwelcome = |visitor: &&Visitor| !self.visitors.clients.permits(visitor.path.peer, Some(visitor.client));
        let unwelcome: Vec<ClientId> = visitors.filter(is_unwelcome).map(|visitor| visitor.client).collect();
        unwelcome.into_iter().for_each(|client| self.drop_client(client, now));
        self.visitors.refresh_weights();
        self.server.refresh_options(now);
        self.server.share_windows(now);
    }

    pub(super) fn drop_client(&mut self, client: ClientId, now: Instant) {
        tracing::info!("client {client} is dropped");
        self.server.drop_client(client, now);
    }

    /// What this shard has counted.
    pub(super) fn count(&self) -> Counted {
        let mut dropped = self.server.counters();
        dropped.hoarders += self.iscsi.server.hoards_dropped();
        Counted {
            shard: self.index,
            volumes: self.counters.volumes(),
            connections: self.server.connection_statuses(),
            users: self.visitors.users().chain(self.iscsi.users()).collect(),
            dropped,
            quotas: (self.server.quotas().into_iter())
                .chain(self.iscsi.server.quotas())
                .chain(self.lines.usages())
                .collect(),
            unpermitted: self.unpermitted,
        }
    }
}
