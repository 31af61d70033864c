//! Which command a task file is. What is not here is aborted.

use crate::place::Place;
use crate::task_file::TaskFile;

/// Operation codes.
#[allow(missing_docs, reason = "each is named by its command")]
pub mod code {
    pub const DATA_SET_MANAGEMENT: u8 = 0x06;
    pub const RECALIBRATE: u8 = 0x10;
    pub const READ_SECTORS: u8 = 0x20;
    pub const READ_SECTORS_EXT: u8 = 0x24;
    pub const READ_DMA_EXT: u8 = 0x25;
    pub const READ_NATIVE_MAX_ADDRESS_EXT: u8 = 0x27;
    pub const READ_MULTIPLE_EXT: u8 = 0x29;
    pub const WRITE_SECTORS: u8 = 0x30;
    pub const WRITE_SECTORS_EXT: u8 = 0x34;
    pub const WRITE_DMA_EXT: u8 = 0x35;
    pub const WRITE_MULTIPLE_EXT: u8 = 0x39;
    pub const WRITE_DMA_FUA_EXT: u8 = 0x3d;
    pub const READ_VERIFY_SECTORS: u8 = 0x40;
    pub const READ_VERIFY_SECTORS_EXT: u8 = 0x42;
    pub const ZERO_EXT: u8 = 0x44;
    pub const SEEK: u8 = 0x70;
    pub const EXECUTE_DEVICE_DIAGNOSTIC: u8 = 0x90;
    pub const INITIALIZE_DEVICE_PARAMETERS: u8 = 0x91;
    pub const SMART: u8 = 0xb0;
    pub const READ_MULTIPLE: u8 = 0xc4;
    pub const WRITE_MULTIPLE: u8 = 0xc5;
    pub const SET_MULTIPLE_MODE: u8 = 0xc6;
    pub const READ_DMA: u8 = 0xc8;
    pub const WRITE_DMA: u8 = 0xca;
    pub const WRITE_MULTIPLE_FUA_EXT: u8 = 0xce;
    pub const STANDBY_IMMEDIATE: u8 = 0xe0;
    pub const IDLE_IMMEDIATE: u8 = 0xe1;
    pub const STANDBY: u8 = 0xe2;
    pub const IDLE: u8 = 0xe3;
    pub const CHECK_POWER_MODE: u8 = 0xe5;
    pub const SLEEP: u8 = 0xe6;
    pub const FLUSH_CACHE: u8 = 0xe7;
    pub const FLUSH_CACHE_EXT: u8 = 0xea;
    pub const IDENTIFY_DEVICE: u8 = 0xec;
    pub const SET_FEATURES: u8 = 0xef;
    pub const READ_NATIVE_MAX_ADDRESS: u8 = 0xf8;
}

/// A command of a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// IDENTIFY DEVICE.
    IdentifyDevice,
    /// READ SECTOR(S), READ DMA, READ MULTIPLE, and their EXT forms.
    Read {
        /// What.
        place: Place,
        /// It is one of those that need SET MULTIPLE MODE before.
        is_multiple: bool,
    },
    /// WRITE SECTOR(S), WRITE DMA, WRITE MULTIPLE, and their EXT and FUA EXT forms.
    Write {
        /// What.
        place: Place,
        /// It is one of those that need SET MULTIPLE MODE before.
        is_multiple: bool,
        /// It ends when the data is on stable storage (FUA).
        is_stable: bool,
    },
    /// READ VERIFY SECTOR(S) and EXT.
    Verify(Place),
    /// FLUSH CACHE and EXT. So do STANDBY IMMEDIATE and SLEEP, after which the host may take the power away.
    Flush,
    /// DATA SET MANAGEMENT with TRIM.
    Trim {
        /// How many blocks of ranges come with it.
        blocks: u16,
    },
    /// ZERO EXT of ACS-4, which the host calls write zeroes.
    Zero {
        /// What.
        place: Place,
        /// The sectors may be trimmed, if they read as zeroes then.
        may_trim: bool,
    },
    /// SET MULTIPLE MODE: so many sectors for each block of data; none turns READ and WRITE MULTIPLE off.
    SetMultiple(u8),
    /// SET FEATURES.
    SetFeatures(Feature),
    /// SMART, with its signature.
    Smart(Smart),
    /// CHECK POWER MODE.
    CheckPowerMode,
    /// READ NATIVE MAX ADDRESS and EXT.
    NativeMaxAddress {
        /// The 48-bit form.
        is_long: bool,
    },
    /// INITIALIZE DEVICE PARAMETERS: the geometry for addresses by cylinder, head and sector.
    InitializeParameters {
        /// Heads of a cylinder.
        heads: u8,
        /// Sectors of a track.
        sectors: u8,
    },
    /// EXECUTE DEVICE DIAGNOSTIC.
    Diagnostic,
    /// What a disk without moving parts and without states of power has nothing to do for: RECALIBRATE, SEEK, IDLE, IDLE IMMEDIATE,
    /// STANDBY.
    Nothing,
}

