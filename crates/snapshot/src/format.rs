//! What stands in the store of a layer beside its data: a header, and for each group of blocks a map of those that the layer has.
//!
//! ```text
//! | header, 4 KiB | map, 4 KiB | data of 16,384 blocks | map, 4 KiB | data of 16,384 blocks | ...
//! ```
//!
//! Data lies by place: a block's is where its number says, whether it was written or not, so that what was written together is read
//! together, and stores that are sparse take no space for the rest. A map is eight sectors of 512 bytes, each a record of its own with
//! a checksum. A store does a sector wholly or not at all, whatever happens to the power. Bits are set when their data is stable, and
//! cleared only where it is stable elsewhere, too: so whichever sectors of a map that was being written are old, all of it can be read,
//! and says nothing that is not true.

use crc_fast::{CrcAlgorithm, checksum};

use crate::LayerId;

/// What a store writes wholly or not at all.
pub(crate) const SECTOR_BYTES: usize = 512;

/// The header, and the map of a group, each.
pub(crate) const RECORD_BYTES: usize = 4096;

/// Blocks of a group.
pub(crate) const GROUP_BLOCKS: u64 = (WORDS * u64::BITS as usize) as u64;

/// Of the bits of a group.
const WORDS: usize = 256;
const SECTOR_WORDS: usize = WORDS * SECTOR_BYTES / RECORD_BYTES;

const HEADER_MAGIC: [u8; 8] = *b"SANWLAYR";
const MAP_MAGIC: [u8; 8] = *b"SANWLMAP";
const VERSION: u32 = 1;
/// Where the checksum lies within a sector: it is of the sector with zeroes there.
const CHECKSUM_AT: usize = 12;
/// Where the bits begin within a sector of a map.
const BITS_AT: usize = 128;

/// The blocks of a group that a layer has, a bit each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Bits(Box<[u64; WORDS]>);

impl Default for Bits {
    fn default() -> Self {
        Bits(Box::new([0; WORDS]))
    }
}

impl Bits {
    /// Sets `count` bits from `first` on.
    pub(crate) fn set(&mut self, first: u32, count: u32) {
        masks(first, count).for_each(|(word, mask)| self.0[word] |= mask);
    }

    /// Whether these are set.
    pub(crate) fn has(&self, first: u32, count: u32) -> bool {
        masks(first, count).all(|(word, mask)| self.0[word] & mask == mask)
    }

    /// Sets the bits that the other one has.
    pub(crate) fn unite(&mut self, other: &Bits) {
        self.0.iter_mut().zip(&*other.0).for_each(|(word, other)| *word |= other);
    }

    /// Clears the bits that the other one has.
    pub(crate) fn remove(&mut self, other: &Bits) {
        self.0.iter_mut().zip(&*other.0).for_each(|(word, other)| *word &= !other);
    }

    /// The first run of set bits from `from` on: where it begins, and how long it is.
    pub(crate) fn run(&self, from: u32) -> Option<(u32, u32)> {
        let first = self.find(from, false)?;
        let end = self.find(first, true).unwrap_or(GROUP_BLOCKS as u32);
        Some((first, end - first))
    }

    /// All runs of set bits.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (u32, u32)> {
        let mut next = 0;
        std::iter::from_fn(move || {
            let (first, count) = self.run(next)?;
            next = first + count;
            Some((first, count))
        })
    }

    /// How many are set.
    pub(crate) fn count(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    fn find(&self, from: u32, clear: bool) -> Option<u32> {
        let (mut word, mut bit) = (from as usize / 64, from % 64);
        while word < WORDS {
            let bits = if clear { !self.0[word] } else { self.0[word] } >> bit;
            if bits != 0 {
                return Some(word as u32 * 64 + bit + bits.trailing_zeros());
            }
            (word, bit) = (word + 1, 0);
        }
        None
    }
}

/// Some bits in a row: in which words, and which of each.
fn masks(first: u32, count: u32) -> impl Iterator<Item = (usize, u64)> {
    let (mut at, end) = (first as usize, (first + count) as usize);
    std::iter::from_fn(move || {
        let (word, bit) = (at / 64, at % 64);
        let span = (64 - bit).min(end.saturating_sub(at));
        at += span;
        (span > 0).then(|| (word, (u64::MAX >> (64 - span)) << bit))
    })
}

