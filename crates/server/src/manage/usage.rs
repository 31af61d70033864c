//! Who uses the volumes, so that none is taken away from under a host that has it mounted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use sanwire_core::Lun;
use sanwire_device::LogicalUnit;
use sanwire_scsi::vpd::Designator;

use super::capturing::UnusedCheck;
use super::difference::Difference;
use super::slow::Step;
use super::{ManageError, Manager};
use crate::counting::{Counted, User};
use crate::front::hyperscsi::clients::Prospect;
use crate::front::iscsi::target_node::TargetNodeConfig;
use crate::past_uses::Host;

/// Users that a refusal names.
const NAMED_MAX: usize = 4;

/// How long sessions that are just ending may take for it.
pub(super) const ENDING: Duration = Duration::from_millis(200);

/// By which way users have a volume that is to be taken away.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// Whichever.
    Any,
    /// HyperSCSI.
    HyperScsi,
    /// An iSCSI target.
    Target(String),
}

impl Way {
    /// Whether it is that of users of this iSCSI target; `None` of those over HyperSCSI.
    fn leads(&self, target: Option<&str>) -> bool {
        match self {
            Way::Any => true,
            Way::HyperScsi => target.is_none(),
            Way::Target(name) => target == Some(&**name),
        }
    }
}

impl Manager {
    /// Goes on when nobody uses a volume that is to be taken away: a session that is there, and has sent it more than commands by
    /// which one looks around.
    pub(super) fn when_unused(
        &self,
        volume: &str,
        way: Way,
        then: impl FnOnce(&mut Manager) -> Result<Step, ManageError> + Send + 'static,
    ) -> Step {
        let (volume, name) = (volume.to_owned(), volume.to_owned());
        let find = move |manager: &Manager, users: &[User]| manager.users_of(users, &volume, &way);
        Step::seen_twice(self, find, move |manager, users| {
            if users.is_empty() { then(manager) } else { Err(ManageError::InUse { name, users: named(&users) }) }
        })
    }

    /// Volumes that a new configuration would take away from their users, a line for each.
    pub(super) fn taken_away(
        &self,
        users: &[User],
        difference: &Difference,
        prospect: &Prospect<'_>,
        after: &[TargetNodeConfig],
    ) -> Vec<String> {
        let mut lines = self.taken_from_all(users, difference, after);
        lines.extend(self.taken_from_clients(users, prospect, &difference.going()));
        lines
    }

    /// Volumes that go, or units of targets that do.
    fn taken_from_all(&self, all: &[User], difference: &Difference, after: &[TargetNodeConfig]) -> Vec<String> {
        let before = self.target.exports();
        let going = difference.going();
        let removed: BTreeSet<&str> = going.iter().map(String::as_str).collect();
        let kept = |volume: &str| !removed.contains(volume);
        let mut taken: Vec<_> = removed.iter().map(|volume| (*volume, Way::Any)).collect();
        let after: BTreeMap<_, _> = after.iter().map(|export| (&export.name, export)).collect();
        let mut lines = Vec::new();
        for export in &before {
            let now = after.get(&export.name);
            // Its sessions are asked to go on elsewhere, and may finish here.
            if now.is_some_and(|now| now.redirect.is_some()) {
                continue;
            }
            let outcasts = now.map(|now| self.target.outcasts_of(now)).unwrap_or_default();
            let users = users_among(&outcasts.into_iter().collect(), all);
            if !users.is_empty() {
                let users = named(&users);
                lines.push(format!("iSCSI target {} is in use by {users}, who may not use it then", export.name));
            }
            let is_there = |lun, volume| now.is_some_and(|now| now.units.get(lun) == Some(volume));
            let gone = export.units.iter().filter(|(lun, volume)| !is_there(lun, volume) && kept(volume));
            taken.extend(gone.map(|(_, volume)| (volume.as_str(), Way::Target(export.name.to_string()))));
        }
        let used = taken.iter().filter_map(|(volume, way)| {
            let users = self.users_of(all, volume, way);
            (!users.is_empty()).then(|| in_use(volume, &users))
        });
        lines.extend(used);
        lines
    }

