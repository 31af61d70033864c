//! Managing clients.

use std::collections::{BTreeMap, BTreeSet};

use sanwire_core::text::shortened;
use sanwire_core::{ClientId, NexusId, Size};
use sanwire_scsi::IscsiName;

use super::response::{Answer, ClientStatus};
use super::slow::Step;
use super::{ManageError, Manager};
use crate::config::Origin;
use crate::counting::{Counted, User};
use crate::front::hyperscsi::clients::{Change, ChangeError, ClientConfig, ClientError, ClientSettings, ClientsConfig};
use crate::pattern::VolumePattern;
use crate::revisions::Collection;

/// Clients and initiators that are paused at a time.
const PAUSED_MAX: usize = 1024;

/// Of what is no number of a session, so much is told.
const SHOWN_MAX_BYTES: usize = 64;

impl Manager {
    pub(super) fn clients(&self, counted: Vec<Counted>) -> Vec<ClientStatus> {
        let look = self.target.revisions().look();
        let mut addresses = BTreeMap::<String, Vec<String>>::new();
        for connection in counted.into_iter().flat_map(|counted| counted.connections) {
            addresses.entry(connection.principal).or_default().push(connection.address);
        }
        let clients = self.target.clients();
        let changed: BTreeSet<ClientId> = clients.changed().into_iter().map(|(id, _)| id).collect();
        let mut status = |client: ClientConfig| {
            let id = client.id.to_string();
            let origin = if changed.contains(&client.id) { Origin::Management } else { Origin::File };
            ClientStatus {
                origin,
                revision: look.of(Collection::Clients, &id),
                has_password: client.psk.is_some(),
                addresses: addresses.remove(&id).unwrap_or_default(),
                client: ClientConfig { psk: None, ..client },
            }
        };
        clients.list().into_iter().map(&mut status).collect()
    }

    pub(super) fn add_client(&mut self, id: &str, settings: &ClientSettings, force: bool) -> Result<Step, ManageError> {
        self.change_client(ClientChange::Add(client_id(id)?, settings.clone()), force, |manager, client| {
            let line = format!("client {} is served: {}", client.shown(), rights(&client));
            manager.changed_of_client(line, &client)
        })
    }

    pub(super) fn set_client(
        &mut self,
        client: &str,
        settings: &ClientSettings,
        force: bool,
    ) -> Result<Step, ManageError> {
        check_settings(settings)?;
        let password = match (settings.psk.is_some(), settings.no_password) {
            (false, false) => "",
            _ => "; its password holds from its next handshake on",
        };
        let change = ClientChange::Set(client.to_owned(), settings.clone());
        self.change_client(change, force, move |manager, client| {
            let line = format!("client {}: {}{password}", client.shown(), rights(&client));
            manager.changed_of_client(line, &client)
        })
    }

    /// What has become of a client, and which of its patterns match no volume.
    fn changed_of_client(&self, line: String, client: &ClientConfig) -> Answer {
        let is_idle = |pattern: &&VolumePattern| !self.volumes.keys().any(|name| pattern.matches(name));
        let idle: Vec<String> = client.volumes.iter().filter(is_idle).map(ToString::to_string).collect();
        let Answer::Changed(mut lines) = self.changed(line) else { return Answer::Changed(Vec::new()) };
        if !idle.is_empty() {
            lines.push(format!(
                "no volume is called {} now: client {} does not see any by that",
                idle.join(", "),
                client.shown()
            ));
        }
        Answer::Changed(lines)
    }

    pub(super) fn remove_client(&mut self, client: &str, force: bool) -> Result<Step, ManageError> {
        self.change_client(ClientChange::Remove(client.to_owned()), force, |manager, client| {
            manager.changed(format!("client {} is not served any more, until it is added again", client.id))
        })
    }

    pub(super) fn reset_client(&mut self, client: &str, force: bool) -> Result<Step, ManageError> {
        self.change_client(ClientChange::Reset(client.to_owned()), force, |manager, ClientConfig { id, .. }| {
            let now = match manager.target.clients().find(&id.to_string()) {
                Ok(client) => format!("client {} is as it is configured: {}", client.shown(), rights(&client)),
                Err(_) => format!("client {id} is not configured: it is served if `allow` permits it"),
            };
            manager.changed(now)
        })
    }

    /// Refuses a secret that would seem to guard what is open over iSCSI, as the configuration is refused that has one.
    fn check_targets_closed(&self) -> Result<(), ManageError> {
        if self.target.wires().iter().all(|wire| !wire.has_targets()) {
            return Ok(());
        }
        let open = self.target.open_target();
        open.map_or(Ok(()), |target| Err(ManageError::OpenBeside(target.to_string())))
    }

    /// Changes a client, unless that takes volumes, or writing to them, away while it uses them; `tell` says what it is then.
    fn change_client(
        &mut self,
        change: ClientChange,
        force: bool,
        tell: impl FnOnce(&Manager, ClientConfig) -> Answer + Send + 'static,
    ) -> Result<Step, ManageError> {
        self.when_client_may_change(change, force, |manager, change| manager.change_client_now(change, tell))
    }

