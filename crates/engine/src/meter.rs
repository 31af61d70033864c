//! What is measured of commands: plain numbers of one shard, which are added up with those of others.

use std::time::Duration;

use sanwire_core::limits::LUNS_MAX;
use sanwire_core::{Instant, Lun};
use sanwire_device::LogicalUnits;
use sanwire_scsi::{Reply, Status, Task};

/// Latencies are counted by their powers of two, in microseconds; the last place takes the rest.
const LATENCY_PLACES: usize = 24;

/// What is measured of a command, from its begin on.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    /// Which volume; none has the number [`LUNS_MAX`].
    slot: u16,
    written_bytes: u32,
    pub(crate) begun_at: Instant,
}

impl Meter {
    /// Begins to measure a command for one of `units`.
    #[must_use]
    pub fn start(units: &LogicalUnits, task: &Task, now: Instant) -> Self {
        let slot = task.lun.and_then(|lun: Lun| units.slot(lun)).unwrap_or(LUNS_MAX as u16);
        let written_bytes = task.data_out.as_ref().map_or(0, |data| data.len() as u32);
        Meter { slot, written_bytes, begun_at: now }
    }

    /// Which volume it is for: the number of a slot that its owner gave it, or [`LUNS_MAX`] for none.
    #[must_use]
    pub fn slot(&self) -> u16 {
        self.slot
    }

    /// A further piece of the command's data was received.
    pub(crate) fn add(&mut self, task: &Task) {
        self.written_bytes += task.data_out.as_ref().map_or(0, |data| data.len() as u32);
    }
}

/// What was counted of one volume.
#[derive(Clone, Copy, Default, Debug)]
pub struct VolumeCount {
    /// Commands that have ended.
    pub commands: u64,
    /// Bytes that they have read.
    pub read_bytes: u64,
    /// Bytes that they have written.
    pub written_bytes: u64,
    /// Commands that failed or were aborted.
    pub errors: u64,
    /// The sum of their latencies.
    pub latency_us: u64,
    /// The longest latency.
    pub latency_max_us: u64,
    /// How many took so long, by powers of two: in the first place those below a microsecond.
    pub latencies: [u64; LATENCY_PLACES],
}

impl VolumeCount {
    fn note(&mut self, written_bytes: u32, reply: Option<&Reply>, latency: Duration) {
        self.commands += 1;
        match Outcome::of(reply) {
            Outcome::Done { read_bytes } => {
                self.read_bytes += read_bytes;
                self.written_bytes += u64::from(written_bytes);
            }
            Outcome::Attention => {}
            Outcome::Failed => self.errors += 1,
        }
        let latency_us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.latency_us = self.latency_us.saturating_add(latency_us);
        self.latency_max_us = self.latency_max_us.max(latency_us);
        let place = (u64::BITS - latency_us.leading_zeros()) as usize;
        self.latencies[place.min(LATENCY_PLACES - 1)] += 1;
    }

    /// Adds what another shard has counted.
    pub fn add(&mut self, other: &VolumeCount) {
        self.commands += other.commands;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.errors += other.errors;
        self.latency_us = self.latency_us.saturating_add(other.latency_us);
        self.latency_max_us = self.latency_max_us.max(other.latency_max_us);
        self.latencies.iter_mut().zip(other.latencies).for_each(|(ours, theirs)| *ours += theirs);
    }

    /// No more than this many microseconds took `share` (of 1) of the commands, to a factor of two.
    #[must_use]
    pub fn latency_within_us(&self, share: f64) -> u64 {
        let wanted = (self.commands as f64 * share).ceil() as u64;
        let mut count = 0;
        let place = self.latencies.iter().position(|commands| {
            count += commands;
            count >= wanted
        });
        place.map_or(0, |place| (1 << place) - 1).min(self.latency_max_us)
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
            Outcome::Failed => self.errors += 1,
        }
    }
}

/// How a command has ended.
enum Outcome {
    Done { read_bytes: u64 },
    Attention,
    Failed,
}

impl Outcome {
    fn of(reply: Option<&Reply>) -> Outcome {
        match reply {
            Some(reply) if matches!(reply.status, Status::Good | Status::ConditionMet) => {
                Outcome::Done { read_bytes: reply.data_in.as_ref().map_or(0, |data| data.len() as u64) }
            }
            Some(reply) if is_attention(&reply.sense) => Outcome::Attention,
            _ => Outcome::Failed,
        }
    }
}

/// SPC-5 4.4: a unit attention tells of something else than the command.
fn is_attention(sense: &[u8]) -> bool {
    const UNIT_ATTENTION: u8 = 6;
    let key = match sense.first().map(|code| code & 0x7f) {
        Some(0x70 | 0x71) => sense.get(2),
        Some(0x72 | 0x73) => sense.get(1),
        _ => None,
    };
    key.is_some_and(|key| key & 0x0f == UNIT_ATTENTION)
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
        volume.note(meter.written_bytes, reply, now.saturating_since(meter.begun_at));
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
        let used = (0..).zip(&self.volumes).filter_map(|(slot, count)| Some((slot, **count.as_ref()?)));
        used.chain((self.absent.commands > 0).then_some((LUNS_MAX as u16, self.absent))).collect()
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
    use super::*;

    #[test]
    fn latencies_are_known_to_a_factor_of_two() {
        let mut count = VolumeCount::default();
        for latency_us in [0, 1, 90, 100, 110, 5000] {
            count.note(512, Some(&Reply::good(None)), Duration::from_micros(latency_us));
        }
        assert_eq!((count.commands, count.written_bytes, count.errors), (6, 6 * 512, 0));
        assert_eq!((count.latency_within_us(0.5), count.latency_within_us(0.99)), (127, 5000));
        let mut sum = VolumeCount::default();
        sum.add(&count);
        sum.add(&count);
        assert_eq!((sum.commands, sum.latency_us, sum.latency_max_us), (12, 2 * 5301, 5000));
        assert_eq!(VolumeCount::default().latency_within_us(0.99), 0);
    }

    #[test]
    fn a_volume_is_counted_from_its_first_command_on_in_whatever_slot() {
        let mut counters = VolumeCounters::default();
        let last = LUNS_MAX as u16 - 1;
        for slot in [7, last, 7, LUNS_MAX as u16] {
            let meter = Meter { slot, written_bytes: 0, begun_at: Instant::ZERO };
            counters.note(&meter, Some(&Reply::good(None)), Instant::ZERO);
        }
        let commands = |counters: &VolumeCounters| {
            counters.volumes().iter().map(|(slot, count)| (*slot, count.commands)).collect::<Vec<_>>()
        };
        assert_eq!(commands(&counters), [(7, 2), (last, 1), (LUNS_MAX as u16, 1)]);
        counters.clear(7);
        assert_eq!(commands(&counters), [(last, 1), (LUNS_MAX as u16, 1)]);
    }

    #[test]
    fn attentions_are_no_errors() {
        let mut count = VolumeCount::default();
        let fails = |sense: Vec<u8>| Reply { sense, ..Reply::bare(Status::CheckCondition) };
        count.note(0, Some(&fails(vec![0x70, 0, 6])), Duration::ZERO);
        count.note(0, Some(&fails(vec![0x72, 6])), Duration::ZERO);
        assert_eq!(count.errors, 0);
        count.note(0, Some(&fails(vec![0x70, 0, 3])), Duration::ZERO);
        count.note(0, None, Duration::ZERO);
        assert_eq!((count.errors, count.commands), (2, 4));
    }
}
