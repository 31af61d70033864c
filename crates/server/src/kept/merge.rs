//! What a server is to be: its configuration, with what was changed while it ran.
//!
//! A change holds as long as the configuration says the same of that thing as when it was changed. Where the configuration was
//! edited since, it holds, and that is said: a volume's size, its protection, its end and the rest of it are one thing each, and so is its
//! number in an iSCSI target, and each thing that is set of a target.

mod targets;

use std::collections::BTreeSet;

use sanwire_core::limits::LUNS_MAX;
use sanwire_core::{Lun, Size};
use sanwire_store::VolumeSpec;

use super::{Changed, Changes, VolumeDefinition};
use crate::config::{Origin, ServerConfig, VolumeConfig};
use crate::derived::{DerivedSpec, inherit_levels, with_until};

/// The configuration with the changes, and a line for each change that does not hold any more.
pub(crate) fn merge(configured: &ServerConfig, changes: &Changes) -> (ServerConfig, Vec<String>) {
    let mut merging = Merging { configured, changes, notes: Vec::new() };
    let volumes = merging.volumes();
    let volumes = merging.guarded(volumes);
    let exports = merging.exports(&volumes);
    (ServerConfig { volumes, exports, ..configured.clone() }, merging.notes)
}

struct Merging<'a> {
    configured: &'a ServerConfig,
    changes: &'a Changes,
    notes: Vec<String>,
}

/// A volume, and the number that it has if that is not the one of its place in the configuration.
type Wanted = (VolumeConfig, Option<Lun>);

