//! The target's end: sessions and connections of one shard.

mod adapter;
mod admit;
mod answer;
mod command;
mod command_window;
mod commands;
mod connection;
mod data_out;
mod data_timeout;
mod event;
mod hoard;
mod input;
mod logout;
mod manage;
mod movement;
mod nop;
mod pieces;
mod receipts;
mod recovery;
mod retransmit_buffer;
mod session;
mod sessions;
mod shared;
mod status;
mod tally;
mod text;
mod timeouts;
mod unexpected;
mod usages;
mod withheld;
mod write_transfer;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashSet;
use sanwire_buffer::{Packet, Region};
use sanwire_core::limits::TRANSFER_MAX_BYTES;
use sanwire_core::quota::ISCSI_COMMANDS_OF_SESSION;
use sanwire_core::{Instant, NexusId, SessionEnd};
use sanwire_scsi::Reply;

pub use self::event::{Admission, CommandHandle, Function, ManageHandle, ManageOutcome, ServerEvent};
pub use self::movement::Movements;
use self::session::Session;
use self::sessions::Sessions;
use self::shared::{Shared, Starved};
pub use self::status::SessionStatus;
pub use self::tally::Tally;
use crate::ConnectionId;
use crate::IscsiName;
use crate::login::{Admitted, Directory, TargetId};

/// So long an initiator has to leave, once it was asked to.
const LEAVE_WITHIN: Duration = Duration::from_secs(2);

/// The same when the target has moved: there is time to finish what is under way.
const MOVE_WITHIN: Duration = Duration::from_secs(10);

/// What a server is made of.
pub struct ServerConfig {
    /// Memory for what initiators send. Its driver sets [`Region::on_release`], and calls [`Server::handle_timeout`] when it is woken by
    /// that.
    pub memory: Region,
    /// What discovery sessions are told.
    pub directory: Arc<dyn Directory>,
    /// Commands of a session that are under way, at the most: the window of command numbers.
    pub commands_max: u32,
    /// The largest data transfer of a command, in bytes. One of more than [`TRANSFER_MAX_BYTES`] goes in pieces.
    pub transfer_max_bytes: u32,
}

/// The target's end of iSCSI, for one shard.
pub struct Server {
    shared: Shared,
    sessions: Sessions,
}

impl Server {
    /// A server without sessions.
    #[must_use]
    pub fn new(mut config: ServerConfig) -> Self {
        let memory_bytes = config.memory.length_bytes();
        if memory_bytes < TRANSFER_MAX_BYTES {
            // There is no room for pieces.
            config.transfer_max_bytes = config.transfer_max_bytes.min(memory_bytes as u32);
        }
        config.commands_max = config.commands_max.clamp(1, ISCSI_COMMANDS_OF_SESSION.limit as u32);
        Server { shared: Shared::new(config), sessions: Sessions::default() }
    }

    /// Takes over a connection that has passed its login, and answers its last login request. It begins a session with
    /// the identity of `admission`, ends and replaces an older session of the same initiator port, or joins the session
    /// that its login request names.
    pub fn admit(&mut self, connection: ConnectionId, admitted: Admitted, admission: Admission, now: Instant) {
        self.admit_connection(connection, admitted, admission, now);
        self.feed_starved(now);
    }

    /// Where the next bytes of a connection belong: first all of the first space, then the second. Both are empty while the
    /// connection must wait (for memory, or until its answers are sent): do not read from it then.
    pub fn spaces(&mut self, connection: ConnectionId) -> [&mut [u8]; 2] {
        let session = self.shared.homes.get(&connection).and_then(|nexus| self.sessions.get_mut(*nexus));
        let Some(session) = session else { return [&mut [], &mut []] };
        let Some(at) = session.position(connection) else { return [&mut [], &mut []] };
        let own = &mut session.connections[at];
        if own.is_stalled || own.is_crammed(self.shared.heap_share_bytes()) {
            [&mut [], &mut []]
        } else {
            own.mover.spaces()
        }
    }

    /// So many bytes were received into the spaces.
    pub fn filled(&mut self, connection: ConnectionId, count: usize, now: Instant) {
        let Some(&nexus) = self.shared.homes.get(&connection) else { return };
        let Some(session) = self.sessions.get_mut(nexus) else { return };
        let Some(at) = session.position(connection) else { return };
        let own = &mut session.connections[at];
        own.heard_at = now;
        own.mover.filled(count);
        session.handle_input(connection, &mut self.shared, now);
        session.after_input(connection, &mut self.shared);
        self.settle(nexus);
        self.feed_starved(now);
    }

    /// A connection has ended or failed, or was closed as asked.
    pub fn connection_lost(&mut self, connection: ConnectionId, now: Instant) {
        self.shared.closing.remove(&connection);
        let Some(&nexus) = self.shared.homes.get(&connection) else { return };
        let Some(session) = self.sessions.get_mut(nexus) else { return };
        if let Some(at) = session.position(connection) {
            session.lose_connection(at, &mut self.shared, now);
        }
        self.settle(nexus);
        self.feed_starved(now);
    }

