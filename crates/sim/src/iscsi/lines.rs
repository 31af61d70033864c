//! Connections that adapters carry.

use sanwire_iscsi::{ConnectionId, Portal, PortalCarrier, ServerLogin};
use sanwire_iser::{initiator_by, target_by};

use super::fixed_directory::{SERVER, portal};
use super::line::Line;
use super::stream::Stream;
use super::wire::World;
use super::wires::{Connection, ServerEnd};
use crate::rdma::{Pace, connect_by};
use crate::world::Outcome;

impl World {
    pub(super) fn open_line(&mut self, client: usize, number: ConnectionId) -> Outcome<()> {
        let Some(adapters) = &self.wire.adapters else { return Ok(()) };
        let seed = self.random.seed();
        let (ours, theirs, cable) = connect_by(adapters, Pace::ByTurns, self.random.u64());
        let portal = Portal { carrier: PortalCarrier::Adapter, ..portal() };
        let login = ServerLogin::over(target_by(Box::new(theirs)), portal, SERVER, seed, self.now);
        let line = Line { cable, turns_at: self.now, unread_until: None, is_closing: false, is_parting: false };
        let login = ServerEnd::Login(Box::new(login));
        self.wire.next_connection += 1;
        let id = ConnectionId(self.wire.next_connection);
        self.wire.connections.insert(id, Connection::by_line(client, number, line, login));
        self.workers[client].client.connected_over(number, initiator_by(Box::new(ours)), self.now);
        self.drain_machine(client)
    }

    /// Something happens on a connection, and whoever has been told something looks at it.
    pub(super) fn attend_line(&mut self, id: ConnectionId) -> Outcome<()> {
        let (now, delay_us) = (self.now, self.plan.wire.pieces.delay_us);
        let Some(wire) = self.wire.connections.get_mut(&id) else { return Ok(()) };
        let (client, number, is_clients) = (wire.client, wire.number, wire.is_clients);
        let Some(line) = &mut wire.line else { return Ok(()) };
        line.turns_at = now + self.random.micros(delay_us.0.min(100)..=delay_us.1.min(500));
        line.unread_until = None;
        let cable = line.cable.clone();
        cable.turn();
        self.note(cable.steps());
        if cable.is_ready(1) {
            self.serve_line(id)?;
        }
        if cable.is_ready(0) && is_clients && !self.is_unread(id) {
            let machine = &mut self.workers[client].client;
            machine.filled(number, 0, now);
            if machine.poll_transmit(number).is_some() {
                return Err("an adapter has packets".to_owned());
            }
            self.drain_machine(client)?;
        }
        self.part_line(id)
    }

    /// Whether the client asks its adapter for nothing at present, which is noted.
    fn is_unread(&mut self, id: ConnectionId) -> bool {
        let Some(wire) = self.wire.connections.get_mut(&id) else { return false };
        let deaf = self.wire.deaf.get(&wire.client).copied().filter(|until| *until > self.now);
        let until = deaf.filter(|_| matches!(wire.server, ServerEnd::Admitted));
        wire.line.iter_mut().for_each(|line| line.unread_until = until);
        until.is_some()
    }

    fn serve_line(&mut self, id: ConnectionId) -> Outcome<()> {
        let now = self.now;
        let Some(wire) = self.wire.connections.get_mut(&id) else { return Ok(()) };
        match &mut wire.server {
            ServerEnd::Login(login) => {
                login.handle_ready(&*self.wire.desk, now);
                self.after_login_input(id)
            }
            ServerEnd::Admitted => {
                if let Some(host) = &mut self.host {
                    host.server.handle_ready(id, now);
                    if host.server.poll_transmit(id).is_some() {
                        return Err("an adapter has packets".to_owned());
                    }
                }
                self.drain_host()
            }
            ServerEnd::Gone => Ok(()),
        }
    }

    /// Ends what the ends are done with.
    fn part_line(&mut self, id: ConnectionId) -> Outcome<()> {
        let Some(wire) = self.wire.connections.get_mut(&id) else { return Ok(()) };
        let Some(line) = &mut wire.line else { return Ok(()) };
        if line.is_parting && self.workers[wire.client].client.is_parted(wire.number) {
            line.is_parting = false;
            self.workers[wire.client].client.connection_lost(wire.number, self.now);
        }
        let is_all_sent = match (&wire.server, &self.host) {
            (ServerEnd::Login(login), _) => login.is_all_sent(),
            (ServerEnd::Admitted, Some(host)) => host.server.is_all_sent(id),
            _ => true,
        };
        if line.is_closing && is_all_sent {
            line.is_closing = false;
            let was = std::mem::replace(&mut wire.server, ServerEnd::Gone);
            if let (ServerEnd::Admitted, Some(host)) = (was, &mut self.host) {
                host.server.connection_lost(id, self.now);
            }
            return self.drain_host();
        }
        Ok(())
    }
}

impl Connection {
    /// What its adapters do; `None` where there are none.
    pub(super) fn describe_line(&self) -> Option<String> {
        let line = self.line.as_ref()?;
        let server = match &self.server {
            ServerEnd::Login(_) => "logs in",
            ServerEnd::Admitted => "is admitted",
            ServerEnd::Gone => "is gone",
        };
        Some(format!("the client has it: {}, the server {server}, {line:?}", self.is_clients))
    }

    fn by_line(client: usize, number: ConnectionId, line: Line, server: ServerEnd) -> Self {
        Connection {
            client,
            number,
            there: Stream::default(),
            back: Stream::default(),
            line: Some(line),
            server,
            is_clients: true,
            passed: [0; 2],
            is_answered: false,
            unread_until: None,
        }
    }
}
