//! Both ends in memory, without loss; every packet that they send is kept.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use sanwire_buffer::{Frame, Packet, Region};
use sanwire_core::{Instant, LinkId, Lun, MacAddress, Path, Peer, Protection};
use sanwire_hyperscsi::wire::command::{Ask, Function};
use sanwire_hyperscsi::{
    Client, ClientConfig, ClientEvent, Identity, LinkLimits, Order, Recovery, Server, ServerConfig, ServerEvent,
    UDP_PORT, Wishes, discovery,
};
use sanwire_scsi::{Cdb, Reply, Status};

const LINK: LinkLimits = LinkLimits { packet_max_bytes: 1500, receive_capacity_packets: 64 };

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wire {
    Ethernet,
    Udp,
}

/// A packet as it was sent: by whom, and all its bytes.
pub(crate) struct Sent {
    pub(crate) from_client: bool,
    pub(crate) bytes: Vec<u8>,
}

fn path(wire: Wire, host: u8) -> Path {
    let peer = match wire {
        Wire::Ethernet => Peer::Ethernet(MacAddress([2, 0, 0, 0, 0, host])),
        Wire::Udp => Peer::Udp(SocketAddr::from((Ipv4Addr::new(10, 0, 0, host), UDP_PORT))),
    };
    Path { link: LinkId(0), peer }
}

fn client_config(wire: Wire) -> ClientConfig {
    ClientConfig {
        name: "client".into(),
        identity: Identity::from_private([1; 32]).unwrap(),
        psk: [3; 32],
        server_key: None,
        path: path(wire, 2),
        server_name: "store".into(),
        link: LINK,
        commands_max: 8,
        transfer_max_bytes: 1 << 20,
        protection_min: Protection::Checksum,
        wishes: Wishes::default(),
        recovery: Recovery::Selective,
        connect_patience: Duration::from_secs(10),
        reconnect_patience: None,
        seed: [4; 32],
    }
}

/// One logical unit of each level; other numbers are of none.
fn level(lun: Option<Lun>) -> Protection {
    lun.and_then(|lun| u8::try_from(lun.number()).ok()).and_then(Protection::from_code).unwrap_or_default()
}

fn server(wire: Wire) -> Server {
    Server::new(ServerConfig {
        name: "store".into(),
        identity: Identity::from_private([2; 32]).unwrap(),
        psk: [3; 32],
        admission: Box::new(move |peer, _| peer == path(wire, 1).peer),
        levels: Box::new(level),
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
    })
}

fn bytes(packet: &Packet) -> Vec<u8> {
    [&*packet.head, packet.payload.as_deref().unwrap_or(&[])].concat()
}

/// Both ends, talking to each other without loss; every packet is kept.
struct Talk {
    wire: Wire,
    now: Instant,
    client: Client,
    server: Server,
    sent: Vec<Sent>,
    answered: usize,
}

impl Talk {
    fn new(wire: Wire) -> Self {
        let mut talk = Talk {
            wire,
            now: Instant::ZERO,
            client: Client::new(client_config(wire), Instant::ZERO),
            server: server(wire),
            sent: Vec::new(),
            answered: 0,
        };
        let who_serves = bytes(&discovery(&client_config(wire), 77));
        talk.deliver(true, who_serves);
        talk
    }

    fn deliver(&mut self, from_client: bool, bytes: Vec<u8>) {
        if from_client {
            self.server.handle_input(path(self.wire, 1), &bytes, self.now);
        } else {
            self.client.handle_input(path(self.wire, 2), &bytes, self.now);
        }
        self.sent.push(Sent { from_client, bytes });
    }

    fn serve(&mut self) {
        while let Some(event) = self.server.poll_event() {
            match event {
                ServerEvent::Command { handle, task } => {
                    let length = task.data_in_max_bytes as usize;
                    let reply = match task.cdb.operation_code() {
                        0 => Reply { sense: vec![0x70; 18], ..Reply::bare(Status::CheckCondition) },
                        _ => Reply::good((length > 0).then(|| vec![9; length].into())),
                    };
                    self.server.reply(handle, reply, self.now);
                }
                ServerEvent::Reset { handle, .. } => self.server.managed(handle, true, self.now),
                _ => {}
            }
        }
        while let Some(event) = self.client.poll_event() {
            if let ClientEvent::Completed { .. } = event {
                self.answered += 1;
            }
        }
    }

    /// Runs both ends for a while.
    fn run(&mut self, duration: Duration) {
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

    fn order(&mut self, lun: u16, ask: Ask, data_out: usize, data_in: usize) {
        let order = Order {
            lun: Lun::new(lun).unwrap(),
            ask,
            data_out: (data_out > 0).then(|| vec![6; data_out].into()),
            data_in: (data_in > 0).then(|| Frame::from(vec![0; data_in])),
        };
        self.client.order(order, self.now).expect("few commands are in transit");
    }
}

/// A talk in which everything is said that the protocol can say without loss, and a refusal.
pub(crate) fn talk(wire: Wire) -> Vec<Sent> {
    let mut talk = Talk::new(wire);
    talk.run(Duration::from_secs(2));
    assert!(talk.client.server().is_some(), "connected");
    // The first answer tells how the logical unit is guarded.
    talk.order(300, Ask::Command(Cdb::from([0u8; 6])), 0, 0);
    talk.run(Duration::from_secs(1));
    talk.order(300, Ask::Command(Cdb::from([0u8; 6])), 0, 0);
    talk.order(300, Ask::Command(Cdb::from([0x88u8, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 8, 0, 0])), 0, 4096);
    talk.order(300, Ask::Command(Cdb::from([0x2au8, 0, 0, 0, 0, 1, 0, 0, 128, 0])), 65_536, 0);
    talk.order(300, Ask::Command(Cdb::from([0x7fu8; 32])), 1000, 20);
    talk.order(300, Ask::Manage { function: Function::LogicalUnitReset, task: 0 }, 0, 0);
    talk.run(Duration::from_secs(2));
    for lun in 1..=4 {
        talk.order(lun, Ask::Command(Cdb::from([0x28u8, 0, 0, 0, 0, 0, 0, 0, 8, 0])), 0, 4096);
        talk.run(Duration::from_secs(1));
        talk.order(lun, Ask::Command(Cdb::from([0x2au8, 0, 0, 0, 0, 0, 0, 0, 8, 0])), 4096, 0);
        talk.run(Duration::from_secs(1));
    }
    // 400,000 bytes need more than 255 fragments: the number's high bits are used.
    talk.order(300, Ask::Command(Cdb::from([0x28u8, 0, 0, 0, 0, 0, 0, 3, 13, 0])), 0, 400_000);
    talk.run(Duration::from_secs(2));
    assert_eq!(talk.answered, 15);
    // A server that was restarted refuses what it does not know.
    talk.server = server(wire);
    talk.order(300, Ask::Command(Cdb::from([0x12u8, 0, 0, 0, 36, 0])), 0, 36);
    talk.run(Duration::from_secs(3));
    assert_eq!(talk.answered, 16);
    talk.client.disconnect(talk.now);
    talk.run(Duration::from_millis(10));
    talk.sent
}
