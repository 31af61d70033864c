//! `dvd:PARENT`: a part of another volume of the same server, for those whom its owner names.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use sanwire_store::kind::{self, Backing, Likeness, Place, Rewritten, StoreKind};
use sanwire_store::{Expectation, Known, OpenError, SpecError, Store, VolumeName, VolumeSpec, Written};

use super::operations::{self, Operations};
use super::principal::PrincipalRule;
use super::region::Region;
use super::until::{self, Until};

/// Regions of one volume at the most: each request looks among them for its own.
const REGIONS_MAX: usize = 1024;

/// Rules that say who may use one volume, at the most: they are asked one after the other.
const PRINCIPALS_MAX: usize = 256;

struct DerivedKind;

/// Makes the kind known, for all volumes that are read from now on; once more does nothing.
pub fn register() {
    kind::register(&DerivedKind);
}

/// A derived volume, as it is written.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct DerivedSpec {
    /// The volume from which it is derived.
    pub(crate) parent: VolumeName,
    /// What it has of that, in this order; none: all of it.
    pub(crate) regions: Vec<Region>,
    /// What may be done with it; `None`: what may be done with the parent.
    pub(crate) operations: Option<Operations>,
    /// Who may use it.
    pub(crate) principals: Vec<PrincipalRule>,
    /// How long.
    pub(crate) until: Option<Until>,
    /// The module that judges its commands.
    pub(crate) program: Option<PathBuf>,
}

impl DerivedSpec {
    /// What a volume is derived from, and how; `None` for one that is not derived.
    pub(crate) fn of(spec: &VolumeSpec) -> Option<&DerivedSpec> {
        (&*spec.store.backing as &dyn Any).downcast_ref()
    }

    /// Whether its time is over, by the clock of this host.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over_at(SystemTime::now())
    }

    /// Whether its time is over then.
    pub(crate) fn is_over_at(&self, now: SystemTime) -> bool {
        self.until.is_some_and(|until| until.from(now) <= now)
    }
}

impl StoreKind for DerivedKind {
    fn words(&self) -> &'static [&'static str] {
        &["dvd"]
    }

    fn form(&self) -> &'static str {
        "dvd:PARENT"
    }

    fn keys(&self) -> &'static [&'static str] {
        &["region", "allow-ops", "principal", "until", "program"]
    }

    fn lacks(&self, key: &str) -> &'static str {
        match key {
            "size" | "grow" => "a derived volume is as long as its regions are",
            "direct" => "a derived volume reads and writes as its parent does",
            _ => "derived volumes have no such key",
        }
    }

    fn read(&self, written: &Written<'_>) -> Result<Arc<dyn Backing>, SpecError> {
        let parent: VolumeName = written.place().parse().map_err(|_| written.is_no_store())?;
        for (key, reason) in [
            ("block", "a derived volume has the blocks of its parent"),
            ("type", "a derived volume is what its parent is"),
            ("thick", "allow no discard (allow-ops), or give it to the parent"),
            ("delay", "give it to the parent"),
            ("error", "give it to the parent"),
            ("seed", "give it to the parent"),
        ] {
            if written.values(key).iter().any(|value| value != "false") {
                return Err(SpecError::NotHere { key, reason });
            }
        }
        Ok(Arc::new(DerivedSpec {
            parent,
            regions: regions(written)?,
            operations: Operations::parse_all(written.values("allow-ops")).map_err(|value| SpecError::Value {
                key: "allow-ops",
                value,
                expected: operations::EXPECTED,
            })?,
            principals: principals(written)?,
            until: written.value("until", until::EXPECTED, Until::parse)?,
            program: written.value("program", "the path of a WebAssembly module", |text| {
                Some(PathBuf::from(text)).filter(|path| !path.as_os_str().is_empty())
            })?,
        }))
    }
}

fn regions(written: &Written<'_>) -> Result<Vec<Region>, SpecError> {
    let invalid = |value: &str, expected| SpecError::Value { key: "region", value: value.to_owned(), expected };
    let values = written.values("region");
    if values.len() > REGIONS_MAX {
        return Err(invalid(&values[REGIONS_MAX], "at most 1024 of them"));
    }
    let read = |value: &String| value.parse().map_err(|expected| invalid(value, expected));
    let regions: Vec<Region> = values.iter().map(read).collect::<Result<_, _>>()?;
    match Region::overlapping(&regions) {
        Some([first, second]) => Err(invalid(&format!("{first} and {second}"), "regions that have no byte in common")),
        None => Ok(regions),
    }
}

fn principals(written: &Written<'_>) -> Result<Vec<PrincipalRule>, SpecError> {
    let invalid = |value: &str, expected| SpecError::Value { key: "principal", value: value.to_owned(), expected };
    let values = written.values("principal");
    if values.is_empty() {
        return Err(invalid("", "who may use it: principal=any lets all use it whom the server serves"));
    }
    if values.len() > PRINCIPALS_MAX {
        return Err(invalid(&values[PRINCIPALS_MAX], "at most 256 of them"));
    }
    values.iter().map(|value| value.parse().map_err(|expected| invalid(value, expected))).collect()
}

impl Backing for DerivedSpec {
    fn open(&self, _: Option<&Expectation<'_>>) -> Result<(Arc<dyn Store>, Option<Known>), OpenError> {
        Err(OpenError::Derived { parent: self.parent.to_string() })
    }

    fn place(&self) -> Place<'_> {
        Place::Volume(&self.parent)
    }

    fn compare(&self, other: &dyn Backing) -> Likeness {
        let is_same = (other as &dyn Any).downcast_ref() == Some(self);
        if is_same { Likeness::Same } else { Likeness::Other }
    }

    fn absolute(&self) -> Option<Rewritten> {
        let program = self.program.as_ref().filter(|path| path.is_relative())?;
        let program = std::path::absolute(program).ok()?.to_str()?.to_owned();
        Some(Rewritten { store: None, keys: vec![("program", program)] })
    }

    fn settled(&self, now: SystemTime) -> Option<Rewritten> {
        let until = self.until.filter(|until| matches!(until, Until::After(_)))?;
        Some(Rewritten { store: None, keys: vec![("until", Until::At(until.from(now)).to_string())] })
    }

    fn parent(&self) -> Option<&str> {
        Some(&self.parent)
    }
}

/// The same volume with another end, where it is derived.
pub(crate) fn with_until(spec: VolumeSpec, until: Option<Until>) -> VolumeSpec {
    if DerivedSpec::of(&spec).is_none_or(|derived| derived.until == until) {
        return spec;
    }
    let others = spec.written_keys().filter(|(key, _)| *key != "until");
    let others = others.flat_map(|(key, values)| values.iter().map(move |value| (key, value.clone())));
    let keys: Vec<_> = others.chain(until.map(|until| ("until", until.to_string()))).collect();
    // What was read once is read again.
    VolumeSpec::of_parts(&spec.name, spec.store_text(), &keys).unwrap_or(spec)
}

/// The module that judges the commands of a volume, if it names one.
#[must_use]
pub fn program_of(spec: &VolumeSpec) -> Option<&Path> {
    DerivedSpec::of(spec)?.program.as_deref()
}

/// The CHAP users among the principals of a volume.
#[must_use]
pub fn chap_users_of(spec: &VolumeSpec) -> Vec<&str> {
    let principals = DerivedSpec::of(spec).map_or(&[][..], |derived| &derived.principals);
    let users = principals.iter().filter_map(|rule| match rule {
        PrincipalRule::User(user) => Some(user.as_str()),
        _ => None,
    });
    users.collect()
}
