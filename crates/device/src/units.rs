//! The logical units of a target, and the way of a task to its unit.

use std::cell::Cell;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use sanwire_buffer::Region;
use sanwire_core::limits::LUNS_MAX;
use sanwire_core::{Instant, Lun, NexusId};
use sanwire_scsi::vpd::{Designator, TargetPort, WriteVerifier};
use sanwire_scsi::{
    AdditionalSense, CommandSet, PrimaryCommand, Reply, ReportedLuns, Sense, SenseKey, Status, Task, inquiry, report,
};
use sanwire_store::Completion;

use crate::control;
use crate::copy_targets::{CopyTargetResolver, Reached};
use crate::dispatch::{Beginning, cut};
use crate::disturbances;
use crate::execution::{Account, Execution, Progress, Waiting};
use crate::flushes::Told;
use crate::logical_unit::{LogicalUnit, check_condition};
use crate::nexus::NexusPorts;
use crate::port_groups::PortGroups;
use crate::step::Refusal;
use crate::unit_attention::UnitAttention;

/// Why a disk was not taken in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AddError {
    /// Another disk has this number.
    #[error("logical unit {0} is already there: remove it first or choose another number")]
    Occupied(Lun),
    /// [`LUNS_MAX`] disks are there.
    #[error("a target has at most {LUNS_MAX} logical units: serve more by another target")]
    Full,
}

/// There is no logical unit of this number.
pub(crate) const NOT_SUPPORTED: Sense =
    Sense::new(SenseKey::IllegalRequest, AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED);

type Inventory = BTreeMap<Lun, Arc<LogicalUnit>>;

/// An initiator that uses the target.
#[derive(Debug)]
struct Member {
    ports: Arc<NexusPorts>,
    /// What tells it from every other writer, also after a restart of the target.
    writer: Option<[u8; 16]>,
    /// Whether its units' media stay in, also those of units that come later.
    locks_media: bool,
}

impl Member {
    /// A disk comes under a number that may have been another disk's.
    fn meet(&self, nexus: NexusId, disk: &LogicalUnit) {
        disk.establish(nexus, &self.ports, true);
        if self.locks_media {
            disk.prevent_removal(nexus, true);
        }
    }
}

/// All disks of one target, which several targets may share. Used by all its threads; disks come and go while it serves.
#[derive(Debug, Default)]
pub struct LogicalUnits {
    /// Read by every command, without a lock; replaced as a whole.
    inventory: ArcSwap<Inventory>,
    /// The nexuses there are, for disks that come later. Its lock orders all changes of the inventory.
    nexuses: Mutex<BTreeMap<NexusId, Member>>,
    port_groups: PortGroups,
    /// The target of which these are a part that some of its initiators see: its ports are theirs.
    pub(crate) whole: Option<Arc<LogicalUnits>>,
    /// The nexuses of the parts of this target.
    part_nexuses: Mutex<BTreeSet<NexusId>>,
    /// Where copies find their units; without it, among the units here.
    reach: Option<Box<dyn CopyTargetResolver>>,
    /// Whether the initiators of this target may only read.
    is_read_only: AtomicBool,
}

impl LogicalUnits {
    /// A target without disks.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A target without disks, whose copies may also go to and come from units of other targets: those that `reach` finds.
    #[must_use]
    pub fn reaching(reach: Box<dyn CopyTargetResolver>) -> Self {
        LogicalUnits { reach: Some(reach), ..Self::default() }
    }

    /// A part, without disks yet, of the target that has all units of `whole`: the states of its port groups are the same for
    /// all parts, and a change of them is told to the initiators of all.
    #[must_use]
    pub fn part_of(whole: Arc<LogicalUnits>) -> Self {
        LogicalUnits { whole: Some(whole), ..Self::default() }
    }

    /// Takes a disk in and tells every initiator that the list has changed. For those that are there already the number goes
    /// on being nobody's until they ask who has it (INQUIRY, page 80h or 83h): what they have sent to the disk that had the
    /// number before never reaches another one.
    ///
    /// # Errors
    /// [`AddError`] when the number is taken or there are too many.
    pub fn add(&self, lun: Lun, disk: LogicalUnit) -> Result<Arc<LogicalUnit>, AddError> {
        let disk = Arc::new(disk);
        self.add_shared(lun, Arc::clone(&disk)).map(|()| disk)
    }

