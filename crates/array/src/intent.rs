//! Which regions of a group are being written, as its members keep it: after a loss of power only these can differ.
//!
//! A bit is stable on all members before the first write to its region begins, and is cleared when all that was written there is stable
//! on all members. It stands in blocks of 4 KiB, each a record of its own: 8 `SANWINTN`, 4 CRC32C of the block with zeroes here, 4 its
//! number, then the bits of 32,640 regions, the first in the lowest bit of the first byte. What cannot be read says that all is.

use std::ops::Range;

use crc_fast::{CrcAlgorithm, checksum};
use fixedbitset::FixedBitSet;

use crate::label::INTENT_AT;

/// A block.
pub(crate) const BLOCK_BYTES: usize = 4096;
const HEAD_BYTES: usize = 16;
/// Regions of a block.
pub(crate) const BLOCK_REGIONS: usize = (BLOCK_BYTES - HEAD_BYTES) * 8;
const BLOCKS_MAX: usize = 16;
/// Regions of a member, at the most.
pub(crate) const REGIONS_MAX: usize = BLOCK_REGIONS * BLOCKS_MAX;

const MAGIC: [u8; 8] = *b"SANWINTN";
const CHECKSUM_AT: usize = 8;

/// So many regions in a row are noted together: what is written in sequence is noted seldom.
const AHEAD_REGIONS: u64 = 16;

/// How much of `data_bytes` one bit stands for: a quarter of the bits is enough for all of it, so it can grow.
pub(crate) fn region_bytes(data_bytes: u64) -> u64 {
    data_bytes.div_ceil(REGIONS_MAX as u64 / 4).next_power_of_two().max(1 << 20)
}

/// The regions that a range touches.
pub(crate) fn regions(range: &Range<u64>, region_bytes: u64) -> Range<usize> {
    // There are no more than REGIONS_MAX.
    (range.start / region_bytes) as usize..range.end.div_ceil(region_bytes) as usize
}

/// What is known of the regions of a group.
#[derive(Debug)]
pub(crate) struct Intents {
    /// What stands on the members, at the least on one: only more than `dirty`.
    stored: FixedBitSet,
    /// What must stand there.
    dirty: FixedBitSet,
    /// Those of `dirty` that were written since the last flush began.
    touched: FixedBitSet,
    /// How many flushes have begun.
    flushes: u64,
}

/// A flush that has begun: what it will have made stable where nothing is written meanwhile.
#[derive(Debug)]
pub(crate) struct Begun {
    number: u64,
    stable: FixedBitSet,
}

/// A block that is to be written.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    number: usize,
    bits: FixedBitSet,
}

impl Intents {
    /// All that `dirty` says stands on the members.
    pub(crate) fn new(dirty: FixedBitSet) -> Self {
        let touched = FixedBitSet::with_capacity(dirty.len());
        Intents { stored: dirty.clone(), touched, dirty, flushes: 0 }
    }

    /// So many regions there are at the least from now on; those that are new are not written.
    pub(crate) fn grow(&mut self, regions: usize) {
        [&mut self.stored, &mut self.dirty, &mut self.touched].into_iter().for_each(|bits| bits.grow(regions));
    }

    /// The regions that may differ among the members.
    pub(crate) fn dirty(&self) -> &FixedBitSet {
        &self.dirty
    }

    /// These are about to be written; `true`: they may be, it is stable that they are.
    pub(crate) fn touch(&mut self, regions: Range<usize>) -> bool {
        if !self.stored.contains_all_in_range(regions.clone()) {
            return false;
        }
        self.dirty.insert_range(regions.clone());
        self.touched.insert_range(regions);
        true
    }

    /// The blocks to be written before these regions are; until they are, what is not in them does not count as stable.
    pub(crate) fn prepare(&mut self, regions: Range<usize>) -> Vec<Block> {
        let ahead = AHEAD_REGIONS as usize;
        let first = regions.start - regions.start % ahead;
        let end = regions.end.next_multiple_of(ahead).min(self.dirty.len());
        let blocks = self.blocks(regions.start / BLOCK_REGIONS..regions.end.div_ceil(BLOCK_REGIONS), |bits| {
            bits.insert_range(first.min(end)..end);
        });
        self.withdraw(&blocks);
        blocks
    }