/// What SET FEATURES sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Feature {
    /// 02h and 82h: whether the write cache is on.
    WriteCache(bool),
    /// 03h: the transfer mode of a bus that is not there.
    TransferMode(TransferMode),
}

/// A transfer mode, of those that IDENTIFY DEVICE data names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransferMode {
    /// PIO, whichever.
    Pio,
    /// Multiword DMA 0 to 2.
    MultiwordDma(u8),
}

/// What SMART is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Smart {
    /// D0h: SMART READ DATA.
    ReadData,
    /// D8h and D9h: SMART ENABLE and DISABLE OPERATIONS.
    Enable(bool),
    /// DAh: SMART RETURN STATUS.
    ReturnStatus,
}

/// LBA 23:8 of every SMART command.
pub(crate) const SMART_SIGNATURE: u64 = 0xc24f;

/// They take nothing from the task file, so either form will do.
const FLUSHES: [u8; 4] = [code::FLUSH_CACHE, code::FLUSH_CACHE_EXT, code::STANDBY_IMMEDIATE, code::SLEEP];

impl Command {
    /// Reads a task file. `None` for what the device does not have, and for a form that would be obeyed at another place than the host
    /// means: a 28-bit command with more than 28-bit fields, a 48-bit command in a short task file.
    #[must_use]
    pub fn parse(task_file: &TaskFile) -> Option<Command> {
        match Command::of_48_bits(task_file) {
            _ if FLUSHES.contains(&task_file.command) => Some(Command::Flush),
            Some(command) => Some(command).filter(|_| task_file.is_long),
            None if task_file.exceeds_28_bits() => None,
            None => Command::of_28_bits(task_file).or_else(|| Command::without_sectors(task_file)),
        }
    }

    fn of_48_bits(task_file: &TaskFile) -> Option<Command> {
        let place = Place::of_48_bits(task_file);
        let write = |is_multiple, is_stable| Command::Write { place, is_multiple, is_stable };
        Some(match task_file.command {
            code::READ_SECTORS_EXT | code::READ_DMA_EXT => Command::Read { place, is_multiple: false },
            code::READ_MULTIPLE_EXT => Command::Read { place, is_multiple: true },
            code::WRITE_SECTORS_EXT | code::WRITE_DMA_EXT => write(false, false),
            code::WRITE_MULTIPLE_EXT => write(true, false),
            code::WRITE_DMA_FUA_EXT => write(false, true),
            code::WRITE_MULTIPLE_FUA_EXT => write(true, true),
            code::READ_VERIFY_SECTORS_EXT => Command::Verify(place),
            code::ZERO_EXT => Command::Zero { place, may_trim: task_file.features & 1 != 0 },
            code::READ_NATIVE_MAX_ADDRESS_EXT => Command::NativeMaxAddress { is_long: true },
            // Bit 0 of FEATURES is TRIM; nothing else can be asked for.
            code::DATA_SET_MANAGEMENT if task_file.features == 1 => Command::Trim { blocks: task_file.count },
            _ => return None,
        })
    }

