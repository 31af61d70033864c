//! Both ends in memory, and a wire on which every packet can be seen, changed, lost and added.
#![allow(dead_code, reason = "each test looks at its own part")]

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use sanwire_buffer::{Frame, Packet, Region};
use sanwire_core::{Instant, LinkId, Lun, Path, Peer, Protection};
use sanwire_hyperscsi::wire::Prefix;
use sanwire_hyperscsi::wire::command::{Answer, Ask};
use sanwire_hyperscsi::{
    Admission, Client, ClientConfig, ClientEvent, DesiredOptions, Failure, Identity, LinkLimits, Order,
    ProtectionLookup, Recovery, SecurityEvent, Server, ServerConfig, ServerEvent, UDP_PORT,
};
use sanwire_scsi::{Cdb, CommandSet, Features, Reply, Status, Task};

const LINK: LinkLimits = LinkLimits { packet_max_bytes: 1500, receive_capacity_packets: 64 };

/// A host on one network of IP.
pub(crate) fn path(host: u8) -> Path {
    Path { link: LinkId(0), peer: Peer::Udp(SocketAddr::from((Ipv4Addr::new(10, 0, 0, host), UDP_PORT))) }
}

/// A client of the server at a place.
pub(crate) fn client_config(server: Path) -> ClientConfig {
    ClientConfig {
        name: "client".into(),
        identity: Identity::from_private([1; 32]).unwrap(),
        psk: [3; 32],
        server_key: None,
        path: server,
        server_name: "store".into(),
        link: LINK,
        commands_max: 8,
        transfer_max_bytes: 1 << 20,
        protection_min: Protection::Checksum,
        wishes: DesiredOptions::default(),
        recovery: Recovery::Selective,
        connect_patience: Duration::from_secs(10),
        reconnect_patience: None,
        seed: [4; 32],
    }
}

/// A server that takes these clients and has units of these levels.
pub(crate) fn server_config(admission: Box<dyn Admission>, levels: ProtectionLookup) -> ServerConfig {
    ServerConfig {
        name: "store".into(),
        identity: Identity::from_private([2; 32]).unwrap(),
        psk: [3; 32],
        admission,
        levels,
        compressible: Box::new(|_| true),
        memory: Region::new(4 << 20).unwrap(),
        links: vec![LINK],
        addresses: Vec::new(),
        shard: 0,
        shards: 1,
        instance: 1,
        keep_alive: Duration::from_secs(1),
        rekey_interval: Duration::from_secs(3600),
        session_idle_max: Duration::from_secs(60),
        commands_max: 8,
        transfer_max_bytes: 1 << 20,
        recovery: Recovery::Selective,
        seed: [5; 32],
    }
}

/// A command of ten bytes.
pub(crate) fn command(operation: u8) -> Ask {
    Ask::Command(Cdb::from([operation, 0, 0, 0, 0, 0, 0, 0, 1, 0]))
}

pub(crate) fn bytes(packet: &Packet) -> Vec<u8> {
    packet.to_vec()
}

/// A packet as it was sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) from_client: bool,
    pub(crate) bytes: Vec<u8>,
}

impl Sent {
    pub(crate) fn prefix(&self) -> Prefix {
        Prefix::read(&self.bytes).unwrap().0
    }
}

/// What the network does with a packet: what arrives in its place.
pub(crate) type Network = Box<dyn FnMut(&Sent) -> Vec<Vec<u8>>>;

/// Both ends.
pub(crate) struct Ends {
    pub(crate) now: Instant,
    pub(crate) client: Client,
    pub(crate) server: Server,
    /// The client and the server, as the other one sees it.
    paths: [Path; 2],
    /// What the server answers commands with.
    reply: fn(&Task) -> Reply,
    pub(crate) sent: Vec<Sent>,
    pub(crate) network: Network,
    /// The units and first bytes of the commands that were executed.
    pub(crate) executed: Vec<(u16, u8)>,
    pub(crate) answers: Vec<(Answer, Option<Vec<u8>>)>,
    /// How often the connection was lost.
    pub(crate) lost: usize,
    pub(crate) wrong_passwords: usize,
    /// What the server has told that it refused.
    pub(crate) offences: Vec<SecurityEvent>,
    pub(crate) given_up: Option<Failure>,
}

impl Ends {
    /// Ends over a network that works. `paths`: the client and the server, as the other one sees it.
    pub(crate) fn new(paths: [Path; 2], client: ClientConfig, server: ServerConfig, reply: fn(&Task) -> Reply) -> Self {
        Ends {
            now: Instant::ZERO,
            client: Client::new(client, Instant::ZERO),
            server: Server::new(server),
            paths,
            reply,
            sent: Vec::new(),
            network: Box::new(|sent| vec![sent.bytes.clone()]),
            executed: Vec::new(),
            answers: Vec::new(),
            lost: 0,
            wrong_passwords: 0,
            offences: Vec::new(),
            given_up: None,
        }
    }

