//! The volumes of a server that starts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, SystemTime};

use sanwire_core::{Lun, Protection, WallClock};
use sanwire_device::LogicalUnits;
use sanwire_store::OpenError;

use crate::config::{Origin, ServerConfig, VolumeConfig};
use crate::derived::{DerivedError, opening_order};
use crate::error::StartError;
use crate::front::iscsi::directory::TargetNodes;
use crate::front::iscsi::target_node::{TargetNodeConfig, TargetNodeError};
use crate::front::iscsi::target_table::TargetChanges;
use crate::pools::Pools;
use crate::programs::Programs;
use crate::protection_table::ProtectionTable;
use crate::volumes::{Batch, Opening};

/// How long a server that starts waits for files that others still have: after the end of a process that was killed, the kernel
/// keeps them until what it had begun to write is written.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// A volume that is not served, though it should be.
#[derive(Clone, Debug)]
pub(crate) struct MissingVolume {
    pub(crate) volume: VolumeConfig,
    /// Its numbers in iSCSI targets.
    pub(crate) units: Vec<(String, Lun)>,
    /// Why.
    pub(crate) reason: String,
}

/// Whether a volume is to wait for a store that is gone (`when-gone`), and its store is away.
fn is_awaited(volume: &VolumeConfig, error: &StartError) -> bool {
    let is_away = matches!(error, StartError::Store { source: OpenError::Elsewhere { is_away: true, .. }, .. });
    is_away && volume.spec.patience.gone.is_some()
}

/// Whether the time of a volume is over.
fn is_expired(error: &StartError) -> bool {
    let is_it =
        |source: &DerivedError| matches!(source, DerivedError::Expired { .. } | DerivedError::ExpiredBefore { .. });
    matches!(error, StartError::Derived { source, .. } if is_it(source))
}

/// Opens all volumes, each after the one from which it is derived, and puts them in as one change. Those that `may_be_missing`, wait for
/// their stores, and cannot be opened, are left out, also of the targets, and told; so are all that are derived from others, and cannot be:
/// these hold nothing of their own, and one that is wrong keeps no other one from being served.
pub(super) fn add_volumes(
    (units, levels): (&LogicalUnits, &ProtectionTable),
    config: &mut ServerConfig,
    (pools, clock, programs, seen): (&Pools, &WallClock, &Programs, SystemTime),
    may_be_missing: impl Fn(&VolumeConfig) -> bool,
) -> Result<Vec<MissingVolume>, StartError> {
    let until = Some(Instant::now() + LOCK_TIMEOUT);
    let (mut missing, mut batch) = (Vec::<MissingVolume>::new(), Batch::default());
    let order = opening_order(config.volumes.iter().map(|volume| &volume.spec));
    let names: BTreeSet<&str> = config.volumes.iter().map(|volume| &*volume.spec.name).collect();
    for (volume, slot) in order.iter().map(|at| &config.volumes[*at]).zip(0..) {
        levels.set(volume.lun, &volume.spec);
        let acceptance = config.accepted.get(&volume.spec.name).copied().unwrap_or_default();
        let opening =
            Opening { state: config.state_directory.as_deref(), pools, clock, programs, seen, acceptance, until };
        let Err(error) = batch.open(units, volume, &opening, slot) else { continue };
        let (name, mut reason) = (&volume.spec.name, error.to_string());
        if is_expired(&error) {
            tracing::warn!("volume {name} is not served: {reason}");
        } else if let StartError::Derived { .. } = &error {
            let lost = volume.spec.parent().filter(|parent| !names.contains(parent));
            reason = lost.map_or(reason, not_configured);
            tracing::error!("volume {name} is not served: {reason}");
        } else if is_awaited(volume, &error) {
            tracing::error!("volume {name} is not served yet: {reason}; its store is sought on");
        } else if may_be_missing(volume) {
            let verb = if volume.origin == Origin::Management { "added" } else { "changed" };
            tracing::error!("volume {name}, which was {verb} by ctl, is not served: {reason}");
        } else {
            return Err(error);
        }
        levels.clear(volume.lun);
        missing.push(MissingVolume { volume: volume.clone(), units: Vec::new(), reason });
    }
    batch.put(units)?;
    if !missing.is_empty() {
        note_units(&mut missing, &config.exports);
        let names: BTreeSet<&str> = missing.iter().map(|missing| &*missing.volume.spec.name).collect();
        for export in &mut config.exports {
            export.units.retain(|_, volume| !names.contains(volume.as_str()));
        }
        config.exports.retain(|export| !export.units.is_empty() || export.stays_empty());
    }
    Ok(missing)
}

/// Why a volume is missing that was derived from this one while an earlier run went on.
fn not_configured(parent: &str) -> String {
    format!(
        "{parent}, from which it is derived, is not configured any more: it is served again when that is, and forgotten when it is revoked"
    )
}

/// Notes of volumes that are missing which numbers these targets have for them: all targets are looked at once.
pub(crate) fn note_units(missing: &mut [MissingVolume], exports: &[TargetNodeConfig]) {
    let by_name = missing.iter_mut().map(|MissingVolume { volume, units, .. }| (&*volume.spec.name, units));
    let mut by_name: BTreeMap<&str, &mut Vec<(String, Lun)>> = by_name.collect();
    for export in exports {
        for (lun, volume) in &export.units {
            let units = by_name.get_mut(volume.as_str()).into_iter();
            units.for_each(|units| units.push((export.name.to_string(), *lun)));
        }
    }
}

/// iSCSI protects nothing that it carries. Only units that come are looked at.
pub(super) fn refuse_in_the_clear(
    (targets, changes): (&TargetNodes, &TargetChanges),
    units: &LogicalUnits,
    level: impl Fn(Lun, &str) -> Protection,
) -> Result<(), TargetNodeError> {
    let is_protected =
        |volume: &str| units.find_named(volume).is_some_and(|(lun, _)| level(lun, volume) > Protection::Checksum);
    match targets.table().new_units(changes).into_iter().find(|(_, volume)| is_protected(volume)) {
        Some((target, volume)) => Err(TargetNodeError::Protected { target: target.clone(), volume: volume.to_owned() }),
        None => Ok(()),
    }
}
