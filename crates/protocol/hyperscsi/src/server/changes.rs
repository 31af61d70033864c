//! What a server and a client want of a connection changes while it lives.

use sanwire_core::Instant;

use super::connection::Connection;
use super::{SecurityEvent, Server, ServerEvent};
use crate::option_exchange::{Due, Outcome, Violation};
use crate::options::{DeviceOption, Options};
use crate::wire::Opcode;
use crate::wire::live::{LiveReply, LiveRequest, NewOptions};

/// What has become of a connection's options.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct News {
    pub(super) is_changed: bool,
    /// The client does not answer.
    pub(super) is_deaf: bool,
}

impl From<Violation> for SecurityEvent {
    fn from(_: Violation) -> Self {
        SecurityEvent::Violation
    }
}

impl Connection {
    /// The server has other options for this client from now on; true when they are new.
    pub(super) fn propose(&mut self, options: Options, now: Instant) -> bool {
        if options.get(DeviceOption::Compression.number()).is_some() {
            self.intake.take_compressed();
        }
        let is_new = self.terms.propose(options, now);
        self.intake.limit_transfers(self.terms.taken_transfer_bytes());
        self.channel.set_floors(self.terms.floors(), now);
        is_new
    }

    /// The client has other options.
    ///
    /// # Errors
    /// The [`SecurityEvent`] that it is. A wish that is not to be had is one, and changes nothing.
    pub(super) fn take_request(&mut self, request: NewOptions, now: Instant) -> Result<(), SecurityEvent> {
        let change = request.change;
        let Some((outcome, options)) = self.terms.take_request(request, now)? else { return Ok(()) };
        self.take_outcome(outcome, now);
        self.channel.send_control(Opcode::AdnReply, LiveReply::Options { change, options }.write());
        if matches!(outcome, Outcome::Conflict(_)) { Err(SecurityEvent::Conflict) } else { Ok(()) }
    }

    /// The client has answered what was asked.
    ///
    /// # Errors
    /// [`SecurityEvent::Violation`] for an answer to no question; [`SecurityEvent::Conflict`] for one with which the connection cannot go on.
    pub(super) fn take_answer(&mut self, change: u32, theirs: NewOptions, now: Instant) -> Result<(), SecurityEvent> {
        let outcome = self.terms.take_answer(change, theirs, now)?;
        self.take_outcome(outcome, now);
        if matches!(outcome, Outcome::Conflict(_)) {
            self.is_refused = true;
            return Err(SecurityEvent::Conflict);
        }
        Ok(())
    }

    fn take_outcome(&mut self, outcome: Outcome, now: Instant) {
        self.intake.limit_transfers(self.terms.taken_transfer_bytes());
        self.police.change_cap(self.terms.agreed().rate_cap_bytes_per_second, now);
        self.channel.take_terms(&self.terms, now);
        self.news.is_changed |= outcome == Outcome::Changed;
    }

    /// Asks (again) what is to be asked; of a client that never answers what can be had without it.
    pub(super) fn tend_terms(&mut self, now: Instant) {
        match self.terms.handle_timeout(now) {
            Due::Nothing => {}
            Due::Ask(request) => self.channel.send_control(Opcode::AdnRequest, LiveRequest::Options(request).write()),
            Due::Unheard => {
                self.news.is_deaf = true;
                match self.terms.enforce() {
                    Some(outcome) => self.take_outcome(outcome, now),
                    None => self.is_refused = true,
                }
            }
        }
    }
}

impl Server {
    /// Tells what has become of a connection's options since the last time. Shares may be others by that.
    pub(super) fn tell_news(&mut self, id: u32, now: Instant) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let News { is_changed, is_deaf } = std::mem::take(&mut connection.news);
        let (nexus, path) = (connection.nexus, connection.channel.path());
        if is_changed {
            let options = Box::new(connection.agreed().clone());
            self.events.push_back(ServerEvent::Options { nexus, options });
            self.sessions.get(&nexus).into_iter().for_each(|session| self.sharing.note(session.client));
        }
        if is_deaf {
            self.note_offence_of(nexus, SecurityEvent::Deaf, path, now);
        }
    }
}