    /// Somebody sends a packet.
    pub(crate) fn deliver(&mut self, from_client: bool, bytes: Vec<u8>) {
        let sent = Sent { from_client, bytes };
        for bytes in (self.network)(&sent) {
            self.inject(from_client, &bytes);
        }
        self.sent.push(sent);
    }

    /// A packet arrives, whoever sent it.
    pub(crate) fn inject(&mut self, to_server: bool, bytes: &[u8]) {
        if to_server {
            self.server.handle_input(self.paths[0], bytes, self.now);
        } else {
            self.client.handle_input(self.paths[1], bytes, self.now);
        }
    }

    fn serve(&mut self) {
        while let Some(event) = self.server.poll_event() {
            match event {
                ServerEvent::Command { handle, task } => {
                    let lun = task.lun.map_or(u16::MAX, |lun| lun.number());
                    self.executed.push((lun, task.cdb.operation_code()));
                    let is_bulk_read = CommandSet::disk(Features::default()).is_bulk_read(&task.cdb);
                    self.server.reply(handle, Reply { is_bulk_read, ..(self.reply)(&task) }, self.now);
                }
                ServerEvent::Refused { offence, count, .. } => {
                    self.offences.push(offence);
                    self.wrong_passwords += if offence == SecurityEvent::WrongPassword { count as usize } else { 0 };
                }
                ServerEvent::Reset { handle, .. } => self.server.managed(handle, true, self.now),
                _ => {}
            }
        }
        while let Some(event) = self.client.poll_event() {
            match event {
                ClientEvent::Completed { answer, data_in, .. } => {
                    self.answers.push((answer, data_in.map(|frame| frame.to_vec())));
                }
                ClientEvent::Lost { .. } => self.lost += 1,
                ClientEvent::GivenUp(failure) => self.given_up = Some(failure),
                _ => {}
            }
        }
    }

    /// Runs both ends for a while.
    pub(crate) fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        loop {
            self.serve();
            if let Some((_, packet)) = self.client.poll_transmit(self.now) {
                self.deliver(true, bytes(&packet));
            } else if let Some((_, packet)) = self.server.poll_transmit(self.now) {
                self.deliver(false, bytes(&packet));
            } else {
                let next = [self.client.poll_timeout(), self.server.poll_timeout()].into_iter().flatten().min();
                match next.filter(|next| *next < end) {
                    Some(next) => self.now = self.now.max(next) + Duration::from_nanos(1),
                    None => break,
                }
                self.client.handle_timeout(self.now);
                self.server.handle_timeout(self.now);
            }
        }
        self.now = end;
    }

    /// Gives a command.
    pub(crate) fn give(&mut self, lun: u16, ask: Ask, data_out: &[u8], data_in_bytes: usize) {
        let order = Order {
            lun: Lun::new(lun).unwrap(),
            ask,
            is_repeatable: true,
            data_out: (!data_out.is_empty()).then(|| data_out.to_vec().into()),
            data_in: (data_in_bytes > 0).then(|| Frame::from(vec![0; data_in_bytes])),
        };
        self.client.order(order, self.now).expect("few commands are in transit");
    }

    /// Gives a command of ten bytes.
    pub(crate) fn order(&mut self, lun: u16, operation: u8, data_out: &[u8], data_in_bytes: usize) {
        self.give(lun, command(operation), data_out, data_in_bytes);
    }

    /// Gives a command and waits for its answer, which must be a good one.
    pub(crate) fn ask(&mut self, lun: u16, operation: u8, data_out: &[u8], data_in_bytes: usize) -> Vec<Sent> {
        let (before, answered) = (self.sent.len(), self.answers.len());
        self.order(lun, operation, data_out, data_in_bytes);
        self.run(Duration::from_millis(500));
        assert_eq!(self.answers.len(), answered + 1, "answered once");
        let (answer, data_in) = &self.answers[answered];
        assert!(matches!(answer, Answer::Command { status: Status::Good, .. }), "{answer:?}");
        assert!(data_in.iter().all(|data| data.iter().all(|byte| *byte == 9)), "the data that was sent");
        self.sent[before..].to_vec()
    }
}

/// As much data as there is room for, all of it nines.
pub(crate) fn nines(task: &Task) -> Reply {
    let length = task.data_in_max_bytes as usize;
    Reply::good((length > 0).then(|| vec![9; length].into()))
}
