use std::io::Write;
use std::process::{Command, Stdio};

use proptest::prelude::*;
use sanwire_testing::{is_installed, skip, this_test};

use super::*;

fn disk() -> IdentifyDevice {
    IdentifyDevice {
        serial: "0123456789abcdef0123".to_owned(),
        firmware: "1.0".to_owned(),
        model: "SANWIRE Disk".to_owned(),
        sectors: 0x1_2345_6789,
        sector_bytes: 512,
        physical_sector_exponent: 3,
        rotation_rate: 1,
        world_wide_name: Some(0x3123_4567_89ab_cdef),
        multiple: 8,
        dma_mode: Some(2),
        abilities: Abilities {
            has_48_bit_addresses: true,
            has_flush: true,
            has_flush_ext: true,
            has_forced_writes: true,
            has_dma: true,
            smart: Some(true),
            write_cache: Some(true),
        },
        run: None,
        trim: Some(Trim { blocks_max: 8, reads_zeroes: true }),
    }
}

fn words(disk: &IdentifyDevice) -> Vec<u16> {
    disk.to_bytes().as_chunks().0.iter().map(|word| u16::from_le_bytes(*word)).collect()
}

#[test]
fn the_words_are_those_of_the_standard() {
    let words = words(&disk());
    assert_eq!((words[0], words[1], words[3], words[6]), (0x0040, 16_383, 16, 63));
    assert_eq!(words[10], 0x3031, "strings have the first character in the upper byte");
    assert_eq!((words[27], words[33], words[34]), (0x5341, 0x2020, 0x2020), "SA, and spaces");
    assert_eq!((words[47], words[59]), (0x8010, 0x0108));
    assert_eq!((words[49], words[53]), (0x0b00, 0x0003));
    assert_eq!((words[54], words[55], words[56]), (16_383, 16, 63));
    assert_eq!(u32::from(words[57]) | u32::from(words[58]) << 16, 16_383 * 16 * 63);
    assert_eq!((words[60], words[61]), (0xffff, 0x0fff), "more than 28 bits reach");
    assert_eq!(words[63], 0x0407);
    assert_eq!((words[69], words[105], words[169]), (0x4020, 8, 1));
    assert_eq!((words[82], words[83], words[84]), (0x0029, 0x7400, 0x4140));
    assert_eq!((words[85], words[86], words[87]), (0x0029, 0xb400, 0x4140));
    assert_eq!(words[108..112], [0x3123, 0x4567, 0x89ab, 0xcdef]);
    assert_eq!(words[100..104], [0x6789, 0x2345, 0x0001, 0]);
    assert_eq!((words[106], words[117], words[118], words[209]), (0x6003, 0, 0, 0x4000));
    assert_eq!(words[119] & 0x0004, 0, "no WRITE UNCORRECTABLE EXT");
    assert_eq!((words[217], words[255] & 0xff), (1, 0xa5));
    assert!(is_sealed(&disk().to_bytes()));
}

#[test]
fn sectors_of_4_096_bytes_are_told_in_words() {
    let words = words(&IdentifyDevice { sector_bytes: 4096, physical_sector_exponent: 0, ..disk() });
    assert_eq!((words[106], words[117], words[118]), (0x5000, 2048, 0));
}

#[test]
fn what_a_disk_has_not_is_not_claimed() {
    let words = words(&IdentifyDevice { trim: None, abilities: Abilities::default(), dma_mode: None, ..disk() });
    assert_eq!((words[69], words[105], words[169]), (0, 0, 0));
    assert_eq!((words[49], words[63], words[82], words[83]), (0x0a00, 0, 0x0008, 0x4000));
    assert_eq!(words[100..104], [0; 4]);
}

/// What vblade 25 tells of a disk of 1 MiB.
#[test]
fn the_data_of_another_target_is_read() {
    let mut bytes = vec![0; IDENTIFY_BYTES];
    let mut put = |at: usize, word: u16| bytes[2 * at..2 * at + 2].copy_from_slice(&word.to_le_bytes());
    for (at, word) in [(47, 0x8000), (49, 0x0200), (50, 0x4000), (83, 0x5400), (84, 0x4000), (86, 0x1400), (87, 0x4000)]
    {
        put(at, word);
    }
    put(60, 2048);
    put(100, 2048);
    put_text_at(&mut bytes, 27, "Coraid EtherDrive vblade");
    let disk = IdentifyDevice::parse(&bytes).unwrap();
    assert_eq!((disk.model.as_str(), disk.sectors, disk.sector_bytes), ("Coraid EtherDrive vblade", 2048, 512));
    let Abilities { has_48_bit_addresses, has_flush, has_flush_ext, .. } = disk.abilities;
    assert_eq!((has_48_bit_addresses, has_flush, has_flush_ext, disk.trim), (true, true, false, None));
}

