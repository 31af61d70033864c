//! What the unit says of itself, asked by SCSI commands one after the other.

use sanwire_scsi::mode::ModeData;
use sanwire_scsi::vpd::{BlockCharacteristics, BlockLimits, Provisioning, page, parse_supported_pages};
use sanwire_scsi::{Capacity, Cdb, DeviceIdentification, ModeForm, PageControl, StandardInquiry, build, mode};

/// Room for an answer.
pub(super) const ANSWER_BYTES: u16 = 4096;

/// Room for mode pages.
const MODE_BYTES: u8 = 252;

/// Blocks of one UNMAP or WRITE SAME of a unit that says no limit.
const RANGE_BLOCKS_USUAL: u32 = 0xffff;

/// What a unit is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    /// How many sectors it has.
    pub sectors: u64,
    /// Bytes of a sector.
    pub sector_bytes: u32,
    /// Sectors of a physical one, as a power of two.
    pub physical_sector_exponent: u8,
    /// Its serial number.
    pub serial: String,
    /// What it is called.
    pub model: String,
    /// Its revision.
    pub firmware: String,
    /// Its name among all units.
    pub world_wide_name: Option<u64>,
    /// As IDENTIFY DEVICE tells it.
    pub rotation_rate: u16,
    /// Whether sectors can be given back.
    pub trims: bool,
    /// Whether those then read as zeroes.
    pub reads_zeroes: bool,
    /// Sectors of one UNMAP at the most.
    pub unmap_sectors_max: u32,
    /// Ranges of one UNMAP at the most.
    pub unmap_ranges_max: u32,
    /// Sectors of one WRITE SAME at the most.
    pub zero_sectors_max: u32,
}

/// The questions, by their places. The list of pages comes before the pages, because some units refuse what they do not have in ways
/// that cannot be told from failures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Question {
    Capacity,
    Inquiry,
    Mode,
    Pages,
    Page(u8),
}

const QUESTIONS: [Question; 9] = [
    Question::Capacity,
    Question::Inquiry,
    Question::Mode,
    Question::Pages,
    Question::Page(page::UNIT_SERIAL_NUMBER),
    Question::Page(page::DEVICE_IDENTIFICATION),
    Question::Page(page::BLOCK_LIMITS),
    Question::Page(page::BLOCK_DEVICE_CHARACTERISTICS),
    Question::Page(page::LOGICAL_BLOCK_PROVISIONING),
];

impl Question {
    fn cdb(self) -> Cdb {
        match self {
            Question::Capacity => build::read_capacity_16(ANSWER_BYTES.into()),
            Question::Inquiry => build::inquiry(None, ANSWER_BYTES),
            Question::Mode => build::mode_sense_6(PageControl::Current, mode::page::CACHING, MODE_BYTES),
            Question::Pages => build::inquiry(Some(page::SUPPORTED_PAGES), ANSWER_BYTES),
            Question::Page(page) => build::inquiry(Some(page), ANSWER_BYTES),
        }
    }
}

/// Questions that are being asked.
#[derive(Clone, Debug)]
pub(super) struct Learning {
    /// The number of this time.
    asked: u64,
    answers: Vec<Vec<u8>>,
    /// Somebody's reservation has kept an answer back.
    is_partial: bool,
}

impl Learning {
    pub(super) fn new(asked: u64) -> Learning {
        Learning { asked, answers: Vec::new(), is_partial: false }
    }

    /// The number of this time.
    pub(super) fn asked(&self) -> u64 {
        self.asked
    }

    /// Whether the answers tell all that the unit would tell if nobody had reserved it.
    pub(super) fn is_whole(&self) -> bool {
        !self.is_partial
    }

    /// There is no answer to the last question as long as somebody has the unit reserved.
    pub(super) fn withheld(&mut self) {
        self.is_partial = true;
        self.answers.push(Vec::new());
    }

    /// The next question; `None` when all are answered.
    pub(super) fn question(&mut self) -> Option<Cdb> {
        loop {
            let question = QUESTIONS.get(self.answers.len())?;
            match question {
                Question::Page(page) if !self.is_listed(*page) => self.answers.push(Vec::new()),
                question => return Some(question.cdb()),
            }
        }
    }

    /// Whether the unit can be used without an answer to what is being asked.
    pub(super) fn may_be_refused(&self) -> bool {
        !self.answers.is_empty()
    }

    /// The answer to the last question; empty where the unit has none.
    pub(super) fn answered(&mut self, data: Vec<u8>) {
        self.answers.push(data);
    }

    fn answer(&self, question: Question) -> &[u8] {
        let at = QUESTIONS.iter().position(|known| *known == question);
        at.and_then(|at| self.answers.get(at)).map_or(&[], Vec::as_slice)
    }

    fn is_listed(&self, page: u8) -> bool {
        parse_supported_pages(self.answer(Question::Pages)).is_ok_and(|pages| pages.contains(&page))
    }

    /// All that was learnt; `None` where the answers say nothing of use.
    pub(super) fn facts(&self) -> Option<Facts> {
        let capacity = Capacity::parse_sixteen(self.answer(Question::Capacity)).ok()?;
        let page = |page| self.answer(Question::Page(page));
        let inquiry = StandardInquiry::parse(self.answer(Question::Inquiry)).ok();
        let identification = DeviceIdentification::parse(page(page::DEVICE_IDENTIFICATION)).ok();
        let limits = BlockLimits::parse(page(page::BLOCK_LIMITS)).unwrap_or_default();
        let characteristics = BlockCharacteristics::parse(page(page::BLOCK_DEVICE_CHARACTERISTICS)).unwrap_or_default();
        let provisioning = Provisioning::parse(page(page::LOGICAL_BLOCK_PROVISIONING)).unwrap_or_default();
        let mode = ModeData::parse(ModeForm::Six, self.answer(Question::Mode)).ok();
        let is_read_only = mode.is_some_and(|mode| mode.write_protected);
        let told = |count: u64| if count == 0 { RANGE_BLOCKS_USUAL } else { u32::try_from(count).unwrap_or(u32::MAX) };
        Some(Facts {
            sectors: capacity.blocks,
            sector_bytes: capacity.block_bytes,
            physical_sector_exponent: capacity.physical_block_exponent,
            serial: serial(page(page::UNIT_SERIAL_NUMBER)),
            model: model(inquiry.as_ref(), identification.as_ref()),
            firmware: inquiry.map(|inquiry| inquiry.revision).unwrap_or_default(),
            world_wide_name: identification.and_then(|identification| identification.naa()),
            rotation_rate: characteristics.medium_rotation_rate,
            trims: provisioning.unmap && !is_read_only,
            reads_zeroes: provisioning.reads_zeroes,
            unmap_sectors_max: told(limits.maximum_unmap.into()),
            unmap_ranges_max: limits.maximum_unmap_descriptors.max(1),
            zero_sectors_max: told(limits.maximum_write_same),
        })
    }
}

/// The first characters of the serial number: an ATA disk has 20 for it.
fn serial(page: &[u8]) -> String {
    let text = String::from_utf8_lossy(page.get(4..).unwrap_or_default());
    text.trim().chars().take(20).collect()
}

/// The vendor with the volume's name, or else with what it calls the product.
fn model(inquiry: Option<&StandardInquiry>, identification: Option<&DeviceIdentification>) -> String {
    let Some(inquiry) = inquiry else { return String::new() };
    let identity = identification.and_then(DeviceIdentification::identity);
    let product = identity.map_or_else(|| inquiry.product.clone(), |identity| identity.name().to_owned());
    format!("{} {product}", inquiry.vendor)
}
