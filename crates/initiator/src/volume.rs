//! The library's face: one logical unit that can be read and written.

mod buffers;
mod error;

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use sanwire_buffer::{Frame, Slice};
use sanwire_core::{Lun, Protection};

use crate::queue::{AllocatedRun, Channel, OpKind, OpOutput, OpQueue, Submission, VolumeLooker};
pub use buffers::BufferPool;
pub use error::VolumeError;

/// Parts of one discard or zeroing that are in flight together.
const RANGE_PARTS_MAX: usize = 8;

/// What a volume is at this moment; a reconnection or a resize on the server may change it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeInfo {
    /// Its name on the server.
    pub name: Arc<str>,
    /// Its number on the server.
    pub lun: Lun,
    /// Its size, a multiple of `block_bytes`.
    pub size_bytes: u64,
    /// The logical block, a power of two of at least 512: offsets and lengths are multiples of it.
    pub block_bytes: u32,
    /// The block that the medium writes without reading first.
    pub physical_block_bytes: u32,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether discarded blocks give space back and then read as zeroes.
    pub discards: bool,
    /// To what reads and writes are to be cut, a multiple of `block_bytes`.
    pub transfer_max_bytes: u32,
    /// The longest read or write that is taken, a multiple of `block_bytes`. It never becomes less: when `transfer_max_bytes`
    /// does, what was cut before goes as it is, or in parts where the server takes no more than that.
    pub transfer_limit_bytes: u32,
    /// The longest single discard or zeroing on the wire, a multiple of `block_bytes`; longer ones are split.
    pub range_max_bytes: u64,
    /// Who serves it, in words for people.
    pub server: Arc<str>,
    /// Over which wire, in words for people.
    pub wire: Arc<str>,
    /// What the wire carries at once.
    pub unit: WireUnit,
    /// How its packets are guarded; `None` over iSCSI, which has nothing of the kind.
    pub protection: Option<Protection>,
    /// Whether its data is compressed where it shrinks.
    pub is_compressed: bool,
    /// Bytes that go in a second at the most, each way.
    pub rate_cap_bytes_per_second: Option<u64>,
    /// What tells its content from that of any other volume, also of the same name; not for people.
    pub identity: Arc<str>,
    /// Its NAA name (SPC-4 7.8.6.6), by which its server finds it when it is to copy; `None` where it has none.
    pub naa: Option<u64>,
}

/// The largest piece that a wire carries at once, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WireUnit {
    /// HyperSCSI: a packet that the path is known to take, without the headers of Ethernet or IP and UDP.
    Packet(u32),
    /// iSCSI: the data segment of a PDU that the target takes (MaxRecvDataSegmentLength, RFC 7143 13.12).
    DataSegment(u32),
}

/// A handle to one logical unit. Clones share it; dropping the last one closes it.
///
/// The futures need no runtime. Operations in flight together may be done in any order: who needs an order awaits the
/// first one. A future that is dropped does not take its operation back.
#[derive(Clone)]
pub struct Volume(Arc<Inner>);

struct Inner {
    channel: Arc<Channel>,
    info: Arc<Mutex<VolumeInfo>>,
    buffers: BufferPool,
}

/// The driver's way to tell handles that the volume has changed.
#[derive(Clone, Debug)]
pub struct InfoCell(Arc<Mutex<VolumeInfo>>);

impl InfoCell {
    /// The cell with its first content.
    #[must_use]
    pub fn new(info: VolumeInfo) -> Self {
        InfoCell(Arc::new(Mutex::new(info)))
    }

    /// Replaces the content.
    pub fn set(&self, info: VolumeInfo) {
        *lock(&self.0) = info;
    }

    /// The content.
    #[must_use]
    pub fn get(&self) -> VolumeInfo {
        lock(&self.0).clone()
    }
}

impl Volume {
    /// The first handle of the volume that a driver serves from `queue`. This is the seam for drivers (and for test
    /// doubles); users get their volumes from a client. Call it once for a queue: the last clone's end abandons it.
    #[must_use]
    pub fn from_queue(info: InfoCell, queue: &OpQueue, buffers: BufferPool) -> Self {
        Volume(Arc::new(Inner { channel: queue.channel(), info: info.0, buffers }))
    }

    /// What the volume is now.
    #[must_use]
    pub fn info(&self) -> VolumeInfo {
        self.lock_info().clone()
    }

