//! Where volumes are for HDSP: at the disk addresses that they say, or at ones that are chosen for them and kept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use sanwire_core::{DeviceType, Lun};
use sanwire_device::LogicalUnits;

use crate::config::{ServerConfig, VolumeConfig};
use crate::error::StartError;
use crate::kept::{Keeps, StateFile};

/// The address that is no disk's: the server as a whole, as one SCSI target.
pub(crate) const SERVER_ADDRESS: u8 = 0xff;

/// The only sectors that ATA commands know here.
const SECTOR_BYTES: u32 = 512;

/// A volume at its address.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) lun: Lun,
    pub(crate) name: Arc<str>,
    /// Which volume it is, whatever it is called and wherever it is.
    pub(crate) uuid: [u8; 16],
    /// Whether it takes ATA commands, too.
    pub(crate) takes_ata: bool,
}

/// Where volumes are. Without a wire of this kind none is anywhere, and nothing is kept.
pub(crate) struct Disks {
    is_used: bool,
    /// Read for every command.
    places: ArcSwap<BTreeMap<u8, Place>>,
    file: Option<StateFile>,
    /// What was chosen, by the names of volumes. Held while places change.
    chosen: Mutex<BTreeMap<String, u8>>,
}

impl Disks {
    /// Those of the volumes of a server that starts.
    ///
    /// # Errors
    /// When two say the same address, or what is kept cannot be read.
    pub(crate) fn open(config: &ServerConfig, units: &LogicalUnits) -> Result<Disks, StartError> {
        let is_used = config.wires.iter().any(|wire| wire.has_disk_addresses());
        let file = config.state_file("hdsp", "json").filter(|_| is_used);
        let file = file.map(|path| StateFile::new(path, Keeps::DISK_ADDRESSES));
        let kept: Option<BTreeMap<String, u8>> = file.as_ref().map_or(Ok(None), StateFile::load)?;
        let names: BTreeSet<&str> = config.volumes.iter().map(|volume| &*volume.spec.name).collect();
        let is_meant = |(name, address): &(String, u8)| names.contains(name.as_str()) && *address != SERVER_ADDRESS;
        let chosen = kept.into_iter().flatten().filter(is_meant).collect();
        let disks = Disks { is_used, places: ArcSwap::default(), file, chosen: Mutex::new(chosen) };
        if is_used {
            check(&config.volumes)?;
            // Those that say where they are come first: nobody else is put there.
            let (said, others): (Vec<_>, Vec<_>) =
                config.volumes.iter().partition(|volume| volume.spec.disk_address.is_some());
            disks.serve(said.into_iter().chain(others), units);
        }
        Ok(disks)
    }

    /// These, and nothing is kept.
    #[cfg(test)]
    pub(crate) fn holding(places: BTreeMap<u8, Place>) -> Disks {
        Disks { is_used: true, places: ArcSwap::from_pointee(places), file: None, chosen: Mutex::default() }
    }

    /// The volume at an address.
    pub(crate) fn at(&self, address: u8) -> Option<Place> {
        self.places.load().get(&address).cloned()
    }

    /// The volume of this name, with its address.
    pub(crate) fn named(&self, name: &str) -> Option<(u8, Place)> {
        let places = self.places.load();
        places.iter().find(|(_, place)| *place.name == *name).map(|(address, place)| (*address, place.clone()))
    }

