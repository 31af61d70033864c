//! Commands whose store is full, or gone for a while, wait for it where their volume has patience.

use std::time::Duration;

use sanwire_core::Lun;
use sanwire_hyperscsi::random;
use sanwire_hyperscsi::wire::command::Function;
use sanwire_scsi::{AdditionalSense, Sense, SenseKey, Status};
use sanwire_server::ServerConfig;
use sanwire_store::{ErrorKind, Patience};

use super::hyperscsi::Driver;
use super::hyperscsi::connect;
use super::initiator::{BLOCK_BYTES, GOOD, Initiator, Said};
use super::{DELAYED, GATED, PROMPT, World, wait_until};

/// Nobody gives up.
const ENDLESS: Patience = Patience { full: Some(Duration::from_secs(3600)), gone: Some(Duration::from_secs(3600)) };

const CHECK_CONDITION: u8 = 0x02;
const TASK_SET_FULL: u8 = 0x28;

const SYNCHRONIZE_CACHE: [u8; 10] = [0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0];

#[test]
fn writes_that_find_no_room_wait_until_there_is_some_and_other_volumes_go_on() {
    let world = World::with(ENDLESS);
    let mut client = connect(world.hyperscsi_address(), random().unwrap());
    let mut initiator = world.login(1);
    world.store.fail(Some(ErrorKind::Full));
    let over_hyperscsi = client.write(GATED, 0, 1);
    let over_iscsi = initiator.write(GATED, 1, 2);
    world.wait_for_stalls(2);
    client.hears_nothing_else();
    initiator.hears_nothing_else();
    let elsewhere = client.write(PROMPT, 0, 3);
    assert_eq!(client.answer(), (elsewhere, true));
    world.store.fail(None);
    assert_eq!(client.answer(), (over_hyperscsi, true));
    assert_eq!(initiator.hear(), Said::Status(over_iscsi, GOOD));
    assert_eq!((initiator.read(GATED, 0), initiator.read(GATED, 1)), (1, 2));
    world.wait_for_stalls(0);
}

