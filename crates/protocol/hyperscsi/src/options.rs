//! Which options there are, and what comes of what both ends say of one: the registry and the table of outcomes of
//! `docs/protocols/hyperscsi.md` 3.8.
//!
//! Both ends compute the outcome from the same two offers, so neither has to tell the other. An option that is not in the
//! registry (of a later revision, or of a vendor) is carried to the owner of the connection, and changes nothing here.

use sanwire_core::Protection;

use crate::wire::offer::TRANSFER_MIN_BYTES;
pub use crate::wire::options::{Offered, OptionNumber, Options, Stance, TooMany};

/// How two values become one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rule {
    /// There is no value: it is on or off.
    Flag,
    /// One byte, a bit for each way that an end knows: those that both know.
    Common,
    /// A number of so many bytes: the smaller one.
    Least(usize),
}

/// What is known of an option.
struct Entry {
    number: OptionNumber,
    name: &'static str,
    rule: Rule,
    /// One end can do it alone: that the other ignores it is no reason to refuse.
    is_one_sided: bool,
}

const fn entry(number: u16, name: &'static str, rule: Rule, is_one_sided: bool) -> Entry {
    match OptionNumber::new(number) {
        Some(number) => Entry { number, name, rule, is_one_sided },
        None => panic!("option numbers have 15 bits"),
    }
}

/// An option that is built.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(usize)]
pub enum DeviceOption {
    /// Data packets are encrypted; value: a bit for each cipher, at the number of its protection.
    Encryption,
    /// Data packets have a keyed hash at least.
    Hashing,
    /// Data may be compressed; value: bit 0 is LZ4.
    Compression,
    /// Nothing is written.
    ReadOnly,
    /// Removable media stay in.
    MediumLock,
    /// The largest data transfer of a command, in bytes; value: 4 bytes.
    TransferMax,
    /// Bytes of data that either end sends in a second; value: 8 bytes.
    RateCap,
    /// Whose turn comes sooner, 0 to 7; value: 1 byte.
    Priority,
}

/// The registry, in the order of [`DeviceOption`].
const REGISTRY: [Entry; 8] = [
    entry(2, "encryption", Rule::Common, false),
    entry(3, "hashing", Rule::Flag, false),
    entry(4, "compression", Rule::Common, false),
    entry(5, "read-only", Rule::Flag, true),
    entry(6, "medium-lock", Rule::Flag, true),
    entry(7, "transfer-max", Rule::Least(4), true),
    entry(8, "rate-cap", Rule::Least(8), true),
    entry(9, "priority", Rule::Least(1), true),
];

/// The highest priority.
pub const PRIORITY_MAX: u8 = 7;

const LZ4: u8 = 1;

/// What came of an option.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Outcome {
    Off,
    /// On, with this value; whether an end enforces it.
    On(Vec<u8>, bool),
    /// One end enforces it, and the other cannot.
    Conflict,
}

impl DeviceOption {
    /// All of them, by their numbers.
    pub const ALL: [DeviceOption; 8] = [
        DeviceOption::Encryption,
        DeviceOption::Hashing,
        DeviceOption::Compression,
        DeviceOption::ReadOnly,
        DeviceOption::MediumLock,
        DeviceOption::TransferMax,
        DeviceOption::RateCap,
        DeviceOption::Priority,
    ];

    /// Its number on the wire.
    #[must_use]
    pub fn number(self) -> OptionNumber {
        self.entry().number
    }

