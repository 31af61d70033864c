//! GET CONFIGURATION (MMC-6 6.6): the features of a drive, of which those are current that fit the disc in it.

use super::{BLOCK_BYTES, Disc, Profile};
use crate::bytes::put;
use crate::command::ConfigurationRequest;

/// The drive whose features are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConfiguredDrive<'a> {
    /// The disc in it, if it is ready.
    pub disc: Option<Disc>,
    /// Its serial number.
    pub serial: &'a str,
}

struct Feature {
    code: u16,
    version: u8,
    is_persistent: bool,
    is_current: bool,
    data: Vec<u8>,
}

/// GET CONFIGURATION data: the features from this one on, whole.
#[must_use]
pub fn configuration(request: ConfigurationRequest, first: u16, drive: ConfiguredDrive<'_>) -> Vec<u8> {
    let is_wanted = |feature: &Feature| match request {
        ConfigurationRequest::All => feature.code >= first,
        ConfigurationRequest::Current => feature.code >= first && feature.is_current,
        ConfigurationRequest::One => feature.code == first,
    };
    let profile = drive.disc.map_or(0, |disc| disc.profile() as u16);
    let mut bytes = vec![0; 6];
    bytes.extend(profile.to_be_bytes());
    for feature in features(drive).iter().filter(|feature| is_wanted(feature)) {
        let flags = feature.version << 2 | u8::from(feature.is_persistent) << 1 | u8::from(feature.is_current);
        bytes.extend(feature.code.to_be_bytes());
        bytes.extend([flags, feature.data.len() as u8]);
        bytes.extend(&feature.data);
    }
    let length = (bytes.len() - 4) as u32;
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// Ascending by code.
fn features(drive: ConfiguredDrive<'_>) -> Vec<Feature> {
    let profile = drive.disc.map(Disc::profile);
    let always = |code, version, data: &[u8]| Feature {
        code,
        version,
        is_persistent: true,
        is_current: true,
        data: data.to_vec(),
    };
    let sometimes = |code, version, is_current, data: &[u8]| Feature {
        code,
        version,
        is_persistent: false,
        is_current,
        data: data.to_vec(),
    };
    let is = |wanted| profile == Some(wanted);
    let mut serial = drive.serial.as_bytes().to_vec();
    serial.resize(serial.len().next_multiple_of(4), b' ');
    vec![
        always(0x0000, 0, &profiles(profile)),
        always(0x0001, 2, &[0, 0, 0, 1, 0, 0, 0, 0]), // core: SCSI
        always(0x0002, 1, &[0, 0, 0, 0]),             // morphing: events are polled
        always(0x0003, 0, &[0x29, 0, 0, 0]),          // removable medium: a tray, which ejects and locks
        sometimes(0x0010, 0, profile.is_some(), &random_readable(profile)),
        sometimes(0x001d, 0, is(Profile::Cd), &[]),              // multi-read
        sometimes(0x001e, 2, is(Profile::Cd), &[0x01, 0, 0, 0]), // CD read, and its CD-TEXT
        sometimes(0x001f, 0, is(Profile::Dvd), &[]),             // DVD read
        sometimes(0x0040, 0, is(Profile::BluRay), &BD_READ),
        always(0x0100, 0, &[]), // power management
        always(0x0105, 0, &[]), // timeout
        always(0x0108, 0, &serial),
    ]
}

/// The size of a block, and how many are corrected together.
fn random_readable(profile: Option<Profile>) -> [u8; 8] {
    let blocking: u16 = match profile {
        Some(Profile::BluRay) => 32,
        Some(Profile::Dvd) => 16,
        Some(Profile::Cd) | None => 1,
    };
    let mut data = [0; 8];
    put(&mut data, 0, BLOCK_BYTES.to_be_bytes());
    put(&mut data, 4, blocking.to_be_bytes());
    data
}

/// BD read: four classes of BD-RE, of BD-R and of BD-ROM, each with a bit for each version. Of all these BD-ROM version 1, class 0.
const BD_READ: [u8; 28] = {
    let mut data = [0; 28];
    data[21] = 1 << 1;
    data
};

/// The profile list, in descending order of preference.
fn profiles(current: Option<Profile>) -> Vec<u8> {
    let entry = |profile: Profile| {
        let [high, low] = (profile as u16).to_be_bytes();
        [high, low, u8::from(current == Some(profile)), 0]
    };
    [Profile::BluRay, Profile::Dvd, Profile::Cd].into_iter().flat_map(entry).collect()
}
