//! A server becomes what its configuration says: what was changed while it ran is forgotten.

use std::collections::{BTreeMap, BTreeSet};

use sanwire_core::Lun;

use super::access::PortState;
use super::busy::Hold;
use super::deviations::deviations;
use super::keeping::not_kept;
use super::usage::Way;
use super::{Deviation, ManageError, Manager};
use crate::config::VolumeConfig;
use crate::counting::User;
use crate::kept::ChangesFile;

impl Manager {
    /// What a reset would make of each thing that is not as it is configured, a line for each.
    /// Those of volumes that stay as they are, by their names, are told elsewhere.
    pub(super) fn would_forget(&self, stay: &BTreeSet<String>) -> Vec<String> {
        let mut deviations = deviations(&self.kept.changes(), self.target.clients());
        deviations.retain(|Deviation { resource, name, .. }| resource != "volume" || !stay.contains(name));
        let line = |Deviation { resource, name, configured, now }: Deviation| {
            let now = now.unwrap_or_else(|| "removed".into());
            let configured = configured.unwrap_or_else(|| "not there".into());
            format!("{resource} {name}, which ctl has changed ({now}), would be as configured ({configured})")
        };
        deviations.into_iter().map(line).collect()
    }

    /// Puts what is kept aside, before it is forgotten. Where nothing is, or only what an earlier reset could not bring back, what that
    /// has put aside stays there.
    ///
    /// # Errors
    /// [`ManageError`] when that cannot be done.
    pub(super) fn put_changes_aside(&self) -> Result<(), ManageError> {
        let is_aside = |file: &&ChangesFile| self.kept.changes().are_within(&file.load_aside().unwrap_or_default());
        if let Some(file) = self.kept.file.as_ref().filter(|file| !is_aside(file)) {
            file.put_aside().map_err(|source| not_kept(file, source))?;
        }
        Ok(self.target.clients().put_changes_aside()?)
    }

    /// Puts all groups of ports into the state in which they begin; what has changed, for people.
    pub(super) fn reset_access_states(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        for (place, groups) in std::mem::take(&mut self.kept.access_states) {
            for group in groups.into_keys() {
                if self.apply_access_state(&place, group, PortState::ActiveOptimized) {
                    lines.push(super::access::changed(&place, group));
                }
            }
        }
        lines
    }

    /// Volumes in use whose numbers a reset changes, a line for each.
    pub(super) fn renumbered_in_use(&self, users: &[User], wanted: &[VolumeConfig]) -> Vec<String> {
        let is_used = |name: &str| {
            let users = self.users_of(users, name, &Way::HyperScsi);
            (!users.is_empty()).then(|| super::usage::in_use(name, &users))
        };
        self.renumbered(wanted).filter_map(|(_, name)| is_used(name)).collect()
    }

    /// The volumes that have other numbers than these, with theirs.
    pub(super) fn renumbered<'a>(&'a self, wanted: &'a [VolumeConfig]) -> impl Iterator<Item = (Lun, &'a str)> {
        let has_other = |volume: &&VolumeConfig| {
            self.volumes.get(&*volume.spec.name).is_some_and(|served| served.lun != volume.lun)
        };
        wanted.iter().filter(has_other).map(|volume| (volume.lun, &*volume.spec.name))
    }

    /// Gives the volumes that the reset holds the numbers that they are configured to have; what has changed, for people.
    pub(super) fn renumber_as_configured(&mut self, held: &Hold) -> Vec<String> {
        let configured = std::sync::Arc::clone(&self.kept.configured);
        let wanted = self.renumbered(&configured.volumes).filter(|(_, name)| held.has(name));
        let wanted = wanted.map(|(lun, name)| (lun, name.to_owned()));
        let (mut wanted, mut lines): (BTreeMap<Lun, String>, _) = (wanted.collect(), Vec::new());
        let luns: Vec<Lun> = wanted.keys().copied().collect();
        for lun in luns {
            self.fill_number(lun, &mut wanted, &mut lines);
        }
        // What is left goes round in circles, or is kept from a number by a volume that stays.
        while let Some((lun, name)) = wanted.first_key_value().map(|(lun, name)| (*lun, name.clone())) {
            let occupant = self.target.units().get(lun).map(|unit| unit.identity().name().to_owned());
            let goes = occupant.filter(|occupant| wanted.values().any(|other| other == occupant));
            let aside = self.target.units().free_numbers(|lun| self.is_coming(lun)).next();
            if let (Some(occupant), Some(aside)) = (goes, aside)
                && self.renumber_unkept(&occupant, lun, aside)
            {
                self.fill_number(lun, &mut wanted, &mut lines);
            }
            if wanted.remove(&lun).is_some() {
                lines.push(format!("not changed: volume {name}: its number {lun} is taken"));
            }
        }
        lines
    }

    /// Gives a number to the volume that is to have it, that one's to the next, and so on, as far as they are free.
    fn fill_number(&mut self, mut lun: Lun, wanted: &mut BTreeMap<Lun, String>, lines: &mut Vec<String>) {
        while !self.is_taken(lun)
            && let Some(name) = wanted.remove(&lun)
            && let Some(from) = self.volumes.get(&name).map(|volume| volume.lun)
            && self.renumber_unkept(&name, from, lun)
        {
            lines.push(format!("volume {name} is logical unit {lun} now"));
            lun = from;
        }
    }
}

#[cfg(test)]
mod tests;
