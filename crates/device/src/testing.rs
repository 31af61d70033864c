//! A RAM store that logs and fails on demand, and a runner that drives commands to their end.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use sanwire_buffer::{Region, Slice, Slices};
use sanwire_core::{ClientId, Instant, Lun, NexusId, Principal};
use sanwire_scsi::reservation::TransportId;
use sanwire_scsi::vpd::TargetPort;
use sanwire_scsi::{Cdb, Identity, Receipts, Reply, Sense, Status, Task};
use sanwire_store::{
    Allocation, CompletionQueue, ErrorKind, Geometry, Outcome, Request, ResizeError, Space, Started, Store, StoreError,
};
use sanwire_store_file::blocking;

use crate::{LogicalUnit, LogicalUnits, NexusPorts, Progress, Submission, TokenSeed, UnitOptions, Volatility, Waiting};

pub(crate) const UUID: [u8; 16] = [0x5a; 16];
pub(crate) const NEXUS: NexusId = NexusId(1);
pub(crate) const OTHER: NexusId = NexusId(2);

/// What a request was, for the log and for injected errors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    Read,
    Write,
    Flush,
    Discard,
    Zero,
    Allocation,
}

/// The first bytes of it are kept; the rest, up to its length, reads as zeroes.
#[derive(Debug)]
pub(crate) struct TestStore {
    geometry: Mutex<Geometry>,
    bytes: Mutex<Vec<u8>>,
    log: Mutex<Vec<(Op, u64, u64)>>,
    fault: Mutex<Option<(Op, ErrorKind)>>,
    space: Mutex<Option<Space>>,
}

impl TestStore {
    pub(crate) fn new(geometry: Geometry) -> Arc<Self> {
        let kept = geometry.length_bytes.min(4 << 20) as usize;
        Arc::new(TestStore {
            geometry: Mutex::new(geometry),
            bytes: Mutex::new(vec![0; kept]),
            log: Mutex::default(),
            fault: Mutex::default(),
            space: Mutex::default(),
        })
    }

    pub(crate) fn fail(&self, op: Op, kind: ErrorKind) {
        *self.fault.lock().unwrap() = Some((op, kind));
    }

    pub(crate) fn heal(&self) {
        *self.fault.lock().unwrap() = None;
    }

    /// It counts space from now on; only a disk that is made after this knows.
    pub(crate) fn set_space(&self, used_mib: u64, available_mib: u64) {
        let space = Space { used_bytes: used_mib << 20, available_bytes: Some(available_mib << 20) };
        *self.space.lock().unwrap() = Some(space);
    }

    pub(crate) fn set_length(&self, length_bytes: u64) {
        self.geometry.lock().unwrap().length_bytes = length_bytes;
    }

    pub(crate) fn take_log(&self) -> Vec<(Op, u64, u64)> {
        std::mem::take(&mut self.log.lock().unwrap())
    }

    pub(crate) fn bytes(&self, from: usize, length: usize) -> Vec<u8> {
        self.bytes.lock().unwrap()[from..from + length].to_vec()
    }

    pub(crate) fn set_byte(&self, at: usize, byte: u8) {
        self.bytes.lock().unwrap()[at] = byte;
    }

    fn execute(&self, request: Request) -> Outcome {
        let mut bytes = self.bytes.lock().unwrap();
        let (offset, length) = request.range_bytes();
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let end = start.saturating_add(usize::try_from(length).unwrap()).min(bytes.len());
        let kept = &mut bytes[start..end];
        match request {
            Request::Read { mut buffer, .. } => {
                buffer.fill(0);
                buffer[..kept.len()].copy_from_slice(kept);
                return Outcome::Read(buffer);
            }
            Request::Write { data, .. } => kept.copy_from_slice(&data.bytes(0..kept.len())),
            Request::Discard { .. } | Request::WriteZeroes { .. } => kept.fill(0),
            Request::Flush => {}
            Request::Allocation { .. } => {
                let has_space = |block: &[u8]| block.iter().any(|byte| *byte != 0);
                let Some(first) = kept.chunks(512).next() else {
                    return Outcome::Allocated(Allocation { is_mapped: true, length_bytes: length });
                };
                let is_mapped = has_space(first);
                let blocks = kept.chunks(512).take_while(|block| has_space(block) == is_mapped).count() as u64;
                return Outcome::Allocated(Allocation { is_mapped, length_bytes: (blocks * 512).max(512) });
            }
        }
        Outcome::Done
    }
}

