//! Volumes that nobody reaches, and keys of theirs that have no effect.

use std::collections::BTreeSet;
use std::fs;

use sanwire_core::{DeviceType, Protection, Size};
use sanwire_server::chap_users_of;
use sanwire_store::kind::Place;
use sanwire_store::{VolumeSpec, overcommitted};

use super::ServeConfig;

pub(super) fn warnings(config: &ServeConfig) -> Vec<String> {
    if config.volumes.is_empty() {
        return vec!["no volume is configured: write [[volume]], or add one with `sanwire ctl add-volume`".into()];
    }
    let mut lines: Vec<String> = overcommitted(&config.volumes).into_iter().collect();
    let in_targets: BTreeSet<&str> = match config.has_iscsi() {
        true => config
            .targets
            .iter()
            .filter(|target| target.redirect.is_none())
            .flat_map(|target| target.units.values())
            .map(String::as_str)
            .collect(),
        false => BTreeSet::new(),
    };
    for volume in &config.volumes {
        let name = &volume.name;
        let by_aoe = not_by_aoe(config, volume);
        if !config.has_clients() && !in_targets.contains(&**name) && (!config.has_aoe() || by_aoe.is_some()) {
            lines.push(format!(
                "volume {name}: nobody reaches it: it is a unit of no iSCSI target, and there is no wire of HyperSCSI or HDSP"
            ));
        }
        lines.extend(longer(volume));
        lines.extend(
            by_aoe.filter(|_| config.has_aoe()).map(|why| format!("volume {name}: not served over AoE: {why}")),
        );
        lines.extend(exposed(config, volume, &in_targets));
        lines.extend(unknown_users(config, volume));
        lines.extend(idle_keys(config, volume));
    }
    lines
}

/// A volume whose file has grown, and not its size in the configuration.
fn longer(volume: &VolumeSpec) -> Option<String> {
    let (Place::File(path), Some(size_bytes)) = (volume.store.backing.place(), volume.size_bytes()) else {
        return None;
    };
    let is_bytes = fs::metadata(path).ok()?.len();
    (is_bytes > size_bytes).then(|| {
        let (name, path, size, is) = (&volume.name, path.display(), Size(size_bytes), Size(is_bytes));
        format!("volume {name}: {path} has {is}, more than the {size} of size=: it is served as long as it is; nothing is cut")
    })
}

/// Why a volume is none for AoE, as far as its description shows.
fn not_by_aoe(config: &ServeConfig, volume: &VolumeSpec) -> Option<String> {
    let security = volume.security.unwrap_or(config.security);
    if volume.device_type == DeviceType::Optical {
        return Some("it is an optical drive, and AoE has only disks".into());
    }
    (security > Protection::Checksum).then(|| format!("its security is {security}, and AoE guards nothing"))
}

/// A volume that is encrypted on one wire, and readable on another.
fn exposed(config: &ServeConfig, volume: &VolumeSpec, in_targets: &BTreeSet<&str>) -> Option<String> {
    let security = volume.security.unwrap_or(config.security);
    let is_exposed = security != Protection::Checksum && in_targets.contains(&*volume.name);
    is_exposed.then(|| {
        let name = &volume.name;
        format!("volume {name}: its security ({security}) holds over HyperSCSI, HDSP and VISA only: as a unit of an iSCSI target it is sent in the clear")
    })
}

/// A volume for users of CHAP whom no target that has it knows.
fn unknown_users(config: &ServeConfig, volume: &VolumeSpec) -> Option<String> {
    let targets = config.targets.iter().filter(|target| target.units.values().any(|unit| *unit == *volume.name));
    let known: BTreeSet<&str> =
        targets.flat_map(|target| &target.authentication.users).map(|user| user.name.as_str()).collect();
    let unknown: Vec<&str> = chap_users_of(volume).into_iter().filter(|user| !known.contains(user)).collect();
    (!unknown.is_empty()).then(|| {
        let (name, users) = (&volume.name, unknown.join(", "));
        format!("volume {name}: nobody comes in as its principals chap:{users}: no [[target]] that has the volume knows a secret of theirs")
    })
}

fn idle_keys(config: &ServeConfig, volume: &VolumeSpec) -> Vec<String> {
    let (name, store) = (&volume.name, &volume.store);
    let mut lines = Vec::new();
    let mut has_no_effect = |key: &str, why: &str| lines.push(format!("volume {name}: {key} has no effect: {why}"));
    if !config.has_clients() && volume.security.is_some() {
        has_no_effect("security", "no wire of HyperSCSI or HDSP is served");
    }
    if !config.has_hyperscsi() && !volume.compressible {
        has_no_effect("compression", "no wire of HyperSCSI is served");
    }
    if volume.aoe.is_some() && !config.has_aoe() {
        has_no_effect("shelf", "no aoe: wire is served");
    }
    if volume.disk_address.is_some() && !config.has_hdsp() {
        has_no_effect("disk-address", "no hdsp: wire is served");
    }
    if store.read_only && store.thick {
        has_no_effect("thick", "a volume that is readonly gives no space back");
    }
    if store.seed != 0 && store.errors.is_empty() {
        has_no_effect("seed", "it is for the chance in `error`, which is not given");
    }
    lines
}