    /// The blocks to be written so that no more than necessary is noted; empty: that is so.
    pub(crate) fn tidy(&mut self) -> Vec<Block> {
        let count = self.dirty.len().div_ceil(BLOCK_REGIONS);
        let differs = |number: &usize| range(*number, self.dirty.len()).any(|bit| self.stored[bit] != self.dirty[bit]);
        let blocks: Vec<_> =
            (0..count).filter(differs).map(|number| Block { number, bits: part(&self.dirty, number) }).collect();
        self.withdraw(&blocks);
        blocks
    }

    /// Whether no more is noted than is being written.
    pub(crate) fn is_tidy(&self) -> bool {
        self.stored == self.dirty
    }

    /// All blocks, as they are to stand on a member that comes in.
    pub(crate) fn all(&mut self) -> Vec<Block> {
        let blocks = self.blocks(0..self.dirty.len().div_ceil(BLOCK_REGIONS), |_| ());
        self.withdraw(&blocks);
        blocks
    }

    fn blocks(&self, numbers: Range<usize>, add: impl Fn(&mut FixedBitSet)) -> Vec<Block> {
        let mut wanted = self.dirty.clone();
        add(&mut wanted);
        numbers.map(|number| Block { number, bits: part(&wanted, number) }).collect()
    }

    fn withdraw(&mut self, blocks: &[Block]) {
        for Block { number, bits } in blocks {
            let first = number * BLOCK_REGIONS;
            for bit in range(*number, self.stored.len()) {
                let stays = self.stored[bit] && bits[bit - first];
                self.stored.set(bit, stays);
            }
        }
    }

    /// These blocks are stable.
    pub(crate) fn stored(&mut self, blocks: &[Block]) {
        for Block { number, bits } in blocks {
            bits.ones().for_each(|bit| self.stored.insert(number * BLOCK_REGIONS + bit));
        }
    }

    /// A flush begins while these regions are being written.
    pub(crate) fn begin_flush(&mut self, busy: impl Iterator<Item = Range<usize>>) -> Begun {
        self.touched.clear();
        busy.for_each(|regions| self.touched.insert_range(regions));
        self.flushes += 1;
        Begun { number: self.flushes, stable: self.dirty.clone() }
    }

    /// This one has ended well on all members. What was written meanwhile is only known of the last one that began.
    pub(crate) fn flushed(&mut self, Begun { number, mut stable }: Begun) {
        if number == self.flushes {
            stable.difference_with(&self.touched);
            self.dirty.difference_with(&stable);
        }
    }
}

fn range(number: usize, regions: usize) -> Range<usize> {
    number * BLOCK_REGIONS..((number + 1) * BLOCK_REGIONS).min(regions)
}

fn part(bits: &FixedBitSet, number: usize) -> FixedBitSet {
    let range = range(number, bits.len());
    let mut found = FixedBitSet::with_capacity(range.len());
    range.clone().filter(|bit| bits[*bit]).for_each(|bit| found.insert(bit - range.start));
    found
}

impl Block {
    /// Where it stands on a member.
    pub(crate) fn at(&self) -> u64 {
        INTENT_AT + (self.number * BLOCK_BYTES) as u64
    }

    /// As it stands there.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; BLOCK_BYTES];
        out[..8].copy_from_slice(&MAGIC);
        // There are no more than BLOCKS_MAX.
        out[12..HEAD_BYTES].copy_from_slice(&(self.number as u32).to_be_bytes());
        self.bits.ones().for_each(|bit| out[HEAD_BYTES + bit / 8] |= 1 << (bit % 8));
        let sum = checksum(CrcAlgorithm::Crc32Iscsi, &out) as u32;
        out[CHECKSUM_AT..12].copy_from_slice(&sum.to_be_bytes());
        out
    }
}

