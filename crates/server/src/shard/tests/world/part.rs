//! A volume that is derived from the disk of a world, and judged by a program.

use std::sync::Arc;

use sanwire_core::WallClock;
use sanwire_device::{
    AllowedOperations, CommandProgram, Derivation, DerivedExtent, JudgedCommand, Judgement, LogicalUnit, UnitOptions,
    Verdict,
};
use sanwire_scsi::Identity;

use super::{Outcome, told};

/// Has commands wait now and then, each once: which ones follows from what they are about.
#[derive(Debug)]
struct Hesitant;

impl CommandProgram for Hesitant {
    fn judge(&self, command: &JudgedCommand<'_>) -> Judgement {
        let lba = command.ranges.first().map_or(0, |range| range.lba);
        let drawn = lba.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
        let verdict = match drawn {
            0..=31 if command.waited_ms == 0 => Verdict::Defer { milliseconds: drawn as u32 },
            _ => Verdict::Allow,
        };
        verdict.into()
    }
}

/// What the volume is derived from, and how.
pub(super) struct Part {
    whole: Arc<LogicalUnit>,
    extents: Vec<DerivedExtent>,
    write_cache: bool,
    /// What was derived last.
    unit: Option<Arc<LogicalUnit>>,
}

impl Part {
    /// All of the disk, in so many extents, the last one first.
    pub(super) fn new(whole: Arc<LogicalUnit>, extents: u64, write_cache: bool) -> Part {
        let geometry = whole.state().store().geometry();
        let blocks = geometry.length_bytes / u64::from(geometry.block_bytes);
        let at = |number: u64| blocks * number / extents * u64::from(geometry.block_bytes);
        let extent = |number| DerivedExtent { offset_bytes: at(number), length_bytes: at(number + 1) - at(number) };
        Part { whole, extents: (0..extents).rev().map(extent).collect(), write_cache, unit: None }
    }

    /// Whether there was something to be revoked.
    pub(super) fn revoke(&mut self) -> bool {
        let unit = self.unit.take();
        unit.iter().for_each(|unit| unit.revoke());
        unit.is_some()
    }

    /// Derives it; to hosts it is the same disk each time.
    pub(super) fn derive(&mut self, slot: u16) -> Outcome<Arc<LogicalUnit>> {
        let derivation = Derivation {
            extents: self.extents.clone(),
            operations: AllowedOperations::all(),
            admission: None,
            until_unix_ms: None,
            program: Some(Arc::new(Hesitant)),
            clock: WallClock::default(),
        };
        let identity = Identity::new("simulated", [8; 16]).map_err(|error| format!("{error:?}"))?;
        let options = UnitOptions { write_cache: self.write_cache, slot, ..UnitOptions::default() };
        let unit = Arc::new(LogicalUnit::derive(identity, &self.whole, derivation, options).map_err(told)?);
        self.unit = Some(Arc::clone(&unit));
        Ok(unit)
    }
}
