//! The snapshot from which a volume is copied that others write meanwhile: the copy is what it held at one moment.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use sanwire_device::LogicalUnit;
use sanwire_store::VolumeSpec;

use super::connecting::{told, unit};
use super::room::RoomWatch;
use super::{CopyError, DirectCopy, Reached, Stop, check_goes_on};
use crate::events::Happening;
use crate::manage::busy::Hold;
use crate::manage::capturing::{Content, take_for_now};
use crate::manage::slow::Step;
use crate::manage::{Answer, ManageError, Manager};
use crate::pools::{Pool, PoolError, SnapshotId};

/// The name of its unit, which nobody but a copy finds.
const SOURCE_NAME: &str = "copy-source";

/// How long something else that is done to the volume is waited for.
const BUSY_MAX: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 60 });
const BUSY_INTERVAL: Duration = Duration::from_millis(100);

/// How long those commands of a copy are waited for that still read it; and how often it is tried then.
const READERS_MAX: Duration = Duration::from_secs(10);
const ATTEMPTS_MAX: u32 = 5;

/// One that is about to be taken.
struct Freezing {
    hold: Hold,
    taken: (Content, SnapshotId),
    /// How a volume is written that has what it holds.
    spec: VolumeSpec,
}

/// A snapshot from which a volume is copied.
pub(super) struct Frozen {
    pool: Arc<Pool>,
    id: SnapshotId,
    spec: VolumeSpec,
    reader: Weak<LogicalUnit>,
}

impl Manager {
    /// Goes on with a copy whose other volume is reached, or is not; since when it has waited for something else.
    pub(super) fn copy_reached(
        &mut self,
        copy: DirectCopy,
        reached: Result<Reached, Stop>,
        since: Instant,
    ) -> Result<Step, ManageError> {
        let reached = reached.and_then(|reached| {
            check_goes_on(&copy.course)?;
            // A review that came between the order and the beginning of its job has not seen it.
            let still = self.check_still(copy.course.ordered());
            still.map(|()| reached).map_err(|reason| Stop::Failed(format!("it may not go on: {reason}")))
        });
        let reached = reached.map_err(|stop| copy.ended(stop))?;
        let volume = &copy.order.volume;
        match self.begin_to_freeze(volume, &copy.source) {
            Ok(None) => Ok(copy.step(reached, None)),
            Ok(Some(freezing)) => Ok(freezing.step(copy, reached)),
            Err(ManageError::Busy { .. }) if since.elapsed() < BUSY_MAX => {
                let what = format!("waiting until nothing else is done to volume {volume}");
                let wait = || thread::sleep(BUSY_INTERVAL);
                Ok(Step::slow(what, wait, move |manager, ()| manager.copy_reached(copy, Ok(reached), since)))
            }
            Err(error) => Err(copy.unfrozen(error)),
        }
    }

    /// Begins with the snapshot from which a volume is copied; `None` where there is none: nobody writes it, or it can have none.
    fn begin_to_freeze(&self, volume: &str, source: &LogicalUnit) -> Result<Option<Freezing>, ManageError> {
        let geometry = source.store().geometry();
        let content = self.content(volume).ok().filter(|content| content.pool.can_snapshot(volume));
        let Some(content) = content.filter(|_| !geometry.read_only) else { return Ok(None) };
        let random = crate::random::bytes().map_err(|error| CopyError::Failed {
            volume: volume.to_owned(),
            went: String::new(),
            reason: format!("there are no random numbers: {error}"),
        })?;
        let name = format!("copy-{:08x}", u32::from_be_bytes(random));
        let (hold, taken) = self.begin_to_take(&[volume.to_owned()], &name)?;
        let Some(taken) = taken.into_iter().next() else { return Ok(None) };
        let (pool, id, block_bytes) = (content.pool.name(), &taken.1, geometry.block_bytes);
        let spec: VolumeSpec = format!("{SOURCE_NAME}=pool:{pool}/{id},readonly,block={block_bytes}").parse()?;
        Ok(Some(Freezing { hold, taken, spec: self.target.pools().place(spec)? }))
    }

