//! The two things that a copy has at its ends.

use std::ops::Range;

use anyhow::Context;
use sanwire_buffer::{Frame, Slice};
use sanwire_core::Protection;
use sanwire_initiator::{Volume, VolumeError};

use super::image::Image;

/// Bytes of one operation at the most, and at least where the ends take so much. Longer ones cost more time of the processor.
const CHUNK_MAX_BYTES: u64 = 1 << 20;
const CHUNK_MIN_BYTES: u64 = 256 << 10;

/// Bytes of all operations in flight, unless they are the smallest.
const IN_FLIGHT_MAX_BYTES: u64 = 8 << 20;

/// A source or a destination.
#[derive(Debug)]
pub(crate) enum End {
    /// An image file or a block device of this host.
    Image(Image),
    /// A volume, and its URL.
    Volume(Volume, String),
}

/// A run of bytes that is all data or all a hole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Extent {
    pub(super) range: Range<u64>,
    pub(super) is_hole: bool,
}

impl End {
    pub(super) fn name(&self) -> String {
        match self {
            End::Image(image) => image.path().display().to_string(),
            End::Volume(_, url) => url.clone(),
        }
    }

    /// How its packets are protected, as far as its wire protects any.
    pub(crate) fn protection(&self) -> Protection {
        match self {
            End::Image(_) => Protection::default(),
            End::Volume(volume, _) => volume.info().protection.unwrap_or_default(),
        }
    }

    /// How many bytes it has now.
    pub(crate) fn size_bytes(&self) -> u64 {
        match self {
            End::Image(image) => image.size_bytes(),
            End::Volume(volume, _) => volume.info().size_bytes,
        }
    }

    /// The room of a destination; a file grows.
    pub(super) fn room_bytes(&self) -> Option<u64> {
        match self {
            End::Image(image) if !image.is_block_device() => None,
            _ => Some(self.size_bytes()),
        }
    }

    /// What offsets and lengths are multiples of, except at the end of a file.
    pub(super) fn block_bytes(&self) -> u64 {
        match self {
            End::Image(_) => 1,
            End::Volume(volume, _) => u64::from(volume.info().block_bytes.max(1)),
        }
    }

    /// The longest single operation, where so many are in flight.
    pub(super) fn chunk_bytes(&self, depth: u16) -> u64 {
        let most = (IN_FLIGHT_MAX_BYTES / u64::from(depth.max(1))).clamp(CHUNK_MIN_BYTES, CHUNK_MAX_BYTES);
        let taken = match self {
            End::Image(_) => most,
            End::Volume(volume, _) => most.min(volume.info().transfer_max_bytes.into()),
        };
        // A multiple of the blocks of the other end too.
        if taken > CHUNK_MIN_BYTES { taken / CHUNK_MIN_BYTES * CHUNK_MIN_BYTES } else { taken }
    }

    pub(super) fn is_volume(&self) -> bool {
        matches!(self, End::Volume(..))
    }

    /// Whether a copy goes into something that is there, and is not made larger or smaller by it.
    pub(crate) fn has_room(&self) -> bool {
        self.room_bytes().is_some()
    }

    /// What a source with any other content would not have; `None` where its content may change without a trace.
    pub(crate) fn version(&self) -> anyhow::Result<Option<String>> {
        match self {
            End::Image(image) => image.version(),
            End::Volume(..) => Ok(None),
        }
    }

    /// What tells it from any other thing of its name.
    pub(crate) fn identity(&self) -> anyhow::Result<String> {
        match self {
            End::Image(image) => image.identity(),
            End::Volume(volume, _) => {
                let info = volume.info();
                Ok(format!("{} {} {}", info.identity, info.size_bytes, info.block_bytes))
            }
        }
    }

    /// A destination must take writes.
    pub(crate) fn check_writable(&self) -> anyhow::Result<()> {
        match self {
            End::Volume(volume, url) if volume.info().read_only => anyhow::bail!("{url}: {}", VolumeError::ReadOnly),
            _ => Ok(()),
        }
    }

    /// Makes a destination ready for `size_bytes`; gives where to go on: `done_bytes`, unless the destination is not
    /// what the interrupted copy left.
    pub(super) fn prepare(&mut self, size_bytes: u64, done_bytes: Option<u64>) -> anyhow::Result<u64> {
        self.check_writable()?;
        match self {
            End::Image(image) => image.prepare(size_bytes, done_bytes),
            End::Volume(..) => Ok(done_bytes.unwrap_or(0)),
        }
    }

