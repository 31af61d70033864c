//! The server has other options on a connection that lives.

use std::time::Duration;

use sanwire_core::Instant;

use super::{Client, State};
use crate::options::{Agreed, Options};
use crate::wire::Opcode;
use crate::wire::live::{LiveReply, NewOptions};

/// Changes of options that are taken in [`PERIOD`]; more are a storm. The server tells one that it means again.
const CHANGES_MAX: u32 = 8;
const PERIOD: Duration = Duration::from_secs(1);

/// Our side of a connection's options.
#[derive(Debug)]
pub(super) struct Terms {
    ours: Options,
    /// The last change that was taken.
    change: u32,
    /// Changes since a moment.
    count: u32,
    counted_since: Instant,
}

impl Terms {
    pub(super) fn new(ours: Options) -> Self {
        Terms { ours, change: 0, count: 0, counted_since: Instant::ZERO }
    }

    fn is_storm(&mut self, now: Instant) -> bool {
        if now.saturating_since(self.counted_since) >= PERIOD {
            (self.count, self.counted_since) = (0, now);
        }
        self.count += 1;
        self.count > CHANGES_MAX
    }
}

impl Client {
    /// The server tells its options. When they go with ours, they hold from now on; it has our answer in any case.
    pub(super) fn handle_options(&mut self, NewOptions { change, options }: NewOptions, now: Instant) {
        let State::Connected(connected) = &mut self.state else { return };
        let terms = &mut connected.terms;
        if change < terms.change || terms.is_storm(now) {
            self.counters.violations += u64::from(change >= terms.change);
            return;
        }
        if change > terms.change {
            terms.change = change;
            match Agreed::new(&terms.ours, &options) {
                Ok(agreed) => {
                    let agreed = agreed.after(&connected.info.options);
                    connected.channel.apply(&agreed);
                    connected.info.options = agreed;
                }
                // The server cannot go on with us either, and says why when we come again.
                Err(_) => self.counters.conflicts += 1,
            }
        }
        let answer = NewOptions { change, options: terms.ours.clone() };
        connected.channel.send_control(Opcode::AdnReply, LiveReply::Options(answer).write());
    }
}
