//! Over TCP: what it has taken arrives, or the connection ends. So nothing is sent twice, nor kept for that, and there is no window but
//! TCP's own.

use sanwire_core::Instant;

use super::{Held, Outgoing};

impl Outgoing {
    pub(super) fn next_of_stream(&mut self, now: Instant) -> Option<u32> {
        self.peek_bytes()?;
        (self.next() < u32::MAX).then(|| self.cut(now))
    }

    /// A packet was made, and goes to TCP.
    pub(in crate::channel) fn handed_over(&mut self, sequence: u32, now: Instant) {
        let Some(index) = sequence.checked_sub(self.base) else { return };
        let Some(sent) = self.sent.get_mut(index as usize) else { return };
        (sent.part.data, sent.part.before) = (None, Vec::new());
        // Of a message of which TCP has all only that is left that nobody has acknowledged it.
        let unacknowledged = Held { messages: sent.held.messages, ..Held::default() };
        let held = std::mem::replace(&mut sent.held, unacknowledged);
        self.held.take_off(Held { messages: 0, ..held });
        self.arrived_bytes += sent.bytes;
        self.moved_at = now;
    }

    /// Of what was handed over, TCP has not taken so many bytes.
    pub(in crate::channel) fn note_unsent(&mut self, unsent_bytes: u64, now: Instant) {
        if unsent_bytes < self.unsent_bytes {
            self.moved_at = now;
        }
        self.unsent_bytes = unsent_bytes;
    }
}