    /// Takes in a disk that other targets may have too, under numbers of their own. A target has a disk once.
    ///
    /// # Errors
    /// [`AddError`] when the number is taken or there are too many.
    pub fn add_shared(&self, lun: Lun, disk: Arc<LogicalUnit>) -> Result<(), AddError> {
        let nexuses = self.lock();
        let mut inventory = Inventory::clone(&self.inventory.load());
        if inventory.contains_key(&lun) {
            return Err(AddError::Occupied(lun));
        }
        if inventory.len() >= LUNS_MAX {
            return Err(AddError::Full);
        }
        nexuses.iter().for_each(|(nexus, member)| member.meet(*nexus, &disk));
        let others = self.inventory.load_full();
        inventory.insert(lun, disk);
        self.inventory.store(Arc::new(inventory));
        raise_luns_changed(&others, &nexuses);
        Ok(())
    }

    /// Takes a disk out and tells every initiator. Commands that it has begun go on to their end.
    pub fn remove(&self, lun: Lun) -> Option<Arc<LogicalUnit>> {
        let nexuses = self.lock();
        let mut inventory = Inventory::clone(&self.inventory.load());
        let disk = inventory.remove(&lun)?;
        self.inventory.store(Arc::new(inventory));
        nexuses.keys().for_each(|&nexus| disk.forget(nexus));
        raise_luns_changed(&self.inventory.load(), &nexuses);
        Some(disk)
    }

    /// The disk with this number.
    #[must_use]
    pub fn get(&self, lun: Lun) -> Option<Arc<LogicalUnit>> {
        self.inventory.load().get(&lun).map(Arc::clone)
    }

    /// The number that its owner gave to the disk with this logical unit number ([`crate::UnitOptions::slot`]).
    #[must_use]
    pub fn slot(&self, lun: Lun) -> Option<u16> {
        self.inventory.load().get(&lun).map(|disk| disk.slot())
    }

    /// Whether the initiators of this target may only read: nothing of its units changes by their commands.
    pub fn set_read_only(&self, is_read_only: bool) {
        self.is_read_only.store(is_read_only, Ordering::Release);
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.is_read_only.load(Ordering::Acquire)
    }

    /// The disk that is called so, whatever its number; `None` also when two are.
    #[must_use]
    pub fn find(&self, designator: &Designator) -> Option<Arc<LogicalUnit>> {
        let inventory = self.inventory.load();
        let mut found = inventory.values().filter(|disk| disk.identity().is_named(designator));
        let disk = found.next()?;
        found.next().is_none().then(|| Arc::clone(disk))
    }

    /// The unit that a copy of this nexus may use under this name.
    pub(crate) fn reach(&self, nexus: NexusId, designator: &Designator) -> Option<Reached> {
        match &self.reach {
            Some(reach) => reach.find(nexus, designator),
            None => self.find(designator).map(|disk| Reached { disk, nexus }),
        }
    }

    /// The disks as they are now, ascending by number.
    #[must_use]
    pub fn iter(&self) -> Vec<(Lun, Arc<LogicalUnit>)> {
        self.inventory.load().iter().map(|(lun, disk)| (*lun, Arc::clone(disk))).collect()
    }

    /// A new initiator is there: each disk has to tell it that power came on (SAM-5 5.14.1).
    /// One that is known stays as it is.
    pub fn nexus_established(&self, nexus: NexusId, ports: Arc<NexusPorts>) {
        let mut nexuses = self.lock();
        if let Entry::Vacant(vacant) = nexuses.entry(nexus) {
            self.inventory.load().values().for_each(|disk| disk.establish(nexus, &ports, false));
            if let Some(whole) = &self.whole {
                whole.part_nexuses().insert(nexus);
            }
            vacant.insert(Member { ports, writer: None, locks_media: false });
        }
    }

    /// Nobody else is this initiator, whoever has its ports, and it is no other one when it comes back after a restart of the
    /// target: so it may be told whether only it has written.
    pub fn name_writer(&self, nexus: NexusId, writer: [u8; 16]) {
        if let Some(member) = self.lock().get_mut(&nexus) {
            member.writer = Some(writer);
        }
    }

    /// What the initiator is told of its writes; `as_writer`: it heeds that.
    pub(crate) fn write_verifier(&self, nexus: NexusId, disk: &LogicalUnit, as_writer: bool) -> Told<WriteVerifier> {
        let writer = self.lock().get(&nexus).and_then(|member| member.writer);
        disk.write_verifier(as_writer.then_some(nexus), writer)
    }

