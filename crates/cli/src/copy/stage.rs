//! A few seconds of copying or comparing, with several operations in flight.

use std::cell::Cell;
use std::ops::Range;
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, TryStreamExt};
use sanwire_buffer::Frame;

use super::end::End;
use super::parts::{Part, Parts};

/// How long operations are started before the stage is brought to its end.
const STAGE_TIME: Duration = Duration::from_secs(2);

/// What the server copies by itself at once, so that the progress is seen.
const SERVER_CHUNK_BYTES: u64 = 4 << 20;

/// What is done with each part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    /// Write it.
    Copy,
    /// Write it where the destination has something else.
    Update,
    /// The destination must have the same.
    Verify,
}

/// What a stage has done, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Tally {
    pub(super) data_bytes: u64,
    /// Those of them that the server has copied by itself.
    pub(super) server_bytes: u64,
    pub(super) zero_bytes: u64,
    /// The destination had them already.
    pub(super) same_bytes: u64,
}

impl Tally {
    fn add(&mut self, other: Tally) {
        self.data_bytes += other.data_bytes;
        self.server_bytes += other.server_bytes;
        self.zero_bytes += other.zero_bytes;
        self.same_bytes += other.same_bytes;
    }

    fn done_bytes(&self) -> u64 {
        self.data_bytes + self.zero_bytes + self.same_bytes
    }
}

/// The two ends of a stage.
#[derive(Clone, Copy)]
pub(super) struct Stage<'a> {
    pub(super) from: &'a End,
    pub(super) to: &'a End,
    pub(super) mode: Mode,
    pub(super) depth: u16,
    /// Whether the server of both is asked to copy; it is not any more once it has refused.
    pub(super) by_server: &'a Cell<bool>,
}

impl<'a> Stage<'a> {
    /// Works on a range until the time is over and everything in flight has ended; gives the new place.
    pub(super) async fn run(self, range: Range<u64>, progress: &impl Fn(u64)) -> anyhow::Result<(u64, Tally)> {
        let start_bytes = range.start;
        let deadline = Instant::now() + STAGE_TIME;
        let mut flying = FuturesUnordered::new();
        let mut parts = Parts::new(self.from, range, self.part_bytes());
        let mut tally = Tally::default();
        loop {
            while flying.len() < usize::from(self.depth.max(1)) && Instant::now() < deadline {
                let Some(part) = parts.next().await? else { break };
                flying.push(self.work_on(part));
            }
            let Some(done) = flying.try_next().await? else { return Ok((parts.place_bytes(), tally)) };
            tally.add(done);
            progress(start_bytes + tally.done_bytes());
        }
    }

    /// The longest single operation that both ends take.
    fn chunk_bytes(self) -> u64 {
        self.from.chunk_bytes(self.depth).min(self.to.chunk_bytes(self.depth))
    }

    /// The longest part with data.
    fn part_bytes(self) -> u64 {
        if self.is_by_server() { SERVER_CHUNK_BYTES } else { self.chunk_bytes() }
    }

    fn is_by_server(self) -> bool {
        self.mode == Mode::Copy && self.by_server.get()
    }

    async fn work_on(self, part: Part) -> anyhow::Result<Tally> {
        if part.is_hole && self.mode == Mode::Copy && self.to.zero(part.range.clone()).await? {
            return Ok(Tally { zero_bytes: part.length_bytes(), ..Tally::default() });
        }
        if !part.is_hole && self.is_by_server() {
            if self.to.copy_from(self.from, part.range.clone()).await? {
                let data_bytes = part.length_bytes();
                return Ok(Tally { data_bytes, server_bytes: data_bytes, ..Tally::default() });
            }
            self.by_server.set(false);
        }
        let mut tally = Tally::default();
        let mut start_bytes = part.range.start;
        while start_bytes < part.range.end {
            let end_bytes = part.range.end.min(start_bytes + self.chunk_bytes());
            let chunk = Part { range: start_bytes..end_bytes, is_hole: part.is_hole };
            tally.add(match self.mode {
                Mode::Copy => self.copy(chunk).await?,
                Mode::Update | Mode::Verify => self.compare(chunk).await?,
            });
            start_bytes = end_bytes;
        }
        Ok(tally)
    }