/// What a layer is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub(crate) id: LayerId,
    /// What it was laid over, when that was last written: for people who have lost the catalogue.
    pub(crate) parent: LayerId,
    pub(crate) block_bytes: u32,
    /// The how manieth of what it has held.
    pub(crate) generation: u64,
}

/// Why what stands in a layer is not to be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Damage {
    /// There is something else.
    #[error("there is no layer of a volume in it")]
    NoLayer,
    /// A checksum is wrong.
    #[error("the sector at byte {offset_bytes} is damaged: its checksum is wrong")]
    Checksum {
        /// Where.
        offset_bytes: u64,
    },
    /// A record is of another layer, or of another place.
    #[error("the sector at byte {offset_bytes} is not of this layer, or not of that place")]
    Foreign {
        /// Where.
        offset_bytes: u64,
    },
    /// It is shorter than it was.
    #[error("it was cut short: it has {length_bytes} bytes, and had {whole_bytes}")]
    Cut {
        /// How long it is.
        length_bytes: u64,
        /// How long it was at least.
        whole_bytes: u64,
    },
    /// It is this layer as it was before.
    #[error("it is an older copy of the layer: what was written since is not in it")]
    Older,
    /// Made by a later version of this program.
    #[error("it has version {version} of the format, and this program knows version {VERSION}: take a newer one")]
    Version {
        /// Which.
        version: u32,
    },
}

impl Header {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut sector = [0; SECTOR_BYTES];
        sector[16..32].copy_from_slice(&self.id.0);
        sector[32..48].copy_from_slice(&self.parent.0);
        sector[48..52].copy_from_slice(&self.block_bytes.to_le_bytes());
        sector[56..64].copy_from_slice(&self.generation.to_le_bytes());
        seal(&mut sector, HEADER_MAGIC);
        let mut record = sector.to_vec();
        record.resize(RECORD_BYTES, 0);
        record
    }

    pub(crate) fn decode(record: &[u8]) -> Result<Self, Damage> {
        let sector: &[u8; SECTOR_BYTES] = record.first_chunk().ok_or(Damage::NoLayer)?;
        if sector[..8] != HEADER_MAGIC {
            return Err(Damage::NoLayer);
        }
        unseal(sector, HEADER_MAGIC, 0)?;
        let block_bytes = number(sector, 48) as u32;
        if ![512, 4096].contains(&block_bytes) {
            return Err(Damage::Foreign { offset_bytes: 0 });
        }
        let generation = number(sector, 56);
        Ok(Header { id: id(sector, 16), parent: id(sector, 32), block_bytes, generation })
    }
}

/// The record of a group's map.
pub(crate) fn encode_map(layer: LayerId, group: u32, bits: &Bits) -> Vec<u8> {
    let mut record = vec![0; RECORD_BYTES];
    let (sectors, _) = record.as_chunks_mut::<SECTOR_BYTES>();
    for (place, (sector, words)) in (0u32..).zip(sectors.iter_mut().zip(bits.0.chunks(SECTOR_WORDS))) {
        sector[16..32].copy_from_slice(&layer.0);
        sector[32..36].copy_from_slice(&group.to_le_bytes());
        sector[36..40].copy_from_slice(&place.to_le_bytes());
        for (word, bytes) in words.iter().zip(sector[BITS_AT..].as_chunks_mut::<8>().0) {
            *bytes = word.to_le_bytes();
        }
        seal(sector, MAP_MAGIC);
    }
    record
}

