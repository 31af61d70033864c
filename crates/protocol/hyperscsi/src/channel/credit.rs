//! How far a sender may go. Credits are counted in whole windows (HyperSCSI 5.2): the one of the oldest missing packet, and as many
//! more as may be in flight besides.

use crate::wire::flow::Window;

/// What a sender may send, kept ready: each packet asks for it several times, and windows are of any length.
#[derive(Debug)]
pub(super) struct Credit {
    window: Window,
    /// The first sequence behind the window of the oldest missing packet.
    oldest_end: u64,
    /// The first sequence that may not be sent.
    end: u64,
}

impl Credit {
    /// `base`: the oldest missing packet.
    pub(super) fn new(window: Window, base: u64) -> Self {
        let packets = u64::from(window.packets());
        let oldest_end = (base / packets + 1) * packets;
        Credit { window, oldest_end, end: oldest_end + packets * u64::from(window.in_flight() - 1) }
    }

    pub(super) fn window(&self) -> Window {
        self.window
    }

    /// The first sequence behind the window of the oldest missing packet.
    pub(super) fn oldest_end(&self) -> u64 {
        self.oldest_end
    }

    /// This is the oldest missing packet now.
    pub(super) fn advance(&mut self, base: u64) {
        if base >= self.oldest_end {
            *self = Credit::new(self.window, base);
        }
    }

    /// Whether this packet may be sent.
    pub(super) fn admits(&self, sequence: u64) -> bool {
        sequence < self.end
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_window_of_the_oldest_missing_packet_and_those_in_flight_after_it_may_be_sent(
            packets in 1u16..70, in_flight in 1u16..9, steps in proptest::collection::vec(0u64..200, 1..30), ahead in 0u64..1000
        ) {
            let mut base = 0;
            let mut credit = Credit::new(Window::new(packets, in_flight).unwrap(), base);
            let window = u64::from(packets);
            for step in steps {
                base += step;
                credit.advance(base);
                prop_assert_eq!(credit.oldest_end(), (base / window + 1) * window);
                let is_within = (base + ahead) / window < base / window + u64::from(in_flight);
                prop_assert_eq!(credit.admits(base + ahead), is_within, "{} from {}", ahead, base);
            }
        }
    }
}
