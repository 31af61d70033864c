//! A client and the server's end, and volumes that change meanwhile.

use std::time::Duration;

use sanwire_ata::{DEVICE_LBA, TaskFile};
use sanwire_buffer::Slices;
use sanwire_core::{MacAddress, Peer};
use sanwire_device::{LogicalUnit, LogicalUnits, UnitOptions};
use sanwire_hdsp::wire::DiskType;
use sanwire_hdsp::{Client, ClientConfig, ClientEvent, Command, LinkLimits, Order, ServerConfig, ServerInfo};
use sanwire_hyperscsi::Identity as Key;
use sanwire_scsi::{AdditionalSense, Identity, Receipt, Sense, SenseKey, Status};
use sanwire_store::RamStore;

use super::directory::Doorkeeper;
use super::disks::Place;
use super::*;
use crate::allow::AllowList;
use crate::front::hyperscsi::clients::ClientsConfig;

const KEYS: [[u8; 32]; 2] = [[1; 32], [2; 32]];

struct World {
    front: Hdsp,
    client: Client,
    now: Instant,
    /// What the units are to answer, the next one last; when there is nothing: it is done.
    answers: Vec<Status>,
    /// What they answer before that, the next one last.
    replies: Vec<Reply>,
    /// Up to which receipt the client had the answers, as each of their tasks says.
    receipts: Vec<u64>,
    /// All packets are lost.
    is_cut: bool,
    /// How the sessions were guarded whose commands came to units.
    executed: Vec<Protection>,
    /// The data that came with the last command.
    data_out: Option<Slices>,
    closed: usize,
    /// Whether the word of a busy unit comes at once.
    hears_busy: bool,
    unheard: Vec<CommandRef>,
}

fn lun(number: u16) -> Lun {
    Lun::new(number).unwrap()
}

fn path() -> Path {
    Path { link: LinkId(0), peer: Peer::Ethernet(MacAddress([2; 6])) }
}

/// Two volumes; only the first has a disk address.
fn front() -> Hdsp {
    let [_, identity] = KEYS.map(|key| Key::from_private(key).unwrap());
    let units = Arc::new(LogicalUnits::new());
    let levels = Arc::new(ProtectionTable::new(Protection::Checksum));
    for (number, name) in [(0, "a"), (1, "b")] {
        let id = Identity::new(name, [number as u8; 16]).unwrap();
        let unit = LogicalUnit::new(id, Arc::new(RamStore::new(1 << 20, 512)), UnitOptions::default()).unwrap();
        units.add(lun(number), unit).unwrap();
        levels.set(lun(number), &format!("{name}=ram:1M").parse().unwrap());
    }
    let allow = AllowList::new(vec!["any".parse().unwrap()]);
    let psk = crate::front::hyperscsi::clients::Secret([9; 32]);
    let terms = ClientsConfig { allow, psk, compression: Default::default(), clients: Vec::new() };
    let clients = Arc::new(Clients::open(terms, None, units).unwrap());
    let place = Place { lun: lun(0), name: Arc::from("a"), uuid: [0; 16], takes_ata: true };
    let disks = Arc::new(Disks::holding(BTreeMap::from([(0, place)])));
    let door =
        Doorkeeper { clients: Arc::clone(&clients), levels: Arc::clone(&levels), disks: Arc::clone(&disks), run: 1 };
    let server = Server::new(ServerConfig {
        name: "box".into(),
        identity,
        psk: [9; 32],
        instance: [1; 16],
        links: vec![LinkLimits { packet_max_bytes: 1500, window_packets: 64 }],
        group_packets: 8,
        write_room_bytes: 1 << 16,
        transfer_max_bytes: 1 << 16,
        keep_alive: Duration::from_secs(5),
        linger: Duration::from_secs(60),
        sessions_max: 4,
        sessions_of_client_max: 4,
        batch_packets: 8,
        shard: 0,
        shards: 1,
        nexus_base: 0,
        memory: Region::new(1 << 20).unwrap(),
        directory: Box::new(door),
        seed: [3; 32],
    });
    let (sessions, commands, later, events, links) = Default::default();
    Hdsp { front: 0, server, clients, levels, disks, sessions, commands, later, events, links, is_ending: false }
}

