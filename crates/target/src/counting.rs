//! What a shard counts: plain numbers of its own, which are added up when somebody asks.

use std::time::Duration;

use sanwire_core::limits::LUNS_MAX;
use sanwire_core::quota::Usage;
use sanwire_core::{ClientId, Instant, Lun, Peer};
use sanwire_device::LogicalUnits;
use sanwire_hyperscsi::ConnectionStatus;
use sanwire_scsi::{Reply, Status, Task, operation_code};

use crate::past_uses::Host;

/// Latencies are counted by their powers of two, in microseconds; the last place takes the rest.
const LATENCY_PLACES: usize = 24;

/// What is measured of a command, from its begin on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    /// Which volume; none has the number [`LUNS_MAX`].
    slot: u16,
    written_bytes: u32,
    begun_at: Instant,
}

impl Meter {
    /// Begins to measure a command for one of `units`.
    pub(crate) fn start(units: &LogicalUnits, task: &Task, now: Instant) -> Self {
        let slot = task.lun.and_then(|lun: Lun| units.slot(lun)).unwrap_or(LUNS_MAX as u16);
        let written_bytes = task.data_out.as_ref().map_or(0, |data| data.len() as u32);
        Meter { slot, written_bytes, begun_at: now }
    }

    /// A further piece of the command's data has come.
    pub(crate) fn add(&mut self, task: &Task) {
        self.written_bytes += task.data_out.as_ref().map_or(0, |data| data.len() as u32);
    }
}

/// The volumes that a session has used since it began, by their slots.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Uses([u64; LUNS_MAX.div_ceil(u64::BITS as usize)]);

impl Uses {
    /// Notes a command; the slot of the volume if it is the first that uses it.
    pub(crate) fn note(&mut self, meter: &Meter, task: &Task) -> Option<u16> {
        if is_look(task.cdb.operation_code()) || self.has(meter.slot) {
            return None;
        }
        self.set(meter.slot);
        // No volume has the number of none.
        self.has(meter.slot).then_some(meter.slot)
    }

    pub(crate) fn set(&mut self, slot: u16) {
        let (word, bit) = Self::place(slot);
        self.0.get_mut(word).into_iter().for_each(|uses| *uses |= bit);
    }

    pub(crate) fn has(&self, slot: u16) -> bool {
        let (word, bit) = Self::place(slot);
        self.0.get(word).is_some_and(|uses| uses & bit != 0)
    }

    /// Another volume has this slot now.
    pub(crate) fn clear(&mut self, slot: u16) {
        let (word, bit) = Self::place(slot);
        self.0.get_mut(word).into_iter().for_each(|uses| *uses &= !bit);
    }

    fn place(slot: u16) -> (usize, u64) {
        (usize::from(slot) / u64::BITS as usize, 1 << (slot % u64::BITS as u16))
    }
}

/// Whether a command only looks at what there is: who looks for a volume sends them to all.
fn is_look(operation_code: u8) -> bool {
    use operation_code::{INQUIRY, LOG_SENSE, MAINTENANCE_IN, MODE_SENSE_6, MODE_SENSE_10, PERSISTENT_RESERVE_IN};
    use operation_code::{READ_CAPACITY_10, REPORT_LUNS, REQUEST_SENSE, SERVICE_ACTION_IN_16, TEST_UNIT_READY};
    matches!(
        operation_code,
        INQUIRY
            | LOG_SENSE
            | MAINTENANCE_IN
            | MODE_SENSE_6
            | MODE_SENSE_10
            | PERSISTENT_RESERVE_IN
            | READ_CAPACITY_10
            | REPORT_LUNS
            | REQUEST_SENSE
            | SERVICE_ACTION_IN_16
            | TEST_UNIT_READY
    )
}

/// A session that uses volumes.
#[derive(Clone, Debug)]
pub(crate) struct User {
    /// Who, for people.
    pub(crate) who: String,
    pub(crate) access: Access,
    pub(crate) uses: Uses,
}

impl User {
    /// A session with an iSCSI target.
    pub(crate) fn of_target(host: &Host, uses: Uses) -> Self {
        let access = Access::Target(host.target.clone().unwrap_or_default());
        User { who: host.who.clone(), access, uses }
    }
}

/// By which way a session has its volumes.
#[derive(Clone, Debug)]
pub(crate) enum Access {
    /// HyperSCSI: what this client sees, where it is. It may want to write nothing.
    HyperScsi { client: ClientId, peer: Peer, is_read_only: bool },
    /// The iSCSI target of this name.
    Target(String),
}

impl Access {
    /// The iSCSI target; `None` over HyperSCSI.
    pub(crate) fn target(&self) -> Option<&str> {
        match self {
            Access::HyperScsi { .. } => None,
            Access::Target(target) => Some(target),
        }
    }
}

/// What was counted of one volume.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct VolumeCount {
    pub(crate) commands: u64,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) errors: u64,
    pub(crate) latency_us: u64,
    pub(crate) latency_max_us: u64,
    pub(crate) latencies: [u64; LATENCY_PLACES],
}

