mod derived;
mod errors;
mod looking;
mod paused;
mod pending;

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use sanwire_buffer::Region;
use sanwire_core::{ClientId, Instant, Lun, NexusId, Principal};
use sanwire_device::{LogicalUnit, LogicalUnits, NexusPorts, Seat, UnitOptions};
use sanwire_scsi::reservation::TransportId;
use sanwire_scsi::vpd::TargetPort;
use sanwire_scsi::{Extent, Identity, Reply, Status, Task, build};
use sanwire_store::{
    CompletionQueue, ErrorKind, Geometry, KernelOp, Outcome, Patience, Request, Started, Store, StoreError,
};

use crate::{AbortBarrier, Engine, Handle, Meter, Notice, Selection, Which, Work};

const BLOCK_BYTES: usize = 512;
const ONE: NexusId = NexusId(1);
const TWO: NexusId = NexusId(2);

/// A command of a nexus, by a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Command(NexusId, u32);

impl Handle for Command {
    fn nexus(&self) -> NexusId {
        self.0
    }
}

const GEOMETRY: Geometry = Geometry {
    length_bytes: 1 << 20,
    block_bytes: BLOCK_BYTES as u32,
    physical_block_bytes: 4096,
    read_only: false,
    discards: false,
    atomic_write_bytes: 0,
};

/// Leaves all to the kernel.
#[derive(Debug)]
struct KernelStore(Arc<File>);

impl Store for KernelStore {
    fn geometry(&self) -> Geometry {
        GEOMETRY
    }

    fn start(&self, request: Request, _: &CompletionQueue) -> Started {
        Started::Kernel(KernelOp { file: Arc::clone(&self.0), is_block_device: false, request })
    }
}

/// One disk, and shards that serve it.
struct World {
    units: Arc<LogicalUnits>,
    memory: Region,
    now: Instant,
}

impl World {
    fn new(patience: Patience) -> Self {
        World::over(Arc::new(KernelStore(Arc::new(File::open("/dev/null").unwrap()))), patience)
    }

    fn over(store: Arc<dyn Store>, patience: Patience) -> Self {
        let options = UnitOptions { patience, ..UnitOptions::default() };
        let disk = LogicalUnit::new(Identity::new("disk", [1; 16]).unwrap(), store, options).unwrap();
        let units = Arc::new(LogicalUnits::new());
        units.add(Lun::default(), disk).unwrap();
        let world = World { units, memory: Region::new(1 << 20).unwrap(), now: Instant::ZERO };
        for nexus in [ONE, TWO] {
            let initiator = TransportId::hyperscsi(ClientId([nexus.0 as u8; 16]));
            world.units.nexus_established(
                nexus,
                Arc::new(NexusPorts { initiator, target: TargetPort::default(), principal: Principal::default() }),
            );
        }
        let mut shard = world.shard();
        [ONE, TWO].into_iter().for_each(|nexus| world.begin(&mut shard, Command(nexus, 0), world.test_unit_ready()));
        assert!(shard.poll_ended().is_some() && shard.poll_ended().is_some(), "their unit attentions");
        world
    }

    fn shard(&self) -> Engine<Command> {
        Engine::new(self.memory.clone(), CompletionQueue::new(|| ()))
    }

    fn begin(&self, shard: &mut Engine<Command>, command: Command, task: Task) {
        let seat = Seat { units: &self.units, memory: &self.memory, weight: 1 };
        let meter = Meter::start(&self.units, &task, self.now);
        shard.begin(command, meter, seat, task, self.now);
    }

    fn test_unit_ready(&self) -> Task {
        task(build::test_unit_ready(), 0, None)
    }
}

fn task(cdb: sanwire_scsi::Cdb, room_bytes: usize, data: Option<Vec<u8>>) -> Task {
    Task {
        lun: Some(Lun::default()),
        cdb,
        data_out: data.map(Into::into),
        tells_residual: false,
        piece: None,
        receipts: 0,
        data_in_max_bytes: room_bytes as u32,
        may_share: true,
    }
}

