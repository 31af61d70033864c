//! Who asks, and what each role may.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use sanwire_server::{Asker, Request};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::accounts::{Accounts, NoOwner, Proof};
use crate::problem::Problem;

/// What somebody may do. Each may do what those before it may.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Read the metrics, and whether the server is ready.
    Metrics,
    /// Look at everything but accounts.
    Viewer,
    /// Change volumes and snapshots in pools, targets, clients and sessions, without naming a path of the host.
    Operator,
    /// Everything: also what names paths of the host, clients that manage, and accounts.
    Administrator,
}

/// The other end of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Peer {
    /// Over TCP.
    Tcp {
        address: SocketAddr,
        is_encrypted: bool,
        /// The server's.
        port: u16,
    },
    /// A process of this host, by a unix socket.
    Unix { uid: u32, pid: i32 },
}

impl Role {
    /// As it is written.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Role::Metrics => "metrics",
            Role::Viewer => "viewer",
            Role::Operator => "operator",
            Role::Administrator => "administrator",
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Tcp { address, .. } => address.fmt(f),
            Peer::Unix { uid, pid } => write!(f, "user {uid}, process {pid}"),
        }
    }
}

impl Peer {
    /// Whether nobody on the way can read or change what is sent.
    pub(crate) fn is_encrypted(&self) -> bool {
        matches!(self, Peer::Tcp { is_encrypted: true, .. })
    }

    /// Who is counted together: one address, or a /64 of IPv6, all of which one host may have; `None` for the unix socket.
    pub(crate) fn network(&self) -> Option<IpAddr> {
        match self {
            Peer::Tcp { address, .. } => Some(match address.ip().to_canonical() {
                IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64))),
                address => address,
            }),
            Peer::Unix { .. } => None,
        }
    }

    /// The same as text.
    pub(crate) fn source(&self) -> String {
        self.network().map_or(String::new(), |network| network.to_string())
    }

    /// Whether it is on this host.
    pub(crate) fn is_local(&self) -> bool {
        match self {
            Peer::Tcp { address, .. } => address.ip().to_canonical().is_loopback(),
            Peer::Unix { .. } => true,
        }
    }
}

/// Somebody who has shown who they are.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) asker: Asker,
    pub(crate) role: Role,
    /// The pools in which it may change something; none: no such limit.
    pub(crate) pools: Vec<String>,
    /// By what they have shown it; `None` when the system has said it.
    pub(crate) proof: Option<Proof>,
}

impl Caller {
    /// The pools in which it may change volumes, all if none are named; `None`: wherever they are.
    pub(crate) fn scope(&self) -> Option<Vec<String>> {
        (self.role < Role::Administrator).then(|| self.pools.clone())
    }

    /// The same caller with what they may do now, which may be less than when the request began.
    ///
    /// # Errors
    /// A problem when their account is gone, or their session is over.
    pub(crate) fn again(&self, accounts: &Accounts) -> Result<Self, Problem> {
        let Some(proof) = &self.proof else { return Ok(self.clone()) };
        let owner = accounts.owner(proof).map_err(|none| match none {
            NoOwner::Unknown => {
                Problem::new("unauthenticated", "the account is gone, or the session is over: log in again")
            }
            NoOwner::Expired => token_expired(),
        })?;
        Ok(Caller { role: owner.role(), ..self.clone() })
    }

    /// # Errors
    /// A problem when the caller may not do this.
    pub(crate) fn check(&self, request: &Request) -> Result<(), Problem> {
        self.needs(role_for(request))
    }

    /// # Errors
    /// A problem when the caller has less than this role.
    pub(crate) fn needs(&self, role: Role) -> Result<(), Problem> {
        if self.role >= role {
            return Ok(());
        }
        let detail = format!("that takes the role {}, and this account has {}", role.word(), self.role.word());
        Err(Problem::new("not-permitted", detail))
    }
}

