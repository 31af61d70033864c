//! The client, the login and the server of iSCSI, with the datamovers of iSER, and a toy disk.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use sanwire_buffer::{Frame, Packet, Region, Slice};
use sanwire_core::{Instant, Lun, NexusId};
use sanwire_iscsi::*;
use sanwire_iser::{initiator, target};
use sanwire_scsi::{Cdb, Reply, Status, Task};

pub const BLOCK_BYTES: usize = 512;
pub const MEMORY_BYTES: usize = 8 << 20;
const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

pub fn portal(is_iser: bool) -> Portal {
    Portal { address: SocketAddr::new(HOST, ISCSI_PORT), group_tag: 1, is_iser }
}

pub fn name() -> IscsiName {
    "iqn.2026-11.org.sanwire:disk".parse().unwrap()
}

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

    fn visible(&self, _: &IscsiName, _: IpAddr, _: &Portal) -> Vec<(IscsiName, Vec<String>)> {
        vec![(name(), vec!["10.0.0.1:3260,1".into()])]
    }
}

pub fn config(target: Option<IscsiName>) -> ClientConfig {
    ClientConfig {
        initiator: "iqn.2026-11.org.sanwire:client".parse().unwrap(),
        isid: Isid([0x80, 0, 0, 0, 0, 1]),
        target,
        portals: vec![portal(true).address],
        credential: None,
        target_credential: None,
        wishes: DesiredParameters { digests: true, error_recovery_level: 2, connections: 4 },
        commands_max: 16,
        connect_patience: Duration::from_secs(10),
        reconnect_patience: Some(Duration::from_secs(60)),
        command_patience: Some(Duration::from_secs(60)),
        seed: [5; 32],
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
            closed: Vec::new(),
            output: BTreeMap::new(),
            admissions: 0,
        }
    }

    pub fn open(&mut self, connection: ConnectionId, is_iser: bool, now: Instant) {
        let seed = [connection.0 as u8 + 1; 32];
        let login = if is_iser {
            ServerLogin::over(target(seed), portal(true), HOST, seed, now)
        } else {
            ServerLogin::new(portal(false), HOST, seed, now)
        };
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
                        self.ends.remove(&connection);
                        self.refusals.push(reason);
                        self.closed.push(connection);
                    }
                    Some(LoginOutcome::Lost) => panic!("a stream says itself that it has ended"),
                    None => {}
                }
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

    pub fn lose(&mut self, connection: ConnectionId, now: Instant) {
        self.ends.remove(&connection);
        self.output.remove(&connection);
        self.server.connection_lost(connection, now);
        self.drain(now);
    }
}

pub struct World {
    pub client: Client,
    pub host: Host,
    /// The portal is one of iSER.
    is_iser: bool,
    wires: BTreeMap<ConnectionId, VecDeque<u8>>,
    pub now: Instant,
    pub events: Vec<ClientEvent>,
    /// Bytes at a time.
    piece: usize,
    /// Bytes that have passed to the server, and from it.
    pub passed: [u64; 2],
    /// What has passed, each time: whether to the server, and the bytes.
    pub sent: Vec<(bool, Vec<u8>)>,
}

impl World {
    pub fn new(config: ClientConfig, piece: usize) -> Self {
        World::over(initiator, config, piece)
    }

    /// With other datamovers at the client.
    pub fn over(make: MakeDatamover, config: ClientConfig, piece: usize) -> Self {
        let now = Instant::from_nanos(1);
        World {
            client: Client::over(make, config, now),
            host: Host::new(),
            is_iser: true,
            wires: BTreeMap::new(),
            now,
            events: Vec::new(),
            piece,
            passed: [0; 2],
            sent: Vec::new(),
        }
    }

    /// A client of iSER at a portal of plain iSCSI.
    pub fn at_plain_iscsi(config: ClientConfig) -> Self {
        World { is_iser: false, ..World::new(config, usize::MAX) }
    }

    /// Has the client and the host say what they have to, without moving any of it.
    pub fn drain(&mut self) {
        self.host.drain(self.now);
        for connection in std::mem::take(&mut self.host.closed) {
            // What was sent before still comes.
            while self.feed_client(connection) {}
            self.cut(connection);
        }
        while let Some(event) = self.client.poll_event() {
            self.events.push(event);
        }
        while let Some(action) = self.client.poll_action() {
            match action {
                ClientAction::Connect { connection, .. } => {
                    self.host.open(connection, self.is_iser, self.now);
                    self.wires.insert(connection, VecDeque::new());
                    self.client.connected(connection, self.now);
                }
                ClientAction::Close { connection } => {
                    self.wires.remove(&connection);
                    self.host.lose(connection, self.now);
                }
            }
        }
        while let Some(connection) = self.client.poll_ready() {
            while let Some(packet) = self.client.poll_transmit(connection) {
                if let Some(wire) = self.wires.get_mut(&connection) {
                    put(wire, &packet);
                }
            }
        }
    }

