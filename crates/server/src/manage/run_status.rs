//! What runs, since when, and how.

use std::collections::BTreeMap;
use std::time::{Instant, SystemTime};

use serde::{Deserialize, Serialize};

use super::host::HostStatus;
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
    /// What its host gives it.
    pub host: HostStatus,
}

/// When a run began: by the wall clock, which may jump, and by the clock that measures how long something takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beginning {
    pub(super) at: SystemTime,
    since: Instant,
}

impl Beginning {
    pub(super) fn now() -> Self {
        Beginning { at: SystemTime::now(), since: Instant::now() }
    }
}

impl RunStatus {
    /// Of this program.
    pub(super) fn of(began: Beginning, receive_paths: BTreeMap<String, String>) -> Self {
        RunStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: written_seconds(began.at),
            uptime_seconds: began.since.elapsed().as_secs(),
            receive_paths,
            host: HostStatus::of_this(),
        }
    }
}
