//! How packets are guarded: what a volume demands, what a client accepts, what stands on the wire.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// A way to guard packets. The number is the one on HyperSCSI's wire; the order is by strength.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum Protection {
    /// Against accidents: CRC32C.
    #[default]
    Checksum = 0,
    /// Against changes by anybody: the GMAC of AES-256. What is sent can be read.
    Hash = 1,
    /// Encrypted and authentic: AES-256-GCM.
    Aes256Gcm = 2,
    /// Encrypted and authentic: AES-128-GCM.
    Aes128Gcm = 3,
    /// Encrypted and authentic: ChaCha20-Poly1305.
    ChaCha20Poly1305 = 4,
}

impl Protection {
    /// All of them, by their numbers.
    pub const ALL: [Protection; 5] = [
        Protection::Checksum,
        Protection::Hash,
        Protection::Aes256Gcm,
        Protection::Aes128Gcm,
        Protection::ChaCha20Poly1305,
    ];

    /// None is stronger.
    pub const STRONGEST: Protection = Protection::Aes256Gcm;

    /// The protection with this number, if there is one.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Protection> {
        Protection::ALL.get(usize::from(code)).copied()
    }

    /// Whether it hides what is sent.
    #[must_use]
    pub fn encrypts(self) -> bool {
        self > Protection::Hash
    }

    fn name(self) -> &'static str {
        match self {
            Protection::Checksum => "none",
            Protection::Hash => "hash",
            Protection::Aes256Gcm => "aes-256-gcm",
            Protection::Aes128Gcm => "aes-128-gcm",
            Protection::ChaCha20Poly1305 => "chacha20-poly1305",
        }
    }

    fn strength(self) -> u8 {
        match self {
            Protection::Checksum => 0,
            Protection::Hash => 1,
            Protection::Aes128Gcm => 2,
            Protection::ChaCha20Poly1305 => 3,
            Protection::Aes256Gcm => 4,
        }
    }
}

impl Ord for Protection {
    fn cmp(&self, other: &Self) -> Ordering {
        self.strength().cmp(&other.strength())
    }
}

impl PartialOrd for Protection {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text names no protection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParseProtectionError;

impl fmt::Display for ParseProtectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("use none, hash, aes-128-gcm, aes-256-gcm or chacha20-poly1305")
    }
}

impl std::error::Error for ParseProtectionError {}

impl FromStr for Protection {
    type Err = ParseProtectionError;

    fn from_str(text: &str) -> Result<Self, ParseProtectionError> {
        Protection::ALL.into_iter().find(|protection| protection.name() == text).ok_or(ParseProtectionError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_read_as_written() {
        for protection in Protection::ALL {
            assert_eq!(protection.to_string().parse(), Ok(protection));
            assert_eq!(Protection::from_code(protection as u8), Some(protection));
        }
        assert_eq!("AES".parse::<Protection>(), Err(ParseProtectionError));
        assert_eq!(Protection::from_code(5), None);
    }

    #[test]
    fn the_order_is_by_strength() {
        let mut sorted = Protection::ALL;
        sorted.sort();
        let names = sorted.map(|protection| protection.to_string());
        assert_eq!(names, ["none", "hash", "aes-128-gcm", "chacha20-poly1305", "aes-256-gcm"]);
        assert_eq!(Protection::ALL.into_iter().max(), Some(Protection::STRONGEST));
        assert_eq!(Protection::ALL.map(Protection::encrypts), [false, false, true, true, true]);
    }
}
