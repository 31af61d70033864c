//! CD, DVD and BD drives that only read (MMC-6): the device server of a drive.

mod events;
mod sectors;
mod tray;

use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sanwire_core::NexusId;
use sanwire_scsi::mmc::{self, ConfiguredDrive, Disc, ErrorRecovery, MediaEvent};
use sanwire_scsi::mode::{self, ModeHeader, PageValues};
use sanwire_scsi::{
    AdditionalSense, CommandSet, ModeForm, ModeSense, MultimediaCommand, Operation, Sense, SenseKey, StartStop, Task,
    inquiry,
};
use sanwire_store::{Geometry, Store};

use crate::beginning::Beginning;
use crate::data::cut;
use crate::device_server::DeviceServer;
use crate::medium::{Medium, MediumError};
use crate::refusal::Refusal;
use crate::step::Step;
use crate::unit_attention::UnitAttention;
use crate::unit_state::UnitState;
use crate::{fault, piece, transfer};

use events::Events;
pub(crate) use tray::Tray;

/// The state of a drive that its initiators share, besides that of the unit.
#[derive(Debug)]
pub(crate) struct Optical {
    tray: Arc<Tray>,
    /// Whether the tray is out. The disc stays on it, and comes back with it.
    is_open: AtomicBool,
    /// Held while the tray moves: a disc is never changed in one that an initiator closes meanwhile.
    motion: Mutex<()>,
    events: Events,
    /// The mode page of the recovery of errors, as [`Optical::set_recovery`] has put it.
    recovery: AtomicU16,
}

impl Optical {
    /// A closed drive with this disc in it, or without one.
    pub(crate) fn new(disc: Option<Arc<dyn Store>>) -> Result<Optical, MediumError> {
        let tray = Arc::new(Tray::default());
        disc.map_or(Ok(()), |disc| tray.put(disc))?;
        let (is_open, motion, events) = (AtomicBool::new(false), Mutex::default(), Events::default());
        let drive = Optical { tray, is_open, motion, events, recovery: AtomicU16::new(0) };
        drive.set_recovery(ErrorRecovery::default());
        Ok(drive)
    }

    /// What the unit reads from.
    pub(crate) fn tray(&self) -> &Arc<Tray> {
        &self.tray
    }

    fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    /// The disc, if it can be read.
    fn disc(&self, geometry: &Geometry) -> Result<Disc, Sense> {
        let not_ready = |additional| Err(Sense::new(SenseKey::NotReady, additional));
        if self.is_open() {
            return not_ready(AdditionalSense::MEDIUM_NOT_PRESENT_TRAY_OPEN);
        }
        match u32::try_from(geometry.length_bytes / u64::from(mmc::BLOCK_BYTES)) {
            Ok(0) | Err(_) => not_ready(AdditionalSense::MEDIUM_NOT_PRESENT_TRAY_CLOSED),
            Ok(blocks) => Ok(Disc { blocks }),
        }
    }

    fn open(&self) {
        let _moving = self.moving();
        if !self.is_open.swap(true, Ordering::AcqRel) {
            self.events.raise(MediaEvent::Removal);
        }
    }

    /// Closes the tray, with another disc on it if there is one.
    fn close(&self, disc: Option<Arc<dyn Store>>, unit: &UnitState) -> Result<(), MediumError> {
        let _moving = self.moving();
        if let Some(disc) = disc {
            if !self.is_open() {
                return Err(MediumError::NotEjected);
            }
            self.tray.put(disc)?;
        }
        if self.is_open.swap(false, Ordering::AcqRel) && !self.tray.is_empty() {
            // MMC-6 4.1.6.1: the initiator that has closed it is told too.
            unit.nexuses.raise(UnitAttention::MediumChanged, None);
            self.events.raise(MediaEvent::NewMedia);
        }
        Ok(())
    }

    fn moving(&self) -> MutexGuard<'_, ()> {
        self.motion.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// START STOP UNIT (MMC-6 6.45). Nothing turns: starting and stopping are done at once.
    fn start_stop(&self, asked: StartStop, unit: &UnitState) -> Result<Step, Sense> {
        if asked.power_condition != 0 || !asked.load_eject {
            return Ok(Step::Good);
        }
        if asked.start {
            // What lies on the tray has been in.
            let _ = self.close(None, unit);
        } else if unit.is_removal_prevented() {
            return Err(Sense::new(SenseKey::IllegalRequest, AdditionalSense::MEDIUM_REMOVAL_PREVENTED));
        } else {
            self.open();
        }
        Ok(Step::Good)
    }

