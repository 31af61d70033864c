//! What is measured of commands: plain numbers of one shard, which are added up with those of others.

mod operation;
mod outcome;
mod place;

use std::time::Duration;

use sanwire_core::limits::LUNS_MAX;
use sanwire_core::{Durations, Instant, Lun};
use sanwire_device::LogicalUnits;
use sanwire_scsi::{Reply, Task};

pub use self::operation::Operation;
pub use self::outcome::FailureKind;
use self::outcome::Outcome;
pub use self::place::Place;

/// What is measured of a command, from its begin on.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    /// Which volume; none has the number [`LUNS_MAX`].
    slot: u16,
    operation: Operation,
    place: Option<Place>,
    written_bytes: u32,
    pub(crate) begun_at: Instant,
}

impl Meter {
    /// Begins to measure a command for one of `units`.
    #[must_use]
    pub fn start(units: &LogicalUnits, task: &Task, now: Instant) -> Self {
        let slot = task.lun.and_then(|lun: Lun| units.slot(lun)).unwrap_or(LUNS_MAX as u16);
        let written_bytes = task.data_out.as_ref().map_or(0, |data| data.len() as u32);
        let operation = Operation::of(&task.cdb);
        Meter { slot, operation, place: Place::of(operation, &task.cdb), written_bytes, begun_at: now }
    }

    /// Which volume it is for: the number of a slot that its owner gave it, or [`LUNS_MAX`] for none.
    #[must_use]
    pub fn slot(&self) -> u16 {
        self.slot
    }

    /// What it does.
    pub(crate) fn operation(&self) -> Operation {
        self.operation
    }

    /// Where in the volume it works.
    pub(crate) fn place(&self) -> Option<Place> {
        self.place
    }

    /// A further piece of the command's data was received.
    pub(crate) fn add(&mut self, task: &Task) {
        self.written_bytes += task.data_out.as_ref().map_or(0, |data| data.len() as u32);
    }
}

/// What was counted of one volume.
#[derive(Clone, Default, Debug)]
pub struct VolumeCount {
    /// Commands that have ended, by their [`Operation`].
    pub operations: [u64; Operation::ALL.len()],
    /// Bytes that they have read.
    pub read_bytes: u64,
    /// Bytes that they have written.
    pub written_bytes: u64,
    /// Commands that failed or were aborted, by their [`FailureKind`].
    pub failures: [u64; FailureKind::ALL.len()],
    /// How long reads, writes and flushes have taken, where there were any: these are the first operations.
    durations: [Option<Box<Durations>>; 3],
}

impl VolumeCount {
    fn note(&mut self, meter: &Meter, reply: Option<&Reply>, duration: Duration) {
        self.operations[meter.operation as usize] += 1;
        match Outcome::of(reply) {
            Outcome::Done { read_bytes } => {
                self.read_bytes += read_bytes;
                self.written_bytes += u64::from(meter.written_bytes);
            }
            Outcome::Attention => {}
            Outcome::Failed(kind) => self.failures[kind as usize] += 1,
        }
        if let Some(durations) = self.durations.get_mut(meter.operation as usize) {
            durations.get_or_insert_default().note(duration);
        }
    }

    /// Adds what another shard has counted.
    pub fn add(&mut self, other: &VolumeCount) {
        self.operations.iter_mut().zip(other.operations).for_each(|(ours, theirs)| *ours += theirs);
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.failures.iter_mut().zip(other.failures).for_each(|(ours, theirs)| *ours += theirs);
        for (ours, theirs) in self.durations.iter_mut().zip(&other.durations) {
            theirs.iter().for_each(|theirs| ours.get_or_insert_default().add(theirs));
        }
    }

    /// Commands that have ended.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.operations.iter().sum()
    }

    /// Commands that failed or were aborted.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.failures.iter().sum()
    }

    /// How long the commands of an operation have taken; `None` when there were none, or that is not measured.
    #[must_use]
    pub fn durations(&self, operation: Operation) -> Option<&Durations> {
        self.durations.get(operation as usize)?.as_deref()
    }

    /// How long reads, writes and flushes have taken together.
    #[must_use]
    pub fn all_durations(&self) -> Durations {
        let mut sum = Durations::default();
        self.durations.iter().flatten().for_each(|durations| sum.add(durations));
        sum
    }
}

/// What was counted of the commands of one I_T nexus.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct NexusCount {
    /// Commands that have ended.
    pub commands: u64,
    /// Bytes that they have read.
    pub read_bytes: u64,
    /// Bytes that they have written.
    pub written_bytes: u64,
    /// Commands that failed or were aborted.
    pub errors: u64,
}

impl NexusCount {
    /// A command is over, or a piece of it; without a reply it was aborted.
    pub fn note(&mut self, meter: &Meter, reply: Option<&Reply>) {
        let is_over = reply.is_none_or(|reply| reply.rest.is_none());
        self.commands += u64::from(is_over);
        match Outcome::of(reply) {
            Outcome::Done { read_bytes } => {
                self.read_bytes += read_bytes;
                self.written_bytes += if is_over { u64::from(meter.written_bytes) } else { 0 };
            }
            Outcome::Attention => {}
            Outcome::Failed(_) => self.errors += 1,
        }
    }
}

