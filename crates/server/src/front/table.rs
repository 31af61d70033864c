//! The front ends that there are: the one place that names them all.

use std::sync::Arc;

use sanwire_buffer::Region;
use sanwire_device::LogicalUnits;
use sanwire_io::STEERING_OFFSET_BYTES;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};

use super::{FrontBuilder, LoginService, TallyFamily, aoe, copies, hdsp, hyperscsi, iscsi, visa};
use crate::config::ServerConfig;
use crate::error::StartError;
use crate::front::aoe::addresses::Addresses;
use crate::front::copies::Copiers;
use crate::front::hdsp::disks::Disks;
use crate::front::hyperscsi::clients::Clients;
use crate::front::iscsi::directory::TargetNodes;
use crate::link::PortTerms;
use crate::management_queue::ManagementQueue;
use crate::messages::Mailbox;
use crate::protection_table::ProtectionTable;
use crate::wire::{Carrier, WireKind};

/// Where the data of HDSP's packets begins, which goes to disks as it came. All wires of an interface share one memory, so others have it
/// there as well.
pub(crate) const DATA_AT: usize = hdsp::DATA_AT;

/// The flag R of the first byte of both HDSP's and AoE's packets.
const ANSWER: u8 = 0x08;

/// What the front ends of a shard are made of.
pub(crate) struct FrontParts<'a> {
    pub(crate) config: &'a ServerConfig,
    /// The ports of the front end.
    pub(crate) ports: Vec<PortTerms>,
    pub(crate) shard: u32,
    /// The memory of the shard.
    pub(crate) memory: Region,
    pub(crate) clients: &'a Arc<Clients>,
    pub(crate) levels: &'a Arc<ProtectionTable>,
    pub(crate) targets: &'a Arc<TargetNodes>,
    pub(crate) addresses: &'a Arc<Addresses>,
    pub(crate) disks: &'a Arc<Disks>,
    pub(crate) units: &'a Arc<LogicalUnits>,
    /// Where jobs have copies made.
    pub(crate) copiers: &'a Copiers,
    /// Which run of the server this is.
    pub(crate) instance: u64,
    /// Where requests to manage the server go.
    pub(crate) inbox: &'a ManagementQueue,
    /// The way to the shard.
    pub(crate) home: &'a Mailbox,
}