/// A program of the client, told from others by its seed.
fn client(disk_address: u8, disk_type: DiskType, seed: u8, now: Instant) -> Client {
    let config = ClientConfig {
        identity: Key::from_private(KEYS[0]).unwrap(),
        psk: [9; 32],
        server_name: String::new(),
        server_key: None,
        volume: String::new(),
        disk_address,
        disk_type,
        protection: Protection::Checksum,
        links: vec![LinkLimits { packet_max_bytes: 1500, window_packets: 64 }],
        places: vec![path()],
        group_packets: 8,
        patience: Duration::from_secs(30),
        seed: [seed; 32],
    };
    Client::new(config, now)
}

impl World {
    fn new(disk_address: u8, disk_type: DiskType) -> World {
        let now = Instant::ZERO + Duration::from_secs(1);
        let (client, front) = (client(disk_address, disk_type, 4, now), front());
        let mut world = World {
            front,
            client,
            now,
            answers: Vec::new(),
            replies: Vec::new(),
            receipts: Vec::new(),
            is_cut: false,
            executed: Vec::new(),
            data_out: None,
            closed: 0,
            hears_busy: true,
            unheard: Vec::new(),
        };
        let connected = world.wait(1_000);
        assert!(
            matches!(&connected[..], [ClientEvent::Connected(server)] if server.protection == Protection::Checksum)
        );
        world
    }

    fn exchange(&mut self) -> bool {
        let bytes = |packet: Packet| packet.to_vec();
        let mut is_any = false;
        while let Some((_, packet)) = self.client.poll_transmit(self.now) {
            is_any = true;
            if !self.is_cut {
                self.front.handle_input(path(), bytes(packet)[..].into(), self.now);
            }
        }
        while let Some(event) = self.front.poll_event(self.now) {
            match event {
                FrontEvent::Command { command, task } => {
                    self.data_out = task.data_out;
                    self.executed.push(self.front.sessions[&command.nexus].protection);
                    self.receipts.push(task.receipts);
                    if let Some(reply) = self.replies.pop() {
                        self.front.reply(command, Some(reply), self.now);
                        continue;
                    }
                    let status = self.answers.pop().unwrap_or(Status::Good);
                    if status == Status::Busy && !self.hears_busy {
                        self.unheard.push(command);
                        continue;
                    }
                    self.front.reply(command, Some(Reply::bare(status)), self.now);
                }
                FrontEvent::NexusClosed { .. } => self.closed += 1,
                _ => {}
            }
        }
        while let Some((_, packet)) = self.front.poll_transmit(self.now) {
            is_any = true;
            if !self.is_cut {
                self.client.handle_input(path(), &bytes(packet), self.now);
            }
        }
        is_any
    }

    fn answer_unheard(&mut self) {
        for command in std::mem::take(&mut self.unheard) {
            self.front.reply(command, Some(Reply::bare(Status::Busy)), self.now);
        }
    }

    fn wait(&mut self, millis: u64) -> Vec<ClientEvent> {
        let (until, mut events) = (self.now + Duration::from_millis(millis), Vec::new());
        loop {
            while self.exchange() {}
            events.extend(std::iter::from_fn(|| self.client.poll_event()));
            let next = self.client.poll_timeout().into_iter().chain(self.front.poll_timeout()).min();
            let Some(at) = next.filter(|at| *at <= until) else { break };
            self.now = self.now.max(at);
            self.client.handle_timeout(self.now);
            self.front.handle_timeout(self.now);
        }
        self.now = until;
        events
    }

    fn order(&mut self, command: Command) {
        self.order_with(command, None);
    }

    fn order_with(&mut self, command: Command, data: Option<Slices>) {
        let order = Order { command, data, room: None, more: false, may_repeat: false, is_probe: false };
        self.client.order(order, self.now).unwrap();
    }
}

