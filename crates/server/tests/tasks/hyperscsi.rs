//! The same over HyperSCSI: what the store does for a session that was left ends before the next one of the client reaches it,
//! and what is aborted ends as over iSCSI.

use std::cell::RefCell;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use sanwire_buffer::{Frame, Slice};
use sanwire_core::{Instant, LinkId, Lun, Path, Peer, Protection};
use sanwire_hyperscsi::wire::command::{Answer, Ask, Function};
use sanwire_hyperscsi::{
    Client, ClientConfig, ClientEvent, CommandId, DesiredOptions, Identity, LinkLimits, Order, Recovery, random,
};
use sanwire_io::Clock;
use sanwire_scsi::{AdditionalSense, Cdb, Sense, SenseKey, Status};

use super::initiator::{BLOCK_BYTES, GOOD, Said, TASK_ABORTED};
use super::{DELAYED, GATED, PROMPT, REMOVABLE, TIMEOUT, World, wait_until};

/// How long a client seeks its server.
const PATIENCE: Duration = Duration::from_secs(20);

/// A client and its socket.
pub struct Driver {
    client: Client,
    socket: UdpSocket,
    path: Path,
    clock: Clock,
    /// How much later it is for the client.
    skew: Duration,
}

/// A client that has heard of power on.
pub fn connect(server: SocketAddr, key: [u8; 32]) -> Driver {
    connect_with(server, key, DesiredOptions::default())
}

/// As [`connect`], for a client that takes so few packets at a time.
pub fn connect_narrow(server: SocketAddr, key: [u8; 32], packets: u32) -> Driver {
    let mut driver = begin_with(server, key, DesiredOptions::default(), packets);
    driver.settle();
    driver
}

/// As [`connect`], for a client that wants this.
fn connect_with(server: SocketAddr, key: [u8; 32], wishes: DesiredOptions) -> Driver {
    let mut driver = begin(server, key, wishes);
    driver.settle();
    driver
}

/// A client that begins to seek its server.
pub fn begin(server: SocketAddr, key: [u8; 32], wishes: DesiredOptions) -> Driver {
    begin_with(server, key, wishes, 64)
}

fn begin_with(server: SocketAddr, key: [u8; 32], wishes: DesiredOptions, receive_capacity_packets: u32) -> Driver {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let path = Path { link: LinkId(0), peer: Peer::Udp(server) };
    let clock = Clock::new();
    let config = ClientConfig {
        name: "client".into(),
        identity: Identity::from_private(key).unwrap(),
        psk: [0; 32],
        path,
        server_name: String::new(),
        link: LinkLimits { packet_max_bytes: 1400, receive_capacity_packets },
        commands_max: 16,
        transfer_max_bytes: 1 << 20,
        server_key: None,
        protection_min: Protection::Checksum,
        wishes,
        recovery: Recovery::default(),
        connect_patience: PATIENCE,
        reconnect_patience: Some(PATIENCE),
        seed: random().unwrap(),
    };
    let client = Client::new(config, clock.now());
    Driver { client, socket, path, clock, skew: Duration::ZERO }
}

impl Driver {
    fn now(&self) -> Instant {
        self.clock.now() + self.skew
    }

    /// Waits for a new session, and hears its unit attentions.
    pub fn settle(&mut self) {
        while !matches!(self.hear(), ClientEvent::Connected { resumed: false, .. }) {}
        for lun in [GATED, DELAYED, PROMPT, REMOVABLE] {
            self.command(lun, [0; 6].into(), None);
            self.hear_answer();
        }
    }

    /// Neither sends nor hears anything until the client has lost its patience.
    fn be_deaf(&mut self) {
        self.be_deaf_until(|event| matches!(event, ClientEvent::OutOfPatience(_)));
    }

    /// Neither sends nor hears anything until the client has given up its connection.
    pub fn lose_connection(&mut self) {
        self.be_deaf_until(|event| matches!(event, ClientEvent::Lost { .. }));
    }

