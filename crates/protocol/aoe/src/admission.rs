//! Which stations find a unit, by what the layer above knows of it.

use std::fmt;
use std::sync::OnceLock;

use sanwire_core::{Lun, MacAddress};

/// Whether a station may use a unit.
pub type Admits = dyn Fn(MacAddress, Lun) -> bool + Send + Sync;

/// Asked of each unit, if anybody knows.
#[derive(Default)]
pub(crate) struct Admission(OnceLock<Box<Admits>>);

impl Admission {
    /// Somebody knows from now on.
    pub(crate) fn ask(&self, admits: Box<Admits>) {
        // One is asked, and never another.
        let _ = self.0.set(admits);
    }

    pub(crate) fn admits(&self, station: MacAddress, lun: Lun) -> bool {
        self.0.get().is_none_or(|admits| admits(station, lun))
    }
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admission").field("is_asked", &self.0.get().is_some()).finish()
    }
}
