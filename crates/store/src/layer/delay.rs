//! A slower store.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use super::{Layer, Which};
use crate::completion::CompletionQueue;
use crate::request::{Capabilities, Delayed, Request, Started, Store};

/// The longest time: past it, clients have long given up.
const TIME_MAX: Duration = Duration::from_secs(3600);

/// How long to hold which requests back: `5ms`, or `read:250us` for reads only.
///
/// The unit is `us`, `ms` or `s`; the word before the colon is one of [`Which::from_word`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DelayRule {
    /// Which requests.
    pub which: Which,
    /// How long.
    pub delay: Duration,
}

impl FromStr for DelayRule {
    /// What is expected, in words.
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str =
            "[all:|read:|write:|flush:|discard:]NUMBER and us, ms or s, up to an hour, like 5ms or read:250us";
        let (word, time) = text.split_once(':').unwrap_or(("all", text));
        let which = Which::from_word(word).ok_or(EXPECTED)?;
        Ok(DelayRule { which, delay: parse_time(time).ok_or(EXPECTED)? })
    }
}

/// A number and `us`, `ms` or `s`, up to an hour.
pub(crate) fn parse_time(text: &str) -> Option<Duration> {
    let digits_end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits_end].parse().ok()?;
    let unit_us = match &text[digits_end..] {
        "us" => 1,
        "ms" => 1000,
        "s" => 1_000_000,
        _ => return None,
    };
    let time = Duration::from_micros(number.checked_mul(unit_us)?);
    (time <= TIME_MAX).then_some(time)
}

/// Holds requests back before the store below sees them.
#[derive(Debug)]
pub struct DelayLayer {
    rules: Vec<DelayRule>,
}

impl DelayLayer {
    /// The delays of all rules for a request add up.
    #[must_use]
    pub fn new(rules: Vec<DelayRule>) -> Self {
        DelayLayer { rules }
    }
}

impl Layer for DelayLayer {
    /// What is shared would not be late.
    fn narrow(&self, below: Capabilities) -> Capabilities {
        Capabilities { shares: false, ..below }
    }

    fn start(&self, request: Request, below: &Arc<dyn Store>, completions: &CompletionQueue) -> Started {
        let rules = self.rules.iter().filter(|rule| rule.which.covers(&request));
        let delay = rules.fold(Duration::ZERO, |sum, rule| sum.saturating_add(rule.delay));
        if delay.is_zero() {
            return below.start(request, completions);
        }
        Started::Later(Delayed { delay, store: Arc::clone(below), request })
    }
}
