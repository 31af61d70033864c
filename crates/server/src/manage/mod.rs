//! Managing a server while it runs: what an administrator may ask, and how it is done. Whoever carries the questions (a unix
//! socket, a connection) hands them to one [`Manager`].

mod access;
mod adding;
mod as_file;
mod attached;
mod audit;
mod busy;
mod capturing;
mod clearing;
mod clients;
mod conditions;
mod configuration;
mod contents;
mod copies;
mod course;
mod deleting;
mod derivations;
mod deviations;
mod difference;
mod direct;
mod dvds;
mod error;
mod filling;
mod following;
mod handle;
mod holding;
mod host;
mod jobs;
mod keeping;
mod lengths;
mod links;
mod look;
mod mapping;
mod media;
mod metrics;
mod page;
mod pools;
mod preview;
mod refusal;
mod rehearsal;
mod reload;
mod removing;
mod request;
mod reservations;
mod resetting;
mod resizing;
mod responded;
mod response;
mod run_status;
mod scope;
mod securing;
mod seeking;
mod slow;
mod statistics;
mod store_texts;
mod support_bundle;
mod targets;
mod told;
mod usage;
mod using;
mod volumes;
mod wanted;
mod web_login;
mod wrong_request;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sanwire_core::{Lun, Protection};
use sanwire_device::LogicalUnit;

pub use self::access::{AccessChange, PortState};
use self::adding::Addition;
pub use self::attached::AttachedArray;
pub(crate) use self::audit::AuditLog;
use self::audit::Noted;
pub use self::audit::{Asker, AuditLines, AuditQuery, AuditResult};
use self::busy::Busy;
pub use self::clearing::Clearing;
use self::conditions::Condition;
pub use self::configuration::{
    ConfigurationStatus, ConfiguredPool, ConfiguredTarget, ConfiguredUnit, ConfiguredVolume,
};
pub use self::copies::{ArrayGrowth, MemberReplacement};
pub use self::course::CopyProgress;
use self::derivations::Derivations;
pub use self::direct::{CopyError, CopyOrder, CopyTerms};
use self::dvds::Expiry;
pub use self::dvds::{DerivedStatus, DvdEnd, DvdStatus, NewDvd, NewDvds, PrincipalStatus, ProgramStatus, RegionStatus};
pub use self::error::ManageError;
use self::following::Follower;
pub use self::handle::ManagementHandle;
use self::holding::Stuck;
pub use self::host::HostStatus;
use self::jobs::Jobs;
pub use self::jobs::{JobState, JobStatus};
use self::keeping::Keeping;
use self::lengths::Lengths;
pub use self::links::LinkStatus;
pub use self::metrics::MetricsText;
use self::metrics::PoolsNow;
use self::metrics::RequestCounts;
pub use self::page::AnswerPage;
pub use self::refusal::Refusal;
pub use self::request::Request;
pub use self::reservations::{RegistrantStatus, ReservationKind, ReservationsStatus};
use self::responded::{Responded, log_outcome, read_audit, response_of};
pub use self::response::{
    Answer, ClientStatus, Collections, ConnectionStatistics, DataStatistics, Deviation, GroupStatus, MissingStatus,
    QuotaStatistics, RdmaStatistics, RemoteStatistics, Response, SCHEMA, Statistics, Status, TargetStatus,
    VolumeStatistics, VolumeStatus,
};
use self::run_status::Beginning;
pub use self::run_status::RunStatus;
use self::slow::{Next, Step};
use self::store_texts::StoreTexts;
pub use self::support_bundle::SupportBundle;
pub use self::using::{CommandStatus, Waits};
use self::web_login::WebLinks;
pub use self::web_login::{LinkFor, WebLinkError};
pub use self::wrong_request::without_values;
use crate::allow::AllowList;
use crate::config::{ServerConfig, VolumeConfig};
use crate::counting::Counted;
use crate::events::{EventFilter, Happening};
use crate::server::Server;

/// The longest request, in bytes of JSON: one with a module that judges commands.
pub const REQUEST_MAX_BYTES: usize = 512 << 10;

/// What a client is told that may not manage the server.
pub(crate) const NOT_PERMITTED: &str = "this client may not manage the server";

