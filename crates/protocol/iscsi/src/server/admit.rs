//! Connections that have passed their login: they begin a session, replace one, or join one (RFC 7143 6.3.5, 11.13).

use sanwire_buffer::Region;
use sanwire_core::limits::TRANSFER_MAX_BYTES;
use sanwire_core::{Instant, NexusId, SessionEnd};

use super::Server;
use super::connection::Connection;
use super::event::{Admission, ServerEvent};
use super::hoard::Delivery;
use super::session::{Owner, Session};
use super::sessions::Port;
use super::shared::Leaving;
use crate::ConnectionId;
use crate::datamover::Datamover;
use crate::login::{Admitted, SessionKind};
use crate::wire::LoginResponse;

/// Why a connection cannot be admitted after all: status class and detail (RFC 7143 11.13.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Refusal {
    Forbidden = 0x0202,
    TooManyConnections = 0x0206,
    CannotJoin = 0x0208,
    NoSession = 0x020a,
    Unavailable = 0x0301,
    OutOfResources = 0x0302,
}

/// The last stage: the full feature phase.
const FULL_FEATURE: u8 = 3;

impl Server {
    pub(super) fn admit_connection(
        &mut self,
        id: ConnectionId,
        mut admitted: Admitted,
        admission: Admission,
        now: Instant,
    ) {
        if self.shared.is_shutting_down {
            return self.refuse(id, admitted, Refusal::Unavailable, admission.nexus);
        }
        let nexus = if admitted.request.tsih == 0 {
            self.begin_session(&admitted, admission)
        } else {
            self.session_to_join(&admitted, now)
        };
        let nexus = match nexus {
            Ok(nexus) => nexus,
            Err(refusal) => return self.refuse(id, admitted, refusal, admission.nexus),
        };
        let Some(session) = self.sessions.get_mut(nexus) else { return };
        let header = LoginResponse { tsih: session.tsih, ..answer(&admitted) };
        let (text, leftover) = (std::mem::take(&mut admitted.text), admitted.leftover.clone());
        let mut connection = Connection::new(id, admitted, self.shared.heap_share_bytes(), now);
        connection.push_status(header.write(), Some(text.into()), &session.order);
        connection.begin(&session.parameters, self.shared.config.commands_max);
        connection.take_all(&leftover);
        self.shared.homes.insert(id, nexus);
        self.shared.wake(&mut connection);
        session.connections.push(connection);
        session.note_deadline(&mut self.shared);
        session.handle_input(id, &mut self.shared, now);
        self.settle(nexus);
    }

    fn begin_session(&mut self, admitted: &Admitted, admission: Admission) -> Result<NexusId, Refusal> {
        let Admission { tsih, nexus } = admission;
        // Before its older session is gone, which has a part of the same share.
        let memory = self.memory_of(&Owner::of(admitted));
        if let Err(refusal) = self.end_predecessor(admitted) {
            self.shared.events.push_back(ServerEvent::SessionClosed { nexus, end: SessionEnd::Dropped, tsih });
            return Err(refusal);
        }
        let session = Session::new(admitted, admission, memory.clone(), self.shared.config.commands_max);
        if let Some(target) = session.target() {
            self.shared.events.push_back(ServerEvent::SessionOpened {
                nexus,
                tsih,
                target,
                initiator: admitted.initiator.clone(),
                isid: admitted.isid,
                user: admitted.user.clone(),
                peer: admitted.peer,
                group_tag: admitted.portal.group_tag,
                memory,
            });
        }
        self.sessions.insert(session);
        Ok(nexus)
    }

    /// The share of an owner, of all its sessions together.
    fn memory_of(&self, owner: &Owner) -> Region {
        let other = self.sessions.of_owner(owner);
        // A command, and as much again for what it is compared with. What is longer comes in pieces.
        let guaranteed_bytes = 2 * TRANSFER_MAX_BYTES.min(self.shared.config.transfer_max_bytes as usize);
        other.map_or_else(|| self.shared.config.memory.share(guaranteed_bytes), |session| session.memory.clone())
    }

    /// RFC 7143 6.3.5: the same initiator port logs in again, so its older session is over. Its name and number are what anybody says:
    /// who has shown to be another CHAP user is another, and ends nothing.
    fn end_predecessor(&mut self, admitted: &Admitted) -> Result<(), Refusal> {
        let SessionKind::Normal { target, .. } = &admitted.kind else { return Ok(()) };
        let (isid, group_tag, initiator) = (admitted.isid, admitted.portal.group_tag, admitted.initiator.clone());
        let port = Port { target: *target, group_tag, isid, initiator };
        if let Some(old) = self.sessions.of_port(&port) {
            if !old.owner.is_user_of(admitted) {
                return Err(Refusal::Forbidden);
            }
            let nexus = old.nexus;
            self.shared.tally.recoveries[0] += 1;
            old.close(SessionEnd::Replaced, &mut self.shared);
            self.settle(nexus);
        }
        Ok(())
    }

    fn session_to_join(&mut self, admitted: &Admitted, now: Instant) -> Result<NexusId, Refusal> {
        let tsih = admitted.request.tsih;
        let session = self.sessions.with_identity(tsih).ok_or(Refusal::NoSession)?;
        let is_same = session.initiator == admitted.initiator
            && session.owner.has_shown_the_same(admitted)
            && session.isid == admitted.isid
            && session.kind == admitted.kind
            && session.portal.group_tag == admitted.portal.group_tag
            && session.portal.carrier == admitted.portal.carrier;
        if !is_same {
            return Err(Refusal::CannotJoin);
        }
        if session.target().is_none() {
            // RFC 7143 13.2: one for discovery has one, with which it ends.
            return Err(Refusal::TooManyConnections);
        }
        let cid = admitted.request.connection;
        if let Some(at) = session.connections.iter().position(|connection| connection.cid == cid) {
            // RFC 7143 6.3.4: the connection is reinstated. The session must live on without it.
            session.replace_connection(at, &mut self.shared, now);
        } else if !session.has_seat() {
            return Err(Refusal::TooManyConnections);
        }
        Ok(session.nexus)
    }

    /// Says why, and has the connection closed.
    fn refuse(&mut self, id: ConnectionId, admitted: Admitted, refusal: Refusal, nexus: NexusId) {
        let (mover, delivery) = (refused(admitted, refusal), Delivery::default());
        self.shared.close(id, Leaving { mover, delivery, nexus, memory: None });
    }
}

impl Admitted {
    /// The answer to the last login request when there is no room for the session after all (RFC 7143 11.13.5): send it, and
    /// close the connection.
    #[must_use]
    pub fn out_of_resources(self) -> Box<dyn Datamover> {
        refused(self, Refusal::OutOfResources)
    }
}

fn refused(admitted: Admitted, refusal: Refusal) -> Box<dyn Datamover> {
    let [status_class, status_detail] = (refusal as u16).to_be_bytes();
    let header = LoginResponse {
        transits: false,
        next_stage: 0,
        status_class,
        status_detail,
        status_number: admitted.status_number,
        expected_command_number: admitted.request.command_number,
        max_command_number: admitted.request.command_number,
        ..answer(&admitted)
    };
    let mut mover = admitted.datamover;
    mover.push(header.write(), None);
    mover
}

/// What all answers to a last login request have in common.
fn answer(admitted: &Admitted) -> LoginResponse {
    LoginResponse {
        transits: true,
        current_stage: admitted.request.current_stage,
        next_stage: FULL_FEATURE,
        isid: admitted.isid.0,
        task_tag: admitted.request.task_tag,
        ..LoginResponse::default()
    }
}
