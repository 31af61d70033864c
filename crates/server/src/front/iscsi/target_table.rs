//! The iSCSI targets of a server, and how one set of them becomes another: what stays the same is not touched.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use sanwire_core::Lun;
use sanwire_device::{LogicalUnit, LogicalUnits};
use sanwire_iscsi::{IscsiName, TargetId};

use crate::front::iscsi::copy_targets::Neighbours;
use crate::front::iscsi::entrance::Entrance;
use crate::front::iscsi::target_node::{TargetNode, TargetNodeConfig, TargetNodeError};
use crate::paged_map::PagedMap;

/// Targets that are to be otherwise than they are, by their names; `None`: there no longer.
pub(crate) type TargetChanges = BTreeMap<IscsiName, Option<TargetNodeConfig>>;

/// Targets whose sessions must learn of a change.
#[derive(PartialEq, Eq, Default, Debug)]
pub(crate) struct Departures {
    /// They are not there any more.
    pub(crate) gone: Vec<TargetId>,
    /// They are elsewhere now.
    pub(crate) moved: Vec<TargetId>,
    /// They are for others now, or by other portals.
    pub(crate) for_others: Vec<TargetId>,
}

/// Units that targets have no longer, and others that they have now.
#[derive(Default, Debug)]
pub(crate) struct MovedUnits {
    pub(crate) gone: Vec<(TargetId, Arc<LogicalUnit>)>,
    pub(crate) new: Vec<(TargetId, Arc<LogicalUnit>)>,
}

/// All that are served, as they are at one moment.
#[derive(Clone, Default, Debug)]
pub(crate) struct TargetNodeTable {
    by_name: PagedMap<IscsiName, Arc<TargetNode>>,
    by_id: PagedMap<TargetId, Arc<TargetNode>>,
    by_entrance: PagedMap<(Entrance, TargetId), ()>,
    next_id: u32,
}

impl TargetNodeTable {
    pub(crate) fn by_name(&self, name: &IscsiName) -> Option<&Arc<TargetNode>> {
        self.by_name.get(name)
    }

