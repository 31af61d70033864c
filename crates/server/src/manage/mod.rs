//! Managing a server while it runs: what an administrator may ask, and how it is done. Whoever carries the questions (a unix
//! socket, a connection) hands them to one [`Manager`].

mod access;
mod audit;
mod clients;
mod difference;
mod error;
mod handle;
mod mapping;
mod reload;
mod request;
mod resizing;
mod securing;
mod statistics;
mod usage;

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use sanwire_core::limits::LUNS_MAX;
use sanwire_core::{Lun, Protection};
use sanwire_device::LogicalUnit;
use sanwire_iscsi::IscsiName;
use sanwire_store::{Acceptance, VolumeSpec};

pub use self::access::PortState;
pub use self::audit::Asker;
pub(crate) use self::audit::AuditLog;
pub use self::error::ManageError;
pub use self::handle::ManagementHandle;
pub use self::request::{
    Answer, ClientStatus, ConnectionStatistics, GroupStatus, QuotaStatistics, Request, Response, Statistics, Status,
    TargetStatus, VolumeStatistics, VolumeStatus,
};
use self::usage::Way;
use crate::allow::AllowList;
use crate::config::{ServerConfig, VolumeConfig};
use crate::server::Server;
use crate::target_node::TargetNodeConfig;

/// The longest request, in bytes of JSON.
pub const REQUEST_MAX_BYTES: usize = 64 << 10;

/// How long who removes a volume waits until all that was written to it is stable.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(30);

/// What a client is told that may not manage the server.
pub(crate) const NOT_PERMITTED: &str = "this client may not manage the server";

/// Where the configuration comes from when it is read again.
pub type Source = Box<dyn Fn() -> Result<ServerConfig, String> + Send>;

/// A running server and what it was told to be: the one who changes it.
pub struct Manager {
    target: Server,
    name: String,
    volumes: Vec<VolumeConfig>,
    allow: AllowList,
    protection: Protection,
    /// Whether clients that have no secret of their own must know a password.
    has_password: bool,
    source: Source,
    audit: Option<AuditLog>,
}

impl Manager {
    /// The manager of a server that was started with this configuration.
    #[must_use]
    pub fn new(target: Server, config: ServerConfig, source: Source) -> Self {
        let audit = config.audit_file().map(AuditLog::new);
        let has_password = config.has_password();
        let ServerConfig { name, volumes, allow, protection, .. } = config;
        Manager { target, name, volumes, allow, protection, has_password, source, audit }
    }

    /// The server.
    #[must_use]
    pub fn target(&self) -> &Server {
        &self.target
    }

    /// The server, which nobody manages any more.
    #[must_use]
    pub fn into_target(self) -> Server {
        self.target
    }

    /// Does what is asked, and writes down who has changed what, or was refused.
    pub fn handle(&mut self, by: &Asker, request: Request) -> Response {
        let asked = request.clone();
        let response = match self.execute(request) {
            Ok(answer) => Response::Done(answer),
            Err(error) => Response::Refused(error.to_string()),
        };
        if asked.is_change() {
            self.note(by, Some(&asked), &response);
        }
        response
    }

    /// Refuses an attempt, and writes it down.
    pub fn refuse(&mut self, by: &Asker, reason: String) -> Response {
        let response = Response::Refused(reason);
        self.note(by, None, &response);
        response
    }

    /// Writes down what was refused so many times; whether it `is_proven` whose it was.
    fn note_offence(&mut self, by: &Asker, offence: &dyn Display, is_proven: bool, count: u64) {
        if let Some(audit) = &mut self.audit {
            audit.note_offence(by, offence, is_proven, count);
        }
    }

    fn note(&mut self, by: &Asker, request: Option<&Request>, response: &Response) {
        if let Some(audit) = &mut self.audit {
            audit.note(by, request, response);
        }
    }

