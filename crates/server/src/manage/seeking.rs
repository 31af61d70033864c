//! Volumes on other servers that could not be opened when the server started: they are sought until they are there.

use std::collections::BTreeSet;
use std::sync::Weak;
use std::thread;
use std::time::{Duration, SystemTime};

use sanwire_store::kind::Place;
use sanwire_store::{Acceptance, VolumeSpec};

use super::handle::Desk;
use super::slow::{Next, Step};
use super::volumes::Opened;
use super::{Answer, ManageError, Manager};
use crate::config::VolumeConfig;
use crate::derived::{DerivedSpec, opening_order};
use crate::kept;
use crate::pools::own_place;
use crate::volumes::OpenVolume;

/// How long after the start, or after a look that was in vain, they are sought; twice as long each time, up to the last.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(15);

impl Manager {
    /// What is missing and is not on this machine, with what is derived from that, each after its parent.
    pub(super) fn sought(&self) -> Vec<VolumeSpec> {
        let missing: Vec<&VolumeSpec> = self.kept.missing.iter().map(|missing| &missing.volume.spec).collect();
        let (mut sought, is_over) = (BTreeSet::new(), self.sense_of_over());
        let order = opening_order(missing.iter().copied()).into_iter().map(|at| missing[at]);
        let is_sought = |spec: &&VolumeSpec| {
            let is_sought = match own_place(spec) {
                Place::Elsewhere(_) => true,
                Place::Volume(parent) => sought.contains(parent) || self.volumes.contains_key(parent),
                Place::Memory | Place::File(_) | Place::Nowhere => self.target.pools().is_over_elsewhere(spec),
            };
            is_sought && !is_over(spec) && sought.insert(spec.name.to_string())
        };
        order.filter(is_sought).cloned().collect()
    }

    /// Whether any is missing because its time is over: the clock of a host that was just switched on may say so, and be set then.
    pub(super) fn may_turn_back(&self) -> bool {
        let is_over = self.sense_of_over();
        self.kept.missing.iter().any(|missing| is_over(&missing.volume.spec))
    }

    /// Whether the time of a volume is over, and it does not come again: also by what an earlier run has seen, whatever the clock says.
    fn sense_of_over(&self) -> impl Fn(&VolumeSpec) -> bool + use<> {
        let now = SystemTime::now().max(self.target.latest_time().at_start());
        move |spec| DerivedSpec::of(spec).is_some_and(|derived| derived.is_over_at(now))
    }

    /// Opens a volume that is missing, and serves it as if it had been there from the start.
    fn seek(&self, name: &str) -> Result<Step, ManageError> {
        let mut hold = self.busy.hold(name, "being sought")?;
        let mut missing = self.kept.missing.iter().map(|missing| &missing.volume);
        let Some(volume) = missing.find(|volume| *volume.spec.name == *name) else { return Ok(NOTHING) };
        let Some(coming) = self.coming_at(vec![volume.clone()], &mut hold).pop() else { return Ok(NOTHING) };
        let opener = self.target.volume_opener();
        let open = move || {
            let opened = opener.open(&coming.volume, Acceptance::Known, coming.slot);
            (coming, opened)
        };
        Ok(Step::slow(format!("opening the store of {name}"), open, move |manager, (coming, opened)| {
            let _hold = hold;
            manager.serve_missing(coming.volume, opened?)
        }))
    }

    /// Serves a volume that was missing, and is open.
    fn serve_missing(&mut self, volume: VolumeConfig, opened: OpenVolume) -> Result<Step, ManageError> {
        match self.put_missing(volume, opened) {
            Ok(()) => Ok(NOTHING),
            Err(unserved) => match *unserved {
                Unserved { error, opened: None } => Err(error),
                Unserved { error, opened: Some(opened) } => Ok(self.take_back(opened, error)),
            },
        }
    }

    /// The same; what must be taken back is given with the error.
    pub(super) fn put_missing(&mut self, volume: VolumeConfig, opened: OpenVolume) -> Result<(), Box<Unserved>> {
        let (name, missing) = (volume.spec.name.clone(), &self.kept.missing);
        let Some(at) = missing.iter().position(|missing| missing.volume.spec == volume.spec) else {
            self.give_up_opened(&volume.spec, opened);
            return Ok(());
        };
        let mut others: Vec<VolumeConfig> = missing.iter().map(|missing| missing.volume.clone()).collect();
        others.remove(at);
        let opened = self.put(volume, opened).map_err(|error| Box::new(Unserved { error, opened: None }))?;
        let (wanted, _) = kept::merge(&self.kept.configured, &self.kept.changes());
        if let Err(error) = self.target.set_exports(super::wanted::without(&wanted.exports, &others)) {
            return Err(Box::new(Unserved { error: error.into(), opened: Some(opened) }));
        }
        self.restore_access_states();
        self.kept.missing.remove(at);
        self.kept.revise();
        tracing::info!("volume {name} is served: its store is there");
        Ok(())
    }
}

/// A volume that is missing as before.
pub(super) struct Unserved {
    pub(super) error: ManageError,
    /// What is to be closed again.
    pub(super) opened: Option<Opened>,
}

/// Nobody is told.
const NOTHING: Step = Step::Done(Answer::Changed(Vec::new()));

/// Seeks until nothing is missing, or the server ends.
pub(super) fn seek(desk: &Weak<Desk>) {
    let mut pause = PAUSE_FIRST;
    loop {
        thread::sleep(pause);
        pause = (2 * pause).min(PAUSE_MAX);
        let look = |manager: &mut Manager| (manager.sought(), manager.may_turn_back());
        let Some((sought, may_turn_back)) = desk.upgrade().and_then(|desk| desk.peek(look)) else { return };
        if sought.is_empty() && !may_turn_back {
            return;
        }
        for spec in sought {
            match seek_one(desk, &spec.name) {
                None => return,
                Some(Ok(())) => pause = PAUSE_FIRST,
                Some(Err(error @ (ManageError::Open(_) | ManageError::Busy { .. }))) => {
                    tracing::debug!("volume {}: {error}", spec.name);
                }
                Some(Err(error)) => tracing::warn!("volume {} is there, and not served: {error}", spec.name),
            }
        }
    }
}

/// Seeks one, without the manager, whom a server that does not answer would keep from others. `None` when the server ends.
fn seek_one(desk: &Weak<Desk>, name: &str) -> Option<Result<(), ManageError>> {
    let mut step = desk.upgrade()?.with(|manager| manager.seek(name))?;
    loop {
        step = match step {
            Ok(Step::Done(_)) => return Some(Ok(())),
            Err(error) => return Some(Err(error)),
            Ok(Step::Slow(slow)) => match slow.run() {
                Next::Over(result) => return Some(result.map(drop)),
                Next::Then(then) => desk.upgrade()?.with(then)?,
            },
        };
    }
}

#[cfg(test)]
mod tests;
