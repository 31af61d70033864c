//! Clients by their names: each is meant to be that of one client, and where two have it, neither is found by it.

use std::collections::BTreeMap;

use sanwire_core::ClientId;

use super::Table;
use super::config::{ClientConfig, ClientError};

impl Table {
    /// The client of this id or name.
    pub(super) fn find(&self, client: &str) -> Result<&ClientConfig, ClientError> {
        let found = match client.parse() {
            Ok(id) => self.get(id),
            Err(_) => {
                let named: Vec<_> =
                    self.known().filter(|known| !known.name.is_empty() && known.name == client).collect();
                if let [first, second, ..] = &named[..] {
                    let ids = format!("{} and {}", first.id, second.id);
                    return Err(ClientError::Ambiguous { name: client.to_owned(), ids });
                }
                named.first().copied()
            }
        };
        found.ok_or_else(|| ClientError::Unknown(client.to_owned()))
    }

    /// Refuses a name that another client has.
    pub(super) fn check_name(&self, id: ClientId) -> Result<(), ClientError> {
        let name = self.get(id).map_or("", |client| &client.name);
        if !name.is_empty() && self.known().any(|other| other.id != id && other.name == name) {
            return Err(ClientError::NameTaken(name.to_owned()));
        }
        Ok(())
    }

    /// A line for each name that two clients have: one by the configuration, one by what was changed.
    pub(super) fn ambiguous_names(&self) -> Vec<String> {
        let mut by_name = BTreeMap::<&str, Vec<ClientId>>::new();
        for client in self.known().filter(|client| !client.name.is_empty()) {
            by_name.entry(&client.name).or_default().push(client.id);
        }
        let several = by_name.into_iter().filter(|(_, ids)| ids.len() > 1);
        several
            .map(|(name, ids)| {
                let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
                format!(
                    "{} clients are called {name}: {}; commands find them by their ids only, until one has another name",
                    ids.len(),
                    ids.join(", ")
                )
            })
            .collect()
    }
}
