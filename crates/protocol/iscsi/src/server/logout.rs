//! Logout: an initiator takes its leave (RFC 7143 11.14, 11.15).

use std::time::Duration;

use sanwire_core::{Instant, SessionEnd};

use super::session::{Rejection, Session};
use super::shared::Shared;
use crate::wire::{AsyncMessage, Header, LogoutRequest, LogoutResponse, TAG_NONE};

/// Asynchronous events (RFC 7143 11.9.1).
const REQUESTS_LOGOUT: u8 = 1;
const DROPS_ALL_CONNECTIONS: u8 = 3;

/// What a logout is answered with (RFC 7143 11.15.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Outcome {
    Closed = 0,
    NoConnection = 1,
    NoRecovery = 2,
}

impl Session {
    pub(super) fn handle_logout(&mut self, at: usize, header: &Header, shared: &mut Shared, now: Instant) {
        let request = LogoutRequest::read(header);
        if !request.is_immediate {
            self.order.release();
        }
        match request.reason {
            0 => {
                self.send_logout(at, &request, Outcome::Closed, shared);
                self.close(SessionEnd::Closed, shared);
            }
            1 => self.close_connection(at, &request, shared),
            2 if !self.recovers_connections() => self.send_logout(at, &request, Outcome::NoRecovery, shared),
            2 => self.remove_for_recovery(at, &request, shared, now),
            _ => self.reject(at, header, Rejection::InvalidField, shared),
        }
    }

    fn close_connection(&mut self, at: usize, request: &LogoutRequest, shared: &mut Shared) {
        let Some(meant) = self.connections.iter().position(|connection| connection.cid == request.connection) else {
            return self.send_logout(at, request, Outcome::NoConnection, shared);
        };
        self.send_logout(at, request, Outcome::Closed, shared);
        self.leave(meant, shared);
    }

    /// Its commands wait for another connection (RFC 7143 7.2.2).
    fn remove_for_recovery(&mut self, at: usize, request: &LogoutRequest, shared: &mut Shared, now: Instant) {
        let meant = self.connections.iter().position(|connection| connection.cid == request.connection);
        let is_gone = self.suspended.iter().any(|suspended| suspended.cid == request.connection);
        let outcome = if meant.is_some() || is_gone { Outcome::Closed } else { Outcome::NoConnection };
        self.send_logout(at, request, outcome, shared);
        if let Some(meant) = meant {
            self.drop_connection(meant, shared, now);
        }
    }

    fn send_logout(&mut self, at: usize, request: &LogoutRequest, outcome: Outcome, shared: &mut Shared) {
        let header = LogoutResponse {
            is_final: true,
            response: outcome as u8,
            task_tag: request.task_tag,
            time_to_wait_s: self.parameters.time_to_wait_s,
            time_to_retain_s: self.parameters.time_to_retain_s,
            ..LogoutResponse::default()
        };
        self.send_status(at, header.write(), None, shared);
    }

    /// Asks the initiator to log out, on all its connections, within so long (RFC 7143 11.9.1).
    pub(super) fn ask_to_leave(&mut self, within: Duration, shared: &mut Shared, now: Instant) {
        for at in 0..self.connections.len() {
            self.connections[at].leave_by = Some(now + within);
            let header = AsyncMessage {
                is_final: true,
                task_tag: TAG_NONE,
                event: REQUESTS_LOGOUT,
                parameter_3: within.as_secs() as u16,
                ..AsyncMessage::default()
            };
            self.send_unexpected(at, header.write(), None, shared);
        }
        self.note_deadline(shared);
    }

    /// Says that the session is dropped with all its connections, for good: nothing of it is retained (RFC 7143 11.9.1).
    pub(super) fn announce_drop(&mut self, shared: &mut Shared) {
        for at in 0..self.connections.len() {
            let header = AsyncMessage {
                is_final: true,
                task_tag: TAG_NONE,
                event: DROPS_ALL_CONNECTIONS,
                parameter_2: self.parameters.time_to_wait_s,
                ..AsyncMessage::default()
            };
            // What waits for its turn is not said any more.
            if self.connections[at].unexpected.takes_last() {
                self.send_status(at, header.write(), None, shared);
            }
        }
    }
}
