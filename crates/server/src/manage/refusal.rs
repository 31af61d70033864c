//! What who asks is told when nothing is done: a sentence for people, and a code for programs.

use std::borrow::Cow;
use std::fmt;

use super::{CopyError, ManageError, WebLinkError};
use crate::error::StartError;
use crate::front::hyperscsi::clients::{ChangeError, ClientError};
use crate::pools::PoolError;

/// Why something that was asked was not done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// Which error it is, in words that stay the same from version to version: `volume-in-use`.
    pub code: Cow<'static, str>,
    /// Why, and what to do.
    pub reason: String,
}

impl Refusal {
    pub(crate) fn new(code: &'static str, reason: impl Into<String>) -> Self {
        Refusal { code: code.into(), reason: reason.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl From<ManageError> for Refusal {
    fn from(error: ManageError) -> Self {
        Refusal::new(error.code(), error.to_string())
    }
}

impl ManageError {
    /// The code of the error. It is part of the interface: programs decide by it.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            ManageError::Spec(_) | ManageError::TogetherText(..) => "volume-text-invalid",
            ManageError::Taken(_) => "volume-exists",
            ManageError::RenewAndAdopt => "renew-and-adopt",
            ManageError::Busy { .. } => "volume-busy",
            ManageError::Reloading => "reload-busy",
            ManageError::Stale { .. } => "revision-stale",
            ManageError::NoCondition | ManageError::OneSetting => "request-invalid",
            ManageError::Pool(error) | ManageError::Open(StartError::Pool(error)) => of_pool(error),
            ManageError::NoJob(_) => "job-unknown",
            ManageError::NoCancel(_) => "job-not-cancellable",
            ManageError::Copy(error) => of_copy(error),
            ManageError::NoAudit => "audit-unknown",
            ManageError::Audit(_) => "audit-failed",
            ManageError::NoVolume(_) => "volume-unknown",
            ManageError::InUse { .. } | ManageError::TakesAway(_) | ManageError::Hides(_) => "volume-in-use",
            ManageError::HasDerived { .. } => "volume-has-derived",
            ManageError::NotDerived(_) => "volume-not-derived",
            ManageError::Module { .. } => "program-invalid",
            ManageError::Derived { .. } | ManageError::Open(StartError::Derived { .. }) => "derivation-invalid",
            ManageError::NotOwner(_) | ManageError::NotForOwners(_) => "not-permitted",
            ManageError::TooManyDerived { .. } | ManageError::TooManyPrograms { .. } => "derived-too-many",
            ManageError::NoSession(_) | ManageError::NoSuchSession(_) => "session-unknown",
            ManageError::OutsidePools(_) => "not-permitted",
            ManageError::NoRehearsal(_) => "request-invalid",
            ManageError::Together(_) => "list-invalid",
            ManageError::WebLink(WebLinkError::Off) => "http-off",
            ManageError::WebLink(WebLinkError::Begun) => "http-begun",
            ManageError::WebLink(WebLinkError::NoUser(_)) => "http-user-unknown",
            ManageError::WebLink(WebLinkError::Random) => "defect",
            ManageError::TooManyPaused => "paused-too-many",
            ManageError::Silent => "users-unknown",
            ManageError::ReservationKey(_) => "reservation-key-invalid",
            ManageError::NoRegistration { .. } => "registration-unknown",
            ManageError::Reserved { .. } => "volume-in-use",
            ManageError::ReservationsNotKept { .. } => "not-kept",
            ManageError::NoTarget(_) => "target-unknown",
            ManageError::NoGroup(_) | ManageError::NoHyperScsiGroup(_) => "port-group-unknown",
            ManageError::Full => "volumes-too-many",
            ManageError::Size(_) => "size-invalid",
            ManageError::Security { .. } => "security-invalid",
            ManageError::Resize { .. } => "resize-refused",
            ManageError::Copies { .. } => "copies-refused",
            ManageError::Medium { .. } => "medium-refused",
            ManageError::Unstable { .. } => "volume-removed-unstable",
            ManageError::Open(_) => "volume-not-opened",
            ManageError::TargetNode(_) => "targets-invalid",
            ManageError::Client(error) => of_client(error),
            ManageError::Where(_) => "lun-or-target-missing",
            ManageError::Lun(_) => "lun-invalid",
            ManageError::LunTaken { .. } => "lun-taken",
            ManageError::TargetName(_) => "target-name-invalid",
            ManageError::OpenTarget(_) | ManageError::OpenBeside(_) | ManageError::TargetOpen(_) => "target-open",
            ManageError::TargetTaken(_) => "target-exists",
            ManageError::TargetInUse { .. } => "target-in-use",
            ManageError::TargetSettings { .. } => "target-invalid",
            ManageError::TooManyTargets => "targets-too-many",
            ManageError::NotThere { .. } => "mapping-unknown",
            ManageError::Missing { .. } => "volume-missing",
            ManageError::Keep { .. } | ManageError::RevokedUntilStart { .. } => "not-kept",
            ManageError::Configuration(_) => "configuration-invalid",
        }
    }
}

fn of_pool(error: &PoolError) -> &'static str {
    match error {
        PoolError::Full { .. } => "pool-full",
        PoolError::InService(_) | PoolError::Awaited { .. } => "pool-in-use",
        PoolError::Unknown(_) => "pool-unknown",
        PoolError::NotForgotten { .. } => "not-kept",
        PoolError::Ambiguous { .. } => "pool-ambiguous",
        PoolError::NoSharing(_) | PoolError::NoLinks(_) | PoolError::OtherWay(_) => "snapshots-impossible",
        PoolError::TooManyLayers { .. } => "snapshots-too-many",
        PoolError::NotInPool(_) => "volume-not-in-pool",
        PoolError::SnapshotName(_) => "snapshot-name-invalid",
        PoolError::SnapshotExists(_) => "snapshot-exists",
        PoolError::NoSnapshot(_) => "snapshot-unknown",
        PoolError::Protected(_) => "content-protected",
        PoolError::HasSnapshots { .. } => "volume-has-snapshots",
        PoolError::SnapshotServed { .. } | PoolError::Copied(_) => "snapshot-in-use",
        PoolError::Shorter { .. } => "snapshot-longer",
        PoolError::ContentExists { .. } => "content-exists",
        PoolError::Silent(_) | PoolError::Hangs(_) => "store-silent",
        PoolError::Failed { .. } | PoolError::HalfTaken { .. } => "pool-failed",
        PoolError::NotDeleted { source, .. } => of_pool(source),
        PoolError::Locked(_)
        | PoolError::BelowLayers { .. }
        | PoolError::StoreServed { .. }
        | PoolError::CopyingBack(_) => "volume-in-use",
        PoolError::HalfRolledBack { .. } | PoolError::RollingBack { .. } => "rollback-unfinished",
        _ => "pool-unusable",
    }
}

