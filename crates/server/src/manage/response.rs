//! What an administrator is answered.

use std::collections::BTreeMap;

use sanwire_core::NexusId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::access::PortState;
use super::audit::AuditLines;
use super::configuration::ConfigurationStatus;
use super::jobs::JobStatus;
use super::links::LinkStatus;
use super::metrics::MetricsText;
use super::page::AnswerPage;
use super::refusal::Refusal;
use super::reservations::ReservationsStatus;
use super::run_status::RunStatus;
use crate::config::Origin;
use crate::events::Events;
use crate::front::hyperscsi::clients::ClientConfig;
use crate::front::wire_name;
use crate::pools::{PoolStatus, SnapshotStatus};
use crate::sessions::{SessionStatus, page_place};

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
    /// To [`super::Request::Sessions`].
    Sessions(Vec<SessionStatus>),
    /// To [`super::Request::Links`].
    Links(Vec<LinkStatus>),
    /// To [`super::Request::Configuration`].
    Configuration(Box<ConfigurationStatus>),
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
    /// What it is: `volume`, `mapping` (a volume in an iSCSI target), `client` or `access-state`.
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
    /// Rises when it changes: its length, its number, its medium, what it is and how it is guarded.
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
    /// How its packets are guarded over HyperSCSI, as in the key of a volume.
    pub security: String,
    /// Whether its content is neither deleted nor rolled back.
    #[serde(default)]
    pub protected: bool,
    /// The pool in which it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

/// An iSCSI target as it is now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TargetStatus {
    /// Rises when it changes: its volumes, who may use it, where it is, or the states of its portal groups.
    #[serde(default)]
    pub revision: u64,
    /// Its name.
    pub name: String,
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

/// What was counted since the server started.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Statistics {
    /// The volumes, by their numbers.
    pub volumes: Vec<VolumeStatistics>,
    /// The connections there are now, by the numbers of their sessions.
    pub connections: Vec<ConnectionStatistics>,
    /// HyperSCSI packets and messages that were dropped, by the reason.
    pub dropped: BTreeMap<String, u64>,
    /// What strangers, addresses, clients and sessions may hold, and how much of it they have used.
    #[serde(default)]
    pub quotas: Vec<QuotaStatistics>,
}

/// How one quota is used, over all shards.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct QuotaStatistics {
    /// Whose share it bounds: `strangers`, `address`, `client`, `session`, `shard` or `server`.
    pub holder: String,
    /// What is held or done.
    pub name: String,
    /// How much of it each holder may have.
    pub limit: u64,
    /// In what: `held`, `bytes`, `per second` or `per minute`.
    pub unit: String,
    /// The most that one holder has had at once; `None` of rates.
    pub most: Option<u64>,
    /// How often somebody was refused more.
    pub refused: u64,
}

/// What was counted of one volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct VolumeStatistics {
    /// Its name.
    pub name: String,
    /// Commands that are over.
    pub commands: u64,
    /// Bytes that initiators were given.
    pub read_bytes: u64,
    /// Bytes that they gave.
    pub written_bytes: u64,
    /// Commands that failed, or were aborted.
    pub errors: u64,
    /// What its store has failed with, by the kinds of errors: how often, each time that it was asked.
    #[serde(default)]
    pub store_errors: BTreeMap<String, u64>,
    /// How its store is reached, when that is elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<RemoteStatistics>,
    /// Time from a read, write or flush to its answer, at the server: the mean.
    pub latency_mean_us: u64,
    /// What half of them took at the most, to 25 %.
    pub latency_median_us: u64,
    /// What 99 of 100 took at the most, to 25 %.
    pub latency_p99_us: u64,
    /// What the slowest took.
    pub latency_max_us: u64,
}

impl ConnectionStatistics {
    /// The place of its session in pages.
    pub(super) fn page_place(&self) -> u64 {
        u64::from_str_radix(&self.session, 16).map_or(0, |number| page_place(NexusId(number)))
    }
}

/// How a store that is elsewhere is reached, since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RemoteStatistics {
    /// Whether it can be reached, as far as is known.
    pub reachable: bool,
    /// How often it was gone.
    pub times_gone: u64,
    /// How often it was there again.
    pub reconnects: u64,
    /// Requests that it has not ended, also those that wait for it to be there again.
    pub requests: u64,
}

/// What was counted of one connection, or of a session over streams.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ConnectionStatistics {
    /// Over which wire.
    #[serde(default)]
    #[schema(schema_with = wire_name)]
    pub wire: String,
    /// Who: a client by its id, or an initiator by its name.
    pub client: String,
    /// From where.
    pub address: String,
    /// The number of its session, in hexadecimal digits.
    #[serde(default)]
    pub session: String,
    /// The shard that serves it.
    pub shard: usize,
    /// Commands of its session that have ended.
    #[serde(default)]
    pub commands: u64,
    /// Bytes that they have read.
    #[serde(default)]
    pub read_bytes: u64,
    /// Bytes that they have written.
    #[serde(default)]
    pub written_bytes: u64,
    /// Commands that failed or were aborted.
    #[serde(default)]
    pub errors: u64,
    /// Bytes that its TCP connections have sent, with all that the protocol adds, also while they logged in; zero of packets.
    #[serde(default)]
    pub sent_bytes: u64,
    /// Bytes that they have received.
    #[serde(default)]
    pub received_bytes: u64,
    /// Packets that went to the client; of streams, which have none, this and what follows is zero.
    pub sent_packets: u64,
    /// Packets that came.
    pub received_packets: u64,
    /// Data packets that were sent again.
    pub resent_packets: u64,
    /// How often nothing was acknowledged in time, and the client was asked what has come.
    pub timeouts: u64,
    /// Packets that may be in flight to the client.
    pub window_out_packets: u32,
    /// Packets that may be in flight from it.
    pub window_in_packets: u32,
    /// The round trip, once it was measured.
    pub round_trip_us: Option<u64>,
}
