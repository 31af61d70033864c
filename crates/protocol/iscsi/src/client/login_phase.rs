//! A connection that is logging in.

use sanwire_buffer::{Frame, Packet, Slices};

use super::Failure;
use crate::datamover::Datamover;
use crate::login::{ClientAdmission, ClientLogin, ClientRefusal, LoginPlan};
use crate::receiver::{Destination, Step};
use crate::text::SEGMENT_MAX_BYTES;
use crate::wire::{LoginResponse, Opcode};

/// A login under way, and its stream.
pub(super) struct Entering {
    mover: Box<dyn Datamover>,
    login: ClientLogin,
}

impl Entering {
    pub(super) fn new(mover: Box<dyn Datamover>, plan: &LoginPlan<'_>) -> Self {
        let mut entering = Entering { mover, login: ClientLogin::new(plan) };
        entering.send();
        entering
    }

    /// Why there cannot be a session by this connection, if that is known.
    pub(super) fn trouble(&self) -> Option<Failure> {
        self.mover.trouble().map(|reason| Failure::NoIser { reason })
    }

    pub(super) fn spaces(&mut self) -> [&mut [u8]; 2] {
        self.mover.spaces()
    }

    pub(super) fn note_segment_bytes(&mut self, segment_bytes: usize) {
        self.mover.note_segment_bytes(segment_bytes);
    }

    pub(super) fn has_output(&self) -> bool {
        !self.mover.is_empty()
    }

    pub(super) fn poll_transmit(&mut self) -> Option<Packet> {
        self.mover.pop()
    }

    /// The stream, with what came behind the login.
    pub(super) fn into_mover(self) -> Box<dyn Datamover> {
        self.mover
    }

    fn send(&mut self) {
        while let Some((request, text)) = self.login.poll_transmit() {
            self.mover.push(request.write(), Some(Slices::from(text)));
        }
    }

    /// So many bytes have arrived; gives how the login ended, once.
    pub(super) fn filled(&mut self, count: usize) -> Option<Result<ClientAdmission, ClientRefusal>> {
        self.mover.filled(count);
        loop {
            match self.mover.poll() {
                Step::Starving => return None,
                Step::Torn => {
                    let failure = self.trouble().map(|failure| Err(ClientRefusal::Unavailable(failure)));
                    return Some(failure.unwrap_or_else(|| violation("its stream is damaged")));
                }
                Step::Header(header) => {
                    if header.data_bytes() > SEGMENT_MAX_BYTES {
                        return Some(violation("it sent too much text in one PDU of a login"));
                    }
                    self.mover.place(Destination::Frame(Frame::from(vec![0; header.data_bytes()]), 0));
                }
                Step::Pdu(pdu) => {
                    if pdu.header.opcode() != Some(Opcode::LoginResponse) {
                        return Some(violation("it answered a login request with something else"));
                    }
                    let text = pdu.data.as_deref().unwrap_or(&[]);
                    let end = self.login.handle(&LoginResponse::read(&pdu.header), text);
                    self.send();
                    if end.is_some() {
                        return end;
                    }
                }
            }
        }
    }
}

fn violation(what: &str) -> Result<ClientAdmission, ClientRefusal> {
    Err(ClientRefusal::Unavailable(Failure::Protocol { what: what.to_owned() }))
}