    /// Volumes that clients use and would not see any more, or could not write to, but for those that are `removed`, a line for
    /// each.
    pub(super) fn taken_from_clients(&self, all: &[User], prospect: &Prospect<'_>, removed: &[String]) -> Vec<String> {
        let units = self.target.units().iter();
        let by_slot: BTreeMap<u16, &(Lun, Arc<LogicalUnit>)> = units.iter().map(|unit| (unit.1.slot(), unit)).collect();
        let mut taken = BTreeMap::<Lun, (&str, Vec<String>)>::new();
        for user in all {
            #[cfg(test)]
            crate::visits::count(1);
            let outlook = user.host.client().and_then(|(client, peer)| prospect.of(client, peer));
            let Some(outlook) = outlook else { continue };
            for (lun, disk) in user.uses.slots().filter_map(|slot| by_slot.get(&slot)) {
                #[cfg(test)]
                crate::visits::count(1);
                let may_write = !user.is_read_only && !disk.store().geometry().read_only;
                let volume = disk.identity().name();
                if outlook.hides(volume) || may_write && outlook.silences(volume) {
                    taken.entry(*lun).or_insert((volume, Vec::new())).1.push(user.host.who.clone());
                }
            }
        }
        for (host, volumes) in self.target.all_awaited() {
            let outlook = host.client().and_then(|(client, peer)| prospect.of(client, peer));
            let named = volumes.iter().filter_map(|volume| self.target.units().find(&Designator::of_uuid(*volume)));
            for (lun, disk) in named.filter_map(|disk| by_slot.get(&disk.slot())) {
                let volume = disk.identity().name();
                if outlook.as_ref().is_some_and(|outlook| outlook.hides(volume)) {
                    taken.entry(*lun).or_insert((volume, Vec::new())).1.push(may_return(&host));
                }
            }
        }
        let removed: BTreeSet<&str> = removed.iter().map(String::as_str).collect();
        let taken = taken.into_values().filter(|(volume, _)| !removed.contains(volume));
        taken.map(|(volume, users)| in_use(volume, &names(users.into_iter()))).collect()
    }

    /// Who uses volumes, as the shards have counted it.
    ///
    /// # Errors
    /// [`ManageError::Silent`] when a shard has not answered.
    pub(super) fn users(&self, counted: Vec<Counted>) -> Result<Vec<User>, ManageError> {
        if counted.len() < self.target.shard_count() {
            return Err(ManageError::Silent);
        }
        Ok(counted.into_iter().flat_map(|shard| shard.users).collect())
    }

    /// The same as a question that is asked later, without the manager; `None` when the volume is not served.
    pub(super) fn check_unused_later(&self, volume: &str) -> Option<UnusedCheck> {
        let (_, disk) = self.find(volume)?;
        let derived = self.derivations.descendants(volume);
        let slots = derived.iter().filter_map(|name| self.find(name)).map(|(_, disk)| disk.slot());
        let slots: Vec<u16> = slots.chain([disk.slot()]).collect();
        let (counter, shards) = (self.target.counter(), self.target.shard_count());
        let name = volume.to_owned();
        Some(Box::new(move || {
            let counted = counter.count();
            if counted.len() < shards {
                return Err(ManageError::Silent);
            }
            let users = counted.into_iter().flat_map(|shard| shard.users);
            let users = users.filter(|user| slots.iter().any(|slot| user.uses.has(*slot)));
            let users = names(users.map(|user| user.host.who));
            if users.is_empty() { Ok(()) } else { Err(ManageError::InUse { name: name.clone(), users: named(&users) }) }
        }))
    }

    /// Refuses what a host would not notice whose session was lost: when it comes back it goes on with what it has in memory.
    pub(super) fn check_nobody_lost(&self, volume: &str) -> Result<(), ManageError> {
        let derived = self.derivations.descendants(volume);
        let disks = [volume].into_iter().chain(derived.iter().map(String::as_str)).filter_map(|name| self.find(name));
        let lost: Vec<Host> = disks.flat_map(|(_, disk)| self.target.lost(&disk)).collect();
        let may_return = |host: Host| format!("{}, whose connection was lost and which may come back", host.who);
        let users = names(lost.into_iter().map(may_return));
        if users.is_empty() {
            return Ok(());
        }
        Err(ManageError::InUse { name: volume.to_owned(), users: named(&users) })
    }