impl Store for TestStore {
    /// It tries, and can at best not make it stable.
    fn resize(&self, _length_bytes: u64) -> Result<(), ResizeError> {
        match *self.fault.lock().unwrap() {
            Some((Op::Flush, _)) => Err(ResizeError::Unstable(io::Error::other("on purpose"))),
            _ => Err(ResizeError::Fixed("it is a test's")),
        }
    }

    fn geometry(&self) -> Geometry {
        *self.geometry.lock().unwrap()
    }

    fn space(&self) -> Option<Space> {
        *self.space.lock().unwrap()
    }

    fn start(&self, request: Request, _: &CompletionQueue) -> Started {
        let (offset, length) = request.range_bytes();
        let geometry = self.geometry();
        assert!(offset.checked_add(length).unwrap() <= geometry.length_bytes, "{request:?} is out of range");
        assert_eq!((offset % u64::from(geometry.block_bytes), length % u64::from(geometry.block_bytes)), (0, 0));
        assert!(length > 0 || matches!(request, Request::Flush), "{request:?} does nothing");
        assert!(!geometry.read_only || !request.is_write(), "{request:?} on a read-only store");
        let op = match request {
            Request::Read { .. } => Op::Read,
            Request::Write { .. } => Op::Write,
            Request::Flush => Op::Flush,
            Request::Discard { .. } => Op::Discard,
            Request::WriteZeroes { .. } => Op::Zero,
            Request::Allocation { .. } => Op::Allocation,
        };
        self.log.lock().unwrap().push((op, offset, length));
        if let Some((_, kind)) = self.fault.lock().unwrap().filter(|(failing, _)| *failing == op) {
            return Started::Done(Err(StoreError::new(kind, offset)));
        }
        Started::Done(Ok(self.execute(request)))
    }
}

/// 1 MiB in blocks of 512 bytes, thin.
pub(crate) const SMALL: Geometry = Geometry {
    length_bytes: 1 << 20,
    block_bytes: 512,
    physical_block_bytes: 4096,
    read_only: false,
    discards: true,
    atomic_write_bytes: 1 << 20,
};

/// A target with one disk, number 0.
pub(crate) struct World {
    pub(crate) units: LogicalUnits,
    pub(crate) store: Arc<TestStore>,
    pub(crate) memory: Region,
    /// The answers that are on their way to their initiators.
    pub(crate) receipts: Mutex<Receipts<()>>,
}

impl World {
    pub(crate) fn new(geometry: Geometry, write_cache: bool) -> Self {
        let (units, store) = (LogicalUnits::new(), TestStore::new(geometry));
        units.add(lun(0), disk("vol", store.clone(), write_cache)).unwrap();
        World { units, store, memory: Region::new(4 << 20).unwrap(), receipts: Mutex::default() }
    }

    pub(crate) fn small() -> Self {
        Self::new(SMALL, true)
    }

    /// Its disk may lose writes from now on.
    pub(crate) fn replace(&self, volatility: Volatility) {
        self.units.remove(lun(0)).unwrap();
        let options = UnitOptions { volatility: Some(volatility), ..UnitOptions::default() };
        let disk = LogicalUnit::new(Identity::new("vol", UUID).unwrap(), self.store.clone(), options).unwrap();
        self.units.add(lun(0), disk).unwrap();
    }

    /// The nexus comes, from an initiator port of its own.
    pub(crate) fn establish(&self, nexus: NexusId) {
        self.units.nexus_established(nexus, ports(nexus.0, 1));
    }

    pub(crate) fn begin(&self, nexus: NexusId, submission: impl Into<Submission>) -> Progress {
        self.units.begin(nexus, submission, &self.memory, Instant::ZERO)
    }

    pub(crate) fn run_task(&self, nexus: NexusId, submission: impl Into<Submission>) -> Reply {
        self.finish(self.begin(nexus, submission))
    }

    pub(crate) fn finish(&self, mut progress: Progress) -> Reply {
        for _ in 0..20_000 {
            match progress {
                Progress::Done(reply) | Progress::Piece(reply, _) => {
                    let receipt = reply.receipt.clone();
                    if let Some(receipt) = receipt {
                        let receipts = &mut *self.receipts.lock().unwrap();
                        receipts.retain(|()| false);
                        receipts.issue(receipt, ());
                    }
                    return reply;
                }
                Progress::Abort(execution, _) => {
                    progress = self.units.resume(execution, Ok(Outcome::Done), &self.memory);
                }
                Progress::NoMemory(submission) => panic!("no memory for {submission:?}"),
                Progress::Deferred(submission, _) => panic!("{submission:?} is deferred"),
                Progress::Wait(waiting) => progress = self.units.retry(waiting, &self.memory),
                Progress::Answered(execution, request) => {
                    self.finish(Progress::Store(execution, request));
                    return Reply::good(None);
                }
                Progress::Store(execution, request) => {
                    let completion = blocking::run(&**execution.store(), request);
                    progress = self.units.resume(execution, completion, &self.memory);
                }
            }
        }
        panic!("it never ends");
    }

