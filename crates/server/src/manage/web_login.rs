//! The link by which somebody begins with the HTTP API, which that makes.

use serde::{Deserialize, Serialize};
use std::sync::{Arc, OnceLock};

use super::{Answer, ManageError, Manager};

/// For whom a link is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkFor {
    /// The user who gets another password by it; without it, the first administrator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Why there is no link.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WebLinkError {
    /// Nothing is served where a link could lead.
    #[error(
        "this server has no HTTP API at an address, or no state directory for accounts: start it with --http 127.0.0.1:5674"
    )]
    Off,
    /// There is an administrator, who makes other users.
    #[error("the HTTP API has an administrator: name the user who is to get another password")]
    Begun,
    /// There is no such user.
    #[error("the HTTP API has no user {0:?}: an administrator makes users")]
    NoUser(String),
    /// The system has no random numbers.
    #[error("the system's generator of random numbers has failed")]
    Random,
}

/// What makes links: for the first administrator, or for a user by its name.
pub(super) type MakeLink = Box<dyn Fn(Option<&str>) -> Result<String, WebLinkError> + Send + Sync>;

/// What makes links, once there is something that does.
#[derive(Clone, Default)]
pub(super) struct WebLinks(Arc<OnceLock<MakeLink>>);

impl WebLinks {
    pub(super) fn set(&self, make: MakeLink) {
        // One server has one API.
        let _ = self.0.set(make);
    }
}

impl Manager {
    pub(super) fn web_login(&self, name: Option<&str>) -> Result<Answer, ManageError> {
        let make = self.web_links.0.get().ok_or(WebLinkError::Off)?;
        Ok(Answer::Link(make(name)?))
    }
}