impl Merging<'_> {
    fn volumes(&mut self) -> Vec<VolumeConfig> {
        let mut wanted: Vec<Wanted> = Vec::new();
        for volume in &self.configured.volumes {
            match self.changes.volumes.get(&*volume.spec.name) {
                None => wanted.push((volume.clone(), None)),
                Some(change) => wanted.extend(self.of_configured(volume, change)),
            }
        }
        let configured: BTreeSet<&str> = self.configured.volumes.iter().map(|volume| &*volume.spec.name).collect();
        let is_configured = |name: &str| configured.contains(name);
        for (name, change) in self.changes.volumes.iter().filter(|(name, _)| !is_configured(name)) {
            match change {
                Changed { configured: None, now: Some(VolumeDefinition { volume, lun }) } => {
                    let config = VolumeConfig {
                        lun: Lun::new(*lun).unwrap_or_default(),
                        spec: volume.clone(),
                        origin: Origin::Management,
                    };
                    wanted.push((config, Lun::new(*lun)));
                }
                Changed { now: Some(_), .. } => self.notes.push(format!(
                    "volume {name}, which was changed by ctl, is not in the configuration any more: it is not served"
                )),
                Changed { now: None, .. } => {}
            }
        }
        self.numbered(wanted)
    }

    /// Each that is derived is guarded as its parent at least. Its parent need not be configured any more.
    fn guarded(&mut self, mut volumes: Vec<VolumeConfig>) -> Vec<VolumeConfig> {
        if volumes.iter().all(|volume| volume.spec.parent().is_none()) {
            return volumes;
        }
        let mut specs: Vec<VolumeSpec> = volumes.iter().map(|volume| volume.spec.clone()).collect();
        let notes = &mut self.notes;
        let raised = inherit_levels(&mut specs, self.configured.protection, |volume, _, parent, level| {
            notes.push(format!(
                "volume {volume} is protected by security {level}, as {parent}, from which it is derived"
            ));
            Ok::<(), std::convert::Infallible>(())
        });
        match raised {
            Ok(()) => volumes.iter_mut().zip(specs).for_each(|(volume, spec)| volume.spec = spec),
        }
        volumes
    }

    /// A volume that is configured and was changed; `None` when it is not to be served.
    fn of_configured(&mut self, volume: &VolumeConfig, change: &Changed<VolumeDefinition>) -> Option<Wanted> {
        let name = &volume.spec.name;
        match (&change.configured, &change.now) {
            (Some(before), None) if is_as_it_was(&before.volume, &volume.spec) => None,
            // The last that is known of one that was derived by ctl and revoked: no word about what is configured since.
            (None, None) => Some((volume.clone(), None)),
            (_, None) => {
                self.notes.push(format!(
                    "volume {name} was removed by ctl, and the configuration of it was edited since: it is served again"
                ));
                Some((volume.clone(), None))
            }
            (None, Some(now)) => {
                if now.volume != volume.spec {
                    self.notes.push(format!(
                        "volume {name} was added by ctl, and is in the configuration now: it is what stands there"
                    ));
                }
                Some((volume.clone(), Lun::new(now.lun)))
            }
            (Some(before), Some(now)) => {
                let spec = self.spec(&before.volume, &now.volume, &volume.spec);
                let lun = Some(now.lun).filter(|lun| *lun != before.lun).and_then(Lun::new);
                // Whom a derived volume admits was said by who derived it, whatever is configured by its name.
                let is_of_ctl = spec.parent().is_some() && plain(&spec) != plain(&volume.spec);
                let origin = if is_of_ctl { Origin::Management } else { volume.origin };
                Some((VolumeConfig { spec, origin, ..volume.clone() }, lun))
            }
        }
    }

    /// What a volume is: as it was configured, was changed to, and is configured now.
    fn spec(&mut self, before: &VolumeSpec, now: &VolumeSpec, configured: &VolumeSpec) -> VolumeSpec {
        let name = &configured.name;
        let mut chosen = |what: &str, before_is_configured: bool, is_same: bool, is_other: bool| {
            if !before_is_configured && is_same && is_other {
                self.notes.push(format!(
                    "{what} of volume {name} was changed by ctl, and is another one in the configuration since: that holds"
                ));
            }
            before_is_configured
        };
        let [old, new, theirs] = [before, now, configured].map(plain);
        let rest = chosen("the store", old == theirs, new != old, new != theirs);
        let [old, new, theirs] = [before, now, configured].map(|spec| spec.security);
        let security = if chosen("the protection", old == theirs, new != old, new != theirs) { new } else { theirs };
        let [old, new, theirs] = [before, now, configured].map(VolumeSpec::size_bytes);
        let size = if chosen("the size", old == theirs, new != old, new != theirs) { new } else { theirs };
        let [old, new, theirs] = [before, now, configured].map(|spec| spec.protected);
        let is_kept = chosen("the protection of the content", old == theirs, new != old, new != theirs);
        let protected = if is_kept { new } else { theirs };
        let [old, new, theirs] = [before, now, configured].map(|spec| spec.owners.clone());
        let is_kept = chosen("the owners", old == theirs, new != old, new != theirs);
        let owners = if is_kept { new } else { theirs };
        let [old, new, theirs] = [before, now, configured].map(|spec| DerivedSpec::of(spec).and_then(|it| it.until));
        let until = if chosen("the end", old == theirs, new != old, new != theirs) { new } else { theirs };
        let spec = with_until(if rest { now } else { configured }.clone(), until);
        let spec = spec.with_security(security).with_protected(protected).with_owners(owners);
        let spec = match size {
            Some(size_bytes) if spec.size_bytes() != size => spec.with_size(size_bytes),
            _ => spec,
        };
        // In the words of the configuration, where it says the same.
        if spec == *configured { configured.clone() } else { spec }
    }

    /// Gives each volume a number of its own: first to those that were given one, then to those whose place says one.
    fn numbered(&mut self, wanted: Vec<Wanted>) -> Vec<VolumeConfig> {
        let mut taken = BTreeSet::new();
        let mut given: Vec<Option<Lun>> = wanted.iter().map(|(_, lun)| lun.filter(|lun| taken.insert(*lun))).collect();
        for (given, (volume, _)) in given.iter_mut().zip(&wanted) {
            *given = given.or_else(|| Some(volume.lun).filter(|lun| taken.insert(*lun)));
        }
        let mut volumes = Vec::new();
        let mut free = (0..).take(LUNS_MAX).filter_map(Lun::new);
        for ((volume, _), given) in wanted.into_iter().zip(given) {
            match given.or_else(|| free.find(|lun| taken.insert(*lun))) {
                Some(lun) => volumes.push(VolumeConfig { lun, ..volume }),
                None => self.notes.push(format!("volume {} is one too many: it is not served", volume.spec.name)),
            }
        }
        volumes
    }
}

/// Whether a volume that was removed is configured as it was then. A derived one may have the level of its parent, which says nothing about it:
/// it was revoked, and stays so.
fn is_as_it_was(before: &VolumeSpec, now: &VolumeSpec) -> bool {
    let level = if before.parent().is_some() { now.security } else { before.security };
    before.clone().with_security(level) == *now
}

/// What a volume is besides its size and its protection.
fn plain(spec: &VolumeSpec) -> VolumeSpec {
    let spec = with_until(spec.clone(), None);
    spec.with_security(None).with_protected(false).with_owners(Vec::new()).with_size(Size(1 << 30).0)
}
