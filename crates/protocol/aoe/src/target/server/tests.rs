mod lengths;

use std::sync::Arc;

use sanwire_buffer::Region;
use sanwire_core::Lun;
use sanwire_scsi::{Capacity, operation_code};

use super::*;
use crate::shelves::Shelves;
use crate::wire::{Reserve, ReserveOrder};

const ADDRESS: Address = Address { shelf: 7, slot: 3 };
const HOST: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const STRANGER: MacAddress = MacAddress([2, 0, 0, 0, 0, 0xee]);

/// A target, with a unit of 1,000 sectors that answers every task at once unless it is told to keep them.
struct World {
    target: Target,
    kept: Vec<(NexusId, u64, Task)>,
    keeps: bool,
    /// What else was told.
    events: Vec<TargetEvent>,
    now: Instant,
}

impl World {
    fn new() -> Self {
        let shelves = Arc::new(Shelves::default());
        shelves.put(ADDRESS, Lun::new(5).unwrap());
        shelves.put(Address { shelf: 9, slot: 0 }, Lun::new(6).unwrap());
        let target = Target::new(TargetConfig {
            shelves,
            admission: Box::new(|station| station != STRANGER),
            memory: Region::new(1 << 20).unwrap(),
            links: vec![1500, 9000],
            buffers: 4,
            nexuses: (100, 2),
            run: 9,
            announces: true,
        });
        World { target, kept: Vec::new(), keeps: false, events: Vec::new(), now: Instant::ZERO }
    }

    /// What comes back to a message of a station on a link.
    fn give(&mut self, link: u8, station: MacAddress, message: &[u8]) -> Vec<Vec<u8>> {
        let path = Path { link: LinkId(link), peer: Peer::Ethernet(station) };
        self.target.handle_input(path, message, self.now);
        self.settle();
        self.sent().into_iter().filter(|(to, _)| *to == path).map(|(_, bytes)| bytes).collect()
    }

    fn settle(&mut self) {
        while let Some(event) = self.target.poll_event() {
            let (nexus, number, task) = match event {
                TargetEvent::Command { nexus, number, task } => (nexus, number, task),
                event => {
                    self.events.push(event);
                    continue;
                }
            };
            let is_question = matches!(task.cdb.operation_code(), operation_code::INQUIRY | 0x9e | 0x1a);
            if self.keeps && !is_question {
                self.kept.push((nexus, number, task));
                continue;
            }
            let capacity = Capacity {
                blocks: 1000,
                block_bytes: 512,
                physical_block_exponent: 0,
                provisioning_management: false,
                reads_zeroes: false,
            };
            let data = match task.cdb.operation_code() {
                0x9e => capacity.to_sixteen().to_vec(),
                operation_code::READ_16 => vec![0xab; task.data_in_max_bytes as usize],
                _ => Vec::new(),
            };
            self.target.reply(nexus, number, Some(Reply::good(Some(Slices::from(data)))), self.now);
        }
    }

    fn sent(&mut self) -> Vec<(Path, Vec<u8>)> {
        let mut sent = Vec::new();
        while let Some((path, packet)) = self.target.poll_transmit() {
            let mut bytes = packet.head.to_vec();
            bytes.extend(packet.payload.iter().flat_map(|payload| payload.iter()));
            assert!(bytes.len() >= wire::PAYLOAD_MIN_BYTES, "tools take shorter frames for damaged");
            sent.push((path, bytes));
        }
        sent
    }
}

fn message(address: Address, command: u8, tag: u32, argument: &[u8]) -> Vec<u8> {
    [&Header::request(address, command, tag).to_bytes(), argument].concat()
}

fn ata(tag: u32, flags: u8, command: u8, count: u8, lba: u8, data: &[u8]) -> Vec<u8> {
    let header = AtaHeader { flags, feature: 0, count, command, lba: [lba, 0, 0, 0, 0, 0] };
    [&message(ADDRESS, command::ATA, tag, &header.to_bytes()), data].concat()
}

