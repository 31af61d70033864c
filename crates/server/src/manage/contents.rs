//! Snapshots of volumes, and what is made of them.

use std::sync::Arc;

use sanwire_store::{Acceptance, VolumeSpec};

use super::adding::Addition;
use super::busy::Hold;
use super::capturing::{Content, Rollback, take};
use super::slow::Step;
use super::usage::Way;
use super::{Answer, ManageError, Manager};
use crate::events::Happening;
use crate::pools::{Pool, PoolError, Room, SnapshotId};

impl Manager {
    /// The snapshots of a volume, or all.
    pub(super) fn snapshots(&self, volume: Option<&str>) -> Result<Answer, ManageError> {
        if let Some(volume) = volume
            && self.target.pools().iter().all(|pool| pool.snapshots(Some(volume)).is_empty())
        {
            self.content(volume)?;
        }
        Ok(Answer::Snapshots(self.target.pools().iter().flat_map(|pool| pool.snapshots(volume)).collect()))
    }

    /// Takes a snapshot of each of these volumes, all as they are at one moment.
    pub(super) fn take_snapshots(
        &mut self,
        volumes: &[String],
        name: &str,
        protected: bool,
    ) -> Result<Step, ManageError> {
        let (hold, taken) = self.begin_to_take(volumes, name)?;
        let names = names_of(&taken);
        let (what, hold) = (format!("taking the snapshot {names}"), Arc::new(hold));
        let (held, ids) = (Arc::clone(&hold), taken.iter().map(|(_, id)| id.clone()).collect::<Vec<_>>());
        Ok(Step::slow_awaited(
            what,
            move || take(&taken, protected, &held),
            move |manager, done| {
                let _hold = hold;
                done?;
                let happened = |SnapshotId { volume, name: snapshot }| Happening::SnapshotTaken { volume, snapshot };
                ids.into_iter().map(happened).for_each(|what| manager.target.events().note(what));
                Ok(Step::Done(Answer::Changed(vec![format!("snapshot {names} is taken")])))
            },
        ))
    }

    /// What of that is refused before anything is begun.
    pub(super) fn begin_to_take(
        &self,
        volumes: &[String],
        name: &str,
    ) -> Result<(Hold, Vec<(Content, SnapshotId)>), ManageError> {
        let mut hold = self.busy.begin();
        let mut taken = Vec::new();
        for volume in volumes {
            hold.add_for_snapshot(volume, "getting a snapshot")?;
            let (content, id) = (self.content(volume)?, SnapshotId::new(volume, name)?);
            content.pool.check_new_snapshot(&id)?;
            taken.push((content, id));
        }
        match taken.is_empty() {
            true => Err(PoolError::SnapshotName(format!("@{name}")).into()),
            false => Ok((hold, taken)),
        }
    }

    /// A snapshot is not deleted from now on, or can be again.
    pub(super) fn protect_snapshot(&mut self, snapshot: &str, protected: bool) -> Result<Step, ManageError> {
        let (id, pool, hold) = self.hold_snapshot_alone(snapshot, "getting a snapshot protected")?;
        let work = {
            let id = id.clone();
            move || pool.protect_snapshot(&id, protected)
        };
        Ok(Step::slow("writing the catalogue of the pool", work, move |_, done| {
            let _hold = hold;
            let line = if protected { "is protected" } else { "is not protected any more" };
            let lines = done?.then(|| format!("snapshot {id} {line}")).into_iter().collect();
            Ok(Step::Done(Answer::Changed(lines)))
        }))
    }

    pub(super) fn delete_snapshot(&mut self, snapshot: &str) -> Result<Step, ManageError> {
        let (id, pool, hold) = self.begin_to_delete_snapshot(snapshot)?;
        let deleted = id.clone();
        Ok(Step::slow_awaited(
            format!("deleting {id}"),
            move || pool.delete_snapshot(&deleted),
            move |manager, done| {
                let _hold = hold;
                done?;
                let line = format!("snapshot {id} is deleted");
                let SnapshotId { volume, name: snapshot } = id;
                manager.target.events().note(Happening::SnapshotDeleted { volume, snapshot });
                Ok(Step::Done(Answer::Changed(vec![line])))
            },
        ))
    }

    pub(super) fn begin_to_delete_snapshot(
        &self,
        snapshot: &str,
    ) -> Result<(SnapshotId, Arc<Pool>, Hold), ManageError> {
        let (id, pool, hold) = self.hold_snapshot_alone(snapshot, "losing a snapshot")?;
        self.check_not_served(&pool, |served| served == id.to_string())?;
        pool.check_snapshot_deletion(&id)?;
        Ok((id, pool, hold))
    }

