//! What runs, since when, and how.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::wall_time::written_seconds;

/// What runs, since when, and how.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct RunStatus {
    /// The version of the program; empty of a server that does not tell.
    pub version: String,
    /// When it was started, as in RFC 3339.
    pub started: String,
    /// For how long it has run.
    pub uptime_seconds: u64,
    /// By raw Ethernet wires: by which socket of the kernel their packets come, and who copies them.
    pub receive_paths: BTreeMap<String, String>,
}

impl RunStatus {
    /// Of this program.
    pub(super) fn of(began: SystemTime, receive_paths: BTreeMap<String, String>) -> Self {
        RunStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: written_seconds(began),
            uptime_seconds: began.elapsed().unwrap_or_default().as_secs(),
            receive_paths,
        }
    }
}
