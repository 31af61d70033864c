//! What front ends tell: nexuses that come and go, and their commands.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sanwire_core::{Instant, NexusId, SessionEnd};
use sanwire_device::NexusPorts;
use sanwire_engine::{Meter, NexusCount, Notice, Which};
use sanwire_scsi::Task;

use super::Shard;
use super::nexuses::Nexus;
use super::system::System;
use crate::client_counts::{ClientLink, MovedByVolume};
use crate::command::{CommandRef, Selection};
use crate::counting::{CommandUnderWay, ConnectionCount, Counted, User, WireCount};
use crate::events::Happening;
use crate::front::{
    ConnectionStatus, FrontEnd, FrontEvent, LinkState, NewNexus, NexusView, Offence, StreamEnds, Tally, TallyFamily,
    TallyOf,
};
use crate::management_queue::{Content, QueuedRequest};
use crate::messages::ShardMessage;
use crate::past_uses::Host;
use crate::sessions::SessionCount;
use crate::streams::ByteCount;

/// So many commands at once are answered in parts, so that the initiator works on the first answers while we make the next,
/// instead of each end waiting for the other's whole batch.
const CROWD_COMMANDS: usize = 24;
const PART_COMMANDS: usize = 8;
/// Longer answers keep both ends busy anyhow, and are sent with fewer calls.
const PART_MAX_BYTES: usize = PART_COMMANDS * (16 << 10);

impl<S: System> Shard<S> {
    /// Executes what was received. Of many commands some are answered before the others are begun.
    pub(super) fn handle_events(&mut self, now: Instant) {
        for place in 0..self.fronts.count() {
            let has_streams = self.fronts.end(place).is_some();
            let is_crowd = self.fronts.get(place).is_some_and(|front| front.events_waiting() >= CROWD_COMMANDS);
            let mut handled = 0usize;
            while let Some(event) = self.fronts.get(place).and_then(|front| front.poll_event(now)) {
                if has_streams {
                    self.streams.note_event();
                }
                self.handle_event(place, event, now);
                handled += 1;
                if is_crowd && handled.is_multiple_of(PART_COMMANDS) && self.answers_bytes() <= PART_MAX_BYTES {
                    self.answer(now);
                    self.transmit_streams(now);
                }
            }
        }
    }

    /// Data of the answers that are to be given.
    fn answers_bytes(&self) -> usize {
        let data = self.engine.ended().filter_map(|ended| ended.reply.as_ref()?.data_in.as_ref());
        data.map(|data| data.len()).sum()
    }

