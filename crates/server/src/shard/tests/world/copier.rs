//! Jobs that copy to another server, as a client: what it reads of the volume it reads by a command of a copy, or by what the copy has
//! brought to the other end.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use sanwire_buffer::Frame;
use sanwire_core::limits::LUNS_MAX;
use sanwire_core::{ClientId, Lun, Principal};
use sanwire_device::{LogicalUnit, LogicalUnits, UnitOptions, Volatility};
use sanwire_scsi::copy::BlockCopy;
use sanwire_scsi::{Cdb, Extent, Identity, Reply, Sense, SenseKey, Status, Task, build, operation_code};
use sanwire_sim::content::BLOCK_BYTES;
use sanwire_sim::model::Range;
use sanwire_sim::random::Random;
use sanwire_sim::workload::{Given, Told};

use super::far::{FarDisk, FarVolume};
use super::host::Host;
use super::wire::{Event, World};
use super::{Outcome, told};
use crate::front::copies::{CopySession, CopyTaker};

/// What one job reads by one command, at the most.
const READ_BLOCKS_MAX: u64 = 512;

/// A client of jobs, one after the other.
pub(super) struct Copier {
    client: ClientId,
    far: Arc<FarDisk>,
    job: Option<Job>,
    next: u64,
    told: VecDeque<Told<u64, String>>,
    random: Random,
    is_over: bool,
    /// It has told its server something since that was looked at.
    has_stirred: bool,
}

/// A job with its session.
struct Job {
    session: CopySession,
    /// What it sees: the volume, and the other end.
    units: Arc<LogicalUnits>,
    far: Arc<FarVolume>,
    /// What is under way, by the numbers of the session.
    under_way: BTreeMap<u64, Order>,
}

/// For what a command was given.
enum Order {
    /// The client wants to know, under this number, how it ends.
    Asked { id: u64, room: Option<Frame> },
    /// It wants what the volume has there.
    Copy { id: u64, range: Range, room: Frame },
    /// What was copied is compared.
    Verify(Range),
    /// What was copied is made stable.
    Flush,
}

impl Job {
    fn give(&mut self, lun: Lun, cdb: Cdb, data: Option<Vec<u8>>, room_bytes: usize, order: Order) {
        let number = self.session.begin(Task {
            lun: Some(lun),
            cdb,
            data_out: data.map(Into::into),
            tells_residual: false,
            data_in_max_bytes: room_bytes as u32,
            may_share: true,
            piece: None,
            receipts: 0,
        });
        self.under_way.insert(number, order);
    }

    /// Whether something under way changes these blocks of the other end, or needs them as they are.
    fn has_copies_of(&self, range: Range) -> bool {
        let meets = |other: &Range| other.lba < range.lba + range.blocks && range.lba < other.lba + other.blocks;
        self.under_way.values().any(|order| match order {
            Order::Copy { range, .. } | Order::Verify(range) => meets(range),
            Order::Asked { .. } | Order::Flush => false,
        })
    }

    fn copy(&mut self, id: u64, range: Range, room: Frame) -> Option<()> {
        let units = [Lun::default(), far_lun()].map(|lun| self.units.get(lun));
        let [Some(source), Some(far)] = units else { return None };
        let copy = BlockCopy {
            source_naa: source.identity().naa(),
            source_lba: range.lba,
            destination_naa: far.identity().naa(),
            destination_lba: range.lba,
            blocks: range.blocks as u16,
            block_bytes: BLOCK_BYTES as u32,
        };
        let parameters = copy.to_parameters();
        let cdb = build::extended_copy(parameters.len() as u32);
        self.give(Lun::default(), cdb, Some(parameters), 0, Order::Copy { id, range, room });
        Some(())
    }

