//! Connections that are not admitted yet, at both ends (RFC 7143 6.3).

mod client;
mod client_security;
mod exchange;
mod identity;
mod security;
mod server;
mod status;

use std::net::{IpAddr, SocketAddr};

pub(crate) use self::client::{ClientAdmission, ClientLogin, ClientRefusal, LoginPlan};
pub use self::server::ServerLogin;
use crate::chap::{ChapAlgorithm, Credential};
use crate::datamover::Datamover;
use crate::name::{IscsiName, Isid};
use crate::parameters::{ConnectionParameters, SessionParameters};
use crate::wire::LoginRequest;

/// A target of the server, by its place in the configuration; not on the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TargetId(pub u32);

/// Where a connection came in, and its target portal group tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Portal {
    /// The local end of the connection.
    pub address: SocketAddr,
    /// The tag of the portal's group.
    pub group_tag: u16,
    /// What carries the connections that come there.
    pub carrier: PortalCarrier,
}

/// What carries the connections of a portal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PortalCarrier {
    /// TCP, and nothing between.
    #[default]
    Tcp,
    /// RDMA (RFC 7145), by iWARP over TCP.
    Iwarp,
    /// The RDMA of an adapter.
    Adapter,
}

impl PortalCarrier {
    /// Whether what goes over it is iSER.
    #[must_use]
    pub fn is_rdma(self) -> bool {
        self != PortalCarrier::Tcp
    }
}

/// How an initiator must show who it is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Authentication {
    /// The users of which it must be one; none: no authentication is wanted.
    pub users: Vec<Credential>,
    /// What the target answers with when the initiator wants to know who it is.
    pub mutual: Option<Credential>,
    /// The algorithms of which the initiator's first is taken; none: every one.
    pub algorithms: Vec<ChapAlgorithm>,
}

/// A target that an initiator may log in to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TargetEntry {
    /// Which.
    pub id: TargetId,
    /// What people call it (TargetAlias); may be empty.
    pub alias: String,
    /// Who must be shown.
    pub authentication: Authentication,
    /// Whether digests may be refused: `true` insists on both.
    pub requires_digests: bool,
    /// Log in there instead; `true`: for good (RFC 7143 11.13.5).
    pub redirect: Option<(String, bool)>,
}

/// Why a login is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoginRefusal {
    /// There is no such target, or none that this initiator may know of.
    NotFound,
    /// The initiator may not use it.
    Forbidden,
    /// The target is taken out of service for now.
    Unavailable,
}

/// What a server knows of its targets and of who may use them. Asked at every login: answers may change at any time.
pub trait Directory: Send + Sync {
    /// The target of this name, if the initiator may log in to it from there. `user` is the CHAP name, once it is shown.
    ///
    /// # Errors
    /// [`LoginRefusal`].
    fn target(
        &self,
        name: &IscsiName,
        initiator: &IscsiName,
        peer: IpAddr,
        portal: &Portal,
    ) -> Result<TargetEntry, LoginRefusal>;

    /// Whether this user, shown by CHAP, may use the target: as an initiator of this name at this address.
    fn permits_user(&self, target: TargetId, initiator: (&IscsiName, IpAddr), user: &str) -> bool;

    /// How a discovery session must authenticate.
    fn discovery_authentication(&self, initiator: &IscsiName, peer: IpAddr) -> Result<Authentication, LoginRefusal>;

    /// The targets that this initiator may know of, each with the addresses (`IP:PORT,TAG`) of its portals that can be
    /// reached from `portal`.
    fn visible(&self, initiator: &IscsiName, peer: IpAddr, portal: &Portal) -> Vec<(IscsiName, Vec<String>)>;
}

/// What a session is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SessionKind {
    /// To ask which targets there are.
    Discovery,
    /// To use a target.
    Normal {
        /// Which.
        target: TargetId,
        /// Its name.
        name: IscsiName,
    },
}

/// A connection that has passed: all that the session's shard must know to answer its last login request.
#[derive(Debug)]
pub struct Admitted {
    /// The last login request; its answer is still owed.
    pub request: LoginRequest,
    /// The text of that answer, except what only a session knows.
    pub text: Vec<u8>,
    /// The status number of that answer.
    pub status_number: u32,
    /// Who it is.
    pub initiator: IscsiName,
    /// What people call it; may be empty.
    pub alias: String,
    /// Its part of the session's identity.
    pub isid: Isid,
    /// Whom it showed to be, by CHAP.
    pub user: Option<String>,
    /// Where it is.
    pub peer: IpAddr,
    /// Where it came in.
    pub portal: Portal,
    /// What the session is for.
    pub kind: SessionKind,
    /// The agreement on the connection.
    pub connection: ConnectionParameters,
    /// The agreement on the session; of a further connection, the session's own holds.
    pub session: SessionParameters,
    /// What carries it on.
    pub datamover: Box<dyn Datamover>,
    /// Bytes that came after the last login request, and that it has not taken.
    pub leftover: Vec<u8>,
}

/// How a login ended.
#[derive(Debug)]
pub enum LoginOutcome {
    /// It goes on in a session.
    Admitted(Box<Admitted>),
    /// It was refused; close the connection when all is sent. The reason is for the log.
    Refused(String),
    /// It was sent to another address, which is no refusal; close the connection when all is sent. Who went where is for the log.
    Redirected(String),
    /// Its connection, which an adapter carries, has ended: close it here.
    Lost,
}

#[cfg(test)]
mod tests;
