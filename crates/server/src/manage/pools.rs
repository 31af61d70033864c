//! Pools, and what is protected there.

use std::sync::Arc;
use std::time::Duration;

use super::filling;
use super::holding::within;
use super::slow::Step;
use super::{Answer, ManageError, Manager};
use crate::config::VolumeConfig;
use crate::pools::{Pool, PoolError, Pools};

/// How long a pool may take to tell how it is.
const ASK_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a reload waits until a pool has written what is protected.
const PROTECT_TIMEOUT: Duration = Duration::from_secs(3);

impl Manager {
    /// Asks the file systems of the pools, which may take their time.
    pub(super) fn pools(&self) -> Step {
        let (pools, events) = (self.target.pools().clone(), self.target.events().clone());
        let ask = move || {
            let status = |pool| ask(&pools, pool, Pool::status).inspect(|status| filling::note(&events, pool, status));
            pools.iter().map(status).collect::<Result<_, _>>()
        };
        Step::slow("looking at the pools", ask, |_, statuses| Ok(Step::Done(Answer::Pools(statuses?))))
    }

    /// Nothing is known any more of a pool that the configuration does not name.
    pub(super) fn forget_pool(&mut self, name: &str) -> Result<Answer, ManageError> {
        self.check_forget_pool(name)?;
        self.target.pools().forget(name)?;
        Ok(Answer::Changed(vec![format!("pool {name} is forgotten: its directory is as it was")]))
    }

    /// Refuses to forget a pool that is there, or that a volume is in which should be served.
    pub(super) fn check_forget_pool(&self, name: &str) -> Result<(), ManageError> {
        let is_in_it =
            |volume: &VolumeConfig| volume.spec.pool().is_some_and(|place| place.pool.as_deref() == Some(name));
        if let Some(missing) = self.kept.missing.iter().find(|missing| is_in_it(&missing.volume)) {
            let (pool, volume) = (name.to_owned(), missing.volume.spec.name.to_string());
            return Err(PoolError::Awaited { pool, volume }.into());
        }
        Ok(self.target.pools().check_forget(name)?)
    }

    /// From now on the content of a volume is neither deleted nor rolled back, or can be again.
    pub(super) fn protect(&mut self, name: &str, protected: bool) -> Result<Step, ManageError> {
        let hold = self.busy.hold(name, "being protected")?;
        let spec = self.volume_with(name, |volume| volume)?.spec;
        let (pools, name) = (self.target.pools().clone(), name.to_owned());
        let of_pool = spec.clone();
        // Its pool knows it also when the volume is not served.
        let work = move || pools.protect(&of_pool, protected);
        Ok(Step::slow("writing the catalogue of the pool", work, move |manager, done| {
            let _hold = hold;
            done?;
            if spec.protected == protected {
                return Ok(Step::Done(Answer::Changed(Vec::new())));
            }
            manager.keep_protection(&name, protected).map(Step::Done)
        }))
    }

    fn keep_protection(&mut self, name: &str, protected: bool) -> Result<Answer, ManageError> {
        let set = |volume: VolumeConfig| VolumeConfig { spec: volume.spec.clone().with_protected(protected), ..volume };
        let volume = self.volume_with(name, set)?;
        self.keep_definition(&volume)?;
        self.put_definition(volume);
        let pending = self.kept.pending.get_mut(name).into_iter();
        pending.for_each(|spec| *spec = spec.clone().with_protected(protected));
        self.keep_again(name);
        Ok(self.changed(of_protection(name, protected)))
    }

    /// As the configuration says; what has changed, for people.
    pub(super) fn protect_as_configured(&mut self, wanted: &[(String, bool)]) -> Vec<String> {
        let mut lines = Vec::new();
        for (name, protected) in wanted {
            let Some(volume) = self.volumes.get_mut(name) else { continue };
            volume.spec = volume.spec.clone().with_protected(*protected);
            let (pools, spec, protected) = (self.target.pools().clone(), volume.spec.clone(), *protected);
            let told = |done: Result<(), PoolError>| done.unwrap_or_else(|error| tracing::error!("{error}"));
            // Nobody waits for ever for a disk that does not answer.
            within(PROTECT_TIMEOUT, move || pools.protect(&spec, protected), told).into_iter().for_each(told);
            self.revise_volume(name);
            lines.push(of_protection(name, protected));
        }
        lines
    }
}

/// Asks a pool for something that its file system may never answer. Where some wait already others are refused at
/// once: few threads wait, however often it is asked.
///
/// # Errors
/// [`PoolError::Hangs`], or why it cannot be told.
pub(super) fn ask<T: Send + 'static>(
    pools: &Pools,
    pool: &Arc<Pool>,
    what: impl FnOnce(&Pool, bool) -> Result<T, PoolError> + Send + 'static,
) -> Result<T, PoolError> {
    let hangs = || PoolError::Hangs(pool.name().to_owned());
    let asking = pool.begin_to_ask().ok_or_else(hangs)?;
    let (of_pool, is_default) = (Arc::clone(pool), pools.is_default(pool));
    let work = move || {
        let _asking = asking;
        what(&of_pool, is_default)
    };
    within(ASK_TIMEOUT, work, drop).unwrap_or_else(|| Err(hangs()))
}

fn of_protection(name: &str, protected: bool) -> String {
    match protected {
        true => format!("volume {name} is protected: its content is neither deleted nor rolled back"),
        false => format!("volume {name} is not protected any more"),
    }
}

#[cfg(test)]
pub(super) mod tests;
