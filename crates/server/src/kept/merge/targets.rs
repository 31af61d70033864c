//! The iSCSI targets that a server is to have.

use std::collections::{BTreeMap, BTreeSet};

use sanwire_core::limits::LUNS_MAX;
use sanwire_core::{Lun, Protection};
use sanwire_store::VolumeSpec;

use super::Merging;
use crate::allow::AllowList;
use crate::config::VolumeConfig;
use crate::derived::{chap_users_of, opening_order};
use crate::front::iscsi::own_target::OwnTarget;
use crate::front::iscsi::target_node::TargetNodeConfig;
use crate::front::iscsi::target_settings::TargetSettings;
use crate::kept::Changed;

/// The numbers of volumes in a target that are not as they are configured.
type Mappings = BTreeMap<String, Changed<u16>>;

static NO_MAPPINGS: Mappings = BTreeMap::new();

impl Merging<'_> {
    pub(super) fn exports(&mut self, volumes: &[VolumeConfig]) -> Vec<TargetNodeConfig> {
        let (mut exports, back) = self.set_configured();
        let places = exports.iter().zip(0..).map(|(export, at)| (export.name.to_string(), at));
        let places: BTreeMap<String, usize> = places.collect();
        let mut new: BTreeMap<&String, &Mappings> = BTreeMap::new();
        let is_new = |change: &Changed<TargetSettings>| change.configured.is_none() && change.now.is_some();
        let added = self
            .changes
            .target_settings
            .iter()
            .filter(|(target, change)| is_new(change) && !places.contains_key(*target));
        new.extend(added.map(|(target, _)| (target, &NO_MAPPINGS)));
        for (target, changes) in self.changes.mappings.iter().filter(|(target, _)| !back.contains(*target)) {
            match places.get(target).and_then(|at| exports.get_mut(*at)) {
                Some(export) => self.change_units(export, changes),
                None => _ = new.insert(target, changes),
            }
        }
        let own = volumes.iter().filter_map(|volume| {
            Some((TargetNodeConfig::of_volume(&volume.spec.name, AllowList::default()).ok()?.name, &volume.spec))
        });
        let own: BTreeMap<String, &VolumeSpec> = own.map(|(name, spec)| (name.to_string(), spec)).collect();
        for (target, changes) in parents_first(new, &own, volumes) {
            let new = self.new_target(target, own.get(target).copied(), &exports);
            exports.extend(new.map(|mut export| {
                self.change_units(&mut export, changes);
                export
            }));
        }
        let served: BTreeSet<&str> = volumes.iter().map(|volume| &*volume.spec.name).collect();
        let was_removed = |volume: &str| self.changes.volumes.contains_key(volume) && !served.contains(volume);
        for export in &mut exports {
            export.units.retain(|_, volume| !was_removed(volume));
        }
        self.keep_out_of_the_clear(&mut exports, volumes);
        exports.retain(|export| !export.units.is_empty() || export.stays_empty());
        exports
    }

    /// The targets that are configured, as they were set; and which of them were removed, and are there again as they are configured, with
    /// all their units.
    fn set_configured(&mut self) -> (Vec<TargetNodeConfig>, BTreeSet<String>) {
        let (mut exports, mut back) = (Vec::new(), BTreeSet::new());
        for export in &self.configured.exports {
            let name = export.name.to_string();
            match self.changes.target_settings.get(&name) {
                None => exports.push(export.clone()),
                Some(Changed { configured: Some(before), now: Some(now) }) => {
                    exports.push(self.set_target(export, before, now));
                }
                Some(Changed { configured: Some(before), now: None }) if self.is_as_removed(export, before) => {}
                Some(Changed { now: None, .. }) => {
                    self.notes.push(format!(
                        "target {name} was removed by ctl, and the configuration of it was edited since: it is served again"
                    ));
                    exports.push(export.clone());
                    back.insert(name);
                }
                Some(Changed { configured: None, now: Some(now) }) => {
                    if !now.are_those_of(export) {
                        self.notes.push(format!(
                            "target {name} was added by ctl, and is in the configuration now: it is what stands there"
                        ));
                    }
                    exports.push(export.clone());
                }
            }
        }
        let there: BTreeSet<String> = self.configured.exports.iter().map(|export| export.name.to_string()).collect();
        let is_lost = |change: &Changed<TargetSettings>| change.configured.is_some() && change.now.is_some();
        let changes = self.changes.target_settings.iter();
        let lost = changes.filter(|(target, change)| is_lost(change) && !there.contains(*target));
        self.notes.extend(lost.map(|(target, _)| {
            format!("target {target}, which was changed by ctl, is not in the configuration any more: it is not served")
        }));
        (exports, back)
    }

    /// A target that is configured, and was set when it was configured so.
    fn set_target(
        &mut self,
        export: &TargetNodeConfig,
        before: &TargetSettings,
        now: &TargetSettings,
    ) -> TargetNodeConfig {
        let (holding, overridden) = now.holding(before, export);
        let name = &export.name;
        self.notes.extend(overridden.into_iter().map(|what| {
            format!(
                "{what} of target {name} was changed by ctl, and is another one in the configuration since: that holds"
            )
        }));
        if holding.is_empty() {
            return export.clone();
        }
        export.clone().with(&holding).unwrap_or_else(|error| {
            self.notes.push(format!(
                "what ctl has changed of target {name} does not go with its configuration any more, which holds: {error}"
            ));
            export.clone()
        })
    }

    /// Whether a target is configured as it was when it was removed.
    fn is_as_removed(&self, export: &TargetNodeConfig, before: &TargetSettings) -> bool {
        let units = export.units.iter().map(|(lun, volume)| (volume.as_str(), lun.number()));
        let mappings = self.changes.mappings.get(export.name.as_str()).into_iter().flatten();
        let configured = mappings.filter_map(|(volume, change)| Some((volume.as_str(), change.configured?)));
        let [units, configured]: [BTreeMap<&str, u16>; 2] = [units.collect(), configured.collect()];
        *before == TargetSettings::of(export) && units == configured
    }

    /// Each unit of the target is looked at once, however many have changed.
    fn change_units(&mut self, export: &mut TargetNodeConfig, changes: &BTreeMap<String, Changed<u16>>) {
        let TargetNodeConfig { name: target, units, .. } = export;
        let mut numbers = BTreeMap::<String, Vec<Lun>>::new();
        for (lun, volume) in units.iter().filter(|(_, volume)| changes.contains_key(*volume)) {
            #[cfg(test)]
            crate::visits::count(1);
            numbers.entry(volume.clone()).or_default().push(*lun);
        }
        let mut moved = Vec::new();
        for (volume, change) in changes {
            let own = numbers.get(volume).map_or(&[][..], Vec::as_slice);
            let there = own.first().map(|lun| lun.number());
            if there == change.configured {
                own.iter().for_each(|lun| drop(units.remove(lun)));
                moved.extend(change.now.and_then(Lun::new).map(|lun| (lun, volume)));
            } else if there != change.now {
                self.notes.push(format!(
                    "volume {volume} was mapped by ctl in {target}, and the configuration of that was edited since: that holds"
                ));
            }
        }
        let mut numbers = (0..).take(LUNS_MAX).filter_map(Lun::new);
        for (lun, volume) in moved {
            // They only become more: what was taken once is not asked about again.
            let mut free = || numbers.find(|lun| !units.contains_key(lun));
            let Some(place) = Some(lun).filter(|lun| !units.contains_key(lun)).or_else(&mut free) else { continue };
            if place != lun {
                self.notes.push(format!(
                    "the configuration gives logical unit {lun} of {target} to another volume: {volume} is {place} there"
                ));
            }
            units.insert(place, volume.clone());
        }
    }

    /// A target that was made while the server ran: as then, for whom `allow` names if nothing else was set, and none where that would be
    /// too open. That of a volume for itself is the one that users of CHAP have, where it has such principals.
    fn new_target(
        &mut self,
        target: &str,
        volume: Option<&VolumeSpec>,
        others: &[TargetNodeConfig],
    ) -> Option<TargetNodeConfig> {
        let alias = self.changes.targets.get(target)?.clone();
        let name = target.parse().ok()?;
        let own = volume.filter(|spec| !chap_users_of(spec).is_empty()).and_then(|spec| self.own_target(spec, others));
        let made = match own {
            Some(own) => TargetNodeConfig { units: BTreeMap::new(), ..own },
            None => TargetNodeConfig { alias, ..TargetNodeConfig::new(name, self.configured.allow.clone()) },
        };
        let set = self.changes.target_settings.get(target).and_then(|change| change.now.as_ref());
        let set = set.map_or(Ok(made.clone()), |set| made.with(set));
        match set {
            Ok(made) if made.is_open() && self.configured.has_secrets() => {
                self.notes.push(format!(
                    "the iSCSI target {target} was made by ctl, and is not served since there is a password, which would not guard it: \
                     put it into the configuration, with chap, or make it again with `sanwire ctl add-target --chap-user`"
                ));
                None
            }
            Ok(made) => Some(made),
            Err(error) => {
                self.notes.push(format!("the iSCSI target {target}, which was made by ctl, is not served: {error}"));
                None
            }
        }
    }

    /// The target that a derived volume has for itself where users of CHAP are its principals: those of its parent know their secrets. Where
    /// none does any more, nobody uses it, until one does again.
    fn own_target(&mut self, spec: &VolumeSpec, others: &[TargetNodeConfig]) -> Option<TargetNodeConfig> {
        let parent = spec.parent()?;
        let has_parent = |target: &&TargetNodeConfig| target.units.values().any(|unit| unit == parent);
        let others: Vec<TargetNodeConfig> = others.iter().filter(has_parent).cloned().collect();
        match OwnTarget::of(spec, self.configured.allow.clone(), &others) {
            Ok(OwnTarget::Guarded(target)) => Some(target),
            Ok(OwnTarget::UsersUnknown(users)) => {
                let target = OwnTarget::closed(spec)?;
                let (target_name, users) = (&target.name, users.join(", "));
                self.notes.push(format!(
                    "nobody may use the iSCSI target {target_name}: no target of {parent} knows the secret of {users} any more; give it to one, \
                     and reload"
                ));
                Some(target)
            }
            Ok(OwnTarget::Open(_)) | Err(_) => None,
        }
    }

    /// Takes volumes out of targets that must not pass in the clear, where a change has brought that about.
    fn keep_out_of_the_clear(&mut self, exports: &mut [TargetNodeConfig], volumes: &[VolumeConfig]) {
        let usual = self.configured.protection;
        let specs: BTreeMap<&str, &VolumeSpec> =
            volumes.iter().map(|volume| (&*volume.spec.name, &volume.spec)).collect();
        let is_protected =
            |name: &str| specs.get(name).is_some_and(|spec| spec.security.unwrap_or(usual) > Protection::Checksum);
        for TargetNodeConfig { name, units, .. } in exports {
            let mappings = self.changes.mappings.get(name.as_str());
            let was_changed = |volume: &str| {
                self.changes.volumes.contains_key(volume) || mappings.is_some_and(|units| units.contains_key(volume))
            };
            let (notes, is_gone) = (&mut self.notes, |volume: &str| was_changed(volume) && is_protected(volume));
            units.retain(|_, volume| {
                let is_gone = is_gone(volume);
                if is_gone {
                    notes.push(format!(
                        "volume {volume} is no unit of {name}: it is protected, and iSCSI would carry it in the clear"
                    ));
                }
                !is_gone
            });
        }
    }
}

/// Targets that volumes have for themselves, that of a parent before those of what is derived from it: these ask it for secrets.
fn parents_first<'a>(
    targets: BTreeMap<&'a String, &'a Mappings>,
    own: &BTreeMap<String, &VolumeSpec>,
    volumes: &[VolumeConfig],
) -> Vec<(&'a String, &'a Mappings)> {
    let order = opening_order(volumes.iter().map(|volume| &volume.spec)).into_iter();
    let ranks: BTreeMap<&str, usize> = order.map(|at| &*volumes[at].spec.name).zip(0..).collect();
    let mut targets: Vec<_> = targets.into_iter().collect();
    targets.sort_by_key(|(target, _)| own.get(*target).and_then(|spec| ranks.get(&*spec.name)));
    targets
}
