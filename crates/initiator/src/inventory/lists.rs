//! All units of a server, and all its volumes.

use sanwire_core::Lun;
use sanwire_core::limits::TRANSFER_MAX_BYTES;
use sanwire_scsi::vpd::{self, page};
use sanwire_scsi::{StandardInquiry, build, report};

use super::asker::{ANSWER_BYTES, Asker};
use super::{
    CAPACITY_BYTES, INQUIRY_BYTES, MODE_BYTES, VolumeSummary, inquiry, is_disk, mode_sense, standard_inquiry, volume,
};
use crate::driver::{Driver, OwnCommand};
use crate::endpoint::ConnectError;

/// So many units are asked at once: as many commands as a connection has under way, and few answers to keep.
pub(super) const UNITS_AT_ONCE: usize = 32;

/// Entries of a list of units for which there is room at first.
const LUNS_USUAL: usize = 256;

/// How often the list of units is read again because it has grown meanwhile.
const LISTS_MAX: usize = 4;

/// Asks the server for all its volumes.
pub(crate) fn volumes(driver: &mut Driver, server: &str) -> Result<Vec<VolumeSummary>, ConnectError> {
    let asker = &mut Asker::new(driver, server);
    let mut volumes = Vec::new();
    for luns in report_luns(asker)?.chunks(UNITS_AT_ONCE) {
        if luns.len() > 1 {
            look_ahead(asker, luns);
        }
        for &lun in luns {
            if is_disk(asker, lun)? {
                volumes.push(volume(asker, lun)?);
            }
        }
        asker.forget_ahead();
    }
    Ok(volumes)
}

/// The numbers of all units, however many: with too little room for the list, its header says how much it takes (SPC-5 6.33).
pub(super) fn report_luns(asker: &mut Asker<'_>) -> Result<Vec<Lun>, ConnectError> {
    let mut list_bytes = 8 + 8 * LUNS_USUAL;
    // A connection may be agreed to carry less.
    let limit_bytes = asker.driver.server().map_or(TRANSFER_MAX_BYTES, |server| server.transfer_limit_bytes as usize);
    let limit_bytes = limit_bytes.clamp(list_bytes, TRANSFER_MAX_BYTES);
    for _ in 0..LISTS_MAX {
        let list = asker.ask(Lun::default(), "REPORT LUNS", build::report_luns(list_bytes as u32), list_bytes)?;
        let wanted_bytes = report::luns_bytes(&list).map_err(|error| asker.wrong("REPORT LUNS", error))?;
        if wanted_bytes <= list_bytes || list_bytes >= limit_bytes {
            return report::parse_luns(&list).map_err(|error| asker.wrong("REPORT LUNS", error));
        }
        list_bytes = wanted_bytes.min(limit_bytes);
    }
    Err(asker.failed("REPORT LUNS", "a list that grows each time it is read".to_owned()))
}

/// Asks several units at once what [`volume`] asks each of them. In between comes what the first answers decide, and at the end who they
/// are, as there.
fn look_ahead(asker: &mut Asker<'_>, luns: &[Lun]) {
    let command = |lun, cdb, data_in_bytes| OwnCommand { lun, cdb, data_in_bytes };
    let page = |lun, number| command(lun, inquiry(number), usize::from(ANSWER_BYTES));
    asker.ask_ahead(luns.iter().flat_map(|&lun| {
        [
            // It takes the unit attentions of a new session, which would fail one of the others.
            command(lun, build::test_unit_ready(), 0),
            command(lun, standard_inquiry(), usize::from(INQUIRY_BYTES)),
            page(lun, page::DEVICE_IDENTIFICATION),
            command(lun, build::read_capacity_16(CAPACITY_BYTES), CAPACITY_BYTES as usize),
            page(lun, page::SUPPORTED_PAGES),
            command(lun, mode_sense(), usize::from(MODE_BYTES)),
        ]
    }));
    let disks: Vec<Lun> = luns.iter().copied().filter(|lun| is_disk_ahead(asker, *lun)).collect();
    let listed = |&lun: &Lun| {
        let listed = asker
            .told_ahead(lun, &inquiry(page::SUPPORTED_PAGES))
            .and_then(|list| vpd::parse_supported_pages(list).ok());
        let wanted = [page::BLOCK_LIMITS, page::LOGICAL_BLOCK_PROVISIONING];
        let wanted = wanted.into_iter().filter(move |page| listed.as_ref().is_some_and(|listed| listed.contains(page)));
        wanted.map(move |number| page(lun, number))
    };
    let pages: Vec<OwnCommand> = disks.iter().flat_map(listed).collect();
    asker.ask_ahead(pages);
    asker.ask_ahead(disks.into_iter().map(|lun| page(lun, page::DEVICE_IDENTIFICATION)));
}

fn is_disk_ahead(asker: &Asker<'_>, lun: Lun) -> bool {
    let inquiry = asker.told_ahead(lun, &standard_inquiry()).and_then(|bytes| StandardInquiry::parse(bytes).ok());
    inquiry.is_some_and(|inquiry| inquiry.is_disk())
}
