//! A volume for users who do not care about blocks: any offset, any length, any size.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sanwire_buffer::Frame;
use sanwire_core::limits::TRANSFER_MAX_BYTES;
use sanwire_initiator::{AllocatedRun, Volume, VolumeError, VolumeInfo};

use crate::range_lock::RangeLock;

/// A volume in bytes. Clones share it.
#[derive(Clone)]
pub(crate) struct ByteVolume(Arc<Inner>);

struct Inner {
    volume: Volume,
    /// Its user asked for it to be read only, whatever the server says.
    is_read_only: bool,
    locks: RangeLock,
    /// Its last operation failed, and not for a reason of its own.
    is_away: AtomicBool,
}

/// Memory for one write: the user's bytes in the middle of whole blocks.
pub(crate) struct WriteBuffer {
    frame: Frame,
    /// Where the frame's first byte goes: the start of a block.
    offset_bytes: u64,
    payload: Range<usize>,
}

impl WriteBuffer {
    /// Where the user's bytes go.
    pub(crate) fn payload_mut(&mut self) -> &mut [u8] {
        &mut self.frame[self.payload.clone()]
    }
}

/// The answer to a read: the user's bytes in the middle of whole blocks.
pub(crate) struct ReadData {
    frame: Frame,
    payload: Range<usize>,
}

impl ReadData {
    pub(crate) fn payload(&self) -> &[u8] {
        &self.frame[self.payload.clone()]
    }
}

/// A range of bytes as whole blocks around them.
struct Blocks {
    start: u64,
    length: usize,
    payload: Range<usize>,
}

impl ByteVolume {
    /// The volume, perhaps for reading only.
    pub(crate) fn new(volume: Volume, is_read_only: bool) -> Self {
        let (locks, is_away) = (RangeLock::default(), AtomicBool::new(false));
        ByteVolume(Arc::new(Inner { volume, is_read_only, locks, is_away }))
    }

    /// Logs when the volume goes away, and when it is back: nobody else may look at the errors of those who use it.
    fn heed<T>(&self, result: Result<T, VolumeError>) -> Result<T, VolumeError> {
        let is_away = &self.0.is_away;
        match &result {
            // Looked at first: nearly always there is nothing to change.
            Ok(_) if is_away.load(Ordering::Relaxed) && is_away.swap(false, Ordering::Relaxed) => {
                tracing::warn!("volume {} can be used again", self.info().name);
            }
            Err(error @ (VolumeError::Protocol { .. } | VolumeError::Disconnected { .. } | VolumeError::Closed))
                if !is_away.swap(true, Ordering::Relaxed) =>
            {
                tracing::warn!("volume {} cannot be used, its operations fail: {error}", self.info().name);
            }
            _ => {}
        }
        result
    }

    /// The volume in blocks.
    pub(crate) fn volume(&self) -> &Volume {
        &self.0.volume
    }

    pub(crate) fn info(&self) -> VolumeInfo {
        let info = self.0.volume.info();
        VolumeInfo { read_only: info.read_only || self.0.is_read_only, ..info }
    }

    /// Cuts a range into parts that one transfer carries each, at multiples of the transfer, none longer than
    /// [`TRANSFER_MAX_BYTES`]. The range is within the volume.
    pub(crate) fn parts(&self, offset_bytes: u64, length_bytes: u64) -> impl Iterator<Item = (u64, usize)> + use<> {
        let info = self.info();
        let block_bytes = info.block_bytes.max(1);
        let transfer_bytes = info.transfer_max_bytes.min(TRANSFER_MAX_BYTES as u32);
        let part_bytes = u64::from((transfer_bytes / block_bytes).max(1) * block_bytes);
        let end_bytes = offset_bytes.saturating_add(length_bytes);
        let mut at = offset_bytes;
        std::iter::from_fn(move || {
            let start = at;
            at = end_bytes.min((start / part_bytes + 1).saturating_mul(part_bytes));
            (start < end_bytes).then(|| (start, (at - start) as usize))
        })
    }

    /// Reads one part.
    pub(crate) async fn read(&self, offset_bytes: u64, length: usize) -> Result<ReadData, VolumeError> {
        let blocks = self.blocks(offset_bytes, length);
        let buffer = self.0.volume.buffer(blocks.length).await?;
        let frame = self.heed(self.0.volume.read(blocks.start, buffer).await)?;
        Ok(ReadData { frame, payload: blocks.payload })
    }

