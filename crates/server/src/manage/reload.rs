//! A configuration that is read again.

mod derived;

use std::fmt::Display;
use std::sync::Arc;
use std::time::SystemTime;

use sanwire_device::LogicalUnit;
use sanwire_store::{Acceptance, VolumeSpec};

use self::derived::{in_order, missing_orphans, parent_among};
use super::busy::Hold;
use super::conditions::Condition;
use super::difference::{self, Difference};
use super::resizing::Resized;
use super::seeking::Unserved;
use super::slow::{FLUSH_TIMEOUT, Step};
use super::volumes::{Attempt, ComingVolume, Opened};
use super::wanted::{Configuration, Wanted, without};
use super::{Answer, ManageError, Manager};
use crate::config::VolumeConfig;
use crate::counting::User;
use crate::error::StartError;
use crate::events::Happening;
use crate::front::iscsi::target_node::TargetNodeConfig;
use crate::pools::Room;
use crate::removal::Removal;
use crate::server::{MissingVolume, note_units};

/// What a reload has taken: no other one goes on meanwhile, and nothing else is done to its volumes.
struct Holds {
    reload: Hold,
    volumes: Hold,
    /// Whether all is to be as it is configured.
    resets: bool,
}

/// What is left of a reload when all is as it is to be.
#[derive(Default)]
struct Leftovers {
    /// Volumes that are served no longer, and are being made stable.
    removals: Vec<(String, Removal)>,
    /// Volumes whose stores these have.
    renamed: Vec<ComingVolume>,
    /// Volumes that are to be longer.
    longer: Vec<Longer>,
    /// What is to be said besides.
    notes: Vec<String>,
}

/// A volume that is to be longer, and has the room for it.
struct Longer {
    spec: VolumeSpec,
    disk: Arc<LogicalUnit>,
    size_bytes: u64,
    room: Option<Room>,
}

impl Manager {
    /// Brings the server to what the configuration says now, with what was changed while it ran. Without `force` nothing is done
    /// when that takes volumes away from sessions that use them. A reload that `resets` forgets what was changed.
    pub(super) fn reload(
        &mut self,
        force: bool,
        resets: bool,
        condition: Option<Condition>,
    ) -> Result<Step, ManageError> {
        let hold = self.busy.hold_reload()?;
        Ok(self.read_configuration(resets, move |manager, configured| {
            if force {
                return manager.open_wanted(configured, hold, condition, true);
            }
            let wanted = configured.clone();
            manager.wanted(configured.clone()).config.terms().check()?;
            let find = move |manager: &Manager, users: &[User]| manager.taken_by(&wanted, users);
            Ok(Step::seen_twice(manager, find, move |manager, taken| {
                if !taken.is_empty() {
                    return Err(ManageError::TakesAway(taken.join(", ")));
                }
                manager.open_wanted(configured, hold, condition, false)
            }))
        }))
    }

