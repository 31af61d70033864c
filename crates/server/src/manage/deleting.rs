//! Volumes that go with their content.

use super::busy::{DELETED, Hold};
use super::capturing::Content;
use super::slow::{FLUSH_TIMEOUT, Step};
use super::usage::Way;
use super::{Answer, ManageError, Manager};
use crate::events::Happening;
use crate::pools::PoolError;
use crate::removal::Removal;

impl Manager {
    /// Serves a volume no longer, and deletes its content; its snapshots too, if that is said.
    pub(super) fn delete_volume(&mut self, name: &str, force: bool, snapshots: bool) -> Result<Step, ManageError> {
        let (hold, content, derived) = self.begin_to_delete(name, force, snapshots)?;
        if force || content.unit.is_none() {
            return self.delete_now(content, snapshots, &derived, hold);
        }
        let volume = name.to_owned();
        Ok(self.when_unused(name, Way::Any, move |manager| {
            manager.check_has_no_derived(&volume)?;
            manager.delete_now(content, snapshots, &[], hold)
        }))
    }

    /// What of a deletion is refused whoever uses the volume; gives those that are derived from it, too, which go with it.
    pub(super) fn begin_to_delete(
        &self,
        name: &str,
        force: bool,
        snapshots: bool,
    ) -> Result<(Hold, Content, Vec<String>), ManageError> {
        let (hold, derived) = self.begin_to_remove(name, DELETED, force)?;
        if let Some(missing) = self.kept.missing.iter().find(|missing| *missing.volume.spec.name == *name) {
            return Err(ManageError::Missing { name: name.to_owned(), reason: missing.reason.clone() });
        }
        let content = self.content(name)?;
        self.check_unprotected(name, &content.pool)?;
        let of_volume = |served: &str| served.split_once('@').is_some_and(|(volume, _)| volume == name);
        self.check_not_served(&content.pool, of_volume)?;
        content.pool.check_deletion(name, snapshots)?;
        if !force {
            content.pool.check_copied_back(name)?;
        }
        Ok((hold, content, derived))
    }

    /// It is not noted before it is out of service: the note of a volume that stays would delete it some day.
    fn delete_now(
        &mut self,
        content: Content,
        snapshots: bool,
        derived: &[String],
        hold: Hold,
    ) -> Result<Step, ManageError> {
        if content.unit.is_none() {
            return Ok(self.delete_content(content, snapshots, (Vec::new(), None), hold));
        }
        match self.take_out_with(&content.volume, derived)? {
            (Answer::Changed(lines), removal) => Ok(self.delete_content(content, snapshots, (lines, removal), hold)),
            (answer, _) => Ok(Step::Done(answer)),
        }
    }

    /// Deletes the content of a volume that is not served any more; `taken_out`: what has become of that.
    fn delete_content(
        &self,
        content: Content,
        snapshots: bool,
        taken_out: (Vec<String>, Option<Removal>),
        hold: Hold,
    ) -> Step {
        let (mut lines, removal) = taken_out;
        let Content { volume, pool, unit } = content;
        let (name, was_served) = (volume.clone(), unit.is_some());
        // Its store is open as long as it is there.
        drop(unit);
        let state = self.target.state_directory().map(ToOwned::to_owned);
        lines.push(format!("the content of volume {volume} is deleted"));
        let what = format!("deleting the content of {volume}");
        let work = move || {
            // What could not be made stable is deleted all the same.
            let _ = removal.map(|removal| removal.wait(FLUSH_TIMEOUT));
            let lock = (!was_served).then(|| pool.lock(&volume)).transpose();
            let deleted = lock.and_then(|_lock| {
                pool.begin_to_delete(&volume, snapshots)?;
                // A crash from now on leaves the note, and with that it is forgotten once more.
                pool.forget(&volume, state.as_deref());
                pool.delete(&volume)
            });
            deleted.map_err(|source| PoolError::NotDeleted { volume, source: Box::new(source) })
        };
        Step::slow_awaited(what, work, move |manager, done| {
            let _hold = hold;
            done?;
            manager.target.events().note(Happening::ContentDeleted { volume: name });
            Ok(Step::Done(Answer::Changed(lines)))
        })
    }
}
