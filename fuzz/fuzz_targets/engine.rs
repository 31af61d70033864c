//! The engines of two shards on one disk, and a kernel that does their work in any order: whatever is aborted, lost or failing
//! meanwhile, every command ends once, no barrier is passed before, and all memory comes home.
#![no_main]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use sanwire_buffer::{Frame, Region};
use sanwire_core::{ClientId, Instant, Lun, NexusId, Principal};
use sanwire_device::{LogicalUnit, LogicalUnits, NexusPorts, Seat, UnitOptions};
use sanwire_engine::{AbortBarrier, Engine, Meter, Selection, Which, Work};
use sanwire_fuzz::command::Command;
use sanwire_scsi::reservation::TransportId;
use sanwire_scsi::vpd::TargetPort;
use sanwire_scsi::{Cdb, Extent, Identity, Task, build, unmap_parameters};
use sanwire_store::{
    Completion, CompletionQueue, ErrorKind, Geometry, KernelOp, Patience, RamStore, Request, Started, Store, StoreError,
};
use sanwire_store_file::blocking;

const BLOCK_BYTES: u32 = 512;
const BLOCKS: u64 = 32;
const NEXUSES: u64 = 3;

/// How its command block begins.
const PREEMPT_AND_ABORT: [u8; 2] = [0x5f, 5];

/// A store of which the kernel does all work.
#[derive(Debug)]
struct KernelStore {
    ram: RamStore,
    file: Arc<File>,
}

impl Store for KernelStore {
    fn geometry(&self) -> Geometry {
        self.ram.geometry()
    }

    fn start(&self, request: Request, _: &CompletionQueue) -> Started {
        Started::Kernel(KernelOp { file: Arc::clone(&self.file), is_block_device: false, request })
    }
}

/// What a barrier is for, when it is passed.
type Passed = (Option<(usize, u64)>, Vec<Command>);

struct World {
    units: Arc<LogicalUnits>,
    store: Arc<KernelStore>,
    memory: Region,
    shards: [Engine<Command>; 2],
    in_flight: Vec<(usize, Work)>,
    active: BTreeSet<Command>,
    /// Those that end others: they wait for that, and are not ended themselves.
    preempting: BTreeSet<Command>,
    /// The shard of each nexus.
    homes: BTreeMap<NexusId, usize>,
    pass: Sender<Passed>,
    passed: Receiver<Passed>,
    now: Instant,
    next: u32,
}

impl World {
    fn new(u: &mut Unstructured<'_>, memory: &Region) -> Result<Self> {
        let ram = RamStore::new(BLOCKS * u64::from(BLOCK_BYTES), BLOCK_BYTES);
        let store = Arc::new(KernelStore { ram, file: Arc::new(File::open("/dev/null").unwrap()) });
        let patience = u.arbitrary::<bool>()?.then_some(Duration::from_secs(5));
        let options = UnitOptions {
            write_cache: u.arbitrary()?,
            patience: Patience { full: patience, gone: patience },
            ..UnitOptions::default()
        };
        let units = Arc::new(LogicalUnits::new());
        let disk = LogicalUnit::new(Identity::new("volume", [9; 16]).unwrap(), store.clone(), options).unwrap();
        units.add(Lun::default(), disk).unwrap();
        let (pass, passed) = mpsc::channel();
        let mut world = World {
            units,
            store,
            memory: memory.clone(),
            shards: [(); 2].map(|()| Engine::new(memory.clone(), CompletionQueue::new(|| ()))),
            in_flight: Vec::new(),
            active: BTreeSet::new(),
            preempting: BTreeSet::new(),
            homes: BTreeMap::new(),
            pass,
            passed,
            now: Instant::ZERO,
            next: 0,
        };
        (0..NEXUSES).for_each(|nexus| world.open(NexusId(nexus), (nexus % 2) as usize));
        Ok(world)
    }

    fn open(&mut self, nexus: NexusId, home: usize) {
        let initiator = TransportId::hyperscsi(ClientId([nexus.0 as u8; 16]));
        self.units.nexus_established(
            nexus,
            Arc::new(NexusPorts { initiator, target: TargetPort::default(), principal: Principal::default() }),
        );
        self.homes.insert(nexus, home);
    }

