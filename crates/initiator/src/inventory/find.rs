//! One volume among many: no more units are asked than it takes.

use sanwire_core::Lun;
use sanwire_scsi::vpd::page;

use super::asker::{ANSWER_BYTES, Asker};
use super::{
    INQUIRY_BYTES, THE_SERVER, UNITS_AT_ONCE, VolumeFingerprint, VolumeSummary, inquiry, is_disk, names, report_luns,
    standard_inquiry, volume,
};
use crate::driver::{Driver, OwnCommand};
use crate::endpoint::ConnectError;
use crate::session::Failure;
use crate::session::table::Naming;

/// So many names of volumes are told to who has asked for one that is not there.
const NAMED_MAX: usize = 32;

/// What came of seeking a volume.
pub(crate) enum Sought {
    Found(VolumeSummary),
    /// There is none so called; what there is, for people.
    Absent(String),
}

/// Seeks the volume that is named so.
pub(crate) fn find(driver: &mut Driver, server: &str, name: &str, naming: Naming) -> Result<Sought, ConnectError> {
    let asker = &mut Asker::new(driver, server);
    let luns = report_luns(asker)?;
    match naming {
        Naming::ByLun => find_number(asker, &luns, name),
        Naming::ByName => find_name(asker, &luns, name),
        Naming::Only => match luns[..] {
            [lun] if is_disk(asker, lun)? => volume(asker, lun).map(Sought::Found),
            _ => Ok(Sought::Absent(shown(&[]))),
        },
    }
}

fn find_number(asker: &mut Asker<'_>, luns: &[Lun], number: &str) -> Result<Sought, ConnectError> {
    if let Some(&lun) = luns.iter().find(|lun| lun.to_string() == number)
        && is_disk(asker, lun)?
    {
        return volume(asker, lun).map(Sought::Found);
    }
    let mut numbers = Vec::new();
    for luns in luns.chunks(UNITS_AT_ONCE) {
        ask_who_ahead(asker, luns);
        for &lun in luns {
            numbers.extend(is_disk(asker, lun)?.then(|| lun.to_string()));
        }
        asker.forget_ahead();
        // There are more than are told.
        if numbers.len() > NAMED_MAX {
            break;
        }
    }
    Ok(Sought::Absent(shown(&numbers)))
}

/// Asks the units, many at once, what they are called, until one is the volume. A unit that fails does not keep the others from being it.
fn find_name(asker: &mut Asker<'_>, luns: &[Lun], name: &str) -> Result<Sought, ConnectError> {
    let (mut all, mut failed) = (Vec::new(), None);
    for luns in luns.chunks(UNITS_AT_ONCE) {
        ask_who_ahead(asker, luns);
        for &lun in luns {
            match is_called(asker, lun, name, &mut all) {
                Ok(Some(volume)) => return Ok(Sought::Found(volume)),
                Ok(None) => {}
                Err(error @ ConnectError::Handshake { .. }) => return Err(error),
                Err(error) => drop(failed.get_or_insert(error)),
            }
        }
        asker.forget_ahead();
    }
    failed.map_or_else(|| Ok(Sought::Absent(shown(&all))), Err)
}

/// The unit, if it is a volume of this name; else its name is added to the others.
fn is_called(
    asker: &mut Asker<'_>,
    lun: Lun,
    wanted: &str,
    others: &mut Vec<String>,
) -> Result<Option<VolumeSummary>, ConnectError> {
    if !is_disk(asker, lun)? {
        return Ok(None);
    }
    let (name, _) = names(asker, lun)?;
    // By the time when all is known of it, it may be another one.
    let found = if name == wanted { Some(volume(asker, lun)?).filter(|found| found.name == wanted) } else { None };
    if found.is_none() && others.len() <= NAMED_MAX {
        others.push(name);
    }
    Ok(found)
}

/// Asks several units at once what they are, and who.
fn ask_who_ahead(asker: &mut Asker<'_>, luns: &[Lun]) {
    if luns.len() > 1 {
        asker.ask_ahead(luns.iter().flat_map(|&lun| {
            [(standard_inquiry(), INQUIRY_BYTES), (inquiry(page::DEVICE_IDENTIFICATION), ANSWER_BYTES)]
                .map(|(cdb, bytes)| OwnCommand { lun, cdb, data_in_bytes: usize::from(bytes) })
        }));
    }
}

/// Which of these units has these names; `may_ask` says, just before, which may be asked.
pub(crate) fn find_marked(
    driver: &mut Driver,
    luns: &[Lun],
    mark: &VolumeFingerprint,
    mut may_ask: impl FnMut(&Driver, Lun) -> bool,
) -> Result<Option<Lun>, Failure> {
    let asker = &mut Asker::new(driver, THE_SERVER);
    for luns in luns.chunks(UNITS_AT_ONCE) {
        if luns.len() > 1 {
            asker.ask_ahead(luns.iter().map(|&lun| OwnCommand {
                lun,
                cdb: inquiry(page::DEVICE_IDENTIFICATION),
                data_in_bytes: usize::from(ANSWER_BYTES),
            }));
        }
        for &lun in luns {
            if !may_ask(asker.driver, lun) {
                continue;
            }
            match names(asker, lun) {
                Ok((_, found)) if found == *mark => return Ok(Some(lun)),
                Err(ConnectError::Handshake { failure, .. }) => return Err(failure),
                _ => {}
            }
        }
        asker.forget_ahead();
    }
    Ok(None)
}

fn shown(names: &[String]) -> String {
    let (named, others) = names.split_at(names.len().min(NAMED_MAX));
    match (named, others) {
        ([], _) => "none".to_owned(),
        (named, []) => named.join(", "),
        (named, _) => format!("{} and others (`sanwire ls` lists them)", named.join(", ")),
    }
}
