//! What a server has: its logical units, asked by SCSI commands, whatever the wire.

use std::fmt;

use sanwire_core::Lun;
use sanwire_core::limits::{LUNS_MAX, TRANSFER_MAX_BYTES};
use sanwire_scsi::ModeForm;
use sanwire_scsi::mode::ModeData;
use sanwire_scsi::vpd::{self, BlockLimits, Provisioning, WriteVerifier, page};
use sanwire_scsi::{
    AnswerError, Capacity, Cdb, DeviceIdentification, Sense, SenseKey, StandardInquiry, Status, build, report,
};

use crate::driver::{Driver, tells_of_power};
use crate::endpoint::ConnectError;
use crate::keeper::Word;
use crate::session::{Answer, Failure};
use crate::translate::{CdbSize, Limits};

/// How often a command is given again because the unit had something else to tell first.
const ATTENTIONS_MAX: usize = 8;

const ANSWER_BYTES: u16 = 4096;

/// Standard INQUIRY data, as far as it is looked at.
const INQUIRY_BYTES: u16 = 36;

/// Blocks of one discard or zeroing of a unit that tells no limit: what the short form of WRITE SAME can say.
const RANGE_BLOCKS_USUAL: u64 = 0xffff;

/// The names that a logical unit has for itself, as bytes: what tells it from any other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct VolumeFingerprint(Vec<u8>);

impl fmt::Display for VolumeFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl VolumeFingerprint {
    /// Whether the unit has no name that tells it from others.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
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

/// Asks the server for all its volumes.
pub(crate) fn volumes(driver: &mut Driver, server: &str) -> Result<Vec<VolumeSummary>, ConnectError> {
    let asker = &mut Asker::new(driver, server);
    let volumes = report_luns(asker)?
        .into_iter()
        .map(|lun| if is_disk(asker, lun)? { volume(asker, lun).map(Some) } else { Ok(None) });
    volumes.filter_map(Result::transpose).collect()
}

fn report_luns(asker: &mut Asker<'_>) -> Result<Vec<Lun>, ConnectError> {
    let list_bytes = 8 + 8 * LUNS_MAX;
    let list = asker.ask(Lun::default(), "REPORT LUNS", build::report_luns(list_bytes as u32), list_bytes)?;
    report::parse_luns(&list).map_err(|error| asker.wrong("REPORT LUNS", error))
}

/// The numbers of all units.
pub(crate) fn luns(driver: &mut Driver) -> Result<Vec<Lun>, ConnectError> {
    report_luns(&mut Asker::new(driver, THE_SERVER))
}

/// What tells a unit from others.
pub(crate) fn mark(driver: &mut Driver, lun: Lun) -> Result<VolumeFingerprint, ConnectError> {
    Ok(names(&mut Asker::new(driver, THE_SERVER), lun)?.1)
}

/// In messages that nobody sees.
const THE_SERVER: &str = "the server";

/// Arrays have other units too, for managing them.
fn is_disk(asker: &mut Asker<'_>, lun: Lun) -> Result<bool, ConnectError> {
    let bytes = asker.ask(lun, "INQUIRY", build::inquiry(None, INQUIRY_BYTES), usize::from(INQUIRY_BYTES))?;
    let inquiry = StandardInquiry::parse(&bytes).map_err(|error| asker.wrong("INQUIRY", error))?;
    Ok(inquiry.is_disk())
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

struct Asker<'a> {
    driver: &'a mut Driver,
    server: &'a str,
    /// Units that were asked have said that they had no power.
    has_lost_power: bool,
}

/// Why a command gave no answer.
enum Refusal {
    /// The unit does not know the command, the page or the field.
    Unknown(Sense),
    /// The unit will not do it, and says what is the matter.
    Refused(Sense),
    /// Anything else.
    Failed(ConnectError),
}

impl<'a> Asker<'a> {
    fn new(driver: &'a mut Driver, server: &'a str) -> Self {
        Asker { driver, server, has_lost_power: false }
    }

    fn ask(&mut self, lun: Lun, command: &'static str, cdb: Cdb, answer_bytes: usize) -> Result<Vec<u8>, ConnectError> {
        self.try_ask(lun, command, cdb, answer_bytes).map_err(|refusal| match refusal {
            Refusal::Unknown(sense) | Refusal::Refused(sense) => self.failed(command, sense.to_string()),
            Refusal::Failed(error) => error,
        })
    }

