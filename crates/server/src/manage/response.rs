//! What an administrator is answered.

mod statistics;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::access::PortState;
use super::audit::AuditLines;
use super::configuration::ConfigurationStatus;
use super::direct::CopyTerms;
use super::dvds::{DerivedStatus, DvdStatus};
use super::jobs::JobStatus;
use super::links::LinkStatus;
use super::metrics::MetricsText;
use super::page::AnswerPage;
use super::refusal::Refusal;
use super::reservations::ReservationsStatus;
use super::run_status::RunStatus;
use super::using::CommandStatus;
use crate::config::Origin;
use crate::events::Events;
use crate::front::hyperscsi::clients::ClientConfig;
use crate::front::iscsi::target_settings::TargetTerms;
use crate::pools::{PoolStatus, SnapshotStatus};
use crate::sessions::SessionStatus;

pub use self::statistics::{
    ConnectionStatistics, DataStatistics, QuotaStatistics, RdmaStatistics, RemoteStatistics, Statistics,
    VolumeStatistics,
};

/// An answer on its way. As JSON: `{"done": ...}` or `{"refused": "why", "code": "volume-unknown"}`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "WrittenResponse", into = "WrittenResponse")]
pub enum Response {
    /// It was done.
    Done(Answer),
    /// It was not, for this reason.
    Refused(Refusal),
}

/// The version of what requests and answers are as JSON (`docs/output.md`): it rises when a key goes, or means something else.
pub const SCHEMA: u32 = 1;

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct WrittenResponse {
    schema: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    done: Option<Answer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
}

impl From<Response> for WrittenResponse {
    fn from(response: Response) -> Self {
        match response {
            Response::Done(answer) => {
                WrittenResponse { schema: SCHEMA, done: Some(answer), ..WrittenResponse::default() }
            }
            Response::Refused(Refusal { code, reason }) => {
                WrittenResponse { schema: SCHEMA, done: None, refused: Some(reason), code: Some(code.into_owned()) }
            }
        }
    }
}

impl TryFrom<WrittenResponse> for Response {
    type Error = &'static str;

    fn try_from(written: WrittenResponse) -> Result<Self, &'static str> {
        let WrittenResponse { done, refused, code, .. } = written;
        // A server of an older version gives no code.
        let refusal = |reason| Refusal { code: code.map_or("refused".into(), Into::into), reason };
        let refused = refused.map(|reason| Response::Refused(refusal(reason)));
        done.map(Response::Done).or(refused).ok_or("it is neither done nor refused")
    }
}

/// What was done.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// To [`super::Request::Status`].
    Status(Status),
    /// To [`super::Request::Sessions`] and [`super::Request::VolumeSessions`].
    Sessions(Vec<SessionStatus>),
    /// To [`super::Request::Commands`].
    Commands(Vec<CommandStatus>),
    /// To [`super::Request::Links`].
    Links(Vec<LinkStatus>),
    /// To [`super::Request::Configuration`].
    Configuration(Box<ConfigurationStatus>),
    /// To [`super::Request::ConfigurationFile`]: the tables and comments of one, in their order.
    ConfigurationFile(Vec<String>),
    /// To [`super::Request::Reservations`].
    Reservations(ReservationsStatus),
    /// To [`super::Request::Clients`].
    Clients(Vec<ClientStatus>),
    /// To [`super::Request::Statistics`].
    Statistics(Statistics),
    /// To [`super::Request::Jobs`].
    Jobs(Vec<JobStatus>),
    /// To [`super::Request::Job`], and to what takes longer than is waited for: it goes on.
    Job(JobStatus),
    /// To [`super::Request::Metrics`].
    Metrics(MetricsText),
    /// To [`super::Request::Events`].
    Events(Events),
    /// To [`super::Request::Audit`].
    Audit(AuditLines),
    /// To [`super::Request::Pools`].
    Pools(Vec<PoolStatus>),
    /// To [`super::Request::Snapshots`].
    Snapshots(Vec<SnapshotStatus>),
    /// To [`super::Request::Dvds`].
    Dvds(Vec<VolumeStatus>),
    /// To [`super::Request::Dvd`].
    Dvd(Box<DvdStatus>),
    /// To [`super::Request::CopyTerms`].
    CopyTerms(CopyTerms),
    /// To [`super::Request::WebLogin`].
    Link(String),
    /// What has changed, one line for each thing.
    Changed(Vec<String>),
    /// To [`super::Request::Page`].
    Page(AnswerPage),
}

impl Response {
    /// The response for who has room for so many bytes.
    pub(crate) fn to_json(&self, room_bytes: u32) -> Vec<u8> {
        let is_fitting = |json: &Vec<u8>| json.len() <= room_bytes as usize;
        let too_long =
            || serde_json::to_vec(&Response::Refused(Refusal::new("answer-too-long", "the answer is too long"))).ok();
        let json = serde_json::to_vec(self).ok().filter(is_fitting);
        json.or_else(|| too_long().filter(is_fitting)).unwrap_or_default()
    }
}