    fn of_28_bits(task_file: &TaskFile) -> Option<Command> {
        let place = Place::of_28_bits(task_file);
        let write = |is_multiple| Command::Write { place, is_multiple, is_stable: false };
        Some(match task_file.command {
            code::READ_SECTORS | code::READ_DMA => Command::Read { place, is_multiple: false },
            code::READ_MULTIPLE => Command::Read { place, is_multiple: true },
            code::WRITE_SECTORS | code::WRITE_DMA => write(false),
            code::WRITE_MULTIPLE => write(true),
            code::READ_VERIFY_SECTORS => Command::Verify(place),
            _ => return None,
        })
    }

    fn without_sectors(task_file: &TaskFile) -> Option<Command> {
        let [count, _] = task_file.count.to_le_bytes();
        Some(match task_file.command {
            code::IDENTIFY_DEVICE => Command::IdentifyDevice,
            code::SET_MULTIPLE_MODE => Command::SetMultiple(count),
            code::SET_FEATURES => Command::SetFeatures(Feature::parse(task_file)?),
            code::SMART => Command::Smart(Smart::parse(task_file)?),
            code::CHECK_POWER_MODE => Command::CheckPowerMode,
            code::READ_NATIVE_MAX_ADDRESS => Command::NativeMaxAddress { is_long: false },
            code::INITIALIZE_DEVICE_PARAMETERS => {
                Command::InitializeParameters { heads: (task_file.device & 0x0f) + 1, sectors: count }
            }
            code::EXECUTE_DEVICE_DIAGNOSTIC => Command::Diagnostic,
            code::RECALIBRATE | code::SEEK | code::IDLE | code::IDLE_IMMEDIATE | code::STANDBY => Command::Nothing,
            _ => return None,
        })
    }
}

impl Feature {
    fn parse(task_file: &TaskFile) -> Option<Feature> {
        Some(match task_file.features {
            0x02 => Feature::WriteCache(true),
            0x82 => Feature::WriteCache(false),
            0x03 => Feature::TransferMode(match task_file.count {
                // Default, default without IORDY, and PIO 0 to 4 with flow control.
                0x00 | 0x01 | 0x08..=0x0c => TransferMode::Pio,
                0x20..=0x22 => TransferMode::MultiwordDma(task_file.count as u8 & 0x07),
                _ => return None,
            }),
            _ => return None,
        })
    }
}

