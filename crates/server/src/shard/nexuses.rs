//! The I_T nexuses of a shard, of whatever wire: what stands here of one is known nowhere else, and front ends keep only what their
//! protocol needs. Read by every command, by one thread.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use sanwire_buffer::Region;
use sanwire_core::NexusId;
use sanwire_device::{LogicalUnits, NexusPorts, Seat};
use sanwire_engine::{Meter, NexusCount};
use sanwire_scsi::Reply;

use crate::client_counts::{Moved, MovedByVolume};
use crate::counting::Uses;
use crate::past_uses::Host;
use crate::streams::ByteCount;

/// An I_T nexus of the shard.
pub(super) struct Nexus {
    pub(super) front: u8,
    pub(super) units: Arc<LogicalUnits>,
    pub(super) ports: Arc<NexusPorts>,
    pub(super) writer: [u8; 16],
    pub(super) host: Host,
    /// Whether its initiator wants to write nothing.
    pub(super) is_read_only: bool,
    pub(super) uses: Uses,
    /// Its share of the memory, and how much of what comes free it has beside others.
    pub(super) memory: Region,
    pub(super) weight: u32,
    /// As of [`crate::front::NewNexus`]: those without it end none of their owner, and none ends them.
    pub(super) ends_own: bool,
    pub(super) since: SystemTime,
    pub(super) count: NexusCount,
    /// If each client is counted.
    pub(super) moved: Option<MovedByVolume>,
    /// What its connections came to that are closed.
    pub(super) bytes: ByteCount,
}

impl Nexus {
    /// A command is over, or a piece of it.
    pub(super) fn note(&mut self, meter: &Meter, reply: Option<&Reply>) {
        let before = self.count;
        self.count.note(meter, reply);
        if let Some(moved) = &mut self.moved {
            let read_bytes = self.count.read_bytes - before.read_bytes;
            moved.note(
                meter.slot(),
                Moved { read_bytes, written_bytes: self.count.written_bytes - before.written_bytes },
            );
        }
    }

    /// Whose it is: a client by its id, or an initiator by its name.
    pub(super) fn principal(&self) -> &str {
        self.host.owner()
    }

    pub(super) fn seat(&self) -> Seat<'_> {
        Seat { units: &self.units, memory: &self.memory, weight: self.weight }
    }
}

/// All of them.
#[derive(Default)]
pub(super) struct Nexuses {
    by_id: BTreeMap<NexusId, Nexus>,
    of_principal: BTreeMap<Box<str>, BTreeSet<NexusId>>,
    /// Principals whose commands wait until they are resumed, also those of nexuses that begin later.
    paused: BTreeSet<String>,
}

impl Nexuses {
    pub(super) fn get(&self, id: NexusId) -> Option<&Nexus> {
        self.by_id.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: NexusId) -> Option<&mut Nexus> {
        self.by_id.get_mut(&id)
    }

    pub(super) fn insert(&mut self, id: NexusId, nexus: Nexus) {
        self.of_principal.entry(nexus.principal().into()).or_default().insert(id);
        self.by_id.insert(id, nexus);
    }

    pub(super) fn remove(&mut self, id: NexusId) -> Option<Nexus> {
        let nexus = self.by_id.remove(&id)?;
        if let Entry::Occupied(mut own) = self.of_principal.entry(nexus.principal().into()) {
            own.get_mut().remove(&id);
            if own.get().is_empty() {
                own.remove();
            }
        }
        Some(nexus)
    }

    /// Those of a principal; the others are not looked at.
    pub(super) fn of(&self, principal: &str) -> impl Iterator<Item = NexusId> + '_ {
        self.of_principal.get(principal).into_iter().flatten().copied()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (NexusId, &Nexus)> {
        self.by_id.iter().map(|(id, nexus)| (*id, nexus))
    }

    /// Other volumes have these slots now. It is a change of volumes, which may cost one look at each nexus, however many they are.
    pub(super) fn forget_uses(&mut self, slots: &[u16]) {
        let mut other = Uses::default();
        slots.iter().for_each(|slot| other.set(*slot));
        for nexus in self.by_id.values_mut() {
            nexus.uses.clear(&other);
            nexus.moved.iter_mut().for_each(|moved| moved.forget(&other));
        }
    }

    pub(super) fn is_paused(&self, principal: &str) -> bool {
        self.paused.contains(principal)
    }

    pub(super) fn pause(&mut self, principal: &str, is_paused: bool) {
        if is_paused {
            self.paused.insert(principal.to_owned());
        } else {
            self.paused.remove(principal);
        }
    }
}

#[cfg(test)]
mod tests {
    use sanwire_core::Principal;
    use sanwire_scsi::reservation::TransportId;
    use sanwire_scsi::vpd::TargetPort;

    use super::*;

    fn nexus(port: &str) -> Nexus {
        let initiator = TransportId::iscsi_port("iqn.2026-11.org.example:host", [0x80, 0, 0, 0, 0, 1]).unwrap();
        Nexus {
            front: 0,
            units: Arc::new(LogicalUnits::new()),
            ports: Arc::new(NexusPorts { initiator, target: TargetPort::default(), principal: Principal::default() }),
            writer: [0; 16],
            host: Host { port: port.into(), who: port.into(), target: None, address: None },
            is_read_only: false,
            uses: Uses::default(),
            memory: Region::new(1 << 16).unwrap(),
            weight: 1,
            ends_own: false,
            since: SystemTime::UNIX_EPOCH,
            count: NexusCount::default(),
            moved: None,
            bytes: ByteCount::default(),
        }
    }

    #[test]
    fn the_nexuses_of_a_principal_are_found_among_many_and_forgotten_when_they_end() {
        let mut nexuses = Nexuses::default();
        for number in 0..200 {
            nexuses.insert(NexusId(number), nexus(&format!("client-{},{number}", number % 50)));
        }
        let of = |nexuses: &Nexuses, principal: &str| nexuses.of(principal).map(|id| id.0).collect::<Vec<_>>();
        assert_eq!(of(&nexuses, "client-7"), [7, 57, 107, 157]);
        assert!(of(&nexuses, "client-7,57").is_empty(), "a port is no principal");
        for number in [57, 157, 157] {
            nexuses.remove(NexusId(number));
        }
        assert_eq!(of(&nexuses, "client-7"), [7, 107]);
        (0..200).for_each(|number| drop(nexuses.remove(NexusId(number))));
        assert!(nexuses.of_principal.is_empty() && nexuses.iter().next().is_none(), "nothing is left");
    }

    #[test]
    fn a_principal_is_paused_with_and_without_nexuses() {
        let mut nexuses = Nexuses::default();
        nexuses.pause("client", true);
        nexuses.insert(NexusId(1), nexus("client,1"));
        nexuses.remove(NexusId(1));
        assert!(nexuses.is_paused("client") && !nexuses.is_paused("other"));
        nexuses.pause("client", false);
        assert!(!nexuses.is_paused("client"));
    }
}