#[test]
fn it_says_at_its_start_on_every_link_where_its_targets_are() {
    let told = World::new().sent();
    assert_eq!(told.len(), 4, "two targets on two links");
    let (path, bytes) = &told[2];
    assert_eq!((path.link, path.peer), (LinkId(1), Peer::Ethernet(MacAddress::BROADCAST)));
    assert_eq!(bytes[..18], [0x18, 0, 0, 7, 3, 1, 0, 0, 0, 0, 0, 4, 1, 0, 17, 0x10, 0, 0]);
}

#[test]
fn a_query_for_all_is_answered_by_each() {
    let mut world = World::new();
    world.sent();
    let query = message(Address::EVERY, command::CONFIG, 9, &[0; 8]);
    let answers = world.give(0, HOST, &query);
    let from: Vec<_> = answers.iter().map(|answer| Header::parse(answer).unwrap().0.address.to_string()).collect();
    assert_eq!(from, ["7.3", "9.0"]);
    assert_eq!(answers[0][14], 2, "sectors of a frame of 1,500 bytes");
    assert_eq!(world.give(1, HOST, &query)[0][14], 17);
    assert!(world.give(0, STRANGER, &query).is_empty());
    assert_eq!(world.target.counters().not_allowed, 1);
}

#[test]
fn sectors_are_read_and_written() {
    let mut world = World::new();
    world.sent();
    let [answer] = &world.give(0, HOST, &ata(1, 0x40, 0x24, 2, 5, &[]))[..] else { panic!("one answer") };
    assert_eq!(answer[..22], [0x18, 0, 0, 7, 3, 0, 0, 0, 0, 1, 0x40, 0, 0, 0x50, 5, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(answer[22..], [0xab; 1024]);
    let [answer] = &world.give(0, HOST, &ata(2, 0x41, 0x34, 1, 5, &[7; 512]))[..] else { panic!("one answer") };
    assert_eq!((answer[13], answer.len()), (0x50, wire::PAYLOAD_MIN_BYTES));
}

#[test]
fn what_is_copied_of_writes_and_answers_is_counted() {
    let mut world = World::new();
    world.sent();
    world.give(0, HOST, &ata(1, 0x41, 0x34, 1, 5, &[7; 512]));
    assert_eq!(world.target.written(), Carried { in_place: 0, copied: 512 });
    let before = world.target.answered();
    // What a unit makes for the answer is nobody's but its own: as if it were copied.
    world.give(0, HOST, &ata(2, 0x40, 0x24, 2, 5, &[]));
    let made = Carried { copied: before.copied + 1024, ..before };
    assert_eq!(world.target.answered(), made);
    // What lies in the memory of a store, or for data, is sent from there.
    world.keeps = true;
    world.give(0, HOST, &ata(3, 0x40, 0x24, 2, 5, &[]));
    let Some((nexus, number, _)) = world.kept.pop() else { panic!("it is kept") };
    let data = Region::new(4096).unwrap().frame(1024).unwrap().freeze();
    world.target.reply(nexus, number, Some(Reply::good(Some(Slices::from(data)))), world.now);
    assert_eq!(world.target.answered(), Carried { in_place: before.in_place + 1024, ..made });
}

#[test]
fn what_is_wrong_with_a_command_is_told_by_its_registers() {
    let mut world = World::new();
    world.sent();
    for message in [
        ata(1, 0x40, 0x24, 3, 5, &[]),
        ata(2, 0x41, 0x34, 2, 5, &[7; 1023]),
        ata(3, 0x40, 0xff, 0, 0, &[]),
        ata(4, 0x40, 0x24, 0, 0, &[]),
    ] {
        let [answer] = &world.give(0, HOST, &message)[..] else { panic!("one answer") };
        assert_eq!((answer[0], answer[11], answer[13]), (0x18, error::ABRT, 0x51), "no error of AoE's own");
    }
    for (message, error) in [
        (message(ADDRESS, 0xf0, 5, &[]), 1),
        (message(ADDRESS, command::CONFIG, 5, &[0; 7]), 2),
        ([&[0x20][..], &message(ADDRESS, command::ATA, 6, &[0; 12])[1..]].concat(), 5),
    ] {
        let [answer] = &world.give(0, HOST, &message)[..] else { panic!("one answer") };
        assert_eq!((answer[0], answer[1]), (0x1c, error));
    }
    assert!(world.give(0, HOST, &message(Address { shelf: 8, slot: 3 }, command::CONFIG, 5, &[0; 8])).is_empty());
}

#[test]
fn no_more_is_under_way_than_is_announced_and_nothing_twice() {
    let mut world = World::new();
    world.give(0, HOST, &ata(0, 0x40, 0x24, 1, 0, &[]));
    world.keeps = true;
    for tag in [1, 2, 2, 3, 4, 5, 6] {
        world.give(0, HOST, &ata(tag, 0x40, 0x24, 1, 0, &[]));
    }
    assert_eq!(world.kept.len(), 4);
    assert_eq!((world.target.counters().beyond_window, world.target.counters().repeated), (2, 1));
    let (nexus, number, task) = world.kept.remove(0);
    assert_eq!((nexus, task.lun), (NexusId(100), Lun::new(5)));
    world.target.reply(nexus, number, Some(Reply::good(Some(Slices::from(vec![1; 512])))), world.now);
    world.give(0, HOST, &ata(7, 0x40, 0x24, 1, 0, &[]));
    assert_eq!(world.kept.len(), 4, "there is room again");
}

#[test]
fn a_write_that_comes_twice_is_done_once() {
    let mut world = World::new();
    let write = |data: u8| ata(9, 0x41, 0x34, 1, 5, &[data; 512]);
    let first = world.give(0, HOST, &write(1));
    let first = first.last().cloned();
    world.keeps = true;
    assert_eq!(world.give(0, HOST, &write(1)).last().cloned(), first, "answered from memory");
    assert!(world.kept.is_empty());
    world.give(0, HOST, &write(2));
    assert_eq!(world.kept.len(), 1, "a tag alone says nothing");
}

/// Its host takes the end of either copy for the end of both, and may write the sectors anew.
#[test]
fn a_copy_of_a_write_under_another_tag_waits_for_the_first() {
    let mut world = World::new();
    world.give(0, HOST, &ata(0, 0x40, 0x24, 1, 0, &[]));
    world.sent();
    world.keeps = true;
    let write = |tag, count, lba| ata(tag, 0x41, 0x34, count, lba, &vec![1; 512 * usize::from(count)]);
    for (tag, count, lba) in [(1, 2, 5), (2, 2, 5), (3, 1, 7), (4, 1, 6)] {
        world.give(0, HOST, &write(tag, count, lba));
    }
    let tags = |world: &World| world.kept.iter().map(|(_, number, _)| *number).collect::<Vec<_>>();
    let first = tags(&world)[0];
    assert_eq!(tags(&world), [first, first + 2], "sectors 5 and 6, and 7");
    let end = |world: &mut World| {
        let (nexus, number, _) = world.kept.remove(0);
        world.target.reply(nexus, number, Some(Reply::good(None)), world.now);
        world.settle();
    };
    end(&mut world);
    assert_eq!(tags(&world), [first + 2, first + 1], "the copy, and not yet what comes after it");
    (0..2).for_each(|_| end(&mut world));
    assert_eq!(tags(&world), [first + 3]);
    end(&mut world);
    assert_eq!(world.sent().len(), 4, "all are answered");
}

/// Or no flush after one that has failed would ever succeed.
#[test]
fn a_station_has_heard_an_answer_after_a_while() {
    let mut world = World::new();
    world.give(0, HOST, &ata(0, 0x40, 0x24, 1, 0, &[]));
    world.keeps = true;
    let flush = |world: &mut World, tag| {
        world.give(0, HOST, &ata(tag, 0x40, 0xea, 0, 0, &[]));
        world.kept.remove(0)
    };
    let (nexus, number, task) = flush(&mut world, 1);
    assert_eq!(task.receipts, 0);
    let receipt = sanwire_scsi::Receipt::default();
    let failed = Reply { receipt: Some(receipt.clone()), ..Reply::bare(Status::CheckCondition) };
    world.target.reply(nexus, number, Some(failed), world.now);
    let (nexus, number, task) = flush(&mut world, 2);
    assert!(!receipt.is_among(task.receipts), "it may have been on the way to the station");
    world.target.reply(nexus, number, Some(Reply::good(None)), world.now);
    world.now += HEARD_AFTER;
    let (.., task) = flush(&mut world, 3);
    assert!(receipt.is_among(task.receipts));
}

/// The unit tells of it once, and nobody may have heard that.
#[test]
fn a_copy_of_a_flush_that_has_failed_fails_too() {
    let mut world = World::new();
    world.give(0, HOST, &ata(0, 0x40, 0x24, 1, 0, &[]));
    world.sent();
    world.keeps = true;
    let flush = ata(1, 0x40, 0xea, 0, 0, &[]);
    world.give(0, HOST, &flush);
    let (nexus, number, _) = world.kept.remove(0);
    world.target.reply(nexus, number, Some(Reply::bare(Status::CheckCondition)), world.now);
    let failed = world.sent().remove(0).1;
    assert_eq!(failed[13] & 1, 1);
    world.now += Duration::from_secs(59);
    world.target.handle_timeout(world.now);
    assert_eq!(world.give(0, HOST, &flush), [failed]);
    assert!(world.kept.is_empty());
    world.give(0, HOST, &ata(2, 0x40, 0xea, 0, 0, &[]));
    assert_eq!(world.kept.len(), 1, "another one");
}

#[test]
fn nobody_shuts_all_targets_by_one_message() {
    let mut world = World::new();
    world.sent();
    let set = Reserve { order: ReserveOrder::ForceSet, stations: vec![HOST] }.to_bytes();
    let add = [0, 1, 0, 1, 0, 1, 2, 0, 0, 0, 0, 9];
    for (command, argument) in [(command::RESERVE, &set[..]), (command::MASK, &add)] {
        for answer in world.give(0, HOST, &message(Address::EVERY, command, 1, argument)) {
            assert_eq!(answer[..2], [0x1c, 2]);
        }
    }
    assert_eq!(world.give(0, MacAddress([2, 0, 0, 0, 0, 2]), &ata(4, 0x40, 0x24, 1, 0, &[]))[0][13], 0x50);
}

#[test]
fn a_unit_that_is_busy_is_asked_again() {
    let mut world = World::new();
    world.give(0, HOST, &ata(0, 0x40, 0x24, 1, 0, &[]));
    world.keeps = true;
    world.give(0, HOST, &ata(1, 0x40, 0x24, 1, 0, &[]));
    let (nexus, number, _) = world.kept.remove(0);
    world.target.reply(nexus, number, Some(Reply::bare(Status::Busy)), world.now);
    world.settle();
    assert!(world.kept.is_empty());
    world.now = world.target.poll_timeout().unwrap();
    world.target.handle_timeout(world.now);
    world.settle();
    assert_eq!(world.kept.len(), 1);
}

#[test]
fn who_is_shut_out_writes_no_more_when_the_unit_has_time_again() {
    let mut world = World::new();
    world.give(0, HOST, &ata(0, 0x40, 0x24, 1, 0, &[]));
    world.sent();
    world.keeps = true;
    world.give(0, HOST, &ata(1, 0x41, 0x34, 1, 5, &[7; 512]));
    let (nexus, number, _) = world.kept.remove(0);
    world.target.reply(nexus, number, Some(Reply::bare(Status::Busy)), world.now);
    let other = Reserve { order: ReserveOrder::ForceSet, stations: vec![MacAddress([2, 0, 0, 0, 0, 2])] }.to_bytes();
    world.give(0, MacAddress([2, 0, 0, 0, 0, 2]), &message(ADDRESS, command::RESERVE, 1, &other));
    world.now = world.target.poll_timeout().unwrap();
    world.target.handle_timeout(world.now);
    world.settle();
    assert!(world.kept.is_empty());
    let (_, answer) = world.sent().remove(0);
    assert_eq!((answer[11], answer[13]), (error::ABRT, 0x51));
}

#[test]
fn frames_are_as_large_as_the_link_has_become() {
    let mut world = World::new();
    world.sent();
    let query = message(ADDRESS, command::CONFIG, 9, &[0; 8]);
    assert_eq!(world.give(1, HOST, &query)[0][14], 17);
    world.target.set_link(LinkId(1), 1500);
    assert_eq!(world.give(1, HOST, &query)[0][14], 2);
    assert_eq!(world.give(1, HOST, &ata(1, 0x40, 0x24, 3, 5, &[]))[0][13], 0x51, "it fails, and does not hang");
}

/// Answers to commands have room however many questions there are.
#[test]
fn questions_do_not_keep_answers_from_being_sent() {
    let mut world = World::new();
    world.sent();
    let (path, query) =
        (Path { link: LinkId(0), peer: Peer::Ethernet(HOST) }, message(Address::EVERY, command::CONFIG, 9, &[0; 8]));
    let of_another_version = [&[0x20][..], &query[1..]].concat();
    (0..OUTBOX_MAX).for_each(|_| world.target.handle_input(path, &query, world.now));
    (0..OUTBOX_MAX).for_each(|_| world.target.handle_input(path, &of_another_version, world.now));
    assert!(world.target.outbox.len() <= OUTBOX_MAX / 4 + 2);
    let answers = world.give(0, HOST, &ata(1, 0x40, 0x24, 1, 0, &[]));
    assert!(answers.iter().any(|answer| answer[5] == command::ATA));
}

#[test]
fn who_has_reserved_a_target_has_it_alone() {
    let mut world = World::new();
    world.sent();
    let other = MacAddress([2, 0, 0, 0, 0, 2]);
    let set = Reserve { order: ReserveOrder::Set, stations: vec![HOST] }.to_bytes();
    let answer = world.give(0, HOST, &message(ADDRESS, command::RESERVE, 1, &set)).remove(0);
    assert_eq!(answer[10..18], [1, 1, 2, 0, 0, 0, 0, 1]);
    assert_eq!(world.give(0, other, &message(ADDRESS, command::RESERVE, 2, &set))[0][..2], [0x1c, 6]);
    assert_eq!(world.give(0, other, &ata(3, 0x40, 0x24, 1, 0, &[]))[0][13], 0x51, "it fails, and does not hang");
    assert_eq!(world.give(0, HOST, &ata(4, 0x40, 0x24, 1, 0, &[]))[0][13], 0x50);
}

#[test]
fn stations_that_do_nothing_are_forgotten_and_what_they_have_set_is_not() {
    let mut world = World::new();
    let other = MacAddress([2, 0, 0, 0, 0, 2]);
    world.give(0, HOST, &ata(1, 0, 0xec, 1, 0, &[]));
    // SET FEATURES: no write cache.
    let off = AtaHeader { flags: 0, feature: 0x82, count: 0, command: 0xef, lba: [0; 6] };
    world.give(0, other, &message(ADDRESS, command::ATA, 2, &off.to_bytes()));
    let write = |world: &mut World, station, tag| {
        world.keeps = true;
        world.give(0, station, &ata(tag, 0x41, 0x34, 1, 5, &[7; 512]));
        let (nexus, number, task) = world.kept.remove(0);
        world.target.reply(nexus, number, Some(Reply::good(None)), world.now);
        world.keeps = false;
        task.cdb[1] & 0x08 != 0
    };
    assert!(write(&mut world, other, 3), "it ends on stable storage");
    while world.target.stations().count() > 0 {
        world.now = world.target.poll_timeout().unwrap();
        world.target.handle_timeout(world.now);
    }
    assert!(world.now >= Instant::ZERO + IDLE_MAX && world.target.poll_timeout().is_none(), "nothing wakes it");
    assert!(write(&mut world, other, 4) && !write(&mut world, HOST, 5));
    world.target.config.shelves.renumber(Lun::new(5).unwrap(), Lun::new(8).unwrap());
    assert!(write(&mut world, other, 6), "whatever unit is there");
}

/// What is there by then does not know the nexus, and shows itself to no former one that does not ask who it is.
#[test]
fn who_has_used_a_target_begins_anew_with_another_unit_at_its_place() {
    let mut world = World::new();
    let is_opened = |event: &TargetEvent| matches!(event, TargetEvent::Opened { .. });
    let is_closed = |event: &TargetEvent| matches!(event, TargetEvent::Closed { nexus: NexusId(100) });
    let identify = |tag| ata(tag, 0, 0xec, 1, 0, &[]);
    assert_eq!(world.give(0, HOST, &identify(1)).len(), 1);
    assert_eq!(world.give(0, HOST, &identify(2)).len(), 1);
    assert_eq!(world.events.iter().filter(|event| is_opened(event)).count(), 1);
    let (shelves, lun) = (Arc::clone(&world.target.config.shelves), Lun::new(5).unwrap());
    shelves.remove(lun);
    assert!(world.give(0, HOST, &identify(3)).is_empty(), "nothing is there");
    world.target.look_after();
    shelves.put(ADDRESS, lun);
    // It may be given again, for the unit before.
    let write = |tag| ata(tag, 0x41, 0x34, 1, 5, &[7; 512]);
    world.keeps = true;
    let aborted = world.give(0, HOST, &write(4));
    assert_eq!((aborted.len(), aborted[0][13] & 1, world.kept.len()), (1, 1, 0), "an error, and nothing is executed");
    assert_eq!(world.give(0, HOST, &identify(5)).len(), 1);
    world.give(0, HOST, &write(6));
    assert_eq!(world.kept.len(), 1, "now it knows where it writes");
    assert_eq!(world.events.iter().filter(|event| is_opened(event)).count(), 2);
    assert_eq!(world.events.iter().filter(|event| is_closed(event)).count(), 1);
}

fn station(number: u16) -> MacAddress {
    let [high, low] = number.to_be_bytes();
    MacAddress([2, 0, 0, 1, high, low])
}

/// SET FEATURES: no write cache.
fn without_cache(tag: u32) -> Vec<u8> {
    let off = AtaHeader { flags: 0, feature: 0x82, count: 0, command: 0xef, lba: [0; 6] };
    message(ADDRESS, command::ATA, tag, &off.to_bytes())
}

#[test]
fn stations_that_are_made_up_do_not_come_without_end() {
    let mut world = World::new();
    let answered = |world: &mut World, numbers: std::ops::Range<u16>| {
        numbers.filter(|number| !world.give(0, station(*number), &ata(1, 0x40, 0x24, 1, 0, &[])).is_empty()).count()
    };
    assert_eq!(answered(&mut world, 0..3000), 1024);
    assert_eq!(answered(&mut world, 0..1024), 1024, "those that are there go on");
    world.now += Duration::from_secs(1);
    assert_eq!(answered(&mut world, 3000..6000), 256);
    assert_eq!((world.target.counters().crowded, world.target.stations().count()), (1976 + 2744, 1280));
    let usage = |name| world.target.quotas().into_iter().find(|usage| usage.quota.name == name).expect("a quota");
    assert_eq!(usage("AoE stations that begin to use a target").refused, 1976 + 2744);
    assert_eq!(usage("AoE stations at targets").most, Some(1280));
}

#[test]
fn that_settings_are_given_up_is_told_once() {
    let mut world = World::new();
    // Twice as many as have a place, so that as many were forgotten as can be kept; and some more.
    for number in 0..2 * 4096 + 10 {
        world.now += Duration::from_millis(4);
        world.give(0, station(number), &without_cache(1));
    }
    let told = world.events.iter().filter(|event| matches!(event, TargetEvent::SettingsFull)).count();
    assert_eq!((told, world.target.counters().settings_given_up), (1, 1), "from then on all begin so");
}

#[test]
fn a_verify_reads_no_more_than_a_read_and_few_are_executed_at_once() {
    let mut world = World::new();
    world.target.config.buffers = 64;
    let verify = |tag, count| ata(tag, 0x40, 0x42, count, 0, &[]);
    let [answer] = &world.give(0, HOST, &verify(1, 3))[..] else { panic!("one answer") };
    assert_eq!((answer[11], answer[13]), (error::ABRT, 0x51), "a frame on this link takes two sectors");
    world.give(0, HOST, &verify(2, 2));
    world.keeps = true;
    (3..15).for_each(|tag| drop(world.give(0, HOST, &verify(tag, 2))));
    assert_eq!(world.kept.len(), 8);
    world.give(0, HOST, &ata(20, 0x40, 0x24, 1, 0, &[]));
    assert_eq!(world.kept.len(), 9, "others go before those that wait");
    for left in (0..13).rev() {
        let (nexus, number, _) = world.kept.remove(0);
        world.target.reply(nexus, number, Some(Reply::good(None)), world.now);
        world.settle();
        assert!(world.kept.len() <= left.min(9), "{left}");
    }
    assert_eq!(world.sent().len(), 13, "all are answered");
}

#[test]
fn a_question_to_all_targets_is_answered_now_and_then() {
    let mut world = World::new();
    world.sent();
    let answers =
        |world: &mut World, query: &[u8]| -> usize { (0..20).map(|_| world.give(0, HOST, query).len()).sum() };
    for (address, command) in [(Address::EVERY, command::CONFIG), (Address { shelf: 7, slot: 0xff }, command::MASK)] {
        let targets = if address == Address::EVERY { 2 } else { 1 };
        let argument: &[u8] = if command == command::MASK { &[0; 4] } else { &[0; 8] };
        assert_eq!(answers(&mut world, &message(address, command, 9, argument)), 4 * targets);
        let version_2 = [&[0x20][..], &message(address, command, 6, argument)[1..]].concat();
        assert_eq!(answers(&mut world, &version_2), 0, "refusals are answers, too");
        assert_eq!(answers(&mut world, &message(ADDRESS, command, 9, argument)), 20, "of one target");
        world.now += Duration::from_secs(1);
    }
}

#[test]
fn who_sets_something_hears_of_it_when_it_is_kept() {
    let mut world = World::new();
    world.sent();
    let shelves = Arc::clone(&world.target.config.shelves);
    shelves.keep_with(Box::new(|| {}));
    let set = |text: &[u8]| {
        let length = text.len() as u8;
        message(ADDRESS, command::CONFIG, 1, &[&[0, 0, 0, 0, 0, 0x14, 0, length][..], text].concat())
    };
    let reserve = Reserve { order: ReserveOrder::Set, stations: vec![HOST] }.to_bytes();
    assert!(world.give(0, HOST, &set(b"ours")).is_empty());
    let (first, _) = shelves.settings();
    assert!(world.give(0, HOST, &message(ADDRESS, command::RESERVE, 2, &reserve)).is_empty());
    assert_eq!(
        world.give(0, HOST, &message(ADDRESS, command::CONFIG, 3, &[0; 8])).len(),
        1,
        "a question changes nothing"
    );
    let look = |world: &mut World| {
        world.now = world.target.poll_timeout().expect("it looks").max(world.now);
        world.target.handle_timeout(world.now);
        world.sent().len()
    };
    assert_eq!(look(&mut world), 0);
    shelves.kept(first);
    assert_eq!(look(&mut world), 1, "the other one is not kept yet");
    shelves.kept(first + 1);
    assert_eq!((look(&mut world), world.target.poll_timeout()), (1, None));
}

#[test]
fn lists_that_are_full_are_told() {
    let mut world = World::new();
    let stations: Vec<MacAddress> = (0..186).map(station).collect();
    let edit = |stations: &[MacAddress]| {
        let directives = stations.iter().flat_map(|mac| [&[0, 1][..], &mac.0].concat());
        [vec![0, 1, 0, stations.len() as u8], directives.collect()].concat()
    };
    for (command, argument) in [
        (command::MASK, edit(&stations)),
        (command::RESERVE, Reserve { order: ReserveOrder::Set, stations: stations.clone() }.to_bytes()),
    ] {
        world.give(1, HOST, &message(ADDRESS, command, 1, &argument));
        let told = world.events.pop();
        assert!(matches!(told, Some(TargetEvent::ListFull { address: ADDRESS, .. })), "{command}: {told:?}");
    }
    assert_eq!(world.target.counters().lists_full, 2);
}

#[test]
fn what_the_kernel_may_have_steered_elsewhere_is_not_obeyed() {
    let mut world = World::new();
    let mut steered = ata(1, 0x40, 0x24, 1, 0, &[]);
    steered[1] = 1;
    world.sent();
    assert!(world.give(0, HOST, &steered).is_empty());
    assert_eq!(world.target.counters().malformed, 1);
}

#[test]
fn nothing_that_a_station_sends_makes_it_panic() {
    let mut world = World::new();
    let mut seed = 1_u64;
    for _ in 0..20_000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let length = (seed >> 40) as usize % 80;
        let mut bytes: Vec<u8> = (0..length).map(|at| (seed >> (at % 56)) as u8 ^ at as u8).collect();
        if length > 6 {
            bytes[..6].copy_from_slice(&[0x10, 0, 0, 7, 3, (seed >> 33) as u8 % 5]);
        }
        world.give(0, HOST, &bytes);
    }
}
