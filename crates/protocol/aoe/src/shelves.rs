//! The targets of a server by their addresses, with what initiators have set of them: shared by all shards.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use sanwire_core::{Lun, MacAddress};

use crate::admission::{Admission, Admits};
use crate::record::Record;
use crate::wire::{
    Address, Config, ConfigOrder, Directive, MaskError, MaskOrder, MaskRequest, Reserve, ReserveOrder, WireError,
};

/// Stations in the mask of a target at the most: what one answer has room for.
const MASKS_MAX: usize = 185;

/// Stations that a target can be reserved for: as many.
const RESERVED_MAX: usize = 185;

/// What is at an address.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Slot {
    lun: Lun,
    /// How many were put at addresses before it.
    put: u64,
    set: TargetSettings,
}

/// What initiators have set of a target.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct TargetSettings {
    /// Its config string, up to 1,024 bytes.
    pub config: Vec<u8>,
    /// Who may use it; nobody: everybody.
    pub masks: Vec<MacAddress>,
    /// Who has it for himself; nobody: it is free.
    pub reserved: Vec<MacAddress>,
}

/// The targets that there are.
#[derive(Debug, Default)]
pub struct Shelves {
    slots: RwLock<BTreeMap<Address, Slot>>,
    record: Record,
    admission: Admission,
    /// How many units were put at addresses.
    puts: AtomicU64,
}

/// Whether a station may give commands to a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// It may, to this unit.
    Open {
        /// Its logical unit number.
        lun: Lun,
        /// How many units were put at addresses before it: by this another one is known that comes to the same place and number.
        put: u64,
    },
    /// Another station has reserved it.
    Reserved,
    /// There is no such target for it.
    Absent,
}

impl Shelves {
    /// Serves a unit at an address from now on; what was set of a target that was there before is forgotten.
    pub fn put(&self, address: Address, lun: Lun) {
        self.restore(address, lun, TargetSettings::default());
    }

    /// Serves a unit at an address from now on, with what was set of it before.
    pub fn restore(&self, address: Address, lun: Lun, set: TargetSettings) {
        let put = self.puts.fetch_add(1, Ordering::Relaxed);
        self.write().insert(address, Slot { lun, put, set });
    }

    /// For a station that may not use a unit, its target is not there from now on. It is asked at each command, also for the station that
    /// stands for all ([`MacAddress::BROADCAST`]): who does not admit that has its target announced to nobody.
    pub fn admit_by(&self, admits: Box<Admits>) {
        self.admission.ask(admits);
    }

    /// What is set of targets is kept by somebody from now on: `ring` is called after every change, and whoever hears it takes
    /// [`Shelves::settings`] and tells [`Shelves::kept`]. Until then nobody is told that what he has set is set.
    pub fn keep_with(&self, ring: Box<dyn Fn() + Send + Sync>) {
        self.record.keep_with(ring);
    }

    /// What is set of all targets, and the number of the last change.
    #[must_use]
    pub fn settings(&self) -> (u64, Vec<(Address, TargetSettings)>) {
        let shelves = self.read();
        let settings = shelves.iter().map(|(address, slot)| (*address, slot.set.clone()));
        (self.record.last(), settings.collect())
    }

    /// All changes up to this one are kept.
    pub fn kept(&self, change: u64) {
        self.record.kept(change);
    }

    /// The last change, if it is not kept.
    pub(crate) fn unkept(&self) -> Option<u64> {
        Some(self.record.last()).filter(|change| !self.is_kept(*change))
    }

    /// Whether a change is kept, or nobody keeps any.
    pub(crate) fn is_kept(&self, change: u64) -> bool {
        self.record.is_kept(change)
    }

    /// Serves the unit of a number no longer.
    pub fn remove(&self, lun: Lun) {
        self.write().retain(|_, slot| slot.lun != lun);
    }

    /// A unit has another number from now on.
    pub fn renumber(&self, from: Lun, to: Lun) {
        self.write().values_mut().filter(|slot| slot.lun == from).for_each(|slot| slot.lun = to);
    }

    /// The address of a unit.
    #[must_use]
    pub fn address_of(&self, lun: Lun) -> Option<Address> {
        self.read().iter().find(|(_, slot)| slot.lun == lun).map(|(address, _)| *address)
    }