    /// Copies one operation's worth of bytes.
    async fn copy(self, part: Part) -> anyhow::Result<Tally> {
        let frame = self.read(&part).await?;
        self.put(&part, frame).await
    }

    /// Compares one operation's worth of bytes, and copies it when it differs and may.
    async fn compare(self, part: Part) -> anyhow::Result<Tally> {
        let wanted = self.read(&part).await?;
        // Not of the region, where each operation has a frame already: they could wait for each other.
        let found = self.to.read(part.range.start, Frame::from(vec![0; wanted.len()])).await?;
        // A destination may go on behind the end of the source.
        let length = usize::try_from(part.length_bytes())?;
        let differs = wanted[..length].iter().zip(&found[..length]).position(|(wanted, found)| wanted != found);
        match differs {
            None => Ok(Tally { same_bytes: part.length_bytes(), ..Tally::default() }),
            Some(_) if self.mode == Mode::Update => self.put(&part, wanted).await,
            Some(at) => anyhow::bail!(
                "{} differs from {} at byte {}: one of them was changed meanwhile, or does not keep what it is given",
                self.to.name(),
                self.from.name(),
                part.range.start + at as u64
            ),
        }
    }

    /// The source's bytes, in whole blocks of both ends.
    async fn read(self, part: &Part) -> anyhow::Result<Frame> {
        let block_bytes = self.to.block_bytes().max(self.from.block_bytes());
        let length = usize::try_from(part.length_bytes().next_multiple_of(block_bytes))?;
        let mut frame = match self.from.buffer(length).await? {
            Some(frame) => frame,
            None => self.to.buffer(length).await?.unwrap_or_else(|| Frame::from(vec![0; length])),
        };
        if part.is_hole {
            frame.fill(0);
            return Ok(frame);
        }
        self.from.read(part.range.start, frame).await
    }

    async fn put(self, part: &Part, mut frame: Frame) -> anyhow::Result<Tally> {
        let length = usize::try_from(part.length_bytes())?;
        if self.to.block_bytes() == 1 {
            frame.truncate(length);
        }
        // A file that is updated may have something there.
        let can_clear = self.mode == Mode::Copy || self.to.is_volume();
        let (data, mut tally) = (frame.freeze(), Tally::default());
        for Run { range, is_zero } in runs(&data) {
            let start_bytes = part.range.start + range.start as u64;
            let run_bytes = (range.end.min(length) - range.start) as u64;
            if is_zero && can_clear && self.to.zero(start_bytes..start_bytes + range.len() as u64).await? {
                tally.zero_bytes += run_bytes;
            } else {
                self.to.write(start_bytes, data.slice(range)).await?;
                tally.data_bytes += run_bytes;
            }
        }
        Ok(tally)
    }
}

/// Zeroes are looked for in units of so many bytes.
const ZERO_UNIT_BYTES: usize = 256 << 10;

/// A part of an operation's bytes of which all is zero, or of which every unit has something else.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Run {
    pub(super) range: Range<usize>,
    pub(super) is_zero: bool,
}

/// All runs of some bytes, in order.
pub(super) fn runs(bytes: &[u8]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (unit, start) in bytes.chunks(ZERO_UNIT_BYTES).zip((0..).step_by(ZERO_UNIT_BYTES)) {
        let (end, is_zero) = (start + unit.len(), is_zero(unit));
        match runs.last_mut().filter(|run| run.is_zero == is_zero) {
            Some(run) => run.range.end = end,
            None => runs.push(Run { range: start..end, is_zero }),
        }
    }
    runs
}

fn is_zero(bytes: &[u8]) -> bool {
    // Whole rows first: the compiler makes wide instructions of them.
    bytes.chunks(64).all(|row| row.iter().fold(0, |sum, byte| sum | byte) == 0)
}
