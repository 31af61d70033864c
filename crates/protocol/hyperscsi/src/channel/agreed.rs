//! Messages on their way out, as both ends have agreed.

use super::{Channel, Message};
use crate::compression::Compressor;
use crate::options::Agreed;

impl Channel {
    /// From now on, what goes out is as both ends have agreed.
    pub(crate) fn apply(&mut self, agreed: &Agreed) {
        if !agreed.compression {
            self.compressor = None;
        } else if self.compressor.is_none() {
            self.compressor = Some(Compressor::default());
        }
        self.shaper.set_cap(agreed.rate_cap_bytes_per_second);
    }

    /// Queues a message. Its cookie comes back from [`Channel::poll_delivered`] when the peer has all of it.
    pub(crate) fn send(&mut self, message: Message) {
        let message = message.guarded(self.guard.floor());
        self.outgoing.push(match &mut self.compressor {
            Some(compressor) => message.compressed(compressor),
            None => message,
        });
    }

    pub(crate) fn poll_delivered(&mut self) -> Option<u64> {
        self.outgoing.poll_delivered()
    }
}