    /// All of them.
    #[must_use]
    pub fn list(&self) -> Vec<(Address, Lun)> {
        self.read().iter().map(|(address, slot)| (*address, slot.lun)).collect()
    }

    /// Whether there is a target at the address, whoever may use it.
    #[must_use]
    pub fn has(&self, address: Address) -> bool {
        self.read().contains_key(&address)
    }

    /// Whether a station may give commands to a target.
    #[must_use]
    pub fn entry(&self, address: Address, station: MacAddress) -> Entry {
        match self.read().get(&address) {
            Some(slot) if !self.is_open(slot, station) => Entry::Absent,
            Some(slot) if !slot.set.reserved.is_empty() && !slot.set.reserved.contains(&station) => Entry::Reserved,
            Some(slot) => Entry::Open { lun: slot.lun, put: slot.put },
            None => Entry::Absent,
        }
    }

    /// Those that a station may use and that a request for this address is for.
    #[must_use]
    pub fn covered(&self, by: Address, station: MacAddress) -> Vec<Address> {
        let shelves = self.read();
        if by.is_one() {
            return shelves.get(&by).filter(|slot| self.is_open(slot, station)).map(|_| by).into_iter().collect();
        }
        let covered = shelves.iter().filter(|(own, slot)| by.covers(**own) && self.is_open(slot, station));
        covered.map(|(own, _)| *own).collect()
    }

    /// Those that everybody is told of.
    pub(crate) fn announced(&self) -> Vec<Address> {
        let shelves = self.read();
        let announced = shelves.iter().filter(|(_, slot)| self.admission.admits(MacAddress::BROADCAST, slot.lun));
        announced.map(|(own, _)| *own).collect()
    }

    fn is_open(&self, slot: &Slot, station: MacAddress) -> bool {
        (slot.set.masks.is_empty() || slot.set.masks.contains(&station)) && self.admission.admits(station, slot.lun)
    }

    /// The config string of a target after a query, or a refusal; `None`: it does not answer.
    pub(crate) fn configure(&self, address: Address, query: &Config<'_>) -> Option<Result<Vec<u8>, WireError>> {
        let Some(order) = query.order() else { return Some(Err(WireError::BadArgument)) };
        if !matches!(order, ConfigOrder::Set | ConfigOrder::ForceSet) {
            // All shards ask, and none waits for another.
            let config = self.read().get(&address)?.set.config.clone();
            let is_asked_for = match order {
                ConfigOrder::Test => config == query.string,
                ConfigOrder::TestPrefix => config.starts_with(query.string),
                _ => true,
            };
            return is_asked_for.then_some(Ok(config));
        }
        let mut shelves = self.write();
        let config = &mut shelves.get_mut(&address)?.set.config;
        if order == ConfigOrder::Set && !config.is_empty() {
            return Some(Err(WireError::ConfigPresent));
        }
        self.change(config, query.string.to_vec());
        Some(Ok(config.clone()))
    }

    /// The list of stations that may use a target after a request, and why it was not changed. All of the changes are made, or none.
    pub(crate) fn mask(&self, address: Address, request: &MaskRequest) -> Option<(Vec<MacAddress>, Option<MaskError>)> {
        let mut shelves = self.write();
        let masks = &mut shelves.get_mut(&address)?.set.masks;
        if request.order == MaskOrder::Read {
            return Some((masks.clone(), None));
        }
        let mut changed = masks.clone();
        for directive in &request.directives {
            match directive {
                Directive::Add(mac) if !changed.contains(mac) => changed.push(*mac),
                Directive::Delete(mac) => changed.retain(|known| known != mac),
                Directive::Add(_) | Directive::Nothing => {}
            }
        }
        if changed.len() > MASKS_MAX {
            return Some((masks.clone(), Some(MaskError::Full)));
        }
        self.change(masks, changed);
        Some((masks.clone(), None))
    }