/// A server as it is now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// What clients call it.
    pub name: String,
    /// What runs, since when, and how.
    #[serde(flatten)]
    pub run: Box<RunStatus>,
    /// Rises with each change of what an administrator can change: a client that has seen it can tell whether there was one since.
    #[serde(default)]
    pub revision: u64,
    /// The same of all resources of each type.
    #[serde(default)]
    pub collections: Collections,
    /// What differs from the configuration.
    #[serde(default)]
    pub deviations: Vec<Deviation>,
    /// Volumes that should be served and could not be opened when the server started.
    #[serde(default)]
    pub missing: Vec<MissingStatus>,
    /// Where it listens.
    pub wires: Vec<String>,
    /// The volumes, by their numbers.
    pub volumes: Vec<VolumeStatus>,
    /// The iSCSI targets.
    pub targets: Vec<TargetStatus>,
    /// The port groups through which HyperSCSI clients reach the volumes.
    pub groups: Vec<GroupStatus>,
}

/// The revisions of all resources of a type: each rises when one of them comes, changes or goes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, ToSchema)]
pub struct Collections {
    /// Of the volumes.
    pub volumes: u64,
    /// Of the iSCSI targets.
    pub targets: u64,
    /// Of the HyperSCSI clients that are known.
    pub clients: u64,
    /// Of the sessions: it rises when one begins, ends, is paused or resumed.
    pub sessions: u64,
}

/// One thing that is not as file and command line say.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Deviation {
    /// What it is: `volume`, `target`, `mapping` (a volume in an iSCSI target), `client` or `access-state`.
    pub resource: String,
    /// Which.
    pub name: String,
    /// As it is configured; `None`: it is not.
    pub configured: Option<String>,
    /// As it is now; `None`: it was removed.
    pub now: Option<String>,
}

/// A volume that should be served and is not.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct MissingStatus {
    /// Its name.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// A group of ports as it is now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct GroupStatus {
    /// Its number: over iSCSI, the portal group's tag.
    pub group: u16,
    /// How its ports reach their units; `None` on the way from one state to another.
    pub state: Option<PortState>,
}

/// A volume as it is now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct VolumeStatus {
    /// Its identity, which stays when it gets another number: 32 hexadecimal digits.
    #[serde(default)]
    pub id: String,
    /// Rises when it changes: its length, its number, its medium, what it is and its protection level.
    #[serde(default)]
    pub revision: u64,
    /// Its name.
    pub name: String,
    /// Who has said that it is to be served.
    pub origin: Origin,
    /// Its HyperSCSI number.
    pub lun: u16,
    /// Its length.
    pub size_bytes: u64,
    /// Where its blocks live, as it was written: `file:/srv/disk0.img`.
    #[serde(default)]
    pub store: String,
    /// What its blocks take; `None` where the store is not thin, or cannot tell.
    #[serde(default)]
    pub used_bytes: Option<u64>,
    /// The logical block.
    pub block_bytes: u32,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Commands that wait until its store, which is full or gone, can do its work.
    #[serde(default)]
    pub waiting: u32,
    /// The protection level of its packets over HyperSCSI, HDSP and VISA, as in the key of a volume.
    pub security: String,
    /// Whether its content is neither deleted nor rolled back.
    #[serde(default)]
    pub protected: bool,
    /// The pool in which it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Who may derive volumes from it, besides those who may manage the server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<String>,
    /// What it is of another volume, if it is derived from one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub derived: Option<DerivedStatus>,
    /// Why it is not served, of a derived volume that should be: then nothing is known of it but what is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// An iSCSI target as it is now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TargetStatus {
    /// Rises when it changes: its volumes, who may use it, where it is, or the states of its portal groups.
    #[serde(default)]
    pub revision: u64,
    /// Its name.
    pub name: String,
    /// How it is set.
    #[serde(flatten)]
    pub terms: TargetTerms,
    /// Its volumes, by their numbers there.
    pub units: Vec<(u16, String)>,
    /// The portal groups through which it is reached.
    pub groups: Vec<GroupStatus>,
}

/// A client as it is known; its secret is not told.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ClientStatus {
    /// Rises when what it may do changes.
    #[serde(default)]
    pub revision: u64,
    /// What it is and may do.
    pub client: ClientConfig,
    /// Where it is said what it may do: by `ctl` when that differs from the configuration.
    #[serde(default)]
    pub origin: Origin,
    /// Whether it has a password of its own.
    pub has_password: bool,
    /// Where it is connected from; empty when it is not.
    pub addresses: Vec<String>,
}
