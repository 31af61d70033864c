//! Both ends in one thread, without a network: who gets in, what is refused, and what strangers cost.

mod dissection;
mod forged;
mod guesses;
mod lengths;
mod links;
mod memory;
mod namesakes;
mod sessions;
mod shards;
mod succession;
mod terms;
mod world;

use std::time::Duration;

use sanwire_ata::{DEVICE_LBA, TaskFile, command_code};
use sanwire_core::{ClientId, Protection};
use sanwire_hdsp::wire::connection::{Request, SessionName, Step};
use sanwire_hdsp::wire::discovery::Discovery;
use sanwire_hdsp::wire::pcu::RawPcu;
use sanwire_hdsp::wire::{Class, DiskType, ErrorCode, Header, PacketType, Pcu};
use sanwire_hdsp::{ClientEvent, OrderError, Outcome, Request as Asked};
use sanwire_security::keys::Identity;

use world::{Habits, World, order, path, read, write};

fn header() -> Header {
    Header {
        from_server: false,
        error: None,
        packet_type: PacketType::Pcu,
        disk_type: DiskType::Any,
        disk_address: 0,
        server_port: 0,
        client_port: 77,
    }
}

fn open(class: Class, operation: &[u8]) -> Vec<u8> {
    Pcu { header: header(), class, is_sealed: false, number: 0 }.open_packet(operation)
}

fn request(client: u8, attempt: u64, cookie: Option<[u8; 16]>) -> Vec<u8> {
    let session = SessionName { client: ClientId([client; 16]), run: 1, epoch: 0 };
    let request = Request { attempt, session, server_name: "", noise: [9; 32], cookie };
    open(Class::Connection, &Step::Request(request).write())
}

#[test]
fn a_write_is_read_again_with_every_protection_and_every_type_of_disk() {
    for protection in Protection::ALL {
        for disk_type in [DiskType::Ata, DiskType::Sata, DiskType::Scsi] {
            let mut world = World::new(Habits { protection, disk_type, ..Habits::default() });
            let data: Vec<u8> = (0..40 * 512).map(|byte| (byte * 7) as u8).collect();
            assert!(world.ends(write(disk_type, 5, &data)).1.is_none());
            let (outcome, read) = world.ends(read(disk_type, 5, 40));
            assert_eq!(read.as_deref(), Some(&data[..]), "{protection} {disk_type:?} {outcome:?}");
        }
    }
}

#[test]
fn what_is_sealed_cannot_be_read_on_the_way() {
    for (protection, is_seen) in [(Protection::Hash, true), (Protection::Aes128Gcm, false)] {
        let mut world = World::new(Habits { protection, ..Habits::default() });
        world.ends(write(DiskType::Sata, 0, &[0xa5; 1024]));
        let shows = world.sent.iter().any(|packet| packet.windows(32).any(|window| window == [0xa5; 32]));
        assert_eq!(shows, is_seen, "{protection}");
    }
}

#[test]
fn a_client_with_another_password_is_refused_and_has_no_session() {
    let mut world = World::new(Habits { client_psk: [8; 32], ..Habits::default() });
    let refusals = world.wait(Duration::from_secs(20));
    assert!(refusals.iter().any(|event| matches!(event, ClientEvent::Refused(ErrorCode::NotAuthentic))));
    assert!(!world.client.is_connected() && world.server.sessions() == 0);
}

#[test]
fn another_server_than_the_pinned_one_is_told_with_its_key_and_not_taken() {
    let [pinned, other] = [2, 7].map(|number| *Identity::from_private([number; 32]).unwrap().public());
    let mut world = World::new(Habits { server_key: Some(other), ..Habits::default() });
    let events = world.wait(Duration::from_secs(20));
    let is_told = |event: &ClientEvent| matches!(event, ClientEvent::OtherServer { key } if *key == pinned);
    assert!(events.iter().any(is_told) && !world.client.is_connected() && world.server.sessions() == 0);
    let mut world = World::new(Habits { server_key: Some(pinned), ..Habits::default() });
    let events = world.wait(Duration::from_secs(1));
    assert!(world.client.is_connected() && !events.iter().any(is_told), "{events:?}");
}

#[test]
fn who_is_not_listed_gets_no_answer_whatever_he_sends() {
    let mut world = World::new(Habits { is_listed: false, ..Habits::default() });
    let query = Discovery::Query { client: ClientId([1; 16]), server_name: "" };
    for packet in [open(Class::Discovery, &query.write()), request(1, 1, None)] {
        world.server.handle_input(path(9), &packet, world.now);
    }
    assert!(world.server.poll_transmit(world.now).is_none());
    world.wait(Duration::from_secs(3));
    assert!(!world.client.is_connected() && world.server.counters().not_permitted > 2);
}

