//! How a connection begins.

use sanwire_buffer::Head;

use super::{Connection, Phase};
use crate::config::{ConfigError, check_private_data};
use crate::event::{Closed, Ended, Event, Terms};
use crate::fault::Fault;
use crate::mpa::{self, Answer, Begin, Broken};
use crate::rdmap::{Outgoing, Read};
use crate::wire::{Opcode, ReadRequest, Rtr, Stag, Startup};

impl Connection {
    /// Takes the initiator that [`Event::Requested`] told of, and says this to its owner. Post receive buffers before.
    ///
    /// # Errors
    /// When there is no request to answer, or the private data is too long (512 bytes; 508 if the request was an enhanced one).
    pub fn accept(&mut self, private_data: &[u8]) -> Result<(), ConfigError> {
        let (terms, rtr) = self.answer(private_data, false)?;
        self.phase = Phase::Established;
        self.establish(terms, rtr, true);
        Ok(())
    }

    /// Refuses it, and says this to its owner.
    ///
    /// # Errors
    /// As for [`Connection::accept`].
    pub fn reject(&mut self, private_data: &[u8]) -> Result<(), ConfigError> {
        self.answer(private_data, true)?;
        self.phase = Phase::Ending(Closed::Refused);
        Ok(())
    }

    /// Whether the responder has answered that it speaks no more than revision 1 of MPA, which was not asked for. The stream has ended: who
    /// wants to talk to it asks for revision 1 on another one.
    #[must_use]
    pub fn is_peer_older(&self) -> bool {
        self.is_peer_older
    }

    fn answer(&mut self, private_data: &[u8], is_rejected: bool) -> Result<(Terms, Option<Rtr>), ConfigError> {
        let Phase::Deciding(request) = &self.phase else { return Err(ConfigError::NoRequest) };
        check_private_data(private_data, request.enhanced.is_some())?;
        let (reply, terms, rtr) = mpa::reply(&self.config, request, private_data, is_rejected);
        self.inbound.outbound.push_raw(reply.write());
        Ok((terms, rtr))
    }

    fn establish(&mut self, terms: Terms, rtr: Option<Rtr>, is_responder: bool) {
        self.framer.set_crc(terms.crc);
        self.inbound.establish(terms.ird, terms.ord, rtr.filter(|_| is_responder));
        self.inbound.outbound.establish(terms.crc, is_responder);
        if let Some(rtr) = rtr.filter(|_| !is_responder) {
            self.say_ready(rtr);
        }
        self.inbound.events.push_back(Event::Connected(terms));
    }

    /// The first message of a peer-to-peer connection (RFC 6581 9.2).
    fn say_ready(&mut self, rtr: Rtr) {
        let inbound = &mut self.inbound;
        let outgoing = if rtr.write {
            Outgoing::write(Stag(0), 0, None)
        } else if rtr.read {
            let sink = inbound.registrations.new_key();
            let request = ReadRequest { sink, sink_offset: 0, length_bytes: 0, source: Stag(0), source_offset: 0 };
            inbound.reads.begin(Read { id: None, frame: Vec::new().into(), start: 0, request, done: 0 });
            Outgoing::read_request(&request)
        } else {
            Outgoing::untagged(Opcode::Send, Stag(0), Head::new(), None)
        };
        inbound.outbound.push_first(outgoing);
    }

    pub(super) fn take_request(&mut self) -> bool {
        match Startup::read(self.framer.waiting(), false) {
            Ok(None) => false,
            Ok(Some((request, length))) => {
                self.framer.consume(length);
                self.take_whole_request(request);
                true
            }
            Err(_) => {
                self.break_off();
                false
            }
        }
    }

    fn take_whole_request(&mut self, request: Startup) {
        match mpa::begin(&request) {
            Begin::Ask(event) => {
                self.phase = Phase::Deciding(request);
                self.inbound.events.push_back(Event::Requested(event));
            }
            Begin::Refuse => {
                let (reply, ..) = mpa::reply(&self.config, &request, &[], true);
                self.inbound.outbound.push_raw(reply.write());
                self.phase = Phase::Ending(Closed::Refused);
            }
        }
    }

    pub(super) fn take_reply(&mut self) -> bool {
        let answer = match Startup::read(self.framer.waiting(), true) {
            Ok(None) => return false,
            Ok(Some((reply, length))) => {
                self.framer.consume(length);
                self.is_peer_older = reply.revision == 1 && self.config.revision > 1;
                mpa::agree(&self.config, &reply)
            }
            Err(fault) => Err(fault),
        };
        match answer {
            Ok(Answer::Agreed(terms, rtr)) => {
                self.phase = Phase::Established;
                self.establish(terms, rtr, false);
            }
            Ok(Answer::Rejected(private_data)) => {
                self.inbound.events.push_back(Event::Rejected(private_data));
                self.end(Closed::Refused, None);
            }
            Ok(Answer::Unfit(terms, fault)) => {
                self.framer.set_crc(terms.crc);
                self.inbound.outbound.establish(terms.crc, false);
                self.fail(Broken { fault, about: None });
            }
            Err(_) => self.break_off(),
        }
        true
    }

    /// What came is no beginning of a stream: there is no way to tell the peer.
    pub(super) fn break_off(&mut self) {
        self.inbound.events.push_back(Event::Terminated(Ended::ByUs(Fault::Startup)));
        self.end(Closed::Terminated, None);
    }
}