/// Where the configuration comes from when it is read again.
pub type Source = Box<dyn Fn() -> Result<ServerConfig, String> + Send>;

/// A running server and what it was told to be: the one who changes it.
pub struct Manager {
    target: Server,
    name: String,
    /// What is served, by names.
    volumes: BTreeMap<String, VolumeConfig>,
    stores: StoreTexts,
    derivations: Derivations,
    expiry: Expiry,
    allow: AllowList,
    protection: Protection,
    /// Whether clients that have no secret of their own must know a password.
    has_password: bool,
    kept: Keeping,
    source: Arc<Mutex<Source>>,
    /// What requests under way have taken for themselves.
    busy: Busy,
    /// Changes that take long, or have taken long.
    jobs: Arc<Jobs>,
    audit: Option<AuditLog>,
    requests: RequestCounts,
    web_links: WebLinks,
    follower: Follower,
    /// When it began.
    began: Beginning,
    /// Whose commands wait, as the shards call them.
    paused: BTreeSet<String>,
    /// Volumes whose content is neither the one nor the other, so that nothing is written to them.
    stuck: BTreeMap<String, Stuck>,
    lengths: Lengths,
}

fn done(answer: Answer) -> Result<Step, ManageError> {
    Ok(Step::Done(answer))
}

impl Manager {
    /// The server.
    #[must_use]
    pub fn target(&self) -> &Server {
        &self.target
    }

    /// The server, which nobody manages any more.
    #[must_use]
    pub fn into_target(mut self) -> Server {
        self.kept.finish();
        self.audit.iter().for_each(|audit| audit.all().wait());
        self.target
    }

    fn jobs(&self) -> &Arc<Jobs> {
        &self.jobs
    }

    /// Does what is asked, and writes down who has changed what, or was refused.
    pub fn handle(&mut self, by: &Asker, request: Request) -> Response {
        let asked = request.clone();
        let result = self.execute(request);
        self.respond(by, &asked, result).when_stable()
    }

    /// The response to what was asked; it is written down.
    fn respond(&self, by: &Asker, asked: &Request, result: Result<Answer, ManageError>) -> Responded {
        let response = response_of(result);
        if asked.is_change() {
            log_outcome(by, asked, &response);
            self.note_refused_dvd(by, asked, &response);
        }
        let noted = asked.is_change().then(|| self.note(by, Some(asked), &response)).flatten();
        Responded { response, noted }
    }

    /// Refuses an attempt, and writes it down.
    fn refuse(&self, by: &Asker, refusal: Refusal) -> Responded {
        let response = Response::Refused(refusal);
        let noted = self.note(by, None, &response);
        Responded { response, noted }
    }

    /// Writes down a change that no request has made.
    fn note_changed(&self, by: &Asker, line: String) -> Responded {
        let response = Response::Done(Answer::Changed(vec![line]));
        let noted = self.note(by, None, &response);
        Responded { response, noted }
    }

    /// Writes down what was refused so many times; whether it `is_proven` whose it was.
    fn note_offence(&self, by: &Asker, offence: &dyn Display, is_proven: bool, count: u64) {
        let (who, what) = (by.to_string(), offence.to_string());
        self.target.events().note(Happening::Refused { who, what, count });
        // Nobody waits for an answer.
        drop(self.audit.as_ref().map(|audit| audit.note_offence(by, offence, is_proven, count)));
    }

    fn note(&self, by: &Asker, request: Option<&Request>, response: &Response) -> Option<Noted> {
        self.audit.as_ref().map(|audit| audit.note(by, request, response))
    }

    /// Does what is asked. Sessions that it does not concern notice nothing.
    ///
    /// # Errors
    /// [`ManageError`]; then nothing has changed, unless it says so.
    fn execute(&mut self, request: Request) -> Result<Answer, ManageError> {
        let mut step = self.begin(request)?;
        loop {
            match step {
                Step::Done(answer) => return Ok(answer),
                Step::Slow(slow) => match slow.run() {
                    Next::Over(result) => return *result,
                    Next::Then(then) => step = then(self)?,
                },
            }
        }
    }

