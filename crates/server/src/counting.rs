//! What a shard counts: plain numbers of its own, which are added up when somebody asks.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use sanwire_core::limits::LUNS_MAX;
use sanwire_core::quota::Usage;
use sanwire_core::{Movement, NexusId};
use sanwire_engine::{NexusCount, UnderWay, VolumeCount};
use sanwire_io::PortCounters;
use sanwire_scsi::{Task, operation_code};

use crate::channel::PortalPath;
use crate::client_counts::ClientLink;
use crate::command::CommandRef;
use crate::front::{LoginStatus, TallyFamily};
use crate::past_uses::Host;
use crate::sessions::SessionCount;
use crate::streams::{ByteCount, PortalCount};

/// The volumes that a session has used since it began, by their slots: a bit for each, up to the highest that it has used.
#[derive(Clone, Default, Debug)]
pub(crate) struct Uses(Vec<u64>);

impl Uses {
    /// Notes a command for the volume in this slot, which is given back if it is the first that uses it.
    pub(crate) fn note(&mut self, slot: u16, task: &Task) -> Option<u16> {
        if is_look(task.cdb.operation_code()) || self.has(slot) {
            return None;
        }
        // No volume has the number of none.
        (usize::from(slot) < LUNS_MAX).then(|| self.set(slot)).map(|()| slot)
    }

    pub(crate) fn set(&mut self, slot: u16) {
        let (word, bit) = Self::place(slot);
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= bit;
    }

    /// Takes those of another one in.
    pub(crate) fn merge(&mut self, other: &Uses) {
        if other.0.len() > self.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(ours, theirs)| *ours |= theirs);
    }

    /// The slots of all of them, ascending.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u16> {
        let words = (0u16..).zip(&self.0).filter(|(_, word)| **word != 0);
        words.flat_map(|(at, word)| {
            (0..u64::BITS as u16).filter(move |bit| word >> bit & 1 != 0).map(move |bit| at * u64::BITS as u16 + bit)
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|uses| *uses == 0)
    }

    pub(crate) fn has(&self, slot: u16) -> bool {
        let (word, bit) = Self::place(slot);
        self.0.get(word).is_some_and(|uses| uses & bit != 0)
    }

    /// Takes these out: other volumes have their slots now.
    pub(crate) fn clear(&mut self, others: &Uses) {
        self.0.iter_mut().zip(&others.0).for_each(|(uses, others)| *uses &= !others);
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
    pub(crate) host: Host,
    /// Whether it wants to write nothing.
    pub(crate) is_read_only: bool,
    pub(crate) uses: Uses,
}

/// A command under way in one shard.
#[derive(Clone, Debug)]
pub(crate) struct CommandUnderWay {
    pub(crate) nexus: NexusId,
    pub(crate) host: Host,
    pub(crate) wire: &'static str,
    /// As of the session.
    pub(crate) iser_path: Option<&'static str>,
    pub(crate) command: UnderWay<CommandRef>,
}

