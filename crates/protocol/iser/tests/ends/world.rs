//! The client, the login and the server of iSCSI, with the datamovers of iSER, and a toy disk.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use sanwire_buffer::{Frame, Packet, Slice};
use sanwire_core::{Instant, Lun};
use sanwire_iscsi::*;
use sanwire_iser::initiator;
use sanwire_scsi::{Cdb, Status};

use super::cables::Cables;
use super::host::{End, Host};

pub const BLOCK_BYTES: usize = 512;
pub const MEMORY_BYTES: usize = 8 << 20;
pub const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

pub fn portal(is_iser: bool) -> Portal {
    let carrier = if is_iser { PortalCarrier::Iwarp } else { PortalCarrier::Tcp };
    Portal { address: SocketAddr::new(HOST, ISCSI_PORT), group_tag: 1, carrier }
}

pub fn name() -> IscsiName {
    "iqn.2026-11.org.sanwire:disk".parse().unwrap()
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

pub struct World {
    pub client: Client,
    pub host: Host,
    /// The portal is one of iSER.
    is_iser: bool,
    pub wires: BTreeMap<ConnectionId, VecDeque<u8>>,
    /// There are adapters, and no streams.
    pub cables: Option<Cables>,
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
            cables: None,
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
            if let Some(cables) = &mut self.cables {
                cables.closing.push(connection);
                continue;
            }
            // What was sent before still comes.
            while self.feed_client(connection) {}
            self.cut(connection);
        }
        while let Some(event) = self.client.poll_event() {
            self.events.push(event);
        }
        while let Some(action) = self.client.poll_action() {
            match action {
                ClientAction::Connect { connection, .. } if self.cables.is_some() => self.open_cable(connection),
                ClientAction::Close { connection } if self.cables.is_some() => self.close_cable(connection),
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
        let mut moved = self.step_cables();
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
        if self.cables.is_some() {
            return self.cut_cable(connection);
        }
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
        // Those of whom the client knows nothing any more have their time, too.
        for connection in self.host.ends.keys().copied().collect::<Vec<_>>() {
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
        let events = &self.events;
        self.client.order(order, self.now).unwrap_or_else(|_| panic!("no room: {events:?}"))
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