    /// Begins with what somebody asks: one who only owns volumes may ask little.
    fn begin_by(&mut self, by: &Asker, request: Request) -> Result<Step, ManageError> {
        match (by.owner(), request) {
            (owner, Request::CopyOut(order)) => {
                owner.map_or(Ok(()), |owner| self.check_owns(owner, &order.volume))?;
                self.copy_out(Some(by), order)
            }
            (_, Request::CopyTerms) => done(self.copy_terms(Some(by))),
            (None, request) => self.begin(request),
            (Some(owner), request) => self.begin_as_owner(owner, request),
        }
    }

    /// Does what is asked, as far as that takes no time.
    ///
    /// # Errors
    /// [`ManageError`]; then nothing has changed.
    fn begin(&mut self, request: Request) -> Result<Step, ManageError> {
        self.begin_with(request, None)
    }

    /// The same for one that may be done on a condition, if it is one that looks at that by itself.
    fn begin_with(&mut self, request: Request, condition: Option<Condition>) -> Result<Step, ManageError> {
        match request {
            Request::AddVolume { volume, target, renew, adopt } => {
                self.add_volume(Addition::of_request(&volume, target, (renew, adopt), condition)?)
            }
            Request::RemoveVolume { name, force } => self.remove_volume(&name, force),
            Request::CreateDvd(new) => self.create_dvd(&new, condition, None),
            Request::CreateDvds(new) => self.create_dvds(&new.dvds, condition),
            Request::SetDvd(end) => self.set_dvd(&end).map(Step::Done),
            Request::RevokeDvd { name } => self.revoke_dvd(&name),
            Request::Dvds { parent } => self.dvds(parent.as_deref(), |_| true).map(Step::Done),
            Request::Dvd { name } => self.dvd(&name).map(Step::Done),
            Request::LoadVolume { name, store } => self.load_volume(&name, store.as_deref()),
            Request::ScrubVolume { name } => self.scrub_volume(&name),
            Request::ReplaceMember(new) => self.replace_member(&new.name, new.member, &new.store),
            Request::GrowArray(new) => self.grow_array(new),
            Request::ResizeVolume { name, size } => self.resize_by_request(&name, &size),
            Request::SetVolume { name, security: to, protected: on, owners } => self.set_volume(&name, to, on, owners),
            Request::Pools => Ok(self.pools()),
            Request::ForgetPool { name } => self.forget_pool(&name).map(Step::Done),
            Request::Snapshots { volume } => self.snapshots(volume.as_deref()).map(Step::Done),
            Request::Snapshot { volumes, name, protected } => self.take_snapshots(&volumes, &name, protected),
            Request::SetSnapshot { snapshot, protected } => self.protect_snapshot(&snapshot, protected),
            Request::DeleteSnapshot { snapshot } => self.delete_snapshot(&snapshot),
            Request::Clone { snapshot, name, target } => self.clone_snapshot(&snapshot, &name, target),
            Request::Rollback { snapshot, force, keep } => self.roll_back(&snapshot, force, keep.as_deref()),
            Request::DeleteVolume { name, force, snapshots } => self.delete_volume(&name, force, snapshots),
            Request::MapVolume { name, lun, target, force } => self.map_volume(&name, lun, target.as_deref(), force),
            Request::UnmapVolume { name, target, force } => self.unmap_volume(&name, &target, force),
            Request::AddTarget { name, settings } => self.add_target(&name, &settings).map(Step::Done),
            Request::SetTarget { name, settings, force } => self.set_target(&name, &settings, force),
            Request::RemoveTarget { name, force } => self.remove_target(&name, force),
            Request::AddClient { id, settings, force } => self.add_client(&id, &settings, force),
            Request::SetClient { client, settings, force } => self.set_client(&client, &settings, force),
            Request::RemoveClient { client, force } => self.remove_client(&client, force),
            Request::ResetClient { client, force } => self.reset_client(&client, force),
            Request::Reload { dry_run: true, reset, .. } => Ok(self.compare(reset)),
            Request::Reload { force, reset, .. } => self.reload(force, reset, condition),
            Request::Statistics => Ok(self.count(|manager, counted| Answer::Statistics(manager.statistics(&counted)))),
            Request::Metrics => Ok(self.gather_metrics()),
            Request::Clients => Ok(self.count(|manager, counted| Answer::Clients(manager.clients(counted)))),
            Request::Links => Ok(self.links()),
            Request::Configuration => done(self.configuration()),
            Request::ConfigurationFile => done(self.configuration_file()),
            Request::ClearReservations(it) => self.clear_reservations(&it.name, it.key.as_deref(), it.force),
            Request::Reservations { name } => self.reservations(&name).map(Step::Done),
            Request::VolumeSessions { name } => self.sessions_of_volume(&name),
            Request::Commands { name } => self.commands_of_volume(&name),
            Request::Status => done(Answer::Status(self.looker().status())),
            Request::Sessions => Ok(self.sessions()),
            Request::EjectVolume { name, force } => self.eject_volume(&name, force).map(Step::Done),
            Request::DropClient { client } => self.drop_client(&client),
            Request::DropSession { session } => self.drop_session(&session, None),
            Request::PauseClient { client } => self.pause_client(&client, true).map(Step::Done),
            Request::ResumeClient { client } => self.pause_client(&client, false).map(Step::Done),
            Request::SetAccessState(to) => self.set_access_state(to.group, to.state, to.target),
            Request::Audit(query) => done(Answer::Audit(self.read_audit(&query)?)),
            Request::CopyOut(order) => self.copy_out(None, order),
            asked @ (Request::CopyTerms | Request::Jobs | Request::Job { .. } | Request::CancelJob { .. }) => {
                self.begin_at_once(&asked)
            }
            Request::IfRevision { revision, request } => self.begin_if(revision, *request),
            Request::InPools { pools, request } => self.begin_in_pools(&pools, *request),
            Request::DryRun { request } => self.rehearse(*request),
            Request::WebLogin(of) => self.web_login(of.name.as_deref()).map(Step::Done),
            Request::Start { request } | Request::Page { request, .. } => self.begin(*request),
            Request::Events { since, filter, .. } => done(self.events_since(since.as_deref(), &filter)),
        }
    }

