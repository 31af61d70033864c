//! Copies an image file or volume into another: sparse, with several operations in flight, able to go on after a break.
//!
//! The copy goes forward in short stages. At the end of a stage everything in flight has ended, the destination is
//! flushed and the journal says how far the copy is: what a resumed copy skips is on stable storage. It skips nothing that may
//! have changed: a source that cannot tell is read again from its start, and compared with what was copied.

mod content;
mod end;
mod image;
mod journal;
mod parts;
mod stage;
mod stream;

use std::cell::Cell;
use std::ops::Range;

use sanwire_core::Size;
use sanwire_initiator::VolumeError;

pub(crate) use content::find_data;
pub(crate) use end::End;
pub(crate) use image::Image;
pub(crate) use journal::{Interrupted, Journal, Key};
use stage::{Mode, Stage};
pub(crate) use stream::{read_in, write_out};

/// How often the destination's server may lose writes of a copy before the copy fails.
const LOSSES_MAX: u32 = 8;

/// How to copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyOptions {
    /// Operations in flight.
    pub(crate) depth: u16,
    /// How much an interrupted copy that goes on had done.
    pub(crate) done_bytes: Option<u64>,
    /// Whether to read both ends again and compare them.
    pub(crate) verify: bool,
    /// Whether both ends are volumes of one server, which may copy by itself.
    pub(crate) by_server: bool,
}

/// What was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Copied {
    /// Bytes that an earlier, interrupted copy had done, and that were left as they are.
    pub(crate) resumed_bytes: u64,
    /// Bytes that were written.
    pub(crate) data_bytes: u64,
    /// How much of that the server has copied by itself.
    pub(crate) server_bytes: u64,
    /// Bytes that were zero and became holes or discarded blocks.
    pub(crate) zero_bytes: u64,
    /// Bytes that were read again at both ends and compared.
    pub(crate) verified_bytes: u64,
}

/// Copies all of `from` to the start of `to`. `progress` hears how far it is.
///
/// # Errors
/// When the source does not fit, or an operation fails; the journal then stays, for the next try.
pub(crate) async fn copy(
    from: &End,
    to: &mut End,
    journal: &Journal,
    options: CopyOptions,
    progress: impl Fn(u64),
) -> anyhow::Result<Copied> {
    let size_bytes = from.size_bytes();
    check_fit(from, to)?;
    if options.done_bytes.is_none() {
        // From here on the destination is no longer what an interrupted copy has left.
        journal.remove()?;
    }
    let start_bytes = to.prepare(size_bytes, options.done_bytes)?;
    let by_server = Cell::new(options.by_server);
    let mut copying = Copying { from, to, depth: options.depth, by_server, journal, copied: Copied::default() };
    if journal.must_compare() {
        copying.run(Mode::Update, 0..start_bytes, &progress).await?;
        to.flush().await?;
    } else {
        copying.copied.resumed_bytes = start_bytes;
        progress(start_bytes);
    }
    copying.run(Mode::Copy, start_bytes..size_bytes, &progress).await?;
    to.flush().await?;
    to.check_final_size(size_bytes)?;
    if options.verify {
        copying.run(Mode::Verify, 0..size_bytes, &progress).await?;
    }
    journal.remove()?;
    Ok(copying.copied)
}

/// A copy under way.
struct Copying<'a> {
    from: &'a End,
    to: &'a End,
    depth: u16,
    /// Until the server refuses.
    by_server: Cell<bool>,
    journal: &'a Journal,
    copied: Copied,
}

impl Copying<'_> {
    /// Goes through a range, stage by stage.
    async fn run(&mut self, mode: Mode, mut range: Range<u64>, progress: &impl Fn(u64)) -> anyhow::Result<()> {
        let mut losses = 0;
        while !range.is_empty() {
            let stage = Stage { from: self.from, to: self.to, mode, depth: self.depth, by_server: &self.by_server };
            let (place_bytes, tally) = stage.run(range.clone(), progress).await?;
            if mode == Mode::Copy && self.is_lost(&mut losses).await? {
                continue;
            }
            range.start = place_bytes;
            self.copied.data_bytes += tally.data_bytes;
            self.copied.server_bytes += tally.server_bytes;
            self.copied.zero_bytes += tally.zero_bytes;
            match mode {
                Mode::Update => self.copied.resumed_bytes += tally.same_bytes,
                Mode::Verify => self.copied.verified_bytes += tally.same_bytes,
                Mode::Copy => self.journal.save(place_bytes)?,
            }
        }
        Ok(())
    }

    /// Makes the stage stable; whether the destination's server has lost writes of it instead, so that it is to be copied again. What
    /// came before was flushed.
    async fn is_lost(&self, losses: &mut u32) -> anyhow::Result<bool> {
        let Err(error) = self.to.flush().await else { return Ok(false) };
        let is_loss = matches!(error.downcast_ref(), Some(VolumeError::WritesLost { .. }));
        *losses += 1;
        if !is_loss || *losses > LOSSES_MAX {
            return Err(error);
        }
        tracing::warn!("{}: what was not stable there yet is copied again", self.to.name());
        Ok(true)
    }
}

/// # Errors
/// When the source is longer than the destination can be.
pub(crate) fn check_fit(from: &End, to: &End) -> anyhow::Result<()> {
    let size_bytes = from.size_bytes();
    let Some(room_bytes) = to.room_bytes() else { return Ok(()) };
    let block_bytes = to.block_bytes();
    let whole_bytes = size_bytes.checked_next_multiple_of(block_bytes);
    anyhow::ensure!(
        whole_bytes.is_some_and(|bytes| bytes <= room_bytes),
        "{} ({}) does not fit into {} ({}): make a volume of at least that size",
        from.name(),
        Size(size_bytes),
        to.name(),
        Size(room_bytes)
    );
    Ok(())
}

#[cfg(test)]
mod tests;
