//! Changes on the condition that nobody has changed the resource since the asker looked at it.

use super::slow::{Next, Slow, Step};
use super::targets::target_name;
use super::{ArrayGrowth, Clearing, DvdEnd, ManageError, Manager, MemberReplacement, Request};
use crate::front::hyperscsi::clients::ClientError;
use crate::pools::{PoolError, SnapshotId};
use crate::revisions::Collection::{Clients, Targets, Volumes};

/// That a resource still has this revision.
#[derive(Clone, Debug)]
pub(super) struct Condition {
    subject: Subject,
    revision: u64,
}

impl Condition {
    /// That nothing has changed since then that an administrator can change.
    pub(super) fn of_server(revision: u64) -> Self {
        Condition { subject: Subject::Server, revision }
    }
}

/// What has a revision.
#[derive(Clone, Debug)]
enum Subject {
    /// By its name.
    Volume(String),
    /// By its name.
    Target(String),
    /// By its id or name.
    Client(String),
    /// `VOLUME@SNAPSHOT`.
    Snapshot(String),
    /// By its name.
    Pool(String),
    AllVolumes,
    AllTargets,
    AllClients,
    /// Those of a client, by its id or name, or of an initiator.
    SessionsOf(String),
    /// All that an administrator can change.
    Server,
}

impl Subject {
    /// What a request changes.
    ///
    /// # Errors
    /// [`ManageError::NoCondition`] when it is no change of one thing.
    fn of(request: &Request) -> Result<Subject, ManageError> {
        use Request as R;
        Ok(match request {
            R::MapVolume { target: Some(target), .. }
            | R::UnmapVolume { target, .. }
            | R::SetTarget { name: target, .. }
            | R::RemoveTarget { name: target, .. } => Subject::Target(target.clone()),
            R::Rollback { snapshot, .. } => {
                Subject::Volume(snapshot.split_once('@').map_or(&**snapshot, |(volume, _)| volume).to_owned())
            }
            R::RemoveVolume { name, .. }
            | R::DeleteVolume { name, .. }
            | R::ResizeVolume { name, .. }
            | R::ScrubVolume { name }
            | R::ReplaceMember(MemberReplacement { name, .. })
            | R::GrowArray(ArrayGrowth { name, .. })
            | R::EjectVolume { name, .. }
            | R::LoadVolume { name, .. }
            | R::SetVolume { name, .. }
            | R::ClearReservations(Clearing { name, .. })
            | R::MapVolume { name, .. } => Subject::Volume(name.clone()),
            R::SetClient { client, .. } | R::RemoveClient { client, .. } | R::ResetClient { client, .. } => {
                Subject::Client(client.clone())
            }
            R::DryRun { request } => Subject::of(request)?,
            R::SetDvd(DvdEnd { name, .. }) | R::RevokeDvd { name } => Subject::Volume(name.clone()),
            R::SetSnapshot { snapshot, .. } | R::DeleteSnapshot { snapshot } => Subject::Snapshot(snapshot.clone()),
            R::ForgetPool { name } => Subject::Pool(name.clone()),
            R::AddVolume { .. } | R::CreateDvd(_) | R::CreateDvds(_) => Subject::AllVolumes,
            R::AddTarget { .. } => Subject::AllTargets,
            R::AddClient { .. } => Subject::AllClients,
            R::DropClient { client } | R::PauseClient { client } | R::ResumeClient { client } => {
                Subject::SessionsOf(client.clone())
            }
            R::SetAccessState(_) | R::Reload { dry_run: false, .. } => Subject::Server,
            _ => return Err(ManageError::NoCondition),
        })
    }

    /// For people.
    fn shown(&self) -> String {
        match self {
            Subject::Volume(name) => format!("volume {name}"),
            Subject::Target(name) => format!("iSCSI target {name}"),
            Subject::Client(client) => format!("client {client}"),
            Subject::Snapshot(id) => format!("snapshot {id}"),
            Subject::Pool(name) => format!("pool {name}"),
            Subject::AllVolumes => "the list of volumes".to_owned(),
            Subject::AllTargets => "the list of iSCSI targets".to_owned(),
            Subject::AllClients => "the list of clients".to_owned(),
            Subject::SessionsOf(client) => format!("the list of sessions of {client}"),
            Subject::Server => "the server".to_owned(),
        }
    }
}