    /// Volumes are there: each gets its address. What is chosen for them is kept at once.
    pub(crate) fn serve<'a>(&self, volumes: impl IntoIterator<Item = &'a VolumeConfig>, units: &LogicalUnits) {
        if !self.is_used {
            return;
        }
        let mut chosen = self.lock();
        let mut is_new = false;
        for volume in volumes {
            is_new |= self.serve_one(volume, units, &mut chosen);
        }
        if is_new {
            self.keep(&chosen);
        }
    }

    /// Whether an address was chosen for it that it did not have before.
    fn serve_one(&self, volume: &VolumeConfig, units: &LogicalUnits, chosen: &mut BTreeMap<String, u8>) -> bool {
        let Some(unit) = units.get(volume.lun) else { return false };
        let name = &volume.spec.name;
        let (address, is_new) = match self.address(volume, chosen) {
            Ok(address) => address,
            Err(why) => {
                tracing::warn!("volume {name} is not served over HDSP: {why}");
                return false;
            }
        };
        let is_disk = volume.spec.device_type != DeviceType::Optical;
        let place = Place {
            lun: volume.lun,
            name: Arc::from(&**name),
            uuid: unit.identity().uuid(),
            takes_ata: is_disk && unit.store().geometry().block_bytes == SECTOR_BYTES,
        };
        self.change(chosen, |places| drop(places.insert(address, place)));
        tracing::info!("volume {name} is the HDSP disk {address}");
        is_new
    }

    /// A volume is gone.
    pub(crate) fn remove(&self, lun: Lun) {
        self.change(&self.lock(), |places| places.retain(|_, place| place.lun != lun));
    }

    /// A volume has another number.
    pub(crate) fn renumber(&self, from: Lun, to: Lun) {
        let renumber = |place: &mut Place| place.lun = if place.lun == from { to } else { place.lun };
        self.change(&self.lock(), |places| places.values_mut().for_each(renumber));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, u8>> {
        self.chosen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the places; who holds what was chosen is alone with them.
    fn change(&self, _alone: &BTreeMap<String, u8>, change: impl FnOnce(&mut BTreeMap<u8, Place>)) {
        let mut places = BTreeMap::clone(&self.places.load());
        change(&mut places);
        self.places.store(Arc::new(places));
    }

    /// The address that the volume says, or the one that was chosen for it before, or a new one: its number, if that is free; at last one
    /// that is kept for a volume that is not there. Whether it was chosen just now.
    fn address(&self, volume: &VolumeConfig, chosen: &mut BTreeMap<String, u8>) -> Result<(u8, bool), Unplaced> {
        let places = self.places.load();
        let is_free = |address: &u8| !places.contains_key(address);
        if let Some(said) = volume.spec.disk_address {
            let taken = |other: &Place| {
                let is_chosen = chosen.get(&*other.name) == Some(&said);
                let how = if is_chosen { "was given that, because it says none" } else { "says so too" };
                Unplaced::Taken { address: said, other: Arc::clone(&other.name), how }
            };
            return places.get(&said).map_or(Ok((said, false)), |other| Err(taken(other)));
        }
        let name = volume.spec.name.to_string();
        let before = chosen.get(&name).copied();
        if let Some(kept) = before.filter(is_free) {
            return Ok((kept, false));
        }
        let is_kept: BTreeSet<u8> = chosen.values().copied().collect();
        let own = u8::try_from(volume.lun.number()).ok().filter(|own| *own != SERVER_ADDRESS);
        let candidates = || own.into_iter().chain(0..SERVER_ADDRESS).filter(is_free);
        let address = candidates().find(|address| !is_kept.contains(address)).or_else(|| candidates().next());
        let address = address.ok_or(Unplaced::Full)?;
        if let Some((before, other)) = before.and_then(|before| Some((before, places.get(&before)?))) {
            let other = &other.name;
            tracing::warn!(
                "volume {name} is another HDSP disk than before: volume {other} says that it is disk {before}"
            );
        }
        chosen.retain(|_, kept| *kept != address);
        chosen.insert(name, address);
        Ok((address, true))
    }

    fn keep(&self, chosen: &BTreeMap<String, u8>) {
        // All that was chosen is written.
        #[cfg(test)]
        crate::visits::count(1024);
        let Some(file) = &self.file else { return };
        if let Err(error) = file.save(chosen) {
            let path = file.path().display();
            tracing::warn!("{path} cannot be written: {error}; HDSP disk addresses may be others after a restart");
        }
    }
}

/// Why a volume has no address.
#[derive(PartialEq, Eq, Debug, thiserror::Error)]
enum Unplaced {
    /// Another one is there.
    #[error(
        "it says disk-address={address}, and volume {other} {how}: give one of the two another disk-address, and add it again"
    )]
    Taken {
        address: u8,
        other: Arc<str>,
        /// How the other one came by it.
        how: &'static str,
    },
    /// There is none left.
    #[error("there are 255 disk addresses, and other volumes have them all: remove one of these, and add it again")]
    Full,
}