    /// Whether all its operations fail from now on, for good: the volume is gone, or another client has it.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.channel.is_closed()
    }

    /// For who looks on: it is no handle of the volume, and keeps nothing open.
    #[must_use]
    pub fn looker(&self) -> VolumeLooker {
        VolumeLooker::new(Arc::clone(&self.0.channel))
    }

    /// A frame of the client's region, for [`Volume::read`] and (frozen) [`Volume::write`]. Waits, in order of coming,
    /// while the region is exhausted. What it contains is unspecified.
    ///
    /// # Errors
    /// [`VolumeError::TooLong`] when the whole region would not be enough.
    pub async fn buffer(&self, length_bytes: usize) -> Result<Frame, VolumeError> {
        self.0.buffers.frame(length_bytes).await
    }

    /// Fills the whole of `buffer` and gives it back.
    ///
    /// # Errors
    /// See [`VolumeError`]; the buffer then goes home.
    pub async fn read(&self, offset_bytes: u64, buffer: Frame) -> Result<Frame, VolumeError> {
        self.check_transfer(offset_bytes, buffer.len())?;
        if buffer.is_empty() {
            return Ok(buffer);
        }
        match self.0.channel.submit(OpKind::Read { offset_bytes, buffer }).await? {
            OpOutput::Frame(frame) => Ok(frame),
            _ => Err(VolumeError::Protocol { what: "a read came back without its data".into() }),
        }
    }

    /// Writes all of `data`. It is stable only after the next [`Volume::flush`].
    ///
    /// # Errors
    /// See [`VolumeError`]; the blocks then have their old or their new content.
    pub async fn write(&self, offset_bytes: u64, data: Slice) -> Result<(), VolumeError> {
        self.write_with(offset_bytes, data, false).await
    }

    /// Writes all of `data` to stable storage (FUA).
    ///
    /// # Errors
    /// As for [`Volume::write`].
    pub async fn write_stable(&self, offset_bytes: u64, data: Slice) -> Result<(), VolumeError> {
        self.write_with(offset_bytes, data, true).await
    }

    /// Makes every write that was complete before this call stable, whichever handle made it.
    ///
    /// # Errors
    /// See [`VolumeError`]; nothing is then known of the earlier writes.
    pub async fn flush(&self) -> Result<(), VolumeError> {
        self.0.channel.submit(OpKind::Flush).await.map(drop)
    }

    /// Gives the space back. The blocks then read as zeroes if [`VolumeInfo::discards`]; else what they read is
    /// unspecified.
    ///
    /// # Errors
    /// See [`VolumeError`]; a part of the range may be discarded all the same.
    pub async fn discard(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), VolumeError> {
        self.check_change(offset_bytes, length_bytes)?;
        let part = |offset_bytes, length_bytes| OpKind::Discard { offset_bytes, length_bytes };
        self.in_parts(offset_bytes, length_bytes, part).await
    }

    /// Writes zeroes without sending them.
    ///
    /// # Errors
    /// See [`VolumeError`]; a part of the range may be zero all the same.
    pub async fn write_zeroes(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), VolumeError> {
        self.check_change(offset_bytes, length_bytes)?;
        let part = |offset_bytes, length_bytes| OpKind::WriteZeroes { offset_bytes, length_bytes };
        self.in_parts(offset_bytes, length_bytes, part).await
    }

    /// Has the server copy blocks from another volume of the same server, which a copy manager of the server must find by its name:
    /// it is for the caller to know that it is the same server. The data does not come here.
    ///
    /// # Errors
    /// [`VolumeError::Unsupported`] when the server does not do that with these two; a part may be copied all the same.
    pub async fn copy_from(
        &self,
        source: &Volume,
        source_offset_bytes: u64,
        offset_bytes: u64,
        length_bytes: u64,
    ) -> Result<(), VolumeError> {
        let from = source.info();
        check_range(&from, source_offset_bytes, length_bytes)?;
        self.check_change(offset_bytes, length_bytes)?;
        let info = self.info();
        let (Some(from_naa), Some(to_naa)) = (from.naa, info.naa) else { return Err(VolumeError::Unsupported) };
        if from.block_bytes != info.block_bytes || from_naa == to_naa {
            return Err(VolumeError::Unsupported);
        }
        if length_bytes == 0 {
            return Ok(());
        }
        let naa = [from_naa, to_naa];
        let copy = OpKind::Copy { naa, source_offset_bytes, offset_bytes, length_bytes };
        self.0.channel.submit(copy).await.map(drop)
    }

    /// Tells which parts of a range, which is not empty, have space behind them: runs from its start to its end, or to where the
    /// server has stopped looking. Where a volume cannot tell, all has.
    ///
    /// # Errors
    /// See [`VolumeError`].
    pub async fn allocation(&self, offset_bytes: u64, length_bytes: u64) -> Result<Vec<AllocatedRun>, VolumeError> {
        let discards = {
            let info = self.lock_info();
            check_range(&info, offset_bytes, length_bytes)?;
            info.discards
        };
        let whole = vec![AllocatedRun { length_bytes, is_mapped: true }];
        // What has no space reads as zeroes only where discarded blocks do.
        if !discards || length_bytes == 0 {
            return Ok(whole);
        }
        match self.0.channel.submit(OpKind::Allocation { offset_bytes, length_bytes }).await {
            Ok(OpOutput::Allocation(runs)) if !runs.is_empty() => Ok(runs),
            Ok(_) | Err(VolumeError::Unsupported) => Ok(whole),
            Err(error) => Err(error),
        }
    }

    /// Asks the device whether there is news of the volume, as a volume does that nobody uses: with success, [`Volume::info`] is
    /// true now.
    ///
    /// # Errors
    /// See [`VolumeError`].
    pub async fn check(&self) -> Result<(), VolumeError> {
        self.0.channel.submit(OpKind::Check).await.map(drop)
    }

    async fn write_with(&self, offset_bytes: u64, data: Slice, stable: bool) -> Result<(), VolumeError> {
        self.check_transfer(offset_bytes, data.len())?;
        if self.lock_info().read_only {
            return Err(VolumeError::ReadOnly);
        }
        if data.is_empty() {
            return Ok(());
        }
        let needs_flush = stable && self.0.channel.lacks_fua();
        let stable = stable && !needs_flush;
        self.0.channel.submit(OpKind::Write { offset_bytes, data, stable }).await?;
        match if needs_flush { self.flush().await } else { Ok(()) } {
            // Who has no command for that has nothing to flush.
            Err(VolumeError::Unsupported) => Ok(()),
            result => result,
        }
    }

    /// Issues a range in parts, a few at a time, and waits for all that were issued.
    async fn in_parts(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        part: impl Fn(u64, u64) -> OpKind + Unpin,
    ) -> Result<(), VolumeError> {
        let part_max_bytes = {
            let info = self.lock_info();
            let block_bytes = u64::from(info.block_bytes.max(1));
            (info.range_max_bytes / block_bytes * block_bytes).max(block_bytes)
        };
        let mut parts = Parts {
            channel: &self.0.channel,
            next_bytes: offset_bytes,
            end_bytes: offset_bytes + length_bytes,
            part_max_bytes,
            flying: Vec::with_capacity(RANGE_PARTS_MAX.min(length_bytes.div_ceil(part_max_bytes) as usize)),
            failed: None,
        };
        poll_fn(|context| parts.poll(context, &part)).await
    }

    fn check_change(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), VolumeError> {
        let info = self.lock_info();
        check_range(&info, offset_bytes, length_bytes)?;
        if info.read_only { Err(VolumeError::ReadOnly) } else { Ok(()) }
    }

    fn check_transfer(&self, offset_bytes: u64, length: usize) -> Result<(), VolumeError> {
        let length_bytes = length as u64;
        let info = self.lock_info();
        check_range(&info, offset_bytes, length_bytes)?;
        let max_bytes = u64::from(info.transfer_limit_bytes);
        if length_bytes > max_bytes { Err(VolumeError::TooLong { length_bytes, max_bytes }) } else { Ok(()) }
    }

    fn lock_info(&self) -> MutexGuard<'_, VolumeInfo> {
        lock(&self.0.info)
    }
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let info = self.lock_info();
        write!(f, "Volume({} of {})", info.name, info.server)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.channel.abandon();
    }
}

