//! One connection until its login has passed.

use std::io;
use std::net::IpAddr;

use sanwire_core::Alarm;
use sanwire_io::Interest;
use sanwire_io::tcp::Stream;

use crate::front::{LoginPhase, LoginService, PassedLogin, TallyFamily};

/// What a login is called, and counted as.
#[derive(Clone, Copy)]
pub(super) struct Service {
    pub(super) login: &'static str,
    pub(super) results: &'static TallyFamily,
}

impl Service {
    pub(super) fn of(logins: &dyn LoginService) -> Self {
        Service { login: logins.name(), results: logins.results() }
    }
}

pub(super) struct Login {
    pub(super) stream: Stream,
    pub(super) machine: Box<dyn LoginPhase>,
    /// When it is seen whether it takes too long.
    pub(super) alarm: Alarm,
    /// Of what it is a login.
    pub(super) service: Service,
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
pub(crate) fn turn_away(mut stream: Stream, login: Box<dyn PassedLogin>) {
    for packet in login.out_of_resources() {
        drop(stream.queue(packet));
    }
    // So little fits into the socket of a connection that has just begun; who has gone need not be told.
    drop(stream.flush());
}
