//! When a derived volume ends, as that is changed while it is used.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sanwire_device::LogicalUnit;
use sanwire_store::VolumeSpec;
use serde::{Deserialize, Serialize};

use crate::config::VolumeConfig;
use crate::derived::{DerivedError, DerivedSpec, Until, unix_millis, with_until};
use crate::events::Happening;
use crate::manage::slow::Step;
use crate::manage::{Answer, ManageError, Manager, Request};
use crate::wall_time::written_unix_millis;

/// An end that is no further away than this before and after is renewed rather than changed: who serves a file so does it all the time. It is in
/// the audit log, and no event. And such an end is meant as a time from now on: it comes in that time, whatever becomes of the clock of the host.
pub(super) const NEAR_MS: u64 = 5 * 60 * 1000;

/// When a derived volume is to end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DvdEnd {
    /// Its name.
    pub name: String,
    /// When: a time as in RFC 3339, or how long from now on, like `2h`; null: with that from which it is derived, if that ends. It is always said:
    /// what is left out by mistake gives nobody more than was meant.
    #[serde(deserialize_with = "Option::deserialize")]
    pub until: Option<String>,
}

impl Request {
    /// Whether it is what somebody asks again and again who has a volume last a short time from each time on.
    pub(in crate::manage) fn is_renewal(&self) -> bool {
        let Request::SetDvd(DvdEnd { until: Some(until), .. }) = self else { return false };
        matches!(Until::read(until), Ok(Until::After(after)) if after <= Duration::from_millis(NEAR_MS))
    }
}

/// A derived volume that is to end at another time.
struct Ending {
    volume: VolumeConfig,
    unit: Arc<LogicalUnit>,
    /// Its own end from then on, in milliseconds since the beginning of 1970.
    own_unix_ms: Option<u64>,
    /// When it would end, and when it does now, also for the end of what it is derived from.
    after: Option<u64>,
    before: Option<u64>,
}

impl Manager {
    /// From now on a derived volume ends then; `None`: with its parent. What is derived from it keeps its own end, and ends with it if not before.
    pub(in crate::manage) fn set_dvd(&mut self, DvdEnd { name, until }: &DvdEnd) -> Result<Answer, ManageError> {
        let _hold = self.busy.hold(name, "getting another end")?;
        let Some(ending) = self.ending(name, until.as_deref())? else { return Ok(Answer::Changed(Vec::new())) };
        let is_renewed = is_renewal(ending.before, ending.after, SystemTime::now());
        let keep = if is_renewed { Manager::keep_renewed } else { Manager::keep_definition };
        keep(self, &ending.volume)?;
        let Some(derived) = ending.unit.derived() else { return Err(ManageError::NotDerived(name.to_owned())) };
        derived.set_until(ending.own_unix_ms);
        let line = ending.told("ends", "now");
        let parent = ending.volume.spec.parent().unwrap_or_default().to_owned();
        // Who renews does it all the time: what others have looked at stays what it was for them.
        if !is_renewed {
            self.revise_volume(name);
            let until = ending.after.map(written_unix_millis);
            self.target.events().note(Happening::DvdChanged { volume: name.to_owned(), parent, until });
        }
        self.put_renewed(ending.volume);
        for below in self.derived_from(name) {
            self.await_end(&below);
            if !is_renewed {
                self.revise_volume(&below);
            }
        }
        Ok(self.changed(line))
    }

    /// The time of these is over, and the clock of this host was set back meanwhile: they end now.
    pub(super) fn end_overdue(&mut self, names: &[String]) {
        let now = SystemTime::now();
        for name in names {
            let Ok(_hold) = self.busy.hold(name, "ending") else { continue };
            let (Some(volume), Some((_, unit))) = (self.volumes.get(name).cloned(), self.find(name)) else { continue };
            let Some(derived) = unit.derived() else { continue };
            let own = DerivedSpec::of(&volume.spec).and_then(|spec| spec.until);
            let own_unix_ms = own.map(|until| unix_millis(until.from(now)));
            // One that ends with that from which it is derived goes when that does.
            if own_unix_ms.is_none() || own_unix_ms != derived.until_unix_ms() {
                continue;
            }
            let over = Until::At(now).settled(now);
            tracing::warn!("volume {name} ends now: its time is over, though the clock of this host was set back");
            derived.set_until(Some(unix_millis(over.from(now))));
            let spec = with_until(volume.spec.clone(), Some(over));
            self.put_definition(VolumeConfig { spec, ..volume });
        }
    }

    /// Tells what would come of that.
    pub(in crate::manage) fn rehearse_set_dvd(&self, DvdEnd { name, until }: &DvdEnd) -> Result<Step, ManageError> {
        let _hold = self.busy.hold(name, "getting another end")?;
        let line = self.ending(name, until.as_deref())?.map(|ending| ending.told("would end", "then"));
        Ok(Step::Done(Answer::Changed(line.into_iter().collect())))
    }

