//! What was changed of the clients while the server ran, kept through restarts.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;

use sanwire_core::ClientId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::config::ClientConfig;
use crate::kept::{Changed, Keeps, StateError, StateFile};

/// What holds instead of the configuration, with what was configured when it was changed.
#[derive(Clone, Default, PartialEq, Debug)]
pub(super) struct Changes(pub(super) BTreeMap<ClientId, Changed<ClientConfig>>);

impl Changes {
    /// Whether a client was removed, whatever else would permit it.
    pub(super) fn has_removed(&self, id: ClientId) -> bool {
        self.0.get(&id).is_some_and(|change| change.now.is_none())
    }

    /// Forgets the changes of clients that are configured otherwise since; who that is.
    pub(super) fn drop_overridden(&mut self, configured: &BTreeMap<ClientId, ClientConfig>) -> Vec<ClientId> {
        let is_overridden = |(id, change): &(&ClientId, &Changed<ClientConfig>)| {
            let now = configured.get(*id);
            // One that was removed, and is configured no longer either, is not served for that.
            change.configured.as_ref() != now && (change.now.is_some() || now.is_some())
        };
        let overridden: Vec<ClientId> = self.0.iter().filter(is_overridden).map(|(id, _)| *id).collect();
        overridden.iter().for_each(|id| drop(self.0.remove(id)));
        overridden
    }
}

/// The file's content.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    clients: BTreeMap<String, Changed<ClientConfig>>,
}

/// The content of the files of the first versions, which did not say what was configured.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenFirst {
    clients: Vec<ClientConfig>,
    removed: BTreeSet<String>,
}

/// With hyphens in the keys, as files have had them since the first version: an older program reads no others.
fn hyphenated(value: Value) -> Value {
    match value {
        Value::Object(object) => {
            object.into_iter().map(|(key, value)| (key.replace('_', "-"), hyphenated(value))).collect()
        }
        value => value,
    }
}

/// The file that keeps them; nothing where there is no place for state.
#[derive(Debug)]
pub(super) struct ClientsFile(Option<StateFile>);

impl ClientsFile {
    pub(super) fn new(path: Option<PathBuf>) -> Self {
        ClientsFile(path.map(|path| StateFile::new(path, Keeps::CLIENTS)))
    }

    /// What is kept. Of the first versions it is taken to be a change of what is `configured` now.
    pub(super) fn load(&self, configured: &BTreeMap<ClientId, ClientConfig>) -> Result<Changes, StateError> {
        let Some(file) = &self.0 else { return Ok(Changes::default()) };
        if let Some(first) = file.load_plain::<WrittenFirst>()? {
            let clients = first.clients.into_iter().map(|client| (client.id, Some(client)));
            let removed = first.removed.iter().map(|id| Ok((file.parsed(id)?, None)));
            let all = clients.map(Ok).chain(removed).collect::<Result<Vec<_>, StateError>>()?;
            let change = |(id, now)| (id, Changed { configured: configured.get(&id).cloned(), now });
            return Ok(Changes(all.into_iter().map(change).collect()));
        }
        let Some(Written { clients }) = file.load()? else { return Ok(Changes::default()) };
        let parsed = clients.into_iter().map(|(id, change)| Ok((file.parsed(&id)?, change)));
        parsed.collect::<Result<_, StateError>>().map(Changes)
    }

    pub(super) fn save(&self, changes: &Changes) -> io::Result<()> {
        let Some(file) = &self.0 else { return Ok(()) };
        let clients = changes.0.iter().map(|(id, change)| (id.to_string(), change.clone())).collect();
        file.save(&hyphenated(serde_json::to_value(Written { clients })?))
    }

    pub(super) fn put_aside(&self) -> io::Result<()> {
        self.0.as_ref().map_or(Ok(()), StateFile::put_aside)
    }

    /// For messages.
    pub(super) fn shown(&self) -> String {
        self.0.as_ref().map(|file| file.path().display().to_string()).unwrap_or_default()
    }
}