    /// Does what is asked. Sessions that it does not concern notice nothing.
    ///
    /// # Errors
    /// [`ManageError`]; then nothing has changed, unless it says so.
    fn execute(&mut self, request: Request) -> Result<Answer, ManageError> {
        match request {
            Request::Status => Ok(Answer::Status(self.status())),
            Request::Sessions => Ok(Answer::Sessions(self.target.sessions())),
            Request::AddVolume { volume, target, renew, adopt } => {
                self.add_volume(volume.parse()?, target, acceptance(renew, adopt)?)
            }
            Request::RemoveVolume { name, force } => self.remove_volume(&name, force),
            Request::ResizeVolume { name, size } => self.resize_by_request(&name, &size),
            Request::SetVolume { name, security } => self.secure_by_request(&name, &security),
            Request::MapVolume { name, lun, target, force } => self.map_volume(&name, lun, target.as_deref(), force),
            Request::UnmapVolume { name, target, force } => self.unmap_volume(&name, &target, force),
            Request::Clients => Ok(Answer::Clients(self.clients())),
            Request::AddClient { id, settings, force } => self.add_client(&id, &settings, force),
            Request::SetClient { client, settings, force } => self.set_client(&client, &settings, force),
            Request::RemoveClient { client, force } => self.remove_client(&client, force),
            Request::ResetClient { client, force } => self.reset_client(&client, force),
            Request::DropClient { client } => self.drop_client(&client),
            Request::PauseClient { client } => self.pause_client(&client, true),
            Request::ResumeClient { client } => self.pause_client(&client, false),
            Request::Statistics => Ok(Answer::Statistics(self.statistics())),
            Request::SetAccessState { group, state, target } => self.set_access_state(group, state, target),
            Request::Reload { dry_run: true, .. } => self.compare(),
            Request::Reload { force, .. } => self.reload(force),
        }
    }

    fn status(&self) -> Status {
        let volumes = self.target.units().iter().into_iter().map(|(lun, disk)| {
            let geometry = disk.store().geometry();
            VolumeStatus {
                name: disk.identity().name().to_owned(),
                lun: lun.number(),
                size_bytes: geometry.length_bytes,
                block_bytes: geometry.block_bytes,
                read_only: geometry.read_only,
                waiting: disk.stalls().waiting(),
                security: self.target.security(lun).to_string(),
            }
        });
        let targets = self.target.exports().into_iter().map(|export| TargetStatus {
            name: export.name.to_string(),
            groups: self.target.portal_groups(&export.name).into_iter().map(GroupStatus::from).collect(),
            units: export.units.into_iter().map(|(lun, volume)| (lun.number(), volume)).collect(),
        });
        Status {
            name: self.name.clone(),
            wires: self.target.wires().iter().map(ToString::to_string).collect(),
            volumes: volumes.collect(),
            targets: targets.collect(),
            groups: self.target.units().target_port_groups().into_iter().map(GroupStatus::from).collect(),
        }
    }

    fn add_volume(
        &mut self,
        spec: VolumeSpec,
        target: Option<String>,
        acceptance: Acceptance,
    ) -> Result<Answer, ManageError> {
        let name = spec.name.to_string();
        if self.find(&name).is_some() {
            return Err(ManageError::Taken(name));
        }
        let mut exports = self.target.exports();
        let place = match target {
            Some(target) => add_unit(&mut exports, &target, &name)?,
            None if self.is_protected(&spec) => String::new(),
            None => self.own_target(&mut exports, &name),
        };
        let opened = self.open_volume(spec, acceptance)?;
        if let Err(error) = self.target.set_exports(exports) {
            self.take_back(opened);
            return Err(error.into());
        }
        Ok(for_now(format!("volume {name} is served{place}")))
    }

    /// Whether a volume must not pass in the clear, as it does over iSCSI.
    fn is_protected(&self, spec: &VolumeSpec) -> bool {
        spec.security.unwrap_or(self.protection) > Protection::Checksum
    }

    /// Whether any clients must know a secret: then no target is made that is open without one.
    fn has_secrets(&self) -> bool {
        self.has_password || self.target.clients().list().iter().any(|client| client.psk.is_some())
    }

    /// Gives a volume a target of its own, where iSCSI is served and its name can be that of a target; says so.
    fn own_target(&self, exports: &mut Vec<TargetNodeConfig>, volume: &str) -> String {
        if self.target.wires().iter().all(|wire| wire.portal().is_none()) {
            return String::new();
        }
        if self.has_secrets() {
            return ", over HyperSCSI only: the password does not guard iSCSI targets, so none is made for it".into();
        }
        match TargetNodeConfig::of_volume(volume, self.allow.clone()) {
            Ok(export) if exports.iter().all(|other| other.name != export.name) => {
                let place = format!(", as logical unit 0 of {}", export.name);
                exports.push(export);
                place
            }
            _ => String::new(),
        }
    }

