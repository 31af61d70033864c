//! Who is measured, and with which requests.

use crate::bed::Bed;
use crate::load::{ClientCommand, Load};
use crate::sample::{Measure, Row, median};
use crate::servers::Wire;

/// The server's.
pub(super) const WIRES: [Wire; 2] = [Wire::Iscsi("10.99.0.2:3260"), Wire::Iser("10.99.0.2:3261")];

/// Bytes of requests.
pub(super) const SIZES: [u32; 12] =
    [512, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20];

/// How a client speaks with the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Contender {
    Iscsi,
    /// With digests of headers and of data.
    Digests,
    Iser,
}

impl Contender {
    pub(super) const ALL: [Contender; 3] = [Contender::Iscsi, Contender::Digests, Contender::Iser];

    pub(super) fn name(self) -> &'static str {
        match self {
            Contender::Iscsi => "iSCSI",
            Contender::Digests => "iSCSI digests",
            Contender::Iser => "iSER",
        }
    }

    /// As metrics call it.
    pub(super) fn transport(self) -> &'static str {
        match self {
            Contender::Iscsi | Contender::Digests => "TCP",
            Contender::Iser => "RDMA",
        }
    }

    /// What puts the load on the volume.
    pub(super) fn client(self, bed: &Bed, load: &Load, volume: &str) -> ClientCommand {
        let wire = if self == Contender::Iser { WIRES[1] } else { WIRES[0] };
        bed.client_over(wire, load, volume, if self == Contender::Digests { " --digests" } else { "" })
    }
}

/// Reads of every size, then writes.
pub(super) fn loads(depth: u16) -> impl Iterator<Item = Load> {
    [false, true].into_iter().flat_map(move |is_write| SIZES.map(|bytes| Load::sequential(bytes, depth, is_write)))
}

/// A size in few letters.
pub(super) fn size_name(bytes: u32) -> String {
    if bytes < 1024 { bytes.to_string() } else { format!("{}K", bytes / 1024) }
}

/// The links that were measured.
pub(super) fn mtus(rows: &[Row]) -> Vec<u32> {
    let mut mtus: Vec<u32> = rows.iter().map(|row| row.mtu_bytes).collect();
    mtus.dedup();
    mtus
}

/// The median of a contender's rounds on a link.
pub(super) fn value(rows: &[Row], mtu_bytes: u32, contender: Contender, load: &Load, measure: Measure) -> Option<f64> {
    let on_link = rows.iter().filter(|row| row.mtu_bytes == mtu_bytes);
    median(on_link, contender.name(), &load.name(), measure)
}

/// iSER in terms of another one.
pub(super) fn ratio(rows: &[Row], mtu_bytes: u32, other: Contender, load: &Load, measure: Measure) -> Option<f64> {
    let value = |contender| value(rows, mtu_bytes, contender, load, measure);
    Some(value(Contender::Iser)? / value(other).filter(|value| *value > 0.0)?)
}
