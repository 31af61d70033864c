//! Why an image cannot be a store.

use std::io;
use std::time::Duration;

use libc::c_int;

/// Why an image cannot be a store.
#[derive(Debug, thiserror::Error)]
pub enum RbdError {
    /// The libraries are not there.
    #[error("librbd cannot be loaded ({reason}): install the package librbd1")]
    Library {
        /// The loader's word.
        reason: String,
    },
    /// A text with a zero byte in it.
    #[error("'{0}' is no name of Ceph")]
    Name(String),
    /// Ceph has refused a call.
    #[error("cannot {action}: {source}{}", hint(action, source))]
    Ceph {
        /// What was tried.
        action: &'static str,
        /// Its word.
        source: io::Error,
    },
    /// Another store has the image.
    #[error("{}", locked(owner, *is_own))]
    Locked {
        /// Who, as the cluster calls it.
        owner: String,
        /// Whether that is one of this process.
        is_own: bool,
    },
    /// It holds not even one block.
    #[error("the image is empty")]
    Empty,
    /// Nobody answers who has the image's objects.
    #[error("the cluster has not opened the image within {0:?}: see `ceph status`, its OSDs do not answer")]
    Stuck(Duration),
}

impl RbdError {
    /// Whether it may be over by itself: the cluster does not answer, or another server has the image.
    #[must_use]
    pub fn is_of_now(&self) -> bool {
        match self {
            RbdError::Locked { .. } | RbdError::Stuck(_) => true,
            RbdError::Ceph { source, .. } => source.raw_os_error() == Some(libc::ETIMEDOUT),
            RbdError::Library { .. } | RbdError::Name(_) | RbdError::Empty => false,
        }
    }
}

fn locked(owner: &str, is_own: bool) -> String {
    if is_own {
        return format!(
            "this server itself has the image open and locked ({owner}), for another volume or for one that was removed: that ends when the \
             cluster has ended what it was asked for"
        );
    }
    format!(
        "another client of the cluster has the image locked ({owner}): stop it there, or take it over with the key takeover"
    )
}

pub(crate) const CONNECT: &str = "connect to the Ceph cluster";

fn hint(action: &str, source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::ETIMEDOUT) if action == CONNECT => " (no monitor answers: see mon host in its configuration)",
        Some(libc::ENOENT | libc::EACCES | libc::EPERM) if action == CONNECT => " (is the user's keyring there?)",
        _ => "",
    }
}

pub(crate) fn check(action: &'static str, code: c_int) -> Result<(), RbdError> {
    if code < 0 { Err(RbdError::Ceph { action, source: io::Error::from_raw_os_error(-code) }) } else { Ok(()) }
}
