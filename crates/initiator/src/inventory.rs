//! What a server has: its logical units, asked by SCSI commands, whatever the wire.

mod asker;
mod find;
mod lists;
mod reserving;

use std::fmt;

use sanwire_core::Lun;
use sanwire_core::limits::TRANSFER_MAX_BYTES;
use sanwire_scsi::ModeForm;
use sanwire_scsi::mode::ModeData;
use sanwire_scsi::reservation::TransportId;
use sanwire_scsi::vpd::{BlockLimits, Provisioning, WriteVerifier, page};
use sanwire_scsi::{Capacity, Cdb, DeviceIdentification, StandardInquiry, build};

use self::asker::{ANSWER_BYTES, Asker, Refusal};
pub(crate) use self::find::{Sought, find, find_marked};
pub(crate) use self::lists::volumes;
use self::lists::{UNITS_AT_ONCE, report_luns};
pub(crate) use self::reserving::{NewClaim, Owner, Rival, holder, release, reserve, stays_reserved};
use crate::driver::Driver;
use crate::endpoint::ConnectError;
use crate::keeper::Word;
use crate::translate::{CdbSize, Limits};

/// Standard INQUIRY data, as far as it is looked at.
const INQUIRY_BYTES: u16 = 36;

/// READ CAPACITY (16) data.
const CAPACITY_BYTES: u32 = 32;

/// Room for the mode pages that are looked at.
const MODE_BYTES: u8 = 252;

/// Blocks of one discard or zeroing of a unit that tells no limit: what the short form of WRITE SAME can say.
const RANGE_BLOCKS_USUAL: u64 = 0xffff;

/// The names that a logical unit has for itself, as bytes: what tells it from any other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct VolumeFingerprint {
    bytes: Vec<u8>,
    /// Its NAA name among them.
    naa: Option<u64>,
}

impl fmt::Display for VolumeFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl VolumeFingerprint {
    /// By which a copy manager finds it.
    pub(crate) fn naa(&self) -> Option<u64> {
        self.naa
    }

    /// Whether the unit has no name that tells it from others.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// One volume of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct VolumeSummary {
    /// Its number.
    pub(crate) lun: Lun,
    /// Its name.
    pub(crate) name: String,
    /// What tells its content from any other, through restarts of the server.
    pub(crate) mark: VolumeFingerprint,
    /// What it says of writes that it has acknowledged.
    pub(crate) word: Word,
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
    /// The commands that it knows.
    pub(crate) form: CdbSize,
    /// How much one command may be about.
    pub(crate) limits: Limits,
    /// What is to be stable at once must be flushed: it has a write cache, and says that it knows no FUA.
    pub(crate) lacks_fua: bool,
}

/// The numbers of all units.
pub(crate) fn luns(driver: &mut Driver) -> Result<Vec<Lun>, ConnectError> {
    report_luns(&mut Asker::new(driver, THE_SERVER))
}

/// In messages that nobody sees.
const THE_SERVER: &str = "the server";

/// Arrays have other units too, for managing them.
fn is_disk(asker: &mut Asker<'_>, lun: Lun) -> Result<bool, ConnectError> {
    let bytes = asker.ask(lun, "INQUIRY", standard_inquiry(), usize::from(INQUIRY_BYTES))?;
    let inquiry = StandardInquiry::parse(&bytes).map_err(|error| asker.wrong("INQUIRY", error))?;
    Ok(inquiry.is_disk())
}

fn standard_inquiry() -> Cdb {
    build::inquiry(None, INQUIRY_BYTES)
}

fn inquiry(page: u8) -> Cdb {
    build::inquiry(Some(page), ANSWER_BYTES)
}

fn mode_sense() -> Cdb {
    build::mode_sense_6(sanwire_scsi::PageControl::Current, sanwire_scsi::mode::page::CACHING, MODE_BYTES)
}

/// What is behind a logical unit at the moment.
pub(crate) struct Contents {
    pub(crate) mark: VolumeFingerprint,
    /// Size and block, in bytes; `None` while the unit does not tell them.
    pub(crate) capacity: Option<(u64, u32)>,
    /// How much one command may be about; `None` while the unit does not tell it.
    pub(crate) limits: Option<Limits>,
    pub(crate) word: Word,
    /// Whether writes are refused; `None` while the unit does not tell it.
    pub(crate) read_only: Option<bool>,
    /// As in [`VolumeSummary`].
    pub(crate) lacks_fua: bool,
    /// It has said that it had no power.
    pub(crate) has_lost_power: bool,
}

impl Contents {
    /// Whether numbers of blocks that were meant for this block lead elsewhere now.
    pub(crate) fn has_other_block(&self, block_bytes: u32) -> bool {
        self.capacity.is_some_and(|(_, bytes)| bytes != block_bytes)
    }
}

