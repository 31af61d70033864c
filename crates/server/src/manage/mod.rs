//! Managing a server while it runs: what an administrator may ask, and how it is done. Whoever carries the questions (a unix
//! socket, a connection) hands them to one [`Manager`].

mod access;
mod audit;
mod clients;
mod deviations;
mod difference;
mod error;
mod handle;
mod keeping;
mod mapping;
mod media;
mod refusal;
mod reload;
mod request;
mod resizing;
mod response;
mod securing;
mod seeking;
mod slow;
mod statistics;
mod usage;
mod volumes;

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;

use sanwire_core::{Lun, Protection};
use sanwire_device::LogicalUnit;

pub use self::access::PortState;
pub use self::audit::Asker;
pub(crate) use self::audit::AuditLog;
pub use self::error::ManageError;
pub use self::handle::ManagementHandle;
use self::keeping::Keeping;
pub use self::refusal::Refusal;
pub use self::request::Request;
pub use self::response::{
    Answer, ClientStatus, ConnectionStatistics, Deviation, GroupStatus, MissingStatus, QuotaStatistics, Response,
    Statistics, Status, TargetStatus, VolumeStatistics, VolumeStatus,
};
use self::slow::Step;
use crate::allow::AllowList;
use crate::config::{Origin, ServerConfig, VolumeConfig};
use crate::server::Server;

/// The longest request, in bytes of JSON.
pub const REQUEST_MAX_BYTES: usize = 64 << 10;

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
    kept: Keeping,
    source: Source,
    audit: Option<AuditLog>,
    /// Grows with each change.
    revision: u64,
}

impl Manager {
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
        let result = self.execute(request);
        self.respond(by, &asked, result)
    }

    /// The response to what was asked; it is written down.
    fn respond(&mut self, by: &Asker, asked: &Request, result: Result<Answer, ManageError>) -> Response {
        let response = response_of(result);
        if asked.is_change() {
            self.note(by, Some(asked), &response);
        }
        response
    }

    /// Refuses an attempt, and writes it down.
    pub fn refuse(&mut self, by: &Asker, refusal: Refusal) -> Response {
        let response = Response::Refused(refusal);
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
        match self.begin(request)? {
            Step::Done(answer) => Ok(answer),
            Step::Slow(slow) => self.finish(slow.run()),
        }
    }

    fn execute_at_once(&mut self, request: Request) -> Result<Answer, ManageError> {
        match request {
            Request::Status => Ok(Answer::Status(self.status())),
            Request::Sessions => Ok(Answer::Sessions(self.target.sessions())),
            Request::AddVolume { volume, target, renew, adopt } => {
                self.add_volume(volume.parse()?, target, volumes::acceptance(renew, adopt)?)
            }
            Request::EjectVolume { name, force } => self.eject_volume(&name, force),
            Request::LoadVolume { name, store } => self.load_volume(&name, store.as_deref()),
            Request::ResizeVolume { name, size } => self.resize_by_request(&name, &size),
            Request::SetVolume { name, security } => self.secure_by_request(&name, &security),
            Request::MapVolume { name, lun, target, force } => self.map_volume(&name, lun, target.as_deref(), force),
            Request::UnmapVolume { name, target, force } => self.unmap_volume(&name, &target, force),
            Request::Statistics | Request::Clients | Request::RemoveVolume { .. } => self.execute(request),
            Request::AddClient { id, settings, force } => self.add_client(&id, &settings, force),
            Request::SetClient { client, settings, force } => self.set_client(&client, &settings, force),
            Request::RemoveClient { client, force } => self.remove_client(&client, force),
            Request::ResetClient { client, force } => self.reset_client(&client, force),
            Request::DropClient { client } => self.drop_client(&client),
            Request::PauseClient { client } => self.pause_client(&client, true),
            Request::ResumeClient { client } => self.pause_client(&client, false),
            Request::SetAccessState { group, state, target } => self.set_access_state(group, state, target),
            Request::Reload { dry_run: true, .. } => self.compare(),
            Request::Reload { force, .. } => self.reload(force),
        }
    }

    fn status(&self) -> Status {
        let origins: HashMap<&str, Origin> =
            self.volumes.iter().map(|volume| (&*volume.spec.name, volume.origin)).collect();
        let volumes = self.target.units().iter().into_iter().map(|(lun, disk)| {
            let geometry = disk.store().geometry();
            VolumeStatus {
                id: format!("{:032x}", u128::from_be_bytes(disk.identity().uuid())),
                origin: origins.get(disk.identity().name()).copied().unwrap_or(Origin::Management),
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
            revision: self.revision,
            deviations: self.deviations(),
            missing: self.missing(),
            wires: self.target.wires().iter().map(ToString::to_string).collect(),
            volumes: volumes.collect(),
            targets: targets.collect(),
            groups: self.target.units().target_port_groups().into_iter().map(GroupStatus::from).collect(),
        }
    }

    fn find(&self, name: &str) -> Option<(Lun, Arc<LogicalUnit>)> {
        self.target.units().iter().into_iter().find(|(_, disk)| disk.identity().name() == name)
    }
}

fn response_of(result: Result<Answer, ManageError>) -> Response {
    match result {
        Ok(answer) => Response::Done(answer),
        Err(error) => Response::Refused(error.into()),
    }
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