/// What one shard has counted.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    pub(crate) shard: usize,
    /// By slots, ascending; only those that were used on this shard.
    pub(crate) volumes: Vec<(u16, VolumeCount)>,
    /// Commands that have come and are not over, by slots.
    pub(crate) in_flight: BTreeMap<u16, u64>,
    /// Processor time of its thread.
    pub(crate) busy: Duration,
    /// Its memory for data in transit: what is used, and what is free.
    pub(crate) memory_bytes: (u64, u64),
    pub(crate) connections: Vec<ConnectionCount>,
    pub(crate) sessions: Vec<SessionCount>,
    /// The links of connections, if each client is counted.
    pub(crate) links: Vec<ClientLink>,
    /// The sessions that have used volumes.
    pub(crate) users: Vec<User>,
    /// What the protocols have counted in their own words; links have the names of their wires.
    pub(crate) tallies: Vec<(&'static TallyFamily, String, u64)>,
    /// What was not taken, by reasons.
    pub(crate) dropped: Vec<(&'static str, u64)>,
    /// How quotas are used.
    pub(crate) quotas: Vec<Usage>,
    /// The wires of packets.
    pub(crate) wires: Vec<WireCount>,
    /// Those of connections, by the addresses of this host at which these came in.
    pub(crate) portals: Vec<((SocketAddr, PortalPath), PortalCount)>,
}

/// What was counted of a wire of packets, at the ports of a shard.
#[derive(Clone, Debug)]
pub(crate) struct WireCount {
    pub(crate) wire: String,
    /// Whether it is there.
    pub(crate) is_up: bool,
    pub(crate) ports: PortCounters,
    /// Connections that have a link there; of protocols without connections, none.
    pub(crate) connections: u64,
}

impl WireCount {
    /// Adds what another shard has counted.
    pub(crate) fn add(&mut self, other: &WireCount) {
        self.is_up &= other.is_up;
        self.ports += other.ports;
        self.connections += other.connections;
    }
}

/// What was counted of one connection, or of a session where its connections are not told apart.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionCount {
    pub(crate) nexus: NexusId,
    /// The name of its front end.
    pub(crate) wire: &'static str,
    /// Whose it is: a client by its id, or an initiator by its name.
    pub(crate) principal: String,
    pub(crate) address: String,
    /// Of a session whose connections are not told apart, how many it has; the links of one that goes by several.
    pub(crate) links: usize,
    /// How it is guarded, for people.
    pub(crate) security: String,
    pub(crate) login: Option<LoginStatus>,
    pub(crate) commands: NexusCount,
    /// Of a session over streams, what has passed on all of its connections.
    pub(crate) bytes: ByteCount,
    pub(crate) packets: Option<PacketCount>,
    /// How the data that came was brought to its place, as far as that is counted.
    pub(crate) movement: Option<Movement>,
}

/// What was counted of a connection that goes by packets.
#[derive(Clone, Default, Debug)]
pub(crate) struct PacketCount {
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) resent: u64,
    /// How often nothing was acknowledged in time.
    pub(crate) timeouts: u64,
    /// Packets that may be in flight to the client, and from it.
    pub(crate) window_out: u32,
    pub(crate) window_in: u32,
    /// Once it was measured.
    pub(crate) round_trip: Option<Duration>,
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
            receipts: 0,
            data_in_max_bytes: 0,
            may_share: true,
        };
        let mut uses = Uses::default();
        for code in [operation_code::INQUIRY, operation_code::TEST_UNIT_READY, operation_code::READ_CAPACITY_10] {
            assert_eq!(uses.note(3, &task(code)), None);
        }
        assert!(uses.is_empty());
        assert_eq!(uses.note(LUNS_MAX as u16, &task(operation_code::READ_10)), None);
        assert!(uses.is_empty(), "there is no such volume");
        assert_eq!(uses.note(3, &task(operation_code::RESERVE_6)), Some(3));
        assert_eq!(uses.note(3, &task(operation_code::READ_10)), None, "not for the first time");
        assert_eq!(uses.note(LUNS_MAX as u16 - 1, &task(operation_code::READ_16)), Some(LUNS_MAX as u16 - 1));
        let has = |uses: &Uses| [2, 3, LUNS_MAX as u16 - 1].map(|slot| uses.has(slot));
        assert_eq!(has(&uses), [false, true, true]);
        assert_eq!(uses.slots().collect::<Vec<_>>(), [3, LUNS_MAX as u16 - 1]);
        let of = |slots: &[u16]| {
            let mut uses = Uses::default();
            slots.iter().for_each(|slot| uses.set(*slot));
            uses
        };
        uses.clear(&of(&[3, 4]));
        assert_eq!(has(&uses), [false, false, true]);
        uses.clear(&of(&[2, LUNS_MAX as u16 - 1]));
        assert!(uses.is_empty());
    }
}
