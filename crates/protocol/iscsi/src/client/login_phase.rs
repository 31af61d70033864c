//! A connection that is logging in.

use sanwire_buffer::{Frame, Packet, Slices};

use super::Failure;
use crate::login::{ClientAdmission, ClientLogin, ClientRefusal, LoginPlan};
use crate::outbox::Outbox;
use crate::receiver::{Destination, Receiver, Step};
use crate::text::SEGMENT_MAX_BYTES;
use crate::wire::{LoginResponse, Opcode};

/// Bytes of a connection's receiver for what is not received in place.
const STAGING_BYTES: usize = 64 << 10;

/// A login under way, and its stream.
pub(super) struct Entering {
    receiver: Receiver,
    outbox: Outbox,
    login: ClientLogin,
}

impl Entering {
    pub(super) fn new(plan: &LoginPlan<'_>) -> Self {
        let (receiver, outbox) = (Receiver::new(STAGING_BYTES), Outbox::default());
        let mut entering = Entering { receiver, outbox, login: ClientLogin::new(plan) };
        entering.send();
        entering
    }

    pub(super) fn spaces(&mut self) -> [&mut [u8]; 2] {
        self.receiver.spaces()
    }

    pub(super) fn has_output(&self) -> bool {
        !self.outbox.is_empty()
    }

    pub(super) fn poll_transmit(&mut self) -> Option<Packet> {
        self.outbox.pop()
    }

    /// The stream, with what came behind the login.
    pub(super) fn into_receiver(self) -> Receiver {
        self.receiver
    }

    fn send(&mut self) {
        while let Some((request, text)) = self.login.poll_transmit() {
            self.outbox.push(request.write(), Some(Slices::from(text)));
        }
    }

    /// So many bytes have arrived; gives how the login ended, once.
    pub(super) fn filled(&mut self, count: usize) -> Option<Result<ClientAdmission, ClientRefusal>> {
        self.receiver.filled(count);
        loop {
            match self.receiver.poll() {
                Step::Starving => return None,
                Step::Torn => return Some(violation("its stream is damaged")),
                Step::Header(header) => {
                    if header.data_bytes() > SEGMENT_MAX_BYTES {
                        return Some(violation("it sent too much text in one PDU of a login"));
                    }
                    self.receiver.place(Destination::Frame(Frame::from(vec![0; header.data_bytes()]), 0));
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
