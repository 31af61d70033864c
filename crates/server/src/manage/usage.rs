//! Who uses the volumes, so that none is taken away from under a host that has it mounted.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::Duration;

use sanwire_device::LogicalUnit;

use super::difference::Difference;
use super::{ManageError, Manager};
use crate::counting::{Access, User};
use crate::front::hyperscsi::clients::Prospect;
use crate::front::iscsi::target_node::TargetNodeConfig;
use crate::past_uses::Host;

/// Users that a refusal names.
const NAMED_MAX: usize = 4;

/// How long sessions that are just ending may take for it.
const ENDING: Duration = Duration::from_millis(200);

/// By which way users have a volume that is to be taken away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way<'a> {
    /// Whichever.
    Any,
    /// HyperSCSI.
    HyperScsi,
    /// An iSCSI target.
    Target(&'a str),
}

impl Way<'_> {
    /// Whether it is that of users of this iSCSI target; `None` of those over HyperSCSI.
    fn leads(self, target: Option<&str>) -> bool {
        match self {
            Way::Any => true,
            Way::HyperScsi => target.is_none(),
            Way::Target(name) => target == Some(name),
        }
    }
}

impl Manager {
    /// Refuses to take a volume away from those who use it: sessions that are there, and have sent it more than commands by which one
    /// looks around.
    pub(super) fn check_unused(&self, volume: &str, way: Way<'_>) -> Result<(), ManageError> {
        let users = self.seen_twice(|users| self.users_of(users, volume, way))?;
        if users.is_empty() { Ok(()) } else { Err(ManageError::InUse { name: volume.into(), users: named(&users) }) }
    }

    /// What is found among the users, unless it is gone a moment later: sessions that are just ending use nothing any more.
    fn seen_twice(&self, find: impl Fn(&[User]) -> Vec<String>) -> Result<Vec<String>, ManageError> {
        let found = find(&self.users()?);
        if found.is_empty() {
            return Ok(found);
        }
        thread::sleep(ENDING);
        Ok(find(&self.users()?))
    }

    /// Volumes that a new configuration would take away from their users, a line for each.
    pub(super) fn taken_away(
        &self,
        difference: &Difference,
        prospect: &Prospect<'_>,
        after: &[TargetNodeConfig],
    ) -> Result<Vec<String>, ManageError> {
        let mut lines = self.taken_from_all(difference, after)?;
        lines.extend(self.taken_from_clients(prospect, &difference.removed)?);
        Ok(lines)
    }

    /// Volumes that go, or units of targets that do.
    fn taken_from_all(&self, difference: &Difference, after: &[TargetNodeConfig]) -> Result<Vec<String>, ManageError> {
        let before = self.target.exports();
        let removed: BTreeSet<&str> = difference.removed.iter().map(String::as_str).collect();
        let kept = |volume: &str| !removed.contains(volume);
        let mut taken: Vec<_> = removed.iter().map(|volume| (*volume, Way::Any)).collect();
        let after: BTreeMap<_, _> = after.iter().map(|export| (&export.name, export)).collect();
        for export in &before {
            let now = after.get(&export.name);
            // Its sessions are asked to go on elsewhere, and may finish here.
            if now.is_some_and(|now| now.redirect.is_some()) {
                continue;
            }
            let is_there = |lun, volume| now.is_some_and(|now| now.units.get(lun) == Some(volume));
            let gone = export.units.iter().filter(|(lun, volume)| !is_there(lun, volume) && kept(volume));
            taken.extend(gone.map(|(_, volume)| (volume.as_str(), Way::Target(export.name.as_str()))));
        }
        if taken.is_empty() {
            return Ok(Vec::new());
        }
        self.seen_twice(|all| {
            let used = taken.iter().filter_map(|(volume, way)| {
                let users = self.users_of(all, volume, *way);
                (!users.is_empty()).then(|| in_use(volume, &users))
            });
            used.collect()
        })
    }

    /// Volumes that clients use and would not see any more, or could not write to, but for those that are `removed`, a line for
    /// each.
    pub(super) fn taken_from_clients(
        &self,
        prospect: &Prospect<'_>,
        removed: &[String],
    ) -> Result<Vec<String>, ManageError> {
        let takes = |user: &User, disk: &LogicalUnit| match user.access {
            Access::HyperScsi { client, peer, is_read_only } => {
                let may_write = !is_read_only && !disk.store().geometry().read_only;
                let volume = disk.identity().name();
                prospect.hides(volume, client, peer) || may_write && prospect.silences(volume, client, peer)
            }
            Access::Target(_) => false,
        };
        self.seen_twice(|all| {
            let units = self.target.units().iter().into_iter();
            let used = units.filter_map(|(_, disk)| {
                let volume = disk.identity().name();
                let users = all.iter().filter(|user| user.uses.has(disk.slot()) && takes(user, &disk));
                let is_hidden = |(client, peer)| prospect.hides(volume, client, peer);
                let awaited =
                    self.target.awaited(&disk).into_iter().filter(|host| host.client().is_some_and(is_hidden));
                let users = names(users.map(|user| user.who.clone()).chain(awaited.map(|host| may_return(&host))));
                (!users.is_empty() && !removed.iter().any(|name| name == volume)).then(|| in_use(volume, &users))
            });
            used.collect()
        })
    }

    fn users(&self) -> Result<Vec<User>, ManageError> {
        let counted = self.target.count();
        if counted.len() < self.target.shard_count() {
            return Err(ManageError::Silent);
        }
        Ok(counted.into_iter().flat_map(|shard| shard.users).collect())
    }

    fn users_of(&self, users: &[User], volume: &str, way: Way<'_>) -> Vec<String> {
        let Some((_, disk)) = self.find(volume) else { return Vec::new() };
        let users = users.iter().filter(|user| user.uses.has(disk.slot()) && way.leads(user.access.target()));
        let awaited = self.target.awaited(&disk).into_iter().filter(|host| way.leads(host.target.as_deref()));
        names(users.map(|user| user.who.clone()).chain(awaited.map(|host| may_return(&host))))
    }
}

fn may_return(host: &Host) -> String {
    format!("{}, which was there when the server ended and may come back", host.who)
}

fn names(users: impl Iterator<Item = String>) -> Vec<String> {
    let mut names: Vec<String> = users.collect();
    names.sort();
    names.dedup();
    names
}

fn in_use(volume: &str, users: &[String]) -> String {
    format!("volume {volume} is in use by {}", named(users))
}

/// Some of them by name, and how many there are besides.
fn named(users: &[String]) -> String {
    let (named, others) = users.split_at(users.len().min(NAMED_MAX));
    let named = named.join(", ");
    if others.is_empty() { named } else { format!("{named} and {} others", others.len()) }
}