/// The counters of a shard, volume by volume.
#[derive(Default, Debug)]
pub struct VolumeCounters {
    /// By the slots of the volumes, up to the highest that was used here: each takes memory from its first command on.
    volumes: Vec<Option<Box<VolumeCount>>>,
    /// Of commands for units that are not there.
    absent: VolumeCount,
}

impl VolumeCounters {
    /// A command is over; without a reply it was aborted.
    pub fn note(&mut self, meter: &Meter, reply: Option<&Reply>, now: Instant) {
        let volume = self.volume(meter.slot);
        if let Some(piece) = reply.filter(|reply| reply.rest.is_some()) {
            volume.read_bytes += piece.data_in.as_ref().map_or(0, |data| data.len() as u64);
            return;
        }
        volume.note(meter, reply, now.saturating_since(meter.begun_at));
    }

    fn volume(&mut self, slot: u16) -> &mut VolumeCount {
        let place = usize::from(slot);
        if place >= LUNS_MAX {
            return &mut self.absent;
        }
        if place >= self.volumes.len() {
            self.volumes.resize(place + 1, None);
        }
        self.volumes[place].get_or_insert_default()
    }

    /// What was counted so far of the volumes that were used here, ascending by their slots; commands for units that are not there
    /// stand under [`LUNS_MAX`].
    #[must_use]
    pub fn volumes(&self) -> Vec<(u16, VolumeCount)> {
        let used =
            (0..).zip(&self.volumes).filter_map(|(slot, count)| Some((slot, VolumeCount::clone(count.as_ref()?))));
        let absent = (self.absent.commands() > 0).then(|| (LUNS_MAX as u16, self.absent.clone()));
        used.chain(absent).collect()
    }

    /// Another volume has this slot now.
    pub fn clear(&mut self, slot: u16) {
        if let Some(volume) = self.volumes.get_mut(usize::from(slot)) {
            *volume = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use sanwire_scsi::Status;

    use super::*;

    fn meter(slot: u16, operation: Operation) -> Meter {
        Meter { slot, operation, place: None, written_bytes: 512, begun_at: Instant::ZERO }
    }

    #[test]
    fn latencies_are_known_to_a_quarter_for_each_operation() {
        let mut count = VolumeCount::default();
        for latency_us in [0, 1, 90, 100, 110, 5000] {
            let write = meter(0, Operation::Write);
            count.note(&write, Some(&Reply::good(None)), Duration::from_micros(latency_us));
        }
        assert_eq!((count.commands(), count.written_bytes, count.errors()), (6, 6 * 512, 0));
        let writes = count.durations(Operation::Write).unwrap();
        assert_eq!((writes.within_us(0.5), writes.within_us(0.99)), (95, 5000));
        assert!(count.durations(Operation::Read).is_none());
        count.note(&meter(0, Operation::Read), Some(&Reply::good(None)), Duration::from_micros(3));
        count.note(&meter(0, Operation::Unmap), Some(&Reply::good(None)), Duration::from_micros(3));
        let mut sum = VolumeCount::default();
        sum.add(&count);
        sum.add(&count);
        let all = sum.all_durations();
        assert_eq!((sum.commands(), sum.operations[..4].to_vec()), (16, vec![2, 12, 0, 2]));
        assert_eq!((all.count(), all.sum_us, all.max_us), (14, 2 * 5304, 5000));
    }

    #[test]
    fn a_volume_is_counted_from_its_first_command_on_in_whatever_slot() {
        let mut counters = VolumeCounters::default();
        let last = LUNS_MAX as u16 - 1;
        for slot in [7, last, 7, LUNS_MAX as u16] {
            counters.note(&meter(slot, Operation::Read), Some(&Reply::good(None)), Instant::ZERO);
        }
        let commands = |counters: &VolumeCounters| {
            counters.volumes().iter().map(|(slot, count)| (*slot, count.commands())).collect::<Vec<_>>()
        };
        assert_eq!(commands(&counters), [(7, 2), (last, 1), (LUNS_MAX as u16, 1)]);
        counters.clear(7);
        assert_eq!(commands(&counters), [(last, 1), (LUNS_MAX as u16, 1)]);
    }

    #[test]
    fn attentions_are_no_errors() {
        let mut count = VolumeCount::default();
        let mut note = |reply: Option<&Reply>| count.note(&meter(0, Operation::Other), reply, Duration::ZERO);
        let fails = |sense: Vec<u8>| Reply { sense, ..Reply::bare(Status::CheckCondition) };
        note(Some(&fails(vec![0x70, 0, 6])));
        note(Some(&fails(vec![0x72, 6])));
        note(Some(&fails(vec![0x70, 0, 3])));
        note(None);
        assert_eq!((count.errors(), count.commands()), (2, 4));
        assert_eq!(
            (count.failures[FailureKind::Store as usize], count.failures[FailureKind::Aborted as usize]),
            (1, 1)
        );
    }
}