    fn be_deaf_until(&mut self, is_over: impl Fn(&ClientEvent) -> bool) {
        loop {
            self.skew += Duration::from_secs(1);
            self.client.handle_timeout(self.now());
            while let Some(event) = self.client.poll_event() {
                if is_over(&event) {
                    return;
                }
            }
        }
    }

    /// Sends from this address of the host from now on.
    pub fn move_to(&mut self, address: [u8; 4]) {
        self.socket = UdpSocket::bind((std::net::Ipv4Addr::from(address), 0)).unwrap();
    }

    /// Waits for a connection; whether the server knows the session.
    pub fn is_resumed(&mut self) -> bool {
        loop {
            if let ClientEvent::Connected { resumed, .. } = self.hear() {
                return resumed;
            }
        }
    }

    fn transmit(&mut self) {
        while let Some((_, packet)) = self.client.poll_transmit(self.now()) {
            let bytes = packet.to_vec();
            let Peer::Udp(server) = self.path.peer else { panic!("a UDP address") };
            self.socket.send_to(&bytes, server).unwrap();
        }
    }

    /// The next thing that the client has to tell.
    fn hear(&mut self) -> ClientEvent {
        let give_up_at = self.now() + TIMEOUT;
        loop {
            self.client.handle_timeout(self.now());
            if let Some(event) = self.client.poll_event() {
                return event;
            }
            self.transmit();
            let now = self.now();
            assert!(now < give_up_at, "nothing comes");
            let wait = self.client.poll_timeout().map_or(TIMEOUT, |at| at.saturating_since(now));
            self.socket.set_read_timeout(Some(wait.clamp(Duration::from_millis(1), TIMEOUT))).unwrap();
            let mut bytes = [0; 2048];
            if let Ok(length) = self.socket.recv(&mut bytes) {
                self.client.handle_input(self.path, &bytes[..length], self.now());
            }
        }
    }

    /// Takes one packet, if there is any, and says so.
    pub fn take_a_packet(&mut self) {
        self.client.handle_timeout(self.now());
        self.socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let mut bytes = [0; 2048];
        if let Ok(length) = self.socket.recv(&mut bytes) {
            self.client.handle_input(self.path, &bytes[..length], self.now());
        }
        self.transmit();
    }

    /// Takes what comes, until nothing has come for a while.
    pub fn take_what_comes(&mut self) {
        self.client.handle_timeout(self.now());
        self.transmit();
        self.socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let mut bytes = [0; 2048];
        while let Ok(length) = self.socket.recv(&mut bytes) {
            self.client.handle_input(self.path, &bytes[..length], self.now());
            self.transmit();
        }
    }

    /// Seeks its server for a while; whether it has found it.
    pub fn finds_a_server_within(&mut self, patience: Duration) -> bool {
        let end = self.now() + patience;
        while self.now() < end {
            self.client.handle_timeout(self.now());
            self.transmit();
            self.socket.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
            let mut bytes = [0; 2048];
            if let Ok(length) = self.socket.recv(&mut bytes) {
                self.client.handle_input(self.path, &bytes[..length], self.now());
            }
        }
        self.client.server().is_some()
    }

    pub fn command(&mut self, lun: u16, cdb: Cdb, data_out: Option<Slice>) -> CommandId {
        self.order(lun, Ask::Command(cdb), data_out)
    }

    fn order(&mut self, lun: u16, ask: Ask, data_out: Option<Slice>) -> CommandId {
        let order = Order { lun: Lun::new(lun).unwrap(), ask, is_repeatable: true, data_out, data_in: None };
        let id = self.client.order(order, self.now()).unwrap();
        self.transmit();
        id
    }

    /// Gives a read of 1 MiB from the beginning.
    pub fn read_much(&mut self, lun: u16) -> CommandId {
        let ask = Ask::Command([0x28, 0, 0, 0, 0, 0, 0, 8, 0, 0].into());
        let data_in = Some(Frame::from(vec![0; 1 << 20]));
        let order = Order { lun: Lun::new(lun).unwrap(), ask, is_repeatable: true, data_out: None, data_in };
        let id = self.client.order(order, self.now()).unwrap();
        self.transmit();
        id
    }

