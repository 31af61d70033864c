//! Derived volumes whose time is over: the device refuses them from then on by itself, and here they are taken out of service.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Weak;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, SystemTime};

use crate::config::Origin;
use crate::derived::{DerivedSpec, unix_millis};
use crate::events::Happening;
use crate::kept::Changed;
use crate::manage::busy::REVOKED;
use crate::manage::handle::Desk;
use crate::manage::removing::without_unit;
use crate::manage::{ManageError, Manager};
use crate::server::MissingVolume;
use crate::wall_time::written_unix_millis;

/// How often the device is told what time it is, while that matters: clocks of hosts are set.
const TICK: Duration = Duration::from_secs(5);

/// How soon a volume is tried again that could not be taken out of service, because it is just being changed or that cannot be kept.
const AGAIN: Duration = Duration::from_secs(1);

/// When volumes end, and the way to who waits for that.
pub(in crate::manage) struct Expiry {
    /// In milliseconds since the beginning of 1970.
    ends: BTreeSet<(u64, String)>,
    by_name: BTreeMap<String, u64>,
    /// Volumes whose programs ask what time it is.
    timed: BTreeSet<String>,
    wake: Sender<()>,
    waiting: Option<Receiver<()>>,
}

impl Default for Expiry {
    fn default() -> Self {
        let (wake, waiting) = mpsc::channel();
        let (ends, by_name, timed) = Default::default();
        Expiry { ends, by_name, timed, wake, waiting: Some(waiting) }
    }
}

impl Expiry {
    /// A volume is there that ends then, if it ends, and whether a program judges its commands.
    pub(in crate::manage) fn put(&mut self, name: &str, until_unix_ms: Option<u64>, has_program: bool) {
        self.remove(name);
        if let Some(until) = until_unix_ms {
            self.ends.insert((until, name.to_owned()));
            self.by_name.insert(name.to_owned(), until);
        }
        if has_program {
            self.timed.insert(name.to_owned());
        }
        if until_unix_ms.is_some() || has_program {
            // Nobody waits any more when the server ends.
            let _ = self.wake.send(());
        }
    }

    /// A volume is gone.
    pub(in crate::manage) fn remove(&mut self, name: &str) {
        if let Some(until) = self.by_name.remove(name) {
            self.ends.remove(&(until, name.to_owned()));
        }
        self.timed.remove(name);
    }

    /// Where who waits for the next end is woken when there is another one: there is one who waits.
    pub(in crate::manage) fn take_waiting(&mut self) -> Option<Receiver<()>> {
        self.waiting.take()
    }

    /// Those whose time is over, with when that was.
    fn over(&self, now_unix_ms: u64) -> Vec<(u64, String)> {
        self.ends.iter().take_while(|(until, _)| *until <= now_unix_ms).cloned().collect()
    }

    /// How long nothing is to be done; `None`: until there is something.
    fn patience(&self, now_unix_ms: u64) -> Option<Duration> {
        let next = self.ends.first().map(|(until, _)| match until.saturating_sub(now_unix_ms) {
            // It was tried just now.
            0 => AGAIN,
            left => TICK.min(Duration::from_millis(left)),
        });
        next.or_else(|| (!self.timed.is_empty()).then_some(TICK))
    }
}

