//! Changes by those who may change what is in pools only, all or some of them.

use sanwire_store::VolumeSpec;

use super::slow::Step;
use super::targets::target_name;
use super::{ArrayGrowth, Clearing, CopyOrder, DvdEnd, ManageError, Manager, MemberReplacement, NewDvds, Request};
use crate::front::iscsi::target_node::TargetNodeConfig;
use crate::pools::SnapshotId;

/// Where a volume is, or a snapshot.
enum Place {
    /// It is not there: what is asked is refused for that.
    Nowhere,
    Pool(String),
    Elsewhere,
}

impl Request {
    /// Whether it is about what the host has under some path, or a store elsewhere: not a volume of a pool.
    #[must_use]
    pub fn names_host_path(&self) -> bool {
        match self {
            Request::Start { request }
            | Request::Page { request, .. }
            | Request::IfRevision { request, .. }
            | Request::DryRun { request }
            | Request::InPools { request, .. } => request.names_host_path(),
            Request::AddVolume { volume, .. } => !volume.parse::<VolumeSpec>().is_ok_and(|volume| is_in_pool(&volume)),
            Request::LoadVolume { store, .. } => store.is_some(),
            Request::ReplaceMember(_) | Request::CopyOut(_) => true,
            Request::GrowArray(ArrayGrowth { add, .. }) => !add.is_empty(),
            _ => false,
        }
    }
}

impl Manager {
    /// Begins with a request if all that it changes is in these pools, or in any, if there are none named.
    pub(super) fn begin_in_pools(&mut self, pools: &[String], request: Request) -> Result<Step, ManageError> {
        self.check_in_pools(pools, &request)?;
        self.begin(request)
    }

    fn check_in_pools(&self, pools: &[String], request: &Request) -> Result<(), ManageError> {
        use Request as R;
        let check = |place: Place, what: &str| check_place(pools, &place, what);
        match request {
            R::Start { request }
            | R::DryRun { request }
            | R::IfRevision { request, .. }
            | R::InPools { request, .. } => self.check_in_pools(pools, request),
            R::AddVolume { volume, .. } => {
                let spec: VolumeSpec = volume.parse()?;
                let spec = self.target.pools().place(spec)?;
                check(place_of(&spec), &spec.name)
            }
            R::LoadVolume { name, store: Some(_) }
            | R::ReplaceMember(MemberReplacement { name, .. })
            | R::CopyOut(CopyOrder { volume: name, .. }) => check(Place::Elsewhere, name),
            R::GrowArray(ArrayGrowth { name, add }) if !add.is_empty() => check(Place::Elsewhere, name),
            // What is derived from a volume is where that is.
            R::CreateDvd(new) => check(self.place_of_volume(&new.parent)?, &new.parent),
            R::CreateDvds(NewDvds { dvds }) => {
                dvds.iter().try_for_each(|new| check(self.place_of_volume(&new.parent)?, &new.parent))
            }
            R::SetDvd(DvdEnd { name, .. }) | R::RevokeDvd { name } => check(self.place_of_volume(name)?, name),
            R::RemoveVolume { name, .. }
            | R::DeleteVolume { name, .. }
            | R::ResizeVolume { name, .. }
            | R::ScrubVolume { name }
            | R::GrowArray(ArrayGrowth { name, .. })
            | R::EjectVolume { name, .. }
            | R::LoadVolume { name, store: None }
            | R::SetVolume { name, .. }
            | R::ClearReservations(Clearing { name, .. })
            | R::MapVolume { name, .. }
            | R::UnmapVolume { name, .. } => check(self.place_of_volume(name)?, name),
            R::Snapshot { volumes, .. } => volumes.iter().try_for_each(|name| check(self.place_of_volume(name)?, name)),
            R::SetSnapshot { snapshot, .. }
            | R::DeleteSnapshot { snapshot }
            | R::Clone { snapshot, .. }
            | R::Rollback { snapshot, .. } => check(self.place_of_snapshot(snapshot), snapshot),
            R::AddTarget { name, .. } | R::SetTarget { name, .. } | R::RemoveTarget { name, .. }
                if pools.is_empty() =>
            {
                self.check_units(name)
            }
            R::SetClient { client, .. } | R::RemoveClient { client, .. } if pools.is_empty() => {
                self.check_client(client)
            }
            request if !request.is_change() || pools.is_empty() => Ok(()),
            request => {
                let reason = format!("who may change what is in pools only may not ask for {}", request.name());
                Err(ManageError::OutsidePools(reason))
            }
        }
    }

