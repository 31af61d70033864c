//! The sectors of a CD (ECMA-130 14 and annex A): blocks of data in mode 1, with what stands around them on the disc.

use std::ops::Range;

/// Bytes of a block of data.
pub(super) const USER_DATA_BYTES: usize = 2048;
const SECTOR_BYTES: usize = 2352;

/// Where the fields of a sector begin.
const HEADER: usize = 12;
const USER_DATA: usize = 16;
const EDC: usize = USER_DATA + USER_DATA_BYTES;
const P_PARITY: usize = EDC + 12;
const Q_PARITY: usize = P_PARITY + 2 * P_COLUMNS;

/// The bytes from the header to the P parity are rows of so many columns, ...
const P_COLUMNS: usize = 86;
/// ... and as words of two bytes, with the P parity, they are so many diagonals of so many words each.
const Q_DIAGONALS: usize = 26;
const Q_DIAGONAL_WORDS: usize = 43;
/// How many words the diagonals have together.
const Q_WORDS: usize = Q_DIAGONALS * Q_DIAGONAL_WORDS;

/// Which fields of each sector of mode 1 READ CD transfers: some that follow each other on the disc.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SectorFields {
    from: u16,
    to: u16,
}

impl SectorFields {
    /// What is for the user, and nothing around it.
    pub const USER_DATA: SectorFields = SectorFields { from: USER_DATA as u16, to: EDC as u16 };

    /// By the main channel selection of READ CD (MMC-6 6.16, byte 9). Sectors of mode 1 have no subheader. `None`: fields that do not
    /// follow each other, or error flags.
    pub(crate) fn of_selection(selection: u8) -> Option<SectorFields> {
        const SYNC_BIT: u8 = 0x80;
        const SUBHEADER_BIT: u8 = 0x40;
        const HEADER_BIT: u8 = 0x20;
        const FIELDS: [(u8, Range<usize>); 4] =
            [(SYNC_BIT, 0..HEADER), (HEADER_BIT, HEADER..USER_DATA), (0x10, USER_DATA..EDC), (0x08, EDC..SECTOR_BYTES)];
        let is_gap = selection & (SYNC_BIT | SUBHEADER_BIT | HEADER_BIT) == SYNC_BIT | SUBHEADER_BIT;
        let selected = || FIELDS.into_iter().filter(|(bit, _)| selection & bit != 0).map(|(_, field)| field);
        let (from, to) =
            (selected().next().map_or(0, |first| first.start), selected().next_back().map_or(0, |last| last.end));
        let is_run = selected().map(|field| field.len()).sum::<usize>() == to - from;
        // What protects the user data is not transferred without it.
        let is_legal = is_run && !is_gap && from != EDC && selection & 0x07 == 0;
        is_legal.then_some(SectorFields { from: from as u16, to: to as u16 })
    }

    /// Bytes of each sector.
    #[must_use]
    pub fn bytes(self) -> usize {
        usize::from(self.to - self.from)
    }

    /// Whether the user data is one of them.
    #[must_use]
    pub fn has_user_data(self) -> bool {
        usize::from(self.to) > USER_DATA
    }

    /// Writes the fields of the sector with this user data, which only fields need that have it, to `place`, which is as long as they.
    pub fn write(self, lba: u32, user_data: &[u8], place: &mut [u8]) {
        let (from, to) = (usize::from(self.from), usize::from(self.to));
        let mut put = |fields: &[u8]| place.iter_mut().zip(fields).for_each(|(place, byte)| *place = *byte);
        if !self.has_user_data() {
            // There may be a quarter of a million of them in one command.
            return put(&front(lba)[from..to]);
        }
        let mut sector = [0; SECTOR_BYTES];
        sector[..USER_DATA].copy_from_slice(&front(lba));
        sector[USER_DATA..EDC].iter_mut().zip(user_data).for_each(|(place, byte)| *place = *byte);
        if to > EDC {
            protect(&mut sector);
        }
        put(&sector[from..to]);
    }
}

/// The synchronization and the header of a sector.
fn front(lba: u32) -> [u8; USER_DATA] {
    let mut front = [0; USER_DATA];
    front[1..HEADER - 1].fill(0xff);
    let [_, minutes, seconds, frames] = time_of(lba);
    let mode = 1;
    front[HEADER..].copy_from_slice(&[decimal(minutes), decimal(seconds), decimal(frames), mode]);
    front
}

