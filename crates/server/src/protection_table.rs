//! How the volumes are guarded on HyperSCSI's wires, and whether their data may be compressed: read for every command, so without a lock.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use sanwire_core::{Lun, Protection};
use sanwire_store::VolumeSpec;

/// No volume has this number.
const NONE: u8 = u8::MAX;

/// Beside the protection: data is not to be compressed.
const INCOMPRESSIBLE: u8 = 0x40;

/// What each logical unit demands.
pub(crate) struct ProtectionTable {
    /// For volumes that say nothing themselves.
    usual: Protection,
    units: Box<[AtomicU8]>,
    /// How many of them demand each level.
    counts: [AtomicU32; Protection::ALL.len()],
}

impl ProtectionTable {
    pub(crate) fn new(usual: Protection) -> Self {
        let units = (0..=Lun::MAX).map(|_| AtomicU8::new(NONE)).collect();
        ProtectionTable { usual, units, counts: Default::default() }
    }

    /// A volume is served under this number.
    pub(crate) fn set(&self, lun: Lun, spec: &VolumeSpec) {
        let compression = if spec.compressible { 0 } else { INCOMPRESSIBLE };
        self.store(lun, self.wanted(spec) as u8 | compression);
    }

    /// What a volume demands by its description.
    pub(crate) fn wanted(&self, spec: &VolumeSpec) -> Protection {
        spec.security.unwrap_or(self.usual)
    }

    /// A volume gets another number.
    pub(crate) fn copy(&self, from: Lun, to: Lun) {
        if let Some(unit) = self.units.get(usize::from(from.number())) {
            self.store(to, unit.load(Ordering::Relaxed));
        }
    }

    /// No volume is any more.
    pub(crate) fn clear(&self, lun: Lun) {
        self.store(lun, NONE);
    }

    fn store(&self, lun: Lun, code: u8) {
        let Some(unit) = self.units.get(usize::from(lun.number())) else { return };
        // First what is there from now on: at no moment does it seem that there is none.
        if let Some(level) = level(code) {
            self.counts[level as usize].fetch_add(1, Ordering::Relaxed);
        }
        if let Some(before) = level(unit.swap(code, Ordering::Relaxed)) {
            self.counts[before as usize].fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// What a logical unit demands; of none, or one that is not there: the least that any of them does.
    pub(crate) fn of(&self, lun: Option<Lun>) -> Protection {
        let unit = lun.and_then(|lun| self.units.get(usize::from(lun.number())));
        unit.and_then(load).unwrap_or_else(|| self.least().unwrap_or(self.usual))
    }

    fn least(&self) -> Option<Protection> {
        let counted = Protection::ALL.into_iter().zip(&self.counts);
        counted.filter(|(_, count)| count.load(Ordering::Relaxed) > 0).map(|(level, _)| level).min()
    }

    /// Whether a logical unit's data may be compressed.
    pub(crate) fn is_compressible(&self, lun: Lun) -> bool {
        self.units.get(usize::from(lun.number())).is_some_and(|unit| unit.load(Ordering::Relaxed) & INCOMPRESSIBLE == 0)
    }
}

fn load(unit: &AtomicU8) -> Option<Protection> {
    level(unit.load(Ordering::Relaxed))
}

fn level(code: u8) -> Option<Protection> {
    Protection::from_code(code & !INCOMPRESSIBLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_demands_what_it_says_else_what_is_usual_and_none_the_least() {
        let levels = ProtectionTable::new(Protection::Aes128Gcm);
        let [first, second, absent] = [0, 300, 7].map(|number| Lun::new(number).unwrap());
        assert_eq!(levels.of(None), Protection::Aes128Gcm, "no volume yet");
        let spec = |text: &str| text.parse().unwrap();
        levels.set(first, &spec("a=ram:1M"));
        levels.set(second, &spec("b=ram:1M,security=hash,compression=off"));
        assert_eq!(levels.of(Some(first)), Protection::Aes128Gcm);
        assert_eq!(levels.of(Some(second)), Protection::Hash);
        assert_eq!((levels.of(None), levels.of(Some(absent))), (Protection::Hash, Protection::Hash));
        assert_eq!([first, second, absent].map(|lun| levels.is_compressible(lun)), [true, false, false]);
        levels.copy(second, absent);
        levels.clear(second);
        assert_eq!((levels.of(Some(second)), levels.of(Some(absent))), (Protection::Hash, Protection::Hash));
        levels.clear(absent);
        assert_eq!(levels.of(Some(second)), Protection::Aes128Gcm);
    }
}