    /// Opens what is new in the configuration, and what could not be opened before.
    fn open_wanted(
        &mut self,
        configured: Configuration,
        reload: Hold,
        condition: Option<Condition>,
        force: bool,
    ) -> Result<Step, ManageError> {
        let Wanted { config: wanted, missing, .. } = self.wanted(configured.clone());
        wanted.terms().check()?;
        let mut difference = Difference::between(self.volumes.values(), &wanted.volumes);
        let mut hold = self.busy.begin();
        let mut names = difference.names();
        if configured.resets {
            names.extend(self.renumbered(&wanted.volumes).map(|(_, name)| name));
        }
        for name in names.into_iter().chain(missing.iter().map(|volume| &*volume.spec.name)) {
            hold.add(name, "being reloaded")?;
        }
        let renamed = difference.take_renamed(self.volumes.values());
        let anew = std::mem::take(&mut difference.derived_anew);
        let behind = difference.take_derived_from(&[renamed.clone(), anew.clone()].concat());
        let mut renamed = self.coming([renamed, behind].concat(), &mut hold)?;
        renamed.extend(self.coming_at(self.as_numbered(anew), &mut hold));
        let renamed = in_order(renamed);
        let new = in_order(self.coming(difference.added, &mut hold)?);
        let sought = in_order(self.coming_at(missing, &mut hold));
        let opener = self.target.volume_opener();
        let open = move || {
            let open = |coming: ComingVolume, before: [&[Attempt]; 2]| {
                let parent = before.into_iter().find_map(|before| parent_among(before, &coming.volume));
                let parent = parent.or_else(|| opener.parent_of(&coming.volume.spec));
                let opened = opener.open_from(parent.as_ref(), &coming.volume, Acceptance::Known, coming.slot);
                (coming, opened)
            };
            let (mut attempts, mut again): (Vec<Attempt>, Vec<Attempt>) = Default::default();
            for coming in new {
                attempts.push(open(coming, [&attempts, &[]]));
                if attempts.last().is_some_and(|(_, opened)| opened.is_err()) {
                    return (attempts, Vec::new());
                }
            }
            for coming in sought {
                again.push(open(coming, [&again, &attempts]));
            }
            (attempts, again)
        };
        // What a reset forgets is what was there when its users were asked for: it takes nothing away that comes while it opens volumes.
        let since = || Condition::of_server(self.target.revisions().look().server());
        let condition = condition.or_else(|| configured.resets.then(since));
        let holds = Holds { reload, volumes: hold, resets: configured.resets };
        Ok(Step::slow("opening volumes", open, move |manager, (new, sought): (Vec<Attempt>, Vec<Attempt>)| {
            let holds_good = condition.map_or(Ok(()), |condition| manager.check(&condition));
            let holds_good =
                holds_good.and_then(|()| if force { Ok(()) } else { manager.check_revokes_none(&configured) });
            if let Err(error) = holds_good {
                manager.give_up_all(new.into_iter().chain(sought));
                return Err(error);
            }
            manager.apply(configured, (new, sought), renamed, holds)
        }))
    }

    /// Puts the configuration in the place of the old one: all of it, or nothing when a `new` volume cannot be served. Those that were
    /// `sought` again may still be missing, and those that are `renamed` are, until their stores are closed.
    fn apply(
        &mut self,
        configured: Configuration,
        (new, sought): (Vec<Attempt>, Vec<Attempt>),
        renamed: Vec<ComingVolume>,
        holds: Holds,
    ) -> Result<Step, ManageError> {
        let Wanted { configured, config: wanted, exports, notes, .. } = self.wanted(configured);
        let terms = wanted.terms();
        let difference = Difference::between(self.volumes.values(), &wanted.volumes);
        let orphans = self.orphans(&difference);
        let (mut opened, mut changed) = match self.put_all(new) {
            Ok(served) => served,
            Err(error) => {
                self.give_up_all(sought);
                return Err(error);
            }
        };
        // Not before: what an earlier reset has put aside stays when this one is refused.
        if let Err(error) = if holds.resets { self.put_changes_aside() } else { Ok(()) } {
            self.give_up_all(sought);
            return Ok(self.take_all_back(opened, error));
        }
        let mut still_missing = self.put_sought(sought, &mut opened, &mut changed);
        still_missing.extend(renamed.iter().map(|coming| coming.volume.clone()));
        let all_exports = exports;
        let orphaned = missing_orphans(&orphans, &wanted.volumes, &all_exports);
        still_missing.extend(orphaned.iter().map(|missing| missing.volume.clone()));
        let exports = without(&all_exports, &still_missing);
        let before = self.target.exports();
        // What may pass in the clear from now on may have a target, and what has none any more need not.
        let (lowered, raised): (Vec<_>, Vec<_>) = difference.secured.iter().partition(|spec| self.is_lower(spec));
        if let Err(error) = self.target.set_exports_where(exports.clone(), &lowered) {
            return Ok(self.take_all_back(opened, error.into()));
        }
        if holds.resets {
            changed.extend(self.reset_access_states());
        }
        self.restore_access_states();
        changed.extend(self.secure_all(&lowered));
        changed.extend(self.protect_as_configured(&difference.protected));
        changed.extend(self.own_as_configured(&difference.owned));
        changed.extend(difference::of_exports(&before, &exports));
        changed.extend(self.configure_clients(terms, holds.resets)?);
        let removals = self.begin_to_close_derived(&difference, &orphans);
        let mut left = Leftovers { removals, ..Leftovers::default() };
        for (name, spec, size_bytes) in difference.resized {
            match self.target.pools().take_room_of(&spec, size_bytes) {
                Ok(room) => {
                    left.longer.extend(self.find(&name).map(|(_, disk)| Longer { spec, disk, size_bytes, room }))
                }
                Err(error) => left.notes.push(format!("not changed: {error}")),
            }
        }
        left.notes.extend(difference.kept.iter().map(unchanged).chain(notes));
        self.has_password = wanted.has_password();
        self.allow = wanted.allow;
        self.drop_missing(&still_missing, &wanted.volumes);
        // Where they are configured to be now, which may be another place than before.
        self.kept.missing.iter_mut().for_each(|missing| missing.units.clear());
        note_units(&mut self.kept.missing, &all_exports);
        self.kept.missing.extend(missing_for_now(&renamed, &all_exports).into_iter().chain(orphaned));
        left.renamed = renamed;
        self.configured_anew(configured, &wanted.volumes, difference.kept);
        self.review_copies();
        self.note_reloaded();
        let raised: Vec<VolumeSpec> = raised.into_iter().cloned().collect();
        Ok(self.finish_reload(left, raised, changed, holds))
    }