    /// What people call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.entry().name
    }

    fn entry(self) -> &'static Entry {
        &REGISTRY[self as usize]
    }

    /// The table of outcomes.
    fn outcome(self, one: &Options, other: &Options) -> Outcome {
        use Stance::{Enforced, Ignored, Supported};
        let Entry { rule, is_one_sided, .. } = *self.entry();
        let ((stance, value), (other_stance, other_value)) = (self.said(one), self.said(other));
        let is_enforced = stance == Enforced || other_stance == Enforced;
        match (stance, other_stance) {
            (Ignored, Ignored | Supported) | (Supported, Ignored) => Outcome::Off,
            (Enforced, Ignored) if is_one_sided => Outcome::On(value.to_vec(), true),
            (Ignored, Enforced) if is_one_sided => Outcome::On(other_value.to_vec(), true),
            (Enforced, Ignored) | (Ignored, Enforced) => Outcome::Conflict,
            (Supported | Enforced, Supported | Enforced) => match rule.combine(value, other_value) {
                Some(value) => Outcome::On(value, is_enforced),
                None if is_enforced => Outcome::Conflict,
                None => Outcome::Off,
            },
        }
    }

    /// What an end says of it; a value that is none is as if nothing was said.
    fn said(self, options: &Options) -> (Stance, &[u8]) {
        match options.get(self.number()) {
            Some(offered) if self.entry().rule.takes(&offered.value) => (offered.stance, &offered.value),
            _ => (Stance::Ignored, &[]),
        }
    }
}

impl Rule {
    fn takes(self, value: &[u8]) -> bool {
        match self {
            Rule::Flag => value.is_empty(),
            Rule::Common => value.len() == 1,
            Rule::Least(bytes) => value.len() == bytes,
        }
    }

    /// `None`: nothing is common to both.
    fn combine(self, one: &[u8], other: &[u8]) -> Option<Vec<u8>> {
        match self {
            Rule::Flag => Some(Vec::new()),
            Rule::Common => {
                let common: Vec<u8> = one.iter().zip(other).map(|(one, other)| one & other).collect();
                common.iter().any(|bits| *bits != 0).then_some(common)
            }
            // Big-endian numbers of one length stand in the order of their bytes.
            Rule::Least(_) => Some(one.min(other).to_vec()),
        }
    }
}

/// An end enforces an option that is not to be had with the other: there is no connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("one end enforces the option {}, and the other end does not support it so", .0.name())]
pub struct OptionConflict(pub DeviceOption);

/// What holds on a connection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Agreed {
    /// Data packets are never guarded less.
    pub protection_min: Protection,
    /// Data may be compressed.
    pub compression: bool,
    /// Nothing is written.
    pub read_only: bool,
    /// The other end itself wants so.
    pub peer_is_read_only: bool,
    /// Removable media stay in.
    pub medium_lock: bool,
    /// The largest data transfer of a command, in bytes; `None`: what the offers say else.
    pub transfer_max_bytes: Option<u32>,
    /// Bytes of data that either end sends in a second at the most.
    pub rate_cap_bytes_per_second: Option<u64>,
    /// Whose turn comes sooner.
    pub priority: u8,
    /// What the other end says of options that are not known here.
    pub unknown: Vec<(OptionNumber, Offered)>,
}

impl Agreed {
    /// What comes of both ends' options, at the end that has `ours`.
    ///
    /// # Errors
    /// [`OptionConflict`] names the first option that keeps them apart.
    pub fn new(ours: &Options, theirs: &Options) -> Result<Agreed, OptionConflict> {
        let mut agreed = Agreed::default();
        for option in DeviceOption::ALL {
            match option.outcome(ours, theirs) {
                Outcome::Off => {}
                Outcome::On(value, is_enforced) => agreed.take(option, &value, is_enforced),
                Outcome::Conflict => return Err(OptionConflict(option)),
            }
        }
        agreed.peer_is_read_only = DeviceOption::ReadOnly.said(theirs).0 == Stance::Enforced;
        let is_known = |number| REGISTRY.iter().any(|entry| entry.number == number);
        agreed.unknown = theirs.iter().filter(|(number, _)| !is_known(*number)).map(|(n, o)| (n, o.clone())).collect();
        Ok(agreed)
    }

