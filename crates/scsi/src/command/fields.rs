//! The fields of a CDB whose length has been checked: what lies outside cannot be.

use super::{Extent, StartStop};
use crate::bytes::{u16_at, u24_at, u32_at, u64_at};
use crate::task::Cdb;

pub(super) struct Fields<'a>(pub(super) &'a Cdb);

impl Fields<'_> {
    /// LBA and length, whose places follow from the group of the code (SPC-5 4.2.2).
    pub(super) fn extent(&self, code: u8) -> Extent {
        match code >> 5 {
            0 => {
                let lba = u24_at(self.0, 1).unwrap_or(0);
                // SBC-4 5.15: zero means 256 blocks, in the six-byte commands only.
                let blocks = if self.byte(4) == 0 { 256 } else { self.byte(4).into() };
                Extent { lba: lba.into(), blocks }
            }
            1 | 2 => Extent { lba: self.u32(2).into(), blocks: self.u16(7).into() },
            4 => Extent { lba: self.u64(2), blocks: self.u32(10) },
            _ => Extent { lba: self.u32(2).into(), blocks: self.u32(6) },
        }
    }

    pub(super) fn byte(&self, at: usize) -> u8 {
        self.0.get(at).copied().unwrap_or(0)
    }

    pub(super) fn bit(&self, at: usize, bit: u8) -> bool {
        self.byte(at) & (1 << bit) != 0
    }

    pub(super) fn u16(&self, at: usize) -> u16 {
        u16_at(self.0, at).unwrap_or(0)
    }

    pub(super) fn u32(&self, at: usize) -> u32 {
        u32_at(self.0, at).unwrap_or(0)
    }

    /// START STOP UNIT, which is the same for all types that have it.
    pub(super) fn start_stop(&self) -> StartStop {
        StartStop {
            power_condition: self.byte(4) >> 4,
            no_flush: self.bit(4, 2),
            load_eject: self.bit(4, 1),
            start: self.bit(4, 0),
        }
    }

    /// A service action.
    pub(super) fn action(&self) -> u8 {
        self.byte(1) & 0x1f
    }

    pub(super) fn u64(&self, at: usize) -> u64 {
        u64_at(self.0, at).unwrap_or(0)
    }
}