fn write(lba: u64) -> Task {
    task(build::write_16(Extent { lba, blocks: 1 }, false), 0, Some(vec![1; BLOCK_BYTES]))
}

fn read(lba: u64) -> Task {
    task(build::read_16(Extent { lba, blocks: 1 }), BLOCK_BYTES, None)
}

/// A barrier, and whether it was passed.
fn barrier() -> (Arc<AbortBarrier>, impl Fn() -> bool) {
    let passed = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&passed);
    (AbortBarrier::new(move || flag.store(true, Ordering::Relaxed)), move || passed.load(Ordering::Relaxed))
}

fn status(reply: Option<Reply>) -> Option<Status> {
    reply.map(|reply| reply.status)
}

#[test]
fn an_abort_barrier_is_passed_when_the_store_has_ended_what_it_was_doing() {
    let world = World::new(Patience::default());
    let mut shard = world.shard();
    world.begin(&mut shard, Command(ONE, 1), write(0));
    let work = shard.poll_work().unwrap();
    let (barrier, is_passed) = barrier();
    let all = Selection { by: TWO, which: Which::On(vec![world.units.get(Lun::default()).unwrap().id()]) };
    shard.abort(&all, Some(&barrier));
    drop(barrier);
    assert!(!is_passed() && shard.poll_ended().is_none(), "its store works on");
    shard.completed(work.id, Ok(Outcome::Done), world.now);
    assert!(is_passed());
    let ended = shard.poll_ended().unwrap();
    assert_eq!((ended.handle, status(ended.reply)), (Command(ONE, 1), Some(Status::TaskAborted)));
    assert!(shard.poll_ended().is_none() && shard.is_idle());
}

#[test]
fn what_the_kernel_has_not_taken_is_not_done_after_an_abort() {
    let world = World::new(Patience::default());
    let mut shard = world.shard();
    world.begin(&mut shard, Command(ONE, 1), write(0));
    let (barrier, is_passed) = barrier();
    shard.abort(&Selection { by: ONE, which: Which::Command(Command(ONE, 1)) }, Some(&barrier));
    drop(barrier);
    assert!(is_passed() && shard.poll_work().is_none());
    let ended = shard.poll_ended().unwrap();
    assert_eq!((ended.handle, status(ended.reply)), (Command(ONE, 1), None), "its own initiator wanted that");
    assert!(shard.is_idle());
}

#[test]
fn blocks_of_a_lost_nexus_are_nobodys_in_any_shard_until_its_write_has_ended() {
    let world = World::new(Patience::default());
    let (mut here, mut there) = (world.shard(), world.shard());
    world.begin(&mut here, Command(ONE, 1), write(0));
    let late = here.poll_work().unwrap();
    here.leave(&Selection { by: ONE, which: Which::Own }, None);
    world.begin(&mut there, Command(TWO, 1), read(0));
    assert!(there.poll_work().is_none());
    world.begin(&mut there, Command(TWO, 2), read(1));
    assert!(there.poll_work().is_some(), "other blocks are free");
    here.completed(late.id, Ok(Outcome::Done), world.now);
    let at = there.poll_timeout().unwrap();
    there.retry(at);
    assert!(there.poll_work().is_some());
}

#[test]
fn who_waits_for_blocks_is_woken_when_they_are_free_and_does_not_ask_meanwhile() {
    let world = World::new(Patience::default());
    let wakes = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&wakes);
    let mut here = world.shard();
    let mut there =
        Engine::new(world.memory.clone(), CompletionQueue::new(move || _ = counted.fetch_add(1, Ordering::Relaxed)));
    world.begin(&mut here, Command(ONE, 1), write(0));
    let late = here.poll_work().unwrap();
    here.leave(&Selection { by: ONE, which: Which::Own }, None);
    world.begin(&mut there, Command(TWO, 1), read(0));
    there.retry(world.now);
    let before = wakes.load(Ordering::Relaxed);
    let looks_at = there.poll_timeout().unwrap();
    assert!(looks_at >= world.now + Duration::from_secs(1), "only slow commands are looked after");
    here.completed(late.id, Ok(Outcome::Done), world.now);
    assert_eq!(wakes.load(Ordering::Relaxed), before + 1);
    there.retry(world.now);
    assert!(there.poll_work().is_some());
}