    /// Extents from the start of a range, which is not empty, to its end or before.
    pub(super) async fn extents_at(&self, range: Range<u64>) -> anyhow::Result<Vec<Extent>> {
        match self {
            End::Image(image) => Ok(vec![image.extent_at(range.start)?]),
            End::Volume(volume, url) => {
                let mut at_bytes = range.start;
                let runs = volume.allocation(at_bytes, range.end - at_bytes).await;
                let runs = runs.with_context(|| format!("looking for holes in {url}"))?;
                Ok(runs
                    .into_iter()
                    .map(|run| {
                        let range = at_bytes..at_bytes + run.length_bytes;
                        at_bytes = range.end;
                        Extent { range, is_hole: !run.is_mapped }
                    })
                    .collect())
            }
        }
    }

    /// Memory for one operation, when this end has its own.
    pub(super) async fn buffer(&self, length: usize) -> anyhow::Result<Option<Frame>> {
        match self {
            End::Image(_) => Ok(None),
            End::Volume(volume, url) => Ok(Some(volume.buffer(length).await.with_context(|| url.clone())?)),
        }
    }

    /// Fills the frame; past the end of a file it is zero.
    pub(super) async fn read(&self, offset_bytes: u64, frame: Frame) -> anyhow::Result<Frame> {
        match self {
            End::Image(image) => image.read(offset_bytes, frame),
            End::Volume(volume, url) => {
                volume.read(offset_bytes, frame).await.with_context(|| format!("reading {url}"))
            }
        }
    }

    pub(super) async fn write(&self, offset_bytes: u64, data: Slice) -> anyhow::Result<()> {
        match self {
            End::Image(image) => image.write(offset_bytes, &data),
            End::Volume(volume, url) => {
                volume.write(offset_bytes, data).await.with_context(|| format!("writing {url}"))
            }
        }
    }

    /// Makes the range read as zeroes, with as little written as possible.
    ///
    /// Gives `false` when only writing zeroes will do.
    pub(super) async fn zero(&self, range: Range<u64>) -> anyhow::Result<bool> {
        match self {
            End::Image(image) => Ok(image.reads_zero_unwritten()),
            End::Volume(volume, url) => {
                let length_bytes = range.end - range.start;
                let result = if volume.info().discards {
                    volume.discard(range.start, length_bytes).await
                } else {
                    volume.write_zeroes(range.start, length_bytes).await
                };
                match result {
                    Err(VolumeError::Unsupported) => Ok(false),
                    result => result.map(|()| true).with_context(|| format!("clearing blocks of {url}")),
                }
            }
        }
    }

    /// Has the server copy the same range from another volume of its; `false` when it does not, and nobody knows what is there now.
    pub(super) async fn copy_from(&self, source: &End, range: Range<u64>) -> anyhow::Result<bool> {
        let (End::Volume(from, _), End::Volume(to, url)) = (source, self) else { return Ok(false) };
        match to.copy_from(from, range.start, range.start, range.end - range.start).await {
            Err(VolumeError::Unsupported) => Ok(false),
            result => result.map(|()| true).with_context(|| format!("having the server copy into {url}")),
        }
    }

    pub(super) async fn flush(&self) -> anyhow::Result<()> {
        match self {
            End::Image(image) => image.flush(),
            End::Volume(volume, url) => volume.flush().await.with_context(|| format!("flushing {url}")),
        }
    }

    /// A destination that is not as large as what was copied has been changed by somebody else.
    pub(super) fn check_final_size(&self, size_bytes: u64) -> anyhow::Result<()> {
        let found_bytes = match self {
            End::Image(image) => image.current_size()?,
            End::Volume(volume, _) => volume.info().size_bytes,
        };
        let is_right = if self.room_bytes().is_none() { found_bytes == size_bytes } else { found_bytes >= size_bytes };
        anyhow::ensure!(
            is_right,
            "{} has {found_bytes} bytes after a copy of {size_bytes}: somebody changed it meanwhile, copy again",
            self.name()
        );
        Ok(())
    }
}
