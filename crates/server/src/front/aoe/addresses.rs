//! Where volumes are for ATA over Ethernet: at the addresses that they say, or at ones that are chosen for them and kept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sanwire_aoe::{Address, Shelves};
use sanwire_core::{DeviceType, Lun, MacAddress, Principal, Protection};
use sanwire_device::LogicalUnits;
use sanwire_store::VolumeSpec;

use super::settings::SettingsKeeper;
use crate::config::{ServerConfig, VolumeConfig};
use crate::error::StartError;
use crate::kept::{Keeps, StateFile};
use crate::protection_table::ProtectionTable;

/// The only sectors that the protocol knows.
const SECTOR_BYTES: u32 = 512;

/// Slots of a shelf.
const SLOTS: u32 = Address::SLOT_MAX as u32 + 1;

/// Where volumes are. Without a wire of this kind none is anywhere, and nothing is kept.
pub(crate) struct Addresses {
    is_used: bool,
    shelves: Arc<Shelves>,
    levels: Arc<ProtectionTable>,
    file: Option<StateFile>,
    /// What was chosen, by the names of volumes.
    chosen: Mutex<BTreeMap<String, Address>>,
    /// What is set of targets; nothing where there are none.
    settings: Option<SettingsKeeper>,
}

impl Addresses {
    /// Those of the volumes of a server that starts.
    ///
    /// # Errors
    /// When two say the same address, or what is kept cannot be read.
    pub(crate) fn open(
        config: &ServerConfig,
        units: &Arc<LogicalUnits>,
        levels: &Arc<ProtectionTable>,
    ) -> Result<Addresses, StartError> {
        let is_used = config.wires.iter().any(|wire| wire.has_shelves());
        let file = config.state_file("aoe", "json").filter(|_| is_used);
        let file = file.map(|path| StateFile::new(path, Keeps::SHELVES));
        let kept: Option<BTreeMap<String, String>> = file.as_ref().map_or(Ok(None), StateFile::load)?;
        let names: BTreeSet<&str> = config.volumes.iter().map(|volume| &*volume.spec.name).collect();
        let known = kept.into_iter().flatten().filter(|(name, _)| names.contains(name.as_str()));
        let chosen = known.filter_map(|(name, address)| Some((name, address.parse().ok()?))).collect();
        let shelves = Arc::new(Shelves::default());
        let settings = is_used.then(|| SettingsKeeper::open(config, &names, &shelves)).transpose()?;
        let levels = Arc::clone(levels);
        let addresses = Addresses { is_used, shelves, levels, file, chosen: Mutex::new(chosen), settings };
        if is_used {
            check(&config.volumes)?;
            let all = Arc::clone(units);
            let admits = move |station: MacAddress, lun| {
                let asks = Principal { address: Some(station.into()), ..Principal::default() };
                all.get(lun).is_none_or(|unit| unit.admits(&asks))
            };
            addresses.shelves.admit_by(Box::new(admits));
            // Those that say where they are come first: nobody else is put there.
            let (said, others): (Vec<_>, Vec<_>) = config.volumes.iter().partition(|volume| volume.spec.aoe.is_some());
            addresses.serve(said.into_iter().chain(others), units);
        }
        Ok(addresses)
    }

    /// What the ends of the protocol look at.
    pub(crate) fn shelves(&self) -> Arc<Shelves> {
        Arc::clone(&self.shelves)
    }

    /// Volumes are there: each gets its address, unless it is none for this wire, which is said. What is chosen for them is kept at once.
    pub(crate) fn serve<'a>(&self, volumes: impl IntoIterator<Item = &'a VolumeConfig>, units: &LogicalUnits) {
        if !self.is_used {
            return;
        }
        let mut choice = Choice { chosen: self.lock(), kept: None };
        volumes.into_iter().for_each(|volume| self.serve_one(volume, units, &mut choice));
        if choice.kept.is_some() {
            self.keep(&choice.chosen);
        }
    }

    fn serve_one(&self, volume: &VolumeConfig, units: &LogicalUnits, choice: &mut Choice<'_>) {
        let Some(unit) = units.get(volume.lun) else { return };
        let (name, spec) = (&volume.spec.name, &volume.spec);
        let block_bytes = unit.store().geometry().block_bytes;
        let reason = if spec.device_type == DeviceType::Optical {
            "it is an optical drive, and AoE has only disks".to_owned()
        } else if block_bytes != SECTOR_BYTES {
            format!("its blocks have {block_bytes} bytes, and the sectors of AoE {SECTOR_BYTES}")
        } else if self.levels.wanted(spec) > Protection::Checksum {
            let security = self.levels.wanted(spec);
            format!("its security is {security}, and AoE guards nothing; with security=none it would be")
        } else {
            match self.address(volume, choice) {
                Some(address) => {
                    let set = self.settings.as_ref().map(|settings| settings.serve(name, address)).unwrap_or_default();
                    self.shelves.restore(address, volume.lun, set);
                    tracing::info!("volume {name} is the AoE target {address}");
                    return;
                }
                None => "another volume has its address, or there is none left".to_owned(),
            }
        };
        tracing::warn!("volume {name} is not served over AoE: {reason}");
    }

    /// How a volume is guarded has changed.
    pub(crate) fn secured(&self, lun: Lun, spec: &VolumeSpec, units: &LogicalUnits) {
        let is_open = self.levels.wanted(spec) <= Protection::Checksum;
        if is_open == self.shelves.address_of(lun).is_some() {
            return;
        }
        self.shelves.remove(lun);
        let volume = VolumeConfig { lun, spec: spec.clone(), origin: Default::default() };
        self.serve([&volume], units);
    }

    /// A volume is gone.
    pub(crate) fn remove(&self, lun: Lun) {
        if let (Some(settings), Some(address)) = (&self.settings, self.shelves.address_of(lun)) {
            settings.remove(address);
        }
        self.shelves.remove(lun);
    }

    /// A volume has another number.
    pub(crate) fn renumber(&self, from: Lun, to: Lun) {
        self.shelves.renumber(from, to);
    }

    /// The address that the volume says, or the one that was chosen for it before, or a new one: by its number, if that is free. `None`
    /// where another volume has it.
    fn address(&self, volume: &VolumeConfig, choice: &mut Choice<'_>) -> Option<Address> {
        let name = volume.spec.name.to_string();
        if let Some(said) = volume.spec.aoe {
            let address = Address::new(said.shelf, said.slot).ok()?;
            return (!self.shelves.has(address)).then_some(address);
        }
        let is_free = |address: &Address| !self.shelves.has(*address);
        let Choice { chosen, kept } = choice;
        if let Some(before) = chosen.get(&name).filter(|before| is_free(before)) {
            return Some(*before);
        }
        let kept = kept.get_or_insert_with(|| chosen.values().copied().collect());
        let first = u32::from(volume.lun.number());
        let mut candidates = (first..first + (1 << 20)).filter_map(at);
        let address = candidates.find(|address| is_free(address) && !kept.contains(address))?;
        kept.insert(address);
        chosen.insert(name, address);
        Some(address)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Address>> {
        self.chosen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, chosen: &BTreeMap<String, Address>) {
        // All that was chosen is written.
        #[cfg(test)]
        crate::visits::count(1024);
        let Some(file) = &self.file else { return };
        let written: BTreeMap<&str, String> = chosen.iter().map(|(name, at)| (name.as_str(), at.to_string())).collect();
        if let Err(error) = file.save(&written) {
            let path = file.path().display();
            tracing::warn!("{path} cannot be written: {error}; AoE addresses may be others after a restart");
        }
    }
}