    fn handle_event(&mut self, front: u8, event: FrontEvent, now: Instant) {
        match event {
            FrontEvent::Command { command, task } => self.begin(command, task, now),
            FrontEvent::Abort(command) => {
                self.engine.abort(&Selection { by: command.nexus, which: Which::Command(command) }, None);
            }
            FrontEvent::TaskManagement { request, function } => self.manage(request, function, now),
            FrontEvent::NexusOpened(opened) => self.open_nexus(front, *opened, now),
            FrontEvent::NexusChanged(id, view) => self.change_nexus(id, view, now),
            FrontEvent::NexusClosed { nexus, session, is_for_good, end } => {
                self.close_nexus(nexus, is_for_good, end, now);
                if let Some(session) = session {
                    // From now on its port may have its next session in another shard.
                    self.registry.closed(nexus, session);
                }
            }
            FrontEvent::Disconnected(nexus) => {
                if let Some(Nexus { host, .. }) = self.nexuses.get(nexus) {
                    let line = format_args!("{} has lost its connection, session {:x} waits for it", host.who, nexus.0);
                    self.lines.sessions.info(line, now);
                }
                for command in self.engine.withdraw_starved(nexus) {
                    if let Some(front) = self.fronts.get(command.front) {
                        front.withdrawn(command, now);
                    }
                }
            }
            FrontEvent::Broken { nexus, why } => {
                if let Some(Nexus { host, .. }) = self.nexuses.get(nexus) {
                    let line = format_args!("{} has lost a connection of session {:x}: {why}", host.who, nexus.0);
                    self.lines.sessions.info(line, now);
                }
            }
            FrontEvent::Held { nexus, is_held } => self.engine.withhold(nexus, is_held),
            FrontEvent::Drop(selection) => {
                self.fronts.iter_mut().for_each(|front| front.drop_nexuses(&selection, now));
                let others = self.shards.iter().enumerate().filter(|(index, _)| *index != self.index);
                others.for_each(|(_, shard)| shard.send(ShardMessage::Drop(selection.clone())));
            }
            FrontEvent::Refused { client, path, offence, count } => {
                let who = client.map_or_else(|| "somebody".to_owned(), |client| format!("client {client}"));
                let (lines, Offence { what, is_proven }) = (&mut self.lines, &offence);
                let line = format_args!("{who} at {path} is refused: {what} ({count} within a second)");
                lines.about(*is_proven).warn(line, now);
                // What cannot be written down was counted.
                let (address, content) = (path.peer.to_string(), Content::Refused(offence, count));
                self.inbox.put(QueuedRequest { client, address, content });
            }
            FrontEvent::NotAllowed { client, path, packets } => {
                let line = format_args!(
                    "{path} asks and is not allowed, as client {client} ({packets} packets): if it is to be served, add its address or \
                     id to `allow`, or `sanwire ctl add-client {client}`"
                );
                self.lines.about(false).info(line, now);
            }
            FrontEvent::CloseStream { stream, is_at_once: true } => self.streams.cut(stream),
            FrontEvent::CloseStream { stream, is_at_once: false } => {
                self.streams.close(stream, &mut self.fronts, &mut self.poller, now);
            }
        }
    }

    fn begin(&mut self, command: CommandRef, task: Task, now: Instant) {
        // A session whose target went away meanwhile gets no answers.
        let Some(nexus) = self.nexuses.get_mut(command.nexus) else { return };
        if task.is_further_piece() {
            return self.engine.go_on_with_piece(command, nexus.seat(), task, now);
        }
        let meter = Meter::start(&nexus.units, &task, now);
        self.past_uses.note(&mut nexus.uses, &nexus.host, &nexus.units, &meter, &task);
        self.engine.begin(command, meter, nexus.seat(), task, now);
    }

    /// A nexus sees something else, or more is known of it.
    fn change_nexus(&mut self, id: NexusId, view: NexusView, now: Instant) {
        let Some(nexus) = self.nexuses.get_mut(id) else { return };
        let NexusView { units, who, principal, address, is_read_only, weight, locks_media } = view;
        if !Arc::ptr_eq(&nexus.units, &units) {
            nexus.units.hand_over(&units, id);
            self.engine.turn_to(id, &units);
        }
        if nexus.ports.principal != principal {
            units.identify(id, principal.clone());
            nexus.ports = Arc::new(NexusPorts { principal, ..NexusPorts::clone(&nexus.ports) });
        }
        units.lock_media(id, locks_media);
        if nexus.host.address.as_ref() != Some(&address) {
            self.lines.sessions.info(format_args!("{who} goes on with session {:x}", id.0), now);
        }
        (nexus.host.who, nexus.host.address) = (who, Some(address));
        (nexus.units, nexus.is_read_only, nexus.weight) = (units, is_read_only, weight);
    }

