//! iSCSI (RFC 7143, with RFC 7144's task management): wire formats and the state machines of both ends, without I/O.
//!
//! | part | what it is |
//! |---|---|
//! | [`wire`] | PDU headers, as tables of fields |
//! | [`Datamover`] | what carries PDUs: both ends of a session have one for each connection |
//! | [`ByteStream`] | that of plain TCP: a [`Receiver`] and an [`Outbox`], a stream of bytes taken apart and put together: padding, digests, data in place |
//! | [`ServerLogin`] | the target's end of one connection until it is admitted: negotiation, authentication |
//! | [`Server`] | the target's end of all admitted connections of one shard: sessions, commands, recovery |
//! | [`Client`] | the initiator's end of one session, with its connections and its recovery |
//!
//! Nothing here opens a socket or reads a clock. After every `handle_*`, `filled`, `reply` or `order`: drain `poll_event`
//! (and `poll_action` of a client), then `poll_transmit`, then read `poll_timeout`.
#![forbid(unsafe_code)]

mod byte_stream;
mod chap;
mod client;
mod datamover;
mod digest;
mod login;
mod name;
mod negotiation;
mod other_portals;
mod outbox;
mod parameters;
mod receiver;
mod serial;
mod server;
mod text;
pub mod wire;

pub use byte_stream::ByteStream;
pub use chap::{ChapAlgorithm, ChapAlgorithmError, ChapSecret, Credential, SecretTooShort};
pub use client::{
    Client, ClientAction, ClientConfig, ClientEvent, CommandId, DesiredParameters, DiscoveredTarget, Failure, Order,
    ServerInfo,
};
pub use datamover::{Carried, Datamover, Lent, MakeDatamover, UNEXPECTED_ANSWERS_MAX, UNEXPECTED_MAX};
pub use digest::Digests;
pub use login::{
    Admitted, Authentication, Directory, LoginOutcome, LoginRefusal, Portal, PortalCarrier, ServerLogin, SessionKind,
    TargetEntry, TargetId,
};
pub use name::{IscsiName, Isid, NameError};
pub use other_portals::OtherPortal;
pub use outbox::Outbox;
pub use parameters::{ConnectionParameters, SessionParameters};
pub use receiver::{Beginning, Destination, Pdu, Receiver, Step};
pub use sanwire_core::{Movement, Rdma};
pub use serial::Serial;
pub use server::{
    Admission, CommandHandle, Function, ManageHandle, ManageOutcome, Movements, Server, ServerConfig, ServerEvent,
    SessionStatus, Tally,
};

/// The TCP port of iSCSI.
pub const ISCSI_PORT: u16 = 3260;

/// One connection of a driver, by a number that the driver never uses again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnectionId(pub u64);