    /// Serves a new volume that holds what a snapshot does.
    pub(super) fn clone_snapshot(
        &mut self,
        snapshot: &str,
        name: &str,
        target: Option<String>,
    ) -> Result<Step, ManageError> {
        let BegunClone { hold, id, pool, spec, size_bytes, room } = self.begin_to_clone(snapshot, name)?;
        let (name, source) = (name.to_owned(), Arc::clone(&pool));
        let making = (id.clone(), name.clone());
        let work = move || source.make_clone(&making.0, &making.1);
        Ok(Step::slow_awaited(format!("cloning {snapshot}"), work, move |manager, made: Result<(), PoolError>| {
            made?;
            room.into_iter().for_each(|room| room.settle(size_bytes));
            let (events, made) = (manager.target.events().clone(), name.clone());
            let undo = move || undo_clone(&pool, &name);
            let done = move || {
                events.note(Happening::Cloned { volume: made, source: id.volume, snapshot: id.name });
            };
            let addition = Addition { spec, target, acceptance: Acceptance::Renewed, condition: None, by: None };
            Ok(manager.add_made(addition, hold, done, undo))
        }))
    }

    /// What of that is refused before anything is made.
    pub(super) fn begin_to_clone(&self, snapshot: &str, name: &str) -> Result<BegunClone, ManageError> {
        let mut hold = self.busy.hold(name, "being cloned from a snapshot")?;
        if self.find(name).is_some() {
            return Err(ManageError::Taken(name.to_owned()));
        }
        let id: SnapshotId = snapshot.parse()?;
        hold.add(&id.volume, "being cloned")?;
        let pool = self.pool_of_snapshot(&id)?;
        if pool.has(name) {
            return Err(PoolError::ContentExists { pool: pool.name().to_owned(), volume: name.to_owned() }.into());
        }
        let size_bytes = pool.snapshot_bytes(&id)?;
        let spec = self.spec_of_clone(&pool, &id, name, size_bytes)?;
        let room = self.target.pools().take_room_of(&spec, size_bytes)?;
        Ok(BegunClone { hold, id, pool, spec, size_bytes, room })
    }

    /// Replaces the content of a volume by that of its snapshot; what it holds becomes the snapshot `keep`, if that is said.
    pub(super) fn roll_back(&mut self, snapshot: &str, force: bool, keep: Option<&str>) -> Result<Step, ManageError> {
        let (rollback, hold) = self.begin_to_roll_back(snapshot, force, keep)?;
        if force || rollback.content.unit.is_none() {
            return Ok(self.roll_back_now(rollback, hold));
        }
        let volume = rollback.id.volume.clone();
        Ok(self.when_unused(&volume, Way::Any, move |manager| Ok(manager.roll_back_now(rollback, hold))))
    }

    /// What of that is refused whoever uses the volume, or has not come back to it.
    pub(super) fn begin_to_roll_back(
        &self,
        snapshot: &str,
        force: bool,
        keep: Option<&str>,
    ) -> Result<(Rollback, Hold), ManageError> {
        let (id, pool, hold) = self.hold_snapshot(snapshot, "being rolled back")?;
        let content = self.content(&id.volume)?;
        self.check_unprotected(&id.volume, &pool)?;
        pool.check_rollback(&id)?;
        let keep = keep.map(|name| SnapshotId::new(&id.volume, name)).transpose()?;
        keep.iter().try_for_each(|keep| pool.check_new_snapshot(keep))?;
        if pool.snapshot_bytes(&id)? > pool.length_bytes(&id.volume) {
            return Err(PoolError::Shorter { snapshot: id.to_string(), volume: id.volume }.into());
        }
        let check_unused = if force { None } else { self.check_unused_later(&id.volume) };
        let rollback = Rollback { content, id, keep, check_unused };
        if !force && rollback.content.unit.is_some() {
            self.check_nobody_lost(&rollback.id.volume)?;
        }
        Ok((rollback, hold))
    }

    fn roll_back_now(&mut self, rollback: Rollback, hold: Hold) -> Step {
        let (snapshot, volume) = (rollback.id.to_string(), rollback.id.volume.clone());
        let (hold, name) = (Arc::new(hold), rollback.id.name.clone());
        let held = Arc::clone(&hold);
        // Writes wait since one that could not be ended.
        let waiting = self.stuck.remove(&volume);
        let work = move || rollback.run(waiting, &held);
        Step::slow_awaited(format!("rolling back to {snapshot}"), work, move |manager, (done, stuck)| {
            let _hold = hold;
            if let Some(stuck) = stuck {
                manager.stuck.insert(volume.clone(), stuck);
            }
            done?;
            manager.revise_volume(&volume);
            manager.target.events().note(Happening::RolledBack { volume: volume.clone(), snapshot: name });
            Ok(Step::Done(Answer::Changed(vec![format!("volume {volume} holds what the snapshot {snapshot} does")])))
        })
    }

    /// Where the content of a volume is: in a pool.
    pub(super) fn content(&self, volume: &str) -> Result<Content, ManageError> {
        let content = |pool: &Arc<Pool>, unit| Content { volume: volume.to_owned(), pool: Arc::clone(pool), unit };
        if let Some((_, unit)) = self.find(volume) {
            let spec = self.volumes.get(volume).map(|volume| &volume.spec);
            let pool = spec.filter(|spec| is_own(spec)).and_then(|spec| self.target.pools().of(spec));
            return Ok(content(pool.ok_or_else(|| PoolError::NotInPool(volume.to_owned()))?, Some(unit)));
        }
        let pool = self.target.pools().having(volume)?;
        pool.map(|pool| content(pool, None)).ok_or_else(|| ManageError::NoVolume(volume.to_owned()))
    }

