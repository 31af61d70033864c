//! Units that are derived from others, on several threads that each execute commands as a shard does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant as Clock};

use sanwire_core::WallClock;
use sanwire_device::{
    AllowedOperations, CommandProgram, Derivation, DerivedExtent, JudgedCommand, Judgement, Verdict, WriteHold,
};
use sanwire_scsi::{AdditionalSense, Cdb, Sense};
use sanwire_store::RamStore;

use super::*;

/// A nexus to which nothing must be told of how the units came.
const OWNER: NexusId = NexusId(9);
const THREADS: u64 = 4;
const SWAPS: u64 = 150;

/// RAM that lets others have a turn before each request is done.
#[derive(Debug)]
struct Yielding(RamStore);

impl Store for Yielding {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
        thread::yield_now();
        self.0.start(request, completions)
    }
}

/// A disk of 256 blocks.
fn world() -> World {
    World::over(Arc::new(Yielding(RamStore::new(256 * BLOCK_BYTES as u64, BLOCK_BYTES as u32))), Patience::default())
}

fn lun(number: u16) -> Lun {
    Lun::new(number).unwrap()
}

fn derive(world: &World, parent: u16, number: u16, extents: &[(u64, u64)], program: Option<Arc<dyn CommandProgram>>) {
    let bytes = |blocks: u64| blocks * BLOCK_BYTES as u64;
    let extent = |(lba, blocks): &(u64, u64)| DerivedExtent { offset_bytes: bytes(*lba), length_bytes: bytes(*blocks) };
    let derivation = Derivation {
        extents: extents.iter().map(extent).collect(),
        operations: AllowedOperations::all(),
        admission: None,
        until_unix_ms: None,
        program,
        clock: WallClock::default(),
    };
    let identity = Identity::new(&format!("part{number}"), u128::from(number).to_be_bytes()).unwrap();
    let parent = world.units.get(lun(parent)).unwrap();
    let part = LogicalUnit::derive(identity, &parent, derivation, UnitOptions::default()).unwrap();
    world.units.add(lun(number), part).unwrap();
}

/// A thread that executes commands of one nexus.
struct Shard<'w> {
    world: &'w World,
    engine: Engine<Command>,
    nexus: NexusId,
    given: u32,
}

impl<'w> Shard<'w> {
    /// On the thread that calls this.
    fn new(world: &'w World, nexus: NexusId) -> Self {
        let this = thread::current();
        let engine = Engine::new(world.memory.clone(), CompletionQueue::new(move || this.unpark()));
        Shard { world, engine, nexus, given: 0 }
    }

    fn run(&mut self, number: u16, task: Task) -> Reply {
        self.given += 1;
        self.world.begin(&mut self.engine, Command(self.nexus, self.given), Task { lun: Some(lun(number)), ..task });
        let since = Clock::now();
        loop {
            if let Some(ended) = self.engine.poll_ended() {
                return ended.reply.unwrap();
            }
            assert!(since.elapsed() < Duration::from_secs(60), "a command hangs: {:?}", self.engine);
            thread::park_timeout(Duration::from_secs(1));
            self.engine.reap(self.world.now);
            self.engine.retry(self.world.now);
        }
    }
}

fn block_of(value: u64) -> Vec<u8> {
    value.to_be_bytes().repeat(BLOCK_BYTES / 8)
}

fn swap(lba: u64, from: u64, to: u64) -> Task {
    let mut cdb = [0; 16];
    (cdb[0], cdb[13]) = (0x89, 1);
    task(Cdb::from(cdb).with_lba(lba).unwrap(), 0, Some([block_of(from), block_of(to)].concat()))
}

/// Each success of a COMPARE AND WRITE adds one; two successes from the same value would lose one.
#[test]
fn of_swaps_of_one_block_by_several_units_and_threads_only_one_succeeds_at_a_time() {
    let world = world();
    derive(&world, 0, 1, &[(0, 4), (100, 4)], None);
    derive(&world, 1, 2, &[(4, 2)], None);
    let successes = AtomicU64::new(0);
    thread::scope(|scope| {
        for at in 0..THREADS {
            let (world, successes) = (&world, &successes);
            scope.spawn(move || {
                let mut shard = Shard::new(world, NexusId(10 + at));
                let (number, lba) = [(0, 100), (1, 4), (2, 0), (0, 100)][at as usize];
                let mut own = 0;
                while own < SWAPS {
                    let found = shard.run(number, read(lba)).data_in.unwrap().to_vec();
                    let value = u64::from_be_bytes(*found.first_chunk().unwrap());
                    let reply = shard.run(number, swap(lba, value, value + 1));
                    own += u64::from(reply.status == Status::Good);
                }
                successes.fetch_add(own, Ordering::Relaxed);
            });
        }
    });
    let mut shard = Shard::new(&world, OWNER);
    let found = shard.run(0, read(100)).data_in.unwrap().to_vec();
    assert_eq!(successes.into_inner(), THREADS * SWAPS);
    assert_eq!(found, block_of(THREADS * SWAPS));
}

