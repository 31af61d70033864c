//! What a server has: its logical units, asked by SCSI commands, whatever the wire.

use sanwire_core::Lun;
use sanwire_core::limits::LUNS_MAX;
use sanwire_scsi::vpd::{BlockLimits, Provisioning, page};
use sanwire_scsi::{
    AnswerError, Capacity, Cdb, DeviceIdentification, Identity, Sense, SenseKey, Status, build, report,
};

use crate::driver::Driver;
use crate::endpoint::ConnectError;
use crate::session::Answer;

/// How often a command is given again because the unit had something else to tell first.
const ATTENTIONS_MAX: usize = 8;

const ANSWER_BYTES: u16 = 4096;

/// One volume of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct VolumeSummary {
    /// Its number.
    pub(crate) lun: Lun,
    /// Its name.
    pub(crate) name: String,
    /// What tells its content from any other, through restarts of the server.
    pub(crate) uuid: [u8; 16],
    /// Its size.
    pub(crate) size_bytes: u64,
    /// The logical block.
    pub(crate) block_bytes: u32,
    /// The block that the medium writes without reading first.
    pub(crate) physical_block_bytes: u32,
    /// Whether writes are refused.
    pub(crate) read_only: bool,
    /// Whether discarded blocks give space back and then read as zeroes.
    pub(crate) discards: bool,
    /// The longest transfer of one command, in bytes.
    pub(crate) transfer_max_bytes: u32,
    /// The longest discard or zeroing of one command, in bytes.
    pub(crate) range_max_bytes: u64,
}

/// Asks the server for all its volumes.
pub(crate) fn volumes(driver: &mut Driver, server: &str) -> Result<Vec<VolumeSummary>, ConnectError> {
    let asker = &mut Asker { driver, server };
    let list_bytes = 8 + 8 * LUNS_MAX;
    let list = asker.ask(Lun::default(), "REPORT LUNS", build::report_luns(list_bytes as u32), list_bytes)?;
    let luns = report::parse_luns(&list).map_err(|error| asker.wrong("REPORT LUNS", error))?;
    luns.into_iter().map(|lun| volume(asker, lun)).collect()
}

/// What is behind a logical unit at the moment.
pub(crate) struct Contents {
    pub(crate) uuid: [u8; 16],
    pub(crate) size_bytes: u64,
    pub(crate) block_bytes: u32,
}

/// Looks whether a logical unit is still what it was.
pub(crate) fn contents(driver: &mut Driver, lun: Lun) -> Result<Contents, ConnectError> {
    let asker = &mut Asker { driver, server: "the server" };
    let uuid = identity(asker, lun)?.uuid();
    let capacity = capacity(asker, lun)?;
    Ok(Contents { uuid, size_bytes: capacity.length_bytes(), block_bytes: capacity.block_bytes })
}

struct Asker<'a> {
    driver: &'a mut Driver,
    server: &'a str,
}

impl Asker<'_> {
    fn ask(&mut self, lun: Lun, command: &'static str, cdb: Cdb, answer_bytes: usize) -> Result<Vec<u8>, ConnectError> {
        for _ in 0..ATTENTIONS_MAX {
            let own = self
                .driver
                .execute(lun, cdb, answer_bytes)
                .map_err(|failure| ConnectError::Handshake { server: self.server.to_owned(), failure })?;
            let problem = match own.answer {
                Answer { status: Status::Good, .. } => return Ok(own.data),
                Answer { status, sense } => match Sense::parse(&sense) {
                    Some(sense) if sense.key == SenseKey::UnitAttention => continue,
                    Some(sense) => sense.to_string(),
                    None => format!("status {status:?}"),
                },
            };
            return Err(self.failed(command, problem));
        }
        Err(self.failed(command, "one unit attention after the other".to_owned()))
    }

    fn page(&mut self, lun: Lun, page: u8) -> Result<Vec<u8>, ConnectError> {
        self.ask(lun, "INQUIRY", build::inquiry(Some(page), ANSWER_BYTES), usize::from(ANSWER_BYTES))
    }

    fn wrong(&self, command: &'static str, error: AnswerError) -> ConnectError {
        self.failed(command, error.to_string())
    }

    fn failed(&self, command: &'static str, problem: String) -> ConnectError {
        ConnectError::Command { server: self.server.to_owned(), command, problem }
    }
}

fn identity(asker: &mut Asker<'_>, lun: Lun) -> Result<Identity, ConnectError> {
    let identification = asker.page(lun, page::DEVICE_IDENTIFICATION)?;
    let identification =
        DeviceIdentification::parse(&identification).map_err(|error| asker.wrong("INQUIRY (page 83h)", error))?;
    identification.identity().ok_or_else(|| asker.failed("INQUIRY (page 83h)", "no name that Sanwire knows".to_owned()))
}

fn capacity(asker: &mut Asker<'_>, lun: Lun) -> Result<Capacity, ConnectError> {
    let capacity = asker.ask(lun, "READ CAPACITY (16)", build::read_capacity_16(32), 32)?;
    Capacity::parse_sixteen(&capacity).map_err(|error| asker.wrong("READ CAPACITY (16)", error))
}

fn volume(asker: &mut Asker<'_>, lun: Lun) -> Result<VolumeSummary, ConnectError> {
    let capacity = capacity(asker, lun)?;
    let identity = identity(asker, lun)?;
    let limits = asker.page(lun, page::BLOCK_LIMITS)?;
    let limits = BlockLimits::parse(&limits).map_err(|error| asker.wrong("INQUIRY (page B0h)", error))?;
    let provisioning = asker.page(lun, page::LOGICAL_BLOCK_PROVISIONING)?;
    let provisioning = Provisioning::parse(&provisioning).map_err(|error| asker.wrong("INQUIRY (page B2h)", error))?;
    let block = u64::from(capacity.block_bytes);
    let range_blocks = [limits.maximum_write_same, u64::from(limits.maximum_unmap)].into_iter().filter(|max| *max > 0);
    Ok(VolumeSummary {
        lun,
        name: identity.name().to_owned(),
        uuid: identity.uuid(),
        size_bytes: capacity.length_bytes(),
        block_bytes: capacity.block_bytes,
        physical_block_bytes: capacity.block_bytes << capacity.physical_block_exponent.min(8),
        read_only: is_read_only(asker, lun)?,
        discards: provisioning.unmap && provisioning.reads_zeroes,
        transfer_max_bytes: u32::try_from(u64::from(limits.maximum_transfer) * block).unwrap_or(u32::MAX),
        range_max_bytes: range_blocks.min().unwrap_or(1).saturating_mul(block),
    })
}

/// The write-protect bit stands in the header of every mode page's answer (SPC-5 7.5.6).
fn is_read_only(asker: &mut Asker<'_>, lun: Lun) -> Result<bool, ConnectError> {
    const CACHING_PAGE: u8 = 0x08;
    let cdb = build::mode_sense_6(sanwire_scsi::PageControl::Current, CACHING_PAGE, 252);
    let answer = asker.ask(lun, "MODE SENSE (6)", cdb, 252)?;
    Ok(answer.get(2).is_some_and(|specific| specific & 0x80 != 0))
}