    /// What of a reload takes long, and need not be waited for by others.
    fn finish_reload(&self, left: Leftovers, raised: Vec<VolumeSpec>, changed: Vec<String>, holds: Holds) -> Step {
        let told = raised.iter().filter(|spec| matches!(self.begin_to_secure(&spec.name, spec.security), Ok(true)));
        let counter = (told.count() > 0).then(|| self.target.counter());
        let Leftovers { removals, renamed, longer, notes } = left;
        let opener = self.target.volume_opener();
        let work = move || {
            // A shard that has counted has read its mail.
            let _ = counter.map(|counter| counter.count());
            let closed: Vec<_> =
                removals.into_iter().map(|(name, removal)| (name, removal.wait(FLUSH_TIMEOUT))).collect();
            let resize = |Longer { spec, disk, size_bytes, room }| (spec, Resized::of(&disk, size_bytes, room));
            (closed, longer.into_iter().map(resize).collect::<Vec<_>>())
        };
        Step::slow_awaited("making volumes stable, and longer", work, move |manager, (closed, longer)| {
            let mut changed = changed;
            changed.extend(closed.into_iter().map(|(name, closed)| match closed {
                Ok(()) => format!("volume {name} is not served any more"),
                Err(source) => ManageError::Unstable { name, source }.to_string(),
            }));
            changed.extend(manager.secure_all(&raised.iter().collect::<Vec<_>>()));
            for (spec, resized) in longer {
                changed.extend(manager.resized_as_configured(&spec, resized));
            }
            if renamed.is_empty() {
                return Ok(manager.reloaded(changed, notes, holds));
            }
            let open = move || {
                let mut attempts: Vec<Attempt> = Vec::new();
                for coming in renamed {
                    let parent = parent_among(&attempts, &coming.volume);
                    let opened = opener.open_within(FLUSH_TIMEOUT, parent, &coming.volume, coming.slot);
                    attempts.push((coming, opened));
                }
                attempts
            };
            Ok(Step::slow("opening volumes under their new names", open, move |manager, opened: Vec<Attempt>| {
                changed.extend(opened.into_iter().map(|attempt| manager.put_renamed(attempt)));
                Ok(manager.reloaded(changed, notes, holds))
            }))
        })
    }

    /// All is as it is to be.
    fn reloaded(&mut self, mut changed: Vec<String>, notes: Vec<String>, holds: Holds) -> Step {
        let Holds { reload: _reload, mut volumes, resets } = holds;
        // They have their numbers, which may be given to others.
        volumes.free_places();
        if resets {
            changed.extend(self.renumber_as_configured(&volumes));
        }
        drop(volumes);
        self.target.latest_time().believe(SystemTime::now());
        changed.extend(self.follower.follow());
        changed.extend(notes);
        changed.extend(self.keep_reloaded().err().map(|error| not_kept(error, resets)));
        self.target.events().note(Happening::Reloaded { changed: changed.clone() });
        Step::Done(Answer::Changed(changed))
    }