/// What is told of a token whose time is over.
pub(crate) fn token_expired() -> Problem {
    Problem::new("token-expired", "the time of this token is over: have an administrator make another one")
}

/// The least role that may ask this.
fn role_for(request: &Request) -> Role {
    use Request as R;
    match request {
        R::Start { request }
        | R::DryRun { request }
        | R::IfRevision { request, .. }
        | R::Page { request, .. }
        | R::InPools { request, .. } => role_for(request),
        // It reads the file that says everything; the audit log tells of accounts, too.
        R::Audit(_) | R::WebLogin(_) | R::Reload { dry_run: false, .. } => Role::Administrator,
        // It reads that file as well, and stretches its passwords.
        R::Reload { .. } => Role::Operator,
        request if request.names_host_path() => Role::Administrator,
        // Volumes that name no pool may be made anew then.
        R::ForgetPool { .. } => Role::Administrator,
        // It gives back what an administrator may have taken away: also the right to manage.
        R::ResetClient { .. } => Role::Administrator,
        // Who manages in band is an administrator.
        R::AddClient { settings, .. } | R::SetClient { settings, .. } if settings.manage.is_some() => {
            Role::Administrator
        }
        // The client may be one that manages: its secret guards the way in.
        R::SetClient { settings, .. } if settings.psk.is_some() || settings.no_password => Role::Administrator,
        request if request.is_change() => Role::Operator,
        R::Metrics => Role::Metrics,
        _ => Role::Viewer,
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let caller = parts.extensions.get::<Caller>().cloned();
        caller.ok_or_else(|| Problem::new("unauthenticated", "log in first, or give a token"))
    }
}

#[cfg(test)]
mod tests {
    use sanwire_server::ClientSettings;

    use super::*;

    #[test]
    fn an_operator_names_no_path_of_the_host() {
        for volume in ["a=file:/etc/shadow", "a=/dev/sda", "a=ram:1G", "a=hs+ip://elsewhere/a"] {
            let add = Request::AddVolume { volume: volume.into(), target: None, renew: false, adopt: false };
            let request = Request::IfRevision { revision: 1, request: Box::new(add) };
            assert_eq!(role_for(&request), Role::Administrator, "{volume}");
        }
        let load = |store: Option<&str>| Request::LoadVolume { name: "a".into(), store: store.map(str::to_owned) };
        assert_eq!(role_for(&load(Some("file:/etc/shadow"))), Role::Administrator);
        assert_eq!(role_for(&load(None)), Role::Operator);
    }

    #[test]
    fn who_gives_back_the_right_to_manage_is_an_administrator() {
        let reset = Request::ResetClient { client: "c".into(), force: false };
        assert_eq!(role_for(&Request::Start { request: Box::new(reset) }), Role::Administrator);
        let no_password = ClientSettings { no_password: true, ..ClientSettings::default() };
        for (settings, role) in [(no_password, Role::Administrator), (ClientSettings::default(), Role::Operator)] {
            let set = Request::SetClient { client: "c".into(), settings, force: false };
            assert_eq!(role_for(&set), role);
        }
        let drop = Request::DropClient { client: "c".into() };
        assert_eq!(role_for(&drop), Role::Operator);
    }

    #[test]
    fn one_host_of_ipv6_is_one_network() {
        let network = |text: &str| {
            let address = SocketAddr::new(text.parse().unwrap(), 1);
            Peer::Tcp { address, is_encrypted: false, port: 1 }.network().unwrap().to_string()
        };
        assert_eq!(network("2001:db8:1:2:3:4:5:6"), network("2001:db8:1:2::1"));
        assert_ne!(network("2001:db8:1:2::1"), network("2001:db8:1:3::1"));
        assert_eq!(network("::ffff:192.0.2.1"), network("192.0.2.1"));
        assert_ne!(network("192.0.2.1"), network("192.0.2.2"));
    }
}