fn of_copy(error: &CopyError) -> &'static str {
    match error {
        CopyError::Refused { .. } => "copy-refused",
        CopyError::Failed { .. } => "copy-failed",
        CopyError::Cancelled { .. } => "copy-cancelled",
        CopyError::NoRoom { .. } => "copy-no-room",
    }
}

fn of_client(error: &ChangeError) -> &'static str {
    match error {
        ChangeError::Client(ClientError::Unknown(_)) => "client-unknown",
        ChangeError::Client(ClientError::Known(_)) => "client-exists",
        ChangeError::Client(ClientError::Ambiguous { .. }) => "client-ambiguous",
        ChangeError::Client(_) => "client-invalid",
        ChangeError::Load(_) => "state-unreadable",
        ChangeError::Keep { .. } => "not-kept",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    /// What stands in quotes behind each of these words.
    fn quoted<'a>(text: &'a str, word: &str) -> Vec<&'a str> {
        text.split(word).skip(1).filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next()).collect()
    }

    /// The codes in the sources below this directory, which tests are left out of.
    fn codes(directory: &Path, codes: &mut BTreeSet<String>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                self::codes(&path, codes);
            } else if !path.ends_with("tests.rs") {
                let text = fs::read_to_string(&path).unwrap();
                let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
                let mut found = quoted(text, "Refusal::new(");
                if path.ends_with("manage/refusal.rs") {
                    found.extend(quoted(text, "=>"));
                }
                codes.extend(found.into_iter().map(str::to_owned));
            }
        }
    }

    #[test]
    fn the_table_of_codes_in_the_documents_is_that_of_the_program() {
        let mut known = BTreeSet::new();
        codes(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut known);
        let page = include_str!("../../../../docs/configuration.md");
        let section = page.split("\n### ").find(|section| section.starts_with("Error codes\n")).unwrap();
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
        let documented: Vec<&str> = rows.filter_map(|row| row.split('`').next()).collect();
        let sorted: BTreeSet<String> = documented.iter().map(|code| (*code).to_owned()).collect();
        assert_eq!(sorted, known);
        assert_eq!(sorted.len(), documented.len(), "each stands there once");
    }
}
