//! IDENTIFY DEVICE data (ACS-3 7.12): 256 words, the lower byte of each first, in which a disk says what it is and what it can do.

use crate::place::Chs;
use crate::smart::{is_sealed, seal};
use crate::task_file::SECTORS_OF_28_BITS;

/// How long the data is, in bytes.
pub const IDENTIFY_BYTES: usize = 512;

/// The most sectors of one block of READ and WRITE MULTIPLE.
pub(crate) const MULTIPLE_MAX: u8 = 16;

/// What a disk says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IdentifyDevice {
    /// The serial number, without padding; 20 characters.
    pub serial: String,
    /// The firmware revision, without padding; 8 characters.
    pub firmware: String,
    /// The model number, without padding; 40 characters.
    pub model: String,
    /// How many logical sectors it has, as its commands reach them.
    pub sectors: u64,
    /// Bytes of a logical sector.
    pub sector_bytes: u32,
    /// Logical sectors of a physical sector, as a power of two.
    pub physical_sector_exponent: u8,
    /// 0001h: it does not rotate; 0000h: not said; else rotations per minute.
    pub rotation_rate: u16,
    /// Its name among all disks.
    pub world_wide_name: Option<u64>,
    /// The sectors of a block of READ and WRITE MULTIPLE as they are set; zero: these commands are off.
    pub multiple: u8,
    /// The multiword DMA mode that is set, if any is.
    pub dma_mode: Option<u8>,
    /// What it can do.
    pub abilities: Abilities,
    /// TRIM, where it has that.
    pub trim: Option<Trim>,
    /// Which run of its target this is, where that says so: in vendor specific words, as only targets of this program do. What one run
    /// has not made stable may be lost to the next one.
    pub run: Option<u64>,
}

/// Feature sets and commands, as words 82 to 87 tell them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Abilities {
    /// The 48-bit address feature set.
    pub has_48_bit_addresses: bool,
    /// FLUSH CACHE.
    pub has_flush: bool,
    /// FLUSH CACHE EXT.
    pub has_flush_ext: bool,
    /// WRITE DMA FUA EXT and WRITE MULTIPLE FUA EXT.
    pub has_forced_writes: bool,
    /// READ DMA and WRITE DMA.
    pub has_dma: bool,
    /// The SMART feature set, and whether that is enabled.
    pub smart: Option<bool>,
    /// A volatile write cache, and whether that is enabled.
    pub write_cache: Option<bool>,
}

/// TRIM (words 69, 105 and 169).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trim {
    /// The most blocks of ranges of one DATA SET MANAGEMENT; zero when that is not said.
    pub blocks_max: u16,
    /// What was trimmed reads as zeroes (DRAT and RZAT).
    pub reads_zeroes: bool,
}

/// IDENTIFY DEVICE data that is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IdentifyError {
    /// It is cut short.
    #[error("the disk's answer to IDENTIFY DEVICE is too short: it breaks the standard or was cut off")]
    Short,
    /// It has a checksum, which is wrong.
    #[error("the checksum of the disk's answer to IDENTIFY DEVICE is wrong: it was damaged on its way")]
    Checksum,
    /// It is no ATA disk, or has no sectors that an LBA can reach.
    #[error("the device's answer to IDENTIFY DEVICE is not that of an ATA disk with LBA")]
    NoDisk,
}

/// Bit 14 set and bit 15 clear say that the rest of the word means something.
const VALID: u16 = 0x4000;

/// Word 49.
const DMA: u16 = 1 << 8;
const LBA: u16 = 1 << 9;
const IORDY: u16 = 1 << 11;
/// Words 82 and 85.
const SMART: u16 = 1;
const POWER_MANAGEMENT: u16 = 1 << 3;
const WRITE_CACHE: u16 = 1 << 5;
/// Words 83 and 86.
const ADDRESS_48: u16 = 1 << 10;
const FLUSH: u16 = 1 << 12;
const FLUSH_EXT: u16 = 1 << 13;
/// Words 84 and 87.
const FORCED_WRITES: u16 = 1 << 6;
const WORLD_WIDE_NAME: u16 = 1 << 8;
/// Word 69.
const DETERMINISTIC_AFTER_TRIM: u16 = 1 << 14;
const ZEROES_AFTER_TRIM: u16 = 1 << 5;
/// Word 106.
const SEVERAL_LOGICAL: u16 = 1 << 13;
const LONG_LOGICAL: u16 = 1 << 12;
/// Word 129, the first of those that vendors may use: words 130 to 133 have the run.
const RUN_FOLLOWS: u16 = u16::from_be_bytes(*b"sw");
/// The lower byte of word 255: the upper one is a checksum.
const SIGNATURE: u8 = 0xa5;

