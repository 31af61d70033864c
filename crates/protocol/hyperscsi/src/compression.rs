//! Data that goes compressed (LZ4), where that makes it shorter. Each message stands alone: nothing of one helps to compress, or
//! to guess, another.
//!
//! ```text
//! compressed data   4 bytes length when expanded, LZ4 block
//! ```

use lz4_flex::block::{self, CompressTable};
use sanwire_buffer::{Slice, Slices};

use crate::wire::command::EXPANDED_MAX_KIB;

/// Longer data goes as it is: its length could not be announced.
pub(crate) const EXPANDED_MAX_BYTES: usize = EXPANDED_MAX_KIB as usize * 1024;

/// Shorter data goes as it is: it fills one packet anyhow.
const MIN_BYTES: usize = 1024;

/// What is tried first of longer data: if it does not shrink, the rest is not looked at.
const SAMPLE_BYTES: usize = 4096;

/// Messages that are not even tried after many that did not shrink, at the most.
const SKIPPED_MAX: u32 = 31;

const LENGTH_BYTES: usize = 4;

/// Data that has become shorter.
pub(crate) struct Compressed {
    pub(crate) data: Slice,
    /// How long it was, in KiB, rounded up.
    pub(crate) expanded_kib: u16,
}

/// What compresses the messages of one direction.
pub(crate) struct Compressor {
    table: CompressTable,
    scratch: Vec<u8>,
    /// Messages that are still skipped, and that were the last time.
    skips: u32,
    skipped: u32,
}

impl Default for Compressor {
    fn default() -> Self {
        Compressor { table: CompressTable::large(), scratch: Vec::new(), skips: 0, skipped: 0 }
    }
}

/// The data does not expand to what was announced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NotExpandable;

impl Compressor {
    /// The data compressed; `None` where that gains less than an eighth.
    pub(crate) fn compress(&mut self, data: &Slices) -> Option<Compressed> {
        let expanded_kib = u16::try_from(data.len().div_ceil(1024)).ok().filter(|kib| *kib <= EXPANDED_MAX_KIB)?;
        if data.len() < MIN_BYTES {
            return None;
        }
        if self.skips > 0 {
            self.skips -= 1;
            return None;
        }
        let sample = (data.len() > SAMPLE_BYTES).then(|| data.cut(0..SAMPLE_BYTES));
        let shrinks = sample.is_none_or(|sample| self.shrink(&sample).is_some());
        let length = if shrinks { self.shrink(&data.contiguous()) } else { None };
        let Some(length) = length else {
            self.skipped = (2 * self.skipped + 1).min(SKIPPED_MAX);
            self.skips = self.skipped;
            return None;
        };
        self.skipped = 0;
        let mut out = Vec::with_capacity(LENGTH_BYTES + length);
        out.extend_from_slice(&(data.len() as u32).to_be_bytes());
        out.extend_from_slice(self.scratch.get(..length)?);
        Some(Compressed { data: out.into(), expanded_kib })
    }

    /// Bytes in the scratch memory, when they are fewer by an eighth.
    fn shrink(&mut self, data: &[u8]) -> Option<usize> {
        let room = block::get_maximum_output_size(data.len());
        if self.scratch.len() < room {
            self.scratch.resize(room, 0);
        }
        let length = block::compress_into_with_table(data, &mut self.scratch, &mut self.table).ok()?;
        (LENGTH_BYTES + length <= data.len() - data.len() / 8).then_some(length)
    }
}

/// What compressed data needs room for: never less than it expands to.
pub(crate) fn expanded_max_bytes(expanded_kib: u16) -> usize {
    usize::from(expanded_kib) * 1024
}

/// Expands data of a message that announced so many KiB. It is written nowhere but in `out`.
///
/// # Errors
/// [`NotExpandable`]: the sender did not keep to what it announced, or there is no room for it.
pub(crate) fn expand(data: &[u8], expanded_kib: u16, out: &mut [u8]) -> Result<usize, NotExpandable> {
    let (length, block) = data.split_first_chunk::<LENGTH_BYTES>().ok_or(NotExpandable)?;
    let length = u32::from_be_bytes(*length) as usize;
    let out = out.get_mut(..length).filter(|_| length.div_ceil(1024) == usize::from(expanded_kib));
    let out = out.ok_or(NotExpandable)?;
    match block::decompress_into(block, out) {
        Ok(expanded) if expanded == length => Ok(length),
        _ => Err(NotExpandable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn noise(bytes: usize) -> Vec<u8> {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        (0..bytes).map(|_| next()).collect()
    }

    #[test]
    fn what_does_not_shrink_goes_as_it_is_and_is_tried_ever_less() {
        let mut compressor = Compressor::default();
        let data = noise(65_536);
        let mut tried = 0;
        for _ in 0..1000 {
            tried += u32::from(compressor.skips == 0);
            assert!(compressor.compress(&data.clone().into()).is_none());
        }
        assert!(tried < 40, "{tried}");
        let mut compressed = (0..64).filter_map(|_| compressor.compress(&vec![7; 65_536].into()));
        assert!(compressed.next().is_some(), "it is tried again");
    }

    #[test]
    fn short_data_is_left_alone() {
        assert!(Compressor::default().compress(&vec![0; 512].into()).is_none());
    }

    #[test]
    fn a_bomb_expands_to_no_more_than_was_announced() {
        let bomb = Compressor::default().compress(&vec![0; 1 << 20].into()).unwrap();
        assert!(bomb.data.len() < 8192);
        let mut room = vec![0; 4096];
        assert_eq!(expand(&bomb.data, bomb.expanded_kib, &mut room), Err(NotExpandable), "no room");
        assert_eq!(expand(&bomb.data, 4, &mut room), Err(NotExpandable), "announced as less");
        let small_length = [&4096u32.to_be_bytes()[..], &bomb.data[4..]].concat();
        assert_eq!(expand(&small_length, 4, &mut room), Err(NotExpandable), "the block says more than the length");
        assert_eq!(expand(&bomb.data[..3], 4, &mut room), Err(NotExpandable));
    }

    proptest! {
        #[test]
        fn whatever_is_compressed_expands_to_itself(pattern in proptest::collection::vec(any::<u8>(), 1..300), bytes in 1024usize..200_000) {
            let data: Vec<u8> = pattern.iter().copied().cycle().take(bytes).collect();
            if let Some(compressed) = Compressor::default().compress(&data.clone().into()) {
                let mut out = vec![0; expanded_max_bytes(compressed.expanded_kib)];
                prop_assert!(compressed.data.len() < data.len());
                prop_assert_eq!(expand(&compressed.data, compressed.expanded_kib, &mut out), Ok(bytes));
                prop_assert_eq!(&out[..bytes], &data[..]);
            }
        }

        #[test]
        fn any_bytes_expand_or_are_refused(data in proptest::collection::vec(any::<u8>(), 0..300), kib in 0u16..4) {
            let mut out = vec![0; 2048];
            let _ = expand(&data, kib, &mut out);
        }
    }
}