    /// Serves what was opened: all of it, as one change, or nothing.
    fn put_all(&mut self, attempts: Vec<Attempt>) -> Result<(Vec<Opened>, Vec<String>), ManageError> {
        let is_whole = attempts.iter().all(|(_, opened)| opened.is_ok());
        let (mut found, mut failure) = (Vec::new(), None);
        for (ComingVolume { volume, .. }, attempt) in attempts {
            match attempt {
                Ok(opened) if is_whole => found.push((volume, opened)),
                // Nothing was written to it.
                Ok(opened) => self.give_up_opened(&volume.spec, opened),
                Err(error) => failure = Some(error.into()),
            }
        }
        let lines = found.iter().map(|(volume, _)| format!("volume {} is served", volume.spec.name)).collect();
        failure.map_or_else(|| Ok((self.put_together(found)?, lines)), Err)
    }

    /// Serves what could not be opened when the server started, and is there now; gives what still is not.
    fn put_sought(
        &mut self,
        attempts: Vec<Attempt>,
        opened: &mut Vec<Opened>,
        lines: &mut Vec<String>,
    ) -> Vec<VolumeConfig> {
        let (mut found, mut still_missing) = (Vec::new(), Vec::new());
        let mut missing = |volume: VolumeConfig, error: &dyn Display| {
            lines.push(format!("volume {} is still not served: {error}", volume.spec.name));
            still_missing.push(volume);
        };
        for (ComingVolume { volume, .. }, attempt) in attempts {
            match attempt {
                Ok(opened) => found.push((volume, opened)),
                Err(error) => missing(volume, &error),
            }
        }
        let volumes: Vec<VolumeConfig> = found.iter().map(|(volume, _)| volume.clone()).collect();
        match self.put_together(found) {
            Ok(served) => {
                opened.extend(served);
                lines.extend(volumes.iter().map(|volume| format!("volume {} is served", volume.spec.name)));
            }
            // Their numbers were kept for them: this is no fault of one of them.
            Err(error) => volumes.into_iter().for_each(|volume| missing(volume, &error)),
        }
        still_missing
    }

    /// Serves a volume whose store another one had; says so, or why not.
    fn put_renamed(&mut self, (ComingVolume { volume, .. }, opened): Attempt) -> String {
        let spec = volume.spec.clone();
        let unopened = |error: StartError| Box::new(Unserved { error: error.into(), opened: None });
        let put = opened.map_err(unopened).and_then(|opened| self.put_missing(volume, opened));
        let Err(unserved) = put else { return format!("volume {} is served", spec.name) };
        let Unserved { error, opened } = *unserved;
        let reason = ManageError::to_string(&error);
        // Nothing was written to it.
        opened.into_iter().for_each(|opened| drop(self.close_again(opened)));
        let missing = self.kept.missing.iter_mut().filter(|missing| missing.volume.spec == spec);
        missing.for_each(|missing| missing.reason = reason.clone());
        format!("volume {} is not served: {reason}; mend that, and reload again", spec.name)
    }

    /// As if nothing had been opened, for this error.
    fn take_all_back(&mut self, opened: Vec<Opened>, error: ManageError) -> Step {
        let removals = self.close_all_again(opened);
        let wait = move || removals.into_iter().for_each(|removal| drop(removal.wait(FLUSH_TIMEOUT)));
        Step::slow("closing what was opened", wait, move |_, ()| Err(error))
    }
}

/// What is told of a volume that is configured otherwise, and stays as it is.
fn unchanged(spec: &VolumeSpec) -> String {
    let name = &spec.name;
    format!(
        "not changed: volume {name}: only its size, its security and its owners can be changed while it is served; remove and add it"
    )
}

/// A reload that is done, but for that.
fn not_kept(error: ManageError, resets: bool) -> String {
    match error {
        ManageError::Keep { path, source } if resets => format!(
            "what ctl had changed still stands in {}, and is there again at the next start: {source}; see to that, and \
             `reload --reset` again",
            path.display()
        ),
        ManageError::Keep { path, source } => format!(
            "what ctl has changed cannot be kept beside this configuration in {}: {source}; see to that, and reload again",
            path.display()
        ),
        error => error.to_string(),
    }
}

/// Volumes that are served when those that have their stores are closed.
fn missing_for_now(volumes: &[ComingVolume], exports: &[TargetNodeConfig]) -> Vec<MissingVolume> {
    let missing = volumes.iter().map(|ComingVolume { volume, .. }| MissingVolume {
        volume: volume.clone(),
        units: Vec::new(),
        reason: "it is just being closed as what it was before".into(),
    });
    let mut missing: Vec<MissingVolume> = missing.collect();
    note_units(&mut missing, exports);
    missing
}

#[cfg(test)]
mod tests;