/// How addresses are chosen for volumes that come together.
struct Choice<'a> {
    chosen: MutexGuard<'a, BTreeMap<String, Address>>,
    /// Those that are nobody else's, also of volumes that are not there; as soon as another one is to be chosen.
    kept: Option<BTreeSet<Address>>,
}

/// The address that is meant for a number: shelves are filled one after the other, from 1 on, as 0.0 is what others use when nothing is
/// said.
fn at(number: u32) -> Option<Address> {
    let shelf = u16::try_from(1 + number / SLOTS).ok()?;
    Address::new(shelf, (number % SLOTS) as u8).ok()
}

/// Refuses two volumes at one address.
fn check(volumes: &[VolumeConfig]) -> Result<(), StartError> {
    let mut said = BTreeMap::new();
    for volume in volumes {
        let Some(at) = volume.spec.aoe else { continue };
        if let Some(other) = said.insert((at.shelf, at.slot), &volume.spec.name) {
            let reason =
                format!("it has shelf {} and slot {}, as volume {other}: give it another slot", at.shelf, at.slot);
            return Err(StartError::Volume { volume: volume.spec.name.to_string(), reason });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use sanwire_device::{LogicalUnit, UnitOptions};
    use sanwire_scsi::Identity;
    use sanwire_store::RamStore;

    use super::*;

    #[test]
    fn what_is_chosen_for_volumes_that_come_together_is_kept_at_once() {
        let levels = Arc::new(ProtectionTable::new(Protection::Checksum));
        let chosen = Mutex::new(BTreeMap::from([("away".to_owned(), Address::new(1, 3).unwrap())]));
        let shelves = Arc::new(Shelves::default());
        let addresses = Addresses { is_used: true, shelves, levels, file: None, chosen, settings: None };
        let units = LogicalUnits::new();
        let volume = |number: u16| {
            let lun = Lun::new(number).unwrap();
            let spec: VolumeSpec = format!("v{number}=ram:1M").parse().unwrap();
            let identity = Identity::new(&spec.name, [number as u8; 16]).unwrap();
            let store = Arc::new(RamStore::new(1 << 20, SECTOR_BYTES));
            units.add(lun, LogicalUnit::new(identity, store, UnitOptions::default()).unwrap()).unwrap();
            VolumeConfig { lun, spec, origin: Default::default() }
        };
        let volumes: Vec<VolumeConfig> = (0..100).map(volume).collect();
        // Writing what was chosen counts as much as looking at a thousand volumes.
        let visits = crate::visits::during(|| addresses.serve(&volumes, &units));
        assert!((1024..2048).contains(&visits), "{visits}");
        let given: BTreeSet<Address> = addresses.lock().values().copied().collect();
        assert_eq!(given.len(), 101, "each has its own, and none that of the one that is away");
        assert_eq!(crate::visits::during(|| addresses.serve(&volumes[..0], &units)), 0);
    }

    #[test]
    fn numbers_have_addresses_from_the_first_shelf_on() {
        let shown = |number| at(number).map(|address| address.to_string());
        assert_eq!(shown(0).as_deref(), Some("1.0"));
        assert_eq!(shown(254).as_deref(), Some("1.254"));
        assert_eq!(shown(255).as_deref(), Some("2.0"));
        assert_eq!(shown(u32::from(Lun::MAX)).as_deref(), Some("65.63"));
        assert_eq!(shown(255 * 4094), None);
    }
}