impl Smart {
    fn parse(task_file: &TaskFile) -> Option<Smart> {
        if task_file.lba >> 8 != SMART_SIGNATURE {
            return None;
        }
        Some(match task_file.features {
            0xd0 => Smart::ReadData,
            0xd8 => Smart::Enable(true),
            0xd9 => Smart::Enable(false),
            0xda => Smart::ReturnStatus,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(command: u8, features: u8, count: u8, lba: [u8; 3]) -> Option<Command> {
        Command::parse(&TaskFile::short(command, features, count, lba, 0xe0))
    }

    fn long(command: u8, features: u16, count: u16, lba: [u8; 6]) -> Option<Command> {
        Command::parse(&TaskFile::long(command, features, count, lba, 0x40))
    }

    /// Every code in either form: with a command, and the sectors that it names.
    #[test]
    fn the_table_of_commands() {
        let known: Vec<u8> = (0..=0xff).filter(|code| short(*code, 0, 1, [0; 3]).is_some()).collect();
        let expected = [
            0x10, 0x20, 0x30, 0x40, 0x70, 0x90, 0x91, 0xc4, 0xc5, 0xc6, 0xc8, 0xca, 0xe0, 0xe1, 0xe2, 0xe3, 0xe5, 0xe6,
            0xe7, 0xea, 0xec, 0xf8,
        ];
        assert_eq!(known, expected, "SMART and SET FEATURES want more");
        let long_only: Vec<u8> =
            (0..=0xff).filter(|code| long(*code, 1, 1, [0; 6]).is_some() && !known.contains(code)).collect();
        assert_eq!(long_only, [0x06, 0x24, 0x25, 0x27, 0x29, 0x34, 0x35, 0x39, 0x3d, 0x42, 0x44, 0xce]);
        let sectors = |command| match command {
            Some(Command::Read { place, .. } | Command::Write { place, .. } | Command::Verify(place)) => {
                place.sectors()
            }
            Some(Command::Zero { place, .. }) => place.sectors(),
            _ => 0,
        };
        for (count, of_28, of_48) in [(0, 256, 65_536), (1, 1, 1), (255, 255, 255)] {
            for code in [0x20, 0x30, 0x40, 0xc4, 0xc5, 0xc8, 0xca] {
                assert_eq!(sectors(short(code, 0, count, [9; 3])), of_28, "{code:02x}h");
            }
            for code in [0x24, 0x25, 0x29, 0x34, 0x35, 0x39, 0x3d, 0x42, 0x44, 0xce] {
                assert_eq!(sectors(long(code, 0, count.into(), [9; 6])), of_48, "{code:02x}h");
            }
        }
    }

    #[test]
    fn what_would_be_obeyed_at_another_place_is_not_obeyed() {
        assert!(long(0x20, 0, 8, [1, 2, 3, 0, 0, 0]).is_some(), "it fits");
        assert_eq!(long(0x20, 0, 8, [1, 2, 3, 4, 0, 0]), None, "its address would be cut");
        assert_eq!(long(0x20, 0, 256, [0; 6]), None, "its count would be cut");
        assert_eq!(long(0xef, 0x0102, 0, [0; 6]), None, "another feature");
        assert_eq!(short(0x24, 0, 8, [1, 2, 3]), None, "half of its address is missing");
    }

    #[test]
    fn forced_and_multiple_forms_say_so() {
        let write = |code| match long(code, 0, 1, [0; 6]) {
            Some(Command::Write { is_multiple, is_stable, .. }) => (is_multiple, is_stable),
            other => panic!("{other:?}"),
        };
        assert_eq!((write(0x34), write(0x35)), ((false, false), (false, false)));
        assert_eq!((write(0x39), write(0x3d), write(0xce)), ((true, false), (false, true), (true, true)));
        assert!(matches!(short(0xc4, 0, 1, [0; 3]), Some(Command::Read { is_multiple: true, .. })));
    }

    #[test]
    fn features_that_are_not_known_are_refused() {
        let accepted: Vec<u8> = (0..=0xff).filter(|feature| short(0xef, *feature, 0, [0; 3]).is_some()).collect();
        assert_eq!(accepted, [0x02, 0x03, 0x82]);
        let modes: Vec<u8> = (0..=0xff).filter(|mode| short(0xef, 0x03, *mode, [0; 3]).is_some()).collect();
        assert_eq!(modes, [0, 1, 8, 9, 10, 11, 12, 0x20, 0x21, 0x22]);
        assert_eq!(long(0x06, 0, 1, [0; 6]), None, "not TRIM");
        assert_eq!(long(0x06, 3, 1, [0; 6]), None, "more than TRIM");
    }

    #[test]
    fn smart_wants_its_signature() {
        let known: Vec<u8> = (0..=0xff).filter(|feature| short(0xb0, *feature, 0, [0, 0x4f, 0xc2]).is_some()).collect();
        assert_eq!(known, [0xd0, 0xd8, 0xd9, 0xda]);
        assert_eq!((short(0xb0, 0xd0, 0, [0, 0, 0]), short(0xb0, 0xd0, 0, [0, 0xc2, 0x4f])), (None, None));
    }
}