    /// What has happened comes before what is as it was, of whatever class (MMC-6 6.7.1.3).
    fn event_status(&self, classes: u8, allocation_bytes: u32, begun: &Beginning<'_>) -> Vec<u8> {
        let is_media = classes & mmc::MEDIA_CLASS != 0;
        // An initiator that has no room for the event is not told of it.
        let event = if is_media && allocation_bytes > 4 { self.events.take(begun.nexus) } else { None };
        if event.is_none() && classes & mmc::POWER_CLASS != 0 {
            return mmc::power_event_status();
        }
        if !is_media {
            return mmc::event_status();
        }
        mmc::media_event_status(event, self.is_open(), self.disc(&begun.geometry).is_ok())
    }

    fn recovery(&self) -> ErrorRecovery {
        let [flags, read_retries] = self.recovery.load(Ordering::Acquire).to_be_bytes();
        ErrorRecovery { flags, read_retries }
    }

    fn set_recovery(&self, ErrorRecovery { flags, read_retries }: ErrorRecovery) {
        self.recovery.store(u16::from_be_bytes([flags, read_retries]), Ordering::Release);
    }

    /// Ascending by code.
    fn pages(&self, unit: &UnitState) -> [PageValues; 5] {
        let control = mode::control_page(unit.settings(), unit.default_settings());
        let capabilities = mmc::capabilities_page(unit.is_removal_prevented());
        [mmc::recovery_page(self.recovery()), control, mmc::power_page(), mmc::timeout_page(), capabilities]
    }

    /// The commands that need no disc; the others have it.
    fn answer(&self, command: MultimediaCommand, begun: &Beginning<'_>, task: &Task) -> Result<Step, Refusal> {
        use MultimediaCommand as Command;
        let (unit, disc) = (&**begun.unit, self.disc(&begun.geometry));
        let (bytes, allocation_bytes) = match command {
            Command::StartStopUnit(asked) => return Ok(self.start_stop(asked, unit)?),
            Command::PreventAllowMediumRemoval { prevent, persistent: false } => {
                unit.prevent_removal(begun.nexus, prevent);
                return Ok(Step::Good);
            }
            // MMC-6 6.14: each of the two states ends by itself.
            Command::PreventAllowMediumRemoval { prevent, persistent: true } => {
                unit.nexuses.set_persistent_prevent(begun.nexus, prevent);
                return Ok(Step::Good);
            }
            Command::SetSpeed => return Ok(Step::Good),
            Command::GetConfiguration { request, first, allocation_bytes } => {
                let drive = ConfiguredDrive { disc: disc.ok(), serial: &unit.identity().serial() };
                (mmc::configuration(request, first, drive), allocation_bytes)
            }
            Command::GetEventStatus { classes, allocation_bytes } => {
                (self.event_status(classes, allocation_bytes, begun), allocation_bytes)
            }
            Command::MechanismStatus { allocation_bytes } => (mmc::mechanism_status(self.is_open()), allocation_bytes),
            Command::ReadFormatCapacities { allocation_bytes } => (mmc::format_capacities(disc.ok()), allocation_bytes),
            Command::Read { extent } => {
                disc?;
                let part = begun.part(piece::of_read(extent, &begun.geometry, task)?);
                return transfer::read(part.extent, begun, task);
            }
            Command::ReadSectors { extent, fields } => return sectors::read(extent, fields, disc?, begun, task),
            Command::Seek { lba } if lba < disc?.blocks => return Ok(Step::Good),
            Command::Seek { .. } => return Err(fault::LBA_OUT_OF_RANGE.into()),
            Command::ReadCapacity => {
                let last_lba = disc?.blocks.saturating_sub(1).to_be_bytes();
                ([last_lba, mmc::BLOCK_BYTES.to_be_bytes()].concat(), 8)
            }
            Command::ReadToc { format, in_time, allocation_bytes } => {
                (mmc::table_of_contents(format, in_time, disc?)?, allocation_bytes)
            }
            Command::ReadDiscInformation { allocation_bytes } => {
                disc?;
                (mmc::disc_information(), allocation_bytes)
            }
            Command::ReadTrackInformation { address, allocation_bytes } => {
                (mmc::track_information(address, disc?)?, allocation_bytes)
            }
            Command::ReadDiscStructure { structure, allocation_bytes } => {
                (mmc::disc_structure(structure, disc?)?, allocation_bytes)
            }
        };
        Ok(Step::Answer(cut(bytes, allocation_bytes as usize)))
    }
}

