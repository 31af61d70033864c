//! Bytes that can be made again to be compared.

/// Numbers from a seed (xorshift64*, Vigna 2016).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The numbers of this seed.
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next one.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// The next one, below a limit.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// So many bytes of this seed.
pub fn pattern(seed: u64, length_bytes: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut bytes = Vec::with_capacity(length_bytes + 8);
    while bytes.len() < length_bytes {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(length_bytes);
    bytes
}

/// Panics unless the bytes are those of the seed.
#[track_caller]
pub fn expect_pattern(what: &str, bytes: &[u8], seed: u64) {
    let expected = pattern(seed, bytes.len());
    let differs = bytes.iter().zip(&expected).position(|(is, should)| is != should);
    assert_eq!(differs, None, "{what}: the first byte that differs, of {}", bytes.len());
}