#[test]
fn who_is_listed_finds_the_server() {
    let mut world = World::new(Habits { is_open: true, ..Habits::default() });
    for (name, is_answered) in [("", true), ("vault", true), ("other", false)] {
        let query = Discovery::Query { client: ClientId([1; 16]), server_name: name };
        world.server.handle_input(path(9), &open(Class::Discovery, &query.write()), world.now);
        let answers: Vec<_> = std::iter::from_fn(|| world.server.poll_transmit(world.now)).collect();
        let answer = answers.iter().find(|(to, _)| *to == path(9)).map(|(_, packet)| packet.head.to_vec());
        assert_eq!(answer.is_some(), is_answered, "{name}");
        answer.inspect(|answer| {
            let raw = RawPcu::read(answer).unwrap();
            assert!(raw.is_whole() && raw.pcu.header.from_server && raw.pcu.header.client_port == 77);
            assert!(matches!(Discovery::read(raw.operation), Ok(Discovery::Answer { server_name: "vault", .. })));
        });
    }
}

/// Forged addresses get cookies, which are no longer than what asked, and few handshakes; a client gets in meanwhile.
#[test]
fn a_flood_of_requests_costs_few_handshakes_and_keeps_no_client_out() {
    let mut world = World::new(Habits { is_open: true, ..Habits::default() });
    let (mut asked_bytes, mut answered_bytes, mut cookies) = (0, 0, 0);
    for number in 0..20_000u64 {
        let packet = request(1, number + 1, (number % 2 == 0).then_some([7; 16]));
        asked_bytes += packet.len();
        world.server.handle_input(path(100 + (number % 50) as u8), &packet, world.now);
        while let Some((to, packet)) = world.server.poll_transmit(world.now) {
            let Ok(raw) = RawPcu::read(&packet.head) else { continue };
            cookies += u32::from(matches!(Step::read(raw.operation), Ok(Step::Cookie { .. })));
            answered_bytes += packet.head.len();
            assert!(to != path(1), "the client has not asked yet");
        }
        world.now += Duration::from_micros(50);
    }
    assert!(cookies > 19_000 && answered_bytes < asked_bytes, "{cookies} cookies");
    world.wait(Duration::from_secs(1));
    assert!(world.client.is_connected(), "it brings its cookie back");
}

#[test]
fn a_client_of_a_disk_that_is_not_there_hears_so() {
    let mut world = World::new(Habits { volume: "other", ..Habits::default() });
    let events = world.wait(Duration::from_millis(100));
    assert!(events.iter().any(|event| matches!(event, ClientEvent::Refused(ErrorCode::NoSuchDisk))));
    let mut world = World::new(Habits { wanted: DiskType::Scsi, ..Habits::default() });
    let events = world.wait(Duration::from_millis(100));
    assert!(events.iter().any(|event| matches!(event, ClientEvent::Refused(ErrorCode::DiskType))));
}

#[test]
fn a_row_of_writes_is_one_write_and_each_is_answered_when_that_is_done() {
    let mut world = World::new(Habits::default());
    world.wait(Duration::from_millis(100));
    world.executes = false;
    for part in 0..4u64 {
        let write = write(DiskType::Sata, 100 + part * 2, &[part as u8; 1024]);
        world.client.order(sanwire_hdsp::Order { more: part < 3, ..write }, world.now).unwrap();
    }
    let events = world.wait(Duration::from_millis(2));
    assert!(!events.iter().any(|event| matches!(event, ClientEvent::Ended { .. })), "not in the store");
    let [(_, Asked::Ata { task_file, data })] = &world.asked[..] else { panic!("{:?}", world.asked) };
    assert_eq!((task_file.command, task_file.lba, task_file.count), (command_code::WRITE_DMA_EXT, 100, 8));
    assert_eq!(data.iter().map(|piece| piece.len()).sum::<usize>(), 4096);
    world.executes = true;
    let ended = world.wait(Duration::from_millis(10));
    let good = ended.iter().filter(
        |event| matches!(event, ClientEvent::Ended { outcome: Outcome::Ata(registers), .. } if registers.is_success()),
    );
    assert_eq!(good.count(), 4);
}

#[test]
fn what_nobody_says_more_of_is_written_after_a_moment() {
    let mut world = World::new(Habits::default());
    world.wait(Duration::from_millis(100));
    let write = write(DiskType::Sata, 100, &[1; 1024]);
    world.client.order(sanwire_hdsp::Order { more: true, ..write }, world.now).unwrap();
    assert!(world.wait(Duration::from_millis(3)).is_empty());
    assert_eq!(world.wait(Duration::from_millis(5)).len(), 1);
}

