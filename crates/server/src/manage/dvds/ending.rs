//! Derived volumes whose time is over are taken out of service; those that were made while the server ran are forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use sanwire_core::Lun;
use sanwire_scsi::IscsiName;
use sanwire_store::VolumeSpec;

use super::expiring::now_unix_ms;
use crate::config::{Origin, VolumeConfig};
use crate::derived::DerivedSpec;
use crate::events::Happening;
use crate::front::iscsi::target_node::TargetNodeConfig;
use crate::front::iscsi::target_table::TargetChanges;
use crate::manage::Manager;
use crate::manage::busy::{Hold, REVOKED};
use crate::server::MissingVolume;
use crate::wall_time::written_unix_millis;

/// A volume whose time is over.
struct Ending {
    volume: VolumeConfig,
    /// When that was.
    until: String,
    /// Nothing else is done to it meanwhile.
    _hold: Hold,
}

impl Ending {
    fn name(&self) -> &str {
        &self.volume.spec.name
    }

    fn parent(&self) -> String {
        parent_of(&self.volume.spec)
    }

    /// Whether it does not come again.
    fn is_forgotten(&self) -> bool {
        self.volume.origin == Origin::Management
    }
}

fn parent_of(spec: &VolumeSpec) -> String {
    spec.parent().unwrap_or_default().to_owned()
}

impl Manager {
    /// Notes when a volume ends that is served, if it does.
    pub(in crate::manage) fn await_end(&mut self, name: &str) {
        if let Some((_, unit)) = self.find(name)
            && let Some(derived) = unit.derived()
        {
            self.expiry.put(name, derived.until_unix_ms(), derived.program().is_some());
        }
    }

    /// The same of all.
    pub(in crate::manage) fn await_ends(&mut self) {
        let derived = self.volumes.values().filter(|volume| volume.spec.parent().is_some());
        let names: Vec<String> = derived.map(|volume| volume.spec.name.to_string()).collect();
        names.iter().for_each(|name| self.await_end(name));
    }

    /// Takes all volumes out of service whose time is over, as one change. What is just being changed is tried again soon.
    pub(in crate::manage) fn expire(&mut self) {
        let (forgotten, lasting): (Vec<Ending>, Vec<Ending>) =
            self.all_that_end().into_iter().partition(Ending::is_forgotten);
        let mut ending = lasting;
        if self.keep_ended(&forgotten) {
            ending.extend(forgotten);
        }
        if !ending.is_empty() {
            self.take_out_ended(&ending);
        }
    }

    /// Those whose time is over, each before the one from which it is derived.
    fn all_that_end(&self) -> Vec<Ending> {
        let (over, children) = (self.expiry.over(now_unix_ms()), self.children());
        let (mut seen, mut ending) = (BTreeSet::new(), Vec::new());
        for (until, name) in over {
            // One that is derived from it has ended, too, if not before.
            for name in children.descendants(&name).into_iter().chain([name]) {
                let volume = self.volumes.get(&name).filter(|_| seen.insert(name.clone()));
                let held = volume.and_then(|volume| Some((volume.clone(), self.busy.hold(&name, REVOKED).ok()?)));
                let until = || written_unix_millis(until);
                ending.extend(held.map(|(volume, hold)| Ending { volume, until: until(), _hold: hold }));
            }
        }
        ending
    }

    /// Keeps that these do not come again; whether that can be done.
    fn keep_ended(&mut self, forgotten: &[Ending]) -> bool {
        let names: BTreeSet<&str> = forgotten.iter().map(Ending::name).collect();
        let Some(first) = names.first() else { return true };
        forgotten.iter().for_each(|ending| self.kept.begin_to_forget(&ending.volume.spec));
        let kept = self.keep_all_removed(&names, &self.targets_without(&names));
        self.expiry.note_kept(kept.is_ok(), Instant::now());
        if let Err(error) = &kept {
            names.iter().for_each(|name| self.kept.end_forgetting(name));
            // What it has under way, which may be a copy of terabytes, does not wait until there is room on a disk.
            names.iter().filter_map(|name| self.find(name)).for_each(|(_, unit)| unit.revoke());
            let (count, is_one) = (names.len(), names.len() == 1);
            let volumes = if is_one { format!("volume {first}") } else { format!("{count} volumes, as {first},") };
            tracing::error!("{volumes} whose time is over cannot be used, and stand in the list on: {error}");
        }
        kept.is_ok()
    }

