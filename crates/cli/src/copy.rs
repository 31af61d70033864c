//! Copies an image file or volume into another: sparse, with several operations in flight, able to go on after a break.
//!
//! The copy goes forward in short stages. At the end of a stage everything in flight has ended, the destination is
//! flushed and the journal says how far the copy is: what a resumed copy skips is on stable storage.

mod end;
mod image;
mod journal;
mod stage;

use sanwire_core::Size;

pub(crate) use end::End;
pub(crate) use image::Image;
pub(crate) use journal::{Journal, Key};
use stage::Stage;

/// How to copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyOptions {
    /// Operations in flight.
    pub(crate) depth: u16,
    /// Whether to forget an interrupted copy.
    pub(crate) restart: bool,
}

/// What was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Copied {
    /// Bytes that an earlier, interrupted copy had done.
    pub(crate) resumed_bytes: u64,
    /// Bytes that were written.
    pub(crate) data_bytes: u64,
    /// Bytes that were zero and became holes or discarded blocks.
    pub(crate) zero_bytes: u64,
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
    let done_bytes = if options.restart { None } else { journal.load().filter(|done| *done <= size_bytes) };
    let start_bytes = to.prepare(size_bytes, done_bytes)?;
    let mut copied = Copied { resumed_bytes: start_bytes, ..Copied::default() };
    let mut place_bytes = start_bytes;
    progress(place_bytes);
    while place_bytes < size_bytes {
        let mut stage = Stage::new(from, to, place_bytes, options.depth);
        place_bytes = stage.run(&progress).await?;
        copied.data_bytes += stage.data_bytes;
        copied.zero_bytes += stage.zero_bytes;
        to.flush().await?;
        journal.save(place_bytes)?;
    }
    to.flush().await?;
    to.check_final_size(size_bytes)?;
    journal.remove();
    Ok(copied)
}

fn check_fit(from: &End, to: &End) -> anyhow::Result<()> {
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