/// A block as reserved byte, minutes, seconds and frames; the last that there is for one that lies behind all of them.
pub(super) fn time_of(lba: u32) -> [u8; 4] {
    const FRAMES_PER_SECOND: u32 = 75;
    /// The lead-in ends two seconds before block 0.
    const OFFSET: u32 = 150;
    let frames = lba.saturating_add(OFFSET);
    let (minutes, rest) = (frames / (60 * FRAMES_PER_SECOND), frames % (60 * FRAMES_PER_SECOND));
    match u8::try_from(minutes) {
        Ok(minutes) => [0, minutes, (rest / FRAMES_PER_SECOND) as u8, (rest % FRAMES_PER_SECOND) as u8],
        Err(_) => [0, u8::MAX, 59, 74],
    }
}

/// A number below 100 with four bits for each digit.
fn decimal(number: u8) -> u8 {
    ((number / 10) << 4) | (number % 10)
}

/// Computes the error detection code and both parities.
fn protect(sector: &mut [u8; SECTOR_BYTES]) {
    let code =
        sector[..EDC].iter().fold(0, |code: u32, byte| (code >> 8) ^ EDC_OF_BYTE[usize::from(code as u8 ^ byte)]);
    sector[EDC..EDC + 4].copy_from_slice(&code.to_le_bytes());
    let (data, parity) = sector[HEADER..Q_PARITY].split_at_mut(P_PARITY - HEADER);
    let mut columns = [Parity::default(); P_COLUMNS];
    for row in data.chunks_exact(P_COLUMNS) {
        columns.iter_mut().zip(row).for_each(|(column, byte)| column.add(*byte));
    }
    for (at, column) in columns.into_iter().enumerate() {
        [parity[at], parity[P_COLUMNS + at]] = column.symbols();
    }
    let (data, parity) = sector[HEADER..].split_at_mut(Q_PARITY - HEADER);
    for (at, diagonal) in (0..2 * Q_DIAGONALS).map(|at| (at, diagonal(at, data))) {
        [parity[at], parity[2 * Q_DIAGONALS + at]] = diagonal.symbols();
    }
}

/// That of the even or the odd bytes of a diagonal, which goes down and to the right and begins again at the top.
fn diagonal(at: usize, data: &[u8]) -> Parity {
    let mut parity = Parity::default();
    for word in 0..Q_DIAGONAL_WORDS {
        let place = (Q_DIAGONAL_WORDS * (at / 2) + (Q_DIAGONAL_WORDS + 1) * word) % Q_WORDS;
        parity.add(data[2 * place + at % 2]);
    }
    parity
}

/// Two symbols of a Reed-Solomon code over the field of 256 elements with the polynomial x^8 + x^4 + x^3 + x^2 + 1: with them the sum of a
/// word's bytes is zero, and so is their sum when each is multiplied by a power of two, which is 1 for the last.
#[derive(Clone, Copy, Default)]
struct Parity {
    sum: u8,
    weighted: u8,
}

impl Parity {
    fn add(&mut self, byte: u8) {
        self.sum ^= byte;
        self.weighted = double(self.weighted) ^ byte;
    }

    fn symbols(self) -> [u8; 2] {
        // first + second = sum, and 2 * first + second = 4 * weighted.
        let first = THIRD[usize::from(double(double(self.weighted)) ^ self.sum)];
        [first, first ^ self.sum]
    }
}

const fn double(element: u8) -> u8 {
    let carry = element >> 7;
    (element << 1) ^ (carry * 0x1d)
}

/// Elements divided by 3.
static THIRD: [u8; 256] = {
    let mut table = [0; 256];
    let mut element = 0_usize;
    while element < 256 {
        table[(double(element as u8) ^ element as u8) as usize] = element as u8;
        element += 1;
    }
    table
};