#[test]
fn commands_that_would_reach_other_sectors_are_not_given() {
    let mut world = World::new(Habits::default());
    let mut try_ = |task_file, data: Option<usize>| {
        let order = order(sanwire_hdsp::Command::Ata(task_file), data.map(|bytes| vec![0; bytes]), None);
        world.client.order(order, world.now).map(drop)
    };
    let short = |count, lba, device| TaskFile::short(command_code::READ_DMA, 0, count, lba, device);
    assert_eq!(try_(short(2, [0xff; 3], DEVICE_LBA), None), Err(OrderError::Address), "past 24 bits");
    assert_eq!(try_(short(1, [0; 3], DEVICE_LBA | 1), None), Err(OrderError::Address), "28 bits");
    assert_eq!(try_(short(1, [0xff; 3], DEVICE_LBA), None), Ok(()));
    let write = |count| TaskFile::long(command_code::WRITE_DMA_EXT, 0, count, [0; 6], DEVICE_LBA);
    assert_eq!(try_(write(2), Some(512)), Err(OrderError::Data));
    assert_eq!(try_(write(1), Some(100)), Err(OrderError::Data));
    assert_eq!(try_(write(1), Some(0)), Err(OrderError::Data));
    assert_eq!(try_(write(2), Some(1024)), Ok(()));
}

#[test]
fn what_the_server_cannot_take_and_what_does_not_fit_ends_by_itself() {
    let mut world = World::new(Habits::default());
    let write = TaskFile::long(command_code::WRITE_DMA_EXT, 0, 2049, [0; 6], DEVICE_LBA);
    let long = order(sanwire_hdsp::Command::Ata(write), Some(vec![0; 2049 * 512]), None);
    assert_eq!(world.ends(long).0, Outcome::TooLong);
    let short_room = sanwire_hdsp::Order { room: sanwire_buffer::Frame::zeroed(1024), ..read(DiskType::Sata, 0, 5) };
    assert_eq!(world.ends(short_room).0, Outcome::Lost);
    assert!(matches!(world.ends(read(DiskType::Sata, 0, 5)).0, Outcome::Ata(_)), "the connection goes on");
}

#[test]
fn either_end_releases() {
    let mut world = World::new(Habits::default());
    world.wait(Duration::from_millis(100));
    assert!(world.client.is_connected());
    world.server.close(world.now);
    let events = world.wait(Duration::from_millis(10));
    assert!(events.iter().any(|event| matches!(event, ClientEvent::Disconnected)));
    let mut world = World::new(Habits::default());
    world.wait(Duration::from_millis(100));
    world.client.close();
    world.wait(Duration::from_millis(10));
    assert_eq!(world.server.sessions(), 0);
}

/// A frame from another station, or with any bit changed, is of no connection or not authentic.
#[test]
fn no_packet_of_a_connection_can_be_changed_or_come_from_elsewhere() {
    let mut world = World::new(Habits::default());
    world.ends(write(DiskType::Sata, 0, &[1; 512]));
    let packets: Vec<Vec<u8>> =
        world.sent.iter().filter(|packet| packet[0] & 8 == 0 && packet.len() < 700).cloned().collect();
    let before = (world.server.sessions(), world.asked.len());
    for packet in packets {
        world.server.handle_input(path(66), &packet, world.now);
        for bit in 0..packet.len() * 8 {
            let mut changed = packet.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            world.server.handle_input(path(1), &changed, world.now);
        }
    }
    world.wait(Duration::from_millis(100));
    assert_eq!((world.server.sessions(), world.asked.len()), before);
    assert_eq!(world.server.counters().violations, 0);
    assert!(world.client.is_connected());
}

/// Packets that are acknowledged already, but damaged: only who has the keys can ask for their acknowledgement again.
#[test]
fn what_is_not_authentic_is_never_acknowledged() {
    let mut world = World::new(Habits::default());
    world.ends(write(DiskType::Sata, 0, &[1; 512]));
    let is_data = |packet: &&Vec<u8>| packet[0] & 8 == 0 && packet[2] >> 4 == 1;
    let mut packet = world.sent.iter().find(is_data).unwrap().clone();
    let acknowledgements = |world: &World| {
        world.sent.iter().filter(|packet| packet[0] & 8 != 0 && packet[2] >> 4 == 2 && packet[8] == 3).count()
    };
    let before = acknowledgements(&world);
    let feed = |world: &mut World, packet: &[u8]| {
        world.server.handle_input(path(1), packet, world.now);
        world.wait(Duration::from_millis(10));
        acknowledgements(world) - before
    };
    *packet.last_mut().unwrap() ^= 1;
    assert_eq!(feed(&mut world, &packet), 0);
    *packet.last_mut().unwrap() ^= 1;
    assert_eq!(feed(&mut world, &packet), 1, "an acknowledgement may have been lost");
}