    /// A command was executed.
    pub fn reply(&mut self, handle: CommandHandle, reply: Reply, now: Instant) {
        let Some(session) = self.sessions.get_mut(handle.nexus) else { return };
        session.handle_reply(handle.number, reply, &mut self.shared, now);
        self.feed_starved(now);
    }

    /// A command was ended without a reply.
    pub fn aborted(&mut self, handle: CommandHandle, now: Instant) {
        let Some(session) = self.sessions.get_mut(handle.nexus) else { return };
        session.handle_aborted(handle.number, &mut self.shared);
        self.feed_starved(now);
    }

    /// Task management was done.
    pub fn managed(&mut self, handle: ManageHandle, outcome: ManageOutcome, now: Instant) {
        let Some(session) = self.sessions.get_mut(handle.nexus) else { return };
        let was_cold_reset = session.handle_managed(handle.number, outcome, &mut self.shared, now);
        if let Some(target) = session.target().filter(|_| was_cold_reset) {
            // RFC 7143 11.5.1: after its response, a cold reset ends all sessions with the target.
            self.close_sessions(|session| session.target() == Some(target));
        }
        self.settle(handle.nexus);
        self.feed_starved(now);
    }

    /// Asks initiators to leave (asynchronous message) because the server stops, and tells those that stay that they are dropped.
    pub fn shut_down(&mut self, now: Instant) {
        self.shared.is_shutting_down = true;
        for session in self.sessions.values_mut() {
            session.ask_to_leave(LEAVE_WITHIN, &mut self.shared, now);
        }
    }

    /// Asks the initiators that use a target to leave and come again, because it has moved, and drops those that stay.
    pub fn move_target(&mut self, target: TargetId, now: Instant) {
        for session in self.sessions.values_mut().filter(|session| session.target() == Some(target)) {
            session.ask_to_leave(MOVE_WITHIN, &mut self.shared, now);
        }
    }

    /// Ends all sessions with a target: it was taken away.
    pub fn drop_target(&mut self, target: TargetId, _now: Instant) {
        for session in self.sessions.values_mut().filter(|session| session.target() == Some(target)) {
            session.announce_drop(&mut self.shared);
        }
        self.close_sessions(|session| session.target() == Some(target));
    }

    /// Ends all sessions of an initiator, with whatever target.
    pub fn drop_initiator(&mut self, initiator: &IscsiName) {
        for session in self.sessions.values_mut().filter(|session| session.initiator == *initiator) {
            session.announce_drop(&mut self.shared);
        }
        self.close_sessions(|session| session.initiator == *initiator);
    }

    /// Ends one session, if it is still there. Its initiator may come again.
    pub fn drop_session(&mut self, nexus: NexusId) {
        if let Some(session) = self.sessions.get_mut(nexus) {
            session.announce_drop(&mut self.shared);
            self.close_sessions(|session| session.nexus == nexus);
        }
    }

    /// Ends a session, if it is still there, and forgets what was to be sent on its connections: somebody else has its place.
    pub fn cut_session(&mut self, nexus: NexusId, now: Instant) {
        if let Some(session) = self.sessions.get_mut(nexus) {
            session.close(SessionEnd::Replaced, &mut self.shared);
        }
        let left = self.shared.closing.extract_if(|_, leaving| leaving.nexus == nexus);
        let cut = left.map(|(connection, _)| ServerEvent::Cut { connection });
        self.shared.events.extend(cut);
        self.settle(nexus);
        self.feed_starved(now);
    }

    /// Commands wait above for memory: lets go what sessions keep for error recovery. To be called again as long as they
    /// wait: initiators are asked for their acknowledgements first. Tells whether something was let go.
    pub fn relieve(&mut self, now: Instant) -> bool {
        let mut is_relieved = false;
        for session in self.sessions.values_mut().filter(|session| session.parameters.error_recovery_level > 0) {
            is_relieved |= session.relieve(&mut self.shared, now);
        }
        is_relieved
    }

    /// The next thing that the layer above must know.
    pub fn poll_event(&mut self) -> Option<ServerEvent> {
        self.shared.events.pop_front()
    }

    /// How many events wait to be polled.
    #[must_use]
    pub fn events_waiting(&self) -> usize {
        self.shared.events.len()
    }

    /// A connection that has something to send, or may be read from again after it had to wait.
    pub fn poll_ready(&mut self) -> Option<ConnectionId> {
        let ready = self.shared.ready.pop_front()?;
        if let Some(connection) = self.connection(ready) {
            connection.is_ready = false;
        }
        Some(ready)
    }

    /// The next bytes to send on a connection.
    pub fn poll_transmit(&mut self, connection: ConnectionId) -> Option<Packet> {
        if let Some(leaving) = self.shared.closing.get_mut(&connection) {
            return leaving.pop();
        }
        let nexus = *self.shared.homes.get(&connection)?;
        let session = self.sessions.get_mut(nexus)?;
        let at = session.position(connection)?;
        let own = &mut session.connections[at];
        let (packet, is_relieved) = own.pop();
        if is_relieved {
            self.shared.relieved.push_back(own.id);
            if !own.is_waiting() {
                self.shared.wake(own);
            }
        }
        if packet.is_none() && own.mover.has_failed() && !own.is_waiting() {
            self.shared.relieved.push_back(own.id);
        }
        if !own.pieces.is_empty() {
            session.ask_for_pieces_on(at, &mut self.shared);
        }
        packet
    }

