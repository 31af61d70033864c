//! The HyperSCSI clients that a server knows by their ids: what each may do, and on which terms. They change while it runs.

mod compression;
mod config;
mod disks;
mod gate;
mod names;
mod prospect;
mod state;
mod views;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use sanwire_core::{ClientId, Lun, MacAddress, Peer};
use sanwire_device::LogicalUnits;
use sanwire_io::interface::{Watch, watch};

pub use self::compression::{Compression, NoCompression};
pub(crate) use self::config::text;
pub use self::config::{ClientConfig, ClientError, ClientSettings, NoSecret, Secret, WEIGHT_MAX};
pub(crate) use self::gate::Gate;
pub(crate) use self::prospect::Prospect;
use self::state::{Changes, ClientsFile};
use self::views::{Viewer, Views};
use crate::allow::AllowList;
use crate::derived::Owners;
use crate::kept::{Changed, StateError};

/// What holds for clients, as it is at one moment.
#[derive(Clone, Debug)]
struct Table {
    /// Who is served without being known.
    allow: AllowList,
    /// What those must know who have no secret of their own.
    psk: Secret,
    compression: Compression,
    configured: BTreeMap<ClientId, ClientConfig>,
    changes: Changes,
}

/// All clients of a server, shared by its threads. Asked at handshakes and when sessions begin, never on the way of data.
#[derive(Debug)]
pub(crate) struct Clients {
    table: ArcSwap<Table>,
    local: &'static Watch,
    /// Held while the table changes.
    changing: Mutex<ClientsFile>,
    views: Views,
    /// Who may derive volumes from some, without managing the server.
    pub(crate) owners: Arc<Owners>,
}

/// What the configuration says of clients.
#[derive(Clone, Debug)]
pub(crate) struct ClientsConfig {
    pub(crate) allow: AllowList,
    pub(crate) psk: Secret,
    /// Whether data may be compressed for those that say nothing of it.
    pub(crate) compression: Compression,
    pub(crate) clients: Vec<ClientConfig>,
}

impl ClientsConfig {
    /// # Errors
    /// [`ClientError`] when an id or a name is there twice.
    pub(crate) fn check(&self) -> Result<(), ClientError> {
        let (mut ids, mut names) = (BTreeSet::new(), BTreeSet::new());
        for client in &self.clients {
            if !ids.insert(client.id) {
                return Err(ClientError::Twice(client.id));
            }
            if !client.name.is_empty() && !names.insert(&client.name) {
                return Err(ClientError::NameTaken(client.name.clone()));
            }
        }
        Ok(())
    }
}