    /// As if the initiator had asked every unit to keep its medium in (SBC-4 5.14), or to let it go, until it asks for something
    /// else or is gone. Units that come later are asked too.
    pub fn lock_media(&self, nexus: NexusId, is_locked: bool) {
        let mut nexuses = self.lock();
        let Some(member) = nexuses.get_mut(&nexus) else { return };
        if std::mem::replace(&mut member.locks_media, is_locked) != is_locked {
            self.inventory.load().values().for_each(|disk| disk.prevent_removal(nexus, is_locked));
        }
    }

    /// The initiator uses another part of the same target from now on. It notices nothing of that by units that are in both
    /// under the same number.
    pub fn hand_over(&self, to: &LogicalUnits, nexus: NexusId) {
        let Some(member) = self.lock().remove(&nexus) else { return };
        if let Some(whole) = &self.whole {
            whole.part_nexuses().remove(&nexus);
        }
        let mut nexuses = to.lock();
        let (ours, theirs) = (self.inventory.load_full(), to.inventory.load_full());
        let stays = |lun: &Lun, disk: &Arc<LogicalUnit>| theirs.get(lun).is_some_and(|other| Arc::ptr_eq(disk, other));
        ours.iter().filter(|(lun, disk)| !stays(lun, disk)).for_each(|(_, disk)| disk.forget(nexus));
        theirs.values().for_each(|disk| member.meet(nexus, disk));
        if let Some(whole) = &to.whole {
            whole.part_nexuses().insert(nexus);
        }
        nexuses.insert(nexus, member);
    }

    /// An initiator is gone, and with it what it asked for and was still to be told (SAM-5 6.3.4).
    pub fn nexus_lost(&self, nexus: NexusId) {
        let mut nexuses = self.lock();
        nexuses.remove(&nexus);
        if let Some(whole) = &self.whole {
            whole.part_nexuses().remove(&nexus);
        }
        self.inventory.load().values().for_each(|disk| disk.forget(nexus));
    }

    /// The task management function of SAM-5 7.7, without its commands: the caller aborts them by dropping them.
    /// Mode pages go back to their defaults, the unit is started, what RESERVE began ends (persistent reservations stay),
    /// and the initiators are told.
    /// `false` when there is no such unit.
    pub fn logical_unit_reset(&self, lun: Lun) -> bool {
        let disk = self.get(lun);
        if let Some(disk) = &disk {
            disk.reset();
        }
        disk.is_some()
    }

    /// The unit, if this initiator may reset it now, or end the commands of all: those who may only read never (they would end what
    /// others do, and change the unit), and nobody too often.
    #[must_use]
    pub fn may_reset(&self, by: NexusId, lun: Lun, now: Instant) -> Option<Arc<LogicalUnit>> {
        let disk = self.get(lun).filter(|_| !self.is_read_only())?;
        self.may_disturb(std::slice::from_ref(&disk), by, now).then_some(disk)
    }

    /// All units, if this initiator may reset them now. When it may not reset one of them, that counts for none.
    #[must_use]
    pub fn may_reset_all(&self, by: NexusId, now: Instant) -> Option<Vec<(Lun, Arc<LogicalUnit>)>> {
        let units = self.iter();
        let disks: Vec<_> = units.iter().map(|(_, disk)| Arc::clone(disk)).collect();
        (!self.is_read_only() && self.may_disturb(&disks, by, now)).then_some(units)
    }

    pub(crate) fn may_disturb(&self, disks: &[Arc<LogicalUnit>], by: NexusId, now: Instant) -> bool {
        disturbances::may_disturb(disks, self.ports(by).as_ref().map(|ports| &ports.initiator), now)
    }

    /// Begins a task. Frames for its data come from `memory`.
    pub fn begin(&self, nexus: NexusId, mut task: Task, memory: &Region, now: Instant) -> Progress {
        let Some(disk) = task.lun.and_then(|lun| self.get(lun)) else {
            return Progress::Done(self.answer_for_nobody(&task, nexus));
        };
        let room_bytes = task.data_in_max_bytes as usize;
        let mut geometry = disk.store().geometry();
        geometry.read_only |= self.is_read_only();
        let (account, receipt) = (Cell::new(Account::Even), Cell::new(None));
        let begun = Beginning { units: self, unit: &disk, geometry, nexus, memory, account, receipt, now };
        let step = match begun.step(&mut task) {
            Ok(step) => Ok(step),
            Err(Refusal::Sense(sense)) => Err(sense),
            Err(Refusal::Conflict) => {
                return Progress::Done(Reply::bare(Status::ReservationConflict));
            }
            Err(Refusal::Busy) => return Progress::Done(Reply::bare(Status::Busy)),
            Err(Refusal::NoMemory) => return Progress::NoMemory(task),
        };
        let (account, receipt) = (begun.account.get(), begun.receipt.take());
        match Execution::begin(disk, step, room_bytes, account, (nexus, task.receipts)) {
            Progress::Done(reply) => Progress::Done(Reply { receipt, ..reply }),
            progress => progress,
        }
    }