    /// Room for one part to write; waits while the client's region is exhausted.
    pub(crate) async fn write_buffer(&self, offset_bytes: u64, length: usize) -> Result<WriteBuffer, VolumeError> {
        let blocks = self.blocks(offset_bytes, length);
        let frame = self.0.volume.buffer(blocks.length).await?;
        Ok(WriteBuffer { frame, offset_bytes: blocks.start, payload: blocks.payload })
    }

    /// Writes one part.
    pub(crate) async fn write(&self, buffer: WriteBuffer, stable: bool) -> Result<(), VolumeError> {
        let WriteBuffer { mut frame, offset_bytes, payload } = buffer;
        let partial = payload != (0..frame.len());
        let _guard = self.0.locks.lock(offset_bytes..offset_bytes + frame.len() as u64, partial).await;
        if partial {
            self.fill_edges(&mut frame, offset_bytes, &payload).await?;
        }
        let data = frame.freeze();
        self.heed(match stable {
            true => self.0.volume.write_stable(offset_bytes, data).await,
            false => self.0.volume.write(offset_bytes, data).await,
        })
    }

    pub(crate) async fn flush(&self) -> Result<(), VolumeError> {
        self.heed(self.0.volume.flush().await)
    }

    /// Runs of the range, from its start to its end or before, and whether space stands behind them; the others are zero.
    pub(crate) async fn allocation(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
    ) -> Result<Vec<AllocatedRun>, VolumeError> {
        let block_bytes = u64::from(self.info().block_bytes.max(1));
        let start = offset_bytes / block_bytes * block_bytes;
        let end = (offset_bytes + length_bytes).next_multiple_of(block_bytes);
        let mut runs = self.heed(self.0.volume.allocation(start, end - start).await)?;
        let (mut ahead, mut left) = (offset_bytes - start, length_bytes);
        for run in &mut runs {
            let skipped = ahead.min(run.length_bytes);
            run.length_bytes = (run.length_bytes - skipped).min(left);
            (ahead, left) = (ahead - skipped, left - run.length_bytes);
        }
        runs.retain(|run| run.length_bytes > 0);
        Ok(runs)
    }

    /// Gives the whole blocks of the range back. A discard is advice: a volume that cannot has nothing to do.
    pub(crate) async fn discard(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), VolumeError> {
        let info = self.info();
        let Some(inner) = inner_blocks(&info, offset_bytes, length_bytes).filter(|_| info.discards) else {
            return Ok(());
        };
        let _guard = self.0.locks.lock(inner.clone(), false).await;
        match self.0.volume.discard(inner.start, inner.end - inner.start).await {
            Err(VolumeError::Unsupported) => Ok(()),
            result => result,
        }
    }

    /// Makes the range read as zeroes and gives its space back where the server can do both.
    pub(crate) async fn punch(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), VolumeError> {
        self.zero(offset_bytes, length_bytes, self.info().discards).await
    }

    /// Writes zeroes. Blocks in part are written as data, and so is everything when the server knows no better.
    pub(crate) async fn write_zeroes(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), VolumeError> {
        self.zero(offset_bytes, length_bytes, false).await
    }

    async fn zero(&self, offset_bytes: u64, length_bytes: u64, discard: bool) -> Result<(), VolumeError> {
        let end_bytes = offset_bytes.saturating_add(length_bytes);
        let Some(inner) = inner_blocks(&self.info(), offset_bytes, length_bytes) else {
            return self.write_zero_bytes(offset_bytes..end_bytes).await;
        };
        self.write_zero_bytes(offset_bytes..inner.start).await?;
        self.write_zero_bytes(inner.end..end_bytes).await?;
        let zeroed = {
            let _guard = self.0.locks.lock(inner.clone(), false).await;
            let length_bytes = inner.end - inner.start;
            match discard {
                true => self.0.volume.discard(inner.start, length_bytes).await,
                false => self.0.volume.write_zeroes(inner.start, length_bytes).await,
            }
        };
        match zeroed {
            Err(VolumeError::Unsupported) => self.write_zero_bytes(inner).await,
            result => result,
        }
    }

    async fn write_zero_bytes(&self, range: Range<u64>) -> Result<(), VolumeError> {
        for (offset_bytes, length) in self.parts(range.start, range.end.saturating_sub(range.start)) {
            let mut buffer = self.write_buffer(offset_bytes, length).await?;
            buffer.payload_mut().fill(0);
            self.write(buffer, false).await?;
        }
        Ok(())
    }

