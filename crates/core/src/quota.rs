//! What a stranger, an address, a client and a session may hold of a server: every limit, and the types that keep to them.
//!
//! Each limit is a [`Quota`] that stands in the table and nowhere else, is enforced by one [`Account`] or [`Pace`] in one place, and is
//! shown by `sanwire ctl statistics`. `docs/security.md` has the same table for people; a test compares the two.

mod table;

use std::fmt;
use std::time::Duration;

pub use self::table::*;

use crate::{Instant, Size};

/// Whose share it is that a quota bounds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Holder {
    /// All peers together that have not authenticated, in a shard.
    Strangers,
    /// One address: a station, an IPv4 or IPv6 address, in a shard.
    Address,
    /// One network: a /64 of IPv6, all of whose addresses one host may have; of others, one address (see [`crate::Peer::source`]).
    Network,
    /// One key of a client, over all its sessions.
    Client,
    /// One session.
    Session,
    /// All who use one volume.
    Volume,
    /// All who use one iSCSI target.
    Target,
    /// All that a shard serves.
    Shard,
    /// All that the server serves.
    Server,
}

/// In what a quota is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Things that are held at once.
    Held,
    /// Bytes that are held at once.
    Bytes,
    /// Hundredths of all there is that are held at once.
    Percent,
    /// Events in a second; so many may come at one moment after a rest.
    PerSecond {
        /// Events at one moment.
        burst: u32,
    },
    /// The same in a minute.
    PerMinute {
        /// Events at one moment.
        burst: u32,
    },
    /// The same in a day.
    PerDay {
        /// Events at one moment.
        burst: u32,
    },
}

/// A limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quota {
    /// What is held or done, in words.
    pub name: &'static str,
    /// By whom.
    pub holder: Holder,
    /// How much of it.
    pub limit: u64,
    /// In what.
    pub unit: Unit,
}

impl Holder {
    /// For people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Holder::Strangers => "strangers",
            Holder::Address => "address",
            Holder::Network => "network",
            Holder::Client => "client",
            Holder::Session => "session",
            Holder::Volume => "volume",
            Holder::Target => "target",
            Holder::Shard => "shard",
            Holder::Server => "server",
        }
    }
}

impl Unit {
    /// For people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Unit::Held => "held",
            Unit::Bytes => "bytes",
            Unit::Percent => "percent",
            Unit::PerSecond { .. } => "per second",
            Unit::PerMinute { .. } => "per minute",
            Unit::PerDay { .. } => "per day",
        }
    }

    /// For how long a limit of events counts, and how many may come at one moment.
    fn rate(self) -> Option<(Duration, u32)> {
        match self {
            Unit::Held | Unit::Bytes | Unit::Percent => None,
            Unit::PerSecond { burst } => Some((Duration::from_secs(1), burst)),
            Unit::PerMinute { burst } => Some((Duration::from_secs(60), burst)),
            Unit::PerDay { burst } => Some((Duration::from_secs(24 * 3600), burst)),
        }
    }
}

impl fmt::Display for Quota {
    /// The limit, for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.unit {
            Unit::Held => self.limit.fmt(f),
            Unit::Bytes => Size(self.limit).fmt(f),
            Unit::Percent => write!(f, "{} %", self.limit),
            Unit::PerSecond { burst } => write!(f, "{} in a second, {burst} at one moment", self.limit),
            Unit::PerMinute { burst } => write!(f, "{} in a minute, {burst} at one moment", self.limit),
            Unit::PerDay { burst } => write!(f, "{} in a day, {burst} at one moment", self.limit),
        }
    }
}

impl Quota {
    /// So many things at once.
    #[must_use]
    pub const fn held(holder: Holder, name: &'static str, limit: u64) -> Self {
        Quota { name, holder, limit, unit: Unit::Held }
    }

    /// So many bytes at once.
    #[must_use]
    pub const fn bytes(holder: Holder, name: &'static str, limit: u64) -> Self {
        Quota { name, holder, limit, unit: Unit::Bytes }
    }

    /// So many hundredths at once of all there is.
    #[must_use]
    pub const fn percent(holder: Holder, name: &'static str, limit: u64) -> Self {
        Quota { name, holder, limit, unit: Unit::Percent }
    }

    /// So many events in a second, and `burst` at one moment.
    #[must_use]
    pub const fn per_second(holder: Holder, name: &'static str, limit: u64, burst: u32) -> Self {
        Quota { name, holder, limit, unit: Unit::PerSecond { burst } }
    }

    /// So many events in a minute, and `burst` at one moment.
    #[must_use]
    pub const fn per_minute(holder: Holder, name: &'static str, limit: u64, burst: u32) -> Self {
        Quota { name, holder, limit, unit: Unit::PerMinute { burst } }
    }

    /// So many events in a day, and `burst` at one moment.
    #[must_use]
    pub const fn per_day(holder: Holder, name: &'static str, limit: u64, burst: u32) -> Self {
        Quota { name, holder, limit, unit: Unit::PerDay { burst } }
    }
}

