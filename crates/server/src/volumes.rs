//! Volumes: from what is configured to disks, and their end.

mod derived;
mod former;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use sanwire_core::{DeviceType, Lun, WallClock};
use sanwire_device::{AddError, LogicalUnit, LogicalUnits, TokenSeed, UnitOptions, Volatility};
use sanwire_scsi::Identity;
use sanwire_store::kind::Place;
use sanwire_store::{Acceptance, Expectation, Known, OpenError, Request, Store, VolumeSpec};
use sanwire_store_file::blocking;

use crate::config::VolumeConfig;
use crate::derived::DerivedSpec;
use crate::error::StartError;
use crate::pools::{Pools, own_place};
use crate::programs::Programs;
use crate::records::Record;
use crate::reservations::keeper;
use crate::server::random;
use crate::writes::{self, GoneWith, Stop};

pub(crate) use self::derived::{forget as forget_derived, is_remembered};
pub(crate) use self::former::Former;

/// How volumes are opened at one server.
pub(crate) struct Opening<'a> {
    /// Where reservations and identities are kept; `None` to keep none.
    pub(crate) state: Option<&'a Path>,
    /// Where volumes are that name a pool.
    pub(crate) pools: &'a Pools,
    /// For volumes that are not there for ever.
    pub(crate) clock: &'a WallClock,
    /// For volumes whose commands are judged.
    pub(crate) programs: &'a Programs,
    /// It is not earlier than this, whatever the clock of the host says.
    pub(crate) seen: SystemTime,
    /// What is done when there is something else than what is remembered.
    pub(crate) acceptance: Acceptance,
    /// Until when a file that somebody else has is waited for.
    pub(crate) until: Option<Instant>,
}

/// What tells this machine from all others, where it has that (machine-id(5)).
const MACHINE_ID: &str = "/etc/machine-id";

/// How often a file that somebody else has is tried.
const LOCK_INTERVAL: Duration = Duration::from_millis(100);

/// A volume that is open, and that nobody finds yet.
pub(crate) struct OpenVolume {
    pub(crate) unit: Arc<LogicalUnit>,
    /// Whether it was never served before.
    pub(crate) is_first: bool,
    /// What was known of it, if it was opened as another one, or another one was.
    pub(crate) former: Option<Former>,
}

/// Opens a volume; what is counted of it is found by `slot`. `parent` is that from which it is derived, if it is.
pub(crate) fn open_volume(
    volume: &VolumeConfig,
    parent: Option<&Arc<LogicalUnit>>,
    opening: &Opening<'_>,
    slot: u16,
) -> Result<OpenVolume, StartError> {
    opening.pools.check_not_below(&volume.spec)?;
    let room = opening.pools.take_room(&volume.spec)?;
    let record = record(&volume.spec, opening.state);
    let is_first = record.as_ref().is_some_and(|record| matches!(record.load(), Ok(None)));
    let fresh = random()?;
    let former = record.and_then(|record| Former::of(&volume.spec, &record, fresh));
    // One that is the same volume has nothing to be put back, unless its file is made now.
    let former = former.filter(|former| opening.acceptance != Acceptance::Known || is_first && former.is_missing());
    let opened = match DerivedSpec::of(&volume.spec) {
        Some(derived) => derived::open(volume, (derived, parent), opening, slot, fresh),
        None => open_unit(volume, opening, slot, fresh),
    };
    match opened.map(Arc::new) {
        Ok(unit) => {
            let length_bytes = unit.store().geometry().length_bytes;
            room.into_iter().for_each(|room| room.settle(length_bytes));
            Ok(OpenVolume { unit, is_first, former })
        }
        Err(error) => {
            // What another server has open is as that one wants it: nothing was changed here.
            let is_locked = matches!(&error, StartError::Store { source: OpenError::Locked { .. }, .. });
            forget_opening(&volume.spec, opening.state, is_first, former.filter(|_| !is_locked).as_ref());
            Err(error)
        }
    }
}

