//! What an administrator may ask of a running server, and the answers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::front::hyperscsi::clients::{ClientConfig, ClientSettings};
use crate::manage::access::PortState;
use crate::registry::SessionStatus;

/// What is asked of a running server. As JSON: `{"do": "add-volume", "volume": "disk1=ram:1G"}`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// What is served, and where.
    Status,
    /// Who uses it by iSCSI.
    Sessions,
    /// Serve one more volume: `NAME=STORE[,KEY[=VALUE]]...`.
    AddVolume {
        /// The volume.
        volume: String,
        /// The iSCSI target that gets it as its next logical unit; without it, a target of its own.
        #[serde(default)]
        target: Option<String>,
        /// Whether it becomes another volume than it was: what is there is taken, or made anew, under an identity that no client
        /// knows.
        #[serde(default)]
        renew: bool,
        /// Whether what is there is taken for the volume that was served from it before, though it does not look so.
        #[serde(default)]
        adopt: bool,
    },
    /// Serve a volume no longer. Its content stays where it is.
    RemoveVolume {
        /// Its name.
        name: String,
        /// Whether that is done also while sessions use it.
        #[serde(default)]
        force: bool,
    },
    /// Make a volume longer.
    ResizeVolume {
        /// Its name.
        name: String,
        /// Its new length: `20G`.
        size: String,
    },
    /// Take the medium of a drive, or of a removable volume, out.
    EjectVolume {
        /// Its name.
        name: String,
        /// Whether that is done also while an initiator has locked it.
        #[serde(default)]
        force: bool,
    },
    /// Put the medium back, or another disc into a drive.
    LoadVolume {
        /// Its name.
        name: String,
        /// What is to be the disc, as the store of a volume: `file:PATH`.
        #[serde(default)]
        store: Option<String>,
    },
    /// Guard a volume's packets otherwise, while it is used.
    SetVolume {
        /// Its name.
        name: String,
        /// How, as in the key of a volume: `aes-128-gcm`.
        security: String,
    },
    /// Give a volume another HyperSCSI number, or make it a unit of an iSCSI target, which is made when there is none.
    MapVolume {
        /// Its name.
        name: String,
        /// The number; of a target's unit, the next free one when it is not said.
        #[serde(default)]
        lun: Option<u16>,
        /// The iSCSI target.
        #[serde(default)]
        target: Option<String>,
        /// Whether that is done also while sessions use it.
        #[serde(default)]
        force: bool,
    },
    /// Take a volume out of an iSCSI target. A target without units goes.
    UnmapVolume {
        /// Its name.
        name: String,
        /// The iSCSI target.
        target: String,
        /// Whether that is done also while sessions use it.
        #[serde(default)]
        force: bool,
    },
    /// The HyperSCSI clients that are known by their ids.
    Clients,
    /// Serve one more client, from wherever it comes; also one that was removed.
    AddClient {
        /// Its id, as `sanwire id` prints it.
        id: String,
        /// What it may do; by default, use all volumes.
        #[serde(default)]
        settings: ClientSettings,
        /// Whether that is done also when it takes volumes that it uses, or writing to them, away.
        #[serde(default)]
        force: bool,
    },
    /// Change what a client may do.
    SetClient {
        /// Its id or name.
        client: String,
        /// What changes.
        settings: ClientSettings,
        /// Whether that is done also when it takes volumes that it uses, or writing to them, away.
        #[serde(default)]
        force: bool,
    },
    /// Serve a client no longer, whatever else would permit it, until it is added again.
    RemoveClient {
        /// Its id or name.
        client: String,
        /// Whether that is done also when it takes volumes that it uses, or writing to them, away.
        #[serde(default)]
        force: bool,
    },
    /// Forget what was changed of a client while the server ran: the configuration holds again.
    ResetClient {
        /// Its id or name.
        client: String,
        /// Whether that is done also when it takes volumes that it uses, or writing to them, away.
        #[serde(default)]
        force: bool,
    },
    /// End the sessions of a client; it may come again.
    DropClient {
        /// Its id or name, or the name of an iSCSI initiator.
        client: String,
    },
    /// Let a HyperSCSI client wait: it stays connected and sends no commands, until it is told to go on.
    PauseClient {
        /// Its id or name.
        client: String,
    },
    /// Let a client go on.
    ResumeClient {
        /// Its id or name.
        client: String,
    },
    /// What was counted since the server started.
    Statistics,
    /// Put the ports of an iSCSI portal group into another state. Initiators of the targets are told.
    SetAccessState {
        /// The portal group's tag.
        group: u16,
        /// The state.
        state: PortState,
        /// One target; without it, all that are reached through the group.
        #[serde(default)]
        target: Option<String>,
    },
    /// Read the configuration again, and apply what differs.
    Reload {
        /// Whether that is done also when it takes volumes away from sessions that use them.
        #[serde(default)]
        force: bool,
        /// Only tell what differs, and what is in use of that.
        #[serde(default)]
        dry_run: bool,
    },
}

