//! What was changed of the clients while the server ran, kept through restarts.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;

use sanwire_core::ClientId;
use serde::{Deserialize, Serialize};

use super::config::ClientConfig;
use crate::persist::{read_file, replace_file};

/// What holds instead of the configuration.
#[derive(Clone, Default, Debug)]
pub(super) struct Changes {
    /// Clients that are new or were changed.
    pub(super) clients: BTreeMap<ClientId, ClientConfig>,
    /// Clients that were removed.
    pub(super) removed: BTreeSet<ClientId>,
}

/// The file's content.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    clients: Vec<ClientConfig>,
    removed: Vec<String>,
}

/// The file that keeps them; nothing where there is no place for state.
#[derive(Debug)]
pub(super) struct StateFile(pub(super) Option<PathBuf>);

impl StateFile {
    pub(super) fn load(&self) -> io::Result<Changes> {
        let content = self.0.as_deref().map(read_file).transpose()?.flatten();
        let Some(content) = content else { return Ok(Changes::default()) };
        let written: Written = serde_json::from_slice(&content)?;
        let removed =
            written.removed.iter().map(|id| id.parse().map_err(io::Error::other)).collect::<Result<_, _>>()?;
        Ok(Changes { clients: written.clients.into_iter().map(|client| (client.id, client)).collect(), removed })
    }

    pub(super) fn save(&self, changes: &Changes) -> io::Result<()> {
        let Some(path) = &self.0 else { return Ok(()) };
        let written = Written {
            clients: changes.clients.values().cloned().collect(),
            removed: changes.removed.iter().map(ToString::to_string).collect(),
        };
        replace_file(path, &serde_json::to_vec_pretty(&written)?)
    }

    /// For messages.
    pub(super) fn shown(&self) -> String {
        self.0.as_ref().map(|path| path.display().to_string()).unwrap_or_default()
    }
}
