//! What stations have set of their drives, kept while they give no commands: who has switched the write cache off relies on that.

use std::collections::BTreeMap;

use sanwire_ata::Drive;
use sanwire_core::MacAddress;

use crate::wire::Address;

/// Stations at targets whose settings are kept at the most.
const KEPT_MAX: usize = 4096;

/// A station at a target.
pub(super) type Place = (MacAddress, Address);

/// The settings of those that have no nexus now.
pub(super) struct Settings {
    /// Which run of the target this is.
    run: u64,
    kept: BTreeMap<Place, Drive>,
    /// Some were given up, and nobody knows whose.
    is_cautious: bool,
}

impl Settings {
    pub(super) fn new(run: u64) -> Settings {
        Settings { run, kept: BTreeMap::new(), is_cautious: false }
    }

    /// The drive of a station that comes, or comes again.
    pub(super) fn take(&mut self, place: Place) -> Drive {
        self.kept.remove(&place).unwrap_or_else(|| self.usual())
    }

    /// Keeps what a station has set; whether there was room. Where there is none, it is given up, and every drive begins without its
    /// write cache from then on: that costs time, and no data.
    pub(super) fn keep(&mut self, place: Place, drive: &Drive) -> bool {
        let settings = drive.settings();
        if settings == self.usual() {
            return true;
        }
        let has_room = self.kept.len() < KEPT_MAX;
        if has_room {
            self.kept.insert(place, settings);
        } else {
            self.is_cautious = true;
        }
        has_room
    }

    fn usual(&self) -> Drive {
        let new = Drive::of_run(self.run);
        if self.is_cautious { new.without_write_cache() } else { new }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(number: u16) -> Place {
        let [high, low] = number.to_be_bytes();
        (MacAddress([2, 0, 0, 0, high, low]), Address { shelf: 7, slot: 3 })
    }

    #[test]
    fn nobody_has_a_write_cache_again_that_was_switched_off() {
        let (mut settings, off) = (Settings::new(9), Drive::of_run(9).without_write_cache());
        assert!(settings.keep(place(0), &off));
        assert_eq!((settings.take(place(0)), settings.take(place(0))), (off.clone(), Drive::of_run(9)));
        let kept = (0..KEPT_MAX as u16 + 1).filter(|number| settings.keep(place(*number), &off)).count();
        assert_eq!(kept, KEPT_MAX);
        assert_eq!(settings.kept.len(), KEPT_MAX);
        assert_eq!(settings.take(place(u16::MAX)), off, "it may be the one that was given up");
    }
}