impl Request {
    /// Whether it changes anything, if it is done.
    #[must_use]
    pub fn is_change(&self) -> bool {
        let is_look = matches!(self, Request::Reload { dry_run: true, .. });
        !is_look && !matches!(self, Request::Status | Request::Sessions | Request::Clients | Request::Statistics)
    }
}

/// An answer on its way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Response {
    /// It was done.
    Done(Answer),
    /// It was not, for this reason.
    Refused(String),
}

/// What was done.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// To [`Request::Status`].
    Status(Status),
    /// To [`Request::Sessions`].
    Sessions(Vec<SessionStatus>),
    /// To [`Request::Clients`].
    Clients(Vec<ClientStatus>),
    /// To [`Request::Statistics`].
    Statistics(Statistics),
    /// What has changed, one line for each thing.
    Changed(Vec<String>),
}

impl Response {
    /// The response for who has room for so many bytes.
    pub(crate) fn to_json(&self, room_bytes: u32) -> Vec<u8> {
        let is_fitting = |json: &Vec<u8>| json.len() <= room_bytes as usize;
        let too_long = || serde_json::to_vec(&Response::Refused("the answer is too long".into())).ok();
        let json = serde_json::to_vec(self).ok().filter(is_fitting);
        json.or_else(|| too_long().filter(is_fitting)).unwrap_or_default()
    }
}

/// A server as it is now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// What clients call it.
    pub name: String,
    /// Where it listens.
    pub wires: Vec<String>,
    /// The volumes, by their numbers.
    pub volumes: Vec<VolumeStatus>,
    /// The iSCSI targets.
    pub targets: Vec<TargetStatus>,
    /// The port groups through which HyperSCSI clients reach the volumes.
    pub groups: Vec<GroupStatus>,
}

/// A group of ports as it is now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GroupStatus {
    /// Its number: over iSCSI, the portal group's tag.
    pub group: u16,
    /// How its ports reach their units; `None` on the way from one state to another.
    pub state: Option<PortState>,
}

/// A volume as it is now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeStatus {
    /// Its name.
    pub name: String,
    /// Its HyperSCSI number.
    pub lun: u16,
    /// Its length.
    pub size_bytes: u64,
    /// The logical block.
    pub block_bytes: u32,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Commands that wait until its store, which is full or gone, can do its work.
    #[serde(default)]
    pub waiting: u32,
    /// How its packets are guarded over HyperSCSI, as in the key of a volume.
    pub security: String,
}

/// An iSCSI target as it is now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TargetStatus {
    /// Its name.
    pub name: String,
    /// Its volumes, by their numbers there.
    pub units: Vec<(u16, String)>,
    /// The portal groups through which it is reached.
    pub groups: Vec<GroupStatus>,
}

/// A client as it is known; its secret is not told.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClientStatus {
    /// What it is and may do.
    pub client: ClientConfig,
    /// Whether it has a password of its own.
    pub has_password: bool,
    /// Where it is connected from; empty when it is not.
    pub addresses: Vec<String>,
}

/// What was counted since the server started.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Statistics {
    /// The volumes, by their numbers.
    pub volumes: Vec<VolumeStatistics>,
    /// The HyperSCSI connections there are now.
    pub connections: Vec<ConnectionStatistics>,
    /// HyperSCSI packets and messages that were not taken, by the reason in words.
    pub dropped: BTreeMap<String, u64>,
    /// What strangers, addresses, clients and sessions may hold, and how much of it they have used.
    #[serde(default)]
    pub quotas: Vec<QuotaStatistics>,
}

/// How one quota is used, over all shards.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
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
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
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
    /// Time from the command to its answer, at the server: the mean.
    pub latency_mean_us: u64,
    /// What half of the commands took at the most, to a factor of two.
    pub latency_median_us: u64,
    /// What 99 of 100 took at the most, to a factor of two.
    pub latency_p99_us: u64,
    /// What the slowest took.
    pub latency_max_us: u64,
}

/// What was counted of one connection, or of a session over streams.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ConnectionStatistics {
    /// Over which wire: `hyperscsi` or `iscsi`.
    #[serde(default)]
    pub wire: String,
    /// Who: a client by its id, or an initiator by its name.
    pub client: String,
    /// From where.
    pub address: String,
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