    /// Who sets a target gives others its volumes, or takes them away.
    fn check_units(&self, target: &str) -> Result<(), ManageError> {
        let name = target_name(target)?;
        let volumes = |target: &TargetNodeConfig| target.units.values().cloned().collect::<Vec<_>>();
        // One that was removed has the units with which it is configured when it comes back.
        let there = self.target.look_at_target(&name, volumes);
        let units = there.or_else(|| self.kept.configured.target(&name).map(volumes)).unwrap_or_default();
        // Those that could not be opened come back into it.
        let missing = self.kept.missing.iter().filter(|it| it.units.iter().any(|(of, _)| of == name.as_str()));
        let missing = missing.map(|missing| missing.volume.spec.name.to_string());
        let mut units = units.into_iter().chain(missing);
        units.try_for_each(|volume| check_place(&[], &self.place_of_volume(&volume)?, &volume))
    }

    /// Who manages is an administrator's care: the right is that of one.
    fn check_client(&self, client: &str) -> Result<(), ManageError> {
        match self.target.clients().find(client) {
            Ok(client) if client.manage => Err(ManageError::OutsidePools(format!(
                "client {} may manage the server: only an administrator changes or removes it",
                client.shown()
            ))),
            // What is not there is refused for that.
            _ => Ok(()),
        }
    }

    /// Where a volume is, served or not.
    fn place_of_volume(&self, name: &str) -> Result<Place, ManageError> {
        let missing =
            || self.kept.missing.iter().map(|missing| &missing.volume).find(|volume| *volume.spec.name == *name);
        if let Some(volume) = self.volumes.get(name).or_else(missing) {
            let root = self.ancestors(name).pop().and_then(|root| self.spec_of(&root));
            return Ok(place_of(root.unwrap_or(&volume.spec)));
        }
        let pool = self.target.pools().having(name)?;
        Ok(pool.map_or(Place::Nowhere, |pool| Place::Pool(pool.name().to_owned())))
    }

    fn place_of_snapshot(&self, snapshot: &str) -> Place {
        let pool = snapshot.parse().ok().and_then(|id: SnapshotId| self.pool_of_snapshot(&id).ok());
        pool.map_or(Place::Nowhere, |pool| Place::Pool(pool.name().to_owned()))
    }
}

fn place_of(spec: &VolumeSpec) -> Place {
    let pool = spec.pool().filter(|_| is_in_pool(spec)).and_then(|place| place.pool.clone());
    pool.map_or(Place::Elsewhere, Place::Pool)
}

/// Whether all of a volume is in a pool, and not only layers over something else.
fn is_in_pool(spec: &VolumeSpec) -> bool {
    spec.pool().is_some() && spec.below_layers().is_none()
}

fn check_place(pools: &[String], place: &Place, what: &str) -> Result<(), ManageError> {
    match place {
        Place::Nowhere => Ok(()),
        Place::Pool(pool) if pools.is_empty() || pools.contains(pool) => Ok(()),
        Place::Pool(pool) => {
            Err(ManageError::OutsidePools(format!("{what} is in the pool {pool}, which is not one of yours")))
        }
        Place::Elsewhere => {
            Err(ManageError::OutsidePools(format!("{what} is in no pool, and you may change what is in pools")))
        }
    }
}

#[cfg(test)]
mod tests;
