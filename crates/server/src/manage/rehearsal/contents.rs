//! Snapshots, clones and rollbacks that are only looked at.

use super::told;
use crate::manage::contents::names_of;
use crate::manage::slow::Step;
use crate::manage::usage::Way;
use crate::manage::{ManageError, Manager};

impl Manager {
    pub(super) fn rehearse_snapshots(
        &self,
        volumes: &[String],
        name: &str,
        protected: bool,
    ) -> Result<Step, ManageError> {
        let (_hold, taken) = self.begin_to_take(volumes, name)?;
        let protected = if protected { ", and protected" } else { "" };
        Ok(told(format!("the snapshot {} would be taken{protected}", names_of(&taken))))
    }

    pub(super) fn rehearse_protection(&self, snapshot: &str, protected: bool) -> Result<Step, ManageError> {
        let (id, pool, _hold) = self.hold_snapshot_alone(snapshot, "getting a snapshot protected")?;
        pool.check_protection(&id, protected)?;
        let would = if protected { "would be protected" } else { "would not be protected any more" };
        Ok(told(format!("snapshot {id} {would}")))
    }

    pub(super) fn rehearse_deletion_of_snapshot(&self, snapshot: &str) -> Result<Step, ManageError> {
        let (id, ..) = self.begin_to_delete_snapshot(snapshot)?;
        Ok(told(format!("snapshot {id} would be deleted")))
    }

    pub(super) fn rehearse_clone(&self, snapshot: &str, name: &str, target: Option<&str>) -> Result<Step, ManageError> {
        let begun = self.begin_to_clone(snapshot, name)?;
        let (place, _) = self.place_of(&begun.spec, target)?;
        Ok(told(format!("volume {name} would be served{place}, and hold what the snapshot {} does", begun.id)))
    }

    pub(super) fn rehearse_rollback(
        &self,
        snapshot: &str,
        force: bool,
        keep: Option<&str>,
    ) -> Result<Step, ManageError> {
        let (rollback, _hold) = self.begin_to_roll_back(snapshot, force, keep)?;
        let volume = rollback.id.volume.clone();
        let kept = rollback.keep.map(|keep| format!(", and what it holds would become the snapshot {keep}"));
        let kept = kept.unwrap_or_default();
        let step = told(format!("volume {volume} would hold what the snapshot {} does{kept}", rollback.id));
        let is_asked = !force && rollback.content.unit.is_some();
        Ok(if is_asked { self.when_unused(&volume, Way::Any, |_| Ok(step)) } else { step })
    }
}