    fn take(&mut self, option: DeviceOption, value: &[u8], is_enforced: bool) {
        let number = value.iter().fold(0, |number: u64, byte| number << 8 | u64::from(*byte));
        match option {
            DeviceOption::Encryption if is_enforced => {
                let least = ciphers().filter(|cipher| number & bit(*cipher) != 0).min();
                self.protection_min = self.protection_min.max(least.unwrap_or(Protection::STRONGEST));
            }
            DeviceOption::Hashing if is_enforced => {
                self.protection_min = self.protection_min.max(Protection::Hash);
            }
            // Each logical unit says what it wants.
            DeviceOption::Encryption | DeviceOption::Hashing => {}
            DeviceOption::Compression => self.compression = number & u64::from(LZ4) != 0,
            DeviceOption::ReadOnly => self.read_only = true,
            DeviceOption::MediumLock => self.medium_lock = true,
            DeviceOption::TransferMax => {
                self.transfer_max_bytes = u32::try_from(number).ok().map(|bytes| bytes.max(TRANSFER_MIN_BYTES));
            }
            DeviceOption::RateCap => self.rate_cap_bytes_per_second = Some(number).filter(|bytes| *bytes > 0),
            DeviceOption::Priority => self.priority = (number as u8).min(PRIORITY_MAX),
        }
    }
}

fn ciphers() -> impl Iterator<Item = Protection> {
    Protection::ALL.into_iter().filter(|protection| protection.encrypts())
}

fn bit(protection: Protection) -> u64 {
    1 << (protection as u8)
}

/// What an end wants of its connections, beside how they are guarded.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DesiredOptions {
    /// Whether data may be compressed.
    pub compression: Stance,
    /// Whether nothing is to be written.
    pub read_only: bool,
    /// Whether removable media are to stay in.
    pub medium_lock: bool,
    /// The largest data transfer of a command, in bytes.
    pub transfer_max_bytes: Option<u32>,
    /// Bytes of data that either end sends in a second at the most.
    pub rate_cap_bytes_per_second: Option<u64>,
    /// Whose turn comes sooner: what a client asks for, what a server grants. 0 to [`PRIORITY_MAX`].
    pub priority: Option<u8>,
    /// Options that are not known here, such as a vendor's own.
    pub others: Options,
}

impl DesiredOptions {
    /// These wishes as options of an end that takes no data packet guarded less than `protection_min`.
    ///
    /// # Errors
    /// [`TooMany`] when there are too many others.
    pub fn options(&self, protection_min: Protection) -> Result<Options, TooMany> {
        let mut options = self.others.clone();
        let mut set = |option: DeviceOption, stance: Stance, value: &[u8]| match stance {
            Stance::Ignored => Ok(()),
            _ => options.set(option.number(), Offered { stance, value: value.to_vec() }),
        };
        let stance = |is_wanted: bool, otherwise: Stance| if is_wanted { Stance::Enforced } else { otherwise };
        let wanted = ciphers().filter(|cipher| *cipher >= protection_min).map(bit).fold(0, |set, bit| set | bit);
        set(DeviceOption::Encryption, stance(protection_min.encrypts(), Stance::Supported), &[wanted as u8])?;
        set(DeviceOption::Hashing, stance(protection_min == Protection::Hash, Stance::Supported), &[])?;
        set(DeviceOption::Compression, self.compression, &[LZ4])?;
        set(DeviceOption::ReadOnly, stance(self.read_only, Stance::Ignored), &[])?;
        set(DeviceOption::MediumLock, stance(self.medium_lock, Stance::Ignored), &[])?;
        if let Some(bytes) = self.transfer_max_bytes {
            set(DeviceOption::TransferMax, Stance::Enforced, &bytes.to_be_bytes())?;
        }
        if let Some(bytes) = self.rate_cap_bytes_per_second {
            set(DeviceOption::RateCap, Stance::Enforced, &bytes.to_be_bytes())?;
        }
        if let Some(priority) = self.priority {
            set(DeviceOption::Priority, Stance::Enforced, &[priority.min(PRIORITY_MAX)])?;
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests;
