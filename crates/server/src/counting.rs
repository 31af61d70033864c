//! What a shard counts: plain numbers of its own, which are added up when somebody asks.

use sanwire_core::limits::LUNS_MAX;
use sanwire_core::quota::Usage;
use sanwire_core::{ClientId, Peer};
use sanwire_engine::VolumeCount;
use sanwire_hyperscsi::ConnectionStatus;
use sanwire_scsi::{Task, operation_code};

use crate::past_uses::Host;

/// The volumes that a session has used since it began, by their slots.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Uses([u64; LUNS_MAX.div_ceil(u64::BITS as usize)]);

impl Uses {
    /// Notes a command for the volume in this slot, which is given back if it is the first that uses it.
    pub(crate) fn note(&mut self, slot: u16, task: &Task) -> Option<u16> {
        if is_look(task.cdb.operation_code()) || self.has(slot) {
            return None;
        }
        self.set(slot);
        // No volume has the number of none.
        self.has(slot).then_some(slot)
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
    fn who_only_looks_does_not_use() {
        let task = |code: u8| Task {
            lun: None,
            cdb: [code, 0, 0, 0, 0, 0, 0, 0, 0, 0].into(),
            data_out: None,
            tells_residual: false,
            piece: None,
            data_in_max_bytes: 0,
            may_share: true,
        };
        let mut uses = Uses::default();
        for code in [operation_code::INQUIRY, operation_code::TEST_UNIT_READY, operation_code::READ_CAPACITY_10] {
            assert_eq!(uses.note(3, &task(code)), None);
        }
        assert_eq!(uses, Uses::default());
        assert_eq!(uses.note(LUNS_MAX as u16, &task(operation_code::READ_10)), None);
        assert_eq!(uses, Uses::default(), "there is no such volume");
        assert_eq!(uses.note(3, &task(operation_code::RESERVE_6)), Some(3));
        assert_eq!(uses.note(3, &task(operation_code::READ_10)), None, "not for the first time");
        assert_eq!(uses.note(LUNS_MAX as u16 - 1, &task(operation_code::READ_16)), Some(LUNS_MAX as u16 - 1));
        assert_eq!([2, 3, 255].map(|slot| uses.has(slot)), [false, true, true]);
        uses.clear(3);
        assert_eq!([2, 3, 255].map(|slot| uses.has(slot)), [false, false, true]);
    }
}