    fn try_ask(&mut self, lun: Lun, command: &'static str, cdb: Cdb, answer_bytes: usize) -> Result<Vec<u8>, Refusal> {
        let (mut attentions, mut busy_since) = (0, None);
        while attentions < ATTENTIONS_MAX {
            let own = self.driver.execute(lun, cdb, answer_bytes).map_err(|failure| match failure {
                // The same question would end in the same way again.
                Failure::Protocol(_) | Failure::TooLarge => Refusal::Failed(self.failed(command, failure.to_string())),
                _ => Refusal::Failed(ConnectError::Handshake { server: self.server.to_owned(), failure }),
            })?;
            let Answer { status, sense } = own.answer;
            let problem = match (status, Sense::parse(&sense)) {
                (Status::Good, _) => return Ok(own.data),
                (_, Some(sense)) if sense.key == SenseKey::UnitAttention => {
                    self.has_lost_power |= tells_of_power(sense.additional);
                    self.driver.overheard(lun, sense.additional);
                    attentions += 1;
                    continue;
                }
                // Who has no room for a question at the moment, or had to drop it, has not said that it is somebody else.
                (Status::Busy | Status::TaskSetFull | Status::TaskAborted, _) if self.driver.rest(&mut busy_since) => {
                    continue;
                }
                (_, Some(sense)) if sense.key == SenseKey::IllegalRequest => return Err(Refusal::Unknown(sense)),
                (_, Some(sense)) => return Err(Refusal::Refused(sense)),
                (_, None) => format!("status {status:?}"),
            };
            return Err(Refusal::Failed(self.failed(command, problem)));
        }
        Err(Refusal::Failed(self.failed(command, "one unit attention after the other".to_owned())))
    }

    /// A vital product data page; `None` when the unit has none such.
    fn page(&mut self, lun: Lun, page: u8) -> Result<Option<Vec<u8>>, ConnectError> {
        let cdb = build::inquiry(Some(page), ANSWER_BYTES);
        match self.try_ask(lun, "INQUIRY", cdb, usize::from(ANSWER_BYTES)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Refusal::Unknown(_)) => Ok(None),
            Err(Refusal::Refused(sense)) => Err(self.failed("INQUIRY", sense.to_string())),
            Err(Refusal::Failed(error)) => Err(error),
        }
    }

    /// A page that a unit may do without. There are some that refuse one that they do not have with any sense data that comes to
    /// mind: so none is asked for that is not listed, and any refusal means that it is not there.
    fn optional_page(&mut self, lun: Lun, listed: Option<&[u8]>, page: u8) -> Result<Option<Vec<u8>>, ConnectError> {
        if listed.is_some_and(|listed| !listed.contains(&page)) {
            return Ok(None);
        }
        self.optional(lun, build::inquiry(Some(page), ANSWER_BYTES))
    }

    fn optional(&mut self, lun: Lun, inquiry: Cdb) -> Result<Option<Vec<u8>>, ConnectError> {
        match self.try_ask(lun, "INQUIRY", inquiry, usize::from(ANSWER_BYTES)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Refusal::Unknown(_) | Refusal::Refused(_)) => Ok(None),
            Err(Refusal::Failed(error)) => Err(error),
        }
    }

    /// The pages that the unit says it has; `None` when it does not say.
    fn listed_pages(&mut self, lun: Lun) -> Result<Option<Vec<u8>>, ConnectError> {
        let list = self.optional_page(lun, None, page::SUPPORTED_PAGES)?;
        Ok(list.and_then(|list| vpd::parse_supported_pages(&list).ok()))
    }

    fn wrong(&self, command: &'static str, error: AnswerError) -> ConnectError {
        self.failed(command, error.to_string())
    }

    fn failed(&self, command: &'static str, problem: String) -> ConnectError {
        ConnectError::Command { server: self.server.to_owned(), command, problem }
    }
}

/// What people call the unit, and what tells it from others.
fn names(asker: &mut Asker<'_>, lun: Lun) -> Result<(String, VolumeFingerprint), ConnectError> {
    let server = asker.server;
    // A number that has become another unit's leads nowhere until this is asked: no command may come after it that was meant
    // for the unit before.
    let page =
        asker.driver.while_quiet(lun, |driver| Asker::new(driver, server).page(lun, page::DEVICE_IDENTIFICATION))?;
    let (name, mark) = read_names(asker, lun, &page.unwrap_or_default())?;
    asker.driver.met(lun, &mark);
    Ok((name, mark))
}

fn read_names(asker: &Asker<'_>, lun: Lun, page: &[u8]) -> Result<(String, VolumeFingerprint), ConnectError> {
    if page.is_empty() {
        return Ok((format!("lun{lun}"), VolumeFingerprint(Vec::new())));
    }
    let identification = DeviceIdentification::parse(page).map_err(|error| asker.wrong("INQUIRY (page 83h)", error))?;
    let name = identification.identity().map_or_else(|| format!("lun{lun}"), |identity| identity.name().to_owned());
    // Names of ports and of the target depend on the way by which one came.
    let of_unit = identification.designators.into_iter().filter(|designator| designator.association == 0);
    Ok((name, VolumeFingerprint(of_unit.flat_map(|designator| designator.bytes).collect())))
}

/// The unit's size, and the commands that it knows: small old ones have only the shorter forms.
fn capacity(asker: &mut Asker<'_>, lun: Lun) -> Result<(Capacity, CdbSize), ConnectError> {
    const LONG: &str = "READ CAPACITY (16)";
    const SHORT: &str = "READ CAPACITY (10)";
    match asker.try_ask(lun, LONG, build::read_capacity_16(32), 32) {
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
    let cdb = build::mode_sense_6(sanwire_scsi::PageControl::Current, sanwire_scsi::mode::page::CACHING, 252);
    let answer = match asker.try_ask(lun, "MODE SENSE (6)", cdb, 252) {
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