    /// The pool of a snapshot: that of its volume, if that is served.
    pub(super) fn pool_of_snapshot(&self, id: &SnapshotId) -> Result<Arc<Pool>, ManageError> {
        let of_volume = self.content(&id.volume).ok().map(|content| content.pool);
        let of_volume = of_volume.filter(|pool| pool.has(&id.to_string()));
        let found = of_volume.map_or_else(
            || self.target.pools().having(&id.to_string()).map(|pool| pool.cloned()),
            |pool| Ok(Some(pool)),
        )?;
        found.ok_or_else(|| PoolError::NoSnapshot(id.to_string()).into())
    }

    /// A snapshot, its pool, and its volume, which is not changed meanwhile.
    fn hold_snapshot(&self, snapshot: &str, what: &'static str) -> Result<(SnapshotId, Arc<Pool>, Hold), ManageError> {
        let id: SnapshotId = snapshot.parse()?;
        let hold = self.busy.hold(&id.volume, what)?;
        let pool = self.pool_of_snapshot(&id)?;
        Ok((id, pool, hold))
    }

    /// The same where only the snapshot is changed: the copies of its volume may be compared meanwhile.
    pub(super) fn hold_snapshot_alone(
        &self,
        snapshot: &str,
        what: &'static str,
    ) -> Result<(SnapshotId, Arc<Pool>, Hold), ManageError> {
        let id: SnapshotId = snapshot.parse()?;
        let hold = self.busy.hold_for_snapshot(&id.volume, what)?;
        let pool = self.pool_of_snapshot(&id)?;
        Ok((id, pool, hold))
    }

    pub(super) fn check_unprotected(&self, volume: &str, pool: &Pool) -> Result<(), ManageError> {
        match pool.protects(volume) || self.volumes.get(volume).is_some_and(|volume| volume.spec.protected) {
            true => Err(PoolError::Protected(format!("volume {volume}")).into()),
            false => Ok(()),
        }
    }

    /// Refuses what would take a snapshot away from a volume that is served from it.
    pub(super) fn check_not_served(&self, pool: &Pool, is_meant: impl Fn(&str) -> bool) -> Result<(), ManageError> {
        let missing = self.kept.missing.iter().map(|missing| &missing.volume);
        for volume in self.volumes.values().chain(missing) {
            let place = volume.spec.pool().filter(|place| place.pool.as_deref() == Some(pool.name()));
            let snapshot = place.and_then(|place| place.snapshot.as_deref()).filter(|snapshot| is_meant(snapshot));
            if let Some(snapshot) = snapshot {
                let (snapshot, volume) = (snapshot.to_owned(), volume.spec.name.to_string());
                return Err(PoolError::SnapshotServed { snapshot, volume }.into());
            }
        }
        Ok(())
    }

    /// What is made of a snapshot: as its volume is, where that is served.
    fn spec_of_clone(
        &self,
        pool: &Pool,
        id: &SnapshotId,
        name: &str,
        size_bytes: u64,
    ) -> Result<VolumeSpec, ManageError> {
        let store = format!("pool:{}", pool.name());
        let Some(volume) = self.volumes.get(&id.volume) else {
            return Ok(format!("{name}={store},size={size_bytes}").parse()?);
        };
        let spec = volume.spec.clone().with_protected(false);
        if spec.below_layers().is_some() {
            // What is said of that store is not said of the pool.
            return Ok(self.target.pools().place(spec.cloned_in_pool(name, pool.name(), size_bytes)?)?);
        }
        let spec = spec.with_size(size_bytes);
        Ok(self.target.pools().place(spec.with_name_and_store(name, &store)?)?)
    }
}

/// A clone that is to be made.
pub(super) struct BegunClone {
    hold: Hold,
    pub(super) id: SnapshotId,
    pool: Arc<Pool>,
    pub(super) spec: VolumeSpec,
    size_bytes: u64,
    room: Option<Room>,
}

/// The snapshots that are taken, for people.
pub(super) fn names_of(taken: &[(Content, SnapshotId)]) -> String {
    taken.iter().map(|(_, id)| id.to_string()).collect::<Vec<_>>().join(", ")
}

/// Whether it is the content of a volume itself.
fn is_own(spec: &VolumeSpec) -> bool {
    spec.pool().is_some_and(|place| place.snapshot.is_none())
}

/// What was made for a volume that is not served after all goes.
fn undo_clone(pool: &Pool, volume: &str) {
    if let Err(error) = pool.begin_to_delete(volume, false).and_then(|()| pool.delete(volume)) {
        tracing::error!(
            "{error}; what was made of volume {volume} is there, and not served: see `sanwire ctl delete-volume`"
        );
    }
}

#[cfg(test)]
mod tests;
