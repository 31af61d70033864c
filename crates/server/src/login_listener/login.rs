//! One connection until its login has passed.

use std::io;
use std::net::IpAddr;

use sanwire_core::{Alarm, Instant};
use sanwire_io::Interest;
use sanwire_io::tcp::Received;

use crate::channel::Channel;
use crate::front::{LoginPhase, LoginService, PassedLogin, TallyFamily};

/// Bytes that one login receives at a time.
const INPUT_BYTES: usize = 16 << 10;

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
    pub(super) channel: Channel,
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
    /// Then it is closed even if not all is sent.
    pub(super) closes_at: Option<Instant>,
}

impl Login {
    /// Takes what has come; `false` when the connection is lost.
    pub(super) fn receive(&mut self, now: Instant) -> bool {
        let Channel::Stream(stream) = &mut self.channel else {
            self.machine.handle_ready(now);
            return true;
        };
        let mut input = [0; INPUT_BYTES];
        match stream.receive([&mut [], &mut input]) {
            // What a refused initiator still says is not heard.
            Ok(Received::Bytes(count)) if !self.is_over => self.machine.handle_input(&input[..count], now),
            Ok(Received::Bytes(_) | Received::Nothing) => {}
            Ok(Received::End) | Err(_) => return false,
        }
        true
    }

    /// Sends what the login has to say; it is little.
    pub(super) fn transmit(&mut self) -> io::Result<()> {
        let Channel::Stream(stream) = &mut self.channel else {
            // The adapter has it, not we.
            drop(self.machine.poll_transmit());
            return Ok(());
        };
        while stream.has_room()
            && let Some(packet) = self.machine.poll_transmit()
        {
            drop(stream.queue(packet));
        }
        stream.flush()
    }

    /// Whether nothing is left of what it had to say.
    pub(super) fn is_all_sent(&self) -> bool {
        !self.channel.wants_write() && self.machine.is_all_sent()
    }
}

/// Tells an initiator that passed its login that there is no room for it. By an adapter it hears of it if that is quick: the connection
/// ends here.
pub(crate) fn turn_away(mut channel: Channel, login: Box<dyn PassedLogin>) {
    let answer = login.out_of_resources();
    let Some(stream) = channel.stream() else { return };
    for packet in answer {
        drop(stream.queue(packet));
    }
    // So little fits into the socket of a connection that has just begun; who has gone need not be told.
    drop(stream.flush());
}