    /// Who uses a volume by some way; whichever way it is, who uses what is derived from it does.
    pub(super) fn users_of(&self, users: &[User], volume: &str, way: &Way) -> Vec<String> {
        let derived = if *way == Way::Any { self.derivations.descendants(volume) } else { Vec::new() };
        let through = |derived: &String| {
            let users = self.users_of_unit(users, derived, way);
            users.into_iter().map(|user| format!("{user} (by {derived})")).collect::<Vec<_>>()
        };
        let users_of_derived = derived.iter().flat_map(through);
        names(self.users_of_unit(users, volume, way).into_iter().chain(users_of_derived))
    }

    fn users_of_unit(&self, users: &[User], volume: &str, way: &Way) -> Vec<String> {
        let Some((_, disk)) = self.find(volume) else { return Vec::new() };
        let users = users.iter().filter(|user| user.uses.has(disk.slot()) && way.leads(user.host.target.as_deref()));
        let awaited = self.target.awaited(&disk).into_iter().filter(|host| way.leads(host.target.as_deref()));
        names(users.map(|user| user.host.who.clone()).chain(awaited.map(|host| may_return(&host))))
    }
}

/// Those of these ports that use volumes.
pub(super) fn users_among(ports: &BTreeSet<String>, users: &[User]) -> Vec<String> {
    if ports.is_empty() {
        return Vec::new();
    }
    let users = users.iter().filter(|user| !user.uses.is_empty() && ports.contains(&user.host.port));
    names(users.map(|user| user.host.who.clone()))
}

fn may_return(host: &Host) -> String {
    format!("{}, which was there when the server ended and may come back", host.who)
}

pub(super) fn names(users: impl Iterator<Item = String>) -> Vec<String> {
    let mut names: Vec<String> = users.collect();
    names.sort();
    names.dedup();
    names
}

pub(super) fn in_use(volume: &str, users: &[String]) -> String {
    format!("volume {volume} is in use by {}", named(users))
}

/// Some of them by name, and how many there are besides.
pub(super) fn named(users: &[String]) -> String {
    let (named, others) = users.split_at(users.len().min(NAMED_MAX));
    let named = named.join(", ");
    if others.is_empty() { named } else { format!("{named} and {} others", others.len()) }
}

#[cfg(test)]
mod tests {
    use sanwire_core::ClientId;

    use super::super::testing::config;
    use super::*;
    use crate::allow::AllowList;
    use crate::config::ServerConfig;
    use crate::counting::Uses;
    use crate::front::hyperscsi::clients::Change;

    const MANY: u16 = 1000;

    fn client(number: u16) -> ClientId {
        ClientId(u128::from(number).to_be_bytes())
    }

    /// Each uses the volume with its number.
    fn user(number: u16) -> User {
        let port = format!("{},1", client(number));
        let address = Some("203.0.113.9:5674".to_owned());
        let host = Host { port, who: format!("host-{number}"), target: None, address };
        let mut uses = Uses::default();
        uses.set(number);
        User { host, is_read_only: false, uses }
    }

    #[test]
    fn what_is_taken_from_one_client_is_found_without_a_look_at_what_others_use() {
        let volumes: Vec<String> = (0..MANY).map(|number| format!("v{number}=null:1M")).collect();
        let volumes: Vec<&str> = volumes.iter().map(String::as_str).collect();
        let allow = AllowList::new(vec!["any".parse().unwrap()]);
        let config = ServerConfig { allow, ..config(&volumes) };
        let manager = Manager::start(config.clone(), Box::new(move || Ok(config.clone()))).unwrap();
        let users: Vec<User> = (0..MANY).map(user).collect();
        let (clients, id) = (manager.target.clients(), client(77).to_string());
        let visits = crate::visits::during(|| {
            let prospect = clients.foresee(Change::Remove(&id)).unwrap();
            let lines = manager.taken_from_clients(&users, &prospect, &[]);
            assert_eq!(lines, ["volume v77 is in use by host-77"]);
            assert!(manager.taken_from_clients(&users, &prospect, &["v77".to_owned()]).is_empty());
        });
        assert!(visits <= 3 * usize::from(MANY), "{visits}");
        manager.into_target().stop().unwrap();
    }
}