    fn give(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let nexus = NexusId(u.int_in_range(0..=NEXUSES - 1)?);
        let (lba, blocks) = (u.int_in_range(0..=BLOCKS)?, u.int_in_range(0..=8u32)?);
        let (cdb, data) = command(u, lba, blocks)?;
        let mut data_out = None;
        if let Some(data) = data {
            let Some(mut frame) = self.memory.frame(data.len()) else { return Ok(()) };
            frame.copy_from_slice(&data);
            data_out = Some(Frame::freeze(frame).into());
        }
        let task = Task {
            lun: Some(Lun::default()),
            cdb,
            data_out,
            tells_residual: false,
            piece: None,
            receipts: 0,
            data_in_max_bytes: 1 << 20,
            may_share: true,
        };
        let command = Command { nexus, number: self.next };
        self.next += 1;
        self.active.insert(command);
        if task.cdb.starts_with(&PREEMPT_AND_ABORT) {
            self.preempting.insert(command);
        }
        let seat = Seat { units: &self.units, memory: &self.memory, weight: 1 };
        let meter = Meter::start(&self.units, &task, self.now);
        self.shards[self.homes[&nexus]].begin(command, meter, seat, task, self.now);
        Ok(())
    }

    /// The kernel does one of its works, or fails.
    fn complete(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        if self.in_flight.is_empty() {
            return Ok(());
        }
        let (shard, work) = self.in_flight.swap_remove(u.choose_index(self.in_flight.len())?);
        let failure =
            *u.choose(&[None, None, None, Some(ErrorKind::Full), Some(ErrorKind::Gone), Some(ErrorKind::Other)])?;
        self.finish(shard, work, failure);
        Ok(())
    }

    fn finish(&mut self, shard: usize, work: Work, failure: Option<ErrorKind>) {
        let Work { id, op } = work;
        let completion: Completion = match (failure, blocking::run(&self.store.ram, op.request)) {
            (Some(kind), _) => Err(StoreError::new(kind, 0)),
            (None, completion) => completion,
        };
        self.shards[shard].completed(id, completion, self.now);
    }

    /// A barrier for what this selection covers of all that has not ended.
    fn barrier(&self, command: Option<(usize, u64)>, is_covered: impl Fn(&Command) -> bool) -> Arc<AbortBarrier> {
        let covered = self.active.difference(&self.preempting).copied();
        let covered: Vec<Command> = covered.filter(|command| is_covered(command)).collect();
        let pass = self.pass.clone();
        AbortBarrier::new(move || drop(pass.send((command, covered))))
    }

    fn abort_everywhere(&mut self, selection: &Selection<Command>, barrier: Arc<AbortBarrier>) {
        self.shards.iter_mut().for_each(|shard| shard.abort(selection, Some(&barrier)));
        self.note_ended();
        drop(barrier);
    }

    fn disturb(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let by = NexusId(u.int_in_range(0..=NEXUSES - 1)?);
        let disk = self.units.get(Lun::default()).unwrap();
        match u.int_in_range(0..=4u8)? {
            0 => {
                self.units.logical_unit_reset(Lun::default());
                let barrier = self.barrier(None, |_| true);
                self.abort_everywhere(&Selection { by, which: Which::On(vec![disk.id()]) }, barrier);
            }
            1 => {
                let barrier = self.barrier(None, |command| command.nexus == by);
                self.abort_everywhere(&Selection { by, which: Which::OwnOn(disk.id()) }, barrier);
            }
            2 => {
                let own: Vec<Command> = self.active.iter().copied().filter(|command| command.nexus == by).collect();
                if !own.is_empty() {
                    let command = *u.choose(&own)?;
                    let barrier = self.barrier(None, |other| *other == command);
                    self.abort_everywhere(&Selection { by, which: Which::Command(command) }, barrier);
                }
            }
            3 => {
                let home = self.homes[&by];
                self.shards[home].leave(&Selection { by, which: Which::Own }, None);
                self.units.nexus_lost(by);
                self.note_ended();
                // What is left of it is ended in the shard where it is.
                let is_over = !self.active.iter().any(|command| command.nexus == by);
                self.open(by, if is_over { u.int_in_range(0..=1usize)? } else { home });
            }
            _ => self.shards[self.homes[&by]].keep_blocks(by, NexusId((by.0 + 1) % NEXUSES)),
        }
        Ok(())
    }