/// A volume that was opened just now is not wanted after all, and nothing has been written to it: what is known of it is what was known.
pub(crate) fn forget_opening(spec: &VolumeSpec, state: Option<&Path>, is_first: bool, former: Option<&Former>) {
    match former {
        Some(former) => {
            let put_back = record(spec, state).map_or(Ok(()), |record| former.put_back(spec, &record));
            if let Err(error) = put_back {
                tracing::warn!("volume {}: what was known of it cannot be put back: {error}", spec.name);
            }
        }
        None if is_first => forget_volume(spec, state),
        None => {}
    }
}

/// Volumes that are open, to be put among others as one change.
#[derive(Default)]
pub(crate) struct Batch<'a> {
    units: BTreeMap<Lun, (&'a VolumeConfig, Arc<LogicalUnit>)>,
    /// By their names.
    numbers: BTreeMap<&'a str, Lun>,
}

impl<'a> Batch<'a> {
    /// Opens one more for a place among these units, after the one from which it is derived. Whether it was never served before.
    ///
    /// # Errors
    /// [`StartError`], also when its number is taken.
    pub(crate) fn open(
        &mut self,
        units: &LogicalUnits,
        volume: &'a VolumeConfig,
        opening: &Opening<'_>,
        slot: u16,
    ) -> Result<bool, StartError> {
        let parent = volume.spec.parent().and_then(|parent| self.find(parent));
        let OpenVolume { unit, is_first, .. } = open_volume(volume, parent, opening, slot)?;
        if self.units.contains_key(&volume.lun) || units.get(volume.lun).is_some() {
            drop(unit);
            if is_first {
                forget_volume(&volume.spec, opening.state);
            }
            return Err(not_added(&volume.spec.name, AddError::Occupied(volume.lun)));
        }
        self.units.insert(volume.lun, (volume, unit));
        self.numbers.insert(&volume.spec.name, volume.lun);
        Ok(is_first)
    }

    fn find(&self, name: &str) -> Option<&Arc<LogicalUnit>> {
        self.units.get(self.numbers.get(name)?).map(|(_, unit)| unit)
    }

    /// Puts all of them among the others.
    ///
    /// # Errors
    /// As for [`put_among`].
    pub(crate) fn put(self, units: &LogicalUnits) -> Result<(), StartError> {
        put_among(units, self.units.into_values().collect())
    }
}

/// Puts volumes that are open among the others, as one change of the list.
///
/// # Errors
/// [`StartError::Volume`] when the number of one is taken; then none is there.
pub(crate) fn put_among(
    units: &LogicalUnits,
    volumes: Vec<(&VolumeConfig, Arc<LogicalUnit>)>,
) -> Result<(), StartError> {
    let names: Vec<(Lun, &str)> = volumes.iter().map(|(volume, _)| (volume.lun, &*volume.spec.name)).collect();
    let added = volumes.into_iter().map(|(volume, unit)| (volume.lun, unit)).collect();
    units.change(&[], added).map_err(|error| {
        let is_meant = |lun: Lun| error == AddError::Occupied(lun);
        let meant = names.iter().find(|(lun, _)| is_meant(*lun)).or(names.last());
        not_added(meant.map_or("", |(_, name)| name), error)
    })
}

fn not_added(volume: &str, error: AddError) -> StartError {
    StartError::Volume { volume: volume.to_owned(), reason: error.to_string() }
}

/// Forgets a volume that was added for the first time just now, and is not wanted after all.
pub(crate) fn forget_volume(spec: &VolumeSpec, state: Option<&Path>) {
    record(spec, state).iter().for_each(Record::forget);
}

/// What is remembered of a volume that outlives this process. A drive is the same whichever disc is in it.
fn record(spec: &VolumeSpec, state: Option<&Path>) -> Option<Record> {
    match spec.store.backing.place() {
        _ if spec.device_type == DeviceType::Optical => Some(Record::elsewhere(&spec.name, "drive", state)),
        Place::Memory | Place::Nowhere => None,
        Place::File(path) => Some(Record::new(&spec.name, path, state)),
        Place::Elsewhere(text) => Some(Record::elsewhere(&spec.name, text, state)),
        Place::Volume(_) => Some(derived::record(&spec.name, state)),
    }
}

