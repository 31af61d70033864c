//! SNACK: an initiator asks for what it has missed (RFC 7143 11.16).

use super::session::{Rejection, Session};
use super::shared::Shared;
use crate::wire::{Header, SnackRequest};

impl Session {
    pub(super) fn handle_snack(&mut self, at: usize, _request: SnackRequest, header: &Header, shared: &mut Shared) {
        // RFC 7143 11.16: without error recovery nothing is kept.
        self.reject(at, header, Rejection::Snack, shared);
    }
}