/// Looks whether a logical unit is still what it was.
pub(crate) fn contents(driver: &mut Driver, lun: Lun) -> Result<Contents, ConnectError> {
    let asker = &mut Asker::new(driver, THE_SERVER);
    let mark = names(asker, lun)?.1;
    let capacity = match capacity(asker, lun) {
        Ok(capacity) => Some(capacity),
        // Its name says who it is, also while its medium cannot be reached.
        Err(ConnectError::Command { .. }) if !mark.is_empty() => None,
        Err(error) => return Err(error),
    };
    let listed = asker.listed_pages(lun)?;
    let limits =
        match capacity.map(|(capacity, form)| limits(asker, lun, listed.as_deref(), capacity.block_bytes, form)) {
            Some(Ok(limits)) => Some(limits),
            Some(Err(ConnectError::Command { .. })) | None => None,
            Some(Err(error)) => return Err(error),
        };
    // The question before may have used up a unit attention that told of a change after the first answer.
    let Mode { read_only, lacks_fua, word } = mode(asker, lun, listed.as_deref())?;
    let mark = names(asker, lun)?.1;
    let capacity = capacity.map(|(capacity, _)| (capacity.length_bytes(), capacity.block_bytes));
    Ok(Contents { mark, capacity, limits, word, read_only, lacks_fua, has_lost_power: asker.has_lost_power })
}

/// What people call the unit, and what tells it from others.
fn names(asker: &mut Asker<'_>, lun: Lun) -> Result<(String, VolumeFingerprint), ConnectError> {
    let server = asker.server;
    // A number that has become another unit's leads nowhere until this is asked: no command may come after it that was meant
    // for the unit before.
    let page = match asker.take_ahead(lun, &inquiry(page::DEVICE_IDENTIFICATION)) {
        Some(page) => Some(page),
        None => {
            asker.driver.while_quiet(lun, |driver| Asker::new(driver, server).page(lun, page::DEVICE_IDENTIFICATION))?
        }
    };
    let (name, mark) = read_names(asker, lun, &page.unwrap_or_default())?;
    asker.driver.met(lun, &mark);
    Ok((name, mark))
}

fn read_names(asker: &Asker<'_>, lun: Lun, page: &[u8]) -> Result<(String, VolumeFingerprint), ConnectError> {
    if page.is_empty() {
        return Ok((format!("lun{lun}"), VolumeFingerprint { bytes: Vec::new(), naa: None }));
    }
    let identification = DeviceIdentification::parse(page).map_err(|error| asker.wrong("INQUIRY (page 83h)", error))?;
    let name = identification.identity().map_or_else(|| format!("lun{lun}"), |identity| identity.name().to_owned());
    let naa = identification.naa();
    // Names of ports and of the target depend on the way by which one came.
    let of_unit = identification.designators.into_iter().filter(|designator| designator.association == 0);
    Ok((name, VolumeFingerprint { bytes: of_unit.flat_map(|designator| designator.bytes).collect(), naa }))
}

/// The unit's size, and the commands that it knows: small old ones have only the shorter forms.
fn capacity(asker: &mut Asker<'_>, lun: Lun) -> Result<(Capacity, CdbSize), ConnectError> {
    const LONG: &str = "READ CAPACITY (16)";
    const SHORT: &str = "READ CAPACITY (10)";
    match asker.try_ask(lun, LONG, build::read_capacity_16(CAPACITY_BYTES), CAPACITY_BYTES as usize) {
        Ok(bytes) => Ok((Capacity::parse_sixteen(&bytes).map_err(|error| asker.wrong(LONG, error))?, CdbSize::Sixteen)),
        // Some refuse what they do not know with any sense data that comes to mind; what else is the matter, the next refusal says.
        Err(Refusal::Unknown(_) | Refusal::Refused(_)) => {
            let bytes = asker.ask(lun, SHORT, build::read_capacity_10(), 8)?;
            Ok((Capacity::parse_ten(&bytes).map_err(|error| asker.wrong(SHORT, error))?, CdbSize::Ten))
        }
        Err(Refusal::Failed(error)) => Err(error),
    }
}

fn volume(asker: &mut Asker<'_>, lun: Lun) -> Result<VolumeSummary, ConnectError> {
    // A unit that came after us says who it is before it does anything else.
    names(asker, lun)?;
    let (capacity, form) = capacity(asker, lun)?;
    let listed = asker.listed_pages(lun)?;
    let limits = limits(asker, lun, listed.as_deref(), capacity.block_bytes, form)?;
    let provisioning = match asker.optional_page(lun, listed.as_deref(), page::LOGICAL_BLOCK_PROVISIONING)? {
        Some(page) => Some(Provisioning::parse(&page).map_err(|error| asker.wrong("INQUIRY (page B2h)", error))?),
        None => None,
    };
    let Mode { read_only, lacks_fua, word } = mode(asker, lun, listed.as_deref())?;
    // Last: later unit attentions stay, and tell that it may be another one.
    let (name, mark) = names(asker, lun)?;
    Ok(VolumeSummary {
        lun,
        name,
        mark,
        word,
        size_bytes: capacity.length_bytes(),
        block_bytes: capacity.block_bytes,
        physical_block_bytes: capacity.block_bytes << capacity.physical_block_exponent.min(8),
        read_only: read_only == Some(true),
        discards: read_only != Some(true) && provisioning.is_some_and(|thin| thin.unmap && thin.reads_zeroes),
        form,
        limits,
        lacks_fua,
    })
}