impl Manager {
    /// Begins with a request if what it changes still has this revision: also then when it is changed, after what takes long.
    pub(super) fn begin_if(&mut self, revision: u64, request: Request) -> Result<Step, ManageError> {
        match &request {
            // Whose session it is, and so what the revision is of, the shards have to say first.
            Request::DropSession { session } => return self.drop_session(session, Some(revision)),
            Request::DryRun { request } => {
                if let Request::DropSession { session } = &**request {
                    return self.rehearse_dropping_session(session, Some(revision));
                }
            }
            _ => {}
        }
        let condition = Condition { subject: Subject::of(&request)?, revision };
        self.check(&condition)?;
        match request {
            // These have something to take back when it does not hold any more.
            Request::AddVolume { .. } | Request::CreateDvd(_) | Request::CreateDvds(_) | Request::Reload { .. } => {
                self.begin_with(request, Some(condition))
            }
            // Nobody else changes a volume that a request holds, nor its snapshots.
            request if matches!(condition.subject, Subject::Volume(_) | Subject::Snapshot(_)) => self.begin(request),
            request => self.go_on_if(condition, |manager| manager.begin(request)),
        }
    }

    /// Goes on with a request as long as the condition holds, and after it has made its change.
    fn go_on_if(
        &mut self,
        condition: Condition,
        step: impl FnOnce(&mut Manager) -> Result<Step, ManageError>,
    ) -> Result<Step, ManageError> {
        self.check(&condition)?;
        match step(self)? {
            Step::Slow(Slow { what, is_awaited, course, cancellation, work }) if self.check(&condition).is_ok() => {
                let work = || match work() {
                    Next::Then(then) => Next::Then(Box::new(|manager| manager.go_on_if(condition, then))),
                    over @ Next::Over(_) => over,
                };
                Ok(Step::Slow(Slow { what, is_awaited, course, cancellation, work: Box::new(work) }))
            }
            step => Ok(step),
        }
    }

    /// # Errors
    /// [`ManageError::Stale`] when it does not hold any more, or that there is no such resource.
    pub(super) fn check(&self, Condition { subject, revision }: &Condition) -> Result<(), ManageError> {
        let present = self.revision_of(subject)?;
        if present == *revision {
            return Ok(());
        }
        Err(ManageError::Stale { what: subject.shown(), expected: *revision, present })
    }

    /// # Errors
    /// [`ManageError::Stale`] when the sessions of this principal do not have the revision that is expected, if one is.
    pub(super) fn check_sessions_of(&self, principal: &str, revision: Option<u64>) -> Result<(), ManageError> {
        let condition = |revision| Condition { subject: Subject::SessionsOf(principal.to_owned()), revision };
        revision.map_or(Ok(()), |revision| self.check(&condition(revision)))
    }

    fn revision_of(&self, subject: &Subject) -> Result<u64, ManageError> {
        let look = self.target.revisions().look();
        Ok(match subject {
            Subject::Volume(name) => {
                self.find(name).ok_or_else(|| ManageError::NoVolume(name.clone()))?;
                look.of(Volumes, name)
            }
            Subject::Target(name) => {
                let found = target_name(name).ok().filter(|name| self.target.look_at_target(name, |_| ()).is_some());
                look.of(Targets, found.ok_or_else(|| ManageError::NoTarget(name.clone()))?.as_str())
            }
            Subject::Client(client) => {
                let found: Result<_, ClientError> = self.target.clients().find(client);
                look.of(Clients, &found?.id.to_string())
            }
            Subject::Snapshot(id) => {
                let id: SnapshotId = id.parse()?;
                let revision = self.pool_of_snapshot(&id)?.snapshot_revision(&id);
                revision.ok_or_else(|| PoolError::NoSnapshot(id.to_string()))?
            }
            Subject::Pool(name) => {
                let pools = self.target.pools();
                // One that is not there has none that anybody could know.
                pools.iter().find(|pool| pool.name() == name).map_or(0, |pool| pool.revision(pools.is_default(pool)))
            }
            Subject::AllVolumes => look.all(Volumes),
            Subject::AllTargets => look.all(Targets),
            Subject::AllClients => look.all(Clients),
            Subject::SessionsOf(client) => {
                let principal = self.principal(client)?;
                let revision = self.target.revisions().sessions_of(&principal);
                revision.ok_or(ManageError::NoSession(principal))?
            }
            Subject::Server => look.server(),
        })
    }
}

#[cfg(test)]
mod tests;
