//! Who logs in, and where to: the keys of the first login request (RFC 7143 6.3.1).

use super::exchange::Refusal;
use super::status::LoginStatus;
use super::{Authentication, Directory, LoginRefusal, Portal, SessionKind};
use crate::name::IscsiName;
use crate::text::TextWriter;

/// Who an initiator says to be, and what it may do.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) initiator: IscsiName,
    /// Where it is.
    pub(super) peer: std::net::IpAddr,
    /// May be empty.
    pub(super) alias: String,
    pub(super) kind: SessionKind,
    pub(super) authentication: Authentication,
    pub(super) requires_digests: bool,
    /// What the target is called; may be empty.
    pub(super) target_alias: String,
}

/// The keys that say who somebody is.
const KEYS: [&str; 3] = ["InitiatorName", "TargetName", "SessionType"];

impl Identity {
    /// Takes the first text of a login apart.
    pub(super) fn find(
        pairs: &[(&str, &str)],
        peer: std::net::IpAddr,
        portal: &Portal,
        directory: &dyn Directory,
    ) -> Result<Self, Refusal> {
        let value = |key: &str| pairs.iter().find(|pair| pair.0 == key).map(|pair| pair.1);
        let missing = |key: &str| Refusal::new(LoginStatus::MissingParameter, format!("it did not say its {key}"));
        let name = value("InitiatorName").ok_or_else(|| missing("InitiatorName"))?;
        let initiator: IscsiName =
            name.parse().map_err(|error| Refusal::new(LoginStatus::InitiatorError, format!("{error}")))?;
        let alias = value("InitiatorAlias").unwrap_or_default().to_owned();
        match value("SessionType") {
            Some("Discovery") => {
                let authentication = directory
                    .discovery_authentication(&initiator, peer)
                    .map_err(|refusal| refused(refusal, &initiator, "discovery"))?;
                let (kind, target_alias) = (SessionKind::Discovery, String::new());
                Ok(Identity { initiator, peer, alias, kind, authentication, requires_digests: false, target_alias })
            }
            None | Some("Normal") => {
                let target = value("TargetName").ok_or_else(|| missing("TargetName"))?;
                // What is no name is the name of no target.
                let name: IscsiName =
                    target.parse().map_err(|_| refused(LoginRefusal::NotFound, &initiator, target))?;
                let entry = directory
                    .target(&name, &initiator, peer, portal)
                    .map_err(|refusal| refused(refusal, &initiator, target))?;
                if let Some((address, is_permanent)) = entry.redirect {
                    return Err(redirection(&address, is_permanent, &initiator));
                }
                Ok(Identity {
                    initiator,
                    peer,
                    alias,
                    kind: SessionKind::Normal { target: entry.id, name },
                    authentication: entry.authentication,
                    requires_digests: entry.requires_digests,
                    target_alias: entry.alias,
                })
            }
            Some(other) => {
                let reason = format!("{initiator} wants a session of the type '{other}', which there is not");
                Err(Refusal::new(LoginStatus::UnsupportedSessionType, reason))
            }
        }
    }

    /// A refusal that says who wants what.
    pub(super) fn named(&self, refusal: Refusal) -> Refusal {
        let wanted = match &self.kind {
            SessionKind::Normal { name, .. } => name.as_str(),
            SessionKind::Discovery => "discovery",
        };
        Refusal { reason: format!("{} wants {wanted}: {}", self.initiator, refusal.reason), ..refusal }
    }

    /// Whether the key says who somebody is. It may come again, with the same value: many initiators repeat it in every
    /// stage.
    pub(super) fn confirms(&self, key: &str, value: &str) -> Result<bool, Refusal> {
        if !KEYS.contains(&key) {
            return Ok(false);
        }
        let is_same = match (key, &self.kind) {
            ("InitiatorName", _) => value.parse().as_ref() == Ok(&self.initiator),
            ("TargetName", SessionKind::Normal { name, .. }) => value.parse().as_ref() == Ok(name),
            // Without meaning there.
            ("TargetName", SessionKind::Discovery) => true,
            (_, SessionKind::Normal { .. }) => value == "Normal",
            (_, SessionKind::Discovery) => value == "Discovery",
        };
        let changed = || Refusal::new(LoginStatus::InitiatorError, format!("{} changed its {key}", self.initiator));
        if is_same { Ok(true) } else { Err(changed()) }
    }
}

fn refused(refusal: LoginRefusal, initiator: &IscsiName, target: &str) -> Refusal {
    let (status, why) = match refusal {
        LoginRefusal::NotFound => (LoginStatus::NotFound, "there is no such target for it"),
        LoginRefusal::Forbidden => (LoginStatus::AuthorizationFailure, "it may not use it"),
        LoginRefusal::Unavailable => (LoginStatus::ServiceUnavailable, "it is out of service"),
    };
    Refusal::new(status, format!("{initiator} wants {target}: {why}"))
}

/// RFC 7143 11.13.5: the target is elsewhere, for now or for good.
fn redirection(address: &str, is_permanent: bool, initiator: &IscsiName) -> Refusal {
    let status = if is_permanent { LoginStatus::MovedPermanently } else { LoginStatus::MovedTemporarily };
    let mut text = TextWriter::default();
    text.push("TargetAddress", address);
    Refusal { text, ..Refusal::new(status, format!("{initiator} was sent to {address}")) }
}