    /// Asks again whether a command may go on.
    pub fn retry(&self, waiting: Waiting, memory: &Region) -> Progress {
        waiting.retry(memory)
    }

    /// Goes on with a command after its store has done what was asked.
    pub fn resume(&self, execution: Execution, completion: Completion, memory: &Region) -> Progress {
        execution.resume(completion, memory)
    }

    /// What a target says in the name of a logical unit that is not there (SAM-5 4.7.1, SPC-5 4.5.1).
    fn answer_for_nobody(&self, task: &Task, nexus: NexusId) -> Reply {
        let nobody = NOT_SUPPORTED;
        let (bytes, allocation_bytes) = match CommandSet::primary()
            .find(&task.cdb)
            .and_then(|operation| PrimaryCommand::parse(operation, &task.cdb))
        {
            Ok(PrimaryCommand::Inquiry { page: None, allocation_bytes, .. }) => {
                (inquiry::absent_inquiry().to_vec(), allocation_bytes)
            }
            Ok(PrimaryCommand::RequestSense { descriptor, allocation_bytes }) => {
                (control::sense_bytes(&nobody, descriptor), allocation_bytes)
            }
            Ok(PrimaryCommand::ReportLuns { reported, allocation_bytes }) if task.lun == Some(Lun::default()) => {
                (self.report_luns(reported, nexus), allocation_bytes)
            }
            _ => return check_condition(&nobody, false),
        };
        let room_bytes = allocation_bytes.min(task.data_in_max_bytes) as usize;
        let bytes = cut(bytes, room_bytes);
        Reply::good((!bytes.is_empty()).then(|| bytes.into()))
    }

    pub(crate) fn report_luns(&self, reported: ReportedLuns, nexus: NexusId) -> Vec<u8> {
        // SPC-5 6.33: who reads the list need not be told that it has changed. (Before reading it: a later change counts.)
        self.inventory.load().values().for_each(|disk| disk.nexuses.clear(UnitAttention::LunsChanged, nexus));
        match reported {
            ReportedLuns::All => report::luns(&self.inventory.load().keys().copied().collect::<Vec<_>>()),
            ReportedLuns::WellKnown => report::luns(&[]),
        }
    }

    /// Tells the initiators of this target and of its parts, of all its units, but not those of other targets that share a
    /// disk with it.
    pub(crate) fn raise(&self, attention: UnitAttention, except: Option<NexusId>) {
        if let Some(whole) = &self.whole {
            return whole.raise(attention, except);
        }
        let (nexuses, parts) = (self.lock(), self.part_nexuses());
        let told = || nexuses.keys().chain(&*parts).copied().filter(|nexus| Some(*nexus) != except);
        self.inventory.load().values().for_each(|disk| disk.nexuses.raise_for(attention, told()));
    }

    /// The two ends of a nexus that is there. It takes a lock: not for every read and write.
    #[must_use]
    pub fn ports(&self, nexus: NexusId) -> Option<Arc<NexusPorts>> {
        self.lock().get(&nexus).map(|member| Arc::clone(&member.ports))
    }

    /// The port through which the nexus comes.
    pub(crate) fn port(&self, nexus: NexusId) -> TargetPort {
        self.ports(nexus).map_or_else(TargetPort::default, |ports| ports.target.clone())
    }

    pub(crate) fn port_groups(&self) -> &PortGroups {
        self.whole.as_ref().map_or(&self.port_groups, |whole| whole.port_groups())
    }

    fn part_nexuses(&self) -> MutexGuard<'_, BTreeSet<NexusId>> {
        // Nothing panics between two writes to the set: a poisoned one is still whole.
        self.part_nexuses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NexusId, Member>> {
        // Nothing panics between two writes to the set: a poisoned one is still whole.
        self.nexuses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells the initiators of this target, not those of others that share a disk with it. Only after the list has changed: who
/// is told must find the new one.
fn raise_luns_changed(inventory: &Inventory, nexuses: &BTreeMap<NexusId, Member>) {
    inventory.values().for_each(|disk| disk.nexuses.raise_for(UnitAttention::LunsChanged, nexuses.keys().copied()));
}
