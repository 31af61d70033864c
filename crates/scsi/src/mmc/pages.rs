//! The mode pages of a drive, but for the control page, which all types have (MMC-6 7).

use crate::bytes::put;
use crate::mode::PageValues;

/// How errors of the medium are dealt with, as initiators wish: there are none from which one could recover, so it is only kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ErrorRecovery {
    /// TB, RC, PER, DTE and DCR, as they stand in byte 2.
    pub flags: u8,
    /// READ RETRY COUNT.
    pub read_retries: u8,
}

impl Default for ErrorRecovery {
    fn default() -> Self {
        ErrorRecovery { flags: 0, read_retries: 5 }
    }
}

impl ErrorRecovery {
    /// What a page of a parameter list says.
    #[must_use]
    pub fn of_page(page: &[u8]) -> Option<Self> {
        let [_, _, flags, read_retries, ..] = *page else { return None };
        Some(ErrorRecovery { flags, read_retries })
    }

    fn page(self) -> Vec<u8> {
        vec![0x01, 10, self.flags, self.read_retries, 0, 0, 0, 0, 0, 0, 0, 0]
    }
}

/// The mode page of the recovery of errors.
#[must_use]
pub fn recovery_page(current: ErrorRecovery) -> PageValues {
    let changeable = ErrorRecovery { flags: 0x37, read_retries: 0xff };
    PageValues { current: current.page(), default: ErrorRecovery::default().page(), changeable: changeable.page() }
}

/// The mode page of power conditions: none is entered by itself.
#[must_use]
pub fn power_page() -> PageValues {
    fixed(vec![0x1a, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
}

/// The mode page of timeouts: how long the commands of each group may take, in seconds.
#[must_use]
pub fn timeout_page() -> PageValues {
    const GROUP_1_S: u8 = 30;
    const GROUP_2_S: u8 = 60;
    fixed(vec![0x1d, 8, 0, 0, 0, 0, 0, GROUP_1_S, 0, GROUP_2_S])
}

/// The mode page of capabilities and mechanical status (MMC-3 5.5.10): what drivers ask for that know no features.
#[must_use]
pub fn capabilities_page(is_locked: bool) -> PageValues {
    /// 48 times the speed of an audio CD, in kB/s.
    const SPEED: u16 = 8468;
    let mut page = vec![0; 26];
    put(&mut page, 0, [0x2a, 24]);
    page[2] = 0x08 | 0x02 | 0x01; // reads DVD-ROM, CD-RW, CD-R
    page[6] = 0x20 | 0x08 | 0x01 | u8::from(is_locked) << 1; // a tray, which ejects and locks
    put(&mut page, 8, SPEED.to_be_bytes());
    put(&mut page, 12, 512_u16.to_be_bytes()); // KiB of buffer
    put(&mut page, 14, SPEED.to_be_bytes());
    fixed(page)
}

/// One of which nothing can be changed.
fn fixed(page: Vec<u8>) -> PageValues {
    let mut changeable = vec![0; page.len()];
    changeable[..2].copy_from_slice(&page[..2]);
    PageValues { default: page.clone(), current: page, changeable }
}
