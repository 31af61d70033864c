//! Times of the host's clock as text. It may say anything: before 1970 on a host whose clock was never set, or after the year 9999, which
//! RFC 3339 cannot write. Then the nearest time is told that can be written.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sanwire_core::WallClock;
use sanwire_io::Clock;

/// The last second of the year 9999.
const LAST: Duration = Duration::from_secs(253_402_300_799);

/// As in RFC 3339, to the second.
#[must_use]
pub fn written_seconds(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(writable(time)).to_string()
}

/// The same to the millisecond.
#[must_use]
pub fn written_millis(time: SystemTime) -> String {
    humantime::format_rfc3339_millis(writable(time)).to_string()
}

/// The same of so many milliseconds after the beginning of 1970, whatever a file or a clock has said.
#[must_use]
pub(crate) fn written_unix_millis(millis: u64) -> String {
    // What a time cannot hold is later than what can be written.
    written_millis(UNIX_EPOCH.checked_add(Duration::from_millis(millis)).unwrap_or(UNIX_EPOCH + LAST))
}

/// The clock of the device, which reads none itself, with the time of the host.
pub(crate) fn set_clock(clock: WallClock) -> WallClock {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    clock.set(Clock::new().now(), u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
    clock
}

fn writable(time: SystemTime) -> SystemTime {
    time.clamp(UNIX_EPOCH, UNIX_EPOCH + LAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_the_clock_says_can_be_written() {
        for (time, seconds) in [
            (UNIX_EPOCH - Duration::from_secs(1), "1970-01-01T00:00:00Z"),
            (UNIX_EPOCH, "1970-01-01T00:00:00Z"),
            (UNIX_EPOCH + Duration::from_secs(1_795_483_800), "2026-11-24T01:30:00Z"),
            (UNIX_EPOCH + LAST, "9999-12-31T23:59:59Z"),
            (UNIX_EPOCH + Duration::from_secs(1 << 40), "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(written_seconds(time), seconds);
            assert_eq!(written_millis(time), seconds.replace('Z', ".000Z"));
        }
        for (millis, written) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_795_483_800_001, "2026-11-24T01:30:00.001Z"),
            (u64::MAX, "9999-12-31T23:59:59.000Z"),
        ] {
            assert_eq!(written_unix_millis(millis), written);
        }
    }
}
