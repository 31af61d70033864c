//! Operational keys (RFC 7143 13): each has its rule, and both ends come to the same result.

mod rule;

use std::collections::BTreeSet;

use crate::digest::Digests;
use crate::parameters::{ConnectionParameters, SessionParameters};
use rule::{KEYS, Key, Rule};

/// The data of a message that Linux' initiator has room for once it is logged in, whatever it says. One that is longer ends its
/// connection.
const LINUX_RECEIVES_BYTES: u32 = 128;

/// The same in a discovery session, where it keeps the buffers of its login.
const LINUX_RECEIVES_IN_DISCOVERY_BYTES: u32 = 8192;

/// What an end would like, and what it can bear.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Position {
    /// Our values; the result is never better than what they allow.
    pub(crate) session: SessionParameters,
    /// The longest data segment that we take.
    pub(crate) receive_data_max_bytes: u32,
    /// Whether we want digests, if the other end lets us choose.
    pub(crate) prefers_digests: bool,
    /// Whether there must be digests.
    pub(crate) requires_digests: bool,
    /// In a discovery session most keys mean nothing, and we offer none of those.
    pub(crate) is_discovery: bool,
    /// Only the leading connection of a session offers what is agreed on for the session.
    pub(crate) is_leading: bool,
    /// What the session is carried by.
    pub(crate) carriage: Carriage,
}

/// What a session is carried by. It changes some keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Carriage {
    /// Plain TCP.
    Plain,
    /// RDMA (RFC 7145 6).
    Iser {
        /// What an initiator takes in one message with data, in bytes.
        initiator_receive_max_bytes: u32,
        /// What a target takes.
        target_receive_max_bytes: u32,
        /// This end is the target.
        is_target: bool,
    },
}

impl Position {
    /// Whether the keys of RFC 7145 hold. A discovery session is negotiated as over plain TCP, but for digests.
    fn is_assisted(&self) -> bool {
        self.carriage.is_iser() && !self.is_discovery
    }
}

impl Carriage {
    fn is_iser(self) -> bool {
        self != Carriage::Plain
    }

    fn is_target_of_iser(self) -> bool {
        matches!(self, Carriage::Iser { is_target: true, .. })
    }
}

/// Why a negotiation fails.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum NegotiationError {
    /// A key came twice (RFC 7143 6.2).
    #[error("the key {0} came twice")]
    Twice(String),
    /// No digest that both ends have.
    #[error("the other end refuses {0}, which is required here")]
    Digest(&'static str),
    /// The session is carried by RDMA and the other end says no to that.
    #[error(
        "the connection is RDMA, and the other end does not agree to RDMAExtensions=Yes, without which there is no iSER"
    )]
    NoRdma,
    /// An answer that does not follow from what was offered.
    #[error("{key}={value} is no answer to what was offered")]
    Answer {
        /// The key.
        key: &'static str,
        /// What came.
        value: String,
    },
}

/// One negotiation under way. It starts from the defaults of the standard.
#[derive(Debug)]
pub(crate) struct Negotiation {
    position: Position,
    /// What was agreed on so far.
    pub(crate) session: SessionParameters,
    pub(crate) connection: ConnectionParameters,
    /// This end has said how long data segments may be that come to it.
    has_declared: bool,
    /// Both ends have said that the session is carried by RDMA.
    is_iser_agreed: bool,
    /// Keys that we have offered and that are not answered.
    offered: BTreeSet<&'static str>,
    /// Keys that are settled.
    settled: BTreeSet<String>,
}

impl Negotiation {
    pub(crate) fn new(position: Position) -> Self {
        Negotiation {
            position,
            session: SessionParameters::default(),
            connection: ConnectionParameters::default(),
            // RFC 7145 6: two other keys stand for it.
            has_declared: position.is_assisted(),
            is_iser_agreed: false,
            offered: BTreeSet::new(),
            settled: BTreeSet::new(),
        }
    }

    /// What an initiator offers: everything that it has an opinion on.
    pub(crate) fn offers(&mut self) -> Vec<(&'static str, String)> {
        let applicable: Vec<&Key> = KEYS.iter().filter(|key| key.is_offered && self.applies(key)).collect();
        let mut offers: Vec<_> = applicable.iter().map(|key| (key.name, key.offer(&self.position))).collect();
        self.offered.extend(applicable.iter().filter(|key| !key.is_declared()).map(|key| key.name));
        offers.retain(|(_, value)| !value.is_empty());
        if !self.has_declared {
            self.declare();
        }
        offers
    }

    /// States how long data segments may be that come to us.
    pub(crate) fn declare(&mut self) -> (&'static str, String) {
        self.has_declared = true;
        self.connection.receive_data_max_bytes = self.position.receive_data_max_bytes;
        (rule::MAX_RECEIVE, self.position.receive_data_max_bytes.to_string())
    }

    /// Whether this end has said how long data segments may be that come to it.
    pub(crate) fn has_declared(&self) -> bool {
        self.has_declared
    }