    /// Moves a piece each way on every connection; whether anything moved.
    pub fn step(&mut self) -> bool {
        self.drain();
        let mut moved = false;
        for connection in self.connections() {
            moved |= self.feed_server(connection);
            self.drain();
            moved |= self.feed_client(connection);
            self.drain();
        }
        moved
    }

    fn feed_server(&mut self, connection: ConnectionId) -> bool {
        let Some(wire) = self.wires.get_mut(&connection) else { return false };
        let bytes: Vec<u8> = wire.iter().copied().take(self.piece).collect();
        if bytes.is_empty() {
            return false;
        }
        let taken = self.host.feed(connection, &bytes, self.now);
        self.passed[0] += taken as u64;
        self.sent.push((true, bytes[..taken].to_vec()));
        if let Some(wire) = self.wires.get_mut(&connection) {
            wire.drain(..taken);
        }
        taken > 0
    }

    fn feed_client(&mut self, connection: ConnectionId) -> bool {
        let Some(output) = self.host.output.get_mut(&connection) else { return false };
        let bytes: Vec<u8> = output.iter().copied().take(self.piece).collect();
        if bytes.is_empty() || !self.wires.contains_key(&connection) {
            return false;
        }
        let taken = fill(self.client.spaces(connection), &bytes);
        output.drain(..taken);
        self.passed[1] += taken as u64;
        self.sent.push((false, bytes[..taken].to_vec()));
        self.client.filled(connection, taken, self.now);
        taken > 0
    }

    pub fn connections(&self) -> Vec<ConnectionId> {
        self.wires.keys().copied().collect()
    }

    pub fn cut(&mut self, connection: ConnectionId) {
        if self.wires.remove(&connection).is_some() {
            self.client.connection_lost(connection, self.now);
            self.host.lose(connection, self.now);
        }
    }

    /// Runs until nothing moves, or for so many steps.
    pub fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            if !self.step() {
                return;
            }
        }
    }

    /// Lets time pass to what is next due.
    pub fn pass_time(&mut self) {
        let login = self.host.ends.values().filter_map(|end| match end {
            End::Login(login) => login.poll_timeout(),
            End::Admitted => None,
        });
        let next = login.chain(self.client.poll_timeout()).chain(self.host.server.poll_timeout()).min();
        self.now = next.expect("something is due").max(self.now);
        self.client.handle_timeout(self.now);
        self.host.server.handle_timeout(self.now);
        for connection in self.connections() {
            if let Some(End::Login(login)) = self.host.ends.get_mut(&connection) {
                login.handle_timeout(self.now);
                self.host.feed(connection, &[], self.now);
            }
        }
    }

    /// Lets time pass until all commands are answered.
    pub fn settle(&mut self) {
        for _ in 0..2000 {
            self.run(usize::MAX);
            if self.client.in_transit() == 0 {
                return;
            }
            self.pass_time();
        }
        panic!("commands that never end: {}", self.client.in_transit());
    }

    pub fn order(&mut self, code: u8, block: u16, data_out: Option<Vec<u8>>, data_in: usize) -> CommandId {
        let [high, low] = block.to_be_bytes();
        let [more, less] = ((data_in / BLOCK_BYTES) as u16).to_be_bytes();
        let cdb = Cdb::from([code, 0, 0, 0, high, low, 0, more, less, 0]);
        let data_in = (data_in > 0).then(|| Frame::from(vec![0; data_in]));
        let order =
            Order { lun: Lun::default(), cdb, is_repeatable: true, data_out: data_out.map(Slice::from), data_in };
        self.client.order(order, self.now).expect("room")
    }

    /// The data that a command has brought, which must have gone well.
    pub fn data_of(&mut self, id: CommandId) -> Option<Vec<u8>> {
        self.events.drain(..).find_map(|event| match event {
            ClientEvent::Completed { id: known, status: Status::Good, data_in, data_in_bytes, .. } if known == id => {
                data_in.map(|frame| frame[..data_in_bytes].to_vec())
            }
            ClientEvent::Failed { failure, .. } | ClientEvent::GivenUp(failure) => panic!("{failure}"),
            _ => None,
        })
    }
}

pub fn put(queue: &mut VecDeque<u8>, packet: &Packet) {
    packet.parts().iter().for_each(|part| queue.extend(part.iter()));
}

pub fn fill(spaces: [&mut [u8]; 2], from: &[u8]) -> usize {
    let mut taken = 0;
    for space in spaces {
        let part = space.len().min(from.len() - taken);
        space[..part].copy_from_slice(&from[taken..taken + part]);
        taken += part;
    }
    taken
}
