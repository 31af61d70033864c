//! What there is to tell of derived volumes.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sanwire_core::Protection;
use sanwire_device::{Derived, PrincipalUsage};
use sanwire_program::ProgramStatistics;
use sanwire_store::VolumeSpec;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::config::VolumeConfig;
use crate::derived::{DerivedSpec, Region, words};
use crate::manage::response::VolumeStatus;
use crate::server::MissingVolume;
use crate::wall_time::written_unix_millis;

/// What a volume is of another one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DerivedStatus {
    /// The volume from which it is derived.
    pub parent: String,
    /// The parts of that which it has, in the order of its own blocks.
    pub regions: Vec<RegionStatus>,
    /// What may be done with it: classes of operations, and operation codes.
    pub operations: Vec<String>,
    /// Who may use it.
    pub principals: Vec<String>,
    /// When it ends by itself, or with its parents, as in RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// How long that is from now on, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_left: Option<u64>,
    /// Where the module is that judges its commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
}

/// A part of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RegionStatus {
    /// Where it begins.
    pub offset_bytes: u64,
    /// How long it is.
    pub length_bytes: u64,
}

/// A derived volume, with what was counted since it was opened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DvdStatus {
    /// The volume.
    #[serde(flatten)]
    pub volume: VolumeStatus,
    /// Those who have used it, the first 256 by themselves.
    pub used_by: Vec<PrincipalStatus>,
    /// What its program has done since the volume was opened, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<ProgramStatus>,
    /// Those who were refused it as a whole: how often somebody asked who is no principal of it, or of its parents.
    pub not_admitted: u64,
}

/// What was counted of one who uses a derived volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PrincipalStatus {
    /// Who, for people; null: all those together for whom there was no room.
    pub principal: Option<String>,
    /// Commands that are over.
    pub commands: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Bytes that were written.
    pub written_bytes: u64,
    /// Commands that were refused because they went beyond what the volume has.
    pub refused_region: u64,
    /// Those that are not allowed.
    pub refused_operation: u64,
    /// Those that the program has refused.
    pub refused_program: u64,
    /// Those that came when the time was over, or the volume was revoked.
    pub refused_expired: u64,
}

/// What a program has done.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ProgramStatus {
    /// Commands that it was asked about; one that was deferred counts each time.
    pub calls: u64,
    /// Commands that it let through as they are.
    pub allowed: u64,
    /// Commands that it refused.
    pub refused: u64,
    /// Commands that it had go to other blocks.
    pub redirected: u64,
    /// Commands that it changed.
    pub rewritten: u64,
    /// Times that it put a command off.
    pub deferred: u64,
    /// Calls in which it failed: these commands were refused.
    pub failed: u64,
    /// How it failed last, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<String>,
    /// All fuel that it has taken: about an instruction each.
    pub fuel: u64,
}

impl From<ProgramStatistics> for ProgramStatus {
    fn from(counted: ProgramStatistics) -> Self {
        let ProgramStatistics { calls, allowed, refused, redirected, rewritten, deferred, failed, fuel, .. } = counted;
        let last_failure = counted.last_failure.map(|failure| failure.to_string());
        ProgramStatus { calls, allowed, refused, redirected, rewritten, deferred, failed, last_failure, fuel }
    }
}

impl DerivedStatus {
    /// That of an open volume; `None` when it is not written as one that is derived.
    pub(in crate::manage) fn of(spec: &VolumeSpec, unit: &Derived) -> Option<DerivedStatus> {
        let written = DerivedSpec::of(spec)?;
        let region = |extent: &sanwire_device::DerivedExtent| RegionStatus {
            offset_bytes: extent.offset_bytes,
            length_bytes: extent.length_bytes,
        };
        Some(DerivedStatus {
            parent: written.parent.to_string(),
            regions: unit.extents().iter().map(region).collect(),
            operations: words(unit.operations()),
            principals: written.principals.iter().map(ToString::to_string).collect(),
            until: unit.until_unix_ms().map(written_unix_millis),
            seconds_left: unit.until_unix_ms().map(|until| left(until, SystemTime::now()).as_secs()),
            program: written.program.as_ref().map(|path| path.display().to_string()),
        })
    }
}

/// A derived volume that should be served and is not, as it is written.
pub(super) fn missing_status(missing: &MissingVolume, usual: Protection) -> Option<VolumeStatus> {
    let MissingVolume { volume: VolumeConfig { lun, spec, origin }, reason, .. } = missing;
    let written = DerivedSpec::of(spec)?;
    let region =
        |region: &Region| RegionStatus { offset_bytes: region.offset_bytes(), length_bytes: region.length_bytes() };
    let until = written.until.map(|until| until.from(SystemTime::now()));
    let since = until.map(|until| until.duration_since(UNIX_EPOCH).unwrap_or_default());
    let until = since.map(|since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
    let derived = DerivedStatus {
        parent: written.parent.to_string(),
        regions: written.regions.iter().map(region).collect(),
        operations: written.operations.as_ref().map(|operations| words(&operations.allowed())).unwrap_or_default(),
        principals: written.principals.iter().map(ToString::to_string).collect(),
        until: until.map(written_unix_millis),
        seconds_left: until.map(|until| left(until, SystemTime::now()).as_secs()),
        program: written.program.as_ref().map(|path| path.display().to_string()),
    };
    Some(VolumeStatus {
        id: String::new(),
        revision: 0,
        name: spec.name.to_string(),
        origin: *origin,
        lun: lun.number(),
        size_bytes: derived.regions.iter().map(|region| region.length_bytes).sum(),
        store: spec.store_text().to_owned(),
        used_bytes: None,
        block_bytes: 0,
        read_only: spec.store.read_only,
        waiting: 0,
        security: spec.security.unwrap_or(usual).to_string(),
        protected: spec.protected,
        pool: None,
        owners: spec.owners.clone(),
        derived: Some(derived),
        missing: Some(reason.clone()),
    })
}

/// How long it is from now on to a time.
pub(super) fn left(until_unix_ms: u64, now: SystemTime) -> Duration {
    let until = UNIX_EPOCH.checked_add(Duration::from_millis(until_unix_ms));
    // A time that the system cannot hold is never reached.
    until.map_or(Duration::MAX, |until| until.duration_since(now).unwrap_or_default())
}

impl DvdStatus {
    /// That of one that is not served: nobody uses it.
    pub(in crate::manage) fn of_missing(volume: VolumeStatus) -> DvdStatus {
        DvdStatus { volume, used_by: Vec::new(), program: None, not_admitted: 0 }
    }

    pub(in crate::manage) fn of(volume: VolumeStatus, unit: &Derived, program: Option<ProgramStatistics>) -> DvdStatus {
        let counted = unit.statistics();
        let principals =
            counted.principals.iter().map(|one| PrincipalStatus::of(Some(one.principal.to_string()), &one.usage));
        let others = Some(&counted.others).filter(|usage| **usage != PrincipalUsage::default());
        let others = others.map(|usage| PrincipalStatus::of(None, usage));
        DvdStatus {
            volume,
            used_by: principals.chain(others).collect(),
            program: program.map(ProgramStatus::from),
            not_admitted: counted.not_admitted,
        }
    }
}

impl PrincipalStatus {
    fn of(principal: Option<String>, usage: &PrincipalUsage) -> Self {
        PrincipalStatus {
            principal,
            commands: usage.commands,
            read_bytes: usage.read_bytes,
            written_bytes: usage.written_bytes,
            refused_region: usage.refused_region,
            refused_operation: usage.refused_operation,
            refused_program: usage.refused_program,
            refused_expired: usage.refused_expired,
        }
    }
}