/// TEST UNIT READY, of this unit of the server as a whole.
fn ready(number: u16) -> Command {
    Command::Scsi([&lun(number).to_wire()[..], &[0; 6]].concat())
}

fn ended(events: &[ClientEvent]) -> usize {
    events.iter().filter(|event| matches!(event, ClientEvent::Ended { .. })).count()
}

fn again(events: &[ClientEvent]) -> Option<&ServerInfo> {
    events.iter().find_map(|event| if let ClientEvent::Connected(server) = event { Some(server) } else { None })
}

#[test]
fn a_unit_of_the_server_as_a_whole_is_used_by_a_connection_that_guards_it_as_it_demands() {
    let mut world = World::new(SERVER_ADDRESS, DiskType::Scsi);
    world.order(ready(1));
    assert_eq!(ended(&world.wait(100)), 1);
    // It has no disk address, and demands more by now.
    world.front.levels.set(lun(1), &"b=ram:1M,security=aes-128-gcm".parse().unwrap());
    world.order(ready(1));
    let events = world.wait(5_000);
    assert!(again(&events).is_some_and(|server| server.is_resumed && server.protection == Protection::Aes128Gcm));
    assert_eq!((ended(&events), world.closed), (1, 0), "the session goes on");
    assert_eq!(world.executed, [Protection::Checksum, Protection::Aes128Gcm]);
}

#[test]
fn a_session_outlives_that_its_volume_demands_more() {
    let mut world = World::new(0, DiskType::Scsi);
    world.front.levels.set(lun(0), &"a=ram:1M,security=aes-128-gcm".parse().unwrap());
    world.order(Command::Scsi(vec![0; 6]));
    let events = world.wait(5_000);
    assert!(again(&events).is_some_and(|server| server.is_resumed));
    assert_eq!((ended(&events), world.closed, &world.executed[..]), (1, 0, &[Protection::Aes128Gcm][..]));
}

#[test]
fn the_data_of_a_write_goes_to_its_unit_as_it_came() {
    let mut world = World::new(0, DiskType::Scsi);
    let session = world.front.sessions.values().next().unwrap().memory.clone();
    let data: Vec<u8> = (0..64 * 512u32).map(|at| (at / 300) as u8).collect();
    let write = sanwire_scsi::build::write_16(sanwire_scsi::Extent { lba: 8, blocks: 64 }, false);
    world.order_with(Command::Scsi(write.to_vec()), Some(Slices::from(data.clone())));
    assert_eq!(ended(&world.wait(1_000)), 1);
    let came = world.data_out.take().unwrap();
    assert_eq!((came.to_vec() == data, came.heap_bytes()), (true, 0));
    assert!(came.pieces().len() > 1, "{came:?}");
    assert_eq!(session.held_bytes(), came.kept_bytes(), "there is no copy of it");
}

#[test]
fn an_ata_command_that_waits_is_not_executed_when_its_volume_is_gone() {
    let mut world = World::new(0, DiskType::Sata);
    world.answers = vec![Status::Busy];
    world.order(Command::Ata(TaskFile::short(0xe7, 0, 0, [0; 3], DEVICE_LBA)));
    while world.executed.is_empty() {
        assert!(world.exchange());
    }
    world.front.disks.remove(lun(0));
    world.wait(2_000);
    assert_eq!((world.executed.len(), world.closed), (1, 1), "it was asked once, and its session has ended");
}

/// The program is killed while the unit is busy: its flush is not given to the unit when another program of the client is there.
#[test]
fn what_a_killed_program_has_waiting_is_not_asked_again_beside_its_successor() {
    for is_waiting in [true, false] {
        let mut world = World::new(0, DiskType::Sata);
        let flush = || Command::Ata(TaskFile::short(0xe7, 0, 0, [0; 3], DEVICE_LBA));
        world.answers = vec![Status::Busy];
        world.order(flush());
        world.hears_busy = is_waiting;
        while world.executed.is_empty() {
            assert!(world.exchange());
        }
        world.client = client(0, DiskType::Sata, 5, world.now);
        while world.front.sessions.len() < 2 {
            assert!(world.exchange(), "nothing takes time here");
        }
        world.answer_unheard();
        world.wait(2_000);
        assert_eq!(world.executed.len(), 1, "waiting: {is_waiting}");
        world.order(flush());
        assert!(ended(&world.wait(100)) == 1 && world.executed.len() > 1);
    }
}

