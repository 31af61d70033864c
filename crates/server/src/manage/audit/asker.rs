//! Who asks.

use std::fmt;

use sanwire_core::{ClientId, Principal};
use serde::Serialize;

use crate::front::hyperscsi::clients::text;

/// Who asks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(untagged)]
pub enum Asker {
    /// A process of this host, by the control socket.
    Process {
        /// Whose it is.
        uid: u32,
        /// Which.
        pid: i32,
    },
    /// A HyperSCSI client, in band.
    Client {
        /// Who; of what does not authenticate: as whom it comes.
        #[serde(with = "text")]
        client: ClientId,
        /// From where.
        address: String,
        /// Who it is to its volumes, if it may not manage the server and only owns some.
        #[serde(skip)]
        as_owner: Option<Principal>,
    },
    /// Somebody who is known by nothing else.
    Stranger {
        /// From where.
        address: String,
    },
    /// A user of the HTTP API.
    User {
        /// By its name.
        user: String,
        /// From where.
        address: String,
    },
    /// A program that has shown a token to the HTTP API.
    Token {
        /// The token's name.
        token: String,
        /// From where.
        address: String,
    },
    /// Who uses a derived volume, as far as that is known; nobody who asks for anything.
    Principal {
        /// Who.
        principal: String,
    },
    /// Whoever has sent a signal.
    Signal {
        /// Its name.
        signal: &'static str,
    },
}

impl Asker {
    /// What it is, in metrics.
    pub(in crate::manage) fn kind(&self) -> &'static str {
        match self {
            Asker::Process { .. } => "process",
            Asker::Client { .. } => "client",
            Asker::Stranger { .. } => "stranger",
            Asker::User { .. } => "user",
            Asker::Token { .. } => "token",
            Asker::Principal { .. } => "principal",
            Asker::Signal { .. } => "signal",
        }
    }

    /// Who it is to its volumes, if it may not manage the server and only owns some.
    pub(in crate::manage) fn owner(&self) -> Option<&Principal> {
        match self {
            Asker::Client { as_owner, .. } => as_owner.as_ref(),
            _ => None,
        }
    }

    /// The client that only owns volumes, and may not manage the server.
    pub(in crate::manage) fn owning_client(&self) -> Option<ClientId> {
        match self {
            Asker::Client { client, as_owner: Some(_), .. } => Some(*client),
            _ => None,
        }
    }

    /// Whether it may be on another host.
    pub(super) fn comes_from_elsewhere(&self) -> bool {
        matches!(self, Asker::Client { .. } | Asker::User { .. } | Asker::Token { .. })
    }
}

impl fmt::Display for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Asker::Process { uid, pid } => write!(f, "ctl (uid {uid}, pid {pid})"),
            Asker::Client { client, address, .. } => write!(f, "client {client} at {address}"),
            Asker::Stranger { address } => f.write_str(address),
            Asker::User { user, address } => write!(f, "user {user} at {address}"),
            Asker::Token { token, address } => write!(f, "token {token} at {address}"),
            Asker::Principal { principal } => f.write_str(principal),
            Asker::Signal { signal } => f.write_str(signal),
        }
    }
}