    fn verify(&mut self, range: Range, data: Vec<u8>) {
        let mut cdb = [0; 16];
        cdb.copy_from_slice(&build::verify_16(Extent { lba: range.lba, blocks: range.blocks as u32 }));
        // BYTCHK 01b.
        cdb[1] |= 1 << 1;
        self.give(far_lun(), cdb.into(), Some(data), 0, Order::Verify(range));
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let numbers: Vec<Lun> = self.units.iter().into_iter().map(|(lun, _)| lun).collect();
        let _ = self.units.change(&numbers, Vec::new());
    }
}

impl Copier {
    pub(super) fn new(client: ClientId, far: Arc<FarDisk>, random: Random) -> Self {
        let (job, told) = (None, VecDeque::new());
        Copier { client, far, job, next: 0, told, random, is_over: false, has_stirred: false }
    }

    /// A job ends that copies what is not served any more, and another one begins where there is none.
    fn look(&mut self, host: &Host) -> Outcome<()> {
        let served = host.copied();
        if let (Some(job), Some(source)) = (&self.job, &served)
            && !job.units.get(Lun::default()).is_some_and(|unit| Arc::ptr_eq(&unit, source))
        {
            self.end_job();
        }
        let Some(source) = served.filter(|_| self.job.is_none() && !self.is_over) else { return Ok(()) };
        let far = self.far.volume();
        let unit = far_unit(&far, u128::from(self.random.u64()).to_be_bytes())?;
        let units = Arc::new(LogicalUnits::new());
        units.add_shared(Lun::default(), source).map_err(told)?;
        units.add_shared(far_lun(), unit).map_err(told)?;
        let session = host.server.copiers().open(CopyTaker {
            units: Arc::clone(&units),
            principal: Principal { client: Some(self.client), ..Principal::default() },
            who: "a world".to_owned(),
            address: String::new(),
        });
        let session = session.ok_or("no shard takes copies")?;
        self.job = Some(Job { session, units, far, under_way: BTreeMap::new() });
        self.has_stirred = true;
        self.told.push_back(Told::Connected);
        Ok(())
    }

    pub(super) fn give(&mut self, given: Given<u64>) -> Option<u64> {
        let job = self.job.as_mut()?;
        // It changes nothing of the volume.
        let Given::Command(cdb, None, room) = given else { return None };
        let range = match room {
            Some(_) if cdb.operation_code() == operation_code::READ_16 => read_range(&cdb),
            _ => Range { lba: 0, blocks: 0 },
        };
        let id = self.next;
        match room {
            Some(room) if range.blocks > 0 && !job.has_copies_of(range) && self.random.chance(700_000) => {
                job.copy(id, range, room)?;
            }
            _ if range.blocks > READ_BLOCKS_MAX => return None,
            room => {
                let room_bytes = room.as_ref().map_or(0, |room| room.len());
                job.give(Lun::default(), cdb, None, room_bytes, Order::Asked { id, room });
            }
        }
        self.next += 1;
        self.has_stirred = true;
        Some(id)
    }

    pub(super) fn next_told(&mut self) -> Option<Told<u64, String>> {
        self.hear();
        self.told.pop_front()
    }

    /// Takes what has ended; whether there is something to be told.
    fn hear(&mut self) -> bool {
        while let Some(job) = &mut self.job {
            match job.session.wait(Duration::ZERO) {
                Ok(Some((number, reply))) => match job.under_way.remove(&number) {
                    Some(order) => self.ended(order, reply),
                    None => self.told.push_back(Told::GivenUp(format!("command {number} has ended twice"))),
                },
                Ok(None) => break,
                Err(_) => self.end_job(),
            }
        }
        !self.told.is_empty()
    }

    /// What is under way has failed.
    fn end_job(&mut self) {
        let left = self.job.take().map(|mut job| std::mem::take(&mut job.under_way)).unwrap_or_default();
        let asked = left.into_values().filter_map(|order| match order {
            Order::Asked { id, .. } | Order::Copy { id, .. } => Some(id),
            Order::Verify(_) | Order::Flush => None,
        });
        self.told.extend(asked.map(|id| Told::Failed { id, is_in_doubt: false }));
        self.has_stirred = true;
    }