/// What is remembered of a volume whose store is below layers from when it had none: then it was its store.
fn record_without_layers(spec: &VolumeSpec, state: Option<&Path>) -> Option<Record> {
    match spec.below_layers()?.backing.place() {
        Place::Memory | Place::Nowhere | Place::Volume(_) => None,
        Place::File(path) => Some(Record::new(&spec.name, path, state)),
        Place::Elsewhere(text) => Some(Record::elsewhere(&spec.name, text, state)),
    }
}

/// `fresh` is its identity where it is made, or becomes another volume.
fn open_unit(
    volume: &VolumeConfig,
    opening: &Opening<'_>,
    slot: u16,
    fresh: [u8; 16],
) -> Result<LogicalUnit, StartError> {
    let name = volume.spec.name.to_string();
    let place = volume.spec.store.backing.place();
    let open = || volume.spec.store.open().map_err(|source| StartError::Store { volume: name.clone(), source });
    let (store, uuid) = match record(&volume.spec, opening.state) {
        // Another one each time it is made: no client goes on with an empty disk as if nothing had happened.
        None => (Some(open()?), random()?),
        Some(record) if volume.spec.device_type == DeviceType::Optical => {
            let disc = if place == Place::Nowhere { None } else { Some(open()?) };
            (disc, drive_identity(&name, &record)?)
        }
        Some(record) => open_known(volume, &record, opening, fresh).map(|(store, uuid)| (Some(store), uuid))?,
    };
    let identity = Identity::new(&name, uuid)
        .map_err(|error| StartError::Volume { volume: name.clone(), reason: error.to_string() })?;
    let reservations = keeper(place, opening.state, uuid);
    let VolumeSpec { device_type, removable, patience, .. } = volume.spec;
    // Without layers it is written where its store is.
    let written = own_place(&volume.spec);
    let volatility = match if matches!(written, Place::Elsewhere(_)) { written } else { place } {
        _ if volume.spec.store.read_only => None,
        // What is in memory is as lasting as the volume.
        Place::Memory | Place::Nowhere => None,
        Place::File(path) => {
            writes::check_version(opening.state, uuid)?;
            let gone_with = if opening.pools.has_layers(&volume.spec) { GoneWith::Process } else { GoneWith::Host };
            Some(writes::volatility(path, opening.state, uuid, random()?, gone_with))
        }
        // Nobody here knows what became of unflushed writes while this server did not run.
        Place::Elsewhere(_) => Some(Volatility { verifier: random()?, has_failed: false, tenure: None, keeper: None }),
        // That is its parent's.
        Place::Volume(_) => None,
    };
    let token_seed = Some(TokenSeed::new(random()?));
    let options = UnitOptions {
        device_type,
        removable,
        reservations,
        slot,
        patience,
        volatility,
        token_seed,
        ..UnitOptions::default()
    };
    let unit = match store {
        Some(store) => LogicalUnit::new(identity, store, options),
        None => LogicalUnit::empty(identity, options),
    };
    unit.map_err(|source| StartError::Unit { volume: name, source })
}

/// Who a drive is: drawn at its first start, and remembered. Hosts that see the same identity twice take both for one drive; so without
/// a memory it is at least another one on each machine.
fn drive_identity(name: &str, record: &Record) -> Result<[u8; 16], StartError> {
    let unreadable = |source| StartError::Record {
        volume: name.to_owned(),
        place: record.place(),
        file: record.of().to_owned(),
        source,
    };
    if let Some(known) = record.load().map_err(unreadable)? {
        return Ok(known.uuid);
    }
    let known = Known { uuid: random()?, is_marked: false, length_bytes: 0, device: None };
    match record.save(&known) {
        Ok(()) if record.has_place() => Ok(known.uuid),
        saved => {
            if let Err(error) = saved {
                let place = record.place();
                tracing::warn!(
                    "volume {name}: {} cannot be written: {error}; the drive may be another one later",
                    place.display()
                );
            }
            let machine = std::fs::read_to_string(MACHINE_ID).unwrap_or_default();
            Ok(Record::elsewhere(name, &format!("drive of {}", machine.trim()), None).fallback())
        }
    }
}