    pub(crate) fn run(&self, nexus: NexusId, cdb: impl Into<Cdb>, data_out: &[u8]) -> Reply {
        self.run_task(nexus, task(cdb, data_out))
    }

    /// The answer to a command that must succeed.
    pub(crate) fn good(&self, cdb: impl Into<Cdb>, data_out: &[u8]) -> Vec<u8> {
        let reply = self.run(NEXUS, cdb, data_out);
        assert_eq!((reply.status, Sense::parse(&reply.sense)), (Status::Good, None));
        reply.data_in.map_or(Vec::new(), |data| data.to_vec())
    }

    /// The sense data of a command that must fail.
    pub(crate) fn bad(&self, cdb: impl Into<Cdb>, data_out: &[u8]) -> Sense {
        sense(&self.run(NEXUS, cdb, data_out))
    }
}

pub(crate) fn sense(reply: &Reply) -> Sense {
    assert_eq!(reply.status, Status::CheckCondition);
    assert!(reply.data_in.is_none());
    Sense::parse(&reply.sense).unwrap()
}

pub(crate) fn disk(name: &str, store: Arc<TestStore>, write_cache: bool) -> LogicalUnit {
    let token_seed = Some(TokenSeed::new([7; 32]));
    let options = UnitOptions { write_cache, token_seed, ..UnitOptions::default() };
    LogicalUnit::new(Identity::new(name, UUID).unwrap(), store, options).unwrap()
}

/// The initiator port with this number, at a target port.
pub(crate) fn ports(initiator: u64, target: u16) -> Arc<NexusPorts> {
    let mut client = [0; 16];
    client[8..].copy_from_slice(&initiator.to_be_bytes());
    let initiator = TransportId::hyperscsi(ClientId(client));
    Arc::new(NexusPorts {
        initiator,
        target: TargetPort { relative_id: target, ..TargetPort::default() },
        principal: Principal::default(),
    })
}

pub(crate) fn lun(number: u16) -> Lun {
    Lun::new(number).unwrap()
}

/// The initiator had all answers that were sent when it gave the command.
const HAS_ALL: u64 = u64::MAX - 1;

pub(crate) fn task(cdb: impl Into<Cdb>, data_out: &[u8]) -> Task {
    let data_out = (!data_out.is_empty()).then(|| in_pieces(data_out));
    Task {
        lun: Some(lun(0)),
        cdb: cdb.into(),
        data_out,
        tells_residual: false,
        data_in_max_bytes: 1 << 20,
        may_share: true,
        piece: None,
        receipts: HAS_ALL,
    }
}

/// Data as it comes in packets: in up to three pieces, which end where they like.
pub(crate) fn in_pieces(data: &[u8]) -> Slices {
    let whole = Slice::from(data.to_vec());
    let borders = [0, data.len() / 3, data.len() / 2 + 1, data.len()];
    let pieces = borders.windows(2).map(|border| whole.slice(border[0]..border[1]));
    Slices::join(pieces).unwrap()
}

/// A driver of commands that wait.
pub(crate) struct Driver {
    pub(crate) queue: CompletionQueue,
    woken: Arc<AtomicBool>,
}

impl Driver {
    pub(crate) fn new() -> Self {
        let woken = Arc::<AtomicBool>::default();
        let flag = Arc::clone(&woken);
        Driver { queue: CompletionQueue::new(move || flag.store(true, Ordering::SeqCst)), woken }
    }

    /// Whether it was woken since that was asked last.
    pub(crate) fn take_woken(&self) -> bool {
        self.woken.swap(false, Ordering::SeqCst)
    }

    /// A command that waits, when it was tried as often as there was a reason to.
    pub(crate) fn wait(&self, world: &World, mut progress: Progress) -> Waiting {
        loop {
            let Progress::Wait(mut waiting) = progress else { panic!("{progress:?} does not wait") };
            waiting.wake(&self.queue);
            self.take_woken();
            progress = world.units.retry(waiting, &world.memory);
            progress = match progress {
                Progress::Wait(waiting) if !self.take_woken() => return waiting,
                progress => progress,
            };
        }
    }
}
