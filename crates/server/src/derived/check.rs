//! What of derived volumes, and of owners, can be checked before anything is opened.

use std::collections::BTreeMap;
use std::time::SystemTime;

use sanwire_core::Protection;
use sanwire_store::VolumeSpec;

use super::error::DerivedError;
use super::kind::DerivedSpec;
use super::lineage::{Lineage, opening_order};
use super::principal::{self, PrincipalRule};
use super::until::{Until, unix_millis};
use crate::wall_time::written_unix_millis;

/// The most owners that a volume has, as many as principals that a derived one admits: all of them are kept, and asked for.
const OWNERS_MAX: usize = 256;

/// Checks volumes of the configuration, and gives those that are derived the level of protection of their parents where they name none
/// themselves: what they show is theirs. `usual` is that of volumes that name none.
///
/// # Errors
/// The name of the first volume that is wrong, and why.
pub fn check_derived(volumes: &mut [VolumeSpec], usual: Protection) -> Result<(), (String, DerivedError)> {
    for volume in volumes.iter() {
        let named = |error| (volume.name.to_string(), error);
        owners(volume).map_err(named)?;
        if let Some(until @ Until::After(_)) = DerivedSpec::of(volume).and_then(|derived| derived.until) {
            return Err(named(DerivedError::Relative { until: until.to_string() }));
        }
    }
    Lineage::of(volumes.iter()).check().map_err(|(volume, error)| (volume.to_owned(), error))?;
    check_ends(volumes)?;
    inherit_levels(volumes, usual, |volume, level, parent, parent_level| {
        let (parent, parent_level) = (parent.to_owned(), parent_level);
        Err((volume.to_owned(), DerivedError::Level { level, parent, parent_level }))
    })
}

/// What ends by itself ends before that from which it is derived, or with it. There are no circles.
fn check_ends(volumes: &[VolumeSpec]) -> Result<(), (String, DerivedError)> {
    let by_name: BTreeMap<&str, &VolumeSpec> = volumes.iter().map(|volume| (&*volume.name, volume)).collect();
    let until = |volume: &VolumeSpec| Some(DerivedSpec::of(volume)?.until?.from(SystemTime::now()));
    for volume in volumes {
        let Some(own) = until(volume) else { continue };
        let parent = |volume: &&VolumeSpec| by_name.get(volume.parent()?).copied();
        let above = std::iter::successors(parent(&volume), parent);
        let of_parent = above.filter_map(until).min();
        if let Some(parent_until) = of_parent.filter(|parent_until| own > *parent_until) {
            let [until, parent_until] = [own, parent_until].map(|time| written_unix_millis(unix_millis(time)));
            let parent = volume.parent().unwrap_or_default().to_owned();
            return Err((volume.name.to_string(), DerivedError::Beyond { until, parent, parent_until }));
        }
    }
    Ok(())
}

/// Gives derived volumes that name no level that of their parents; `lower` is told of each that names a lower one (the volume, its level, the
/// parent, the parent's level), and it has that of its parent too when that is no error.
pub(crate) fn inherit_levels<E>(
    volumes: &mut [VolumeSpec],
    usual: Protection,
    mut lower: impl FnMut(&str, Protection, &str, Protection) -> Result<(), E>,
) -> Result<(), E> {
    let order = opening_order(volumes.iter());
    let places: BTreeMap<String, usize> =
        volumes.iter().zip(0..).map(|(spec, at)| (spec.name.to_string(), at)).collect();
    for at in order {
        let spec = &volumes[at];
        let Some(above) = spec.parent().and_then(|parent| places.get(parent)).map(|at| &volumes[*at]) else { continue };
        let least = above.security.unwrap_or(usual);
        match spec.security {
            Some(level) if level >= least => continue,
            Some(level) => lower(&spec.name, level, &above.name, least)?,
            None if above.security.is_none() => continue,
            None => {}
        }
        volumes[at] = spec.clone().with_security(Some(least));
    }
    Ok(())
}

