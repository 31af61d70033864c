//! How long a derived volume may be used.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sanwire_store::SpecError;

use crate::wall_time::written_seconds;

/// The longest time that counts from now on: ten years.
const AFTER_MAX: Duration = Duration::from_secs(3653 * 24 * 3600);

/// The end of the life of a derived volume, as it is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// At this time, to the second.
    At(SystemTime),
    /// So long after it is made.
    After(Duration),
}

/// What is such a time, in words.
pub(super) const EXPECTED: &str = "a time like 2027-01-31T18:00:00Z or 2027-01-31T18:00:00+01:00 (RFC 3339), or how long from now on, like 2h or 30days, up to ten years";

impl Until {
    pub(super) fn parse(text: &str) -> Option<Until> {
        // A number alone has no unit: nobody knows what is meant.
        if let Ok(duration) = humantime::parse_duration(text) {
            return Some(duration).filter(|after| !after.is_zero() && *after <= AFTER_MAX).map(Until::After);
        }
        parse_time(text).map(Until::At)
    }

    /// As an administrator or an owner has written it.
    ///
    /// # Errors
    /// [`SpecError::Value`] when it is none.
    pub(crate) fn read(text: &str) -> Result<Until, SpecError> {
        let invalid = || SpecError::Value { key: "until", value: text.to_owned(), expected: EXPECTED };
        Until::parse(text).ok_or_else(invalid)
    }

    /// The same, as a time to the second, by who writes it at this one.
    pub(crate) fn settled(self, now: SystemTime) -> Until {
        let seconds = unix_millis(self.from(now)) / 1000;
        Until::At(UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).unwrap_or(now))
    }

    /// The time that is meant by who writes it at this one.
    pub(crate) fn from(self, now: SystemTime) -> SystemTime {
        match self {
            Until::At(time) => time,
            // No clock goes beyond what can be added.
            Until::After(after) => now.checked_add(after).unwrap_or(now),
        }
    }
}

/// In milliseconds since the beginning of 1970.
pub(crate) fn unix_millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A time of RFC 3339, to the second; what is less is cut.
fn parse_time(text: &str) -> Option<SystemTime> {
    let time = match text.char_indices().rev().nth(5).map(|(at, _)| text.split_at(at)) {
        Some((local, offset)) if offset.starts_with(['+', '-']) => {
            let (hours, minutes) = offset[1..].split_once(':')?;
            let number = |text: &str, below: u64| {
                let is_number = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
                text.parse().ok().filter(|number: &u64| is_number && *number < below)
            };
            let away = Duration::from_secs(number(hours, 24)? * 3600 + number(minutes, 60)? * 60);
            let local = humantime::parse_rfc3339(&format!("{local}Z")).ok()?;
            if offset.starts_with('+') { local.checked_sub(away)? } else { local.checked_add(away)? }
        }
        _ => humantime::parse_rfc3339(text).ok()?,
    };
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs();
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

impl fmt::Display for Until {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Until::At(time) => f.write_str(&written_seconds(*time)),
            Until::After(after) => write!(f, "{}", humantime::format_duration(*after).to_string().replace(' ', "")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_offset_and_written_in_utc() {
        for (text, written) in [
            ("2027-01-31T18:00:00Z", "2027-01-31T18:00:00Z"),
            ("2027-01-31T18:00:00.75Z", "2027-01-31T18:00:00Z"),
            ("2027-01-31T18:00:00+01:00", "2027-01-31T17:00:00Z"),
            ("2027-01-31T23:30:00-05:30", "2027-02-01T05:00:00Z"),
            ("2h", "2h"),
            ("90m", "1h30m"),
            ("30days", "30days"),
        ] {
            let until = Until::parse(text).unwrap();
            assert_eq!(until.to_string(), written);
            assert_eq!(Until::parse(written), Some(until), "it is the same when it is read again");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "0s",
            "2",
            "soon",
            "-2h",
            "11years",
            "2027-01-31",
            "2027-01-31 18:00:00Z",
            "2027-01-31T18:00:00",
            "2027-13-31T18:00:00Z",
            "2027-01-31T18:00:00+1:00",
            "2027-01-31T18:00:00+24:00",
            "2027-01-31T18:00:00+01:60",
            "1960-01-31T18:00:00Z",
            "ü+01:00",
        ] {
            assert_eq!(Until::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_time_from_now_on_becomes_a_time() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        assert_eq!(Until::parse("2h").unwrap().from(now), now + Duration::from_secs(7200));
        let at = Until::parse("2027-01-31T18:00:00Z").unwrap();
        assert_eq!(at.from(now), at.from(SystemTime::UNIX_EPOCH));
    }
}