/// When all that had begun has ended, nothing of the revoked unit comes after what its owner writes there.
#[test]
fn nothing_is_written_by_a_unit_after_it_was_revoked_and_what_had_begun_has_ended() {
    for round in 0..20 {
        let world = world();
        derive(&world, 0, 1, &[(0, 4), (100, 4)], None);
        let unit = world.units.get(lun(1)).unwrap();
        let gone = Sense::new(sanwire_scsi::SenseKey::IllegalRequest, AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED);
        let all =
            |byte| task(build::write_16(Extent { lba: 0, blocks: 8 }, false), 0, Some(vec![byte; 8 * BLOCK_BYTES]));
        let written = AtomicU64::new(0);
        thread::scope(|scope| {
            for at in 0..THREADS {
                let (world, all, written) = (&world, &all, &written);
                scope.spawn(move || {
                    let mut shard = Shard::new(world, NexusId(10 + at));
                    loop {
                        let reply = shard.run(1, if at == 0 { fill(&shard) } else { all(0x11) });
                        match Sense::parse(&reply.sense) {
                            Some(sense) if sense == gone => return,
                            _ => written.fetch_add(1, Ordering::Relaxed),
                        };
                    }
                });
            }
            while written.load(Ordering::Relaxed) < 5 + round {
                thread::yield_now();
            }
            unit.revoke();
            let hold = WriteHold::begin(unit.state());
            let this = thread::current();
            let waker = CompletionQueue::new(move || this.unpark());
            loop {
                hold.wake(&waker);
                if hold.is_held() {
                    break;
                }
                thread::park_timeout(Duration::from_secs(1));
            }
            drop(hold);
            let mut shard = Shard::new(&world, OWNER);
            for lba in [0, 100] {
                let own = task(build::write_16(Extent { lba, blocks: 4 }, false), 0, Some(vec![0x77; 4 * BLOCK_BYTES]));
                assert_eq!(shard.run(0, own).status, Status::Good);
            }
        });
        let mut shard = Shard::new(&world, OWNER);
        for lba in (0..4).chain(100..104) {
            assert_eq!(shard.run(0, read(lba)).data_in.unwrap().to_vec(), [0x77; BLOCK_BYTES], "round {round}, {lba}");
        }
    }
}

/// A long command: it writes its blocks one request after the other.
fn fill(shard: &Shard<'_>) -> Task {
    let blocks = 1 + shard.given % 8;
    task(build::write_same_16(Extent { lba: 0, blocks }, false, false), 0, Some(vec![0x22; BLOCK_BYTES]))
}

/// Has each command wait for as long as this the first time.
#[derive(Debug)]
struct Patient(u32);

impl CommandProgram for Patient {
    fn judge(&self, command: &JudgedCommand<'_>) -> Judgement {
        let is_early = command.waited_ms < self.0;
        if is_early { Verdict::Defer { milliseconds: self.0 - command.waited_ms } } else { Verdict::Allow }.into()
    }
}

#[test]
fn a_deferred_command_begins_when_its_time_has_come_and_can_be_aborted_until_then() {
    let mut world = world();
    derive(&world, 0, 1, &[(0, 4)], Some(Arc::new(Patient(300))));
    let mut shard = world.shard();
    let to_part = |task| Task { lun: Some(lun(1)), ..task };
    for number in [2, 3] {
        world.begin(&mut shard, Command(OWNER, number), to_part(write(0)));
    }
    world.begin(&mut shard, Command(OWNER, 4), to_part(world.test_unit_ready()));
    assert_eq!(shard.poll_ended().map(|ended| ended.handle), Some(Command(OWNER, 4)), "nothing waits behind them");
    assert!(shard.poll_ended().is_none() && !shard.is_idle() && !shard.is_starved());
    let due = world.now + Duration::from_millis(300);
    assert_eq!(shard.poll_timeout(), Some(due));
    shard.abort(&Selection { by: TWO, which: Which::On(vec![world.units.get(lun(1)).unwrap().id()]) }, None);
    let aborted: Vec<_> = std::iter::from_fn(|| shard.poll_ended()).map(|ended| status(ended.reply)).collect();
    assert_eq!(aborted, [Some(Status::TaskAborted); 2]);
    assert!(shard.is_idle() && shard.poll_timeout().is_none_or(|at| at > due));
    world.begin(&mut shard, Command(OWNER, 5), to_part(write(0)));
    world.now += Duration::from_millis(299);
    shard.handle_timeout(world.now);
    assert!(shard.poll_ended().is_none());
    world.now += Duration::from_millis(1);
    shard.handle_timeout(world.now);
    assert_eq!(shard.poll_ended().map(|ended| status(ended.reply)), Some(Some(Status::Good)));
    assert!(shard.is_idle());
}