/// Takes volumes out of service when their time is over, until the server ends.
pub(in crate::manage) fn watch(desk: &Weak<Desk>, wake: &Receiver<()>) {
    loop {
        let patience = desk.upgrade().and_then(|desk| desk.peek(|manager| manager.expiry.patience(now_unix_ms())));
        let Some(patience) = patience else { return };
        let woken = match patience {
            Some(patience) => wake.recv_timeout(patience),
            None => wake.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        if woken == Err(RecvTimeoutError::Disconnected) {
            return;
        }
        let Some(desk) = desk.upgrade() else { return };
        let has_ended = desk.peek(|manager| {
            manager.target.set_clock();
            !manager.expiry.over(now_unix_ms()).is_empty()
        });
        if has_ended == Some(true) {
            desk.with(Manager::expire);
        }
    }
}

fn now_unix_ms() -> u64 {
    unix_millis(SystemTime::now())
}

impl Manager {
    /// Takes all volumes out of service whose time is over. What is just being changed is tried again soon.
    pub(in crate::manage) fn expire(&mut self) {
        for (until, name) in self.expiry.over(now_unix_ms()) {
            // One that is derived from it has ended, too, if not before: it may be gone already.
            for name in self.derived_from(&name).into_iter().chain([name]) {
                match self.end(&name, until) {
                    Ok(()) | Err(ManageError::Busy { .. }) => {}
                    Err(error) => tracing::error!("volume {name}, whose time is over, stands in the list on: {error}"),
                }
            }
        }
    }

    /// Notes when a volume ends that is served, if it does.
    pub(in crate::manage) fn await_end(&mut self, name: &str) {
        if let Some((_, unit)) = self.find(name)
            && let Some(derived) = unit.derived()
        {
            self.expiry.put(name, derived.until_unix_ms(), derived.program().is_some());
        }
    }

    /// The same of all.
    pub(in crate::manage) fn await_ends(&mut self) {
        let derived = self.volumes.values().filter(|volume| volume.spec.parent().is_some());
        let names: Vec<String> = derived.map(|volume| volume.spec.name.to_string()).collect();
        names.iter().for_each(|name| self.await_end(name));
    }

    fn end(&mut self, name: &str, until_unix_ms: u64) -> Result<(), ManageError> {
        let Some(volume) = self.volumes.get(name).cloned() else { return Ok(()) };
        let _hold = self.busy.hold(name, REVOKED)?;
        let parent = volume.spec.parent().unwrap_or_default().to_owned();
        let until = written_unix_millis(until_unix_ms);
        let with_unit = self.target.targets_with(name);
        let units = with_unit.iter().flat_map(|target| {
            let own = target.units.iter().filter(|(_, unit)| *unit == name);
            own.map(|(lun, _)| (target.name.to_string(), *lun))
        });
        let units = units.collect();
        let targets = with_unit.into_iter().map(|target| without_unit(target, name)).collect();
        // One that is configured is the same volume when it comes again, with what was reserved of it and what its program remembers.
        let mut forgotten = None;
        if volume.origin == Origin::Management {
            self.keep_volume(name, None, &targets)?;
            forgotten = Some(volume.spec);
        } else {
            let reason = format!("its time was over at {until}: give it a later `until`, and reload");
            self.kept.missing.push(MissingVolume { volume, units, reason });
        }
        tracing::warn!(
            "volume {name}, which is derived from {parent}, is not served any more: its time was over at {until}"
        );
        // Also where its targets cannot be changed: it is gone for them too.
        let served = self.serve_targets(targets);
        self.begin_to_close(name);
        if let Some(forgotten) = forgotten {
            self.target.forget_derived(&forgotten);
        }
        self.target.events().note(Happening::DvdExpired { volume: name.to_owned(), parent, until });
        served
    }

    /// Forgets volumes that were derived while an earlier run went on, and do not come again: those whose time was over before this one
    /// began, those that were derived from them, and those that were revoked or that stood on what is not configured any more.
    pub(in crate::manage) fn forget_gone(&mut self) {
        while let Some(at) = self.kept.missing.iter().position(|missing| self.is_forgotten(missing)) {
            let MissingVolume { volume, reason, .. } = self.kept.missing.remove(at);
            tracing::warn!("volume {}, which was derived by ctl, is forgotten: {reason}", volume.spec.name);
            self.target.forget_derived(&volume.spec);
            let parent = volume.spec.parent().unwrap_or_default().to_owned();
            let until = DerivedSpec::of(&volume.spec).and_then(|derived| derived.until).map(|until| until.to_string());
            let until = until.unwrap_or_default();
            self.target.events().note(Happening::DvdExpired { volume: volume.spec.name.to_string(), parent, until });
        }
        for (name, change) in &self.kept.changes().volumes {
            let of_ctl = match change {
                Changed { configured: None, now } => now.as_ref(),
                // As far as that was not done when it was revoked: the server may have crashed then.
                Changed { configured, now: None } => configured.as_ref(),
                Changed { configured: Some(_), now: Some(_) } => None,
            };
            let gone = of_ctl.filter(|_| self.spec_of(name).is_none());
            gone.into_iter().for_each(|gone| self.target.forget_derived(&gone.volume));
        }
    }

    fn is_forgotten(&self, MissingVolume { volume, .. }: &MissingVolume) -> bool {
        let derived = DerivedSpec::of(&volume.spec).filter(|_| volume.origin == Origin::Management);
        derived.is_some_and(|derived| derived.is_over() || self.spec_of(&derived.parent).is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_end_is_awaited_and_the_clock_looked_at_in_between() {
        let mut expiry = Expiry::default();
        assert_eq!(expiry.patience(0), None, "nobody is woken for nothing");
        expiry.put("later", Some(20_000), false);
        expiry.put("soon", Some(12_000), false);
        assert_eq!(expiry.patience(0), Some(TICK));
        assert_eq!(expiry.patience(11_000), Some(Duration::from_secs(1)));
        assert_eq!(expiry.over(11_999), []);
        assert_eq!(expiry.over(12_000), [(12_000, "soon".to_owned())]);
        assert_eq!(expiry.patience(12_000), Some(AGAIN));
        expiry.remove("soon");
        expiry.put("later", None, false);
        assert_eq!(expiry.patience(0), None);
        expiry.put("later", None, true);
        assert_eq!(expiry.patience(0), Some(TICK), "a program asks for the time");
        assert_eq!(expiry.take_waiting().unwrap().try_iter().count(), 3);
    }
}