fn bit(is_set: bool, bit: u16) -> u16 {
    if is_set { bit } else { 0 }
}

impl IdentifyDevice {
    /// The data, with its checksum.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut words = [0; IDENTIFY_BYTES / 2];
        self.put_geometry(&mut words);
        self.put_abilities(&mut words);
        self.put_sectors(&mut words);
        put_text(&mut words[10..20], &self.serial);
        put_text(&mut words[23..27], &self.firmware);
        put_text(&mut words[27..47], &self.model);
        if let Some(run) = self.run {
            words[129] = RUN_FOLLOWS;
            let places = words[130..134].iter_mut().enumerate();
            places.for_each(|(at, word)| *word = (run >> (16 * at)) as u16);
        }
        words[255] = SIGNATURE.into();
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        seal(&mut bytes);
        bytes
    }

    /// What old hosts ask for: cylinders, heads and sectors, and the modes of a bus.
    fn put_geometry(&self, words: &mut [u16]) {
        let chs = Chs::of(self.sectors);
        words[0] = 0x0040; // an ATA device, fixed
        words[2] = 0xc837; // it needs no SET FEATURES to spin up, and this data is whole
        for at in [1, 54] {
            words[at] = chs.cylinders;
        }
        for at in [3, 55] {
            words[at] = chs.heads.into();
        }
        for at in [6, 56] {
            words[at] = chs.sectors.into();
        }
        (words[57], words[58]) = (chs.capacity() as u16, (chs.capacity() >> 16) as u16);
        words[47] = 0x8000 | u16::from(MULTIPLE_MAX);
        words[59] = bit(self.multiple > 0, 0x0100) | u16::from(self.multiple);
        words[51] = 0x0200; // PIO 2, for who does not read word 64
        words[53] = 0x0003; // words 54 to 58 and 64 to 70 count
        words[63] = bit(self.abilities.has_dma, 0x0007) | self.dma_mode.map_or(0, |mode| 0x0100 << mode.min(2));
        words[64] = 0x0003; // PIO 3 and 4
        words[65..69].fill(120); // cycle times, in nanoseconds
    }

    fn put_abilities(&self, words: &mut [u16]) {
        let Abilities { smart, write_cache, .. } = self.abilities;
        words[49] = bit(self.abilities.has_dma, DMA) | LBA | IORDY;
        words[50] = VALID;
        words[80] = 0x07f0; // ATA/ATAPI-4 to ACS-3
        words[82] = bit(smart.is_some(), SMART) | POWER_MANAGEMENT | bit(write_cache.is_some(), WRITE_CACHE);
        words[85] = bit(smart == Some(true), SMART) | POWER_MANAGEMENT | bit(write_cache == Some(true), WRITE_CACHE);
        let commands = bit(self.abilities.has_48_bit_addresses, ADDRESS_48)
            | bit(self.abilities.has_flush, FLUSH)
            | bit(self.abilities.has_flush_ext, FLUSH_EXT);
        words[83] = VALID | commands;
        words[86] = 0x8000 | commands; // words 119 and 120 count
        words[84] = VALID
            | bit(self.abilities.has_forced_writes, FORCED_WRITES)
            | bit(self.world_wide_name.is_some(), WORLD_WIDE_NAME);
        words[87] = words[84];
        for (at, word) in words[108..112].iter_mut().enumerate() {
            // The upper word is the first.
            *word = self.world_wide_name.map_or(0, |name| (name >> (48 - 16 * at)) as u16);
        }
        (words[119], words[120]) = (VALID, VALID);
        if let Some(trim) = self.trim {
            words[69] = bit(trim.reads_zeroes, DETERMINISTIC_AFTER_TRIM | ZEROES_AFTER_TRIM);
            words[105] = trim.blocks_max;
            words[169] = 1;
        }
        words[217] = self.rotation_rate;
    }

    fn put_sectors(&self, words: &mut [u16]) {
        let short = self.sectors.min(SECTORS_OF_28_BITS);
        (words[60], words[61]) = (short as u16, (short >> 16) as u16);
        if self.abilities.has_48_bit_addresses {
            let places = words[100..104].iter_mut().enumerate();
            places.for_each(|(at, word)| *word = (self.sectors.min((1 << 48) - 1) >> (16 * at)) as u16);
        }
        let has_several = self.physical_sector_exponent > 0;
        let is_long = self.sector_bytes != 512;
        words[106] = VALID
            | bit(has_several, SEVERAL_LOGICAL)
            | bit(is_long, LONG_LOGICAL)
            | u16::from(self.physical_sector_exponent & 0x0f);
        if is_long {
            let sector_words = self.sector_bytes / 2;
            (words[117], words[118]) = (sector_words as u16, (sector_words >> 16) as u16);
        }
        words[209] = VALID; // LBA 0 begins a physical sector
    }

    /// Reads the data of a disk, whoever made it. Old disks have no checksum.
    ///
    /// # Errors
    /// [`IdentifyError`] when it is none, or was damaged.
    pub fn parse(bytes: &[u8]) -> Result<IdentifyDevice, IdentifyError> {
        let bytes = bytes.first_chunk::<IDENTIFY_BYTES>().ok_or(IdentifyError::Short)?;
        if bytes[IDENTIFY_BYTES - 2] == SIGNATURE && !is_sealed(bytes) {
            return Err(IdentifyError::Checksum);
        }
        let word = |at: usize| u16::from_le_bytes([bytes[2 * at], bytes[2 * at + 1]]);
        let counts = |at| word(at) & 0xc000 == VALID;
        let has_48_bit_addresses = counts(83) && word(83) & word(86) & ADDRESS_48 != 0;
        let two_words = |at| u32::from(word(at)) | u32::from(word(at + 1)) << 16;
        let long = u64::from(two_words(100)) | u64::from(two_words(102)) << 32;
        // No command reaches more than its address has bits for: what lies beyond would be done at another place.
        let long = long.min(1 << 48);
        let short = u64::from(two_words(60)).min(SECTORS_OF_28_BITS);
        let sectors = if has_48_bit_addresses && long > 0 { long } else { short };
        if word(0) & 0x8000 != 0 || sectors == 0 {
            return Err(IdentifyError::NoDisk);
        }
        let has_sizes = counts(106);
        let is_long = has_sizes && word(106) & LONG_LOGICAL != 0;
        let multiple = word(59);
        Ok(IdentifyDevice {
            serial: text(&bytes[20..40]),
            firmware: text(&bytes[46..54]),
            model: text(&bytes[54..94]),
            sectors,
            sector_bytes: if is_long { two_words(117).saturating_mul(2) } else { 512 },
            physical_sector_exponent: if has_sizes && word(106) & SEVERAL_LOGICAL != 0 {
                word(106) as u8 & 0x0f
            } else {
                0
            },
            rotation_rate: word(217),
            world_wide_name: (counts(87) && word(87) & WORLD_WIDE_NAME != 0)
                .then(|| (108..112).fold(0, |name, at| name << 16 | u64::from(word(at)))),
            multiple: if multiple & 0x0100 != 0 { multiple as u8 } else { 0 },
            dma_mode: (0..=2).find(|mode| word(63) & (0x0100 << mode) != 0),
            abilities: Abilities {
                has_48_bit_addresses,
                has_flush: counts(83) && word(83) & FLUSH != 0,
                has_flush_ext: counts(83) && word(83) & FLUSH_EXT != 0,
                // They are commands of the 48-bit address feature set: in a short task file they would be other ones.
                has_forced_writes: has_48_bit_addresses && counts(84) && word(84) & FORCED_WRITES != 0,
                has_dma: word(49) & DMA != 0,
                smart: (word(82) & SMART != 0).then_some(word(85) & SMART != 0),
                write_cache: (word(82) & WRITE_CACHE != 0).then_some(word(85) & WRITE_CACHE != 0),
            },
            trim: (word(169) & 1 != 0).then_some(Trim {
                blocks_max: word(105),
                reads_zeroes: word(69) & (DETERMINISTIC_AFTER_TRIM | ZEROES_AFTER_TRIM)
                    == DETERMINISTIC_AFTER_TRIM | ZEROES_AFTER_TRIM,
            }),
            run: (word(129) == RUN_FOLLOWS).then(|| u64::from(two_words(130)) | u64::from(two_words(132)) << 32),
        })
    }
}

/// Characters lie in pairs, the first of each in the upper byte; spaces fill the rest.
fn put_text(words: &mut [u16], text: &str) {
    let printable = text.chars().map(|char| if matches!(char, ' '..='~') { char as u8 } else { b'?' });
    let mut padded = printable.chain(std::iter::repeat(b' '));
    for word in words {
        *word = u16::from_be_bytes([padded.next().unwrap_or(b' '), padded.next().unwrap_or(b' ')]);
    }
}

fn text(bytes: &[u8]) -> String {
    let swapped = bytes.as_chunks::<2>().0.iter().flat_map(|[second, first]| [*first, *second]);
    let text: String = swapped.map(|byte| if matches!(byte, b' '..=b'~') { char::from(byte) } else { ' ' }).collect();
    text.trim().to_owned()
}

#[cfg(test)]
mod tests;
