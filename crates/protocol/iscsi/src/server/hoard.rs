//! Memory that initiators keep by coming forward with it too slowly, or not at all, while others have none.

use std::collections::BTreeSet;

use sanwire_buffer::{Packet, Region, Shortage};
use sanwire_core::{Headway, Instant, NexusId};

use super::Server;
use super::command_window::Held;
use super::commands::{Command, Phase};
use super::connection::Connection;
use super::event::ServerEvent;
use super::session::Session;
use super::shared::{Leaving, Shared};
use crate::ConnectionId;
use crate::datamover::Datamover;

/// What goes out on a connection: how far it has come is known by what was taken out to be sent, and is not sent yet.
#[derive(Debug, Default)]
pub(super) struct Delivery {
    taken_bytes: u64,
    unsent_bytes: u64,
    headway: Headway,
}

impl Delivery {
    /// A packet was taken out to be sent.
    pub(super) fn took(&mut self, packet: Option<&Packet>) {
        self.taken_bytes += packet.map_or(0, |packet| packet.length_bytes() as u64);
    }

    fn is_too_slow(&mut self, mover: &dyn Datamover, now: Instant) -> bool {
        let left_bytes = mover.queued_bytes() as u64 + self.unsent_bytes;
        let taken_bytes = mover.carried().map_or(self.taken_bytes, |carried| carried.sent_bytes);
        self.headway.is_too_slow(taken_bytes.saturating_sub(self.unsent_bytes), left_bytes, now)
    }
}

impl Server {
    /// Whether anything waits for memory.
    #[must_use]
    pub fn is_starved(&self) -> bool {
        !self.shared.starved.is_empty()
    }

    /// The sessions of which something waits for memory, each with its share.
    pub fn starving(&self) -> impl Iterator<Item = (NexusId, &Region)> {
        let waiting: BTreeSet<NexusId> =
            self.shared.starved.iter().filter_map(|starved| self.shared.session_of(*starved)).collect();
        let sessions = waiting.into_iter().filter_map(|nexus| self.sessions.get(&nexus));
        sessions.filter(|session| session.is_starved).map(|session| (session.nexus, &session.memory))
    }

    /// Of what [`Server::poll_transmit`] gave for a connection, so many bytes still wait to be sent. To be told when that has changed.
    pub fn note_unsent(&mut self, connection: ConnectionId, unsent_bytes: usize) {
        let delivery = match self.shared.closing.get_mut(&connection) {
            Some(leaving) => Some(&mut leaving.delivery),
            None => self.connection(connection).map(|connection| &mut connection.delivery),
        };
        delivery.into_iter().for_each(|delivery| delivery.unsent_bytes = unsent_bytes as u64);
    }

    /// Some sessions of this server or others have no memory: drops the connections that keep some from them, by taking too slowly
    /// what is sent to them, or sending too slowly what they were asked for. To be called every now and then as long as it is so.
    pub fn drop_hoards(&mut self, shortage: &Shortage, now: Instant) {
        let shared = &mut self.shared;
        for session in self.sessions.values_mut().filter(|session| shortage.is_due_to(session.nexus, &session.memory)) {
            session.drop_slow_connections(shared, now);
        }
        shared.drop_slow_leavers(shortage, now);
        self.sessions.remove_ended();
        self.feed_starved(now);
    }

    /// Connections that no session has any more, and that have not ended yet: [`Server::connection_lost`] tells of that, also where
    /// they were closed as asked.
    #[must_use]
    pub fn connections_closing(&self) -> usize {
        self.shared.closing.len()
    }

    /// How many connections were dropped so.
    #[must_use]
    pub fn hoards_dropped(&self) -> u64 {
        self.shared.hoards_dropped
    }
}

impl Shared {
    /// What was still to be sent on a connection that its session has left keeps memory, too.
    fn drop_slow_leavers(&mut self, shortage: &Shortage, now: Instant) {
        let is_slow = |leaving: &mut Leaving| {
            let share = leaving.memory.as_ref().filter(|share| shortage.is_due_to(leaving.nexus, share));
            share.is_some() && leaving.delivery.is_too_slow(&*leaving.mover, now)
        };
        let slow: Vec<ConnectionId> =
            self.closing.extract_if(|_, leaving| is_slow(leaving)).map(|(id, _)| id).collect();
        slow.into_iter().for_each(|connection| self.cut(connection));
    }

    fn cut(&mut self, connection: ConnectionId) {
        self.hoards_dropped += 1;
        self.events.push_back(ServerEvent::Cut { connection });
    }
}

impl Session {
    fn drop_slow_connections(&mut self, shared: &mut Shared, now: Instant) {
        let mut slow = self.those_who_keep_others_waiting(now);
        let left_bytes: Vec<u64> = self.connections.iter().map(|connection| self.awaited_bytes(connection)).collect();
        for (connection, left_bytes) in self.connections.iter_mut().zip(left_bytes) {
            let done_bytes = connection.mover.placed_bytes();
            let is_late = connection.headway.is_too_slow(done_bytes, left_bytes, now);
            if connection.delivery.is_too_slow(&*connection.mover, now) || is_late {
                slow.push(connection.id);
            }
        }
        for id in slow {
            if let Some(at) = self.position(id) {
                self.lose_connection(at, shared, now);
                // What waits to be sent would keep its memory.
                shared.cut(id);
            }
        }
    }

    /// What has memory and was asked for on a connection that may be read from.
    fn awaited_bytes(&self, connection: &Connection) -> u64 {
        if connection.is_waiting() {
            return 0;
        }
        let gathered = self.commands.iter().filter(|command| command.connection == connection.id).map(awaited_bytes);
        gathered.sum::<u64>() + connection.mover.awaited_bytes()
    }

    /// Requests that have arrived with their data before their turn wait for a number that comes on another connection, if on any.
    fn those_who_keep_others_waiting(&mut self, now: Instant) -> Vec<ConnectionId> {
        let may_be_read = !self.connections.iter().any(Connection::is_waiting);
        let left_bytes = if may_be_read { self.order.early().map(data_bytes).sum() } else { 0 };
        let done_bytes = self.connections.iter().map(|connection| connection.mover.placed_bytes()).sum();
        let is_too_slow = self.headway.is_too_slow(done_bytes, left_bytes, now);
        if is_too_slow { self.those_who_wait().collect() } else { Vec::new() }
    }
}

fn awaited_bytes(command: &Command) -> u64 {
    if let Phase::Gathering(gathering) = &command.phase { gathering.awaited_bytes() } else { 0 }
}

fn data_bytes(held: &Held) -> u64 {
    let Held::Request(_, pdu) = held else { return 0 };
    pdu.data.as_ref().map_or(0, |data| data.len() as u64)
}
