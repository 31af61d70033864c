//! The argument of a config query: what a target is, and a string for who owns it.

/// The longest config string, in bytes.
pub const CONFIG_STRING_MAX_BYTES: usize = 1024;

const FIXED_BYTES: usize = 8;

/// What is to be done with the config string.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConfigOrder {
    /// Tell it.
    Read,
    /// Answer only if it is this one.
    Test,
    /// Answer only if it begins so.
    TestPrefix,
    /// Set it, if there is none.
    Set,
    /// Set it.
    ForceSet,
}

/// A config query or its response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config<'a> {
    /// Messages that the target takes before it has answered any.
    pub buffers: u16,
    /// Its firmware.
    pub firmware: u16,
    /// Sectors of one ATA command at the most.
    pub sectors: u8,
    /// The order by its number: those that are not known are refused.
    order: u8,
    /// The string.
    pub string: &'a [u8],
}

impl<'a> Config<'a> {
    /// A query.
    #[must_use]
    pub fn query(order: ConfigOrder, string: &'a [u8]) -> Config<'a> {
        Config { buffers: 0, firmware: 0, sectors: 0, order: order as u8, string }
    }

    /// What a target answers.
    #[must_use]
    pub fn answer(&self, buffers: u16, firmware: u16, sectors: u8, string: &'a [u8]) -> Config<'a> {
        Config { buffers, firmware, sectors, order: self.order, string }
    }

    /// Reads it; the string must be there whole.
    #[must_use]
    pub fn parse(argument: &'a [u8]) -> Option<Config<'a>> {
        let (fixed, rest) = argument.split_first_chunk::<FIXED_BYTES>()?;
        let [buffers_high, buffers_low, firmware_high, firmware_low, sectors, order, length_high, length_low] = *fixed;
        let length = usize::from(u16::from_be_bytes([length_high, length_low]));
        Some(Config {
            buffers: u16::from_be_bytes([buffers_high, buffers_low]),
            firmware: u16::from_be_bytes([firmware_high, firmware_low]),
            sectors,
            order: order & 0x0f,
            string: rest.get(..length).filter(|_| length <= CONFIG_STRING_MAX_BYTES)?,
        })
    }

    /// The argument as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FIXED_BYTES + self.string.len());
        bytes.extend(self.buffers.to_be_bytes());
        bytes.extend(self.firmware.to_be_bytes());
        // The upper half is the version.
        bytes.extend([self.sectors, 0x10 | self.order]);
        bytes.extend((self.string.len() as u16).to_be_bytes());
        bytes.extend(self.string);
        bytes
    }

    /// What is to be done; `None` for what nobody knows.
    #[must_use]
    pub fn order(&self) -> Option<ConfigOrder> {
        use ConfigOrder::{ForceSet, Read, Set, Test, TestPrefix};
        [Read, Test, TestPrefix, Set, ForceSet].into_iter().find(|order| *order as u8 == self.order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_has_the_bytes_of_the_specification() {
        let query = Config::query(ConfigOrder::ForceSet, b"ours");
        assert_eq!(query.to_bytes(), [0, 0, 0, 0, 0, 0x14, 0, 4, b'o', b'u', b'r', b's']);
        let answer = query.answer(0x0102, 0x0304, 5, b"");
        assert_eq!(answer.to_bytes(), [1, 2, 3, 4, 5, 0x14, 0, 0]);
        for config in [&query, &answer] {
            assert_eq!(Config::parse(&config.to_bytes()).as_ref(), Some(config));
        }
        assert_eq!(query.order(), Some(ConfigOrder::ForceSet));
        assert_eq!(Config::parse(&[0, 0, 0, 0, 0, 0x15, 0, 0]).unwrap().order(), None);
        assert_eq!(Config::parse(&query.to_bytes()[..11]), None, "a part of the string is missing");
        let long = [&[0, 0, 0, 0, 0, 0x10, 0x04, 0x01][..], &[0; 1025]].concat();
        assert_eq!(Config::parse(&long), None);
    }
}
