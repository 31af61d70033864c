//! Sessions as rows for people and programs, alike for every wire.

use std::collections::BTreeMap;
use std::time::SystemTime;

use sanwire_core::NexusId;
use sanwire_device::LogicalUnits;
use sanwire_engine::NexusCount;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::client_counts::MovedByVolume;
use crate::counting::{Counted, Uses};
use crate::front::hyperscsi::clients::Clients;
use crate::front::{LoginStatus, wire_name};
use crate::past_uses::Host;
use crate::wall_time::written_seconds;

/// Volumes that a row names.
const NAMED_MAX: usize = 16;

/// A session (an I_T nexus).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SessionStatus {
    /// Its number in this run of the server, in hexadecimal digits, as in events.
    pub id: String,
    /// The protocol, as in the statistics.
    #[schema(schema_with = wire_name)]
    pub wire: String,
    /// Whose it is: a client by its id, or an initiator by its name.
    pub client: String,
    /// That of the sessions of this client together: it rises when one of them begins, ends, is paused or resumed.
    #[serde(default)]
    pub revision: u64,
    /// What people call the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What tells its initiator port from all others: of iSCSI the initiator's name, its ISID and the target, of HyperSCSI the client's
    /// id and the run of its program.
    pub port: String,
    /// The iSCSI target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The iSCSI portal to which it came: ADDR:PORT,GROUP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub portal: Option<String>,
    /// The CHAP user that its iSCSI initiator has shown to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Of iSER, by what it goes: `tcp` (iWARP in software) or `rdma` (an RDMA adapter).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iser_path: Option<String>,
    /// The RDMA adapter of the server that carries it, where iSER goes by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
    /// From where it came last.
    pub address: String,
    /// Its TCP connections, or the links of its HyperSCSI connection; none when it is expected to come again.
    pub connections: usize,
    /// How many volumes it has used.
    pub volumes: usize,
    /// The first of them.
    pub volume_names: Vec<String>,
    /// Since when, as in RFC 3339.
    pub since: String,
    /// Its protection: over HyperSCSI, HDSP and VISA the least of its packets, over iSCSI who has authenticated, and the digests.
    pub security: String,
    /// Whether its commands wait until it is resumed.
    pub paused: bool,
    /// Commands of it that have ended.
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
    /// The shard that serves it.
    pub shard: usize,
}

/// The place of a session among all that there are, by which pages of them begin: below 2^46, and in the order of their numbers.
pub(crate) fn page_place(session: NexusId) -> u64 {
    const COUNTER_BITS: u32 = 45;
    // The first bit tells sessions over connections from those over packets.
    let (is_stream, counter) = (session.0 >> (u64::BITS - 1), session.0 << 1 >> 1);
    is_stream << COUNTER_BITS | counter.min((1 << COUNTER_BITS) - 1)
}

/// What people call a protocol: iSCSI by RDMA has another name.
pub(crate) fn spoken<'a>(wire: &'a str, iser_path: Option<&str>) -> &'a str {
    if iser_path.is_some() { "iser" } else { wire }
}

impl SessionStatus {
    /// Its protocol, for people: they know iSCSI by RDMA by another name.
    #[must_use]
    pub fn spoken(&self) -> &str {
        spoken(&self.wire, self.iser_path.as_deref())
    }

    /// Its place in pages.
    pub(crate) fn page_place(&self) -> u64 {
        u64::from_str_radix(&self.id, 16).map_or(0, |number| page_place(NexusId(number)))
    }
}

/// What a shard knows of a session.
#[derive(Clone, Debug)]
pub(crate) struct SessionCount {
    pub(crate) nexus: NexusId,
    /// The name of its front end.
    pub(crate) wire: &'static str,
    pub(crate) host: Host,
    pub(crate) connections: usize,
    pub(crate) security: String,
    pub(crate) login: Option<LoginStatus>,
    pub(crate) since: SystemTime,
    pub(crate) uses: Uses,
    /// If each client is counted.
    pub(crate) moved: MovedByVolume,
    pub(crate) is_paused: bool,
    pub(crate) commands: NexusCount,
}

/// The rows of all sessions, by their numbers.
pub(crate) fn rows(
    counted: &[Counted],
    units: &LogicalUnits,
    clients: &Clients,
    revisions: &BTreeMap<Box<str>, u64>,
) -> Vec<SessionStatus> {
    let disks = units.iter();
    let names: BTreeMap<u16, &str> = disks.iter().map(|(_, disk)| (disk.slot(), disk.identity().name())).collect();
    let mut sessions: Vec<(usize, &SessionCount)> =
        counted.iter().flat_map(|shard| shard.sessions.iter().map(|session| (shard.shard, session))).collect();
    sessions.sort_by_key(|(_, session)| session.nexus);
    let row = |(shard, session): (usize, &SessionCount)| {
        let SessionCount { nexus, host, security, login, since, uses, .. } = session;
        let used: Vec<&str> = uses.slots().filter_map(|slot| names.get(&slot).copied()).collect();
        let client = host.owner().to_owned();
        SessionStatus {
            id: format!("{:x}", nexus.0),
            wire: session.wire.to_owned(),
            name: clients.find(&client).ok().map(|client| client.name).filter(|name| !name.is_empty()),
            // One that has begun meanwhile has none yet.
            revision: revisions.get(&*client).copied().unwrap_or_default(),
            client,
            port: host.port.clone(),
            target: host.target.clone(),
            portal: login.as_ref().map(|login| login.portal.clone()),
            user: login.as_ref().and_then(|login| login.user.clone()),
            iser_path: login.as_ref().and_then(|login| login.iser_path).map(str::to_owned),
            adapter: login.as_ref().and_then(|login| login.adapter.clone()),
            address: host.address.clone().unwrap_or_default(),
            connections: session.connections,
            volumes: used.len(),
            volume_names: used.into_iter().take(NAMED_MAX).map(str::to_owned).collect(),
            since: written_seconds(*since),
            security: security.clone(),
            paused: session.is_paused,
            commands: session.commands.commands,
            read_bytes: session.commands.read_bytes,
            written_bytes: session.commands.written_bytes,
            errors: session.commands.errors,
            shard,
        }
    };
    sessions.into_iter().map(row).collect()
}