    /// Goes on when a client may be changed so.
    pub(super) fn when_client_may_change(
        &mut self,
        change: ClientChange,
        force: bool,
        then: impl FnOnce(&mut Manager, &ClientChange) -> Result<Step, ManageError> + Send + 'static,
    ) -> Result<Step, ManageError> {
        if let ClientChange::Add(_, settings) | ClientChange::Set(_, settings) = &change
            && settings.psk.is_some()
        {
            self.check_targets_closed()?;
        }
        // What is refused anyhow is refused at once.
        self.target.clients().foresee(change.shown()).map_err(ChangeError::from)?;
        if force {
            return then(self, &change);
        }
        let foreseen = change.clone();
        let find = move |manager: &Manager, users: &[User]| {
            let prospect = manager.target.clients().foresee(foreseen.shown());
            prospect.map_or_else(|_| Vec::new(), |prospect| manager.taken_from_clients(users, &prospect, &[]))
        };
        Ok(Step::seen_twice(self, find, move |manager, taken| {
            if !taken.is_empty() {
                return Err(ManageError::Hides(taken.join(", ")));
            }
            then(manager, &change)
        }))
    }

    fn change_client_now(
        &mut self,
        change: &ClientChange,
        tell: impl FnOnce(&Manager, ClientConfig) -> Answer,
    ) -> Result<Step, ManageError> {
        let clients = self.target.clients();
        let id = clients.change(change.shown())?;
        let client = clients.find(&id.to_string());
        self.revise_client(&id, client.is_ok());
        let client = client.unwrap_or_else(|_| ClientConfig::new(id));
        self.target.terms_changed();
        Ok(Step::Done(tell(self, client)))
    }

    /// A client is not what it was, or not known any more.
    fn revise_client(&self, id: &ClientId, is_known: bool) {
        match is_known {
            true => self.target.revisions().changed(Collection::Clients, &id.to_string()),
            false => self.target.revisions().removed(Collection::Clients, &id.to_string()),
        }
    }

    /// Ends the sessions of a client or an initiator, over whatever wire; it may come again.
    pub(super) fn drop_client(&self, client: &str) -> Result<Step, ManageError> {
        let principal = self.principal(client)?;
        Ok(self.counting(move |manager, counted| {
            let connections = counted.iter().flat_map(|shard| &shard.connections);
            let sessions = connections.filter(|connection| connection.principal == principal).count();
            // Also one that has begun meanwhile.
            manager.target.drop_principal(&principal);
            let line = match sessions {
                0 => Err(ManageError::NoSession(principal)),
                1 => Ok(format!("the session of {principal} is ended")),
                _ => Ok(format!("{sessions} sessions of {principal} are ended")),
            };
            line.map(|line| Step::Done(Answer::Changed(vec![line])))
        }))
    }

    /// Ends a session; with a `revision`, only if the sessions of its client still have that one.
    pub(super) fn drop_session(&self, session: &str, revision: Option<u64>) -> Result<Step, ManageError> {
        let (number, session) = (self.session_number(session)?, session.to_owned());
        Ok(self.counting(move |manager, counted| {
            let owner = manager.owner_of(&session, number, &counted)?;
            manager.check_sessions_of(&owner, revision)?;
            manager.target.drop_nexus(number);
            Ok(Step::Done(Answer::Changed(vec![format!("the session {session} of {owner} is ended")])))
        }))
    }
    /// What a number of a session means.
    pub(super) fn session_number(&self, session: &str) -> Result<NexusId, ManageError> {
        u64::from_str_radix(session, 16).map(NexusId).map_err(|_| no_such_session(session))
    }

    /// Whose session it is.
    pub(super) fn owner_of(&self, session: &str, number: NexusId, counted: &[Counted]) -> Result<String, ManageError> {
        let mut sessions = counted.iter().flat_map(|shard| &shard.sessions);
        let found = sessions.find(|known| known.nexus == number).ok_or_else(|| no_such_session(session))?;
        Ok(found.host.owner().to_owned())
    }

    /// What the shards call a client or an initiator.
    pub(super) fn principal(&self, client: &str) -> Result<String, ManageError> {
        if let Ok(initiator) = client.parse::<IscsiName>() {
            return Ok(initiator.to_string());
        }
        let id: ClientId = client.parse().or_else(|_| self.target.clients().find(client).map(|client| client.id))?;
        Ok(id.to_string())
    }

    /// Refuses to let one more wait when too many do.
    pub(super) fn check_pause(&self) -> Result<(), ManageError> {
        if self.paused.len() >= PAUSED_MAX { Err(ManageError::TooManyPaused) } else { Ok(()) }
    }

