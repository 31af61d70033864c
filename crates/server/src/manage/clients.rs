//! Managing clients.

use sanwire_core::ClientId;
use sanwire_scsi::IscsiName;

use super::response::{Answer, ClientStatus};
use super::{ManageError, Manager};
use crate::counting::Counted;
use crate::front::hyperscsi::clients::{Change, ChangeError, ClientConfig, ClientError, ClientSettings, ClientsConfig};
use crate::front::iscsi::target_node::TargetNodeConfig;

impl Manager {
    pub(super) fn clients(&self, counted: Vec<Counted>) -> Vec<ClientStatus> {
        let connections: Vec<_> = counted.into_iter().flat_map(|counted| counted.connections).collect();
        let status = |client: ClientConfig| {
            let id = client.id.to_string();
            let own = connections.iter().filter(|connection| connection.principal == id);
            ClientStatus {
                has_password: client.psk.is_some(),
                addresses: own.map(|connection| connection.address.clone()).collect(),
                client: ClientConfig { psk: None, ..client },
            }
        };
        self.target.clients().list().into_iter().map(status).collect()
    }

    pub(super) fn add_client(
        &mut self,
        id: &str,
        settings: &ClientSettings,
        force: bool,
    ) -> Result<Answer, ManageError> {
        let id = id.parse().map_err(|_| ClientError::Id(id.to_owned())).map_err(ChangeError::from)?;
        let client = self.change_client(Change::Add(id, settings), force)?;
        Ok(self.changed(format!("client {} is served: {}", client.shown(), rights(&client))))
    }

    pub(super) fn set_client(
        &mut self,
        client: &str,
        settings: &ClientSettings,
        force: bool,
    ) -> Result<Answer, ManageError> {
        let client = self.change_client(Change::Set(client, settings), force)?;
        let password = match (settings.psk.is_some(), settings.no_password) {
            (false, false) => "",
            _ => "; its password holds from its next handshake on",
        };
        Ok(self.changed(format!("client {}: {}{password}", client.shown(), rights(&client))))
    }

    pub(super) fn remove_client(&mut self, client: &str, force: bool) -> Result<Answer, ManageError> {
        let client = self.change_client(Change::Remove(client), force)?;
        Ok(self.changed(format!("client {} is not served any more, until it is added again", client.id)))
    }

    pub(super) fn reset_client(&mut self, client: &str, force: bool) -> Result<Answer, ManageError> {
        let ClientConfig { id, .. } = self.change_client(Change::Reset(client), force)?;
        let now = match self.target.clients().find(&id.to_string()) {
            Ok(client) => format!("client {} is as it is configured: {}", client.shown(), rights(&client)),
            Err(_) => format!("client {id} is not configured: it is served if `allow` permits it"),
        };
        Ok(self.changed(now))
    }

    /// Refuses a secret that would seem to guard what is open over iSCSI, as the configuration is refused that has one.
    fn check_targets_closed(&self) -> Result<(), ManageError> {
        if self.target.wires().iter().all(|wire| wire.portal().is_none()) {
            return Ok(());
        }
        let open = self.target.exports().into_iter().find(TargetNodeConfig::is_open);
        open.map_or(Ok(()), |export| Err(ManageError::OpenBeside(export.name.to_string())))
    }

    /// Changes a client, unless that takes volumes, or writing to them, away while it uses them; gives it as it is then.
    fn change_client(&mut self, change: Change<'_>, force: bool) -> Result<ClientConfig, ManageError> {
        if let Change::Add(_, settings) | Change::Set(_, settings) = change
            && settings.psk.is_some()
        {
            self.check_targets_closed()?;
        }
        let clients = self.target.clients();
        if !force {
            let prospect = clients.foresee(change).map_err(ChangeError::from)?;
            let taken = self.taken_from_clients(&prospect, &[])?;
            if !taken.is_empty() {
                return Err(ManageError::Hides(taken.join(", ")));
            }
        }
        let id = clients.change(change)?;
        self.target.terms_changed();
        self.revision += 1;
        Ok(clients.find(&id.to_string()).unwrap_or_else(|_| ClientConfig::new(id)))
    }

    pub(super) fn drop_client(&self, client: &str) -> Result<Answer, ManageError> {
        if let Ok(initiator) = client.parse::<IscsiName>() {
            self.target.drop_initiator(&initiator);
            return Ok(Answer::Changed(vec![format!("the sessions of {initiator} are ended")]));
        }
        let id = self.client_id(client)?;
        self.target.drop_client(id);
        Ok(Answer::Changed(vec![format!("the sessions of client {id} are ended")]))
    }

    fn client_id(&self, client: &str) -> Result<ClientId, ManageError> {
        client.parse().or_else(|_| Ok(self.target.clients().find(client)?.id))
    }

    pub(super) fn pause_client(&self, client: &str, is_paused: bool) -> Result<Answer, ManageError> {
        let id = self.client_id(client)?;
        self.target.pause_client(id, is_paused);
        let state = if is_paused { "waits, until it is resumed or the server ends" } else { "goes on" };
        Ok(Answer::Changed(vec![format!("client {id} {state}")]))
    }

    /// Takes over what a new configuration says of clients; tells what differs.
    pub(super) fn configure_clients(&self, terms: ClientsConfig) -> Result<Vec<String>, ManageError> {
        let before = self.target.clients().list();
        let overridden = self.target.configure_clients(terms)?;
        let after = self.target.clients().list();
        let gone = before.iter().filter(|old| !after.iter().any(|new| new.id == old.id));
        let gone = gone.map(|old| format!("client {} is not known any more", old.shown()));
        let other = after.iter().filter(|new| !before.contains(new));
        let lines = gone.chain(other.map(|new| format!("client {}: {}", new.shown(), rights(new))));
        Ok(lines.chain(overridden).collect())
    }
}

pub(super) fn rights(client: &ClientConfig) -> String {
    let volumes: Vec<String> = client.volumes.iter().map(ToString::to_string).collect();
    let volumes = if volumes.is_empty() { "no volumes".to_owned() } else { format!("volumes {}", volumes.join(",")) };
    let mut text = format!("{volumes}, {}", if client.read_only { "read only" } else { "read and write" });
    let bytes = |name, bytes: Option<u64>| bytes.map(|bytes| format!(", {name} {bytes}")).unwrap_or_default();
    text.push_str(&bytes("at most bytes in a second", client.cap_bytes_per_second));
    text.push_str(&bytes("at most bytes in a transfer", client.transfer_max_bytes.map(u64::from)));
    if let Some(compression) = client.compression {
        text.push_str(&format!(", compression {compression}"));
    }
    if client.lock_media {
        text.push_str(", locks media");
    }
    if client.manage {
        text.push_str(", may manage the server");
    }
    text
}