/// How a quota is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usage {
    /// Which.
    pub quota: &'static Quota,
    /// The limit that is kept to: the quota's, or less where the process may not have so much.
    pub limit: u64,
    /// The most that a holder has had at once since the server started; of rates: not known.
    pub most: Option<u64>,
    /// How often somebody was refused more.
    pub refused: u64,
}

impl Usage {
    /// Of a quota of which it is not known how much was had at once.
    #[must_use]
    pub const fn refused(quota: &'static Quota, refused: u64) -> Self {
        Usage { quota, limit: quota.limit, most: None, refused }
    }

    /// Adds what another shard says of the same quota.
    pub fn add(&mut self, other: &Usage) {
        self.most = self.most.max(other.most);
        self.refused += other.refused;
    }
}

/// Keeps holders to a quota of things or bytes.
#[derive(Clone, Debug)]
pub struct Account {
    quota: &'static Quota,
    limit: u64,
    most: u64,
    refused: u64,
}

impl Account {
    /// Of this quota.
    #[must_use]
    pub const fn new(quota: &'static Quota) -> Self {
        Account { quota, limit: quota.limit, most: 0, refused: 0 }
    }

    /// Of this quota, or of less where there is not so much.
    #[must_use]
    pub fn within(quota: &'static Quota, limit: u64) -> Self {
        Account { limit: limit.min(quota.limit), ..Account::new(quota) }
    }

    /// Whether a holder that has so much may have `more`; what it may not is counted.
    pub fn admits(&mut self, held: u64, more: u64) -> bool {
        self.admits_up_to(self.limit, held, more)
    }

    /// The same where the holder may now have `most`: its share of something of which others have theirs.
    pub fn admits_up_to(&mut self, most: u64, held: u64, more: u64) -> bool {
        let wanted = held.saturating_add(more);
        let is_admitted = wanted <= most.min(self.limit);
        if is_admitted {
            self.most = self.most.max(wanted);
        } else {
            self.refused += 1;
        }
        is_admitted
    }

    /// The same, of what nobody has to hear about: nothing is counted.
    #[must_use]
    pub fn has_room(&self, held: u64, more: u64) -> bool {
        held.saturating_add(more) <= self.limit
    }

    /// How the quota is used.
    #[must_use]
    pub fn usage(&self) -> Usage {
        Usage { quota: self.quota, limit: self.limit, most: Some(self.most), refused: self.refused }
    }
}

/// Keeps one holder to a quota of events in a second: a token bucket, as the moment at which it is full again.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    quota: &'static Quota,
    full_at: Instant,
}

impl Pace {
    /// Of this quota, with all of its burst.
    #[must_use]
    pub const fn new(quota: &'static Quota) -> Self {
        Pace { quota, full_at: Instant::ZERO }
    }

    fn interval(&self) -> Duration {
        let (time, _) = self.quota.unit.rate().unwrap_or_default();
        time / u32::try_from(self.quota.limit).unwrap_or(u32::MAX).max(1)
    }

    /// Events of the burst that are left.
    #[must_use]
    pub fn left(&self, now: Instant) -> u32 {
        let Some((_, burst)) = self.quota.unit.rate() else { return 0 };
        let owed = self.full_at.saturating_since(now).as_nanos().div_ceil(self.interval().as_nanos().max(1));
        burst.saturating_sub(u32::try_from(owed).unwrap_or(u32::MAX))
    }

    /// Takes one event, unless fewer than `reserve` would be left.
    pub fn take_above(&mut self, reserve: u32, now: Instant) -> bool {
        let has_left = self.left(now) > reserve;
        if has_left {
            self.full_at = self.full_at.max(now) + self.interval();
        }
        has_left
    }

    /// Takes one event, if any is left.
    pub fn take(&mut self, now: Instant) -> bool {
        self.take_above(0, now)
    }

    /// Whether the holder has rested for long enough to be a new one.
    #[must_use]
    pub fn is_full(&self, now: Instant) -> bool {
        self.full_at <= now
    }
}

/// A [`Pace`] that counts what it refuses.
#[derive(Clone, Debug)]
pub struct Limiter {
    pace: Pace,
    refused: u64,
}

impl Limiter {
    /// Of this quota, with all of its burst.
    #[must_use]
    pub const fn new(quota: &'static Quota) -> Self {
        Limiter { pace: Pace::new(quota), refused: 0 }
    }

    /// Takes one event, unless fewer than `reserve` would be left.
    pub fn take_above(&mut self, reserve: u32, now: Instant) -> bool {
        let is_taken = self.pace.take_above(reserve, now);
        self.refused += u64::from(!is_taken);
        is_taken
    }

    /// Takes one event, if any is left.
    pub fn take(&mut self, now: Instant) -> bool {
        self.take_above(0, now)
    }

    /// Whether an event is left, of which nothing is taken yet; that none is counts as refused.
    pub fn has_left(&mut self, now: Instant) -> bool {
        let has_left = self.pace.left(now) > 0;
        self.refused += u64::from(!has_left);
        has_left
    }

    /// How the quota is used.
    #[must_use]
    pub fn usage(&self) -> Usage {
        Usage::refused(self.pace.quota, self.refused)
    }
}

#[cfg(test)]
mod tests;