/// There are no block descriptors, and no bits of the type, before the mode pages of a drive.
const MODE_HEADER: ModeHeader = ModeHeader { device_specific: 0, blocks: None };

impl Medium for Optical {
    fn check_ready(&self, geometry: &Geometry) -> Result<(), Sense> {
        self.disc(geometry).map(drop)
    }

    fn number(&self) -> u32 {
        self.tray.changes()
    }
}

impl DeviceServer for Optical {
    fn commands(&self, _unit: &UnitState, _geometry: &Geometry) -> CommandSet {
        CommandSet::optical()
    }

    fn standard_inquiry(&self) -> Vec<u8> {
        inquiry::optical_inquiry().to_vec()
    }

    fn vpd_pages(&self) -> &'static [u8] {
        &[]
    }

    fn vpd_page(&self, _: u8, _: &UnitState, _: &Geometry, _transfer_max_bytes: usize) -> Option<Vec<u8>> {
        None
    }

    fn mode_sense(&self, asked: &ModeSense, unit: &UnitState, _geometry: &Geometry) -> Result<Vec<u8>, Sense> {
        mode::sense_pages(asked, MODE_HEADER, &self.pages(unit))
    }

    fn mode_select(&self, form: ModeForm, list: &[u8], begun: &Beginning<'_>) -> Result<Step, Refusal> {
        let unit = &**begun.unit;
        let selected = mode::select_pages(form, list, MODE_HEADER, &self.pages(unit))?;
        let (mut settings, mut recovery) = (unit.settings(), self.recovery());
        for page in selected {
            match page[0] & 0x3f {
                mode::page::CONTROL => settings.descriptor_sense = mode::has_descriptor_sense(page),
                mode::page::READ_WRITE_ERROR_RECOVERY => recovery = ErrorRecovery::of_page(page).unwrap_or(recovery),
                _ => {}
            }
        }
        if (settings, recovery) != (unit.settings(), self.recovery()) {
            begun.check_quiet()?;
            unit.set_settings(settings);
            self.set_recovery(recovery);
            unit.nexuses.raise(UnitAttention::ModeChanged, Some(begun.nexus));
        }
        Ok(Step::Good)
    }

    fn check_started(&self) -> Result<(), Sense> {
        self.disc(&self.tray.geometry()).map(drop)
    }

    fn begin(&self, operation: &Operation, begun: &Beginning<'_>, task: &mut Task) -> Result<Step, Refusal> {
        let command = MultimediaCommand::parse(operation, &task.cdb)?;
        begun.takes(0, task);
        self.answer(command, begun, task)
    }

    fn eject(&self, unit: &UnitState, is_forced: bool) -> Result<(), MediumError> {
        let is_prevented = unit.is_removal_prevented() || unit.nexuses.is_removal_persistently_prevented();
        if is_prevented && !is_forced {
            // The initiators that have locked it are asked to eject or unlock it, as by the button of a drive.
            self.events.raise(MediaEvent::EjectRequest);
            return Err(MediumError::Prevented);
        }
        self.open();
        Ok(())
    }

    fn check_medium(&self, medium: &Arc<dyn Store>) -> Result<(), MediumError> {
        tray::check(medium)
    }

    fn load(&self, disc: Option<Arc<dyn Store>>, unit: &UnitState) -> Result<(), MediumError> {
        self.close(disc, unit)
    }

    fn reset(&self) {
        self.set_recovery(ErrorRecovery::default());
    }

    fn forget(&self, nexus: NexusId) {
        self.events.forget(nexus);
    }
}
