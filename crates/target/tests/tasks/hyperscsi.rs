//! The same over HyperSCSI, where a client that leaves and comes again is the same initiator port.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use sanwire_buffer::Slice;
use sanwire_core::{LinkId, Lun, Path, Peer, Protection};
use sanwire_hyperscsi::wire::command::{Answer, Ask};
use sanwire_hyperscsi::{Client, ClientConfig, ClientEvent, CommandId, Identity, LinkLimits, Order, Recovery, random};
use sanwire_io::Clock;
use sanwire_scsi::{Cdb, Status};

use super::initiator::BLOCK_BYTES;
use super::{GATED, PATIENCE, PROMPT, World};

/// A client and its socket.
struct Driver {
    client: Client,
    socket: UdpSocket,
    path: Path,
    clock: Clock,
}

fn connect(server: SocketAddr, key: [u8; 32]) -> Driver {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let path = Path { link: LinkId(0), peer: Peer::Udp(server) };
    let clock = Clock::new();
    let config = ClientConfig {
        name: "client".into(),
        identity: Identity::from_private(key).unwrap(),
        psk: [0; 32],
        path,
        server_name: String::new(),
        link: LinkLimits { packet_max_bytes: 1400, receive_capacity_packets: 64 },
        commands_max: 8,
        transfer_max_bytes: 1 << 20,
        server_key: None,
        protection_min: Protection::Checksum,
        recovery: Recovery::default(),
        connect_patience: PATIENCE,
        reconnect_patience: None,
        seed: random().unwrap(),
    };
    let mut driver = Driver { client: Client::new(config, clock.now()), socket, path, clock };
    while !matches!(driver.hear(), ClientEvent::Connected { .. }) {}
    for lun in [GATED, PROMPT] {
        // The unit attention.
        driver.command(lun, [0; 6].into(), None);
        driver.answer();
    }
    driver
}

impl Driver {
    fn transmit(&mut self) {
        while let Some((_, packet)) = self.client.poll_transmit(self.clock.now()) {
            let bytes = [&*packet.head, packet.payload.as_deref().unwrap_or(&[])].concat();
            let Peer::Udp(server) = self.path.peer else { panic!("a UDP address") };
            self.socket.send_to(&bytes, server).unwrap();
        }
    }

    /// The next thing that the client has to tell.
    fn hear(&mut self) -> ClientEvent {
        let give_up_at = self.clock.now() + PATIENCE;
        loop {
            self.client.handle_timeout(self.clock.now());
            if let Some(event) = self.client.poll_event() {
                return event;
            }
            self.transmit();
            let now = self.clock.now();
            assert!(now < give_up_at, "nothing comes");
            let wait = self.client.poll_timeout().map_or(PATIENCE, |at| at.saturating_since(now));
            self.socket.set_read_timeout(Some(wait.clamp(Duration::from_millis(1), PATIENCE))).unwrap();
            let mut bytes = [0; 2048];
            if let Ok(length) = self.socket.recv(&mut bytes) {
                self.client.handle_input(self.path, &bytes[..length], self.clock.now());
            }
        }
    }

    fn command(&mut self, lun: u16, cdb: Cdb, data_out: Option<Slice>) -> CommandId {
        let order = Order { lun: Lun::new(lun).unwrap(), ask: Ask::Command(cdb), data_out, data_in: None };
        let id = self.client.order(order, self.clock.now()).unwrap();
        self.transmit();
        id
    }

    fn write(&mut self, lun: u16, lba: u8, byte: u8) -> CommandId {
        let cdb = [0x2a, 0, 0, 0, 0, lba, 0, 0, 1, 0];
        self.command(lun, cdb.into(), Some(vec![byte; BLOCK_BYTES].into()))
    }

    /// The next answer, and whether it is GOOD.
    fn answer(&mut self) -> (CommandId, bool) {
        loop {
            if let ClientEvent::Completed { id, answer, .. } = self.hear() {
                return (id, matches!(answer, Answer::Command { status: Status::Good, .. }));
            }
        }
    }

    fn leave(mut self) {
        self.client.disconnect(self.clock.now());
        self.transmit();
    }
}

#[test]
fn a_write_of_a_client_that_left_never_lands_on_one_after_its_return() {
    let world = World::new();
    let key = random().unwrap();
    let mut old = connect(world.hyperscsi_address(), key);
    world.store.hold();
    old.write(GATED, 0, 1);
    world.store.wait_for_held(1);
    world.store.pass();
    old.leave();
    let mut new = connect(world.hyperscsi_address(), key);
    let newer = new.write(GATED, 0, 2);
    let elsewhere = new.write(PROMPT, 0, 3);
    assert_eq!(new.answer(), (elsewhere, true), "another unit does not wait");
    let mut other = connect(world.hyperscsi_address(), random().unwrap());
    let others = other.write(GATED, 1, 4);
    assert_eq!(other.answer(), (others, true), "nor does another client");
    world.store.release();
    assert_eq!(new.answer(), (newer, true));
    assert_eq!(world.login(1).read(GATED, 0), 2);
}
