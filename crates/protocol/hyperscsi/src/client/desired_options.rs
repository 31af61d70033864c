//! The options of a connection that lives change: the server wants it, or the client's owner does.

use sanwire_core::{Instant, Protection};

use super::{Client, ClientEvent, State};
use crate::option_exchange::{Due, Outcome};
use crate::options::{DesiredOptions, DeviceOption, TooMany};
use crate::wire::Opcode;
use crate::wire::live::{LiveReply, LiveRequest, NewOptions};
use crate::wire::offer::Offer;

/// What is wanted from now on.
pub(super) struct Wanted {
    wishes: DesiredOptions,
    protection_min: Protection,
}

impl Client {
    /// From now on connections are to be so, the one there is too. The server agrees, or keeps what it enforces
    /// ([`ClientEvent::Options`]); when there is no agreement, what was wanted before holds on ([`ClientEvent::WishRefused`]).
    /// Without a connection the next handshake decides, and so it does when a server does not answer.
    ///
    /// # Errors
    /// [`TooMany`] options of others.
    pub fn wish(&mut self, wishes: DesiredOptions, protection_min: Protection, now: Instant) -> Result<(), TooMany> {
        wishes.options(protection_min)?;
        self.wanted = Some(Wanted { wishes, protection_min });
        self.conflict = None;
        if matches!(&self.state, State::Seeking(seeking) if seeking.is_answered()) {
            // That handshake has offered something else.
            self.seek(None, now);
        }
        self.propose_wanted(now);
        Ok(())
    }

    /// What a handshake brings: what is wanted, else what was agreed on before.
    pub(super) fn offer(&self) -> Result<Offer, TooMany> {
        let config = &self.config;
        let options = match &self.wanted {
            Some(wanted) => wanted.wishes.options(wanted.protection_min)?,
            None => config.wishes.options(config.protection_min)?,
        };
        Ok(Offer {
            packet_max_bytes: config.link.packet_max_bytes,
            receive_capacity_packets: config.link.receive_capacity_packets,
            commands_max: config.commands_max,
            transfer_max_bytes: config.transfer_max_bytes,
            keep_alive_ms: 0,
            instance: 0,
            name: config.name.clone(),
            unanswered: Some(self.orders.numbers()),
            options,
        })
    }

    /// The server does not go together with what a handshake offered. If that was a wish, there is what was wanted before.
    pub(super) fn note_conflict(&mut self, option: DeviceOption) {
        self.counters.conflicts += 1;
        if self.wanted.take().is_some() {
            self.events.push_back(ClientEvent::WishRefused(option));
        } else {
            self.conflict = Some(option);
        }
    }

    /// Asks the server, if it is there and there is something to ask.
    pub(super) fn propose_wanted(&mut self, now: Instant) {
        let (State::Connected(connected), Some(wanted)) = (&mut self.state, &self.wanted) else { return };
        let Ok(options) = wanted.wishes.options(wanted.protection_min) else { return };
        connected.terms.propose(options, now);
        connected.channel.set_floors(connected.terms.floors(), now);
        self.settle();
        self.tend_terms(now);
    }

    /// When nothing more is asked, what was wanted holds for later connections too.
    fn settle(&mut self) {
        let State::Connected(connected) = &self.state else { return };
        if !connected.terms.is_asking()
            && let Some(Wanted { wishes, protection_min }) = self.wanted.take()
        {
            (self.config.wishes, self.config.protection_min) = (wishes, protection_min);
            self.events.push_back(ClientEvent::Options(Box::new(connected.terms.agreed().clone())));
        }
    }

    /// Asks (again) what is to be asked.
    pub(super) fn tend_terms(&mut self, now: Instant) {
        let State::Connected(connected) = &mut self.state else { return };
        match connected.terms.handle_timeout(now) {
            Due::Nothing => {}
            Due::Ask(request) => {
                connected.channel.send_control(Opcode::AdnRequest, LiveRequest::Options(request).write());
            }
            // Nobody knows what the server goes by, and what is to be guarded better must not pass as before.
            Due::Unheard => self.lose(false, now),
        }
    }

    /// The server tells its options. When they go with ours, they hold from now on; it has our answer in any case.
    pub(super) fn handle_options(&mut self, request: NewOptions, now: Instant) {
        let State::Connected(connected) = &mut self.state else { return };
        let change = request.change;
        match connected.terms.take_request(request, now) {
            Ok(None) => {}
            Ok(Some((outcome, options))) => {
                connected.channel.take_terms(&connected.terms, now);
                connected.channel.send_control(Opcode::AdnReply, LiveReply::Options { change, options }.write());
                match outcome {
                    Outcome::Same => {}
                    Outcome::Changed => {
                        let agreed = connected.terms.agreed().clone();
                        self.events.push_back(ClientEvent::Options(Box::new(agreed)));
                    }
                    // The server cannot go on with us either, and says why when we come again.
                    Outcome::Conflict(_) => self.counters.conflicts += 1,
                }
            }
            Err(_) => self.counters.violations += 1,
        }
    }

    /// The server answers, or says something that is no answer.
    pub(super) fn handle_live_reply(&mut self, plain: &[u8], now: Instant) {
        let State::Connected(connected) = &mut self.state else { return };
        let Ok(LiveReply::Options { change, options }) = LiveReply::read(plain) else {
            self.counters.violations += 1;
            return;
        };
        let outcome = connected.terms.take_answer(change, options, now);
        connected.channel.take_terms(&connected.terms, now);
        match outcome {
            Ok(Outcome::Conflict(option)) if self.wanted.is_some() => self.note_conflict(option),
            // Not even what holds: a handshake says why.
            Ok(Outcome::Conflict(_)) => self.lose(false, now),
            Ok(Outcome::Changed) if self.wanted.is_none() => {
                let agreed = connected.terms.agreed().clone();
                self.events.push_back(ClientEvent::Options(Box::new(agreed)));
            }
            Ok(Outcome::Same | Outcome::Changed) => self.settle(),
            Err(_) => self.counters.violations += 1,
        }
    }
}