    fn note_ended(&mut self) {
        for shard in &mut self.shards {
            while let Some(ended) = shard.poll_ended() {
                assert!(self.active.remove(&ended.handle), "{:?} ended twice", ended.handle);
            }
        }
    }

    /// What both shards do whenever something has happened.
    fn turn(&mut self) {
        for number in 0..self.shards.len() {
            self.shards[number].retry(self.now);
            while let Some(work) = self.shards[number].poll_work() {
                self.in_flight.push((number, work));
            }
            while let Some((barrier, selection)) = self.shards[number].poll_abort() {
                let barrier = self.barrier(Some((number, barrier)), |_| false);
                self.abort_everywhere(&selection, barrier);
            }
        }
        self.note_ended();
        while let Ok((command, covered)) = self.passed.try_recv() {
            let early = covered.iter().find(|command| self.active.contains(command));
            assert!(early.is_none(), "a barrier was passed before {early:?} had ended");
            if let Some((shard, number)) = command {
                self.shards[shard].barrier_passed(number, self.now);
            }
        }
        self.note_ended();
    }

    fn pass_time(&mut self) {
        let timeouts = self.shards.iter().filter_map(Engine::poll_timeout);
        self.now = timeouts.min().unwrap_or(self.now).max(self.now);
        let now = self.now;
        self.shards.iter_mut().for_each(|shard| shard.handle_timeout(now));
    }

    /// The kernel does all that it is asked: every command ends.
    fn settle(&mut self) {
        for turn in 0.. {
            assert!(turn < 20_000, "{:?} never end", self.active);
            self.turn();
            for (shard, work) in std::mem::take(&mut self.in_flight) {
                self.finish(shard, work, None);
            }
            if self.active.is_empty() && self.shards.iter().all(Engine::is_idle) {
                return;
            }
            self.pass_time();
        }
    }
}

/// A command and its data.
fn command(u: &mut Unstructured<'_>, lba: u64, blocks: u32) -> Result<(Cdb, Option<Vec<u8>>)> {
    let extent = Extent { lba, blocks };
    let bytes = blocks as usize * BLOCK_BYTES as usize;
    let data = |bytes: usize| (bytes > 0).then(|| vec![blocks as u8; bytes]);
    let reserve = |action: u8, key: u8, other: u8| {
        let mut list = vec![0; 24];
        (list[7], list[15]) = (key, other);
        (Cdb::from([0x5f, action, 1, 0, 0, 0, 0, 0, 24, 0]), Some(list))
    };
    Ok(match u.int_in_range(0..=8u8)? {
        0 => (build::read_16(extent), None),
        1 => (build::write_16(extent, u.arbitrary()?), data(bytes)),
        2 => {
            let mut cdb = [0; 16];
            (cdb[0], cdb[9], cdb[13]) = (0x89, lba as u8, blocks as u8);
            (Cdb::from(cdb), data(2 * bytes))
        }
        3 => (build::write_same_16(extent, u.arbitrary()?, false), data(BLOCK_BYTES as usize)),
        4 => (build::synchronize_cache_16(extent), None),
        5 => {
            let parameters = unmap_parameters(&[extent]).expect("one extent");
            (build::unmap(parameters.len() as u16), Some(parameters))
        }
        6 => reserve(6, 0, u.int_in_range(1..=3)?),
        7 => reserve(5, u.int_in_range(1..=3)?, u.int_in_range(0..=3)?),
        _ => (build::test_unit_ready(), None),
    })
}

fn run(input: &[u8], memory: &Region) -> Result<()> {
    let mut u = Unstructured::new(input);
    let mut world = World::new(&mut u, memory)?;
    let outcome = (0..200).try_for_each(|_| {
        if u.is_empty() {
            return Ok(());
        }
        match u.int_in_range(0..=9u8)? {
            0..=4 => world.give(&mut u)?,
            5..=7 => world.complete(&mut u)?,
            8 => world.disturb(&mut u)?,
            _ => world.pass_time(),
        }
        world.turn();
        Ok(())
    });
    world.settle();
    outcome
}

fuzz_target!(|input: &[u8]| {
    let memory = Region::new(1 << 16).unwrap();
    let _ = run(input, &memory);
    assert_eq!(memory.free_bytes(), memory.length_bytes(), "memory was lost");
});