#[test]
fn a_write_fails_for_want_of_room_when_none_was_made_in_time() {
    let world = World::with(Patience { full: Some(Duration::from_millis(100)), gone: None });
    let mut client = connect(world.hyperscsi_address(), random().unwrap());
    world.store.fail(Some(ErrorKind::Full));
    let sense = Sense::new(SenseKey::DataProtect, AdditionalSense::SPACE_ALLOCATION_FAILED_WRITE_PROTECT);
    let cdb = [0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    assert_eq!(client.ask(GATED, cdb.into(), &[1; BLOCK_BYTES]), (Status::CheckCondition, Some(sense)));
    world.wait_for_stalls(0);
    world.store.fail(Some(ErrorKind::Gone));
    let sense = Sense::new(SenseKey::NotReady, AdditionalSense::NOT_READY_MANUAL_INTERVENTION_REQUIRED);
    assert_eq!(client.ask(GATED, cdb.into(), &[1; BLOCK_BYTES]), (Status::CheckCondition, Some(sense)), "at once");
}

#[test]
fn reads_and_writes_of_a_store_that_is_gone_go_on_when_it_is_back() {
    let world = World::with(ENDLESS);
    let (mut here, mut there) = (world.login(1), world.login(2));
    let tag = here.write(GATED, 0, 1);
    assert_eq!(here.hear(), Said::Status(tag, GOOD));
    world.store.fail(Some(ErrorKind::Gone));
    let read = here.give_read(GATED, 0);
    let write = there.write(GATED, 1, 2);
    world.wait_for_stalls(2);
    world.store.fail(None);
    assert_eq!(here.hear_read(read), 1);
    assert_eq!(there.hear(), Said::Status(write, GOOD));
}

#[test]
fn a_flush_that_failed_is_not_tried_again() {
    let world = World::with(ENDLESS);
    let mut client = connect(world.hyperscsi_address(), random().unwrap());
    world.store.fail(Some(ErrorKind::Full));
    assert_eq!(client.ask(GATED, SYNCHRONIZE_CACHE.into(), &[]).0, Status::CheckCondition);
}

#[test]
fn a_command_that_waits_for_room_is_aborted_at_once_and_never_done() {
    let world = World::with(ENDLESS);
    let mut client = connect(world.hyperscsi_address(), random().unwrap());
    let mut initiator = world.login(1);
    world.store.fail(Some(ErrorKind::Full));
    let write = client.write(GATED, 0, 1);
    world.wait_for_stalls(1);
    let abort = client.manage(Function::AbortTask, GATED, write.number());
    client.hears_of_an_abort(write, abort);
    world.wait_for_stalls(0);
    let lost = initiator.write(GATED, 0, 1);
    world.wait_for_stalls(1);
    drop((initiator, lost));
    world.wait_for_stalls(0);
    world.store.fail(None);
    assert_eq!(world.login(2).read(GATED, 0), 0);
}

#[test]
fn what_waits_for_room_fails_soon_when_its_volume_is_taken_away() {
    let world = World::with(ENDLESS);
    let mut initiator = world.login(1);
    world.store.fail(Some(ErrorKind::Full));
    let write = initiator.write(GATED, 0, 1);
    world.wait_for_stalls(1);
    let lun = Lun::new(GATED).unwrap();
    let disk = world.target.units().get(lun).unwrap();
    assert!(world.target.remove_volume(lun).is_some());
    wait_until("nothing waits", || disk.stalls().waiting() == 0);
    assert_eq!(initiator.hear(), Said::Status(write, CHECK_CONDITION));
}

#[test]
fn a_client_whose_waiting_writes_keep_most_of_the_memory_sends_no_more_until_they_have_ended() {
    let world = World::with(ENDLESS);
    let mut client = connect(world.hyperscsi_address(), random().unwrap());
    let others = [1, 2].map(|port| world.login(port));
    world.store.fail(Some(ErrorKind::Full));
    for number in 0..CROWD as u8 {
        write_much(&mut client, number);
        world.wait_for_stalls_of(&mut client, u32::from(number) + 1);
    }
    sends_no_more_until_there_is_room(&world, &mut client, others);
}

#[test]
fn a_client_sends_no_more_either_while_a_slow_store_is_asked_again_for_all_its_writes() {
    let world = World::with(ENDLESS);
    let mut client = connect(world.hyperscsi_address(), random().unwrap());
    let others = [1, 2].map(|port| world.login(port));
    world.store.fail_after(Duration::from_secs(1), ErrorKind::Full);
    (0..CROWD as u8).for_each(|number| write_much(&mut client, number));
    world.wait_for_stalls_of(&mut client, CROWD as u32);
    sends_no_more_until_there_is_room(&world, &mut client, others);
}

#[test]
fn writes_that_would_take_the_memory_of_other_volumes_are_to_be_given_again() {
    let world = World::with(ENDLESS);
    let [mut one, mut two, mut other] = three_of_one_shard(&world);
    world.store.fail(Some(ErrorKind::Full));
    give_pieces(&mut one, GATED);
    world.wait_for_stalls(PIECES as u32);
    give_pieces(&mut two, GATED);
    let said = two.hear();
    assert!(matches!(said, Said::Status(_, TASK_SET_FULL)), "{said:?}");
    let disk = world.target.units().get(Lun::new(GATED).unwrap()).unwrap();
    let kept_bytes = disk.stalls().waiting() as usize * PIECE_BYTES;
    assert!(kept_bytes > SHARD_MEMORY_BYTES / 2, "most of them wait: {kept_bytes}");
    assert_eq!(other.read(PROMPT, 0), 0);
    let write = other.write(PROMPT, 0, 1);
    assert_eq!(other.hear(), Said::Status(write, GOOD));
}

#[test]
fn long_writes_over_iscsi_wait_without_memory_while_others_keep_most_of_it() {
    let world = World::with(ENDLESS);
    let [mut one, _, mut other] = three_of_one_shard(&world);
    world.store.fail(Some(ErrorKind::Full));
    let blocks = (LONG_BYTES / BLOCK_BYTES) as u32;
    let crowd = (SHARD_MEMORY_BYTES / 2 / LONG_BYTES + 1) as u32;
    for number in 0..crowd {
        one.give_long_write_at(GATED, number * blocks, LONG_BYTES as u32);
        for _ in 0..LONG_BYTES / R2T_BYTES {
            let r2t = one.hear_r2t();
            one.answer_r2t(&r2t, 7);
        }
        world.wait_for_stalls(number + 1);
    }
    let all = (SHARD_MEMORY_BYTES / LONG_BYTES) as u32;
    (crowd..all).for_each(|number| _ = one.give_long_write_at(GATED, number * blocks, LONG_BYTES as u32));
    one.hears_nothing_else();
    for initiator in [&mut one, &mut other] {
        let write = initiator.give_long_write(PROMPT, LONG_BYTES as u32);
        assert_eq!(initiator.hear_answering(1), Said::Status(write, GOOD), "another volume");
    }
    world.store.fail(None);
    for _ in 0..all {
        let said = one.hear_answering(7);
        assert!(matches!(said, Said::Status(_, GOOD)), "{said:?}");
    }
    world.wait_for_stalls(0);
}

#[test]
fn a_read_that_waits_fails_in_time_when_there_is_no_memory_to_ask_again_with() {
    let world = World::with(Patience { full: None, gone: Some(Duration::from_secs(12)) });
    let [mut one, mut two, mut other] = three_of_one_shard(&world);
    world.store.fail(Some(ErrorKind::Gone));
    let read = other.command(GATED, &[0x28, 0, 0, 0, 0, 0, 0, 8, 0, 0], &[], 1 << 20);
    world.wait_for_stalls(1);
    // These have begun, and keep their memory.
    give_pieces(&mut one, DELAYED);
    give_pieces(&mut two, DELAYED);
    assert_eq!(other.hear(), Said::Status(read, CHECK_CONDITION));
    world.wait_for_stalls(0);
}

/// The memory of a shard, of which there are two.
const SHARD_MEMORY_BYTES: usize = ServerConfig::MEMORY_BYTES_DEFAULT / 2;

const WRITE_BYTES: usize = 1 << 20;
/// So many such writes keep more than half of the memory.
const CROWD: usize = SHARD_MEMORY_BYTES / 2 / WRITE_BYTES + 1;

/// So much is asked for with several R2Ts.
const LONG_BYTES: usize = 512 << 10;
/// MaxBurstLength, where nobody says otherwise.
const R2T_BYTES: usize = 256 << 10;

/// As much as an initiator sends unasked.
const PIECE_BYTES: usize = 64 << 10;
/// So many pieces of each of two initiators leave less than 1 MiB of the memory.
const PIECES: usize = (SHARD_MEMORY_BYTES - WRITE_BYTES) / 2 / PIECE_BYTES + 4;

/// Gives the write of a MiB with this number.
fn write_much(client: &mut Driver, number: u8) {
    let [blocks_high, blocks_low] = ((WRITE_BYTES / BLOCK_BYTES) as u16).to_be_bytes();
    let [lba_high, lba_low] = (u16::from(number) * (WRITE_BYTES / BLOCK_BYTES) as u16).to_be_bytes();
    let cdb = [0x2a, 0, 0, 0, lba_high, lba_low, 0, blocks_high, blocks_low, 0];
    client.command(GATED, cdb.into(), Some(vec![number + 1; WRITE_BYTES].into()));
}

/// The others have sessions on each of the shards.
fn sends_no_more_until_there_is_room(world: &World, client: &mut Driver, mut others: [Initiator; 2]) {
    client.take_what_comes();
    // A shard that was halted has told the client of its want of memory when it has answered others some more.
    for _ in 0..4 {
        others.iter_mut().for_each(|other| assert_eq!(other.read(PROMPT, 0), 0));
    }
    client.take_what_comes();
    let later = client.command(PROMPT, [0; 6].into(), None);
    client.take_what_comes();
    world.store.fail(None);
    let answers: Vec<_> = (0..=CROWD).map(|_| client.answer()).collect();
    assert!(answers.iter().all(|(_, is_good)| *is_good));
    assert_ne!(answers[0].0, later, "it was not asked before some writes had ended");
}

/// Sessions that share the memory of one shard.
fn three_of_one_shard(world: &World) -> [Initiator; 3] {
    let (mut here, mut there) = (Vec::new(), Vec::new());
    for port in 1.. {
        let initiator = world.login(port);
        let same = if world.shard_of(port) == 0 { &mut here } else { &mut there };
        same.push(initiator);
        if same.len() == 3 {
            return std::mem::take(same).try_into().ok().expect("three");
        }
    }
    panic!("no shard has three sessions")
}

/// Gives half of the writes that fill the memory.
fn give_pieces(initiator: &mut Initiator, lun: u16) {
    let [blocks_high, blocks_low] = ((PIECE_BYTES / BLOCK_BYTES) as u16).to_be_bytes();
    let cdb = [0x2a, 0, 0, 0, 0, 0, 0, blocks_high, blocks_low, 0];
    (0..PIECES).for_each(|_| _ = initiator.command(lun, &cdb, &[1; PIECE_BYTES], 0));
}
