//! A client that breaks the rules, as somebody else's might.

use sanwire_core::{Instant, Protection};

use super::{Client, State};
use crate::option_exchange::Floors;
use crate::options::Agreed;
use crate::wire::Opcode;

impl Client {
    /// Forgets what both ends have agreed on, as somebody else's client might.
    pub(crate) fn ignore_cap(&mut self) {
        if let State::Connected(connected) = &mut self.state {
            connected.channel.apply(&Agreed::default());
        }
    }

    /// Guards data no better than logical units demand, as somebody else's client might.
    pub(crate) fn ignore_floors(&mut self, now: Instant) {
        if let State::Connected(connected) = &mut self.state {
            let none = Floors { outward: Protection::Checksum, inward: Protection::Checksum };
            connected.channel.set_floors(none, now);
        }
    }

    /// Says this to the server, sealed, as somebody else's client might.
    pub(crate) fn say(&mut self, opcode: Opcode, body: Vec<u8>) {
        if let State::Connected(connected) = &mut self.state {
            connected.channel.send_control(opcode, body);
        }
    }
}