    fn remove_volume(&mut self, name: &str, force: bool) -> Result<Answer, ManageError> {
        if self.find(name).is_none() {
            return Err(ManageError::NoVolume(name.to_owned()));
        }
        if !force {
            self.check_unused(name, Way::Any)?;
        }
        let mut exports = self.target.exports();
        for export in &mut exports {
            export.units.retain(|_, volume| volume != name);
        }
        exports.retain(|export| !export.units.is_empty() || export.redirect.is_some());
        self.target.set_exports(exports)?;
        self.close_volume(name)?;
        Ok(for_now(format!("volume {name} is not served any more")))
    }

    fn find(&self, name: &str) -> Option<(Lun, Arc<LogicalUnit>)> {
        self.target.units().iter().into_iter().find(|(_, disk)| disk.identity().name() == name)
    }

    /// Serves a volume over HyperSCSI, with the lowest number that is free.
    fn open_volume(&mut self, spec: VolumeSpec, acceptance: Acceptance) -> Result<Opened, ManageError> {
        let taken = |lun: Lun| self.target.units().get(lun).is_some();
        let numbers = (0..).take(LUNS_MAX).filter_map(Lun::new);
        let lun = numbers.into_iter().find(|lun| !taken(*lun)).ok_or(ManageError::Full)?;
        let volume = VolumeConfig { lun, spec };
        let is_first = self.target.add_volume(&volume, acceptance)?;
        self.volumes.push(volume.clone());
        Ok(Opened { spec: volume.spec, is_first })
    }

    /// As if it had not been opened: who tries again later is not asked where the former volume is.
    fn take_back(&mut self, Opened { spec, is_first }: Opened) {
        // Nothing was written to it.
        let _ = self.close_volume(&spec.name);
        if is_first {
            self.target.forget_volume(&spec);
        }
    }

    /// Serves a volume over HyperSCSI no longer; no target has it any more. All that was written to it is stable then.
    ///
    /// # Errors
    /// [`ManageError::Unstable`] when it is not: the volume is gone all the same.
    fn close_volume(&mut self, name: &str) -> Result<(), ManageError> {
        let lun = self.find(name).map(|(lun, _)| lun);
        let removal = lun.and_then(|lun| self.target.remove_volume(lun));
        self.volumes.retain(|volume| *volume.spec.name != *name);
        let unstable = |source| ManageError::Unstable { name: name.to_owned(), source };
        removal.map_or(Ok(()), |removal| removal.wait(FLUSH_TIMEOUT)).map_err(unstable)
    }
}

/// A volume that was opened, and may have to be taken back.
struct Opened {
    spec: VolumeSpec,
    /// Whether it was never served before.
    is_first: bool,
}

fn acceptance(renew: bool, adopt: bool) -> Result<Acceptance, ManageError> {
    match (renew, adopt) {
        (false, false) => Ok(Acceptance::Known),
        (false, true) => Ok(Acceptance::Adopted),
        (true, false) => Ok(Acceptance::Renewed),
        (true, true) => Err(ManageError::RenewAndAdopt),
    }
}

/// A change of volumes or targets: what the configuration says of them holds again when it is read.
fn for_now(line: String) -> Answer {
    let note = "this lasts until the server ends or reloads: say it in the configuration too, if it is to stay";
    Answer::Changed(vec![line, note.to_owned()])
}

/// Makes a volume the next logical unit of a target; says which.
fn add_unit(exports: &mut [TargetNodeConfig], target: &str, volume: &str) -> Result<String, ManageError> {
    let name: Option<IscsiName> = target.parse().ok();
    let export = exports.iter_mut().find(|export| Some(&export.name) == name.as_ref());
    let export = export.ok_or_else(|| ManageError::NoTarget(target.to_owned()))?;
    let free = (0..).take(LUNS_MAX).filter_map(Lun::new).find(|lun| !export.units.contains_key(lun));
    let lun = free.ok_or(ManageError::Full)?;
    export.units.insert(lun, volume.to_owned());
    Ok(format!(", as logical unit {lun} of {}", export.name))
}

#[cfg(test)]
mod tests;