#[test]
fn work_for_which_there_is_no_room_is_the_next_again() {
    let world = World::new(Patience::default());
    let mut shard = world.shard();
    (1..=3).for_each(|number| world.begin(&mut shard, Command(ONE, number), write(number.into())));
    let first = shard.poll_work().unwrap();
    let offset = |work: &Work| work.op.request.range_bytes().0;
    let block = BLOCK_BYTES as u64;
    assert_eq!(offset(&first), block);
    shard.give_back(first);
    let order: Vec<u64> = std::iter::from_fn(|| shard.poll_work()).map(|work| offset(&work)).collect();
    assert_eq!(order, [block, 2 * block, 3 * block]);
}

#[test]
fn a_second_completion_of_the_same_work_is_nobodys() {
    let world = World::new(Patience::default());
    let mut shard = world.shard();
    world.begin(&mut shard, Command(ONE, 1), write(0));
    let work = shard.poll_work().unwrap();
    shard.completed(work.id, Ok(Outcome::Done), world.now);
    shard.completed(work.id, Ok(Outcome::Done), world.now);
    assert_eq!(status(shard.poll_ended().unwrap().reply), Some(Status::Good));
    assert!(shard.poll_ended().is_none() && shard.is_idle());
}

#[test]
fn a_store_that_is_full_is_asked_again_and_an_administrator_reads_of_it() {
    let world = World::new(Patience { full: Some(Duration::from_secs(60)), gone: None });
    let mut shard = world.shard();
    world.begin(&mut shard, Command(ONE, 1), write(0));
    let work = shard.poll_work().unwrap();
    shard.completed(work.id, Err(StoreError::new(ErrorKind::Full, 0)), world.now);
    assert!(shard.poll_ended().is_none() && shard.poll_work().is_none(), "not at once");
    let stalled = shard.poll_notice().unwrap().to_string();
    assert_eq!(stalled, "the store of disk is full: its commands wait, each 60s at the most");
    let at = shard.poll_timeout().unwrap();
    shard.handle_timeout(at);
    let work = shard.poll_work().unwrap();
    shard.completed(work.id, Ok(Outcome::Done), at);
    assert_eq!(status(shard.poll_ended().unwrap().reply), Some(Status::Good));
    let over = shard.poll_notice().unwrap().to_string();
    assert_eq!(over, "no command waits for the store of disk any more; 0 failed meanwhile");
}

#[test]
fn a_stall_that_was_often_not_told_of_says_how_often() {
    let volume = "disk".to_owned();
    let notice = Notice::Stalled { volume, kind: ErrorKind::Gone, at_most: Duration::from_secs(1), untold: 3 };
    let told =
        "the store of disk is gone: its commands wait, each 1s at the most; it was so 3 more times that are not logged";
    assert_eq!(notice.to_string(), told);
}

/// Its initiator may have given it again by another path long ago, and gone on from there.
#[test]
fn a_command_that_goes_by_pieces_keeps_all_that_is_ahead_of_it_when_it_is_slow() {
    let world = World::new(Patience::default());
    let mut shard = world.shard();
    let mut same = [0; 16];
    (same[0], same[12]) = (0x93, 8);
    let fill = task(same.into(), 0, Some(vec![1; BLOCK_BYTES]));
    world.begin(&mut shard, Command(ONE, 1), fill);
    for ms in [600, 900, 1200] {
        let work = shard.poll_work().unwrap();
        let now = world.now + Duration::from_millis(ms);
        shard.handle_timeout(now);
        if ms == 1200 {
            world.begin(&mut shard, Command(TWO, 1), write(2047));
            world.begin(&mut shard, Command(TWO, 2), write(0));
            let other = shard.poll_work().unwrap();
            assert_eq!(other.op.request.range_bytes().0, 0, "what it has done is free");
            assert!(shard.poll_work().is_none(), "and what is ahead is not");
        }
        shard.completed(work.id, Ok(Outcome::Done), now);
        shard.retry(now);
    }
}