/// Opens a file or device if it holds the volume that it held before, and remembers which one that is before anybody uses it.
fn open_known(
    volume: &VolumeConfig,
    record: &Record,
    opening: &Opening<'_>,
    fresh: [u8; 16],
) -> Result<(Arc<dyn Store>, [u8; 16]), StartError> {
    let name = &*volume.spec.name;
    let load = |record: &Record| match record.load() {
        // Whatever it was: the volume is another one now.
        Err(_) if opening.acceptance == Acceptance::Renewed => Ok(None),
        loaded => loaded.map_err(|source| StartError::Record {
            volume: name.to_owned(),
            place: record.place(),
            file: record.of().to_owned(),
            source,
        }),
    };
    let known = load(record)?;
    let before = record_without_layers(&volume.spec, opening.state);
    // What was remembered before it had layers matters until there is something newer.
    let known_below = before.as_ref().filter(|_| known.is_none()).map(load).transpose()?.flatten();
    // It stays who it was.
    let without_layers = known_below.as_ref().map(|known| known.uuid).or(before.map(|before| before.fallback()));
    let expected = Expectation {
        name,
        known,
        known_below,
        is_kept: record.has_place(),
        acceptance: opening.acceptance,
        fresh,
        fallback: without_layers.unwrap_or_else(|| record.fallback()),
    };
    let failed = |source| StartError::Store { volume: name.to_owned(), source };
    let (store, known) = open_patiently(&volume.spec, &expected, opening.until).map_err(failed)?;
    let Some(known) = known else { return Ok((store, expected.fallback)) };
    if !volume.spec.store.read_only {
        remember(&volume.spec, record, &known);
    }
    Ok((store, known.uuid))
}

/// Opens a file as soon as nobody else has it, and until then at the latest.
fn open_patiently(
    spec: &VolumeSpec,
    expected: &Expectation<'_>,
    until: Option<Instant>,
) -> Result<(Arc<dyn Store>, Option<Known>), OpenError> {
    let mut is_told = false;
    loop {
        let opened = spec.store.open_volume(expected);
        let left = until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()));
        match opened {
            Err(OpenError::Locked { path }) if !left.is_zero() => {
                if !is_told {
                    let (name, path, seconds) = (&spec.name, path.display(), left.as_secs_f32());
                    tracing::warn!("volume {name}: {path} is still in use: waiting for up to {seconds:.0} s");
                    is_told = true;
                }
                thread::sleep(LOCK_INTERVAL.min(left));
            }
            opened => return opened,
        }
    }
}

/// A volume is served also where nothing can be written for it; that is said.
fn remember(spec: &VolumeSpec, record: &Record, known: &Known) {
    let reason = match record.save(known) {
        Ok(()) if record.has_place() => return,
        Ok(()) => "there is no state directory (set XDG_STATE_HOME or HOME)".to_owned(),
        Err(error) => format!("{} cannot be written: {error}", record.place().display()),
    };
    if spec.size_bytes().is_some() {
        tracing::warn!(
            "volume {}: it cannot be remembered that it was served, since {reason}; if its file is missing at a later start, an \
             empty one will be made in its place",
            spec.name
        );
    }
}

/// Remembers how long a volume is now.
pub(crate) fn remember_length(spec: &VolumeSpec, state: Option<&Path>, length_bytes: u64) {
    let Some(record) = record(spec, state) else { return };
    if let Ok(Some(known)) = record.load() {
        remember(spec, &record, &Known { length_bytes, ..known });
    }
}

/// Makes stable what was written to a volume; `is_last`: there will be no more writes, and that is remembered.
pub(crate) fn flush_volume(disk: &LogicalUnit, state: Option<&Path>, is_last: bool) -> io::Result<()> {
    let flushed = disk.flush_by(|| blocking::run(&**disk.store(), Request::Flush).map(drop));
    if is_last && let Some(verifier) = disk.verifier() {
        let (is_flushed, has_failed) = (flushed.is_ok(), disk.has_failed_flushes());
        writes::stopped(state, disk.identity().uuid(), Stop { verifier, is_flushed, has_failed });
    }
    flushed.map_err(|error| io::Error::other(error.to_string()))
}

#[cfg(test)]
mod tests;
