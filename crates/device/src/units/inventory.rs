//! Logical units by their numbers, as they are at one moment.

use std::sync::Arc;

use sanwire_core::Lun;
use sanwire_core::limits::LUNS_MAX;

use crate::abort_scope::UnitId;
use crate::generation::Generation;
use crate::logical_unit::LogicalUnit;

/// Why a unit was not taken in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AddError {
    /// Another unit has this number.
    #[error("logical unit {0} is already there: remove it first or choose another number")]
    Occupied(Lun),
    /// [`LUNS_MAX`] units are there.
    #[error("a target has at most {LUNS_MAX} logical units: serve more by another target")]
    Full,
}

/// Numbers of one page: a change copies the page in which it is, and shares the others with the inventory before.
const PAGE_LUNS: usize = 256;

/// A unit that has a number.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) unit: Arc<LogicalUnit>,
    /// When it got the number.
    pub(crate) added: Generation,
}

impl Entry {
    pub(crate) fn is(&self, unit: UnitId) -> bool {
        self.unit.id() == unit
    }
}

/// As long as its highest number needs.
#[derive(Clone, Default, Debug)]
struct Page(Vec<Option<Entry>>);

/// Which units there are. It never changes: it is replaced.
#[derive(Clone, Default, Debug)]
pub(crate) struct Inventory {
    changed: Generation,
    pages: Vec<Option<Arc<Page>>>,
    count: usize,
}

/// A number that has another unit in another inventory, or in one of both none.
#[derive(Debug)]
pub(crate) struct Difference<'a> {
    pub(crate) lun: Lun,
    pub(crate) before: Option<&'a Entry>,
    pub(crate) after: Option<&'a Entry>,
}

impl Inventory {
    /// When it became so.
    pub(crate) fn changed(&self) -> Generation {
        self.changed
    }

    pub(crate) fn get(&self, lun: Lun) -> Option<&Entry> {
        let (page, at) = place(lun);
        self.pages.get(page)?.as_ref()?.0.get(at)?.as_ref()
    }

    /// Ascending by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Lun, &Entry)> {
        let pages = self.pages.iter().enumerate().filter_map(|(at, page)| Some((at, page.as_ref()?)));
        let entries = pages.flat_map(|(at, page)| page.0.iter().enumerate().map(move |(low, entry)| (at, low, entry)));
        entries.filter_map(|(at, low, entry)| Some((lun_at(at, low)?, entry.as_ref()?)))
    }

    /// The inventory without some units, and with others, as it is from now on.
    ///
    /// # Errors
    /// [`AddError`] when a number is taken, or there are too many.
    pub(crate) fn changed_by(
        &self,
        removed: &[Lun],
        added: Vec<(Lun, Arc<LogicalUnit>)>,
    ) -> Result<Inventory, AddError> {
        let mut next = Inventory { changed: Generation::next(), ..self.clone() };
        removed.iter().filter(|lun| self.get(**lun).is_some()).for_each(|lun| next.set(*lun, None));
        for (lun, unit) in added {
            if next.get(lun).is_some() {
                return Err(AddError::Occupied(lun));
            }
            if next.count >= LUNS_MAX {
                return Err(AddError::Full);
            }
            next.set(lun, Some(Entry { unit, added: next.changed }));
        }
        Ok(next)
    }

    fn set(&mut self, lun: Lun, entry: Option<Entry>) {
        let (page, at) = place(lun);
        if self.pages.len() <= page {
            self.pages.resize(page + 1, None);
        }
        let page = &mut Arc::make_mut(self.pages[page].get_or_insert_default()).0;
        if page.len() <= at {
            page.resize(at + 1, None);
        }
        self.count += usize::from(entry.is_some());
        self.count -= usize::from(std::mem::replace(&mut page[at], entry).is_some());
    }

    /// What differs in another one, which nearly always shares most pages with this one.
    pub(crate) fn differences<'a>(&'a self, after: &'a Inventory) -> Vec<Difference<'a>> {
        let mut found = Vec::new();
        for at in 0..self.pages.len().max(after.pages.len()) {
            let [before, after] = [self, after].map(|inventory| inventory.pages.get(at).and_then(Option::as_ref));
            if before.map(Arc::as_ptr) == after.map(Arc::as_ptr) {
                continue;
            }
            let [before, after] = [before, after].map(|page| page.map_or(&[][..], |page| &page.0));
            for low in 0..before.len().max(after.len()) {
                let [before, after] = [before, after].map(|page| page.get(low).and_then(Option::as_ref));
                let is_same =
                    before.map(|entry| Arc::as_ptr(&entry.unit)) == after.map(|entry| Arc::as_ptr(&entry.unit));
                if let (false, Some(lun)) = (is_same, lun_at(at, low)) {
                    found.push(Difference { lun, before, after });
                }
            }
        }
        found
    }
}

fn place(lun: Lun) -> (usize, usize) {
    let number = usize::from(lun.number());
    (number / PAGE_LUNS, number % PAGE_LUNS)
}

fn lun_at(page: usize, at: usize) -> Option<Lun> {
    Lun::new((page * PAGE_LUNS + at) as u16)
}
