//! The copies of volumes that have several: arrays.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

use sanwire_device::LogicalUnit;
use sanwire_store::{Cancellation, CopiesError};

use super::busy::Hold;
use super::resizing::Resized;
use super::slow::Step;
use super::{Answer, ManageError, Manager};

/// A store that takes the place of a member of an array.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemberReplacement {
    /// The name of the volume.
    pub name: String,
    /// Which member, from 1 on.
    pub member: usize,
    /// How the store is written.
    pub store: String,
}

/// How an array becomes longer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrayGrowth {
    /// The name of the volume.
    pub name: String,
    /// How the stores are written that come behind its members: of copies as many as hold the same, or a multiple of that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<String>,
}

impl Manager {
    /// Compares them, beside all that clients do with the volume; it stays as long as that lasts, and its snapshots come and go.
    pub(super) fn scrub_volume(&self, name: &str) -> Result<Step, ManageError> {
        let hold = self.busy.hold_compared(name)?;
        let unit = self.array(name)?;
        let cancellation = Cancellation::default();
        let cancelled = cancellation.clone();
        let scrub = move || unit.store().copies().ok_or_else(none)?.scrub(&cancelled);
        let name = name.to_owned();
        let step = Step::slow(format!("comparing the copies of {name}"), scrub, move |_, scrubbed| {
            let _hold = hold;
            let line = compared(&name, scrubbed.map_err(failed(&name))?);
            Ok(Step::Done(Answer::Changed(vec![line])))
        });
        Ok(step.cancelled_by(cancellation))
    }

    /// Has a store take the place of a member that is gone.
    pub(super) fn replace_member(&self, name: &str, member: usize, store: &str) -> Result<Step, ManageError> {
        let hold = self.busy.hold(name, "getting another member")?;
        let unit = self.array(name)?;
        self.target.pools().check_part(store)?;
        let (name, store) = (name.to_owned(), store.to_owned());
        let what = format!("replacing member {member} of {name}");
        let line = replaced(&name, member, &store);
        let replace = move || unit.store().copies().ok_or_else(none)?.replace(member, &store);
        Ok(Step::slow(what, replace, move |_, end| {
            let _hold = hold;
            end.map_err(failed(&name))?;
            Ok(Step::Done(Answer::Changed(vec![line])))
        }))
    }

    /// Has an array take all that its members have room for, and others behind them, beside all that clients do with the volume.
    pub(super) fn grow_array(&self, new: ArrayGrowth) -> Result<Step, ManageError> {
        let (hold, unit) = self.begin_to_grow(&new)?;
        let ArrayGrowth { name, add } = new;
        let cancellation = Cancellation::default();
        let cancelled = cancellation.clone();
        let grow = move || {
            let length = || unit.store().geometry().length_bytes;
            let before_bytes = length();
            let grown = unit.store().copies().ok_or_else(none).and_then(|copies| copies.grow(&add, &cancelled));
            (before_bytes, length(), grown)
        };
        let what = format!("making {name} longer");
        let step = Step::slow(what, grow, move |manager, (before_bytes, after_bytes, grown)| {
            let _hold = hold;
            // It may be longer, too, where something has failed after that.
            let lines = manager.resized(&name, Resized::by_itself(before_bytes, after_bytes))?;
            if !lines.is_empty() {
                manager.revise_volume(&name);
            }
            grown.map_err(failed(&name))?;
            Ok(Step::Done(Answer::Changed(lines)))
        });
        Ok(step.cancelled_by(cancellation))
    }

    /// What of that is refused before a store is opened.
    pub(super) fn begin_to_grow(&self, new: &ArrayGrowth) -> Result<(Hold, Arc<LogicalUnit>), ManageError> {
        let hold = self.busy.hold(&new.name, "being made longer")?;
        let unit = self.array(&new.name)?;
        if self.volumes.get(&new.name).is_some_and(|volume| volume.spec.below_layers().is_some()) {
            return Err(failed(&new.name)(layered()));
        }
        new.add.iter().try_for_each(|store| self.target.pools().check_part(store))?;
        Ok((hold, unit))
    }

    /// A volume that has copies.
    pub(super) fn array(&self, name: &str) -> Result<Arc<LogicalUnit>, ManageError> {
        let (_, unit) = self.find(name).ok_or_else(|| ManageError::NoVolume(name.to_owned()))?;
        if unit.store().copies().is_some() { Ok(unit) } else { Err(failed(name)(none())) }
    }
}

/// What came of a comparison, for people.
pub(super) fn compared(name: &str, different: u64) -> String {
    match different {
        0 => format!("all copies of {name} that are there are the same"),
        count => format!(
            "{count} pieces of up to 256 KiB of {name} differed, and were copied from the first member that is in"
        ),
    }
}

/// That a store has the place of a member, for people.
pub(super) fn replaced(name: &str, member: usize, store: &str) -> String {
    format!("{store} is member {member} of {name} now: what it lacks is copied, and the log tells when it has all")
}

pub(super) fn none() -> CopiesError {
    CopiesError("it is no array, and has no copies".into())
}

pub(super) fn layered() -> CopiesError {
    CopiesError("it has layers, which keep the length that it had when they were made".into())
}

pub(super) fn failed(name: &str) -> impl Fn(CopiesError) -> ManageError {
    move |source| ManageError::Copies { name: name.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::super::testing::config;
    use super::super::{ManageError, Manager, Request};
    use super::{ArrayGrowth, MemberReplacement};

    #[test]
    fn a_volume_without_copies_is_refused_what_is_for_arrays() {
        let mut manager = Manager::start(config(&["a=ram:1M"]), Box::new(|| Ok(config(&[])))).unwrap();
        let name = || "a".to_owned();
        let replace = Request::ReplaceMember(MemberReplacement { name: name(), member: 1, store: "ram:1M".to_owned() });
        let grow = Request::GrowArray(ArrayGrowth { name: name(), add: Vec::new() });
        for request in [Request::ScrubVolume { name: name() }, replace, grow] {
            let refused = manager.execute(request).unwrap_err();
            assert!(refused.to_string().contains("it is no array"), "{refused}");
        }
        let unknown = manager.execute(Request::ScrubVolume { name: "b".to_owned() }).unwrap_err();
        assert!(matches!(unknown, ManageError::NoVolume(_)), "{unknown}");
        // Nothing else is done to it meanwhile.
        let hold = manager.busy.hold("a", "being removed").unwrap();
        let refused = manager.execute(Request::ScrubVolume { name: name() }).unwrap_err();
        assert!(refused.to_string().starts_with("volume a is just being removed"), "{refused}");
        drop(hold);
        manager.into_target().stop().unwrap();
    }
}