    pub(crate) fn by_id(&self, id: TargetId) -> Option<&Arc<TargetNode>> {
        self.by_id.get(&id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<TargetNode>> {
        self.by_name.iter().map(|(_, target)| target)
    }

    /// Those that an initiator of this name at this address may use, and perhaps others, in no order, some of them more than once. Those
    /// of which no rule begins like its name or has its address are not looked at.
    pub(crate) fn candidates(&self, initiator: &IscsiName, address: IpAddr) -> impl Iterator<Item = &Arc<TargetNode>> {
        let anywhere = [Entrance::Anybody, Entrance::Secret, Entrance::Local].into_iter();
        let names = self.has_names().then(|| Entrance::of_name(initiator)).into_iter().flatten();
        anywhere.chain(Entrance::of_address(address)).chain(names).flat_map(|entrance| self.behind(entrance))
    }

    /// Whether some initiator at this address may use one of them.
    pub(crate) fn may_permit(&self, address: IpAddr, is_local: bool) -> bool {
        let has = |entrance: Entrance| self.behind(entrance).next().is_some();
        let anywhere = has(Entrance::Anybody) || has(Entrance::Secret) || is_local && has(Entrance::Local);
        anywhere || self.has_names() || Entrance::of_address(address).any(has)
    }

    /// Whether a rule of one of them says names.
    fn has_names(&self) -> bool {
        let mut names = self.by_entrance.from(&(Entrance::first_name(), FIRST));
        names.next().is_some_and(|((entrance, _), ())| matches!(entrance, Entrance::Name(_)))
    }

    fn behind(&self, entrance: Entrance) -> impl Iterator<Item = &Arc<TargetNode>> {
        let first = (entrance, FIRST);
        let own = self.by_entrance.from(&first).take_while(move |((entrance, _), ())| *entrance == first.0);
        own.filter_map(|((_, target), ())| self.by_id(*target))
    }

    /// By which rules initiators come to a target from now on.
    fn move_entrances(&mut self, target: TargetId, before: &BTreeSet<Entrance>, after: &BTreeSet<Entrance>) {
        for gone in before.difference(after) {
            self.by_entrance.remove(&(gone.clone(), target));
        }
        for new in after.difference(before) {
            self.by_entrance.insert((new.clone(), target), ());
        }
    }

    /// What makes the targets these and no others. One that stays as it is, with all its units, is not among them.
    ///
    /// # Errors
    /// [`TargetNodeError::NameTwice`].
    pub(crate) fn changes_to(&self, configs: Vec<TargetNodeConfig>) -> Result<TargetChanges, TargetNodeError> {
        let mut changes = TargetChanges::new();
        for config in configs {
            let target = config.name.clone();
            if changes.insert(target.clone(), Some(config)).is_some() {
                return Err(TargetNodeError::NameTwice { target });
            }
        }
        let gone = self.iter().map(|target| &target.config.name).filter(|name| !changes.contains_key(name));
        let gone: Vec<_> = gone.map(|name| (name.clone(), None)).collect();
        let is_same = |old: &TargetNode, config: &TargetNodeConfig| old.config == *config && old.stale().is_empty();
        changes.retain(|name, config| {
            !self.by_name(name).zip(config.as_ref()).is_some_and(|(old, new)| is_same(old, new))
        });
        changes.extend(gone);
        Ok(changes)
    }

    /// The units that these changes would bring to targets: each with the target's name.
    pub(crate) fn new_units<'a>(&'a self, changes: &'a TargetChanges) -> Vec<(&'a IscsiName, &'a str)> {
        let configs = changes.values().flatten();
        let new = configs.flat_map(|config| {
            let differences = self.differences(config).into_iter();
            differences.filter_map(|difference| Some((&config.name, difference.after?)))
        });
        new.collect()
    }

    /// The table with these changes. A target that stays keeps its number and its sessions; only the units that differ come
    /// and go. The units of one that is new reach its `neighbours`. Also gives the targets that are gone
    /// or have moved, and the units that have.
    ///
    /// # Errors
    /// [`TargetNodeError`]; then nothing has changed.
    pub(crate) fn with(
        &self,
        changes: TargetChanges,
        volumes: &LogicalUnits,
        neighbours: &Neighbours,
    ) -> Result<(TargetNodeTable, Departures, MovedUnits), TargetNodeError> {
        let plan = |config: Option<&TargetNodeConfig>| {
            config.map_or_else(|| Ok(UnitChanges::default()), |config| self.unit_changes(config, volumes))
        };
        let plans = changes.values().map(|config| plan(config.as_ref())).collect::<Result<Vec<_>, _>>()?;
        let (mut table, mut departures, mut moved) = (self.clone(), Departures::default(), MovedUnits::default());
        for ((name, config), units) in changes.into_iter().zip(plans) {
            let old = self.by_name(&name);
            let before = old.map(|old| Entrance::of_target(&old.config)).unwrap_or_default();
            let Some(config) = config else {
                old.iter().for_each(|old| table.move_entrances(old.id, &before, &BTreeSet::new()));
                table.by_name.remove(&name);
                let units =
                    old.into_iter().flat_map(|old| old.units.iter().into_iter().map(|(_, unit)| (old.id, unit)));
                moved.gone.extend(units);
                departures.gone.extend(old.and_then(|old| table.by_id.remove(&old.id)).map(|old| old.id));
                continue;
            };
            let node = Arc::new(match old {
                Some(old) => old.with(config),
                None => {
                    table.next_id += 1;
                    TargetNode::new(TargetId(table.next_id), config, neighbours.units())
                }
            });
            let redirect = &node.config.redirect;
            let has_moved = redirect.is_some() && old.is_some_and(|old| old.config.redirect != *redirect);
            departures.moved.extend(has_moved.then_some(node.id));
            let is_for_others = old.is_some_and(|old| !old.config.admits_as(&node.config));
            departures.for_others.extend(is_for_others.then_some(node.id));
            let gone = units.gone.iter().filter_map(|lun| Some((node.id, node.units.get(*lun)?)));
            moved.gone.extend(gone);
            moved.new.extend(units.new.iter().map(|(_, unit)| (node.id, Arc::clone(unit))));
            let is_changed = node.units.change(&units.gone, units.new);
            debug_assert!(is_changed.is_ok(), "a target has no more units than there are volumes");
            table.move_entrances(node.id, &before, &Entrance::of_target(&node.config));
            table.by_id.insert(node.id, Arc::clone(&node));
            table.by_name.insert(name, node);
        }
        Ok((table, departures, moved))
    }

    /// What has to be done to the units of a target that is to be so. Those that are the same are not looked up.
    fn unit_changes(&self, config: &TargetNodeConfig, volumes: &LogicalUnits) -> Result<UnitChanges, TargetNodeError> {
        let (old, differences) = (self.by_name(&config.name), self.differences(config));
        let stays = |lun: Lun| differences.binary_search_by_key(&lun, |difference| difference.lun).is_err();
        let (mut changes, mut seen) = (UnitChanges::default(), BTreeSet::new());
        for Difference { lun, before, after } in &differences {
            changes.gone.extend(before.is_some().then_some(*lun));
            let Some(volume) = *after else { continue };
            let elsewhere = old.and_then(|old| old.units.find_named(volume)).is_some_and(|(lun, _)| stays(lun));
            if elsewhere || !seen.insert(volume) {
                return Err(TargetNodeError::VolumeTwice { target: config.name.clone(), volume: volume.to_owned() });
            }
            changes.new.push((*lun, found(config, *lun, volume, volumes)?));
        }
        for lun in old.map(|old| old.stale()).unwrap_or_default().into_iter().filter(|lun| stays(*lun)) {
            let Some(volume) = config.units.get(&lun) else { continue };
            changes.gone.push(lun);
            changes.new.push((lun, found(config, lun, volume, volumes)?));
        }
        Ok(changes)
    }

    /// In which numbers a target that is to be so differs from what it is.
    fn differences<'a>(&'a self, config: &'a TargetNodeConfig) -> Vec<Difference<'a>> {
        let old = self.by_name(&config.name).map_or(&NO_UNITS, |old| &old.config.units);
        differences(old, &config.units)
    }
}

const FIRST: TargetId = TargetId(0);

static NO_UNITS: BTreeMap<Lun, String> = BTreeMap::new();

/// A number that has another volume than before, or none.
struct Difference<'a> {
    lun: Lun,
    before: Option<&'a str>,
    after: Option<&'a str>,
}

