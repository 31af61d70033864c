//! The views in which a unit is, and what it asks of them.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use sanwire_core::{Lun, NexusId};

use crate::abort_scope::UnitId;
use crate::nexus::NexusPorts;

/// Where units have numbers by which nexuses see them; its parts see some of them by the same numbers.
pub(crate) trait UnitView: Debug + Send + Sync {
    /// Makes those nexuses known to the unit with this number that see it here, or in a part, as if each used it now.
    fn acquaint_with(&self, lun: Lun, unit: UnitId, wanted: &Wanted<'_>);

    /// The unit with this number is to meet nexuses when they come.
    fn watch(&self, lun: Lun, unit: UnitId);
}

/// The nexuses that a unit wants to know.
pub(crate) enum Wanted<'a> {
    All,
    Nexus(NexusId),
    /// Those that keep all media in.
    MediaLocked,
    /// Those with such ports.
    Ports(&'a dyn Fn(&NexusPorts) -> bool),
}

/// The views in which a unit is, but for parts of others, with its numbers there.
#[derive(Default, Debug)]
pub(crate) struct Viewers(Mutex<Vec<(Weak<dyn UnitView>, Lun)>>);

impl Viewers {
    pub(crate) fn enter(&self, view: Weak<dyn UnitView>, lun: Lun) {
        push(&self.0, (view, lun), |(view, _)| view.strong_count() > 0);
    }

    /// Has the number no longer in the view at this address.
    pub(crate) fn leave(&self, view: *const (), lun: Lun) {
        self.lock().retain(|(other, number)| *number != lun || !std::ptr::addr_eq(other.as_ptr(), view));
    }

    pub(crate) fn all(&self) -> Vec<(Arc<dyn UnitView>, Lun)> {
        self.lock().iter().filter_map(|(view, lun)| Some((view.upgrade()?, *lun))).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Weak<dyn UnitView>, Lun)>> {
        // Each change is one step: a poisoned list is still whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Puts something into a list; before that grows, those go that are not wanted any more.
pub(crate) fn push<T>(list: &Mutex<Vec<T>>, new: T, is_wanted: impl FnMut(&T) -> bool) {
    let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
    if list.len() == list.capacity() {
        list.retain(is_wanted);
    }
    list.push(new);
}