    fn open_nexus(&mut self, front: u8, opened: NewNexus, now: Instant) {
        let NewNexus { nexus, ports, writer, port, target, memory, view, ends_own, line } = opened;
        let NexusView { units, who, address, is_read_only, weight, locks_media, .. } = view;
        let host = Host { port, who, target, address: Some(address) };
        self.lines.sessions.info(format_args!("{line}, session {:x}", nexus.0), now);
        let (who, target) = (host.who.clone(), host.target.clone());
        let opened = Happening::SessionOpened { session: format!("{:x}", nexus.0), who, target };
        self.events.note_session(host.owner(), true, opened);
        if ends_own {
            // Not what goes on for its owner by itself, like a copy to another server.
            let ends = |former: &NexusId| self.nexuses.get(*former).is_some_and(|former| former.ends_own);
            let formers = self.nexuses.of(host.owner()).filter(ends);
            formers.for_each(|former| self.engine.keep_blocks(former, nexus));
        }
        units.nexus_established(nexus, Arc::clone(&ports));
        units.name_writer(nexus, writer);
        units.lock_media(nexus, locks_media);
        let (uses, count) = (self.past_uses.came(&host, &units), NexusCount::default());
        if self.nexuses.is_paused(host.owner()) {
            self.engine.pause(nexus, true, now);
        }
        self.nexuses.insert(
            nexus,
            Nexus {
                front,
                units,
                ports,
                writer,
                host,
                is_read_only,
                uses,
                memory,
                weight,
                ends_own,
                since: SystemTime::now(),
                count,
                moved: self.counts_clients.then(MovedByVolume::default),
                bytes: ByteCount::default(),
            },
        );
    }

    fn close_nexus(&mut self, id: NexusId, is_for_good: bool, end: SessionEnd, now: Instant) {
        let Some(Nexus { units, host, since, .. }) = self.nexuses.remove(id) else { return };
        // A clock that was put back shows no time.
        let lasted = humantime::format_duration(Duration::from_secs(since.elapsed().unwrap_or_default().as_secs()));
        let line = format_args!("{} disconnected after {lasted}, session {:x}: {end}", host.who, id.0);
        self.lines.sessions.info(line, now);
        let closed = Happening::SessionClosed { session: format!("{:x}", id.0), who: host.who.clone() };
        self.events.note_session(host.owner(), false, closed);
        self.past_uses.left(&host, is_for_good);
        self.engine.leave(&Selection { by: id, which: Which::Own }, None);
        self.engine.withhold(id, false);
        self.engine.pause(id, false, now);
        units.nexus_lost(id);
    }

    /// Takes over what connections came to that are closed.
    pub(super) fn count_closed(&mut self) {
        while let Some((nexus, bytes)) = self.streams.poll_closed() {
            self.nexuses.get_mut(nexus).into_iter().for_each(|nexus| nexus.bytes += bytes);
        }
    }

    /// What this shard has counted.
    pub(super) fn count(&self) -> Counted {
        let connections: Vec<_> = self.fronts.iter().flat_map(|front| self.connections(front)).collect();
        Counted {
            shard: self.index,
            volumes: self.counters.volumes(),
            in_flight: self.in_flight(),
            busy: self.system.busy(),
            memory_bytes: self.engine.memory_bytes(),
            sessions: self.sessions(&connections),
            links: if self.counts_clients { self.client_links() } else { Vec::new() },
            connections,
            users: self.users(),
            tallies: self.tallies(),
            dropped: self.fronts.iter().flat_map(|front| front.dropped()).collect(),
            quotas: (self.fronts.iter().flat_map(|front| front.quotas())).chain(self.lines.usages()).collect(),
            wires: self.wires(),
            portals: self.streams.portals().into_iter().collect(),
        }
    }

    /// The commands for a volume that have been under way for longest.
    pub(super) fn commands(&self, slot: u16, max: usize, now: Instant) -> Vec<CommandUnderWay> {
        let told = self.engine.oldest_under_way(slot, now, max).into_iter().filter_map(|command| {
            let nexus = command.handle.nexus;
            let Nexus { host, front, .. } = self.nexuses.get(nexus)?;
            let front = self.fronts.iter().nth(usize::from(*front))?;
            let (wire, iser_path) = (front.name(), front.iser_path(nexus));
            Some(CommandUnderWay { nexus, host: host.clone(), wire, iser_path, command })
        });
        told.collect()
    }

    fn tallies(&self) -> Vec<(&'static TallyFamily, String, u64)> {
        let tallies = (0..).zip(self.fronts.iter()).flat_map(|(place, front)| {
            front.tallies().into_iter().filter_map(move |Tally { family, of, count }| {
                let name = match of {
                    TallyOf::Link(link) => self.links.wire_of(place, link)?,
                    TallyOf::Named(name) => name,
                };
                Some((family, name, count))
            })
        });
        tallies.collect()
    }

