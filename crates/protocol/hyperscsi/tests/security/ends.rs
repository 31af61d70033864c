//! Both ends in memory and a wire on which every packet can be seen, changed, lost and added.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sanwire_buffer::{Frame, Packet, Region};
use sanwire_core::{ClientId, Instant, LinkId, Lun, Path, Peer, Protection};
use sanwire_hyperscsi::wire::Prefix;
use sanwire_hyperscsi::wire::command::{Answer, Ask};
use sanwire_hyperscsi::{
    Client, ClientConfig, ClientEvent, Failure, Identity, LinkLimits, Order, Recovery, Server, ServerConfig,
    ServerEvent, Wishes,
};
use sanwire_scsi::{Cdb, Reply, Status};

/// How long the keys of a connection are used.
pub(crate) const REKEY_INTERVAL: Duration = Duration::from_secs(30);

const LINK: LinkLimits = LinkLimits { packet_max_bytes: 1500, receive_capacity_packets: 64 };

/// How the logical units are guarded; others are not.
pub(crate) type LevelsOfUnits = Arc<Mutex<BTreeMap<u16, Protection>>>;

pub(crate) fn path(host: u8) -> Path {
    Path { link: LinkId(0), peer: Peer::Udp(SocketAddr::from((Ipv4Addr::new(10, 0, 0, host), 5674))) }
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
    pub(crate) levels: LevelsOfUnits,
    /// Whether the client is on the server's list.
    pub(crate) is_permitted: Arc<AtomicBool>,
    pub(crate) sent: Vec<Sent>,
    pub(crate) network: Network,
    /// The units and first bytes of the commands that were executed.
    pub(crate) executed: Vec<(u16, u8)>,
    pub(crate) answers: Vec<(Answer, Option<Vec<u8>>)>,
    /// How often the connection was lost.
    pub(crate) lost: usize,
    pub(crate) wrong_passwords: usize,
    pub(crate) given_up: Option<Failure>,
}

pub(crate) fn client_config(protection_min: Protection) -> ClientConfig {
    ClientConfig {
        name: "client".into(),
        identity: Identity::from_private([1; 32]).unwrap(),
        psk: [3; 32],
        server_key: None,
        path: path(2),
        server_name: "store".into(),
        link: LINK,
        commands_max: 8,
        transfer_max_bytes: 1 << 20,
        protection_min,
        wishes: Wishes::default(),
        recovery: Recovery::Selective,
        connect_patience: Duration::from_secs(10),
        reconnect_patience: None,
        seed: [4; 32],
    }
}

fn server_config(levels: &LevelsOfUnits, is_permitted: &Arc<AtomicBool>) -> ServerConfig {
    let is_permitted = Arc::clone(is_permitted);
    let levels = Arc::clone(levels);
    let level = move |lun: Option<Lun>| {
        let levels = levels.lock().unwrap();
        match lun {
            Some(lun) => levels.get(&lun.number()).copied().unwrap_or_default(),
            None => levels.values().min().copied().unwrap_or_default(),
        }
    };
    ServerConfig {
        name: "store".into(),
        identity: Identity::from_private([2; 32]).unwrap(),
        psk: [3; 32],
        admission: Box::new(move |_: Peer, _: Option<ClientId>| is_permitted.load(Ordering::Relaxed)),
        levels: Box::new(level),
        compressible: Box::new(|_| true),
        memory: Region::new(4 << 20).unwrap(),
        links: vec![LINK],
        addresses: Vec::new(),
        shard: 0,
        shards: 1,
        instance: 1,
        keep_alive: Duration::from_secs(1),
        rekey_interval: REKEY_INTERVAL,
        session_idle_max: Duration::from_secs(60),
        commands_max: 8,
        transfer_max_bytes: 1 << 20,
        recovery: Recovery::Selective,
        seed: [5; 32],
    }
}

pub(crate) fn bytes(packet: &Packet) -> Vec<u8> {
    [&*packet.head, packet.payload.as_deref().unwrap_or(&[])].concat()
}

impl Ends {
    /// Connected ends, over a network that works.
    pub(crate) fn new(levels: &[(u16, Protection)], protection_min: Protection) -> Self {
        let levels = Arc::new(Mutex::new(levels.iter().copied().collect()));
        let is_permitted = Arc::new(AtomicBool::new(true));
        let mut ends = Ends {
            now: Instant::ZERO,
            client: Client::new(client_config(protection_min), Instant::ZERO),
            server: Server::new(server_config(&levels, &is_permitted)),
            levels,
            is_permitted,
            sent: Vec::new(),
            network: Box::new(|sent| vec![sent.bytes.clone()]),
            executed: Vec::new(),
            answers: Vec::new(),
            lost: 0,
            wrong_passwords: 0,
            given_up: None,
        };
        ends.run(Duration::from_secs(2));
        assert!(ends.client.server().is_some(), "connected");
        ends.sent.clear();
        ends
    }

    fn deliver(&mut self, from_client: bool, bytes: Vec<u8>) {
        let sent = Sent { from_client, bytes };
        for bytes in (self.network)(&sent) {
            self.inject(from_client, &bytes);
        }
        self.sent.push(sent);
    }

    /// A packet arrives, whoever sent it.
    pub(crate) fn inject(&mut self, to_server: bool, bytes: &[u8]) {
        if to_server {
            self.server.handle_input(path(1), bytes, self.now);
        } else {
            self.client.handle_input(path(2), bytes, self.now);
        }
    }

    fn serve(&mut self) {
        while let Some(event) = self.server.poll_event() {
            match event {
                ServerEvent::Command { handle, task } => {
                    let lun = task.lun.map_or(u16::MAX, |lun| lun.number());
                    self.executed.push((lun, task.cdb.operation_code()));
                    let length = task.data_in_max_bytes as usize;
                    self.server.reply(handle, Reply::good((length > 0).then(|| vec![9; length].into())), self.now);
                }
                ServerEvent::WrongPassword { .. } => self.wrong_passwords += 1,
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

    /// Gives a command of ten bytes.
    pub(crate) fn order(&mut self, lun: u16, operation: u8, data_out: &[u8], data_in_bytes: usize) {
        let order = Order {
            lun: Lun::new(lun).unwrap(),
            ask: Ask::Command(Cdb::from([operation, 0, 0, 0, 0, 0, 0, 0, 1, 0])),
            data_out: (!data_out.is_empty()).then(|| data_out.to_vec().into()),
            data_in: (data_in_bytes > 0).then(|| Frame::from(vec![0; data_in_bytes])),
        };
        self.client.order(order, self.now).expect("few commands are in transit");
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