/// The blocks that a layer has of a group, as its map at this place of the store says.
pub(crate) fn decode_map(layer: LayerId, group: u32, offset_bytes: u64, record: &[u8]) -> Result<Bits, Damage> {
    let mut bits = Bits::default();
    let (sectors, _) = record.as_chunks::<SECTOR_BYTES>();
    for (place, (sector, words)) in (0u32..).zip(sectors.iter().zip(bits.0.chunks_mut(SECTOR_WORDS))) {
        // Never written: nothing is there.
        if *sector == [0; SECTOR_BYTES] {
            continue;
        }
        let offset_bytes = offset_bytes + u64::from(place) * SECTOR_BYTES as u64;
        unseal(sector, MAP_MAGIC, offset_bytes)?;
        if id(sector, 16) != layer || number(sector, 32) != u64::from(group) | u64::from(place) << 32 {
            return Err(Damage::Foreign { offset_bytes });
        }
        for (word, bytes) in words.iter_mut().zip(sector[BITS_AT..].as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
    }
    Ok(bits)
}

fn seal(sector: &mut [u8; SECTOR_BYTES], magic: [u8; 8]) {
    sector[..8].copy_from_slice(&magic);
    sector[8..12].copy_from_slice(&VERSION.to_le_bytes());
    let sum = crc32c(sector);
    sector[CHECKSUM_AT..16].copy_from_slice(&sum.to_le_bytes());
}

fn unseal(sector: &[u8; SECTOR_BYTES], magic: [u8; 8], offset_bytes: u64) -> Result<(), Damage> {
    let mut open = *sector;
    open[CHECKSUM_AT..16].fill(0);
    if sector[CHECKSUM_AT..16] != crc32c(&open).to_le_bytes() {
        return Err(Damage::Checksum { offset_bytes });
    }
    if sector[..8] != magic {
        return Err(Damage::Foreign { offset_bytes });
    }
    match number(sector, 8) as u32 {
        VERSION => Ok(()),
        version => Err(Damage::Version { version }),
    }
}

pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    // The algorithm has 32 bits.
    checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

fn number(sector: &[u8; SECTOR_BYTES], at: usize) -> u64 {
    u64::from_le_bytes(field(sector, at))
}

fn id(sector: &[u8; SECTOR_BYTES], at: usize) -> LayerId {
    LayerId(field(sector, at))
}

fn field<const N: usize>(sector: &[u8; SECTOR_BYTES], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&sector[at..at + N]);
    bytes
}

/// Where things lie in the store of a layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    group_bytes: u64,
}

impl Layout {
    pub(crate) fn new(block_bytes: u32) -> Self {
        Layout { group_bytes: GROUP_BLOCKS * u64::from(block_bytes) }
    }

    pub(crate) fn block_bytes(self) -> u32 {
        (self.group_bytes / GROUP_BLOCKS) as u32
    }

    /// Bytes of the volume in a group.
    pub(crate) fn group_bytes(self) -> u64 {
        self.group_bytes
    }

    /// Where the map of a group lies.
    pub(crate) fn map_at(self, group: u32) -> u64 {
        RECORD_BYTES as u64 + u64::from(group) * (RECORD_BYTES as u64 + self.group_bytes)
    }

    /// Where a byte of the volume lies.
    pub(crate) fn data_at(self, offset_bytes: u64) -> u64 {
        offset_bytes + (offset_bytes / self.group_bytes + 2) * RECORD_BYTES as u64
    }

    /// How long the store of a layer is that has a volume of this length.
    pub(crate) fn store_bytes(self, volume_bytes: u64) -> u64 {
        volume_bytes + (volume_bytes.div_ceil(self.group_bytes) + 1) * RECORD_BYTES as u64
    }

    /// How long a volume is whose layer has a store of this length.
    pub(crate) fn volume_bytes(self, store_bytes: u64) -> u64 {
        let stride_bytes = self.group_bytes + RECORD_BYTES as u64;
        let maps_and_data = store_bytes.saturating_sub(RECORD_BYTES as u64);
        let rest = (maps_and_data % stride_bytes).saturating_sub(RECORD_BYTES as u64);
        maps_and_data / stride_bytes * self.group_bytes + rest
    }