    /// Tells of jobs and of copies, or has a job end before it is done.
    fn begin_at_once(&self, request: &Request) -> Result<Step, ManageError> {
        done(match request {
            Request::Job { id, .. } => Answer::Job(self.jobs.status(*id).ok_or(ManageError::NoJob(*id))?),
            Request::CancelJob { id } => self.jobs.cancel_by_request(*id)?,
            Request::CopyTerms => self.copy_terms(None),
            _ => Answer::Jobs(self.jobs.list()),
        })
    }

    fn events_since(&self, since: Option<&str>, filter: &EventFilter) -> Answer {
        Answer::Events(self.target.events().read(since, filter, Duration::ZERO))
    }

    fn read_audit(&self, query: &AuditQuery) -> Result<AuditLines, ManageError> {
        read_audit(self.audit.as_ref(), query)
    }

    /// Asks the shards for what they have counted.
    fn count(&self, answer: impl FnOnce(&Manager, Vec<Counted>) -> Answer + Send + 'static) -> Step {
        self.counting(move |manager, counted| Ok(Step::Done(answer(manager, counted))))
    }

    /// Goes on with what the shards have counted.
    fn counting(
        &self,
        then: impl FnOnce(&mut Manager, Vec<Counted>) -> Result<Step, ManageError> + Send + 'static,
    ) -> Step {
        let counter = self.target.counter();
        Step::slow("counting", move || counter.count(), then)
    }

    /// Asks the shards and the pools for the metrics.
    fn gather_metrics(&self) -> Step {
        let (counter, pools) = (self.target.counter(), self.target.pools().clone());
        let events = self.target.events().clone();
        let gather = move || (counter.count(), PoolsNow::of(&pools, &events));
        let tell = |manager: &mut Manager, (counted, pools): (Vec<Counted>, PoolsNow)| {
            Ok(Step::Done(Answer::Metrics(manager.metrics(&counted, &pools))))
        };
        Step::slow("counting", gather, tell)
    }

    fn find(&self, name: &str) -> Option<(Lun, Arc<LogicalUnit>)> {
        self.target.units().find_named(name)
    }
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
