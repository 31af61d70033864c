//! A store that fails on purpose, reproducibly.

use std::io;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sanwire_core::Size;

use super::{Layer, Which};
use crate::completion::CompletionQueue;
use crate::error::{ErrorKind, StoreError};
use crate::request::{Capabilities, Request, Started, Store};
use crate::resize::ResizeError;

/// Where a rule holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// Everywhere.
    Everywhere,
    /// On these bytes.
    Bytes(Range<u64>),
    /// On these logical blocks.
    Blocks(Range<u64>),
}

/// Which requests fail, where, how often: `WHICH[@FROM..TO|#FROM..TO][:PROBABILITY]`.
///
/// `@` counts bytes and takes units, `#` counts logical blocks; `TO` is the first that is sound again. Without a place
/// it holds everywhere, without a probability always. `read:0.01` fails one read of a hundred, `write@1M..2M` every
/// write that touches the second mebibyte, `read#2048..2049:0.5` every other read of block 2048. The word is one of
/// [`Which::from_word`].
#[derive(Clone, PartialEq, Debug)]
pub struct ErrorRule {
    /// Which requests.
    pub which: Which,
    /// Where.
    pub place: Place,
    /// How often, from 0 to 1.
    pub probability: f64,
}

impl FromStr for ErrorRule {
    /// What is expected, in words.
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "all|read|write|flush|discard, then @BYTE..BYTE or #LBA..LBA, then :PROBABILITY (both \
                                optional), like read:0.01, write@1M..2M or read#2048..2049:0.5";
        let (rest, probability) = match text.split_once(':') {
            Some((rest, number)) => (rest, number.parse().map_err(|_| EXPECTED)?),
            None => (text, 1.0),
        };
        let (word, place) = if let Some((word, range)) = rest.split_once('@') {
            (word, parse_range(range, |text| text.parse().ok().map(|Size(bytes)| bytes)).map(Place::Bytes))
        } else if let Some((word, range)) = rest.split_once('#') {
            (word, parse_range(range, |text| text.parse().ok()).map(Place::Blocks))
        } else {
            (rest, Some(Place::Everywhere))
        };
        let which = Which::from_word(word).ok_or(EXPECTED)?;
        let place = place.ok_or(EXPECTED)?;
        // Also refuses what is not a number.
        if (0.0..=1.0).contains(&probability) { Ok(ErrorRule { which, place, probability }) } else { Err(EXPECTED) }
    }
}

fn parse_range(text: &str, number: impl Fn(&str) -> Option<u64>) -> Option<Range<u64>> {
    let (from, to) = text.split_once("..")?;
    let range = number(from)?..number(to)?;
    (!range.is_empty()).then_some(range)
}

/// Fails requests as its rules say; the others reach the store below.
///
/// Chance comes from a seed, so a single client that repeats its requests sees the same failures again.
#[derive(Debug)]
pub struct ErrorLayer {
    rules: Vec<ErrorRule>,
    state: AtomicU64,
}

impl ErrorLayer {
    /// Failures by these rules, by chances from this seed.
    #[must_use]
    pub fn new(rules: Vec<ErrorRule>, seed: u64) -> Self {
        ErrorLayer { rules, state: AtomicU64::new(seed) }
    }

    /// The first byte of the request that fails, if it does.
    fn failure_bytes(&self, request: &Request, below: &dyn Store) -> Option<u64> {
        let block_bytes = u64::from(below.geometry().block_bytes);
        self.rules.iter().find_map(|rule| {
            let first = rule.first_hit_bytes(request, block_bytes)?;
            (rule.probability >= 1.0 || self.chance() < rule.probability).then_some(first)
        })
    }

    /// The next number in 0..1, by SplitMix64, whose state is a plain counter that threads can share.
    fn chance(&self) -> f64 {
        const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut word = self.state.fetch_add(GAMMA, Ordering::Relaxed).wrapping_add(GAMMA);
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

impl ErrorRule {
    /// The first byte of the request that the rule holds for.
    fn first_hit_bytes(&self, request: &Request, block_bytes: u64) -> Option<u64> {
        if !self.which.covers(request) {
            return None;
        }
        let (offset_bytes, length_bytes) = request.range_bytes();
        let bad = match &self.place {
            Place::Everywhere => return Some(offset_bytes),
            Place::Bytes(range) => range.clone(),
            Place::Blocks(range) => range.start.saturating_mul(block_bytes)..range.end.saturating_mul(block_bytes),
        };
        let end = offset_bytes.saturating_add(length_bytes);
        let first = bad.start.max(offset_bytes);
        (first < end.min(bad.end)).then_some(first)
    }
}

impl Layer for ErrorLayer {
    /// What is shared would not fail.
    fn narrow(&self, below: Capabilities) -> Capabilities {
        Capabilities { shares: false, ..below }
    }

    /// The new length is made stable by a flush.
    fn resized(&self, below: &dyn Store) -> Result<(), ResizeError> {
        match self.failure_bytes(&Request::Flush, below) {
            Some(_) => Err(ResizeError::Unstable(io::Error::other("the store fails on purpose"))),
            None => Ok(()),
        }
    }

    fn start(&self, request: Request, below: &Arc<dyn Store>, completions: &CompletionQueue) -> Started {
        let Some(offset_bytes) = self.failure_bytes(&request, &**below) else {
            return below.start(request, completions);
        };
        let kind = match request {
            Request::Read { .. } => ErrorKind::Unreadable,
            _ => ErrorKind::Unwritable,
        };
        Started::Done(Err(StoreError::new(kind, offset_bytes)))
    }
}
