//! The user of a client's volumes: reads, writes and flushes, and what each answer promises.

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sanwire_buffer::Frame;
use sanwire_core::Instant;
use sanwire_sim::content::{self, BLOCK_BYTES};
use sanwire_sim::model::{Range, Tick};
use sanwire_sim::plan::Fault;
use sanwire_sim::random::Random;
use sanwire_sim::world::Outcome;

use super::stage::Cue;
use super::wires::DrivenWire;
use super::wishes;
use crate::driver::OptionChanges;
use crate::volume::{Volume, VolumeError};

/// What the clients of a world do.
#[derive(Clone, Debug)]
pub(super) struct Habits {
    /// How much each client keeps of its writes, in bytes.
    pub(super) keep_bytes: u64,
    /// Memory of each client for buffers.
    pub(super) memory_bytes: usize,
    pub(super) handles: usize,
    pub(super) depth: usize,
    /// The longest read or write.
    pub(super) blocks_max: u64,
    /// By client: how many of a million operations change something.
    pub(super) writes_per_million: Vec<u32>,
    /// By client: when it begins.
    pub(super) begins_after: Vec<Duration>,
    pub(super) operations: u64,
    pub(super) think_us: u64,
    /// The server has never lost anything.
    pub(super) is_lossless: bool,
    /// How many of a million flushes that have succeeded the power goes right after.
    pub(super) power_per_million: u32,
    /// How many of a million operations come with a wish for other options of the connection.
    pub(super) wishes_per_million: u32,
}

/// What happened in all worlds of a theme.
#[derive(Default)]
pub(super) struct Seen {
    /// Flushes that were done, of writes from before a loss of the power.
    pub(super) survived: AtomicU64,
    /// Flushes that told of a loss.
    pub(super) told: AtomicU64,
    /// Reads and writes that were done though they are too long for one command.
    pub(super) cut: AtomicU64,
}

/// An acknowledged write that a handle has not flushed.
pub(super) struct Owed {
    handle: usize,
    operation: u64,
    range: Range,
    begun: Tick,
    acknowledged: Tick,
}

/// A client's user.
pub(super) struct User<'a, W: DrivenWire> {
    pub(super) cue: Cue<W>,
    pub(super) habits: &'a Habits,
    pub(super) seen: &'a Seen,
    pub(super) random: RefCell<Random>,
    pub(super) volumes: Vec<Volume>,
    pub(super) owed: RefCell<Vec<Owed>>,
    pub(super) wishes: Arc<OptionChanges>,
}

pub(super) type Operation<'a> = Pin<Box<dyn Future<Output = Outcome<()>> + 'a>>;

