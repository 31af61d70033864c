//! Sessions of clients that have proved who they are: how they begin, get another connection, and end.

use std::collections::BTreeMap;

use sanwire_core::{Alarm, ClientId, Instant, NexusId, Path, Protection, SessionEnd};
use sanwire_security::keys::KeyError;

use super::connection::Connection;
use super::flow_control::FlowControl;
use super::handshake::answering;
use super::pages::needed_bytes;
use super::proof::Proven;
use super::session::Session;
use super::types::{Disk, ServerEvent};
use super::{Key, Server};
use crate::channel::{Channel, Guard, Setup, data_bytes};
use crate::wire::connection::{RELEASE, SessionName};
use crate::wire::offer::Agreement;
use crate::wire::{Class, Header};

impl Server {
    /// Gives a client that has proved who it is a connection, and a session if it has none.
    pub(super) fn accept(&mut self, proven: Proven, disk: Disk, now: Instant) -> Result<(), KeyError> {
        let Proven { path, header, session: name, first, proof, offer, secrets } = proven;
        let run = (name.client, name.run);
        let former = self.names.get(&run).copied();
        let is_same = |session: &Session| session.name == name && session.disk.is_same(&disk);
        let same = former.and_then(|nexus| self.sessions.get(&nexus)).filter(|session| is_same(session));
        // Who has never heard of its session had another one perhaps, with a server that ran before: that is not known here.
        let (goes_on, is_known) = (same.is_some(), same.is_some_and(|session| session.is_heard));
        if let Some(nexus) = former.filter(|_| !goes_on) {
            self.close_session(nexus, SessionEnd::Replaced);
        }
        let terms = self.terms(path);
        let agreement = Agreement {
            disk_type: disk.disk_type,
            disk_address: disk.address,
            protection: disk.protection.max(offer.protection),
            window_packets: terms.window_packets.min(offer.terms.window_packets),
            group_packets: terms.group_packets.min(offer.terms.group_packets),
            data_bytes: data_bytes(terms.packet_max_bytes.min(offer.terms.packet_max_bytes), disk.disk_type),
            is_known,
            volume: disk.volume,
        };
        let ring = secrets.of_server()?;
        let nexus = match former.filter(|_| goes_on) {
            Some(nexus) => {
                self.events.push_back(ServerEvent::SessionResumed { nexus, path, protection: agreement.protection });
                nexus
            }
            None => self.open_session((name, disk), (path, agreement.protection), now),
        };
        let port = header.server_port;
        let own = Header { disk_type: disk.disk_type, disk_address: disk.address, ..answering(header, port) };
        let guard = Guard::new(ring, agreement.protection, self.sealed.clone());
        let setup = Setup { path, header: own, guard, agreement, keep_alive: self.config.keep_alive };
        let mut channel = Channel::new(setup, now);
        channel.control(Class::Connection, agreement.write());
        let Some(session) = self.sessions.get_mut(&nexus) else { return Ok(()) };
        let old = session.connection;
        session.connect(port, &offer.waiting);
        old.and_then(|old| self.drop_connection(old));
        let connection = Connection {
            channel,
            nexus,
            agreement,
            alarm: Alarm::default(),
            is_awake: false,
            first,
            proof,
            assemblies: BTreeMap::new(),
            kept: 0,
            starved_since: None,
            flow: FlowControl::new(&agreement),
        };
        self.connections.insert(port, connection);
        self.wake(port);
        Ok(())
    }

    fn open_session(
        &mut self,
        (name, disk): (SessionName, Disk),
        (path, protection): (Path, Protection),
        now: Instant,
    ) -> NexusId {
        let nexus = NexusId(self.next_nexus);
        self.next_nexus += u64::from(self.config.shards.max(1));
        let memory = self.config.memory.share(needed_bytes(self.config.write_room_bytes));
        let mut session = Session::new(name, disk, memory.clone(), now);
        session.predecessors = self.follow(nexus, name.client, &disk, now);
        self.sessions.insert(nexus, session);
        self.names.insert((name.client, name.run), nexus);
        let SessionName { client, run, .. } = name;
        let opened = ServerEvent::SessionOpened { nexus, client, run, path, disk, protection, memory };
        self.events.push_back(opened);
        nexus
    }

    /// What the disk still does for sessions of this client that are over, or that nobody is connected with, ends before this one begins:
    /// an old write must not come after a newer one. Gives how many commands that are.
    ///
    /// Of one with a connection nobody knows whether its program lives: what is held begins now, before whatever this one gives, and what
    /// has not begun goes with the connection. Who lives gives it again.
    fn follow(&mut self, nexus: NexusId, client: ClientId, disk: &Disk, now: Instant) -> usize {
        let is_former = |session: &Session| session.name.client == client && session.disk.volume == disk.volume;
        let former: Vec<_> = self.sessions.iter().filter(|(_, session)| is_former(session)).collect();
        let waiting = former.iter().filter(|(_, session)| !session.ready.is_empty());
        let waiting: Vec<u16> = waiting.filter_map(|(_, session)| session.connection).collect();
        let former: Vec<NexusId> = former.into_iter().map(|(nexus, _)| *nexus).collect();
        former.into_iter().for_each(|former| self.release_batch(former));
        waiting.into_iter().for_each(|port| self.release(port, now));
        let mut commands = 0;
        for (handle, executing) in self.executing.iter().filter(|(_, one)| one.is_of(client, disk.volume)) {
            if self.sessions.get(&executing.nexus()).is_none_or(|session| session.connection.is_none()) {
                self.followed.entry(*handle).or_default().push(nexus);
                commands += 1;
            }
        }
        commands
    }

    /// Ends a session. What is executed for it is answered to nobody.
    pub(super) fn close_session(&mut self, nexus: NexusId, end: SessionEnd) {
        let Some(mut session) = self.sessions.remove(&nexus) else { return };
        self.deadlines.forget(Key::Session(nexus), &mut session.alarm);
        self.names.remove(&(session.name.client, session.name.run));
        self.favoured.take_if(|favoured| favoured.is_of(nexus));
        session.connection.and_then(|port| self.drop_connection(port));
        self.events.push_back(ServerEvent::SessionClosed { nexus, end });
    }

    pub(super) fn drop_connection(&mut self, port: u16) -> Option<Connection> {
        let mut connection = self.connections.remove(&port)?;
        self.deadlines.forget(Key::Connection(port), &mut connection.alarm);
        // What it lacked nobody wants any more.
        self.sessions.get(&connection.nexus).inspect(|session| session.memory.forgo());
        Some(connection)
    }

    /// Ends a session, if it is still there: its client may use the disk no more, or not so. If it may still connect, it hears at once
    /// that it should, and gets a session that knows nothing of this one.
    pub fn end(&mut self, nexus: NexusId) {
        let Some(port) = self.sessions.get(&nexus).map(|session| session.connection) else { return };
        port.inspect(|port| self.farewell(*port, RELEASE));
        self.close_session(nexus, SessionEnd::Dropped);
    }
}