    /// Lets the commands of a client or an initiator wait, over whatever wire, or go on.
    pub(super) fn pause_client(&mut self, client: &str, is_paused: bool) -> Result<Answer, ManageError> {
        let principal = self.principal(client)?;
        let is_changed = match is_paused {
            true if !self.paused.contains(&principal) => {
                self.check_pause()?;
                self.paused.insert(principal.clone())
            }
            true => false,
            false => self.paused.remove(&principal),
        };
        self.target.pause_principal(&principal, is_paused);
        is_changed.then(|| self.target.revisions().principal_paused(&principal, is_paused));
        let state = match (is_paused, is_changed) {
            (true, _) => "waits, until it is resumed or the server ends",
            (false, true) => "goes on",
            (false, false) => "was not paused",
        };
        Ok(Answer::Changed(vec![format!("{principal} {state}")]))
    }

    /// Takes over what a new configuration says of clients, and whether what was changed of them is forgotten; tells what differs.
    pub(super) fn configure_clients(&self, terms: ClientsConfig, resets: bool) -> Result<Vec<String>, ManageError> {
        let before = self.target.clients().list();
        let overridden = self.target.configure_clients(terms, resets)?;
        let after = self.target.clients().list();
        let [old, new] = [&before, &after].map(|clients| clients.iter().map(|client| (client.id, client)));
        let (old, new): (BTreeMap<_, _>, BTreeMap<_, _>) = (old.collect(), new.collect());
        let gone = before.iter().filter(|old| !new.contains_key(&old.id));
        let other = after.iter().filter(|new| old.get(&new.id) != Some(new));
        gone.clone().for_each(|old| self.revise_client(&old.id, false));
        other.clone().for_each(|new| self.revise_client(&new.id, true));
        let gone = gone.map(|old| format!("client {} is not known any more", old.shown()));
        let lines = gone.chain(other.map(|new| format!("client {}: {}", new.shown(), rights(new))));
        Ok(lines.chain(overridden).collect())
    }
}

fn no_such_session(session: &str) -> ManageError {
    ManageError::NoSuchSession(shortened(session, SHOWN_MAX_BYTES).into_owned())
}

pub(super) fn client_id(text: &str) -> Result<ClientId, ChangeError> {
    text.parse().map_err(|_| ClientError::Id(text.to_owned()).into())
}

/// Refuses a change of a client that changes nothing.
pub(super) fn check_settings(settings: &ClientSettings) -> Result<(), ChangeError> {
    if *settings == ClientSettings::default() { Err(ClientError::NoSettings.into()) } else { Ok(()) }
}

/// A change of a client that was asked for, until it is made.
#[derive(Clone)]
pub(super) enum ClientChange {
    Add(ClientId, ClientSettings),
    Set(String, ClientSettings),
    Remove(String),
    Reset(String),
}

impl ClientChange {
    pub(super) fn shown(&self) -> Change<'_> {
        match self {
            ClientChange::Add(id, settings) => Change::Add(*id, settings),
            ClientChange::Set(client, settings) => Change::Set(client, settings),
            ClientChange::Remove(client) => Change::Remove(client),
            ClientChange::Reset(client) => Change::Reset(client),
        }
    }
}

pub(super) fn rights(client: &ClientConfig) -> String {
    let volumes: Vec<String> = client.volumes.iter().map(ToString::to_string).collect();
    let volumes = if volumes.is_empty() { "no volumes".to_owned() } else { format!("volumes {}", volumes.join(",")) };
    let mut text = format!("{volumes}, {}", if client.read_only { "read only" } else { "read and write" });
    if let Some(cap) = client.cap_bytes_per_second {
        text.push_str(&format!(", rate limit {}/s", Size(cap)));
    }
    if let Some(transfer) = client.transfer_max_bytes {
        text.push_str(&format!(", transfers of up to {}", Size(transfer.into())));
    }
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

#[cfg(test)]
mod tests {
    use super::super::testing::config;
    use super::*;
    use crate::manage::Request;

    #[test]
    fn a_change_of_a_client_says_what_it_lacks_and_where_it_is_said() {
        let again = Box::new(|| Ok(config(&["a=ram:1M"])));
        let mut manager = Manager::start(config(&["a=ram:1M"]), again).unwrap();
        let (id, name) = ("a1".repeat(16), "alice".to_owned());
        let settings = ClientSettings { name: Some(name.clone()), ..ClientSettings::default() };
        manager.execute(Request::AddClient { id, settings, force: false }).unwrap();
        let set = |settings| Request::SetClient { client: name.clone(), settings, force: true };
        let refused = manager.execute(set(ClientSettings::default())).unwrap_err();
        assert_eq!(refused.code(), "client-invalid");
        assert!(refused.to_string().starts_with("nothing is said that is to change"), "{refused}");
        let volumes = Some(vec!["nosuch*".into(), "a".into()]);
        let answer = manager.execute(set(ClientSettings { volumes, ..ClientSettings::default() })).unwrap();
        let Answer::Changed(lines) = answer else { panic!("{answer:?}") };
        assert!(lines.last().unwrap().starts_with("no volume is called nosuch* now"), "{lines:?}");
        let Ok(Answer::Clients(clients)) = manager.execute(Request::Clients) else { panic!("the clients") };
        assert_eq!(clients[0].origin, Origin::Management);
    }
}
