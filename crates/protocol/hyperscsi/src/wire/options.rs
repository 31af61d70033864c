//! Options as they stand on the wire: in the offers of the handshake, and in ADN_REQUEST and ADN_REPLY of a connection
//! that lives. What their numbers mean is no matter here: [`crate::options`] knows that.
//!
//! ```text
//! options   2 bytes number of options, then each: 2 bytes number (15 bits), 1 byte stance, 2 bytes length, value
//! ```

use std::collections::BTreeMap;

use super::{Malformed, Reader};

/// Options of one end at the most; more are refused with whatever carries them.
pub const OPTIONS_MAX: usize = 32;

/// Bytes of all options of one end at the most: with them, the answer to a DISCOVERY is still shorter than it.
pub const OPTIONS_MAX_BYTES: usize = 160;

/// Number, stance and length of an option.
const FIXED_BYTES: usize = 5;

/// The number of an option.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OptionNumber(u16);

impl OptionNumber {
    /// The first number of those that everybody may use for what others need not know.
    pub const VENDOR_FIRST: OptionNumber = OptionNumber(0x4000);

    /// The number, if it has 15 bits.
    #[must_use]
    pub const fn new(number: u16) -> Option<OptionNumber> {
        if number <= 0x7fff { Some(OptionNumber(number)) } else { None }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

/// What an end thinks of an option.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum Stance {
    /// It does without; what is not named is ignored, too.
    #[default]
    Ignored = 0,
    /// It can, if the other end wants to.
    Supported = 1,
    /// It does not go on without it.
    Enforced = 2,
}

impl Stance {
    /// All of them, by their numbers.
    pub const ALL: [Stance; 3] = [Stance::Ignored, Stance::Supported, Stance::Enforced];
}

/// What an end offers of an option.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Offered {
    /// What it thinks of it.
    pub stance: Stance,
    /// How it would have it.
    pub value: Vec<u8>,
}

/// Why an option was not added.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("an end offers at most {OPTIONS_MAX} options of {OPTIONS_MAX_BYTES} bytes together")]
pub struct TooMany;

/// The options of one end.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options(BTreeMap<OptionNumber, Offered>);

impl Options {
    /// What is offered of an option.
    #[must_use]
    pub fn get(&self, number: OptionNumber) -> Option<&Offered> {
        self.0.get(&number)
    }

    /// All of them, by their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (OptionNumber, &Offered)> {
        self.0.iter().map(|(number, offered)| (*number, offered))
    }

    /// Adds an option, or puts it in the place of what was offered of it.
    ///
    /// # Errors
    /// [`TooMany`] when there is no room for it; then nothing is changed.
    pub fn set(&mut self, number: OptionNumber, offered: Offered) -> Result<(), TooMany> {
        let before = self.0.insert(number, offered);
        if self.0.len() <= OPTIONS_MAX && self.bytes() <= OPTIONS_MAX_BYTES {
            return Ok(());
        }
        match before {
            Some(before) => self.0.insert(number, before),
            None => self.0.remove(&number),
        };
        Err(TooMany)
    }

    fn bytes(&self) -> usize {
        self.0.values().map(|offered| FIXED_BYTES + offered.value.len()).sum()
    }

    /// Reads options behind a reader's other fields. One that stands there twice, or more than there may be, are no options.
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Options, Malformed> {
        let count = usize::from(reader.u16()?);
        let mut options = Options::default();
        for _ in 0..count {
            let number = OptionNumber::new(reader.u16()?).ok_or(Malformed::Field("option"))?;
            let stance = reader.u8()?;
            let stance = *Stance::ALL.get(usize::from(stance)).ok_or(Malformed::Field("stance"))?;
            let length = usize::from(reader.u16()?);
            let value = reader.bytes(length)?.to_vec();
            let is_new = options.get(number).is_none();
            let fits = options.set(number, Offered { stance, value }).is_ok();
            if !is_new || !fits {
                return Err(Malformed::Field("options"));
            }
        }
        Ok(options)
    }

    /// The bytes of the options.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.0.len() as u16).to_be_bytes());
        for (number, offered) in &self.0 {
            out.extend_from_slice(&number.0.to_be_bytes());
            out.push(offered.stance as u8);
            out.extend_from_slice(&(offered.value.len() as u16).to_be_bytes());
            out.extend_from_slice(&offered.value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(number: u16) -> OptionNumber {
        OptionNumber::new(number).unwrap()
    }

    fn read(bytes: &[u8]) -> Result<Options, Malformed> {
        Options::read(&mut Reader::new(bytes))
    }

    #[test]
    fn options_survive_the_wire_known_or_not() {
        let mut options = Options::default();
        for (at, stance) in [(4, Stance::Supported), (0x4000, Stance::Enforced), (0x7fff, Stance::Ignored)] {
            options.set(number(at), Offered { stance, value: vec![7; usize::from(at % 5)] }).unwrap();
        }
        let mut bytes = Vec::new();
        options.write(&mut bytes);
        assert_eq!(read(&bytes), Ok(options));
        for length in 0..bytes.len() {
            assert!(read(&bytes[..length]).is_err());
        }
    }

    #[test]
    fn storms_of_options_and_those_said_twice_are_refused() {
        let mut options = Options::default();
        let added = (0..1000).take_while(|at| options.set(number(*at), Offered::default()).is_ok()).count();
        assert_eq!(added, OPTIONS_MAX);
        let long = Offered { stance: Stance::Supported, value: vec![0; OPTIONS_MAX_BYTES] };
        assert_eq!(options.set(number(0), long), Err(TooMany));
        assert_eq!(options.get(number(0)), Some(&Offered::default()), "what stood there stays");
        let storm: Vec<u8> = (0..3000u16).flat_map(|at| [(at >> 8) as u8, at as u8, 1, 0, 0]).collect();
        assert!(read(&[&3000u16.to_be_bytes()[..], &storm].concat()).is_err());
        assert!(read(&[0, 2, 0, 4, 1, 0, 0, 0, 4, 2, 0, 0]).is_err(), "twice");
        assert!(read(&[0, 1, 0x80, 4, 1, 0, 0]).is_err(), "16 bits");
        assert!(read(&[0, 1, 0, 4, 3, 0, 0]).is_err(), "no stance");
    }
}