    pub fn manage(&mut self, function: Function, lun: u16, task: u64) -> CommandId {
        self.order(lun, Ask::Manage { function, task }, None)
    }

    /// Gives a command that reads nothing; gives its status and its sense data.
    pub fn ask(&mut self, lun: u16, cdb: Cdb, data_out: &[u8]) -> (Status, Option<Sense>) {
        self.command(lun, cdb, (!data_out.is_empty()).then(|| data_out.to_vec().into()));
        match self.hear_answer() {
            (_, Answer::Command { status, sense }) => (status, Sense::parse(&sense)),
            (_, other) => panic!("{other:?}"),
        }
    }

    pub fn write(&mut self, lun: u16, lba: u8, byte: u8) -> CommandId {
        let cdb = [0x2a, 0, 0, 0, 0, lba, 0, 0, 1, 0];
        self.command(lun, cdb.into(), Some(vec![byte; BLOCK_BYTES].into()))
    }

    pub fn hear_answer(&mut self) -> (CommandId, Answer) {
        loop {
            if let ClientEvent::Completed { id, answer, .. } = self.hear() {
                return (id, answer);
            }
        }
    }

    /// The next answer, and whether it is GOOD.
    pub fn answer(&mut self) -> (CommandId, bool) {
        let (id, answer) = self.hear_answer();
        (id, matches!(answer, Answer::Command { status: Status::Good, .. }))
    }

    /// The next answers: the end of this command by an abort, and then that of the function that wanted it.
    pub fn hears_of_an_abort(&mut self, command: CommandId, function: CommandId) {
        let (id, answer) = self.hear_answer();
        assert_eq!(id, command, "{answer:?}");
        assert!(matches!(answer, Answer::Command { status: Status::TaskAborted, .. }), "{answer:?}");
        let (id, answer) = self.hear_answer();
        assert_eq!(id, function, "{answer:?}");
        assert!(matches!(answer, Answer::Managed { done: true }), "{answer:?}");
    }

    /// Asks something that needs no store, and hears the answer before any other.
    pub fn hears_nothing_else(&mut self) {
        let id = self.command(PROMPT, [0; 6].into(), None);
        assert_eq!(self.answer(), (id, true));
    }
}

impl Drop for Driver {
    /// Leaves: a server waits for its clients before it ends.
    fn drop(&mut self) {
        self.client.disconnect(self.now());
        self.transmit();
    }
}

