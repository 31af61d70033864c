//! How a client leaves a target: it is not gone before the target is.

use std::time::Duration;

use sanwire_core::Instant;
use sanwire_io::Waker;
use sanwire_io::tcp::Received;

use super::{Channel, Iscsi};
use crate::session::Session;

/// How long a target may take to answer the logout, and to close its connections. Linux' target of iSER frees a command twice when the
/// end of a connection reaches it before it is done with the answer.
pub(super) const LOGOUT_TIMEOUT: Duration = Duration::from_millis(500);

impl Iscsi {
    /// Waits for the answer to the logout, and then for the end of each connection, which is the target's to close (RFC 7143 11.14).
    /// That may take so long.
    pub(super) fn take_leave(&mut self, waker: &Waker, patience: Duration) {
        let until = self.now() + patience;
        while self.protocol.is_leaving() && self.now() < until {
            let now = self.now();
            let received = self.receive(now);
            self.handle_timeout(now);
            while self.protocol.poll_event().is_some() {}
            if !self.protocol.is_leaving() {
                break;
            }
            if received + self.transmit(now) == 0 && self.wait(waker, Some(until)).is_err() {
                return;
            }
        }
        self.outlast_targets(until, waker);
    }

    fn outlast_targets(&mut self, until: Instant, waker: &Waker) {
        let mut waste = [0; 512];
        loop {
            let protocol = &mut self.protocol;
            self.sockets.retain(|connection, socket| match &mut socket.channel {
                Channel::Stream(stream) => !matches!(stream.receive([&mut waste, &mut []]), Ok(Received::End) | Err(_)),
                Channel::Adapter(_) => !protocol.is_parted(*connection),
            });
            let is_late = self.now() >= until;
            if self.sockets.is_empty() || is_late || self.wait(waker, Some(until)).is_err() {
                return;
            }
        }
    }
}
