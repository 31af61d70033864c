//! What a session by HDSP begins with, and what is said when there is none.

use std::time::Duration;

use sanwire_core::limits::TRANSFER_MAX_BYTES;
use sanwire_core::{Instant, LinkId, Path};
use sanwire_hdsp::wire::{DiskType, ErrorCode};
use sanwire_hdsp::{ClientConfig, LinkLimits, ServerInfo as WireServer};
use sanwire_hyperscsi::Failure as WireFailure;
use sanwire_scsi::{AdditionalSense, Sense, SenseKey};

use super::ata::AtaDisk;
use super::{COMMANDS_MAX, SERVER_ADDRESS};
use crate::endpoint::ConnectError;
use crate::options::{ClientOptions, no_randomness};
use crate::ports::Ports;
use crate::random;
use crate::session::{Failure, NO_PASSWORD, ServerInfo};
use crate::url::{HdspServer, Station};
use crate::volume::WireUnit;

/// How commands are given.
pub(super) enum Form {
    /// As they are.
    Scsi,
    /// To the server as a whole: each with the LUN before it.
    WithLun,
    /// As commands of an ATA disk.
    Ata(Box<AtaDisk>),
}

/// N: packets of a group, to begin with.
const GROUP_PACKETS: u16 = 32;

/// The end of the protocol never loses its patience: that is watched where it is known for how long commands may wait.
const PATIENCE_OF_PROTOCOL: Duration = Duration::from_secs(100 * 365 * 86_400);

/// What a session with this volume needs; without one, with the server as a whole.
pub(super) fn config(
    server: &HdspServer,
    volume: Option<&str>,
    options: &ClientOptions,
    (ports, places): (&Ports, Vec<Path>),
) -> Result<ClientConfig, ConnectError> {
    let limits = |place: &Path| {
        let window_packets = ports.end(place.link).receive_capacity_packets.max(1);
        LinkLimits { packet_max_bytes: packet_max_bytes(ports, place.link), window_packets }
    };
    let count = places.iter().map(|place| usize::from(place.link.0) + 1).max().unwrap_or(0);
    let mut links = vec![LinkLimits { packet_max_bytes: 1500, window_packets: 32 }; count];
    places.iter().for_each(|place| links[usize::from(place.link.0)] = limits(place));
    let address = volume.and_then(|volume| volume.strip_prefix('@')).and_then(|address| address.parse().ok());
    let (volume, disk_address) = match (volume, address) {
        (_, Some(address)) => (String::new(), address),
        (Some(name), None) => (name.to_owned(), 0),
        (None, None) => (String::new(), SERVER_ADDRESS),
    };
    Ok(ClientConfig {
        identity: options.identity.clone(),
        psk: options.psk,
        server_name: server.name().to_owned(),
        server_key: options.server_key,
        disk_type: if disk_address == SERVER_ADDRESS { DiskType::Any } else { options.disk_type },
        volume,
        disk_address,
        protection: options.protection_min,
        links,
        places,
        group_packets: GROUP_PACKETS,
        patience: PATIENCE_OF_PROTOCOL,
        seed: random::bytes().map_err(no_randomness)?,
    })
}

/// What is told of the server.
pub(super) fn info(server: &WireServer, ports: &Ports) -> ServerInfo {
    ServerInfo {
        name: server.name.clone(),
        commands_max: COMMANDS_MAX,
        transfer_max_bytes: server.transfer_max_bytes.min(TRANSFER_MAX_BYTES as u32),
        transfer_limit_bytes: server.transfer_max_bytes,
        unit: WireUnit::Packet(ports.end(server.path.link).packet_max_bytes),
        public_key: Some(server.key),
        rate_cap_bytes_per_second: None,
    }
}

/// The largest packet that a link takes now; 0 where it is not there.
pub(super) fn packet_max_bytes(ports: &Ports, link: LinkId) -> u16 {
    u16::try_from(ports.end(link).packet_max_bytes).unwrap_or(u16::MAX)
}

/// When patience that begins now ends; `None`: never.
pub(super) fn deadline(now: Instant, patience: Duration) -> Option<Instant> {
    (patience < PATIENCE_OF_PROTOCOL).then(|| now + patience)
}

/// Nobody has answered.
pub(super) fn no_answer() -> Failure {
    Failure::NoAnswer(
        "no HDSP server answered; it may be down, on another Ethernet, or not be configured to serve this client: \
         `sanwire id` prints the id that its `allow` or a `[[client]]` must name"
            .to_owned(),
    )
}

/// What a client has shown, and what it was shown: the reasons for which no connection comes about.
pub(super) struct Trust {
    /// Whose key the server must have.
    pinned: Option<[u8; 32]>,
    /// Who has answered instead, since there was a connection.
    other_server: Option<[u8; 32]>,
    has_no_password: bool,
}

impl Trust {
    pub(super) fn new(options: &ClientOptions) -> Self {
        Trust { pinned: options.server_key, other_server: None, has_no_password: options.psk == NO_PASSWORD }
    }

    /// There is a connection with the right one.
    pub(super) fn note_server(&mut self) {
        self.other_server = None;
    }

    pub(super) fn note_other_server(&mut self, key: [u8; 32]) {
        self.other_server = Some(key);
    }

    /// Why the right server has not answered.
    pub(super) fn silence(&self) -> Failure {
        match (self.pinned, self.other_server) {
            (Some(pinned), Some(received)) => Failure::OtherServer { pinned, received },
            _ => no_answer(),
        }
    }

    /// Why the server does not want us.
    pub(super) fn refusal(&self, reason: ErrorCode) -> Failure {
        let what = match reason {
            ErrorCode::NoSuchDisk => {
                "the server has no such volume for this client: `sanwire ls` with the URL of the server lists those that it has"
            }
            ErrorCode::DiskType => "the volume does not take commands of this type: leave --disk-type out",
            ErrorCode::Full => return Failure::Full,
            ErrorCode::UnknownConnection => "the server has ended the session",
            ErrorCode::NotAuthentic if self.has_no_password => return WireFailure::NoPassword.into(),
            ErrorCode::NotAuthentic => return WireFailure::WrongPassword.into(),
            ErrorCode::Parameters => "one end demands what the other does not take",
            ErrorCode::Closing => "the server ends",
        };
        Failure::Refused(what.to_owned())
    }
}

/// Whether sense data says that somebody else has the unit now, perhaps for a while that is over.
pub(super) fn tells_of_preemption(sense: &[u8]) -> bool {
    let told = [AdditionalSense::RESERVATIONS_PREEMPTED, AdditionalSense::REGISTRATIONS_PREEMPTED];
    Sense::parse(sense).is_some_and(|sense| sense.key == SenseKey::UnitAttention && told.contains(&sense.additional))
}

impl HdspServer {
    /// Whether it is sought by its name.
    pub(super) fn is_named(&self) -> bool {
        matches!(self.server, Station::Name(_))
    }
}