    fn take_out_ended(&mut self, ending: &[Ending]) {
        let names: BTreeSet<&str> = ending.iter().map(Ending::name).collect();
        // One that is configured is the same volume when it comes again, with what was reserved of it and what its program remembers.
        let missing = ending.iter().filter(|ending| !ending.is_forgotten()).map(|Ending { volume, until, .. }| {
            let reason = format!("its time was over at {until}: give it a later `until`, and reload");
            MissingVolume { volume: volume.clone(), units: self.units_of(&volume.spec.name), reason }
        });
        let missing: Vec<MissingVolume> = missing.collect();
        self.kept.missing.extend(missing);
        for ending in ending {
            let (name, parent, until) = (ending.name(), ending.parent(), &ending.until);
            tracing::warn!(
                "volume {name}, which is derived from {parent}, is not served any more: its time was over at {until}"
            );
        }
        // Also where its targets cannot be changed: it is gone for them too.
        if let Err(error) = self.serve_targets(self.targets_without(&names)) {
            tracing::error!("targets have volumes on whose time is over, and which cannot be used: {error}");
        }
        self.begin_to_close_all(names.into_iter().map(str::to_owned).collect());
        for ending in ending {
            if ending.is_forgotten() {
                self.target.forget_derived(&ending.volume.spec);
                self.kept.end_forgetting(ending.name());
            }
            self.note_expired(&ending.volume.spec, ending.until.clone());
        }
    }

    fn note_expired(&self, spec: &VolumeSpec, until: String) {
        let (volume, parent) = (spec.name.to_string(), parent_of(spec));
        self.target.events().note(Happening::DvdExpired { volume, parent, until });
    }

    /// The numbers of a volume in iSCSI targets.
    fn units_of(&self, name: &str) -> Vec<(String, Lun)> {
        let with_unit = self.target.targets_with(name);
        let units = with_unit.iter().flat_map(|target| {
            let own = target.units.iter().filter(|(_, unit)| *unit == name);
            own.map(|(lun, _)| (target.name.to_string(), *lun))
        });
        units.collect()
    }

    /// The targets that have any of these volumes, without them; those that have nothing left go.
    fn targets_without(&self, names: &BTreeSet<&str>) -> TargetChanges {
        let mut targets = BTreeMap::<IscsiName, TargetNodeConfig>::new();
        for target in names.iter().flat_map(|name| self.target.targets_with(name)) {
            targets.entry(target.name.clone()).or_insert(target);
        }
        let without = |(name, mut target): (IscsiName, TargetNodeConfig)| {
            target.units.retain(|_, unit| !names.contains(unit.as_str()));
            let stays = !target.units.is_empty() || target.stays_empty();
            (name, stays.then_some(target))
        };
        targets.into_iter().map(without).collect()
    }

    /// Begins to wait until those may be forgotten whose time was over before this run began.
    pub(in crate::manage) fn await_forgetting(&mut self) {
        if self.kept.missing.iter().any(|missing| is_over(&missing.volume)) {
            self.expiry.await_forgetting();
        }
    }

    /// Forgets volumes that were derived while an earlier run went on, and whose time was over before this one began, with those that were
    /// derived from them.
    pub(in crate::manage) fn forget_over(&mut self) {
        self.expiry.forget_at = None;
        let mut names: BTreeSet<String> = BTreeSet::new();
        loop {
            let is_of_those = |volume: &VolumeConfig| {
                let is_below = volume.spec.parent().is_some_and(|parent| names.contains(parent));
                is_over(volume) || is_below && volume.origin == Origin::Management
            };
            let missing = self.kept.missing.iter().map(|missing| &missing.volume);
            let more: Vec<String> = missing
                .filter(|volume| !names.contains(&*volume.spec.name) && is_of_those(volume))
                .map(|volume| volume.spec.name.to_string())
                .collect();
            if more.is_empty() {
                break;
            }
            names.extend(more);
        }
        let is_gone = |missing: &mut MissingVolume| names.contains(&*missing.volume.spec.name);
        let gone: Vec<MissingVolume> = self.kept.missing.extract_if(.., is_gone).collect();
        if gone.is_empty() {
            return;
        }
        gone.iter().for_each(|gone| self.kept.begin_to_forget(&gone.volume.spec));
        let kept = self.keep_targets(&self.target.exports());
        if let Err(error) = kept {
            tracing::error!("volumes whose time is over cannot be forgotten: {error}");
            gone.iter().for_each(|gone| self.kept.end_forgetting(&gone.volume.spec.name));
            self.kept.missing.extend(gone);
            self.expiry.await_forgetting();
            return;
        }
        for MissingVolume { volume, reason, .. } in gone {
            tracing::warn!("volume {}, which was derived by ctl, is forgotten: {reason}", volume.spec.name);
            self.target.forget_derived(&volume.spec);
            self.kept.end_forgetting(&volume.spec.name);
            let until = DerivedSpec::of(&volume.spec).and_then(|derived| derived.until).map(|until| until.to_string());
            self.note_expired(&volume.spec, until.unwrap_or_default());
        }
    }
}

/// Whether it does not come again, since its time is over.
fn is_over(volume: &VolumeConfig) -> bool {
    let derived = DerivedSpec::of(&volume.spec).filter(|_| volume.origin == Origin::Management);
    derived.is_some_and(DerivedSpec::is_over)
}
