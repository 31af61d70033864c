//! Volumes that are derived from others of the server.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use sanwire_device::{
    Admission, AllowedOperations, CommandProgram, Derivation, DerivedExtent, LogicalUnit, ReservationKeeper,
    UnitOptions,
};
use sanwire_scsi::Identity;
use sanwire_store::{Acceptance, Known, VolumeSpec};

use super::{Opening, remember};
use crate::config::{Origin, VolumeConfig};
use crate::derived::{DerivedError, DerivedSpec, PrincipalRule, PrincipalRules, unix_millis};
use crate::error::StartError;
use crate::programs::Programs;
use crate::records::Record;
use crate::reservations::{FileKeeper, keeper};
use crate::wall_time::written_seconds;

/// What is remembered of a volume that is derived from another one.
pub(super) fn record(name: &str, state: Option<&Path>) -> Record {
    Record::elsewhere(name, "derived", state)
}

/// Whether anything is known of a derived volume of this name.
pub(crate) fn is_remembered(name: &str, state: &Path) -> bool {
    !matches!(record(name, Some(state)).load(), Ok(None))
}

/// Forgets who a volume was, with what was reserved of it, its program, and what that remembers.
pub(crate) fn forget(name: &str, state: Option<&Path>, programs: &Programs) {
    let record = record(name, state);
    let known = record.load().ok().flatten();
    if let Some((known, state)) = known.as_ref().zip(state) {
        FileKeeper::new(state, known.uuid).forget();
    }
    programs.forget(name, known.map(|known| known.uuid));
    record.forget();
}

/// Derives a volume from its parent; `fresh` is its identity where it is not what was served under its name before.
pub(super) fn open(
    volume: &VolumeConfig,
    (derived, parent): (&DerivedSpec, Option<&Arc<LogicalUnit>>),
    opening: &Opening<'_>,
    slot: u16,
    fresh: [u8; 16],
) -> Result<LogicalUnit, StartError> {
    let spec = &volume.spec;
    let refused = |source| StartError::Derived { volume: spec.name.to_string(), source };
    let parent = parent.ok_or_else(|| refused(DerivedError::NotServed { parent: derived.parent.to_string() }))?;
    let until = until_unix_ms(derived, opening.seen).map_err(refused)?;
    let record = record(&spec.name, opening.state);
    let known = identity(volume, (derived, parent.as_ref()), opening, &record, fresh)?;
    let uuid = known.now.uuid;
    let identity = Identity::new(&spec.name, uuid)
        .map_err(|error| StartError::Volume { volume: spec.name.to_string(), reason: error.to_string() })?;
    let operations = derived.operations.as_ref().map_or_else(|| all_of(parent), |operations| operations.allowed());
    let operations = if spec.store.read_only { operations.without_writes() } else { operations };
    let derivation = Derivation {
        extents: extents(derived, parent),
        operations,
        admission: admission(&derived.principals),
        until_unix_ms: until,
        program: program(spec, derived, opening, uuid).map_err(refused)?,
        clock: opening.clock.clone(),
    };
    let reservations: Option<Arc<dyn ReservationKeeper>> = keeper(spec.store.backing.place(), opening.state, uuid);
    let options = UnitOptions {
        removable: spec.removable,
        reservations,
        slot,
        patience: spec.patience,
        ..UnitOptions::default()
    };
    let unit = LogicalUnit::derive(identity, parent, derivation, options).map_err(|error| refused(error.into()))?;
    // Not before: one that cannot be derived so may come again as it was.
    if let (Some(former), Some(state)) = (known.former, opening.state) {
        FileKeeper::new(state, former).forget();
        opening.programs.forget_state(former);
    }
    remember(spec, &record, &known.now);
    Ok(unit)
}

/// What may be done with the parent.
fn all_of(parent: &LogicalUnit) -> AllowedOperations {
    parent.derived().map_or_else(AllowedOperations::all, |derived| derived.operations().clone())
}

/// What judges its commands.
fn program(
    spec: &VolumeSpec,
    derived: &DerivedSpec,
    opening: &Opening<'_>,
    uuid: [u8; 16],
) -> Result<Option<Arc<dyn CommandProgram>>, DerivedError> {
    let Some(file) = &derived.program else { return Ok(None) };
    let loaded = opening.programs.load(&spec.name, file, uuid);
    let program = loaded.map_err(|reason| DerivedError::Program { path: file.clone(), reason })?;
    Ok(Some(program))
}