    /// How many groups a volume of this length has.
    pub(crate) fn groups(self, volume_bytes: u64) -> u32 {
        u32::try_from(volume_bytes.div_ceil(self.group_bytes)).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LAYER: LayerId = LayerId([7; 16]);

    proptest! {
        #[test]
        fn what_is_set_is_found_in_runs_and_read_again(
            runs in proptest::collection::vec((0..GROUP_BLOCKS as u32, 1u32..300), 0..20),
            group in any::<u32>(),
        ) {
            let (mut bits, mut model) = (Bits::default(), vec![false; GROUP_BLOCKS as usize]);
            for (first, count) in runs {
                let end = (first + count).min(GROUP_BLOCKS as u32);
                let part = &mut model[first as usize..end as usize];
                prop_assert_eq!(bits.has(first, end - first), !part.contains(&false));
                bits.set(first, end - first);
                part.fill(true);
            }
            let mut found = vec![false; GROUP_BLOCKS as usize];
            for (first, count) in bits.runs() {
                found[first as usize..(first + count) as usize].fill(true);
            }
            prop_assert_eq!(&found, &model);
            prop_assert_eq!(bits.count(), model.iter().filter(|set| **set).count() as u64);
            prop_assert_eq!(decode_map(LAYER, group, 0, &encode_map(LAYER, group, &bits)).unwrap(), bits);
        }

        #[test]
        fn the_length_of_a_store_tells_that_of_its_volume(blocks in 1u64..1 << 32, large in any::<bool>()) {
            let block_bytes = if large { 4096 } else { 512 };
            let (layout, volume_bytes) = (Layout::new(block_bytes), blocks * u64::from(block_bytes));
            let store_bytes = layout.store_bytes(volume_bytes);
            prop_assert_eq!(layout.volume_bytes(store_bytes), volume_bytes);
            prop_assert_eq!(layout.data_at(volume_bytes - 1), store_bytes - 1);
            let last = layout.groups(volume_bytes) - 1;
            prop_assert_eq!(layout.map_at(last) + RECORD_BYTES as u64, layout.data_at(u64::from(last) * layout.group_bytes()));
        }

        #[test]
        fn a_changed_byte_is_noticed(at in 0..RECORD_BYTES, flip in 1u8..) {
            let mut bits = Bits::default();
            bits.set(3, 9000);
            let mut record = encode_map(LAYER, 5, &bits);
            record[at] ^= flip;
            prop_assert!(decode_map(LAYER, 5, 0, &record).is_err());
        }

        #[test]
        fn a_torn_map_can_be_read_and_says_what_was_true_before_or_is_now(which in any::<u8>()) {
            let (mut old, mut new) = (Bits::default(), Bits::default());
            old.set(0, 5000);
            new.set(0, 12000);
            let (before, mut torn) = (encode_map(LAYER, 5, &old), encode_map(LAYER, 5, &new));
            for place in (0..8).filter(|place| which & 1 << place != 0) {
                let sector = place * SECTOR_BYTES..(place + 1) * SECTOR_BYTES;
                torn[sector.clone()].copy_from_slice(&before[sector]);
            }
            let found = decode_map(LAYER, 5, 0, &torn).unwrap();
            prop_assert!(found.has(0, 5000));
            prop_assert!(found.runs().all(|(first, count)| first + count <= 12000));
        }
    }

    #[test]
    fn headers_are_read_again_and_others_are_refused() {
        let header = Header { id: LAYER, parent: LayerId([1; 16]), block_bytes: 4096, generation: 1 << 40 };
        let record = header.encode();
        assert_eq!((Header::decode(&record), record.len()), (Ok(header), RECORD_BYTES));
        assert_eq!(Header::decode(&[0; RECORD_BYTES]), Err(Damage::NoLayer));
        assert_eq!(Header::decode(&[]), Err(Damage::NoLayer));
        let mut newer = record.clone();
        newer[8] = 2;
        newer[CHECKSUM_AT..16].fill(0);
        let sum = crc32c(&newer[..SECTOR_BYTES]);
        newer[CHECKSUM_AT..16].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(Header::decode(&newer), Err(Damage::Version { version: 2 }));
        let of_other = encode_map(LayerId([8; 16]), 5, &Bits::default());
        assert_eq!(decode_map(LAYER, 5, 4096, &of_other), Err(Damage::Foreign { offset_bytes: 4096 }));
    }
}
