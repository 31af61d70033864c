//! Who gives commands.

use std::sync::Arc;

use sanwire_buffer::{Region, Slice, Slices};
use sanwire_core::{ClientId, Instant, Lun, NexusId, Principal};
use sanwire_device::NexusPorts;
use sanwire_scsi::reservation::TransportId;
use sanwire_scsi::vpd::TargetPort;
use sanwire_scsi::{Cdb, Extent, Task, build};

use super::oracle::Asked;
use crate::content::{BLOCK_BYTES, fill};

/// What a command does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// READ (16).
    Read,
    /// WRITE (16), perhaps with FUA.
    Write {
        /// Stable when answered.
        is_stable: bool,
    },
    /// COMPARE AND WRITE, of blocks that hold this version.
    Swap {
        /// What is there before.
        expected: u64,
    },
    /// SYNCHRONIZE CACHE (16).
    Flush,
    /// TEST UNIT READY.
    Ready,
    /// PERSISTENT RESERVE OUT, REGISTER AND IGNORE EXISTING KEY.
    Register {
        /// Its own key.
        key: u64,
    },
    /// PERSISTENT RESERVE OUT, PREEMPT AND ABORT.
    Preempt {
        /// Its own key.
        key: u64,
        /// Whose commands are to be ended.
        victim: u64,
    },
}

/// An initiator port.
pub struct Initiator {
    /// Its names.
    pub ports: Arc<NexusPorts>,
    /// Its key for reservations.
    pub key: u64,
    /// Its nexus.
    pub nexus: NexusId,
    /// The shard that has it.
    pub shard: usize,
    /// How many commands it has still to give.
    pub left: u64,
    /// When it does something next.
    pub next_at: Instant,
}

impl Initiator {
    /// The ports of the initiator with this number.
    #[must_use]
    pub fn ports(number: usize) -> Arc<NexusPorts> {
        let initiator = TransportId::hyperscsi(ClientId([number as u8 + 1; 16]));
        Arc::new(NexusPorts { initiator, target: TargetPort::default(), principal: Principal::default() })
    }
}

/// A command as a task, its data in memory of this share; `None`: there is none.
#[must_use]
pub fn task(asked: &Asked, share: &Region) -> Option<Task> {
    let Asked { command, disk, kind, lba, blocks } = *asked;
    let extent = Extent { lba, blocks: blocks as u32 };
    let bytes = blocks as usize * BLOCK_BYTES;
    let number = command.number;
    let (cdb, data_out, room_bytes) = match kind {
        Kind::Read => (build::read_16(extent), None, bytes),
        Kind::Write { is_stable } => {
            let mut frame = share.frame(bytes)?;
            fill(&mut frame, lba, number);
            (build::write_16(extent, is_stable), Some(in_pieces(&frame.freeze(), number)), 0)
        }
        Kind::Swap { expected } => {
            let mut frame = share.frame(2 * bytes)?;
            let (compared, written) = frame.split_at_mut(bytes);
            fill(compared, lba, expected);
            fill(written, lba, number);
            (compare_and_write(extent), Some(in_pieces(&frame.freeze(), number)), 0)
        }
        Kind::Flush => (build::synchronize_cache_16(extent), None, 0),
        Kind::Ready => (build::test_unit_ready(), None, 0),
        Kind::Register { key } => reserve(6, 0, key),
        Kind::Preempt { key, victim } => reserve(5, key, victim),
    };
    Some(Task {
        lun: Lun::new(disk as u16),
        cdb,
        data_out,
        tells_residual: false,
        piece: None,
        receipts: 0,
        data_in_max_bytes: room_bytes as u32,
        may_share: true,
    })
}

/// The data of a command as it might have come: in up to three pieces, which need not end where blocks do.
fn in_pieces(data: &Slice, number: u64) -> Slices {
    let pieces = number as usize % 3 + 1;
    let border = |piece: usize| data.len() * piece / pieces;
    Slices::join((0..pieces).map(|piece| data.slice(border(piece)..border(piece + 1))))
        .unwrap_or_else(|| data.clone().into())
}

/// COMPARE AND WRITE (SBC-4 5.3).
fn compare_and_write(extent: Extent) -> Cdb {
    let mut cdb = [0; 16];
    cdb[0] = 0x89;
    cdb[2..10].copy_from_slice(&extent.lba.to_be_bytes());
    cdb[13] = extent.blocks as u8;
    Cdb::from(cdb)
}

/// PERSISTENT RESERVE OUT (SPC-5 6.16), of type write exclusive, with its parameters.
fn reserve(action: u8, key: u64, action_key: u64) -> (Cdb, Option<Slices>, usize) {
    let mut parameters = vec![0; 24];
    parameters[..8].copy_from_slice(&key.to_be_bytes());
    parameters[8..16].copy_from_slice(&action_key.to_be_bytes());
    (Cdb::from([0x5f, action, 1, 0, 0, 0, 0, 0, 24, 0]), Some(in_pieces(&parameters.into(), key)), 0)
}