/// Who owns a volume: may derive volumes from it.
///
/// # Errors
/// [`DerivedError::Owner`] when one of them is nobody, [`DerivedError::TooManyOwners`].
pub(crate) fn owners(volume: &VolumeSpec) -> Result<Vec<PrincipalRule>, DerivedError> {
    if volume.owners.len() > OWNERS_MAX {
        return Err(DerivedError::TooManyOwners { count: volume.owners.len(), max: OWNERS_MAX });
    }
    let read = |owner: &String| {
        let invalid = |_| DerivedError::Owner { owner: owner.clone(), expected: principal::EXPECTED };
        owner.parse().map_err(invalid)
    };
    volume.owners.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::derived;

    fn checked(texts: &[&str]) -> Result<Vec<String>, String> {
        derived::register();
        let mut volumes: Vec<VolumeSpec> = texts.iter().map(|text| text.parse().unwrap()).collect();
        match check_derived(&mut volumes, Protection::Checksum) {
            Ok(()) => Ok(volumes.iter().map(ToString::to_string).collect()),
            Err((volume, error)) => Err(format!("{volume}: {error}")),
        }
    }

    #[test]
    fn a_derived_volume_is_guarded_as_its_parent_unless_it_says_more() {
        let level = |texts: &[&str]| checked(texts).map(|volumes| volumes.last().unwrap().clone());
        assert_eq!(level(&["a=ram:1M", "b=dvd:a,principal=any"]).unwrap(), "b=dvd:a,principal=any");
        let deep = ["c=dvd:b,principal=any", "b=dvd:a,principal=any", "a=ram:1M,security=hash"];
        let all = checked(&deep).unwrap();
        assert_eq!(all[..2], ["c=dvd:b,principal=any,security=hash", "b=dvd:a,principal=any,security=hash"]);
        let more = ["a=ram:1M,security=hash", "b=dvd:a,principal=any,security=aes-256-gcm"];
        assert_eq!(level(&more).unwrap(), more[1]);
        let error = checked(&["a=ram:1M,security=hash", "b=dvd:a,principal=any,security=none"]).unwrap_err();
        assert!(error.contains("b: security=none is less than the hash of a"), "{error}");
    }

    #[test]
    fn a_time_from_now_on_is_no_time_of_a_configuration() {
        let error = checked(&["a=ram:1M", "b=dvd:a,principal=any,until=2h"]).unwrap_err();
        assert!(error.contains("b: until=2h would begin anew at each start"), "{error}");
        assert!(checked(&["a=ram:1M", "b=dvd:a,principal=any,until=2027-01-31T18:00:00Z"]).is_ok());
    }

    #[test]
    fn nothing_that_is_configured_ends_after_what_it_is_derived_from() {
        let volumes = |until: &str| {
            let last = format!("c=dvd:b,principal=any,until={until}");
            checked(&["a=ram:1M", "b=dvd:m,principal=any", "m=dvd:a,principal=any,until=2027-01-31T18:00:00Z", &last])
        };
        assert!(volumes("2027-01-31T18:00:00Z").is_ok());
        let error = volumes("2027-01-31T18:00:01Z").unwrap_err();
        assert!(error.contains("c: it would end at 2027-01-31T18:00:01.000Z, after b, from which"), "{error}");
    }

    #[test]
    fn owners_are_principals() {
        assert!(checked(&["a=ram:1M,owner=any,owner=10.0.0.1,owner=claimed:iqn.x"]).is_ok());
        let error = checked(&["a=ram:1M,owner=alice"]).unwrap_err();
        assert!(error.contains("a: invalid owner 'alice': use any, an address"), "{error}");
        let owned_by = |count: usize| {
            let owners: String = (0..count).map(|at| format!(",owner=10.0.{}.{}", at / 256, at % 256)).collect();
            checked(&[&format!("a=ram:1M{owners}")])
        };
        assert!(owned_by(OWNERS_MAX).is_ok());
        let error = owned_by(OWNERS_MAX + 1).unwrap_err();
        assert!(error.contains("257 owners, 256 are allowed"), "{error}");
    }
}