    /// Who has a target after a request of a station; a refusal where somebody else has it.
    pub(crate) fn reserve(
        &self,
        address: Address,
        station: MacAddress,
        request: &Reserve,
    ) -> Option<Result<Vec<MacAddress>, WireError>> {
        let mut shelves = self.write();
        let reserved = &mut shelves.get_mut(&address)?.set.reserved;
        let is_foreign = !reserved.is_empty() && !reserved.contains(&station);
        match request.order {
            ReserveOrder::Read => {}
            _ if request.stations.len() > RESERVED_MAX => return Some(Err(WireError::BadArgument)),
            ReserveOrder::Set if is_foreign => return Some(Err(WireError::Reserved)),
            ReserveOrder::Set | ReserveOrder::ForceSet => self.change(reserved, request.stations.clone()),
        }
        Some(Ok(reserved.clone()))
    }

    /// Changes what is set, under the lock by which it is read.
    fn change<T: PartialEq>(&self, set: &mut T, to: T) {
        if *set != to {
            *set = to;
            self.record.changed();
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<Address, Slot>> {
        // Each change is whole: nobody leaves it half made.
        self.slots.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<Address, Slot>> {
        self.slots.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
    const OTHER: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);
    const ADDRESS: Address = Address { shelf: 7, slot: 3 };

    fn shelves() -> Shelves {
        let shelves = Shelves::default();
        shelves.put(ADDRESS, Lun::new(5).unwrap());
        shelves
    }

    #[test]
    fn a_target_is_found_by_its_address_and_by_that_of_all() {
        let (shelves, lun) = (shelves(), Lun::new(5).unwrap());
        assert_eq!(shelves.entry(ADDRESS, HOST), Entry::Open { lun, put: 0 });
        assert_eq!(shelves.entry(Address { shelf: 7, slot: 4 }, HOST), Entry::Absent);
        shelves.put(Address { shelf: 9, slot: 0 }, Lun::new(6).unwrap());
        assert_eq!(shelves.covered(Address::EVERY, HOST).len(), 2);
        assert_eq!(shelves.covered(Address { shelf: 7, slot: 0xff }, HOST), [ADDRESS]);
        shelves.renumber(lun, Lun::new(8).unwrap());
        assert_eq!(shelves.address_of(Lun::new(8).unwrap()), Some(ADDRESS));
        shelves.remove(Lun::new(8).unwrap());
        assert!(!shelves.has(ADDRESS));
    }

    #[test]
    fn who_is_not_in_the_mask_finds_nothing() {
        let shelves = shelves();
        let edit = |directives| MaskRequest { order: MaskOrder::Edit, directives };
        assert_eq!(shelves.mask(ADDRESS, &edit(vec![Directive::Add(HOST)])), Some((vec![HOST], None)));
        assert!(shelves.covered(Address::EVERY, OTHER).is_empty());
        assert_eq!(shelves.entry(ADDRESS, OTHER), Entry::Absent);
        let many = (0..=255).map(|last| Directive::Add(MacAddress([4, 0, 0, 0, 0, last]))).collect();
        assert_eq!(shelves.mask(ADDRESS, &edit(many)), Some((vec![HOST], Some(MaskError::Full))), "none is added");
        assert_eq!(shelves.mask(ADDRESS, &edit(vec![Directive::Delete(HOST)])), Some((vec![], None)));
        assert!(matches!(shelves.entry(ADDRESS, OTHER), Entry::Open { .. }));
    }

    #[test]
    fn a_unit_that_does_not_admit_a_station_is_not_there_for_it() {
        let (shelves, open) = (shelves(), Address { shelf: 9, slot: 0 });
        shelves.put(open, Lun::new(6).unwrap());
        assert_eq!(shelves.announced(), [ADDRESS, open]);
        shelves.admit_by(Box::new(|station, lun| lun != Lun::new(5).unwrap() || station == HOST));
        assert_eq!(shelves.entry(ADDRESS, HOST), Entry::Open { lun: Lun::new(5).unwrap(), put: 0 });
        assert_eq!((shelves.entry(ADDRESS, OTHER), shelves.covered(ADDRESS, OTHER)), (Entry::Absent, vec![]));
        assert_eq!(shelves.covered(Address::EVERY, OTHER), [open]);
        assert_eq!(shelves.announced(), [open], "not all may know of it");
        let set = Reserve { order: ReserveOrder::Set, stations: vec![HOST] };
        assert_eq!(shelves.reserve(ADDRESS, HOST, &set), Some(Ok(vec![HOST])));
        assert_eq!(shelves.entry(ADDRESS, OTHER), Entry::Absent, "it is not told that it is reserved");
    }

    #[test]
    fn a_reservation_keeps_others_out_until_it_is_released_or_forced() {
        let shelves = shelves();
        let set = |order, stations: &[MacAddress]| Reserve { order, stations: stations.to_vec() };
        let own = set(ReserveOrder::Set, &[HOST]);
        assert_eq!(shelves.reserve(ADDRESS, HOST, &own), Some(Ok(vec![HOST])));
        assert_eq!(
            (shelves.entry(ADDRESS, OTHER), shelves.entry(ADDRESS, HOST) == Entry::Reserved),
            (Entry::Reserved, false)
        );
        let other = set(ReserveOrder::Set, &[OTHER]);
        assert_eq!(shelves.reserve(ADDRESS, OTHER, &other), Some(Err(WireError::Reserved)));
        assert_eq!(shelves.reserve(ADDRESS, OTHER, &set(ReserveOrder::Read, &[])), Some(Ok(vec![HOST])));
        let forced = set(ReserveOrder::ForceSet, &[OTHER]);
        assert_eq!(shelves.reserve(ADDRESS, OTHER, &forced), Some(Ok(vec![OTHER])));
        assert_eq!(shelves.reserve(ADDRESS, OTHER, &set(ReserveOrder::Set, &[])), Some(Ok(vec![])));
        assert!(matches!(shelves.entry(ADDRESS, HOST), Entry::Open { .. }));
    }

    #[test]
    fn what_is_set_is_told_to_who_keeps_it_and_comes_back() {
        use std::sync::Arc;
        use std::sync::atomic::{AtomicU32, Ordering};

        let (shelves, rung) = (shelves(), Arc::new(AtomicU32::new(0)));
        let ask = |order, string: &[u8]| shelves.configure(ADDRESS, &Config::query(order, string));
        ask(ConfigOrder::ForceSet, b"before");
        assert_eq!(shelves.unkept(), None, "nobody keeps anything");
        let bell = Arc::clone(&rung);
        shelves.keep_with(Box::new(move || _ = bell.fetch_add(1, Ordering::Relaxed)));
        for string in [&b"ours"[..], b"ours"] {
            ask(ConfigOrder::ForceSet, string);
        }
        ask(ConfigOrder::Read, &[]);
        assert_eq!(rung.load(Ordering::Relaxed), 1, "the others change nothing");
        let change = shelves.unkept().expect("a change");
        shelves.reserve(ADDRESS, HOST, &Reserve { order: ReserveOrder::Set, stations: vec![HOST] });
        shelves.kept(change);
        assert!(shelves.is_kept(change) && shelves.unkept().is_some(), "another one came meanwhile");
        let (last, settings) = shelves.settings();
        shelves.kept(last);
        assert_eq!(shelves.unkept(), None);
        let [(ADDRESS, set)] = &settings[..] else { panic!("{settings:?}") };
        let after = Shelves::default();
        after.restore(ADDRESS, Lun::new(5).unwrap(), set.clone());
        assert_eq!(after.entry(ADDRESS, OTHER), Entry::Reserved);
        assert_eq!(after.settings().1, settings);
    }

    #[test]
    fn a_config_string_is_set_once_unless_it_is_forced() {
        let shelves = shelves();
        let ask = |order, string: &[u8]| shelves.configure(ADDRESS, &Config::query(order, string));
        assert_eq!(ask(ConfigOrder::Set, b"ours"), Some(Ok(b"ours".to_vec())));
        assert_eq!(ask(ConfigOrder::Set, b"theirs"), Some(Err(WireError::ConfigPresent)));
        assert_eq!((ask(ConfigOrder::Test, b"our"), ask(ConfigOrder::TestPrefix, b"ot")), (None, None));
        assert_eq!(ask(ConfigOrder::TestPrefix, b"our"), Some(Ok(b"ours".to_vec())));
        assert_eq!(ask(ConfigOrder::ForceSet, b""), Some(Ok(vec![])));
        assert_eq!(ask(ConfigOrder::Read, b"whatever"), Some(Ok(vec![])));
    }
}
