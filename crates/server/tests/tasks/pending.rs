//! A store that does its requests in a thread of its own, and completes them from there.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use sanwire_core::Lun;
use sanwire_device::{LogicalUnit, UnitOptions};
use sanwire_hyperscsi::random;
use sanwire_scsi::{AdditionalSense, Identity, Sense, SenseKey, Status};
use sanwire_server::ServerConfig;
use sanwire_store::{Completer, CompletionQueue, Geometry, RamStore, Request, Started, Store};
use sanwire_store_file::blocking;

use super::hyperscsi::connect;
use super::initiator::{BLOCK_BYTES, GOOD, Said};
use super::{FLUSHED as REMOTE, World, wait_until};

const CHECK_CONDITION: u8 = 0x02;

const LOGICAL_UNIT_RESET: u8 = 5;

const READ_BYTES: usize = 256 << 10;

#[derive(Debug)]
struct ThreadStore {
    memory: Arc<RamStore>,
    /// What is asked for goes here, while the store is not lost.
    thread: Mutex<Option<Sender<(Request, Completer)>>>,
    /// A thread that holds such a lock does nothing.
    gate: Arc<Mutex<()>>,
}

impl ThreadStore {
    fn new() -> ThreadStore {
        let (memory, gate) = (Arc::new(RamStore::new(1 << 20, BLOCK_BYTES as u32)), Arc::new(Mutex::new(())));
        let (sender, receiver) = channel();
        let (its_memory, its_gate) = (Arc::clone(&memory), Arc::clone(&gate));
        thread::spawn(move || work(&its_memory, &its_gate, &receiver));
        ThreadStore { memory, thread: Mutex::new(Some(sender)), gate }
    }
}

fn work(memory: &RamStore, gate: &Mutex<()>, asked: &Receiver<(Request, Completer)>) {
    for (request, completer) in asked {
        let _gate = gate.lock().unwrap();
        completer.complete(blocking::run(memory, request));
    }
}

impl Store for ThreadStore {
    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }

    fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
        let (pending, completer) = completions.pend();
        if let Some(thread) = &*self.thread.lock().unwrap() {
            thread.send((request, completer)).unwrap();
        }
        Started::Pending(pending)
    }
}

/// A server that serves such a store as well.
fn world() -> (World, Arc<ThreadStore>) {
    let (world, store) = (World::new(), Arc::new(ThreadStore::new()));
    let identity = Identity::new("remote", [4; 16]).unwrap();
    let disk = LogicalUnit::new(identity, Arc::clone(&store) as _, UnitOptions::default()).unwrap();
    let lun = Lun::new(REMOTE).unwrap();
    world.target.units().add(lun, disk).unwrap();
    let mut exports = world.target.exports();
    exports.iter_mut().find(|export| export.units.len() > 1).unwrap().units.insert(lun, "remote".into());
    world.target.set_exports(exports).unwrap();
    (world, store)
}

#[test]
fn commands_of_all_wires_go_on_when_another_thread_has_done_their_requests() {
    let (world, _store) = world();
    let (mut client, mut initiator) = (connect(world.hyperscsi_address(), random().unwrap()), world.login(1));
    client.ask(REMOTE, [0; 6].into(), &[]);
    initiator.settle(REMOTE);
    for lba in 0..100 {
        let tag = initiator.write(REMOTE, lba, lba);
        assert_eq!(initiator.hear(), Said::Status(tag, GOOD));
        let tag = client.write(REMOTE, 100 + lba, lba);
        assert_eq!(client.answer(), (tag, true));
    }
    for lba in 0..100 {
        assert_eq!((initiator.read(REMOTE, lba), initiator.read(REMOTE, 100 + lba)), (lba, lba));
    }
    assert_eq!(initiator.ask(REMOTE, [0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0].into(), &[]), (Status::Good, None));
}

#[test]
fn a_reset_is_answered_when_the_other_thread_has_ended_what_it_was_doing() {
    let (world, store) = world();
    let [mut own, mut other] = [1, 2].map(|port| {
        let mut initiator = world.login(port);
        initiator.settle(REMOTE);
        initiator
    });
    assert_ne!(world.shard_of(1), world.shard_of(2));
    let gate = store.gate.lock().unwrap();
    let write = own.write(REMOTE, 0, 7);
    own.hears_nothing_else();
    let reset = other.manage(LOGICAL_UNIT_RESET, REMOTE, u32::MAX);
    other.hears_nothing_else();
    drop(gate);
    assert_eq!(other.hear(), Said::Managed(reset, 0));
    assert!(matches!(own.hear(), Said::Status(tag, 0x40) if tag == write), "TASK ABORTED");
}

#[test]
fn what_a_lost_session_still_writes_in_another_thread_keeps_its_blocks() {
    let (world, store) = world();
    let [mut lost, mut other] = [1, 2].map(|port| {
        let mut initiator = world.login(port);
        initiator.settle(REMOTE);
        initiator
    });
    let gate = store.gate.lock().unwrap();
    lost.write(REMOTE, 0, 7);
    lost.hears_nothing_else();
    drop(lost);
    world.wait_for_sessions(1);
    let newer = other.write(REMOTE, 0, 8);
    other.hears_nothing_else();
    drop(gate);
    assert_eq!(other.hear(), Said::Status(newer, GOOD));
    assert_eq!(other.read(REMOTE, 0), 8);
}

#[test]
fn a_store_that_loses_track_of_its_requests_leaves_no_command_waiting() {
    let (world, store) = world();
    let mut initiator = world.login(1);
    initiator.settle(REMOTE);
    *store.thread.lock().unwrap() = None;
    wait_until("the thread has ended", || Arc::strong_count(&store.memory) == 1);
    let sense = Sense::new(SenseKey::NotReady, AdditionalSense::NOT_READY_MANUAL_INTERVENTION_REQUIRED);
    let write = [0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    assert_eq!(initiator.ask(REMOTE, write.into(), &[1; BLOCK_BYTES]), (Status::CheckCondition, Some(sense)));
}

/// A command that needs memory can be told that its unit is gone without any. Nothing else ends here that would have it tried again.
#[test]
fn what_waits_for_memory_ends_when_its_volume_is_removed_though_no_memory_is_released() {
    let (world, store) = world();
    let mut initiator = world.login(1);
    initiator.settle(REMOTE);
    let gate = store.gate.lock().unwrap();
    // Each keeps its memory until the store has read: together they want more than the shard has.
    let [high, low] = ((READ_BYTES / BLOCK_BYTES) as u16).to_be_bytes();
    let read = [0x28, 0, 0, 0, 0, 0, 0, high, low, 0];
    let reads = ServerConfig::MEMORY_BYTES_DEFAULT / 2 / READ_BYTES + 1;
    (0..reads).for_each(|_| _ = initiator.command(REMOTE, &read, &[], READ_BYTES as u32));
    initiator.hears_nothing_else();
    let lun = Lun::new(REMOTE).unwrap();
    let mut exports = world.target.exports();
    exports.iter_mut().for_each(|export| export.units.retain(|_, volume| volume != "remote"));
    world.target.set_exports(exports).unwrap();
    assert!(world.target.remove_volume(lun).is_some());
    assert!(matches!(initiator.hear(), Said::Status(_, CHECK_CONDITION)), "the first that waits");
    drop(gate);
}