/// Refuses two volumes at one address.
fn check(volumes: &[VolumeConfig]) -> Result<(), StartError> {
    let mut said = BTreeMap::new();
    for volume in volumes {
        let Some(address) = volume.spec.disk_address else { continue };
        if let Some(other) = said.insert(address, &volume.spec.name) {
            let reason = format!("it has the disk address {address}, as volume {other}: give it another one");
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

    fn volume(number: u16, text: &str) -> VolumeConfig {
        VolumeConfig { lun: Lun::new(number).unwrap(), spec: text.parse().unwrap(), origin: Default::default() }
    }

    fn add(units: &LogicalUnits, volume: &VolumeConfig, block_bytes: u32) {
        let identity = Identity::new(&volume.spec.name, [volume.lun.number() as u8; 16]).unwrap();
        let store = Arc::new(RamStore::new(1 << 20, block_bytes));
        units.add(volume.lun, LogicalUnit::new(identity, store, UnitOptions::default()).unwrap()).unwrap();
    }

    fn serve(disks: &Disks, units: &LogicalUnits, volume: &VolumeConfig, block_bytes: u32) -> Option<u8> {
        add(units, volume, block_bytes);
        disks.serve([volume], units);
        disks.named(&volume.spec.name).map(|(address, _)| address)
    }

    #[test]
    fn a_volume_has_the_address_that_it_says_or_had_or_its_number_or_a_free_one() {
        let chosen = Mutex::new(BTreeMap::from([("kept".to_owned(), 9), ("away".to_owned(), 0)]));
        let disks = Disks { is_used: true, places: ArcSwap::default(), file: None, chosen };
        let units = LogicalUnits::new();
        let address = |number, text, block_bytes| serve(&disks, &units, &volume(number, text), block_bytes);
        assert_eq!(address(4, "said=ram:1M,disk-address=7", 512), Some(7));
        assert_eq!(address(5, "kept=ram:1M", 512), Some(9));
        assert_eq!(address(3, "numbered=ram:1M", 512), Some(3));
        assert_eq!(address(7, "next=ram:1M", 512), Some(1), "7 is taken, and 0 was somebody's");
        assert_eq!(address(300, "far=ram:1M,block=4096", 4096), Some(2));
        assert_eq!(address(8, "late=ram:1M,disk-address=7", 512), None);
        assert!(disks.at(7).unwrap().takes_ata && !disks.at(2).unwrap().takes_ata);
        let late = "late=ram:1M,disk-address=7".parse().unwrap();
        let unplaced = |spec| {
            let volume = VolumeConfig { lun: Lun::new(9).unwrap(), spec, origin: Default::default() };
            disks.address(&volume, &mut disks.lock()).unwrap_err().to_string()
        };
        assert!(unplaced(late).contains("disk-address=7, and volume said says so too"));
        let late = "late=ram:1M,disk-address=3".parse().unwrap();
        assert!(unplaced(late).contains("volume numbered was given that, because it says none"));
        disks.renumber(Lun::new(4).unwrap(), Lun::new(40).unwrap());
        disks.remove(Lun::new(3).unwrap());
        assert_eq!((disks.at(7).unwrap().lun.number(), disks.at(3).is_none()), (40, true));
    }

    #[test]
    fn what_is_chosen_for_volumes_that_come_together_is_kept_at_once() {
        let disks = Disks { is_used: true, places: ArcSwap::default(), file: None, chosen: Mutex::default() };
        let units = LogicalUnits::new();
        let volumes: Vec<VolumeConfig> = (0..100).map(|number| volume(number, &format!("v{number}=ram:1M"))).collect();
        volumes.iter().for_each(|volume| add(&units, volume, 512));
        // Writing what was chosen counts as much as looking at a thousand volumes.
        let visits = crate::visits::during(|| disks.serve(&volumes, &units));
        assert!((1024..2048).contains(&visits), "{visits}");
        assert_eq!(disks.named("v99").map(|(address, _)| address), Some(99));
    }

    #[test]
    fn addresses_of_volumes_that_are_gone_are_given_again_when_no_others_are_left() {
        let disks = Disks { is_used: true, places: ArcSwap::default(), file: None, chosen: Mutex::default() };
        let units = LogicalUnits::new();
        for number in 0..255 {
            let text = format!("v{number}=ram:1M");
            assert_eq!(serve(&disks, &units, &volume(number, &text), 512), Some(number as u8));
        }
        assert_eq!(serve(&disks, &units, &volume(300, "full=ram:1M"), 512), None);
        disks.remove(Lun::new(77).unwrap());
        assert_eq!(serve(&disks, &units, &volume(301, "next=ram:1M"), 512), Some(77));
        assert_eq!(disks.lock().len(), 255, "who had it before comes to another one");
        assert_eq!(serve(&disks, &units, &volume(302, "v77=ram:1M"), 512), None);
    }
}