fn lock(info: &Mutex<VolumeInfo>) -> MutexGuard<'_, VolumeInfo> {
    // Nothing panics while the lock is held.
    info.lock().unwrap_or_else(PoisonError::into_inner)
}

fn check_range(info: &VolumeInfo, offset_bytes: u64, length_bytes: u64) -> Result<(), VolumeError> {
    let (block_bytes, size_bytes) = (info.block_bytes, info.size_bytes);
    let whole = |bytes: u64| bytes.is_multiple_of(u64::from(block_bytes));
    if !whole(offset_bytes) || !whole(length_bytes) {
        return Err(VolumeError::Misaligned { offset_bytes, length_bytes, block_bytes });
    }
    match offset_bytes.checked_add(length_bytes) {
        Some(end_bytes) if end_bytes <= size_bytes => Ok(()),
        _ => Err(VolumeError::OutOfRange { offset_bytes, length_bytes, size_bytes }),
    }
}

/// A range on its way in parts.
struct Parts<'a> {
    channel: &'a Channel,
    next_bytes: u64,
    end_bytes: u64,
    part_max_bytes: u64,
    flying: Vec<Submission<'a>>,
    failed: Option<VolumeError>,
}

impl Parts<'_> {
    /// Goes on; after the first failure no further part is issued.
    fn poll(&mut self, context: &mut Context<'_>, part: &impl Fn(u64, u64) -> OpKind) -> Poll<Result<(), VolumeError>> {
        loop {
            while self.failed.is_none() && self.next_bytes < self.end_bytes && self.flying.len() < RANGE_PARTS_MAX {
                let length_bytes = self.part_max_bytes.min(self.end_bytes - self.next_bytes);
                self.flying.push(self.channel.submit(part(self.next_bytes, length_bytes)));
                self.next_bytes += length_bytes;
            }
            let before = self.flying.len();
            self.flying.retain_mut(|submission| match Pin::new(submission).poll(context) {
                Poll::Pending => true,
                Poll::Ready(Ok(_)) => false,
                Poll::Ready(Err(error)) => {
                    self.failed.get_or_insert(error);
                    false
                }
            });
            if self.flying.is_empty() && (self.failed.is_some() || self.next_bytes == self.end_bytes) {
                return Poll::Ready(self.failed.take().map_or(Ok(()), Err));
            }
            if self.flying.len() == before {
                return Poll::Pending;
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
