//! Stations at targets: they begin with a command, and end when somebody else needs their place or they are not served any more.

use std::collections::BTreeMap;

use sanwire_core::{Instant, Lun, MacAddress, NexusId, Path};
use sanwire_scsi::Receipts;

use super::{GUARANTEED_BYTES, IDLE_MAX, Target};
use crate::shelves::Entry;
use crate::target::nexus::Nexus;
use crate::target::recent::Recent;
use crate::target::types::TargetEvent;
use crate::wire::Address;

impl Target {
    /// The nexus of a station with a target; one that begins if need be, `None` where there is no room for another one.
    pub(super) fn nexus(
        &mut self,
        path: Path,
        station: MacAddress,
        address: Address,
        (lun, put): (Lun, u64),
        now: Instant,
    ) -> Option<NexusId> {
        let mut is_unmet = false;
        if let Some(id) = self.by_station.get(&(station, address)).copied()
            && let Some(nexus) = self.nexuses.get_mut(&id)
        {
            nexus.used_at = now;
            if (nexus.lun, nexus.put) == (lun, put) {
                return Some(id);
            }
            // Another unit is there by now. The device lets this nexus use none that came after it before an INQUIRY, which ATA never sends.
            is_unmet = nexus.put != put;
            self.close(id);
        }
        if !self.limits.may_begin(now) {
            return None;
        }
        if !self.limits.has_place(self.nexuses.len()) {
            let idle = self.nexuses.values().filter(|nexus| nexus.is_idle());
            let oldest = idle.min_by_key(|nexus| nexus.used_at).map(|nexus| nexus.id)?;
            self.close(oldest);
        }
        let id = NexusId(self.next_nexus);
        self.next_nexus += self.config.nexuses.1;
        let memory = self.config.memory.share(GUARANTEED_BYTES);
        self.events.push_back(TargetEvent::Opened { nexus: id, path, address, memory: memory.clone() });
        let (drive, commands) = (self.settings.take((station, address)), BTreeMap::new());
        let (recent, failures) = (Recent::of_writes(), Recent::of_failed_flushes());
        self.nexuses.insert(
            id,
            Nexus {
                id,
                station,
                address,
                lun,
                put,
                is_unmet,
                drive,
                memory,
                commands,
                recent,
                failures,
                used_at: now,
                receipts: Receipts::default(),
            },
        );
        self.by_station.insert((station, address), id);
        self.tend_at.get_or_insert(now + IDLE_MAX);
        Some(id)
    }

    /// Ends a nexus, with what it has under way.
    pub fn close(&mut self, id: NexusId) {
        if let Some(nexus) = self.nexuses.remove(&id) {
            self.by_station.remove(&(nexus.station, nexus.address));
            if !self.settings.keep((nexus.station, nexus.address), &nexus.drive) {
                self.counters.settings_given_up += 1;
                if self.counters.settings_given_up == 1 {
                    self.events.push_back(TargetEvent::SettingsFull);
                }
            }
            self.later.retain(|_, (of, _)| *of != id);
            self.events.push_back(TargetEvent::Closed { nexus: id });
        }
    }

    /// Ends the nexuses of stations that are not served any more. Those of targets that are gone stay until they are idle for long: if
    /// another unit comes to the address, it is known by them that the station has not met it, and may give commands again that it gave before.
    pub fn look_after(&mut self) {
        let shelves = &self.config.shelves;
        let is_shut_out =
            |nexus: &Nexus| shelves.has(nexus.address) && shelves.entry(nexus.address, nexus.station) == Entry::Absent;
        let is_over = |nexus: &&Nexus| !(self.config.admission)(nexus.station) || is_shut_out(nexus);
        let over: Vec<NexusId> = self.nexuses.values().filter(is_over).map(|nexus| nexus.id).collect();
        over.into_iter().for_each(|id| self.close(id));
        self.told.clear();
    }
}