fn preempted(receipt: &Receipt) -> Reply {
    let sense = Sense::new(SenseKey::UnitAttention, AdditionalSense::REGISTRATIONS_PREEMPTED);
    Reply { sense: sense.to_fixed(), receipt: Some(receipt.clone()), ..Reply::bare(Status::CheckCondition) }
}

/// Another client has taken the volume, and has left it again, before the link is there again. What the first one gave before it heard of
/// that would come onto what the other one has written.
#[test]
fn an_answer_is_heard_when_the_number_of_a_command_says_so_and_never_by_time() {
    let (mut world, receipt) = (World::new(0, DiskType::Scsi), Receipt::default());
    let ready = || Command::Scsi(vec![0; 6]);
    world.replies = vec![preempted(&receipt)];
    world.order(ready());
    while let Some((_, packet)) = world.client.poll_transmit(world.now) {
        world.front.handle_input(path(), packet.to_vec()[..].into(), world.now);
    }
    // The second one is given, too, and does not come.
    world.order(ready());
    world.is_cut = true;
    world.exchange();
    assert_eq!(world.receipts.len(), 1);
    world.wait(14_000);
    world.is_cut = false;
    assert_eq!(ended(&world.wait(5_000)), 2, "the session goes on");
    assert!(world.receipts.len() == 2 && !receipt.is_among(world.receipts[1]), "{:?}", world.receipts);
    for _ in 0..300 {
        world.order(ready());
        assert_eq!(ended(&world.wait(1_000)), 1);
    }
    let heard: Vec<bool> = world.receipts.iter().map(|receipts| receipt.is_among(*receipts)).collect();
    assert_eq!(heard.iter().position(|heard| *heard), Some(256), "the client has the answer to what is 256 before");
    assert!(heard[256..].iter().all(|heard| *heard));
}

#[test]
fn an_ata_client_learns_of_a_preemption_by_another_session() {
    let mut world = World::new(0, DiskType::Sata);
    world.replies = vec![preempted(&Receipt::default())];
    world.order(Command::Ata(TaskFile::short(0xe7, 0, 0, [0; 3], DEVICE_LBA)));
    let events = world.wait(1_000);
    assert!(again(&events).is_some_and(|server| !server.is_resumed), "{events:?}");
    assert_eq!((ended(&events), world.closed), (0, 1), "it is held until it is known whose the volume is");
}

/// A TRIM or a list of zeroes is several tasks.
#[test]
fn a_killed_program_has_nothing_more_executed_of_what_takes_several_tasks() {
    let mut world = World::new(0, DiskType::Sata);
    let flush = || Command::Ata(TaskFile::short(0xe7, 0, 0, [0; 3], DEVICE_LBA));
    // The first task of a command asks what the unit is.
    world.hears_busy = false;
    world.answers = vec![Status::Busy];
    world.order(flush());
    while world.unheard.is_empty() {
        assert!(world.exchange());
    }
    world.client = client(0, DiskType::Sata, 5, world.now);
    while world.front.sessions.len() < 2 {
        assert!(world.exchange(), "nothing takes time here");
    }
    let data = Some(sanwire_buffer::Slices::from(vec![0; 96]));
    for command in std::mem::take(&mut world.unheard) {
        world.front.reply(command, Some(Reply { data_in: data.clone(), ..Reply::bare(Status::Good) }), world.now);
    }
    world.wait(2_000);
    assert_eq!(world.executed.len(), 1, "the next task of the first program is not asked");
}
