//! One connection until its login has passed.

use std::io;
use std::net::IpAddr;

use sanwire_core::Alarm;
use sanwire_io::Interest;
use sanwire_io::tcp::Stream;

use crate::front::{LoginPhase, PassedLogin};

pub(super) struct Login {
    pub(super) stream: Stream,
    pub(super) machine: Box<dyn LoginPhase>,
    /// When it is seen whether it takes too long.
    pub(super) alarm: Alarm,
    /// What it is called.
    pub(super) name: &'static str,
    pub(super) peer: IpAddr,
    pub(super) watched: Interest,
    /// So few descriptors are left that it can have no session.
    pub(super) is_beyond: bool,
    /// It was refused: close it when all is sent.
    pub(super) is_over: bool,
}

impl Login {
    /// Sends what the login has to say; it is little.
    pub(super) fn transmit(&mut self) -> io::Result<()> {
        while self.stream.has_room()
            && let Some(packet) = self.machine.poll_transmit()
        {
            drop(self.stream.queue(packet));
        }
        self.stream.flush()
    }
}

/// Tells an initiator that passed its login that there is no room for it.
pub(crate) fn turn_away(mut stream: Stream, login: &dyn PassedLogin) {
    for packet in login.out_of_resources() {
        drop(stream.queue(packet));
    }
    // So little fits into the socket of a connection that has just begun; who has gone need not be told.
    drop(stream.flush());
}