    fn in_flight(&self) -> BTreeMap<u16, u64> {
        let mut counts = BTreeMap::new();
        self.engine.slots_under_way().for_each(|slot| *counts.entry(slot).or_default() += 1);
        counts
    }

    /// What a front end knows of its connections, with what is known of their nexuses.
    fn connections(&self, front: &dyn FrontEnd) -> Vec<ConnectionCount> {
        let (wire, streams) = (front.name(), self.streams.bytes_by_nexus());
        let count = |of_front: ConnectionStatus| {
            let ConnectionStatus { nexus, links, security, login, packets, movement } = of_front;
            let Nexus { host, count, bytes, .. } = self.nexuses.get(nexus)?;
            let (commands, mut bytes) = (*count, *bytes);
            bytes += streams.get(&nexus).copied().unwrap_or_default();
            let (principal, address) = (host.owner().to_owned(), host.address.clone().unwrap_or_default());
            Some(ConnectionCount {
                nexus,
                wire,
                principal,
                address,
                links,
                security,
                login,
                commands,
                bytes,
                packets,
                movement,
            })
        };
        front.connections().into_iter().filter_map(count).collect()
    }

    fn sessions(&self, connections: &[ConnectionCount]) -> Vec<SessionCount> {
        let names: Vec<&'static str> = self.fronts.iter().map(|front| front.name()).collect();
        let connections: BTreeMap<NexusId, &ConnectionCount> =
            connections.iter().map(|connection| (connection.nexus, connection)).collect();
        let session = |(id, nexus): (NexusId, &Nexus)| {
            let connection = connections.get(&id);
            SessionCount {
                nexus: id,
                wire: names.get(usize::from(nexus.front)).copied().unwrap_or_default(),
                host: nexus.host.clone(),
                connections: connection.map_or(0, |connection| connection.links),
                security: connection.map(|connection| connection.security.clone()).unwrap_or_default(),
                login: connection.and_then(|connection| connection.login.clone()),
                since: nexus.since,
                uses: nexus.uses.clone(),
                moved: nexus.moved.clone().unwrap_or_default(),
                is_paused: self.nexuses.is_paused(nexus.principal()),
                commands: nexus.count,
            }
        };
        self.nexuses.iter().map(session).collect()
    }

    /// The wires of packets, with the connections that have a link there.
    fn wires(&self) -> Vec<WireCount> {
        let mut wires = self.links.counts();
        for (place, front) in (0..).zip(self.fronts.iter()) {
            let links = front.links().into_iter().filter_map(|link| self.links.wire_of(place, link.path.link));
            for name in links {
                wires.iter_mut().filter(|wire| wire.wire == name).for_each(|wire| wire.connections += 1);
            }
        }
        wires
    }

    /// The links of connections, with whose they are.
    fn client_links(&self) -> Vec<ClientLink> {
        let links = (0..).zip(self.fronts.iter()).flat_map(|(place, front)| {
            front.links().into_iter().filter_map(move |LinkState { nexus, path, is_up, round_trip }| {
                let client = self.nexuses.get(nexus)?.host.owner().to_owned();
                let wire = self.links.wire_of(place, path.link)?;
                Some(ClientLink { client, wire, peer: path.peer.to_string(), is_up, round_trip })
            })
        });
        links.collect()
    }

    /// The nexuses that have used volumes.
    fn users(&self) -> Vec<User> {
        let using = self.nexuses.iter().filter(|(_, nexus)| !nexus.uses.is_empty());
        let user = |(_, nexus): (NexusId, &Nexus)| {
            let Nexus { host, is_read_only, uses, .. } = nexus;
            User { host: host.clone(), is_read_only: *is_read_only, uses: uses.clone() }
        };
        using.map(user).collect()
    }
}

/// What is told of a store to those who watch.
pub(super) fn of_notice(notice: Notice) -> Happening {
    match notice {
        Notice::Over { volume, failed } => Happening::StoreWorking { volume, failed },
        Notice::Stalled { ref volume, .. } => {
            Happening::StoreFailing { volume: volume.clone(), why: notice.to_string() }
        }
    }
}