/// Ascending by number.
fn differences<'a>(before: &'a BTreeMap<Lun, String>, after: &'a BTreeMap<Lun, String>) -> Vec<Difference<'a>> {
    let (mut before, mut after) = (before.iter().peekable(), after.iter().peekable());
    let mut found = Vec::new();
    while let Some(lun) = [before.peek(), after.peek()].into_iter().flatten().map(|(lun, _)| **lun).min() {
        let [before, after] = [&mut before, &mut after].map(|units| units.next_if(|(at, _)| **at == lun));
        let [before, after] = [before, after].map(|unit| unit.map(|(_, volume)| volume.as_str()));
        if before != after {
            found.push(Difference { lun, before, after });
        }
    }
    found
}

/// The volume that is to be a unit of a target.
fn found(
    target: &TargetNodeConfig,
    lun: Lun,
    volume: &str,
    volumes: &LogicalUnits,
) -> Result<Arc<LogicalUnit>, TargetNodeError> {
    let found = volumes.find_named(volume).map(|(_, unit)| unit);
    found.ok_or_else(|| TargetNodeError::NoVolume { target: target.name.clone(), lun, volume: volume.to_owned() })
}

/// What makes the units of a target what they should be.
#[derive(Default)]
struct UnitChanges {
    gone: Vec<Lun>,
    new: Vec<(Lun, Arc<LogicalUnit>)>,
}
#[cfg(test)]
mod tests;
