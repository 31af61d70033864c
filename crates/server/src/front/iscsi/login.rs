//! iSCSI's login phase, for the login listener.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use sanwire_buffer::Packet;
use sanwire_core::Instant;
use sanwire_iscsi::{Admitted, LoginOutcome as Outcome, Portal, ServerLogin, SessionKind};

use crate::front::iscsi::directory::TargetNodes;
use crate::front::{LoginOutcome, LoginPhase, LoginService, Newcomer, PassedLogin, SessionPort, TallyFamily};

pub(crate) static LOGIN_RESULTS: TallyFamily =
    TallyFamily { name: "sanwire_iscsi_logins", help: "How logins have ended", label: "result" };

/// The logins to the targets of a server.
pub(crate) struct Logins {
    /// The place of the front end for which they are.
    pub(crate) front: u8,
    /// The connections are RDMA.
    pub(crate) is_iser: bool,
    pub(crate) targets: Arc<TargetNodes>,
}

impl LoginService for Logins {
    fn name(&self) -> &'static str {
        if self.is_iser { "an iSER login" } else { "an iSCSI login" }
    }

    fn results(&self) -> &'static TallyFamily {
        &LOGIN_RESULTS
    }

    fn may_permit(&self, peer: IpAddr, is_local: bool) -> bool {
        self.targets.may_permit(peer, is_local)
    }

    fn begin(&self, portal: (SocketAddr, u16), peer: SocketAddr, seed: [u8; 32], now: Instant) -> Box<dyn LoginPhase> {
        let (address, group_tag) = portal;
        let portal = Portal { address, group_tag, is_iser: self.is_iser };
        let peer = peer.ip().to_canonical();
        let machine = if self.is_iser {
            ServerLogin::over(sanwire_iser::target(seed), portal, peer, seed, now)
        } else {
            ServerLogin::new(portal, peer, seed, now)
        };
        Box::new(Login { machine, front: self.front, targets: Arc::clone(&self.targets) })
    }
}

struct Login {
    machine: ServerLogin,
    front: u8,
    targets: Arc<TargetNodes>,
}

impl LoginPhase for Login {
    fn handle_input(&mut self, bytes: &[u8], now: Instant) {
        self.machine.handle_input(bytes, &*self.targets, now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.machine.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.machine.poll_timeout()
    }

    fn has_spoken(&self) -> bool {
        self.machine.has_spoken()
    }

    fn poll_transmit(&mut self) -> Option<Packet> {
        self.machine.poll_transmit()
    }

    fn poll_outcome(&mut self) -> Option<LoginOutcome> {
        Some(match self.machine.poll_outcome()? {
            Outcome::Admitted(admitted) => LoginOutcome::Passed(newcomer(admitted, self.front, &self.targets)),
            Outcome::Refused(reason) => LoginOutcome::Refused(reason),
            Outcome::Redirected(note) => LoginOutcome::Redirected(note),
        })
    }
}

fn newcomer(admitted: Box<Admitted>, front: u8, targets: &TargetNodes) -> Newcomer {
    let target = match &admitted.kind {
        SessionKind::Discovery => None,
        SessionKind::Normal { name, .. } => Some(name.to_string()),
    };
    let (initiator, id) = (admitted.initiator.to_string(), admitted.isid.to_string());
    Newcomer {
        port: SessionPort { front, initiator, id, target },
        peer: admitted.peer,
        group_tag: admitted.portal.group_tag,
        joined: admitted.request.tsih,
        shard: None,
        is_stranger: targets.is_stranger(&admitted),
        login: Box::new(Passed(admitted)),
    }
}

/// What the protocol has agreed on with a connection.
pub(super) struct Passed(pub(super) Box<Admitted>);

impl PassedLogin for Passed {
    fn out_of_resources(self: Box<Self>) -> Vec<Packet> {
        let mut answer = self.0.out_of_resources();
        std::iter::from_fn(|| answer.pop()).collect()
    }
}
