//! A program at a device: what it says is what becomes of commands.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use sanwire_buffer::{Region, Slice};
use sanwire_core::{Lun, NexusId, WallClock};
use sanwire_device::{
    AllowedOperations, Derivation, DerivedExtent, LogicalUnit, LogicalUnits, Progress, UnitOptions, Waiting,
};
use sanwire_program::{Limits, Program, StateKeeper};
use sanwire_scsi::{AdditionalSense, Extent, Identity, Reply, Sense, SenseKey, Status, Task, build};
use sanwire_store::{CompletionQueue, RamStore};

/// Answers by the first block of the command: 0 allow; 1 redirect to 8; 2 trap; 3 keep and allow; 4 defer; 5 refuse unless the device has 16
/// blocks of 512 bytes. It counts its calls in its state, and asks to be told of the end of all that begins.
const PROGRAM: &str = r#"(module
    (memory (export "memory") 1)
    (global (export "sanwire_abi_1") i32 (i32.const 0))
    (data (i32.const 0)
        "\00\04\00\00\00\08\00\00" "\00\00\00\00\00\00\00\00" "\00\00\00\00\00\00\00\00" "\00\10\00\00\08\00\00\00"
        "\06\00\00\00" "\00\00\00\00\00\00\00\00\00\00\00\00")
    (func $add (param $at i32)
        (i32.store (local.get $at) (i32.add (i32.load (local.get $at)) (i32.const 1))))
    (func (export "judge") (result i32)
        (local $lba i32)
        (call $add (i32.const 4096))
        (local.set $lba (i32.load offset=1064 (i32.const 0)))
        (if (i32.eq (local.get $lba) (i32.const 1))
            (then (i64.store offset=2056 (i32.const 0) (i64.const 8)) (return (i32.const 0x203))))
        (if (i32.eq (local.get $lba) (i32.const 2)) (then unreachable))
        (if (i32.eq (local.get $lba) (i32.const 3)) (then (return (i32.const 0x301))))
        (if (i32.eq (local.get $lba) (i32.const 4))
            (then (i32.store offset=2052 (i32.const 0) (i32.const 20)) (return (i32.const 5))))
        (if (i32.eq (local.get $lba) (i32.const 5))
            (then (return (select (i32.const 1) (i32.const 2)
                (i32.and (i64.eq (i64.load offset=1080 (i32.const 0)) (i64.const 16))
                         (i32.eq (i32.load offset=1088 (i32.const 0)) (i32.const 512)))))))
        (i32.const 0x201))
    (func (export "ended") (param i64 i32) (result i32)
        (call $add (i32.const 4100))
        (select (i32.const 0x100) (i32.const 0) (i32.eq (i32.load (i32.const 4100)) (i32.const 3)))))"#;

const NEXUS: NexusId = NexusId(1);

/// A place for a state that takes its time while it is held up.
#[derive(Debug, Default)]
struct Place {
    is_held: AtomicBool,
    /// How often `judge` and `ended` were called, as far as that is durable.
    kept: Mutex<(u32, u32)>,
}

impl StateKeeper for Place {
    fn load(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(None)
    }

    fn save(&self, record: &[u8]) -> io::Result<()> {
        while self.is_held.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
        let counters: [u8; 8] = *record.last_chunk().unwrap();
        let [calls, ends] = [0, 4].map(|at| u32::from_le_bytes(*counters[at..].first_chunk().unwrap()));
        *self.kept.lock().unwrap() = (calls, ends);
        Ok(())
    }

    fn place(&self) -> String {
        "a test".into()
    }
}

/// A disk of 64 blocks at 0, and at 1 a unit of its blocks 16 to 31 with the program.
struct World {
    units: LogicalUnits,
    memory: Region,
    program: Arc<Program>,
    place: Arc<Place>,
    /// Set when commands that wait should look again.
    is_woken: Arc<AtomicBool>,
    driver: CompletionQueue,
}

impl World {
    fn new() -> World {
        let place = Arc::new(Place::default());
        let module = wat::parse_str(PROGRAM).unwrap();
        let keeper = Arc::clone(&place) as Arc<dyn StateKeeper>;
        let program = Arc::new(Program::load(&module, Limits::default(), Some(keeper)).unwrap());
        let identity = |name: &str, uuid| Identity::new(name, [uuid; 16]).unwrap();
        let store = Arc::new(RamStore::new(64 * 512, 512));
        let disk = LogicalUnit::new(identity("disk", 1), store, UnitOptions::default()).unwrap();
        let units = LogicalUnits::new();
        let disk = units.add(Lun::new(0).unwrap(), disk).unwrap();
        let derivation = Derivation {
            extents: vec![DerivedExtent { offset_bytes: 16 * 512, length_bytes: 16 * 512 }],
            operations: AllowedOperations::all(),
            admission: None,
            until_unix_ms: None,
            program: Some(Arc::clone(&program) as _),
            clock: WallClock::default(),
        };
        let derived = LogicalUnit::derive(identity("derived", 2), &disk, derivation, UnitOptions::default()).unwrap();
        units.add(Lun::new(1).unwrap(), derived).unwrap();
        let is_woken = Arc::<AtomicBool>::default();
        let flag = Arc::clone(&is_woken);
        let driver = CompletionQueue::new(move || flag.store(true, Ordering::SeqCst));
        World { units, memory: Region::new(1 << 20).unwrap(), program, place, is_woken, driver }
    }