/// The error detection code of each byte: its polynomial is (x^16 + x^15 + x^2 + 1) (x^16 + x^2 + x + 1), with the lowest bit of each byte first.
static EDC_OF_BYTE: [u32; 256] = {
    const POLYNOMIAL: u32 = 0xd801_8001;
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut code, mut bit) = (byte as u32, 0);
        while bit < 8 {
            code = (code >> 1) ^ ((code & 1) * POLYNOMIAL);
            bit += 1;
        }
        table[byte] = code;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.chars().filter_map(|digit| Some(digit.to_digit(16)? as u8)).collect();
        digits.chunks(2).map(|pair| (pair[0] << 4) | pair[1]).collect()
    }

    /// What follows the user data of the sector at 00:02:17 of `test/data/isofs-m1.bin`, an image of libcdio that has whole sectors: EDC,
    /// zeroes, P parity and Q parity.
    const REAL: &str = "
        a391b895000000000000000000f71af5aa89782020d5f5000000000000000000000000000000000000000000000000000000000000000000
        000000000000000000000000000000000000000000000000000000000000f8aed5a2000000000000000000f50df455ca3c1010e4f4000000
        0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000
        000000005b3f6d3700000000000000000041000000000000000000000000000000000000000077e232960e334b470000000000000000ba00
        02c31f71c64c8e2dcb7424e600430000000000000000000000000000000000000000cf7744a59baa107800000000000000004f00d61676b5
        60e4852239343312";

    /// All 302 sectors of that image come out as they are in it.
    #[test]
    fn a_sector_is_what_a_recorder_writes() {
        let mut user_data = vec![0; USER_DATA_BYTES];
        // The volume descriptor that ends the set (ECMA-119 8.3).
        user_data[..7].copy_from_slice(b"\xffCD001\x01");
        let mut sector = [0xee; SECTOR_BYTES];
        SectorFields::of_selection(0xf8).unwrap().write(17, &user_data, &mut sector);
        assert_eq!(sector[..HEADER], [0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 0]);
        assert_eq!(sector[HEADER..USER_DATA], [0x00, 0x02, 0x17, 0x01]);
        assert_eq!(sector[USER_DATA..EDC], user_data);
        assert_eq!(sector[EDC..], bytes(REAL));
    }

    /// ECMA-130 annex A: the check matrix times the words of each column and each diagonal.
    #[test]
    fn the_parities_make_every_column_and_every_diagonal_a_word_of_the_code() {
        let user_data: Vec<u8> = (0..USER_DATA_BYTES).map(|at| (at * at / 7) as u8).collect();
        let mut sector = [0; SECTOR_BYTES];
        SectorFields::of_selection(0xf8).unwrap().write(359_999, &user_data, &mut sector);
        let is_word = |symbols: &mut dyn Iterator<Item = u8>| {
            let (sum, weighted) = symbols.fold((0, 0), |(sum, weighted), byte| (sum ^ byte, double(weighted) ^ byte));
            (sum, weighted) == (0, 0)
        };
        for column in 0..P_COLUMNS {
            assert!(is_word(&mut (0..26).map(|row| sector[HEADER + P_COLUMNS * row + column])), "{column}");
        }
        for (word, byte) in (0..26).flat_map(|word| [(word, 0), (word, 1)]) {
            let data = (0..43).map(|step| (43 * word + 44 * step) % 1118).chain([1118 + word, 1144 + word]);
            assert!(is_word(&mut data.map(|place| sector[HEADER + 2 * place + byte])), "{word} {byte}");
        }
    }

    #[test]
    fn fields_that_follow_each_other_are_selected() {
        let range = |selection| SectorFields::of_selection(selection).map(|fields| (fields.from, fields.to));
        let legal: Vec<u8> = (0..=u8::MAX).filter(|selection| range(*selection).is_some()).collect();
        let expected = [
            0x00, 0x10, 0x18, 0x20, 0x30, 0x38, 0x40, 0x50, 0x58, 0x60, 0x70, 0x78, 0x80, 0xa0, 0xb0, 0xb8, 0xe0, 0xf0,
            0xf8,
        ];
        assert_eq!(legal, expected);
        assert_eq!([range(0x10), range(0x18), range(0x20)], [Some((16, 2064)), Some((16, 2352)), Some((12, 16))]);
        assert_eq!([range(0x50), range(0xb0), range(0xf8)], [Some((16, 2064)), Some((0, 2064)), Some((0, 2352))]);
        assert_eq!(SectorFields::of_selection(0x50), Some(SectorFields::USER_DATA), "mode 1 has no subheader");
        let mut header = [0; 4];
        SectorFields::of_selection(0x60).unwrap().write(0, &[], &mut header);
        assert_eq!(header, [0, 2, 0, 1]);
    }
}