/// What a member says of so many regions, from all of its blocks.
pub(crate) fn decode(bytes: &[u8], regions: usize) -> FixedBitSet {
    let mut found = FixedBitSet::with_capacity(regions);
    for number in 0..regions.div_ceil(BLOCK_REGIONS) {
        let range = range(number, regions);
        match bytes.chunks_exact(BLOCK_BYTES).nth(number).and_then(|block| body(block, number)) {
            Some(bits) => {
                let is_set = |bit: &usize| bits[bit / 8] >> (bit % 8) & 1 == 1;
                (0..range.len()).filter(is_set).for_each(|bit| found.insert(range.start + bit));
            }
            None => found.insert_range(range),
        }
    }
    found
}

fn body(block: &[u8], number: usize) -> Option<Vec<u8>> {
    let mut block = block.to_vec();
    let sum = block[CHECKSUM_AT..12].to_vec();
    block[CHECKSUM_AT..12].fill(0);
    let is_whole = (checksum(CrcAlgorithm::Crc32Iscsi, &block) as u32).to_be_bytes() == *sum;
    let is_own = block[..8] == MAGIC && block[12..HEAD_BYTES] == (number as u32).to_be_bytes();
    (is_whole && is_own).then(|| block.split_off(HEAD_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intents(regions: usize) -> Intents {
        Intents::new(FixedBitSet::with_capacity(regions))
    }

    #[test]
    fn a_quarter_of_the_bits_is_enough() {
        assert_eq!(region_bytes(1 << 20), 1 << 20);
        let data_bytes = (REGIONS_MAX as u64 / 4) << 20;
        assert_eq!((region_bytes(data_bytes), region_bytes(data_bytes + 1)), (1 << 20, 2 << 20));
        assert_eq!(regions(&((1 << 20) - 1..(2 << 20) + 1), 1 << 20), 0..3);
    }

    #[test]
    fn a_region_is_written_when_it_is_noted_and_cleared_when_a_flush_has_seen_its_end() {
        let mut intents = intents(100);
        assert!(!intents.touch(3..4));
        let blocks = intents.prepare(3..4);
        assert!(!intents.touch(3..4), "that is not stable yet");
        intents.stored(&blocks);
        assert!(intents.touch(3..4) && intents.touch(5..6) && !intents.touch(16..17), "those beside it are noted, too");
        let [early, last] = [0, 1].map(|_| intents.begin_flush(std::iter::once(5..6)));
        assert!(intents.touch(7..8));
        intents.flushed(early);
        assert!(intents.dirty()[3], "the later one has the word");
        intents.flushed(last);
        assert_eq!(intents.dirty().ones().collect::<Vec<_>>(), [5, 7]);
        assert!(intents.touch(3..4), "it is noted still");
    }

    #[test]
    fn what_a_block_being_written_takes_back_is_not_relied_on() {
        let mut intents = intents(100);
        let blocks = intents.prepare(0..1);
        intents.stored(&blocks);
        let blocks = intents.prepare(40..41);
        assert!(!intents.touch(0..1), "nothing was written there, so the new block does not have it");
        intents.stored(&blocks);
        assert!(intents.touch(40..41) && !intents.touch(0..1));
        let tidy = intents.tidy();
        assert_eq!(tidy.len(), 1);
        intents.stored(&tidy);
        assert!(intents.tidy().is_empty() && intents.touch(40..41) && !intents.touch(41..42));
    }

    #[test]
    fn blocks_are_read_as_they_were_written_and_damaged_ones_say_everything() {
        let regions = BLOCK_REGIONS + 50;
        let mut intents = intents(regions);
        intents.prepare(5..6);
        let blocks = intents.prepare(BLOCK_REGIONS - 1..BLOCK_REGIONS + 1);
        assert_eq!(blocks.len(), 2);
        intents.stored(&blocks);
        assert!(intents.touch(BLOCK_REGIONS - 1..BLOCK_REGIONS + 1));
        let mut bytes: Vec<u8> = intents.all().iter().flat_map(Block::encode).collect();
        let found = decode(&bytes, regions);
        assert_eq!(found.ones().collect::<Vec<_>>(), [BLOCK_REGIONS - 1, BLOCK_REGIONS]);
        bytes[BLOCK_BYTES + 100] ^= 1;
        assert_eq!(decode(&bytes, regions).count_ones(..), 51);
        assert_eq!(decode(&[], 70).count_ones(..), 70);
    }
}