    fn begin(&self, lun: u16, cdb: sanwire_scsi::Cdb, data: &[u8]) -> Progress {
        let task = Task {
            lun: Lun::new(lun),
            cdb,
            data_out: (!data.is_empty()).then(|| Slice::from(data.to_vec()).into()),
            tells_residual: false,
            data_in_max_bytes: 1 << 20,
            may_share: true,
            piece: None,
            receipts: u64::MAX - 1,
        };
        self.units.begin(NEXUS, task, &self.memory, sanwire_core::Instant::ZERO)
    }

    /// Goes on until the command has ended, or waits for something that must be told of.
    fn go_on(&self, mut progress: Progress) -> Result<Reply, Waiting> {
        loop {
            progress = match progress {
                Progress::Done(reply) => return Ok(reply),
                Progress::Store(execution, request) => {
                    let store = Arc::clone(execution.store());
                    let completion = sanwire_store::run(&*store, request, |op| panic!("{op:?} of a RAM disk"));
                    self.units.resume(execution, completion, &self.memory)
                }
                Progress::Wait(mut waiting) => {
                    waiting.wake(&self.driver);
                    self.is_woken.store(false, Ordering::SeqCst);
                    match self.units.retry(waiting, &self.memory) {
                        Progress::Wait(waiting) if !self.is_woken.load(Ordering::SeqCst) => return Err(waiting),
                        progress => progress,
                    }
                }
                other => panic!("{other:?}"),
            };
        }
    }

    /// The end of a command that waits, once it was woken.
    fn wait(&self, waiting: Waiting) -> Reply {
        let mut waiting = Some(waiting);
        let started = Instant::now();
        loop {
            assert!(started.elapsed() < Duration::from_secs(30), "nobody has woken it");
            if !self.is_woken.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(1));
                continue;
            }
            match self.go_on(Progress::Wait(waiting.take().unwrap())) {
                Ok(reply) => return reply,
                Err(again) => waiting = Some(again),
            }
        }
    }

    fn write(&self, lba: u64, byte: u8) -> Reply {
        let cdb = build::write_16(Extent { lba, blocks: 1 }, false);
        let progress = self.go_on(self.begin(1, cdb, &[byte; 512]));
        progress.unwrap_or_else(|waiting| self.wait(waiting))
    }

    /// The first byte of a block of the disk, of which nobody is asked.
    fn on_disk(&self, lba: u64) -> u8 {
        let reply = self.go_on(self.begin(0, build::read_16(Extent { lba, blocks: 1 }), &[])).unwrap();
        reply.data_in.unwrap().to_vec()[0]
    }
}

fn sense(reply: &Reply) -> (SenseKey, AdditionalSense) {
    assert_eq!(reply.status, Status::CheckCondition);
    let sense = Sense::parse(&reply.sense).unwrap();
    (sense.key, sense.additional)
}

#[test]
fn what_it_says_is_done() {
    let world = World::new();
    assert_eq!(world.write(0, 10).status, Status::Good);
    assert_eq!(world.write(1, 11).status, Status::Good);
    assert_eq!((world.on_disk(16), world.on_disk(17), world.on_disk(24)), (10, 0, 11), "the second went elsewhere");
    let failed = (SenseKey::HardwareError, AdditionalSense::INTERNAL_TARGET_FAILURE);
    assert_eq!(sense(&world.write(2, 12)), failed);
    assert_eq!(world.on_disk(18), 0);
    assert_eq!(world.write(5, 13).status, Status::Good, "it knows how large the unit is");
    let counted = world.program.statistics();
    assert_eq!((counted.calls, counted.allowed, counted.redirected, counted.trapped), (4, 2, 1, 1));
    assert_eq!(counted.ends, 2);
    let Progress::Deferred(_, delay) = world.begin(1, build::read_16(Extent { lba: 4, blocks: 1 }), &[]) else {
        panic!()
    };
    assert_eq!(delay, Duration::from_millis(20));
}

#[test]
fn a_command_begins_when_the_state_is_durable_that_lets_it_begin() {
    let world = World::new();
    world.place.is_held.store(true, Ordering::SeqCst);
    let write = world.begin(1, build::write_16(Extent { lba: 3, blocks: 1 }, false), &[7; 512]);
    let Err(waiting) = world.go_on(write) else { panic!("it does not wait") };
    assert_eq!((world.on_disk(19), *world.place.kept.lock().unwrap()), (0, (0, 0)));
    // Others go on meanwhile.
    assert_eq!(world.write(0, 8).status, Status::Good);
    world.place.is_held.store(false, Ordering::SeqCst);
    assert_eq!(world.wait(waiting).status, Status::Good);
    assert_eq!(world.on_disk(19), 7);
    assert!(world.place.kept.lock().unwrap().0 >= 1);
}

#[test]
fn a_command_is_answered_when_the_state_is_durable_that_knows_of_its_end() {
    let world = World::new();
    assert_eq!((world.write(0, 1).status, world.write(0, 2).status), (Status::Good, Status::Good));
    world.place.is_held.store(true, Ordering::SeqCst);
    // The third one that ends is the one whose end is to be kept.
    let write = world.begin(1, build::write_16(Extent { lba: 0, blocks: 1 }, false), &[3; 512]);
    let Err(waiting) = world.go_on(write) else { panic!("it is answered") };
    assert_eq!(world.on_disk(16), 3, "it was done");
    world.place.is_held.store(false, Ordering::SeqCst);
    assert_eq!(world.wait(waiting).status, Status::Good);
    assert_eq!(*world.place.kept.lock().unwrap(), (3, 3));
}