    /// What is asked for; `None` where it is so already.
    fn ending(&self, name: &str, until: Option<&str>) -> Result<Option<Ending>, ManageError> {
        self.check_is_derived(name)?;
        if let Some(missing) = self.kept.missing.iter().find(|missing| *missing.volume.spec.name == *name) {
            return Err(ManageError::Missing { name: name.to_owned(), reason: missing.reason.clone() });
        }
        let refused = |source| ManageError::Derived { name: name.to_owned(), source };
        let now = SystemTime::now();
        let until = until.map(Until::read).transpose()?.map(|until| until.settled(now));
        let volume = self.volume_with(name, |it| VolumeConfig { spec: with_until(it.spec.clone(), until), ..it })?;
        let (_, unit) = self.find(name).ok_or_else(|| ManageError::NoVolume(name.to_owned()))?;
        let before = unit.derived().and_then(|derived| derived.until_unix_ms());
        // Who was to renew it in time and did not comes too late, also where it is still in the list.
        if let Some(over) = before.filter(|before| *before <= unix_millis(now) || unit.is_revoked()) {
            return Err(refused(DerivedError::Expired { until: written_unix_millis(over) }));
        }
        let own_unix_ms = until.map(|until| unix_millis(until.from(now)));
        if let Some(past) = own_unix_ms.filter(|until| *until <= unix_millis(now)) {
            return Err(refused(DerivedError::Past { until: written_unix_millis(past) }));
        }
        self.check_end(&volume.spec).map_err(refused)?;
        let is_same = self.volumes.get(name).is_some_and(|present| present.spec == volume.spec);
        let of_parent = volume.spec.parent().and_then(|parent| self.end_of(parent));
        let after = own_unix_ms.into_iter().chain(of_parent).min();
        Ok((!is_same).then_some(Ending { volume, unit, own_unix_ms, after, before }))
    }

    /// # Errors
    /// [`DerivedError::Beyond`] when a volume would end after that from which it is derived.
    pub(in crate::manage) fn check_end(&self, spec: &VolumeSpec) -> Result<(), DerivedError> {
        let Some(DerivedSpec { parent, until: Some(until), .. }) = DerivedSpec::of(spec) else { return Ok(()) };
        let until = unix_millis(until.from(SystemTime::now()));
        match self.end_of(parent) {
            Some(parent_until) if until > parent_until => Err(DerivedError::Beyond {
                until: written_unix_millis(until),
                parent: parent.to_string(),
                parent_until: written_unix_millis(parent_until),
            }),
            _ => Ok(()),
        }
    }

    /// When a volume ends that is served, if it does.
    fn end_of(&self, name: &str) -> Option<u64> {
        self.find(name)?.1.derived()?.until_unix_ms()
    }
}

impl Ending {
    /// For people.
    fn told(&self, verb: &str, when: &str) -> String {
        let (name, parent) = (&self.volume.spec.name, self.volume.spec.parent().unwrap_or_default());
        match (self.after.map(written_unix_millis), self.own_unix_ms) {
            (None, _) => format!("volume {name} {verb} when it is revoked {when}"),
            (Some(until), None) => format!("volume {name} {verb} with {parent} {when}, at {until}"),
            (Some(until), Some(_)) => format!("volume {name} {verb} at {until} {when}"),
        }
    }
}

fn is_renewal(before: Option<u64>, after: Option<u64>, now: SystemTime) -> bool {
    let near = unix_millis(now).saturating_add(NEAR_MS);
    before.zip(after).is_some_and(|(before, after)| before.max(after) <= near)
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn only_a_short_time_from_now_on_is_a_renewal() {
        let end = |until: Option<&str>| Request::SetDvd(DvdEnd { name: "cam".into(), until: until.map(str::to_owned) });
        assert!(end(Some("30s")).is_renewal() && end(Some("5m")).is_renewal());
        for until in [None, Some("301s"), Some("2h"), Some("2001-01-01T00:00:00Z"), Some("soon")] {
            assert!(!end(until).is_renewal(), "{until:?}");
        }
        assert!(!Request::RevokeDvd { name: "cam".into() }.is_renewal());
    }

    #[test]
    fn only_an_end_that_is_near_before_and_after_is_renewed() {
        let now = UNIX_EPOCH + Duration::from_secs(1000);
        for (before, after, expected) in [
            (Some(1_001_000), Some(1_030_000), true),
            (Some(1_001_000), Some(1_300_000), true),
            (Some(1_001_000), Some(1_300_001), false),
            (Some(1_030_000), Some(1_001_000), true),
            (Some(1_300_001), Some(1_001_000), false),
            (None, Some(1_030_000), false),
            (Some(1_030_000), None, false),
        ] {
            assert_eq!(is_renewal(before, after, now), expected, "{before:?} {after:?}");
        }
    }
}