    /// Takes a key that the other end sent, as an offer, an answer or a declaration; gives the answer to an offer, or a declaration that is
    /// due in turn.
    ///
    /// # Errors
    /// [`NegotiationError`]: the login fails.
    pub(crate) fn receive(&mut self, name: &str, value: &str) -> Result<Option<String>, NegotiationError> {
        let Some(key) = KEYS.iter().find(|key| key.name == name && key.is_known(&self.position)) else {
            return Ok((!is_refusal(value)).then(|| "NotUnderstood".to_owned()));
        };
        if self.offered.remove(key.name) {
            self.settled.insert(name.to_owned());
            return self.answered(key, value).map(|()| None);
        }
        if is_refusal(value) {
            return Ok(None);
        }
        let may_repeat = matches!(key.rule, Rule::Receive);
        if !self.settled.insert(name.to_owned()) && !may_repeat {
            return Err(NegotiationError::Twice(name.to_owned()));
        }
        // Keys that mean nothing here are answered like all others: RFC 7143 allows `Irrelevant`, but there are initiators that
        // take it for a failure.
        match key.decide(value, &self.position) {
            None => self.refused(key).map(|()| Some("Reject".to_owned())),
            Some(mut result) => {
                if key.is_first_burst() && self.settled.contains("MaxBurstLength") {
                    // RFC 7143 13.14: no more than a burst.
                    result = key.limit(&result, self.session.max_burst_bytes);
                }
                key.adopt(&result, self);
                self.check_digest(key)?;
                Ok(if key.is_declared() { key.statement_in_turn(&self.position) } else { Some(result) })
            }
        }
    }

    fn answered(&mut self, key: &Key, value: &str) -> Result<(), NegotiationError> {
        if is_refusal(value) {
            return self.refused(key);
        }
        // An answer must be one that our own rule accepts as it stands.
        match key.decide(value, &self.position) {
            Some(result) if key.is_same(&result, value) => key.adopt(&result, self),
            _ => return Err(NegotiationError::Answer { key: key.name, value: value.chars().take(64).collect() }),
        }
        self.check_digest(key)
    }

    /// A key without a result keeps its default, unless that will not do.
    fn refused(&self, key: &Key) -> Result<(), NegotiationError> {
        self.check_digest(key)
    }

    fn check_digest(&self, key: &Key) -> Result<(), NegotiationError> {
        let Digests { header, data } = self.connection.digests;
        let is_there = match key.rule {
            Rule::HeaderDigest => header,
            Rule::DataDigest => data,
            _ => true,
        };
        if self.position.requires_digests && !is_there { Err(NegotiationError::Digest(key.name)) } else { Ok(()) }
    }

    fn applies(&self, key: &Key) -> bool {
        key.is_carried(&self.position)
            && (key.in_discovery || !self.position.is_discovery)
            && (self.position.is_leading || !key.is_leading_only)
    }

    /// The end: what was agreed on.
    ///
    /// # Errors
    /// [`NegotiationError::Digest`].
    pub(crate) fn finish(&self) -> Result<(SessionParameters, ConnectionParameters), NegotiationError> {
        let Digests { header, data } = self.connection.digests;
        if self.position.requires_digests && !(header && data) {
            return Err(NegotiationError::Digest(if header { "DataDigest" } else { "HeaderDigest" }));
        }
        // RFC 7145 6.3: the leading connection has agreed for all of them.
        if self.position.is_assisted() && self.position.is_leading && !self.is_iser_agreed {
            return Err(NegotiationError::NoRdma);
        }
        let mut connection = self.connection;
        if self.position.carriage.is_target_of_iser() {
            let most =
                if self.position.is_discovery { LINUX_RECEIVES_IN_DISCOVERY_BYTES } else { LINUX_RECEIVES_BYTES };
            connection.send_data_max_bytes = connection.send_data_max_bytes.min(most);
        }
        Ok((self.session, connection))
    }
}

/// Keys of a login alone that are not in the table.
const LOGIN_KEYS: [&str; 6] =
    ["AuthMethod", "InitiatorName", "SessionType", "TargetAddress", "TargetName", "TargetPortalGroupTag"];

/// Takes a key of a text request once a session stands (RFC 7143 6.2 and 11.10), other than SendTargets; gives the answer
/// where one is due.
pub(crate) fn receive_in_full_feature(
    name: &str,
    value: &str,
    connection: &mut ConnectionParameters,
) -> Option<&'static str> {
    match name {
        // An answer to what was never asked.
        _ if is_refusal(value) => None,
        // Declared, and of no interest.
        "InitiatorAlias" | "TargetAlias" => None,
        rule::MAX_RECEIVE => match rule::segment_length(value) {
            Some(length) => {
                connection.send_data_max_bytes = length;
                None
            }
            None => Some("Reject"),
        },
        _ if LOGIN_KEYS.contains(&name) || KEYS.iter().any(|key| key.name == name) => Some("Reject"),
        _ => Some("NotUnderstood"),
    }
}

/// The other end cannot or will not negotiate the key.
fn is_refusal(value: &str) -> bool {
    matches!(value, "NotUnderstood" | "Irrelevant" | "Reject")
}

#[cfg(test)]
mod tests;
