//! What administrators set of an iSCSI target while the server runs.

mod applying;
mod holding;

use std::fmt;

use sanwire_iscsi::{ChapAlgorithmError, SecretTooShort};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::redirection::NoPortal;
use crate::allow::AllowRuleError;

/// The most rules, users, algorithms or portal groups of a target that are set.
const LIST_MAX: usize = 256;

/// The longest alias and name of a CHAP user, in bytes (RFC 7143 6.1: a text value has 255 at the most).
const TEXT_MAX_BYTES: usize = 255;

/// What is to be set of an iSCSI target; what is not said stays.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TargetSettings {
    /// What people call it; empty for nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    /// Who may use it: rules as in the configuration file; none: who is on the server's host, or knows a secret of `chap`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
    /// The CHAP users of which an initiator must be one; none: nobody need show who they are, and that is meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chap: Option<Vec<ChapUser>>,
    /// As whom the target answers when the initiator wants to know who it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mutual_chap: Option<ChapUser>,
    /// Whether the target is to answer no such question any more.
    #[serde(skip_serializing_if = "is_false")]
    pub no_mutual_chap: bool,
    /// The algorithms of CHAP that may be used: `md5`, `sha1`, `sha256`, `sha3-256`; none: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chap_algorithms: Option<Vec<String>>,
    /// The tags of the portal groups through which it is reached, from 1 on; none: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<u16>>)]
    pub portal_groups: Option<Vec<u16>>,
    /// Whether initiators must agree to header and data digests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub require_digests: Option<bool>,
    /// Where initiators are sent instead: `ADDRESS[:PORT][,TAG]`; empty: nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirect: Option<String>,
    /// Whether they are sent there for good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirect_for_good: Option<bool>,
}

/// A CHAP user that is set.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChapUser {
    /// The CHAP name (CHAP_N).
    pub user: String,
    /// What goes with it, of 12 bytes or more.
    #[schema(value_type = String, format = Password, write_only)]
    pub secret: SetSecret,
}

/// A secret that is never shown to people. In JSON: its text.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SetSecret(pub String);

impl fmt::Debug for SetSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SetSecret(...)")
    }
}

/// How an iSCSI target is set, without its secrets.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct TargetTerms {
    /// What people call it; may be empty.
    pub alias: String,
    /// Who may use it; nobody named: who is on the server's host, or knows a secret of `chap`.
    pub allow: Vec<String>,
    /// The names of its CHAP users; none: nobody need show who they are.
    pub chap: Vec<String>,
    /// As whom the target answers.
    pub mutual_chap: Option<String>,
    /// The algorithms of CHAP that may be used; none: all.
    pub chap_algorithms: Vec<String>,
    /// The portal groups through which it is reached; none: all.
    pub portal_groups: Vec<u16>,
    /// Whether initiators must agree to digests.
    pub require_digests: bool,
    /// Where initiators are sent instead.
    pub redirect: Option<String>,
    /// Whether that is for good.
    pub redirect_for_good: bool,
}

/// Why a target cannot be set so. Nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TargetSettingsError {
    /// Nothing is to be changed.
    #[error("nothing is said that is to change: give a setting, like an alias or `allow`")]
    Nothing,
    /// Somebody who may use it.
    #[error("allow: {0}")]
    Allow(#[from] AllowRuleError),
    /// A secret.
    #[error("CHAP user {user}: {source}")]
    Secret {
        /// Whose.
        user: String,
        /// Why.
        source: SecretTooShort,
    },
    /// The target would show who it is by what the initiator shows (RFC 7143 9.2.1).
    #[error("the CHAP user {0} has the secret with which the target answers: each direction needs another one")]
    SameSecret(String),
    /// A name.
    #[error("{0} has 1 to {TEXT_MAX_BYTES} bytes without control characters")]
    Text(&'static str),
    /// A secret is longer than any that would be typed or sent.
    #[error("CHAP user {0}: the secret is too long: use at most {SECRET_MAX_BYTES} bytes")]
    LongSecret(String),
    /// A user is there twice.
    #[error("the CHAP user {0} stands there twice: remove one")]
    Twice(String),
    /// Both at once.
    #[error("mutual CHAP is either set or dropped: give one of the two")]
    MutualAndNone,
    /// An algorithm.
    #[error("{0}")]
    Algorithm(#[from] ChapAlgorithmError),
    /// Nobody is asked for CHAP.
    #[error("nobody is asked for CHAP here: give users too, or leave the algorithms out")]
    NobodyAsked,
    /// Not a tag.
    #[error("a portal group has a tag from 1 to 65535")]
    Group,
    /// Not a portal.
    #[error("redirect: {0}")]
    Portal(#[from] NoPortal),
    /// Nowhere, for good.
    #[error("redirect-for-good says how, and redirect where to: give redirect too")]
    NoWhere,
    /// Too many.
    #[error("there are at most {LIST_MAX} {0} of a target")]
    TooMany(&'static str),
}

/// The longest secret, in bytes: as long as a line of a password file.
const SECRET_MAX_BYTES: usize = 1024;

impl TargetSettings {
    /// Whether it says nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == TargetSettings::default()
    }

    /// What they change, for people: no secret is told.
    #[must_use]
    pub(crate) fn shown(&self) -> String {
        let list = |what: &str, list: &[String], none: &str| {
            let list = if list.is_empty() { none.to_owned() } else { list.join(", ") };
            format!("{what} {list}")
        };
        let names = |users: &[ChapUser]| users.iter().map(|user| user.user.clone()).collect::<Vec<_>>();
        let groups = |groups: &[u16]| groups.iter().map(ToString::to_string).collect::<Vec<_>>();
        let parts = [
            self.alias.as_ref().map(|alias| format!("alias '{alias}'")),
            self.allow.as_ref().map(|rules| list("allow", rules, "this host")),
            self.chap.as_ref().map(|users| list("chap", &names(users), "nobody")),
            self.mutual_chap.as_ref().map(|user| format!("mutual chap {}", user.user)),
            self.no_mutual_chap.then(|| "no mutual chap".to_owned()),
            self.chap_algorithms.as_ref().map(|algorithms| list("chap algorithms", algorithms, "all")),
            self.portal_groups.as_ref().map(|tags| list("portal groups", &groups(tags), "all")),
            self.require_digests.map(|on| if on { "digests required" } else { "digests optional" }.to_owned()),
            self.redirect.as_ref().map(|to| match to.is_empty() {
                true => "no redirection".to_owned(),
                false => format!("redirected to {to}"),
            }),
            self.redirect_for_good.map(|good| if good { "for good" } else { "for now" }.to_owned()),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if parts.is_empty() { "no settings of its own".to_owned() } else { parts.join("; ") }
    }
}

fn is_false(value: &bool) -> bool {
    !value
}

#[cfg(test)]
mod tests;
