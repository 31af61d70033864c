//! One direction of a connection: bytes in order, in pieces, at their time; and its end.

use std::collections::VecDeque;
use std::time::Duration;

use sanwire_core::Instant;

use super::plan::PiecePlan;
use crate::random::Random;

/// Bytes or the end of a stream, on their way.
#[derive(Debug)]
pub enum Chunk {
    /// Some bytes, not none.
    Bytes(Vec<u8>),
    /// It was reset.
    End,
}

/// One direction of a connection.
#[derive(Debug, Default)]
pub struct Stream {
    chunks: VecDeque<(Instant, Chunk)>,
    last_at: Option<Instant>,
    is_cut: bool,
    /// The end that reads it must wait.
    pub is_blocked: bool,
}

impl Stream {
    /// Sends bytes, cut into pieces.
    pub fn send(&mut self, mut bytes: &[u8], plan: &PiecePlan, random: &mut Random, now: Instant) {
        while !bytes.is_empty() && !self.is_cut {
            let whole = bytes.len() as u64;
            let length = if plan.piece_max_bytes >= whole { whole } else { random.range(1..=plan.piece_max_bytes) };
            let (piece, rest) = bytes.split_at(length.min(whole) as usize);
            let at = self.arrival(now + random.micros(plan.delay_us.0..=plan.delay_us.1));
            self.chunks.push_back((at, Chunk::Bytes(piece.to_vec())));
            bytes = rest;
        }
    }

    fn arrival(&mut self, at: Instant) -> Instant {
        let at = self.last_at.map_or(at, |last| last.max(at));
        self.last_at = Some(at);
        at
    }

    /// Cuts it: of what is on its way some comes, then its end, if that is noticed.
    pub fn cut(&mut self, is_noticed: bool, random: &mut Random, now: Instant) {
        if self.is_cut {
            return;
        }
        self.is_cut = true;
        let kept = random.range(0..=self.chunks.len() as u64) as usize;
        self.chunks.truncate(kept);
        if let Some((_, Chunk::Bytes(bytes))) = self.chunks.back_mut()
            && random.chance(500_000)
        {
            bytes.truncate(random.range(1..=bytes.len() as u64) as usize);
        }
        if is_noticed {
            let at = self.arrival(now + random.micros(0..=1_000));
            self.chunks.push_back((at, Chunk::End));
        }
    }

    /// Ends it after what is on its way.
    pub fn finish(&mut self, now: Instant) {
        if !self.is_cut {
            self.is_cut = true;
            let at = self.arrival(now);
            self.chunks.push_back((at, Chunk::End));
        }
    }

    /// Nothing comes for so long.
    pub fn stall(&mut self, until: Instant) {
        for (at, _) in &mut self.chunks {
            *at = (*at).max(until);
        }
        self.last_at = Some(self.last_at.map_or(until, |last| last.max(until)));
    }

    /// When the next chunk comes, unless nobody may read it.
    #[must_use]
    pub fn next_at(&self) -> Option<Instant> {
        let (at, chunk) = self.chunks.front()?;
        // An end is noticed by who does not read, too.
        (!self.is_blocked || matches!(chunk, Chunk::End)).then_some(*at)
    }

    /// Takes what comes next.
    pub fn take(&mut self) -> Option<Chunk> {
        self.chunks.pop_front().map(|(_, chunk)| chunk)
    }

    /// Puts back what was not read.
    pub fn put_back(&mut self, bytes: &[u8], now: Instant) {
        if !bytes.is_empty() {
            self.chunks.push_front((now, Chunk::Bytes(bytes.to_vec())));
        }
    }
}

/// The shortest time that a connection takes to open.
pub const OPENING: Duration = Duration::from_micros(50);
