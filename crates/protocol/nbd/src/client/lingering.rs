//! Writes that lost connections carried: their server may still be at work on them, and NBD has no way to call them back.

use std::ops::Range;
use std::time::Duration;

use sanwire_core::Instant;

use super::Client;

/// Ranges that are remembered one by one; more are taken as one.
const RANGES_MAX: usize = 1024;

/// A write that may still be done, though it was given again.
#[derive(Debug)]
struct Ghost {
    range: Range<u64>,
    /// The order's number: what is older, or the same, may come before or after it.
    number: u64,
    until: Instant,
}

/// All of them, by the time until which they may be done.
#[derive(Debug, Default)]
pub(super) struct Lingering(Vec<Ghost>);

impl Lingering {
    fn add(&mut self, range: Range<u64>, number: u64, until: Instant) {
        self.0.push(Ghost { range, number, until });
        if self.0.len() > RANGES_MAX {
            let start = self.0.iter().map(|ghost| ghost.range.start).min().unwrap_or_default();
            let end = self.0.iter().map(|ghost| ghost.range.end).max().unwrap_or_default();
            self.0.clear();
            self.0.push(Ghost { range: start..end, number, until });
        }
    }

    /// Whether a newer write to this range has to wait.
    pub(super) fn is_in_the_way_of(&self, number: u64, range: &Range<u64>) -> bool {
        let is_in_the_way =
            |ghost: &Ghost| ghost.number < number && ghost.range.start < range.end && range.start < ghost.range.end;
        self.0.iter().any(is_in_the_way)
    }

    /// When the next of them is over.
    pub(super) fn next_end(&self) -> Option<Instant> {
        self.0.iter().map(|ghost| ghost.until).min()
    }

    /// When all of them are.
    pub(super) fn last_end(&self) -> Option<Instant> {
        self.0.iter().map(|ghost| ghost.until).max()
    }

    pub(super) fn expire(&mut self, now: Instant) {
        self.0.retain(|ghost| now < ghost.until);
    }
}

impl Client {
    /// The connections are lost now: writes of which requests were made may be done by the server's end of them.
    pub(super) fn note_lingering(&mut self, linger: Duration, now: Instant) {
        let Client { lingering, orders, .. } = self;
        lingering.expire(now);
        let begun = orders.0.iter().filter(|(_, entry)| entry.order.is_write() && entry.cut_bytes > 0);
        begun.for_each(|(number, entry)| lingering.add(entry.order.range(), *number, now + linger));
    }

    /// Whoever was at the other end of the connections that are lost has ended: nothing of what they carried will be done any more.
    pub fn servers_have_ended(&mut self) {
        self.lingering.0.clear();
        self.schedule();
    }
}
