//! What was counted since the server started.

use std::collections::BTreeMap;

use sanwire_core::NexusId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::front::wire_name;
use crate::sessions::page_place;

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
    pub(in crate::manage) fn page_place(&self) -> u64 {
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
    /// How the data that came was brought to its place; of iSCSI, also by RDMA.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<DataStatistics>,
}

/// How the data that an initiator has sent was brought to its place.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DataStatistics {
    /// Bytes that have come into the frames of commands.
    pub placed_bytes: u64,
    /// Those of them that were received straight into the frame, without a copy.
    pub direct_bytes: u64,
    /// Bytes that were copied to come there, each as often as it was.
    pub copied_bytes: u64,
    /// What there is of RDMA, over iSER.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rdma: Option<RdmaStatistics>,
}

/// What a session has of RDMA.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RdmaStatistics {
    /// Keys of the initiator's memory that the server may use now.
    pub stags: u64,
    /// All that there have been.
    pub stags_ever: u64,
    /// Messages that the initiator may send now.
    pub credits: u64,
    /// Bytes of the longest FPDU that is sent; zero by an adapter.
    pub fpdu_max_bytes: u32,
    /// Bytes of TCP's segments (MSS), once they are known; by an adapter the most data of a packet on its path (path MTU), if it tells.
    #[serde(default)]
    pub segment_bytes: Option<u32>,
    /// The RDMA adapter of the server that carries it; null: iWARP over TCP, in software.
    #[serde(default)]
    pub adapter: Option<String>,
}