    /// Deletes the snapshot of a copy that is over, and tells how that has ended.
    pub(super) fn thaw(
        &mut self,
        frozen: Frozen,
        copied: Result<Answer, ManageError>,
        since: Instant,
    ) -> Result<Step, ManageError> {
        let id = frozen.id.clone();
        let hold = match self.busy.hold_for_snapshot(&id.volume, "losing a snapshot") {
            Ok(hold) => hold,
            Err(_) if since.elapsed() < BUSY_MAX => {
                let wait = || thread::sleep(BUSY_INTERVAL);
                let what = format!("waiting to delete {id}");
                return Ok(Step::slow(what, wait, move |manager, ()| manager.thaw(frozen, copied, since)));
            }
            Err(error) => {
                let release = move || frozen.release();
                return Ok(Step::slow_awaited(format!("leaving {id} behind"), release, move |_, ()| {
                    tracing::warn!(
                        "the snapshot {id} of a copy that is over stays: delete it (`sanwire ctl delete-snapshot {id}`), or it goes when the \
                         server starts again: {error}"
                    );
                    copied.map(Step::Done)
                }));
            }
        };
        let delete = move || frozen.delete();
        Ok(Step::slow_awaited(format!("deleting {id}"), delete, move |manager, deleted| {
            drop(hold);
            match deleted {
                Ok(()) => {
                    let SnapshotId { volume, name: snapshot } = id;
                    manager.target.events().note(Happening::SnapshotDeleted { volume, snapshot });
                }
                Err(error) => {
                    tracing::warn!(
                        "{error}; what is left of this snapshot of a copy that is over goes when that can be done: it is tried again from \
                         time to time"
                    );
                }
            }
            copied.map(Step::Done)
        }))
    }
}

impl Freezing {
    /// Takes it, and goes on with the copy.
    fn step(self, copy: DirectCopy, reached: Reached) -> Step {
        let Freezing { hold, taken, spec } = self;
        let hold = Arc::new(hold);
        let (held, what) = (Arc::clone(&hold), format!("taking the snapshot {}", taken.1));
        let take = move || -> Result<Frozen, PoolError> {
            take_for_now(&taken, &held)?;
            let (Content { pool, .. }, id) = taken;
            Ok(Frozen { pool, id, spec, reader: Weak::new() })
        };
        Step::slow_awaited(what, take, move |manager, frozen| {
            drop(hold);
            let frozen = frozen.map_err(|error| copy.unfrozen(error.into()))?;
            let SnapshotId { volume, name: snapshot } = frozen.id.clone();
            manager.target.events().note(Happening::SnapshotTaken { volume, snapshot });
            Ok(copy.step(reached, Some(frozen)))
        })
    }
}

impl DirectCopy {
    /// Why there is no snapshot. It may name files of this host, which is not for who only owns the volume.
    fn unfrozen(&self, error: ManageError) -> ManageError {
        match error {
            ManageError::Pool(error) if self.is_of_owner() => {
                tracing::error!("volume {} is not copied for its owner: {error}", self.order.volume);
                self.ended(Stop::Failed("no snapshot of it can be taken: the server's log says why".to_owned()))
            }
            error => error,
        }
    }

    /// The unit of what its snapshot holds.
    pub(super) fn open(&self, frozen: &mut Frozen) -> Result<Arc<LogicalUnit>, Stop> {
        let store = frozen.spec.store.open().map_err(|error| {
            let reason = told(&error);
            if !self.is_of_owner() {
                return Stop::Failed(format!("its snapshot cannot be read: {reason}"));
            }
            tracing::error!("the snapshot {} is not copied for the owner of its volume: {reason}", frozen.id);
            Stop::Failed("its snapshot cannot be read: the server's log says why".to_owned())
        })?;
        let unit = unit(&frozen.spec, store)?;
        frozen.reader = Arc::downgrade(&unit);
        Ok(unit)
    }

    /// What ends the copy where its snapshot must not take more room: that of an owner.
    pub(super) fn room_of(&self, frozen: &Frozen) -> Option<RoomWatch> {
        self.is_of_owner().then(|| RoomWatch::new(Arc::clone(&frozen.pool), &self.order.volume))
    }

    fn is_of_owner(&self) -> bool {
        self.course.ordered().owner.is_some()
    }
}

impl Frozen {
    /// Deletes it. What is in layers goes only when nobody reads it any more.
    fn delete(self) -> Result<(), PoolError> {
        let Frozen { pool, id, spec: _, reader } = self;
        let give_up_at = Instant::now() + READERS_MAX;
        while reader.strong_count() > 0 && Instant::now() < give_up_at {
            thread::sleep(BUSY_INTERVAL);
        }
        // The last reader may just be going.
        for _ in 1..ATTEMPTS_MAX {
            match pool.remove_snapshot(&id) {
                Ok(()) => return Ok(()),
                Err(error) => tracing::debug!("{error}"),
            }
            thread::sleep(BUSY_INTERVAL);
        }
        pool.remove_snapshot(&id).inspect_err(|_| release(&pool, &id))
    }

    /// It cannot be deleted now, and nobody copies from it any more.
    fn release(self) {
        release(&self.pool, &self.id);
    }
}

fn release(pool: &Pool, id: &SnapshotId) {
    if let Err(error) = pool.release_temporary(id) {
        tracing::warn!(
            "the snapshot {id} of a copy that is over stays protected: {error}; it is tried again from time to time to delete it"
        );
    }
}