/// A change of one client while the server runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change<'a> {
    /// It is known from now on, be it one that was removed.
    Add(ClientId, &'a ClientSettings),
    /// One that is known, by its id or name, is to be otherwise.
    Set(&'a str, &'a ClientSettings),
    /// It is served no longer, whatever the rules say, until it is added again. One that is not known may be named by its id.
    Remove(&'a str),
    /// What was changed of it while the server ran is forgotten: the configuration holds again.
    Reset(&'a str),
}

/// Why clients were not changed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// They cannot be so.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// What was changed in earlier runs cannot be read.
    #[error(transparent)]
    Load(#[from] StateError),
    /// A change that would not survive a restart is none.
    #[error("the change cannot be kept in {path}: {source}; nothing was changed")]
    Keep {
        /// Where.
        path: String,
        /// Why.
        source: io::Error,
    },
}

impl Clients {
    /// The clients of the configuration, with what was changed of them in earlier runs. `path` is the file that keeps
    /// changes; without it they end with the server. `volumes` are all there are.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(crate) fn open(
        terms: ClientsConfig,
        path: Option<PathBuf>,
        volumes: Arc<LogicalUnits>,
    ) -> Result<Self, ChangeError> {
        terms.check()?;
        let file = ClientsFile::new(path);
        let mut table = Table::new(terms, Changes::default());
        table.changes = file.load(&table.configured)?;
        table.drop_overridden(&file).iter().for_each(|line| tracing::warn!("{line}"));
        table.ambiguous_names().iter().for_each(|line| tracing::warn!("{line}"));
        Ok(Clients {
            table: ArcSwap::from_pointee(table),
            local: watch(),
            changing: Mutex::new(file),
            views: Views::new(volumes),
            owners: Arc::default(),
        })
    }

    /// Puts another configuration in the place of the old one. What was changed while the server ran holds on, but of clients that are
    /// configured otherwise since then; a line for each of these. A configuration that `resets` holds for all of them.
    pub(crate) fn configure(&self, terms: ClientsConfig, resets: bool) -> Result<Vec<String>, ClientError> {
        terms.check()?;
        let file = self.lock();
        let mut table = Table::new(terms, self.table.load().changes.clone());
        let mut overridden = if resets { table.forget_changes(&file) } else { table.drop_overridden(&file) };
        overridden.extend(table.ambiguous_names());
        self.table.store(Arc::new(table));
        self.refresh_views(None);
        Ok(overridden)
    }

    /// Those that are not as they are configured.
    pub(crate) fn changed(&self) -> Vec<(ClientId, Changed<ClientConfig>)> {
        self.table.load().changes.0.iter().map(|(id, change)| (*id, change.clone())).collect()
    }

    /// Puts the file that keeps changes aside, before it is replaced by one with none of them; not one that has none.
    pub(crate) fn put_changes_aside(&self) -> Result<(), ChangeError> {
        let file = self.lock();
        if self.table.load().changes.0.is_empty() {
            return Ok(());
        }
        file.put_aside().map_err(|source| ChangeError::Keep { path: file.shown(), source })
    }

    /// What clients would see with another configuration, which may be one that `resets`.
    pub(crate) fn foresee_terms(&self, terms: ClientsConfig, resets: bool) -> Prospect<'_> {
        let before = self.table.load_full();
        let mut after = Table::new(terms, if resets { Changes::default() } else { before.changes.clone() });
        after.changes.drop_overridden(&after.configured);
        Prospect::new(before, after, self.local)
    }

    /// Those that are known, by their ids.
    pub(crate) fn list(&self) -> Vec<ClientConfig> {
        self.table.load().known().cloned().collect()
    }

    /// A client for people: by its id and the name that it has here, or else by the one that it gives itself.
    pub(crate) fn shown(&self, client: ClientId, own_name: &str) -> String {
        let known = self.find(&client.to_string()).ok().map(|known| known.name);
        let name = known.filter(|name| !name.is_empty()).unwrap_or_else(|| own_name.to_owned());
        if name.is_empty() { format!("client {client}") } else { format!("client {client} ({name})") }
    }

    /// The client of this id or name.
    ///
    /// # Errors
    /// [`ClientError::Unknown`].
    pub(crate) fn find(&self, client: &str) -> Result<ClientConfig, ClientError> {
        self.table.load().find(client).cloned()
    }

    /// Whether a client is named, and not only served because `allow` permits it.
    pub(crate) fn is_listed(&self, client: ClientId) -> bool {
        self.table.load().get(client).is_some()
    }

    /// Whether a client may manage the server.
    pub(crate) fn may_manage(&self, client: ClientId) -> bool {
        self.table.load().get(client).is_some_and(|client| client.manage)
    }

    /// Changes a client; gives who that is. Of the others only what is written down is looked at: their file is replaced as a whole.
    pub(crate) fn change(&self, change: Change<'_>) -> Result<ClientId, ChangeError> {
        let file = self.lock();
        let mut table = Table::clone(&self.table.load());
        let id = table.apply(change)?;
        file.save(&table.changes).map_err(|source| ChangeError::Keep { path: file.shown(), source })?;
        self.table.store(Arc::new(table));
        self.refresh_views(Some(id));
        Ok(id)
    }

    /// What clients would see after a change.
    pub(crate) fn foresee(&self, change: Change<'_>) -> Result<Prospect<'_>, ClientError> {
        let before = self.table.load_full();
        let mut after = Table::clone(&before);
        after.apply(change)?;
        Ok(Prospect::new(before, after, self.local))
    }

    /// Who would be changed, and what that client is then; `None`: not known any more.
    pub(crate) fn foreseen(&self, change: Change<'_>) -> Result<(ClientId, Option<ClientConfig>), ClientError> {
        let mut after = Table::clone(&self.table.load());
        let id = after.apply(change)?;
        let client = after.get(id).cloned();
        Ok((id, client))
    }

    /// The units that a client sees, and changes nothing of in a session that is read only; they follow what it may see until [`Clients::leave`].
    pub(crate) fn enter(&self, client: ClientId, peer: Peer, is_read_only: bool) -> Arc<LogicalUnits> {
        let viewer = Viewer { client, is_read_only, only: None };
        self.views.enter(viewer, peer, || self.table.load().terms(client, peer, self.local))
    }

    /// The units that a client sees who has [`Clients::enter`]ed.
    pub(crate) fn seen_by(&self, client: ClientId, is_read_only: bool) -> Option<Arc<LogicalUnits>> {
        self.views.seen_by(&Viewer { client, is_read_only, only: None })
    }

    /// A session is over that had [`Clients::enter`]ed.
    pub(crate) fn leave(&self, client: ClientId, is_read_only: bool) {
        self.views.leave(&Viewer { client, is_read_only, only: None });
    }

    /// Shows each client what it may see, after volumes with these numbers came or went.
    pub(crate) fn follow_volumes(&self, changed: &[Lun]) {
        self.views.follow(changed);
    }

    fn refresh_views(&self, only: Option<ClientId>) {
        self.views.refresh(only, |client, peer| self.table.load().terms(client, peer, self.local));
    }

    fn lock(&self) -> MutexGuard<'_, ClientsFile> {
        // The table is replaced as a whole: nobody leaves it half changed.
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn new(terms: ClientsConfig, changes: Changes) -> Self {
        let ClientsConfig { allow, psk, compression, clients } = terms;
        let configured = clients.into_iter().map(|client| (client.id, client)).collect();
        Table { allow, psk, compression, configured, changes }
    }

    /// Changes a client; gives who that is.
    fn apply(&mut self, change: Change<'_>) -> Result<ClientId, ClientError> {
        match change {
            Change::Add(id, settings) => {
                if self.get(id).is_some() {
                    return Err(ClientError::Known(id));
                }
                self.put(ClientConfig::new(id).with(settings)?)
            }
            Change::Set(client, settings) => self.put(self.find(client)?.clone().with(settings)?),
            Change::Remove(client) => {
                let id = self.id_of(client)?;
                self.note(id, None);
                Ok(id)
            }
            Change::Reset(client) => {
                // As it is configured it may have the name of another one: then neither is found by it.
                let id = self.id_of(client)?;
                self.changes.0.remove(&id);
                Ok(id)
            }
        }
    }

    fn get(&self, id: ClientId) -> Option<&ClientConfig> {
        self.changes.0.get(&id).map_or_else(|| self.configured.get(&id), |change| change.now.as_ref())
    }

    /// What holds for a client that has a session. One that would not be served any more sees nothing until it is dropped.
    fn terms(&self, id: ClientId, peer: Peer, local: &Watch) -> ClientConfig {
        match self.get(id) {
            Some(client) => client.clone(),
            None if self.permits(peer, Some(id), local) => ClientConfig::new(id),
            None => ClientConfig { volumes: Vec::new(), ..ClientConfig::new(id) },
        }
    }

    fn known(&self) -> impl Iterator<Item = &ClientConfig> {
        let ids: BTreeSet<ClientId> = self.configured.keys().chain(self.changes.0.keys()).copied().collect();
        ids.into_iter().filter_map(|id| self.get(id))
    }

    fn knows_anybody(&self) -> bool {
        self.configured.keys().chain(self.changes.0.keys()).any(|id| self.get(*id).is_some())
    }

    fn id_of(&self, client: &str) -> Result<ClientId, ClientError> {
        client.parse().or_else(|_| self.find(client).map(|client| client.id))
    }

    fn put(&mut self, client: ClientConfig) -> Result<ClientId, ClientError> {
        let id = client.id;
        let keeps_name = self.get(id).is_some_and(|before| before.name == client.name);
        self.note(id, Some(client));
        if !keeps_name {
            self.check_name(id)?;
        }
        Ok(id)
    }

    fn note(&mut self, id: ClientId, now: Option<ClientConfig>) {
        self.changes.0.insert(id, Changed { configured: self.configured.get(&id).cloned(), now });
    }

    /// Forgets changes that the configuration overrides; a line for each.
    fn drop_overridden(&mut self, file: &ClientsFile) -> Vec<String> {
        let overridden = self.changes.drop_overridden(&self.configured);
        if let (false, Err(error)) = (overridden.is_empty(), file.save(&self.changes)) {
            tracing::error!("{} still has what the configuration overrides: {error}", file.shown());
        }
        let line = |id| {
            format!("client {id} was changed by ctl, but its configuration was edited since: the configuration holds")
        };
        overridden.into_iter().map(line).collect()
    }

    /// Forgets all changes; a line if what is kept cannot be forgotten.
    fn forget_changes(&mut self, file: &ClientsFile) -> Vec<String> {
        self.changes = Changes::default();
        // What an earlier reset could not make the file forget stands there alone.
        let is_kept = file.load(&self.configured).map_or(true, |kept| !kept.0.is_empty());
        let saved = if is_kept { file.save(&self.changes) } else { Ok(()) };
        let line = |error| {
            format!(
                "{} still has what was changed of clients, and it is there again at the next start: {error}; see to that, and \
                 `reload --reset` again",
                file.shown()
            )
        };
        saved.err().map(line).into_iter().collect()
    }

    fn permits(&self, peer: Peer, client: Option<ClientId>, local: &Watch) -> bool {
        match client {
            Some(id) if self.changes.has_removed(id) => return false,
            Some(id) if self.get(id).is_some() => return true,
            // It may be one of them.
            None if self.knows_anybody() => return true,
            _ => {}
        }
        let is_local = self.allow.rules().is_empty() && local.contains(peer);
        self.allow.permits(peer, client, is_local)
    }
}

impl Clients {
    /// How much of memory that comes free a client has beside others of weight 1, as of what is sent: its weight, times its priority
    /// and one.
    pub(crate) fn memory_weight(&self, client: ClientId, priority: u8) -> u32 {
        let weight = self.table.load().get(client).map_or(1, |client| client.weight);
        u32::from(weight) * (u32::from(priority) + 1)
    }

    /// Whether a station is served that shows nothing but its address: rules that name it, or everybody, are needed.
    pub(crate) fn permits_station(&self, station: MacAddress) -> bool {
        self.table.load().allow.permits_station(station)
    }

    /// Whether a client is served.
    pub(crate) fn permits(&self, peer: Peer, client: Option<ClientId>) -> bool {
        self.table.load().permits(peer, client, self.local)
    }
}

#[cfg(test)]
mod tests;