    /// When [`Server::handle_timeout`] is next due. It may come early, never late.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.shared.relieved.is_empty() { self.shared.next_deadline() } else { Some(Instant::ZERO) }
    }

    /// Time has passed, or the region has told of a release.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.look_again(now);
        if !self.shared.starved.is_empty() && self.shared.config.memory.releases() != self.shared.fed_at {
            self.feed_starved(now);
        }
        if self.shared.next_deadline().is_none_or(|at| at > now) {
            return;
        }
        self.shared.look_at.take_if(|at| *at <= now);
        for (nexus, at) in self.shared.deadlines.take_due(now) {
            if let Some(session) = self.sessions.get_mut(nexus)
                && session.alarm.rings(at)
            {
                #[cfg(test)]
                {
                    self.shared.visits += 1;
                }
                session.handle_timeout(&mut self.shared, now);
            }
            self.settle(nexus);
        }
        self.feed_starved(now);
    }

    /// Looks at what has arrived on connections that had too much to send.
    fn look_again(&mut self, now: Instant) {
        while let Some(connection) = self.shared.relieved.pop_front() {
            let Some(&nexus) = self.shared.homes.get(&connection) else { continue };
            if let Some(session) = self.sessions.get_mut(nexus) {
                session.handle_input(connection, &mut self.shared, now);
            }
            self.settle(nexus);
            self.feed_starved(now);
        }
    }

    fn connection(&mut self, id: ConnectionId) -> Option<&mut connection::Connection> {
        let session = self.sessions.get_mut(*self.shared.homes.get(&id)?)?;
        let at = session.position(id)?;
        session.connections.get_mut(at)
    }

    /// Forgets a session that is over.
    fn settle(&mut self, nexus: NexusId) {
        if self.sessions.get(&nexus).is_some_and(|session| session.is_over) {
            self.sessions.remove(nexus);
        }
    }

    fn close_sessions(&mut self, is_meant: impl Fn(&Session) -> bool) {
        let shared = &mut self.shared;
        self.sessions
            .values_mut()
            .filter(|session| is_meant(session))
            .for_each(|session| session.close(SessionEnd::Dropped, shared));
        self.sessions.remove_ended();
    }

    /// Gives memory to those who wait for it, in the order in which they came; to the others, when the region tells of some. A session that gets none keeps only what is its own
    /// waiting, and its initiator's other sessions if that was the least that it needs.
    fn feed_starved(&mut self, now: Instant) {
        while !self.shared.starved.is_empty() {
            self.shared.fed_at = self.shared.config.memory.await_release();
            let waiting = std::mem::take(&mut self.shared.starved);
            let sessions: Vec<NexusId> =
                waiting.iter().filter_map(|starved| self.shared.session_of(*starved)).collect();
            let mut left = VecDeque::new();
            let mut blocked: Vec<(NexusId, Region)> = Vec::new();
            for starved in waiting {
                let Some(nexus) = self.shared.session_of(starved) else { continue };
                let Some(session) = self.sessions.get(&nexus) else { continue };
                // What others of the session have asked for comes on this connection: they would wait for each other.
                let must_go_on = matches!(starved, Starved::Connection(_)) && session.holds_memory();
                let memory = session.memory.clone();
                let is_in_the_way = |(other, share): &(NexusId, Region)| {
                    *other == nexus || share.is_same_share(&memory) && share.is_denied()
                };
                if !must_go_on && blocked.iter().any(is_in_the_way) {
                    left.push_back(starved);
                } else if !self.feed(nexus, starved, now) {
                    left.push_back(starved);
                    blocked.push((nexus, memory));
                }
            }
            left.append(&mut self.shared.starved);
            self.shared.starved = left;
            self.note_starved(sessions);
            if !blocked.is_empty() && !self.relieve(now) {
                return;
            }
        }
    }

    fn feed(&mut self, nexus: NexusId, starved: Starved, now: Instant) -> bool {
        let Some(session) = self.sessions.get_mut(nexus) else { return true };
        session.has_turn = true;
        let has_gone_on = match starved {
            Starved::Connection(connection) => session.unstall(connection, &mut self.shared, now),
            Starved::Command(_, number) => session.solicit_starved(number, &mut self.shared, now),
        };
        session.has_turn = false;
        self.settle(nexus);
        has_gone_on
    }

    /// These sessions have waited: sees which of them still do.
    fn note_starved(&mut self, sessions: Vec<NexusId>) {
        let waiting = self.shared.starved.iter().filter_map(|starved| self.shared.session_of(*starved));
        let waiting: FxHashSet<NexusId> = waiting.collect();
        for nexus in sessions {
            if let Some(session) = self.sessions.get_mut(nexus) {
                session.note_starved(waiting.contains(&nexus));
            }
        }
    }
}

#[cfg(test)]
mod tests;