    fn ended(&mut self, order: Order, reply: Option<Reply>) {
        let is_good = reply.as_ref().is_some_and(|reply| reply.status == Status::Good);
        let sense = reply.as_ref().and_then(|reply| Sense::parse(&reply.sense));
        let (id, data_in) = match order {
            Order::Asked { id, room } => {
                let data = reply.and_then(|reply| reply.data_in).map(|data| data.to_vec()).unwrap_or_default();
                (id, room.map(|room| filled(room, &data)))
            }
            Order::Copy { id, range, room } => {
                let mut data = Vec::new();
                if is_good && let Some(job) = &mut self.job {
                    data = job.far.content(range);
                    if self.random.chance(300_000) && range.blocks <= READ_BLOCKS_MAX {
                        job.verify(range, data.clone());
                    }
                    if self.random.chance(200_000) {
                        job.give(far_lun(), build::synchronize_cache_10(), None, 0, Order::Flush);
                    }
                    self.has_stirred = true;
                }
                (id, Some(filled(room, &data)))
            }
            Order::Verify(range) => {
                if sense.is_some_and(|sense| sense.key == SenseKey::Miscompare) {
                    self.told.push_back(Told::GivenUp(format!("{range:?} is other than what was copied")));
                }
                return;
            }
            Order::Flush => return,
        };
        self.told.push_back(Told::Answered { id, is_good, is_management: false, sense, data_in });
    }

    pub(super) fn disconnect(&mut self) {
        (self.is_over, self.has_stirred) = (true, true);
        self.job = None;
    }

    pub(super) fn describe(&self) -> String {
        format!("copies: {:?} under way", self.job.as_ref().map(|job| job.under_way.len()))
    }
}

/// Jobs begin that there are not, and the server is told what it was asked.
pub(super) fn drain_machine(world: &mut World, client: usize) -> Outcome<()> {
    let (now, host) = (world.now, &mut world.host);
    let Some(copier) = world.workers[client].client.as_copier() else { return Ok(()) };
    if let Some(host) = host {
        copier.look(host)?;
        if std::mem::take(&mut copier.has_stirred) {
            host.next_at = Some(now);
        }
    }
    Ok(())
}

/// Clients are to hear of what has ended, or was dropped, and the other server does what it was asked.
pub(super) fn pull_all(world: &mut World) {
    let now = world.now;
    for (delay, number) in world.wire.far.take_scheduled() {
        world.schedule(now + delay, Event::FarDone(number));
    }
    for client in 0..world.workers.len() {
        if world.workers[client].client.as_copier().is_some_and(Copier::hear) {
            world.schedule(now, Event::Heed(client));
        }
    }
}

/// The other end, for a server.
fn far_unit(far: &Arc<FarVolume>, verifier: [u8; 16]) -> Outcome<Arc<LogicalUnit>> {
    let identity = Identity::new("far", *b"another server's").map_err(|error| format!("{error:?}"))?;
    // As servers open it.
    let volatility = Some(Volatility { verifier, has_failed: false, tenure: None, keeper: None });
    let options = UnitOptions { volatility, slot: LUNS_MAX as u16, ..UnitOptions::default() };
    LogicalUnit::new(identity, Arc::clone(far) as Arc<_>, options).map(Arc::new).map_err(told)
}

fn far_lun() -> Lun {
    Lun::new(1).unwrap_or_default()
}

fn read_range(cdb: &Cdb) -> Range {
    let number = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    Range { lba: number(&cdb[2..10]), blocks: number(&cdb[10..14]) }
}

fn filled(mut room: Frame, data: &[u8]) -> (Frame, usize) {
    let length = data.len().min(room.len());
    room[..length].copy_from_slice(&data[..length]);
    (room, length)
}