type Open = fn(&FrontParts<'_>) -> Result<FrontBuilder, StartError>;

/// By their places in each shard.
const FRONTS: [Open; 6] = [hyperscsi::open, iscsi::open, aoe::open, hdsp::open, visa::open, copies::open];

/// What the protocols are called, by their places in each shard; the last one, that of the server's own copies, has no wire.
pub(crate) const PROTOCOLS: [&str; FRONTS.len()] =
    [hyperscsi::NAME, iscsi::NAME, aoe::NAME, hdsp::NAME, visa::NAME, copies::NAME];

/// How the name of a protocol is described to programs: all that there are.
pub(crate) fn wire_name() -> Schema {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .enum_values(Some(PROTOCOLS))
        .description(Some("The protocol."))
        .into()
}

/// The place of HyperSCSI.
const HYPERSCSI: u8 = 0;
/// The place of iSCSI.
const ISCSI: u8 = 1;
/// The place of ATA over Ethernet.
const AOE: u8 = 2;
/// The place of HDSP.
const HDSP: u8 = 3;
/// The place of VISA.
const VISA: u8 = 4;

/// The wires: their words on the command line and in the configuration, their schemes in URLs, and what they go by.
pub(crate) static WIRES: [WireKind; 8] = [
    WireKind {
        word: "hs-eth",
        scheme: "hs+eth",
        carrier: Carrier::Ethernet {
            ethertype: hyperscsi::ETHERTYPE,
            word_at: STEERING_OFFSET_BYTES,
            answer_bits: 0,
            keeps_packets: false,
        },
        also: None,
        front: HYPERSCSI,
        listener: "server",
        is_for_clients: true,
        has_shelves: false,
        has_disk_addresses: false,
    },
    WireKind {
        word: "hs-ip",
        scheme: "hs+ip",
        carrier: Carrier::Datagrams { port: hyperscsi::UDP_PORT, may_fragment: false },
        also: None,
        front: HYPERSCSI,
        listener: "server",
        is_for_clients: true,
        has_shelves: false,
        has_disk_addresses: false,
    },
    WireKind {
        word: "iscsi",
        scheme: "iscsi",
        carrier: Carrier::Streams { port: iscsi::PORT, is_rdma: false },
        also: None,
        front: ISCSI,
        listener: "target",
        is_for_clients: false,
        has_shelves: false,
        has_disk_addresses: false,
    },
    WireKind {
        word: "iser",
        scheme: "iser",
        carrier: Carrier::Streams { port: iscsi::PORT, is_rdma: true },
        also: None,
        front: ISCSI,
        listener: "target",
        is_for_clients: false,
        has_shelves: false,
        has_disk_addresses: false,
    },
    WireKind {
        word: "aoe",
        scheme: "aoe",
        carrier: Carrier::Ethernet {
            ethertype: aoe::ETHERTYPE,
            word_at: aoe::WORD_AT,
            answer_bits: ANSWER,
            keeps_packets: false,
        },
        also: None,
        front: AOE,
        listener: "target",
        is_for_clients: false,
        has_shelves: true,
        has_disk_addresses: false,
    },
    WireKind {
        word: "hdsp",
        scheme: "hdsp",
        carrier: Carrier::Ethernet {
            ethertype: hdsp::ETHERTYPE,
            word_at: hdsp::WORD_AT,
            answer_bits: ANSWER,
            keeps_packets: true,
        },
        also: None,
        front: HDSP,
        listener: "server",
        is_for_clients: true,
        has_shelves: false,
        has_disk_addresses: true,
    },
    WireKind {
        word: "visa",
        scheme: "visa",
        carrier: Carrier::Datagrams { port: visa::PORT, may_fragment: true },
        also: Some("visa-tcp"),
        front: VISA,
        listener: "server",
        is_for_clients: true,
        has_shelves: false,
        has_disk_addresses: false,
    },
    WireKind {
        word: "visa-tcp",
        scheme: "visa+tcp",
        carrier: Carrier::Streams { port: visa::PORT, is_rdma: false },
        also: None,
        front: VISA,
        listener: "server",
        is_for_clients: true,
        has_shelves: false,
        has_disk_addresses: false,
    },
];

/// Where a server listens that is not told: over UDP.
pub(crate) static WIRE_DEFAULT: &WireKind = &WIRES[1];

/// Prepares the front ends of a shard; `ports` gives those of each.
pub(crate) fn builders(
    mut parts: FrontParts<'_>,
    ports: impl Fn(u8) -> Vec<PortTerms>,
) -> Result<Vec<FrontBuilder>, StartError> {
    let mut builders = Vec::new();
    for (place, open) in (0..).zip(FRONTS) {
        parts.ports = ports(place);
        builders.push(open(&parts)?);
    }
    Ok(builders)
}

/// As what the results of logins are told, of each front end that has any.
pub(crate) static LOGIN_RESULTS: [&TallyFamily; 2] = [&iscsi::LOGIN_RESULTS, &visa::LOGIN_RESULTS];

/// The logins of a port at which these are spoken, if connections begin with one there.
pub(crate) fn logins(
    kinds: &[&WireKind],
    targets: &Arc<TargetNodes>,
    (clients, shards): (&Arc<Clients>, usize),
) -> Option<Arc<dyn LoginService>> {
    let front = kinds.first()?.front;
    let takes = |is_rdma| kinds.iter().any(|kind| kind.is_rdma() == is_rdma);
    match front {
        ISCSI => {
            let spoken = iscsi::Spoken { plain: takes(false), rdma: takes(true) };
            Some(Arc::new(iscsi::Logins { front, spoken, targets: Arc::clone(targets) }))
        }
        VISA => Some(Arc::new(visa::Greetings { front, clients: Arc::clone(clients), shards })),
        _ => None,
    }
}