    /// Reads what surrounds the payload. Its memory is not the region's: a write that holds its frame and waits for
    /// another could wait for itself.
    async fn fill_edges(&self, frame: &mut Frame, start: u64, payload: &Range<usize>) -> Result<(), VolumeError> {
        let block = self.info().block_bytes as usize;
        let last = frame.len() - block;
        if payload.start > 0 {
            let edge = self.0.volume.read(start, vec![0; block].into()).await?;
            frame[..payload.start].copy_from_slice(&edge[..payload.start]);
            if last == 0 {
                frame[payload.end..].copy_from_slice(&edge[payload.end..]);
                return Ok(());
            }
        }
        if payload.end < frame.len() {
            let edge = self.0.volume.read(start + last as u64, vec![0; block].into()).await?;
            frame[payload.end..].copy_from_slice(&edge[payload.end - last..]);
        }
        Ok(())
    }

    fn blocks(&self, offset_bytes: u64, length: usize) -> Blocks {
        let block = u64::from(self.info().block_bytes.max(1));
        let head = (offset_bytes % block) as usize;
        Blocks {
            start: offset_bytes - head as u64,
            length: (head + length).next_multiple_of(block as usize),
            payload: head..head + length,
        }
    }
}

/// The whole blocks within a range, if there are any.
fn inner_blocks(info: &VolumeInfo, offset_bytes: u64, length_bytes: u64) -> Option<Range<u64>> {
    let block = u64::from(info.block_bytes.max(1));
    let start = offset_bytes.checked_next_multiple_of(block)?;
    let end = offset_bytes.checked_add(length_bytes)? / block * block;
    (start < end).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::block_on;
    use crate::test_volume::RamVolume;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Read,
        Write,
        Zero,
        Punch,
        Discard,
    }

    fn step() -> impl Strategy<Value = (Step, u64, usize, u8)> {
        let kind =
            prop_oneof![Just(Step::Read), Just(Step::Write), Just(Step::Zero), Just(Step::Punch), Just(Step::Discard)];
        (kind, 0u64..60_000, 1usize..20_000, any::<u8>())
    }

    proptest! {
        /// Against a plain array of bytes, at any alignment, on 4096-byte blocks and with tiny transfers.
        #[test]
        fn bytes_anywhere_behave_like_an_array(steps in proptest::collection::vec(step(), 1..60), zeroes in any::<bool>()) {
            let ram = RamVolume { size_bytes: 65_536, transfer_max_bytes: 8192, zeroes, ..RamVolume::default() };
            let volume = ByteVolume::new(ram.start(), false);
            let mut model = vec![0u8; 65_536];
            for (kind, offset, length, fill) in steps {
                let length = length.min(65_536 - offset as usize);
                let range = offset as usize..offset as usize + length;
                block_on(async {
                    match kind {
                        Step::Read => {
                            let mut seen = Vec::new();
                            for (at, part) in volume.parts(offset, length as u64) {
                                seen.extend_from_slice(volume.read(at, part).await.unwrap().payload());
                            }
                            assert_eq!(seen, &model[range]);
                        }
                        Step::Write => {
                            for (at, part) in volume.parts(offset, length as u64) {
                                let mut buffer = volume.write_buffer(at, part).await.unwrap();
                                buffer.payload_mut().fill(fill);
                                volume.write(buffer, fill % 2 == 0).await.unwrap();
                            }
                            model[range].fill(fill);
                        }
                        Step::Zero => {
                            volume.write_zeroes(offset, length as u64).await.unwrap();
                            model[range].fill(0);
                        }
                        Step::Punch => {
                            volume.punch(offset, length as u64).await.unwrap();
                            model[range].fill(0);
                        }
                        Step::Discard => {
                            volume.discard(offset, length as u64).await.unwrap();
                            if let Some(inner) = inner_blocks(&volume.info(), offset, length as u64) {
                                model[inner.start as usize..inner.end as usize].fill(0);
                            }
                        }
                    }
                });
            }
        }
    }

    #[test]
    fn neighbours_in_one_block_do_not_undo_each_other() {
        let ram = RamVolume { delay: std::time::Duration::from_micros(200), ..RamVolume::default() };
        let volume = ByteVolume::new(ram.start(), false);
        std::thread::scope(|scope| {
            for writer in 0..8u64 {
                let volume = &volume;
                scope.spawn(move || {
                    for round in 0..50u8 {
                        let mut buffer = block_on(volume.write_buffer(writer * 512, 512)).unwrap();
                        buffer.payload_mut().fill(round + writer as u8);
                        block_on(volume.write(buffer, false)).unwrap();
                    }
                });
            }
        });
        let data = block_on(volume.read(0, 4096)).unwrap();
        for (writer, sector) in data.payload().chunks(512).enumerate() {
            assert!(sector.iter().all(|byte| *byte == 49 + writer as u8), "writer {writer}");
        }
    }
}