impl VolumeCount {
    fn note(&mut self, written_bytes: u32, reply: Option<&Reply>, latency: Duration) {
        self.commands += 1;
        match reply {
            Some(reply) if matches!(reply.status, Status::Good | Status::ConditionMet) => {
                self.read_bytes += reply.data_in.as_ref().map_or(0, |data| data.len() as u64);
                self.written_bytes += u64::from(written_bytes);
            }
            Some(reply) if is_attention(&reply.sense) => {}
            _ => self.errors += 1,
        }
        let latency_us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.latency_us = self.latency_us.saturating_add(latency_us);
        self.latency_max_us = self.latency_max_us.max(latency_us);
        let place = (u64::BITS - latency_us.leading_zeros()) as usize;
        self.latencies[place.min(LATENCY_PLACES - 1)] += 1;
    }

    /// Adds what another shard has counted.
    pub(crate) fn add(&mut self, other: &VolumeCount) {
        self.commands += other.commands;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.errors += other.errors;
        self.latency_us = self.latency_us.saturating_add(other.latency_us);
        self.latency_max_us = self.latency_max_us.max(other.latency_max_us);
        self.latencies.iter_mut().zip(other.latencies).for_each(|(ours, theirs)| *ours += theirs);
    }

    /// No more than this many microseconds took `share` (of 1) of the commands, to a factor of two.
    pub(crate) fn latency_within_us(&self, share: f64) -> u64 {
        let wanted = (self.commands as f64 * share).ceil() as u64;
        let mut count = 0;
        let place = self.latencies.iter().position(|commands| {
            count += commands;
            count >= wanted
        });
        place.map_or(0, |place| (1 << place) - 1).min(self.latency_max_us)
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

/// The counters of a shard.
#[derive(Debug)]
pub(crate) struct Counters {
    /// By the slots of the volumes; the last place takes commands for none.
    volumes: Vec<VolumeCount>,
    /// Requests to manage the server from clients that may not.
    pub(crate) unpermitted: u64,
}

impl Default for Counters {
    fn default() -> Self {
        Counters { volumes: vec![VolumeCount::default(); LUNS_MAX + 1], unpermitted: 0 }
    }
}

impl Counters {
    /// A command is over; without a reply it was aborted.
    pub(crate) fn note(&mut self, meter: &Meter, reply: Option<&Reply>, now: Instant) {
        if let Some(volume) = self.volumes.get_mut(usize::from(meter.slot)) {
            if let Some(piece) = reply.filter(|reply| reply.rest.is_some()) {
                volume.read_bytes += piece.data_in.as_ref().map_or(0, |data| data.len() as u64);
                return;
            }
            volume.note(meter.written_bytes, reply, now.saturating_since(meter.begun_at));
        }
    }

    pub(crate) fn volumes(&self) -> Vec<VolumeCount> {
        self.volumes.clone()
    }

    /// Another volume has this slot now.
    pub(crate) fn clear(&mut self, slot: u16) {
        if let Some(volume) = self.volumes.get_mut(usize::from(slot)) {
            *volume = VolumeCount::default();
        }
    }
}

/// What one shard has counted.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    pub(crate) shard: usize,
    /// By slots.
    pub(crate) volumes: Vec<VolumeCount>,
    pub(crate) connections: Vec<(ClientId, ConnectionStatus)>,
    /// The sessions that have used volumes.
    pub(crate) users: Vec<User>,
    pub(crate) dropped: sanwire_hyperscsi::Counters,
    /// How quotas are used.
    pub(crate) quotas: Vec<Usage>,
    /// Requests to manage the server from clients that may not.
    pub(crate) unpermitted: u64,
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
    fn who_only_looks_does_not_use() {
        let meter = |slot| Meter { slot, written_bytes: 0, begun_at: Instant::ZERO };
        let task = |code: u8| Task {
            lun: None,
            cdb: [code, 0, 0, 0, 0, 0, 0, 0, 0, 0].into(),
            data_out: None,
            tells_residual: false,
            piece: None,
            data_in_max_bytes: 0,
        };
        let mut uses = Uses::default();
        for code in [operation_code::INQUIRY, operation_code::TEST_UNIT_READY, operation_code::READ_CAPACITY_10] {
            assert_eq!(uses.note(&meter(3), &task(code)), None);
        }
        assert_eq!(uses, Uses::default());
        assert_eq!(uses.note(&meter(LUNS_MAX as u16), &task(operation_code::READ_10)), None);
        assert_eq!(uses, Uses::default(), "there is no such volume");
        assert_eq!(uses.note(&meter(3), &task(operation_code::RESERVE_6)), Some(3));
        assert_eq!(uses.note(&meter(3), &task(operation_code::READ_10)), None, "not for the first time");
        assert_eq!(uses.note(&meter(LUNS_MAX as u16 - 1), &task(operation_code::READ_16)), Some(LUNS_MAX as u16 - 1));
        assert_eq!([2, 3, 255].map(|slot| uses.has(slot)), [false, true, true]);
        uses.clear(3);
        assert_eq!([2, 3, 255].map(|slot| uses.has(slot)), [false, false, true]);
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
