//! Which block comes next.

use sanwire_buffer::Frame;

use super::Load;
use crate::args::Pattern;

/// The order of blocks and the mix of reads and writes, from one seed.
#[derive(Debug)]
pub(super) struct Order {
    random: SplitMix,
    next_block: u64,
}

impl Order {
    pub(super) fn new(load: &Load) -> Self {
        Order { random: SplitMix(load.seed), next_block: 0 }
    }

    /// The offset of the next operation, and whether it is a read.
    pub(super) fn next(&mut self, load: &Load) -> (u64, bool) {
        let block_bytes = u64::from(load.block_bytes);
        let blocks = ((load.range.end_bytes - load.range.start_bytes) / block_bytes).max(1);
        let block = match load.pattern {
            Pattern::Random => self.random.below(blocks),
            Pattern::Sequential => {
                let block = self.next_block % blocks;
                self.next_block = block + 1;
                block
            }
        };
        let is_read = match load.reads_percent {
            0 => false,
            100.. => true,
            percent => self.random.below(100) < u64::from(percent),
        };
        (load.range.start_bytes + block * block_bytes, is_read)
    }
}

/// Fills the frame with bytes that no compression shortens.
pub(super) fn noise(mut frame: Frame, seed: u64) -> Frame {
    let mut random = SplitMix(seed ^ 0x006e_6f69_7365);
    for chunk in frame.chunks_mut(8) {
        let bytes = random.next().to_le_bytes();
        chunk.copy_from_slice(&bytes[..chunk.len()]);
    }
    frame
}

/// The generator SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Debug)]
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, by the high half of a product (Lemire 2019; the bias is below bound / 2^64).
    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}