#[test]
fn a_write_of_a_client_that_left_never_lands_on_one_after_its_return() {
    let world = World::new();
    let key = random().unwrap();
    let mut old = connect(world.hyperscsi_address(), key);
    world.store.hold(|| old.write(GATED, 0, 1));
    drop(old);
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

/// A process that is killed says nothing, and is soon started again.
#[test]
fn a_write_of_a_client_that_was_killed_never_lands_on_one_of_its_next_run() {
    let world = World::new();
    let key = random().unwrap();
    let mut killed = connect(world.hyperscsi_address(), key);
    world.store.hold(|| killed.write(GATED, 0, 1));
    let mut next = connect(world.hyperscsi_address(), key);
    let newer = next.write(GATED, 0, 2);
    let elsewhere = next.write(GATED, 1, 3);
    assert_eq!(next.answer(), (elsewhere, true), "other blocks do not wait");
    world.store.release();
    assert_eq!(next.answer(), (newer, true));
    assert_eq!(world.login(1).read(GATED, 0), 2);
}

/// What its store has begun is waited for; what comes after that, block by block, is newer already where the next run has written.
#[test]
fn a_fill_of_a_client_that_was_killed_does_not_go_on_over_what_its_next_run_writes() {
    let world = World::new();
    let key = random().unwrap();
    let mut killed = connect(world.hyperscsi_address(), key);
    // WRITE SAME (16) (SBC-4 5.53) of four pieces.
    let mut cdb = [0; 16];
    (cdb[0], cdb[12]) = (0x93, 8);
    let fill = world.store.hold(|| killed.command(GATED, cdb.into(), Some(vec![1; BLOCK_BYTES].into())));
    let mut next = connect(world.hyperscsi_address(), key);
    // WRITE (10) in the last piece.
    let newer = next.command(GATED, [0x2a, 0, 0, 0, 7, 0, 0, 0, 1, 0].into(), Some(vec![2; BLOCK_BYTES].into()));
    assert_eq!(next.answer(), (newer, true));
    world.store.release();
    let (id, answer) = killed.hear_answer();
    assert_eq!(id, fill);
    assert!(matches!(answer, Answer::Command { status: Status::TaskAborted, .. }), "{answer:?}");
    let mut witness = world.login(1);
    let read = witness.command(GATED, &[0x28, 0, 0, 0, 7, 0, 0, 0, 1, 0], &[], BLOCK_BYTES as u32);
    assert_eq!((witness.hear_read(read), witness.read(GATED, 0)), (2, 1));
}

#[test]
fn a_write_that_failed_when_patience_ran_out_never_lands_on_one_after_it() {
    let world = World::new();
    let key = random().unwrap();
    let mut client = connect(world.hyperscsi_address(), key);
    let mut sibling = connect(world.hyperscsi_address(), key);
    world.store.hold(|| client.write(GATED, 0, 1));
    client.be_deaf();
    client.settle();
    let newer = client.write(GATED, 0, 2);
    let elsewhere = client.write(PROMPT, 0, 3);
    assert_eq!(client.answer(), (elsewhere, true), "another unit does not wait");
    world.store.release();
    assert_eq!(client.answer(), (newer, true));
    assert_eq!(world.login(1).read(GATED, 0), 2);
    sibling.hears_nothing_else();
}

#[test]
fn a_write_of_a_lost_session_never_lands_on_one_over_the_other_wire() {
    let world = World::new();
    let mut initiator = world.login(1);
    let mut client = connect(world.hyperscsi_address(), random().unwrap());
    world.store.hold(|| initiator.write(GATED, 0, 1));
    drop(initiator);
    world.wait_for_sessions(0);
    let newer = client.write(GATED, 0, 2);
    client.hears_nothing_else();
    world.store.release();
    assert_eq!(client.answer(), (newer, true));
    assert_eq!(world.login(1).read(GATED, 0), 2);
}

#[test]
fn a_write_of_a_client_that_left_never_lands_on_one_of_an_initiator() {
    let world = World::new();
    let mut initiator = world.login(1);
    let mut client = connect(world.hyperscsi_address(), random().unwrap());
    world.store.hold(|| client.write(GATED, 0, 1));
    drop(client);
    let waiting = initiator.read_until_it_waits(GATED, 0);
    let newer = initiator.write(GATED, 0, 2);
    initiator.hears_nothing_else();
    world.store.release();
    assert_eq!(initiator.hear_read(waiting), 1);
    assert_eq!(initiator.hear(), Said::Status(newer, GOOD));
    assert_eq!(initiator.read(GATED, 0), 2);
}

#[test]
fn an_aborted_command_that_waits_is_answered_at_once_and_never_done() {
    let world = World::new();
    let mut client = connect(world.hyperscsi_address(), random().unwrap());
    let write = client.write(DELAYED, 0, 1);
    let abort = client.manage(Function::AbortTask, DELAYED, write.number());
    client.hears_of_an_abort(write, abort);
    assert_eq!(world.login(1).read(DELAYED, 0), 0);
}

#[test]
fn an_abort_waits_for_what_the_store_has_begun() {
    let world = World::new();
    let mut client = connect(world.hyperscsi_address(), random().unwrap());
    let write = world.store.hold(|| client.write(GATED, 0, 1));
    let abort = client.manage(Function::AbortTask, GATED, write.number());
    client.hears_nothing_else();
    world.store.release();
    client.hears_of_an_abort(write, abort);
}

#[test]
fn a_reset_ends_the_commands_of_all_clients_and_initiators_for_its_unit() {
    let world = World::new();
    let mut client = connect(world.hyperscsi_address(), random().unwrap());
    let mut other = connect(world.hyperscsi_address(), random().unwrap());
    let mut initiators = [world.login(1), world.login(2)];
    assert_ne!(world.shard_of(1), world.shard_of(2));
    let own = client.write(DELAYED, 0, 1);
    let others = other.write(DELAYED, 1, 2);
    let foreign = initiators.each_mut().map(|initiator| {
        let tag = initiator.write(DELAYED, 2, 3);
        initiator.hears_nothing_else();
        tag
    });
    other.hears_nothing_else();
    let elsewhere = client.write(PROMPT, 0, 4);
    assert_eq!(client.answer(), (elsewhere, true));
    let reset = client.manage(Function::LogicalUnitReset, DELAYED, 0);
    client.hears_of_an_abort(own, reset);
    let (id, answer) = other.hear_answer();
    assert!(id == others && matches!(answer, Answer::Command { status: Status::TaskAborted, .. }), "{answer:?}");
    for (initiator, tag) in initiators.iter_mut().zip(foreign) {
        assert_eq!(initiator.hear(), Said::Status(tag, TASK_ABORTED));
    }
}

#[test]
fn a_reset_is_answered_when_the_store_has_done_what_it_had_begun_for_anybody() {
    let world = World::new();
    let mut client = connect(world.hyperscsi_address(), random().unwrap());
    let mut initiator = world.login(1);
    let write = world.store.hold(|| initiator.write(GATED, 0, 1));
    let reset = client.manage(Function::LogicalUnitReset, GATED, 0);
    client.hears_nothing_else();
    world.store.release();
    let (id, answer) = client.hear_answer();
    assert!(id == reset && matches!(answer, Answer::Managed { done: true }), "{answer:?}");
    assert_eq!(initiator.hear(), Said::Status(write, TASK_ABORTED));
    initiator.settle(GATED);
    let tag = initiator.write(GATED, 0, 2);
    assert_eq!(initiator.hear(), Said::Status(tag, GOOD));
}

#[test]
fn a_unit_that_is_not_there_is_not_reset() {
    let world = World::new();
    let mut client = connect(world.hyperscsi_address(), random().unwrap());
    let reset = client.manage(Function::LogicalUnitReset, 77, 0);
    let (id, answer) = client.hear_answer();
    assert!(id == reset && matches!(answer, Answer::Managed { done: false }), "{answer:?}");
}

/// START STOP UNIT with LOEJ (SBC-4 5.31).
const EJECT: [u8; 6] = [0x1b, 0, 0, 0, 0x02, 0];

#[test]
fn a_medium_stays_in_while_a_client_that_wants_so_is_connected() {
    let world = World::new();
    let connect = |medium_lock| {
        let wishes = DesiredOptions { medium_lock, ..DesiredOptions::default() };
        connect_with(world.hyperscsi_address(), random().unwrap(), wishes)
    };
    let (mut holder, mut other) = (connect(true), connect(false));
    let prevented = Sense::new(SenseKey::IllegalRequest, AdditionalSense::MEDIUM_REMOVAL_PREVENTED);
    for client in [&mut other, &mut holder] {
        assert_eq!(client.ask(REMOVABLE, EJECT.into(), &[]), (Status::CheckCondition, Some(prevented)));
    }
    assert_eq!(other.ask(REMOVABLE, [0; 6].into(), &[]).0, Status::Good, "the medium is there");
    drop(holder);
    let other = RefCell::new(other);
    wait_until("the medium is ejected", || other.borrow_mut().ask(REMOVABLE, EJECT.into(), &[]).0 == Status::Good);
    let no_medium = Sense::new(SenseKey::NotReady, AdditionalSense::MEDIUM_NOT_PRESENT);
    assert_eq!(other.borrow_mut().ask(REMOVABLE, [0; 6].into(), &[]), (Status::CheckCondition, Some(no_medium)));
}