fn limits(
    asker: &mut Asker<'_>,
    lun: Lun,
    listed: Option<&[u8]>,
    block_bytes: u32,
    form: CdbSize,
) -> Result<Limits, ConnectError> {
    let told = match asker.optional_page(lun, listed, page::BLOCK_LIMITS)? {
        Some(page) => BlockLimits::parse(&page).map_err(|error| asker.wrong("INQUIRY (page B0h)", error))?,
        None => BlockLimits::default(),
    };
    let block = u64::from(block_bytes);
    // Zero stands for no limit (SBC-4 6.6.4).
    let range_blocks = [told.maximum_write_same, u64::from(told.maximum_unmap)].into_iter().filter(|max| *max > 0);
    let told_bytes = match u64::from(told.maximum_transfer) {
        // What every target takes, though it could say more.
        0 => TRANSFER_MAX_BYTES as u64,
        blocks => blocks.saturating_mul(block),
    };
    let transfer_max_bytes = form.blocks_max().saturating_mul(block).min(told_bytes);
    Ok(Limits {
        transfer_max_bytes: u32::try_from(transfer_max_bytes).unwrap_or(u32::MAX),
        range_max_bytes: range_blocks.min().unwrap_or(RANGE_BLOCKS_USUAL).saturating_mul(block),
    })
}

/// How a unit takes writes.
struct Mode {
    /// Whether writes are refused; `None`: it does not say.
    read_only: Option<bool>,
    lacks_fua: bool,
    word: Word,
}

/// The write-protect bit stands in the header of every mode page's answer (SPC-5 7.5.6), the write cache in the caching page.
fn mode(asker: &mut Asker<'_>, lun: Lun, listed: Option<&[u8]>) -> Result<Mode, ConnectError> {
    let answer = match asker.try_ask(lun, "MODE SENSE (6)", mode_sense(), usize::from(MODE_BYTES)) {
        Ok(answer) => answer,
        Err(Refusal::Unknown(_) | Refusal::Refused(_)) => Vec::new(),
        // What can be told of a unit whose medium is away is told by others.
        Err(Refusal::Failed(error @ ConnectError::Handshake { .. })) => return Err(error),
        Err(Refusal::Failed(_)) => Vec::new(),
    };
    let mode = ModeData::parse(ModeForm::Six, &answer).ok();
    let read_only = mode.map(|mode| mode.write_protected);
    let is_cached = mode.and_then(|mode| mode.write_cache()) != Some(false);
    let is_stable = read_only == Some(true) || !is_cached;
    let word = match word(asker, lun, listed)? {
        Word::Verified { verifier, .. } if is_stable => Word::Stable { verifier: Some(verifier) },
        Word::Silent if is_stable => Word::Stable { verifier: None },
        word => word,
    };
    let knows_fua = mode.is_none_or(|mode| mode.force_unit_access);
    Ok(Mode { read_only, lacks_fua: !knows_fua && !word.is_stable(), word })
}

/// The port of another client that has written to the unit and is there still, if the unit tells such things.
pub(crate) fn other_writer(driver: &mut Driver, lun: Lun) -> Result<Option<TransportId>, ConnectError> {
    let asker = &mut Asker::new(driver, THE_SERVER);
    let listed = asker.listed_pages(lun)?;
    if listed.is_none_or(|listed| !listed.contains(&page::WRITE_VERIFIER)) {
        return Ok(None);
    }
    let page = asker.optional(lun, inquiry(page::WRITE_VERIFIER))?;
    Ok(page.and_then(|page| WriteVerifier::parse(&page).ok().flatten()).and_then(|said| said.other_writer))
}

/// What the unit says of writes that are in its cache.
fn word(asker: &mut Asker<'_>, lun: Lun, listed: Option<&[u8]>) -> Result<Word, ConnectError> {
    let is_listed = listed.is_some_and(|listed| listed.contains(&page::WRITE_VERIFIER));
    // Another vendor's page with that number may be refused so: it is not wanted.
    let page = if is_listed { asker.optional(lun, build::write_verifier(ANSWER_BYTES))? } else { None };
    let said = page.and_then(|page| WriteVerifier::parse(&page).ok().flatten());
    Ok(match said {
        Some(WriteVerifier { is_stable: true, .. }) => Word::Stable { verifier: None },
        Some(WriteVerifier { verifier, tenure, .. }) => Word::Verified { verifier, tenure },
        None => Word::Silent,
    })
}