/// When it ends, in milliseconds since the beginning of 1970.
fn until_unix_ms(derived: &DerivedSpec, seen: SystemTime) -> Result<Option<u64>, DerivedError> {
    let now = SystemTime::now();
    let Some(until) = derived.until.map(|until| until.from(now)) else { return Ok(None) };
    if until <= now {
        return Err(DerivedError::Expired { until: written_seconds(until) });
    }
    if until <= seen {
        let [until, seen] = [until, seen].map(written_seconds);
        return Err(DerivedError::ExpiredBefore { until, seen });
    }
    Ok(Some(unix_millis(until)))
}

/// The regions, or all that the parent has.
fn extents(derived: &DerivedSpec, parent: &LogicalUnit) -> Vec<DerivedExtent> {
    if derived.regions.is_empty() {
        return vec![DerivedExtent { offset_bytes: 0, length_bytes: parent.store().geometry().length_bytes }];
    }
    let extent = |region: &crate::derived::Region| DerivedExtent {
        offset_bytes: region.offset_bytes(),
        length_bytes: region.length_bytes(),
    };
    derived.regions.iter().map(extent).collect()
}

fn admission(rules: &[PrincipalRule]) -> Option<Arc<dyn Admission>> {
    let is_open = rules.contains(&PrincipalRule::Any);
    (!is_open).then(|| Arc::new(PrincipalRules(rules.to_vec())) as Arc<dyn Admission>)
}

/// What stands in a record before the parent of a derived volume that has its content in memory: it is another one at each start.
const IN_MEMORY: &str = "memory-";

/// Who a volume is.
struct Identified {
    now: Known,
    /// Whom it was before, if that was another one.
    former: Option<[u8; 16]>,
}

/// Who it is: the same as long as it shows the same part of the same volume. What was reserved of another one is not reserved of it, and what
/// the program of that one remembers is not known to its own.
///
/// # Errors
/// Also when it was derived by an administrator or an owner from another volume than that which has the parent's name now: whom they had
/// in mind with the content of that one is not to see that of this one.
fn identity(
    volume: &VolumeConfig,
    (derived, parent): (&DerivedSpec, &LogicalUnit),
    opening: &Opening<'_>,
    record: &Record,
    fresh: [u8; 16],
) -> Result<Identified, StartError> {
    let spec = &volume.spec;
    let regions: Vec<String> = derived.regions.iter().map(ToString::to_string).collect();
    let place = if parent.is_lasting() { "" } else { IN_MEMORY };
    let of_parent = format!("{place}{:032x}", u128::from_be_bytes(parent.identity().uuid()));
    let shown = format!("{of_parent}:{}", regions.join(","));
    let known = match record.load() {
        // What is to be another one all the same needs nothing of it.
        Err(_) if opening.acceptance == Acceptance::Renewed => None,
        known => known.map_err(|source| StartError::Record {
            volume: spec.name.to_string(),
            place: record.place(),
            file: record.of().to_owned(),
            source,
        })?,
    };
    let other_parent = |known: &Known| {
        let before = known.device.as_deref().and_then(|shown| shown.split(':').next());
        before.is_some_and(|before| !before.starts_with(IN_MEMORY) && before != of_parent)
    };
    if opening.acceptance == Acceptance::Known && known.as_ref().is_some_and(other_parent) {
        if volume.origin == Origin::Management {
            let source = DerivedError::OtherParent { parent: derived.parent.to_string() };
            return Err(StartError::Derived { volume: spec.name.to_string(), source });
        }
        tracing::warn!(
            "volume {} is another one now: {} is another volume than before, and its principals see that",
            spec.name,
            derived.parent
        );
    }
    let is_same = |known: &Known| {
        opening.acceptance == Acceptance::Adopted
            || opening.acceptance == Acceptance::Known && known.device.as_ref() == Some(&shown)
    };
    let (former, known) = match known {
        Some(known) if is_same(&known) => (None, Some(known)),
        former => (former, None),
    };
    let uuid = known.map_or(fresh, |known| known.uuid);
    let length_bytes = parent.store().geometry().length_bytes;
    let now = Known { uuid, is_marked: false, length_bytes, device: Some(shown) };
    Ok(Identified { now, former: former.map(|former| former.uuid) })
}
