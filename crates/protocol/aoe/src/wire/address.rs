//! Where a target is.

use std::fmt;
use std::str::FromStr;

/// Shelf and slot. Made from text like `7.3` by `parse`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Address {
    /// The shelf ("major").
    pub shelf: u16,
    /// The slot ("minor").
    pub slot: u8,
}

/// Not the address of a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "an AoE address is SHELF.SLOT, like 7.3: a shelf from 0 to {}, a slot from 0 to {}",
    Address::SHELF_MAX,
    Address::SLOT_MAX
)]
pub struct AddressError;

impl Address {
    /// All targets.
    pub const EVERY: Address = Address { shelf: 0xffff, slot: 0xff };

    /// The highest shelf. FFFh stands for switches that were never set, and Linux refuses it; FFFFh for all shelves.
    pub const SHELF_MAX: u16 = 0x0ffe;

    /// The highest slot; FFh stands for all.
    pub const SLOT_MAX: u8 = 0xfe;

    /// The address of a target.
    ///
    /// # Errors
    /// [`AddressError`] when no target can have it.
    pub fn new(shelf: u16, slot: u8) -> Result<Address, AddressError> {
        if shelf <= Self::SHELF_MAX && slot <= Self::SLOT_MAX { Ok(Address { shelf, slot }) } else { Err(AddressError) }
    }

    /// Whether a request for this address is for the target at `own`.
    #[must_use]
    pub fn covers(&self, own: Address) -> bool {
        (self.shelf == Self::EVERY.shelf || self.shelf == own.shelf)
            && (self.slot == Self::EVERY.slot || self.slot == own.slot)
    }

    /// Whether it is that of one target.
    #[must_use]
    pub fn is_one(&self) -> bool {
        self.shelf != Self::EVERY.shelf && self.slot != Self::EVERY.slot
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.shelf, self.slot)
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (shelf, slot) = text.split_once('.').ok_or(AddressError)?;
        let is_plain = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_plain(shelf) || !is_plain(slot) {
            return Err(AddressError);
        }
        Address::new(shelf.parse().map_err(|_| AddressError)?, slot.parse().map_err(|_| AddressError)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        for text in ["0.0", "7.3", "4094.254"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for text in ["", "7", "7.", ".3", "+7.3", "7.255", "4095.0", "65535.1", "7.3.1", "a.b"] {
            assert_eq!(text.parse::<Address>(), Err(AddressError), "{text}");
        }
    }

    #[test]
    fn an_address_of_all_covers_each() {
        let own = Address { shelf: 7, slot: 3 };
        for (shelf, slot, covers) in
            [(7, 3, true), (7, 0xff, true), (0xffff, 3, true), (0xffff, 0xff, true), (7, 4, false)]
        {
            assert_eq!(Address { shelf, slot }.covers(own), covers);
        }
        assert!(own.is_one() && !Address::EVERY.is_one());
    }
}
