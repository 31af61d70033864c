//! What is written about a store, as its kind sees it.

use super::SpecError;
use super::raw::{RawVolume, parse_size};

/// What is written about a store, for its kind to read.
pub struct Written<'a> {
    pub(super) raw: &'a RawVolume,
    pub(super) place: &'a str,
    pub(super) block_bytes: Option<u32>,
    pub(super) read_only: bool,
}

impl Written<'_> {
    /// All of the store: the word, the colon, and what stands behind it.
    #[must_use]
    pub fn store(&self) -> &str {
        &self.raw.store
    }

    /// What stands behind the colon.
    #[must_use]
    pub fn place(&self) -> &str {
        self.place
    }

    /// The logical block, when the user chose one: 512 or 4096 bytes.
    #[must_use]
    pub fn block_bytes(&self) -> Option<u32> {
        self.block_bytes
    }

    /// Whether writes are refused.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// The only value of a key of the kind; `None` when there is none. `expected` says in words what `parse` takes.
    ///
    /// # Errors
    /// When it is given twice, or is no such value.
    pub fn value<T>(
        &self,
        key: &'static str,
        expected: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, SpecError> {
        self.raw.single(key, expected, parse)
    }

    /// All values of a key of the kind, as they are written.
    #[must_use]
    pub fn values(&self, key: &str) -> &[String] {
        self.raw.values(key)
    }

    /// Whether a key of the kind is set.
    ///
    /// # Errors
    /// When it is neither true nor false.
    pub fn flag(&self, key: &'static str) -> Result<bool, SpecError> {
        self.raw.flag(key)
    }

    /// A key of the kind that is a size.
    ///
    /// # Errors
    /// When it is none, or zero.
    pub fn size(&self, key: &'static str) -> Result<Option<u64>, SpecError> {
        self.value(key, "a positive size, like 10G", parse_size)
    }

    /// The size behind the colon, of one block at least, and the block.
    pub(crate) fn size_at_place(&self) -> Result<(u64, u32), SpecError> {
        let block_bytes = self.block_bytes.unwrap_or(512);
        let size_bytes = parse_size(self.place).filter(|size| *size >= u64::from(block_bytes));
        let is_no_size = || SpecError::Value {
            key: "size",
            value: self.place.to_owned(),
            expected: if parse_size(self.place).is_some() || self.place.bytes().all(|byte| byte.is_ascii_digit()) {
                "at least one block, like ram:10G"
            } else {
                "a size with a unit of 1024, like ram:10G or ram:10GiB"
            },
        };
        Ok((size_bytes.ok_or_else(is_no_size)?, block_bytes))
    }

    /// What is written is no store of any kind.
    #[must_use]
    pub fn is_no_store(&self) -> SpecError {
        SpecError::Store { store: self.raw.store.clone() }
    }
}
