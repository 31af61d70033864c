//! iSCSI's login phase, for the login listener.

use std::net::IpAddr;
use std::sync::Arc;

use sanwire_buffer::Packet;
use sanwire_core::Instant;
use sanwire_iscsi::{Admitted, LoginOutcome as Outcome, Portal, PortalCarrier, ServerLogin, SessionKind};

use crate::front::iscsi::directory::TargetNodes;
use crate::front::{Caller, LoginOutcome, LoginPhase, LoginService, Newcomer, PassedLogin, SessionPort, TallyFamily};

pub(crate) static LOGIN_RESULTS: TallyFamily =
    TallyFamily { name: "sanwire_iscsi_logins", help: "How logins have ended", label: "result" };

/// How the stream of an iSER initiator over iWARP begins: "MPA ID Req Frame" (RFC 5044 7.1.1). The first byte of a plain one is its
/// operation code, 03h or 43h.
const RDMA_BEGINS_WITH: u8 = b'M';

/// What is spoken at a port: one of them, or both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Spoken {
    pub(crate) plain: bool,
    /// iSER.
    pub(crate) rdma: bool,
}

/// The logins to the targets of a server.
pub(crate) struct Logins {
    /// The place of the front end for which they are.
    pub(crate) front: u8,
    pub(crate) spoken: Spoken,
    pub(crate) targets: Arc<TargetNodes>,
}

impl LoginService for Logins {
    fn name(&self) -> &'static str {
        match self.spoken {
            Spoken { plain: true, rdma: true } => "an iSCSI or iSER login",
            Spoken { rdma: true, .. } => "an iSER login",
            Spoken { .. } => "an iSCSI login",
        }
    }

    fn results(&self) -> &'static TallyFamily {
        &LOGIN_RESULTS
    }

    fn may_permit(&self, peer: IpAddr, is_local: bool) -> bool {
        self.targets.may_permit(peer, is_local)
    }

    fn begin(&self, caller: Caller, seed: [u8; 32], now: Instant) -> Box<dyn LoginPhase> {
        let Caller { portal: (address, group_tag), peer, queue_pair } = caller;
        let (front, targets) = (self.front, Arc::clone(&self.targets));
        let at = |carrier| Portal { address, group_tag, carrier };
        let peer = peer.ip().to_canonical();
        if let Some(queue_pair) = queue_pair {
            let (mover, portal) = (sanwire_iser::target_by(queue_pair), at(PortalCarrier::Adapter));
            let machine = ServerLogin::over(mover, portal, peer, seed, now);
            return Box::new(Login { machine, undecided: None, front, targets });
        }
        let is_rdma = self.spoken.rdma && !self.spoken.plain;
        let portal = at(if is_rdma { PortalCarrier::Iwarp } else { PortalCarrier::Tcp });
        let beginning = Beginning { portal, peer, seed, at: now };
        let machine = beginning.machine();
        let undecided = (self.spoken.plain && self.spoken.rdma).then_some(beginning);
        Box::new(Login { machine, undecided, front, targets })
    }
}

/// What a login begins with.
struct Beginning {
    portal: Portal,
    peer: IpAddr,
    seed: [u8; 32],
    at: Instant,
}

impl Beginning {
    fn machine(&self) -> ServerLogin {
        let Beginning { portal, peer, seed, at } = *self;
        if portal.carrier.is_rdma() {
            ServerLogin::over(sanwire_iser::target(seed), portal, peer, seed, at)
        } else {
            ServerLogin::new(portal, peer, seed, at)
        }
    }
}

struct Login {
    machine: ServerLogin,
    /// As long as nothing has come that tells what it is: until then it is a plain one, which is silent.
    undecided: Option<Beginning>,
    front: u8,
    targets: Arc<TargetNodes>,
}

impl LoginPhase for Login {
    fn handle_input(&mut self, bytes: &[u8], now: Instant) {
        if let Some(first) = bytes.first()
            && let Some(mut beginning) = self.undecided.take()
            && *first == RDMA_BEGINS_WITH
        {
            beginning.portal.carrier = PortalCarrier::Iwarp;
            self.machine = beginning.machine();
        }
        self.machine.handle_input(bytes, &*self.targets, now);
    }

    fn handle_ready(&mut self, now: Instant) {
        self.machine.handle_ready(&*self.targets, now);
    }

    fn is_all_sent(&self) -> bool {
        self.machine.is_all_sent()
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
            Outcome::Lost => LoginOutcome::Lost,
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