impl<W: DrivenWire> User<'_, W> {
    async fn write(&self, handle: usize, range: Range, is_stable: bool) -> Outcome<()> {
        let volume = &self.volumes[handle];
        let mut buffer = volume.buffer(range.blocks as usize * BLOCK_BYTES).await.map_err(unexpected)?;
        let (operation, begun) = self.cue.with(|world| {
            let operation = world.draw_operation();
            (operation, world.model.begin_write(operation, operation, range))
        });
        content::fill(&mut buffer, range.lba, operation);
        let offset_bytes = range.lba * BLOCK_BYTES as u64;
        let result = match is_stable {
            true => volume.write_stable(offset_bytes, buffer.freeze()).await,
            false => volume.write(offset_bytes, buffer.freeze()).await,
        };
        self.note_length(handle, range);
        match result {
            Ok(()) => self.written(Owed { handle, operation, range, begun, acknowledged: 0 }, is_stable),
            Err(VolumeError::WritesLost { .. }) if is_stable => {
                self.cue.with(|world| world.model.end_write(operation, range));
                self.told(handle)?;
            }
            // What else was lost with it the next flush tells.
            Err(VolumeError::Medium { .. }) if is_stable && self.is_disk_lossy() => {
                self.cue.with(|world| world.model.end_write(operation, range));
            }
            Err(error) => return Err(unexpected(error)),
        }
        Ok(())
    }

    fn note_length(&self, handle: usize, range: Range) {
        let is_cut = range.blocks * BLOCK_BYTES as u64 > self.volumes[handle].info().transfer_max_bytes.into();
        self.seen.cut.fetch_add(is_cut.into(), Ordering::Relaxed);
    }

    fn written(&self, write: Owed, is_stable: bool) {
        let acknowledged = self.cue.with(|world| {
            world.model.acknowledge_write(write.operation, write.range, write.begun, is_stable);
            if !is_stable {
                world.model.keep(write.operation, self.cue.client);
            }
            world.model.tick()
        });
        if !is_stable {
            self.owed.borrow_mut().push(Owed { acknowledged, ..write });
        }
    }

    async fn flush(&self, handle: usize) -> Outcome<bool> {
        let begun = self.cue.with(|world| world.model.tick());
        match self.volumes[handle].flush().await {
            Ok(()) => {
                let mut owed = self.owed.borrow_mut();
                let stable = owed.extract_if(.., |owed| owed.handle == handle && owed.acknowledged < begun);
                let survived = self.cue.with(|world| {
                    let lost_at = world.model.lost_at();
                    let survived = stable.map(|Owed { operation, range, begun, acknowledged, .. }| {
                        world.model.promise(operation, range, begun);
                        acknowledged < lost_at
                    });
                    survived.fold(false, |any, one| any | one)
                });
                self.seen.survived.fetch_add(survived.into(), Ordering::Relaxed);
                self.lose_power_soon();
                Ok(true)
            }
            Err(VolumeError::WritesLost { .. }) => self.told(handle).map(|()| false),
            Err(VolumeError::Medium { .. }) if self.is_disk_lossy() => self.told(handle).map(|()| false),
            Err(error) => Err(unexpected(error)),
        }
    }

    /// Perhaps the power goes before anything else is flushed.
    fn lose_power_soon(&self) {
        let random = &mut *self.random.borrow_mut();
        if random.chance(self.habits.power_per_million) {
            let (after, away) = (random.micros(0..=2_000), random.micros(0..=500_000));
            self.cue.with(|world| {
                let at = world.now + after;
                if at + away < Instant::from_nanos(1_000_000) + world.plan.healed_after {
                    world.inflict_later(at, Fault::LosePower);
                    world.inflict_later(at + away, Fault::Start);
                }
            });
        }
    }

    /// Whether flushes of the disk fail.
    fn is_disk_lossy(&self) -> bool {
        self.cue.with(|world| world.plan.disk.loss_per_million > 0)
    }

    /// The handle was told that writes may be lost.
    fn told(&self, handle: usize) -> Outcome<()> {
        if self.habits.is_lossless {
            return Err("a loss was told, and nothing was lost".to_owned());
        }
        self.seen.told.fetch_add(1, Ordering::Relaxed);
        let mut owed = self.owed.borrow_mut();
        let lost = owed.extract_if(.., |owed| owed.handle == handle);
        self.cue.with(|world| lost.for_each(|owed| world.model.disclaim(owed.operation)));
        Ok(())
    }

    async fn read(&self, handle: usize, range: Range) -> Outcome<()> {
        let begun = self.cue.with(|world| world.model.tick());
        let buffer = Frame::from(vec![0; range.blocks as usize * BLOCK_BYTES]);
        let read = self.volumes[handle].read(range.lba * BLOCK_BYTES as u64, buffer).await.map_err(unexpected)?;
        self.note_length(handle, range);
        self.cue.with(|world| world.model.check_read(Some(self.cue.client), range, begun, &read))
    }

    pub(super) async fn any(&self) -> Outcome<()> {
        if self.random.borrow_mut().chance(self.habits.wishes_per_million) {
            wishes::wish(&self.wishes, &mut self.random.borrow_mut())?;
        }
        let (handle, range, kind) = {
            let mut random = self.random.borrow_mut();
            let all = self.cue.with(|world| world.plan.blocks);
            let blocks = random.range(1..=self.habits.blocks_max.min(all));
            let range = Range { lba: random.range(0..=all - blocks), blocks };
            let writes = random.chance(self.habits.writes_per_million[self.cue.client]);
            let kind = if writes { random.range(0..=9) } else { 10 };
            (random.range(0..=self.volumes.len() as u64 - 1) as usize, range, kind)
        };
        match kind {
            0 => self.write(handle, range, true).await,
            1 | 2 => self.flush(handle).await.map(drop),
            3..=9 => self.write(handle, range, false).await,
            _ => self.read(handle, range).await,
        }
    }

    /// All that is owed is stable, or was told; then all is read, as it is on the medium.
    pub(super) async fn last(&self) -> Outcome<()> {
        // Of a disk that has lost something without the power one more flush may have to tell.
        let tries = if self.is_disk_lossy() { 3 } else { 2 };
        for handle in 0..self.volumes.len() {
            let mut left = tries;
            while !self.flush(handle).await? {
                left -= 1;
                if left == 0 {
                    return Err("the same loss was told twice".to_owned());
                }
            }
        }
        self.cue.with(|world| world.evict());
        let blocks = self.cue.with(|world| world.plan.blocks);
        self.read(0, Range { lba: 0, blocks }).await
    }
}

fn unexpected(error: VolumeError) -> String {
    format!("an operation has failed: {error}")
}
