//! A volume that is derived from the disk of a world.

use std::sync::Arc;

use sanwire_core::Principal;
use sanwire_device::{Derivation, LogicalUnit, UnitOptions};
use sanwire_scsi::Identity;
use sanwire_sim::derived::DerivedPlan;

use super::{Outcome, told};

/// What the volume is derived from, and how.
pub(super) struct Part {
    whole: Arc<LogicalUnit>,
    derivation: Derivation,
    write_cache: bool,
    /// What was derived last.
    unit: Option<Arc<LogicalUnit>>,
}

impl Part {
    pub(super) fn new(whole: Arc<LogicalUnit>, plan: DerivedPlan, clients: &[Principal], write_cache: bool) -> Part {
        let derivation = plan.derivation(whole.store().geometry(), clients);
        Part { whole, derivation, write_cache, unit: None }
    }

    /// Whether there was something to be revoked.
    pub(super) fn revoke(&mut self) -> bool {
        let unit = self.unit.take();
        unit.iter().for_each(|unit| unit.revoke());
        unit.is_some()
    }

    /// Derives it; to hosts it is the same disk each time.
    pub(super) fn derive(&mut self, slot: u16) -> Outcome<Arc<LogicalUnit>> {
        let identity = Identity::new("simulated", [8; 16]).map_err(|error| format!("{error:?}"))?;
        let options = UnitOptions { write_cache: self.write_cache, slot, ..UnitOptions::default() };
        let unit = LogicalUnit::derive(identity, &self.whole, self.derivation.clone(), options).map_err(told)?;
        let unit = Arc::new(unit);
        self.unit = Some(Arc::clone(&unit));
        Ok(unit)
    }
}