fn put_text_at(bytes: &mut [u8], word: usize, text: &str) {
    for (at, char) in text.bytes().enumerate() {
        bytes[2 * word + (at ^ 1)] = char;
    }
}

#[test]
fn damaged_data_is_refused() {
    let bytes = disk().to_bytes();
    assert_eq!(IdentifyDevice::parse(&bytes[..511]), Err(IdentifyError::Short));
    let mut damaged = bytes.clone();
    damaged[120] ^= 1;
    assert_eq!(IdentifyDevice::parse(&damaged), Err(IdentifyError::Checksum));
    assert_eq!(IdentifyDevice::parse(&[0; 512]), Err(IdentifyError::NoDisk));
    let mut packet = bytes;
    packet[1] |= 0x80;
    seal(&mut packet);
    assert_eq!(IdentifyDevice::parse(&packet), Err(IdentifyError::NoDisk), "an ATAPI device");
}

/// What hdparm makes of the data.
fn hdparm(disk: &IdentifyDevice) -> String {
    let text: String = words(disk).chunks(8).map(|line| format!("{}\n", hexadecimal(line))).collect();
    let mut command = Command::new("hdparm");
    command.arg("--Istdin").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn hexadecimal(words: &[u16]) -> String {
    words.iter().map(|word| format!("{word:04x}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn hdparm_reads_the_same() {
    if !is_installed("hdparm") {
        return skip(&this_test(), "hdparm is not installed");
    }
    let told = hdparm(&disk());
    let lines: Vec<String> = told.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for expected in [
        "ATA device, with non-removable media",
        "Model Number: SANWIRE Disk",
        "Serial Number: 0123456789abcdef0123",
        "Firmware Revision: 1.0",
        "CHS current addressable sectors: 16514064",
        "LBA user addressable sectors: 268435455",
        "LBA48 user addressable sectors: 4886718345",
        "Logical Sector size: 512 bytes",
        "Physical Sector size: 4096 bytes",
        "Nominal Media Rotation Rate: Solid State Device",
        "R/W multiple sector transfer: Max = 16 Current = 8",
        "* SMART feature set",
        "* Power Management feature set",
        "* Write cache",
        "* 48-bit Address feature set",
        "* Mandatory FLUSH_CACHE",
        "* FLUSH_CACHE_EXT",
        "* WRITE_{DMA|MULTIPLE}_FUA_EXT",
        "* Data Set Management TRIM supported (limit 8 blocks)",
        "* Deterministic read ZEROs after TRIM",
        "Checksum: correct",
    ] {
        assert!(lines.iter().any(|line| line == expected), "no {expected:?} in\n{told}");
    }
    assert!(!told.contains("WRITE_UNCORRECTABLE") && !told.contains("HPA"), "{told}");
    let large = hdparm(&IdentifyDevice { sector_bytes: 4096, physical_sector_exponent: 0, ..disk() });
    assert!(large.contains("Logical  Sector size:                  4096 bytes"), "{large}");
}

proptest! {
    #[test]
    fn what_is_told_is_read(
        serial in "[!-~]{0,20}", model in "[!-~][ -~]{0,38}[!-~]", sectors in 1_u64..1 << 48, is_large: bool,
        exponent in 0_u8..16, multiple in 0_u8..=16, dma_mode in prop::option::of(0_u8..3), flags: [bool; 4],
        smart: Option<bool>, write_cache: Option<bool>, trim: Option<(u16, bool)>, world_wide_name: Option<u64>, run: Option<u64>,
    ) {
        let [has_flush, has_flush_ext, has_forced_writes, has_dma] = flags;
        let disk = IdentifyDevice {
            serial, model, sectors, sector_bytes: if is_large { 4096 } else { 512 }, physical_sector_exponent: exponent,
            multiple, dma_mode, world_wide_name, run,
            abilities: Abilities {
                has_48_bit_addresses: true, has_flush, has_flush_ext, has_forced_writes, has_dma, smart, write_cache,
            },
            trim: trim.map(|(blocks_max, reads_zeroes)| Trim { blocks_max, reads_zeroes }),
            ..disk()
        };
        prop_assert_eq!(IdentifyDevice::parse(&disk.to_bytes()), Ok(disk));
    }

    #[test]
    fn any_bytes_are_read_without_panic(mut bytes in prop::collection::vec(any::<u8>(), 512), is_sealed: bool) {
        if is_sealed {
            bytes[510] = SIGNATURE;
            seal(&mut bytes);
        }
        if let Ok(disk) = IdentifyDevice::parse(&bytes) {
            prop_assert!(disk.sectors > 0);
        }
    }
}
