//! A target with a toy disk: its logins, its sessions, and what it executes.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use sanwire_buffer::Region;
use sanwire_core::{Instant, NexusId};
use sanwire_iscsi::*;
use sanwire_iser::target;
use sanwire_scsi::{Reply, Task};

use super::world::{BLOCK_BYTES, HOST, MEMORY_BYTES, fill, name, portal, put};

pub struct OneTarget;

impl Directory for OneTarget {
    fn target(&self, wanted: &IscsiName, _: &IscsiName, _: IpAddr, _: &Portal) -> Result<TargetEntry, LoginRefusal> {
        if *wanted != name() {
            return Err(LoginRefusal::NotFound);
        }
        Ok(TargetEntry {
            id: TargetId(1),
            alias: "toy".into(),
            authentication: Authentication::default(),
            requires_digests: false,
            redirect: None,
        })
    }

    fn permits_user(&self, _: TargetId, _: (&IscsiName, IpAddr), _: &str) -> bool {
        true
    }

    fn discovery_authentication(&self, _: &IscsiName, _: IpAddr) -> Result<Authentication, LoginRefusal> {
        Ok(Authentication::default())
    }

    fn visible(&self, _: &IscsiName, _: IpAddr, portal: &Portal) -> Vec<(IscsiName, Vec<String>)> {
        let address = if portal.carrier.is_rdma() { "10.0.0.1:3260,1" } else { "10.0.0.2:3261,1" };
        vec![(name(), vec![address.into()])]
    }
}

/// The target's end of one connection.
pub enum End {
    Login(Box<ServerLogin>),
    Admitted,
}

/// A target: its logins, its sessions, and its disk.
pub struct Host {
    pub server: Server,
    pub memory: Region,
    pub ends: BTreeMap<ConnectionId, End>,
    pub disk: Vec<u8>,
    /// Commands are not executed.
    pub is_frozen: bool,
    pub refusals: Vec<String>,
    /// Why sessions have lost connections.
    pub broken: Vec<String>,
    /// Connections that it has closed.
    pub closed: Vec<ConnectionId>,
    /// Bytes to each initiator.
    pub output: BTreeMap<ConnectionId, VecDeque<u8>>,
    admissions: u64,
}

impl Host {
    pub fn new() -> Self {
        let memory = Region::new(MEMORY_BYTES).unwrap();
        let server = Server::new(ServerConfig {
            memory: memory.clone(),
            directory: Arc::new(OneTarget),
            commands_max: 32,
            transfer_max_bytes: 1 << 20,
        });
        Host {
            server,
            memory,
            ends: BTreeMap::new(),
            disk: vec![0; 4096 * BLOCK_BYTES],
            is_frozen: false,
            refusals: Vec::new(),
            broken: Vec::new(),
            closed: Vec::new(),
            output: BTreeMap::new(),
            admissions: 0,
        }
    }

    pub fn open(&mut self, connection: ConnectionId, is_iser: bool, now: Instant) {
        let seed = [connection.0 as u8 + 1; 32];
        if is_iser {
            return self.open_over(connection, target(seed), now);
        }
        let login = ServerLogin::new(portal(false), HOST, seed, now);
        self.ends.insert(connection, End::Login(Box::new(login)));
        self.output.insert(connection, VecDeque::new());
    }

    pub fn open_over(&mut self, connection: ConnectionId, mover: Box<dyn Datamover>, now: Instant) {
        let login = ServerLogin::over(mover, portal(true), HOST, [connection.0 as u8 + 1; 32], now);
        self.ends.insert(connection, End::Login(Box::new(login)));
        self.output.insert(connection, VecDeque::new());
    }

    fn execute(&mut self, task: &Task) -> Reply {
        let cdb = &task.cdb;
        let at = usize::from(u16::from_be_bytes([cdb[4], cdb[5]])) * BLOCK_BYTES;
        match cdb.operation_code() {
            0x28 => {
                let end = at + usize::from(u16::from_be_bytes([cdb[7], cdb[8]])) * BLOCK_BYTES;
                Reply::good(Some(self.disk[at..end].to_vec().into()))
            }
            0x2a => {
                if let Some(data) = &task.data_out {
                    data.copy_to(&mut self.disk[at..at + data.len()]);
                }
                Reply::good(None)
            }
            _ => Reply::good(None),
        }
    }

