//! What the login listener knows of a wire: connections that begin with a login.

use std::net::{IpAddr, SocketAddr};

use sanwire_buffer::Packet;
use sanwire_core::Instant;

use super::{PassedLogin, TallyFamily};
use crate::channel::QueuePair;

/// What the login listener needs of a wire whose connections begin with a login.
pub(crate) trait LoginService: Send + Sync {
    /// What one of its logins is called, for people, with its article.
    fn name(&self) -> &'static str;

    /// As what the metrics tell how they have ended.
    fn results(&self) -> &'static TallyFamily;

    /// Whether an initiator at this address may use something, as far as can be known before it says who it is.
    fn may_permit(&self, peer: IpAddr, is_local: bool) -> bool;

    /// The login of an accepted connection.
    fn begin(&self, caller: Caller, seed: [u8; 32], now: Instant) -> Box<dyn LoginPhase>;
}

/// An accepted connection.
pub(crate) struct Caller {
    /// Where: its address here, and the tag of the portal's group.
    pub(crate) portal: (SocketAddr, u16),
    /// From where.
    pub(crate) peer: SocketAddr,
    /// Of one that an RDMA adapter carries: its login is over that, and is given no bytes.
    pub(crate) queue_pair: Option<QueuePair>,
}

/// A connection until its login has passed.
pub(crate) trait LoginPhase {
    fn handle_input(&mut self, bytes: &[u8], now: Instant);

    /// The adapter that carries the connection has something, perhaps: to be called at once, and whenever its descriptor is readable.
    fn handle_ready(&mut self, _now: Instant) {}

    /// Whether the adapter that carries the connection has nothing left to send.
    fn is_all_sent(&self) -> bool {
        true
    }

    /// Lets time pass: a login that takes too long is refused.
    fn handle_timeout(&mut self, now: Instant);

    fn poll_timeout(&self) -> Option<Instant>;

    /// Whether a whole request has come.
    fn has_spoken(&self) -> bool;

    fn poll_transmit(&mut self) -> Option<Packet>;

    /// How it has ended, once.
    fn poll_outcome(&mut self) -> Option<LoginOutcome>;
}

/// How a login has ended.
pub(crate) enum LoginOutcome {
    /// It goes on in a session.
    Passed(Newcomer),
    /// It is refused; the reason is for the log.
    Refused(String),
    /// It was sent to another address, which is no refusal; who went where is for the log.
    Redirected(String),
    /// Its connection, which an adapter carries, has ended.
    Lost,
}

/// A connection whose login has passed, and what tells where it belongs.
pub(crate) struct Newcomer {
    pub(crate) port: SessionPort,
    pub(crate) peer: IpAddr,
    /// The portal group through which it came.
    pub(crate) group_tag: u16,
    /// The number of the session that it wants to be part of; zero for one of its own.
    pub(crate) joined: u16,
    /// The shard in which it belongs; `None` for that which has its session, or the fewest.
    pub(crate) shard: Option<usize>,
    /// It has shown nothing, and could use nothing.
    pub(crate) is_stranger: bool,
    pub(crate) login: Box<dyn PassedLogin>,
}

/// An initiator port, and the target that it is connected to. A target that is taken away and served again is the same: it has
/// another number then, not another name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct SessionPort {
    /// The place of the front end: what is called the same over another wire is something else.
    pub(crate) front: u8,
    pub(crate) initiator: String,
    /// Which port of the initiator.
    pub(crate) id: String,
    /// `None` for a session that only looks for targets.
    pub(crate) target: Option<String>,
}