    pub fn drain(&mut self, now: Instant) {
        while let Some(event) = self.server.poll_event() {
            match event {
                ServerEvent::Command { handle, task, .. } if !self.is_frozen => {
                    let reply = self.execute(&task);
                    self.server.reply(handle, reply, now);
                }
                ServerEvent::Manage { handle, function, .. } => {
                    if let Function::AbortTask(command) | Function::AbandonTask(command) = function {
                        self.server.aborted(command, now);
                    }
                    self.server.managed(handle, ManageOutcome::Complete, now);
                }
                ServerEvent::Broken { why, .. } => self.broken.push(why),
                ServerEvent::Close { connection } | ServerEvent::Cut { connection } => self.closed.push(connection),
                ServerEvent::Command { .. } | ServerEvent::SessionOpened { .. } | ServerEvent::SessionClosed { .. } => {
                }
            }
        }
        while let Some(connection) = self.server.poll_ready() {
            let output = self.output.entry(connection).or_default();
            while let Some(packet) = self.server.poll_transmit(connection) {
                put(output, &packet);
            }
        }
    }

    /// Takes bytes of an initiator; gives how many, which may be none while it must wait.
    pub fn feed(&mut self, connection: ConnectionId, bytes: &[u8], now: Instant) -> usize {
        let taken = match self.ends.get_mut(&connection) {
            None => bytes.len(),
            Some(End::Login(login)) => {
                login.handle_input(bytes, &OneTarget, now);
                self.after_login_input(connection, now);
                bytes.len()
            }
            Some(End::Admitted) => {
                let taken = fill(self.server.spaces(connection), bytes);
                self.server.filled(connection, taken, now);
                taken
            }
        };
        self.drain(now);
        taken
    }

    /// The adapter of a connection has something to tell.
    pub fn ready(&mut self, connection: ConnectionId, now: Instant) {
        match self.ends.get_mut(&connection) {
            None => {}
            Some(End::Login(login)) => {
                login.handle_ready(&OneTarget, now);
                self.after_login_input(connection, now);
            }
            Some(End::Admitted) => {
                self.server.handle_ready(connection, now);
                assert!(self.server.poll_transmit(connection).is_none(), "an adapter has no packets");
            }
        }
        self.drain(now);
    }

    /// Whether nothing is left to be sent on a connection that is to be closed.
    pub fn is_all_sent(&self, connection: ConnectionId) -> bool {
        match self.ends.get(&connection) {
            None => true,
            Some(End::Login(login)) => login.is_all_sent(),
            Some(End::Admitted) => self.server.is_all_sent(connection),
        }
    }

    fn after_login_input(&mut self, connection: ConnectionId, now: Instant) {
        let Some(End::Login(login)) = self.ends.get_mut(&connection) else { return };
        while let Some(packet) = login.poll_transmit() {
            put(self.output.entry(connection).or_default(), &packet);
        }
        match login.poll_outcome() {
            Some(LoginOutcome::Admitted(admitted)) => {
                self.ends.insert(connection, End::Admitted);
                self.admissions += 1;
                let admission = Admission { tsih: self.admissions as u16, nexus: NexusId(self.admissions) };
                self.server.admit(connection, *admitted, admission, now);
            }
            Some(LoginOutcome::Refused(reason) | LoginOutcome::Redirected(reason)) => {
                self.refusals.push(reason);
                self.closed.push(connection);
            }
            Some(LoginOutcome::Lost) => self.closed.push(connection),
            None => {}
        }
    }

    pub fn lose(&mut self, connection: ConnectionId, now: Instant) {
        self.ends.remove(&connection);
        self.output.remove(&connection);
        self.server.connection_lost(connection, now);
        self.drain(now);
    }
}
