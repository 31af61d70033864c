//! Changes that take long: each is a job, which others may look at and wait for while it goes on, and for a while after.

mod paces;
mod places;

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use sanwire_core::ClientId;
use sanwire_core::quota::Usage;
use sanwire_io::Clock;
use sanwire_store::Cancellation;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use self::paces::Paces;
use self::places::CopyPlaces;
use super::course::{CopyProgress, Course};
use super::told;
use super::{Answer, Asker, ManageError, Refusal, Request, Response};
use crate::wall_time::written_millis;

/// Jobs that go on at a time, at the most, but copies to other servers.
const RUNNING_MAX: usize = 64;

/// Those of owners of volumes, who may not manage the server, and of one of them: the others are left to who may.
const OF_OWNERS_MAX: usize = RUNNING_MAX / 2;
const OF_OWNER_MAX: usize = 4;

/// Who waits for a job so long has asked for it again.
const ASKING_INTERVAL: Duration = Duration::from_secs(5);

/// Jobs that are over and still told of.
const OVER_MAX: usize = 64;

/// A change that takes long.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct JobStatus {
    /// Its number: a later job has a higher one, until the server ends.
    pub id: u64,
    /// What was asked, without secrets; long texts and lists in it are cut.
    #[schema(value_type = Object)]
    pub request: Value,
    /// Who has asked.
    pub by: String,
    /// How far it is.
    pub state: JobState,
    /// What it does now, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// How far it is in bytes, of a copy to another server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy: Option<Box<CopyProgress>>,
    /// When it began, as in RFC 3339.
    pub begun: String,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// What it has changed, one line for each thing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
    /// Why it was not done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// The same for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

impl JobStatus {
    /// What was asked, in short: what is to be done, and to what.
    #[must_use]
    pub fn what(&self) -> String {
        told::in_short(&self.request)
    }
}

/// How far a job is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum JobState {
    /// It goes on.
    Running,
    /// It was done.
    Done,
    /// It was not.
    Refused,
}

/// All of a server.
#[derive(Default, Debug)]
pub(super) struct Jobs {
    table: Mutex<Table>,
    paces: Mutex<Paces>,
    changed: Condvar,
}

#[derive(Default, Debug)]
struct Table {
    jobs: BTreeMap<u64, Entry>,
    last_id: u64,
    places: CopyPlaces,
}

#[derive(Debug)]
struct Entry {
    status: JobStatus,
    /// Who only owns volumes and has asked.
    owner: Option<ClientId>,
    /// Whether it copies to another server.
    is_copy: bool,
    /// What its asker is answered, when it is over.
    response: Option<Response>,
    /// Of what tells how far it is, and can be cancelled.
    course: Option<Arc<Course>>,
    /// By this it ends, where only that can be done.
    cancellation: Option<Cancellation>,
}

impl Entry {
    fn status(&self) -> JobStatus {
        let copy = self.course.as_ref().map(|course| Box::new(course.look()));
        JobStatus { copy, ..self.status.clone() }
    }
}

/// One that goes on. Dropping it without an end says that it has failed.
pub(super) struct Job {
    jobs: Arc<Jobs>,
    id: u64,
}

impl Jobs {
    /// Whether somebody may begin with a change that may become one.
    ///
    /// # Errors
    /// [`Refusal`] for an owner who has begun with too many.
    pub(super) fn check(&self, by: &Asker, request: &Request) -> Result<(), Refusal> {
        // What ends something leaves more room than there was.
        let is_end = matches!(request, Request::CancelJob { .. } | Request::RevokeDvd { .. });
        let Some(owner) = by.owning_client().filter(|_| request.is_change() && !is_end) else { return Ok(()) };
        let now = Clock::new().now();
        // It never becomes a job, and what is not renewed in time ends.
        if request.is_renewal() {
            return if self.paces().renewals.take(owner, now) { Ok(()) } else { Err(too_many_changes()) };
        }
        let table = self.lock();
        let of_owners: Vec<ClientId> = table.running(false).filter_map(|entry| entry.owner).collect();
        let of_owner = of_owners.iter().filter(|other| **other == owner).count();
        if !request.is_copy_out() && (of_owner >= OF_OWNER_MAX || of_owners.len() >= OF_OWNERS_MAX) {
            let reason = "too many changes of owners are being made: ask again when some are done";
            return Err(Refusal::new("jobs-too-many", reason));
        }
        drop(table);
        if self.paces().changes.take(owner, now) { Ok(()) } else { Err(too_many_changes()) }
    }

    /// How the quotas of owners are used.
    pub(super) fn usages(&self) -> impl Iterator<Item = Usage> {
        let of_copies = self.lock().places.usages();
        self.paces().usages().into_iter().chain(of_copies)
    }

    fn paces(&self) -> MutexGuard<'_, Paces> {
        // It is whole between any two changes.
        self.paces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins with one; `None` when too many like it go on.
    pub(super) fn begin(self: &Arc<Self>, by: &Asker, request: &Request, progress: &str) -> Option<Job> {
        let mut table = self.lock();
        let (owner, is_copy) = (by.owning_client(), request.is_copy_out());
        if !table.has_room(owner, is_copy) {
            return None;
        }
        table.last_id += 1;
        let id = table.last_id;
        let status = JobStatus {
            id,
            request: told::whole(request).unwrap_or_default(),
            by: by.to_string(),
            state: JobState::Running,
            progress: Some(progress.to_owned()),
            copy: None,
            begun: now(),
            ended: None,
            changed: Vec::new(),
            refused: None,
            code: None,
        };
        table.jobs.insert(id, Entry { status, owner, is_copy, response: None, course: None, cancellation: None });
        Some(Job { jobs: Arc::clone(self), id })
    }

    /// Those that are known, the oldest first.
    pub(super) fn list(&self) -> Vec<JobStatus> {
        self.lock().jobs.values().map(Entry::status).collect()
    }

    pub(super) fn status(&self, id: u64) -> Option<JobStatus> {
        self.lock().jobs.get(&id).map(Entry::status)
    }

    /// Waits until one is over, and for so long at the most; gives it as it is then.
    pub(super) fn wait(&self, id: u64, patience: Duration) -> Option<JobStatus> {
        let table = self.wait_for(id, patience);
        let entry = table.jobs.get(&id)?;
        Some(entry.status())
    }

    /// Copies that go on.
    pub(super) fn courses(&self) -> Vec<Arc<Course>> {
        self.lock().running(true).filter_map(|entry| entry.course.clone()).collect()
    }

    /// Whether it is one that this owner of volumes has begun.
    pub(super) fn is_of(&self, id: u64, owner: ClientId) -> bool {
        self.lock().jobs.get(&id).is_some_and(|entry| entry.owner == Some(owner))
    }

    /// Has one end that can; `None` when there is no such job, `false` when it cannot be ended, or is over.
    pub(super) fn cancel(&self, id: u64) -> Option<bool> {
        let (course, cancellation) = {
            let table = self.lock();
            let entry = table.jobs.get(&id)?;
            let goes_on = entry.response.is_none();
            (entry.course.clone().filter(|_| goes_on), entry.cancellation.clone().filter(|_| goes_on))
        };
        course.iter().for_each(|course| course.cancel());
        cancellation.iter().for_each(Cancellation::cancel);
        Some(course.is_some() || cancellation.is_some())
    }

    /// Has all end that can.
    pub(super) fn cancel_all(&self) {
        let ids: Vec<u64> = self.lock().jobs.keys().copied().collect();
        ids.into_iter().for_each(|id| _ = self.cancel(id));
    }

    /// The same for who asks for that.
    ///
    /// # Errors
    /// [`ManageError::NoJob`], [`ManageError::NoCancel`].
    pub(super) fn cancel_by_request(&self, id: u64) -> Result<Answer, ManageError> {
        match self.cancel(id) {
            None => Err(ManageError::NoJob(id)),
            Some(false) => Err(ManageError::NoCancel(id)),
            Some(true) => Ok(Answer::Changed(vec![format!("job {id} ends before it is done")])),
        }
    }

    /// What the asker of one is answered, who waits for so long at the most.
    pub(super) fn response(&self, id: u64, patience: Duration) -> Option<Response> {
        let table = self.wait_for(id, patience);
        let entry = table.jobs.get(&id)?;
        Some(entry.response.clone().unwrap_or_else(|| Response::Done(Answer::Job(entry.status()))))
    }

    fn wait_for(&self, id: u64, patience: Duration) -> MutexGuard<'_, Table> {
        let give_up_at = Instant::now() + patience;
        let mut table = self.lock();
        while let Some(entry) = table.jobs.get(&id).filter(|entry| entry.response.is_none()) {
            // Who waits for it wants it to go on.
            entry.course.iter().for_each(|course| course.note_asked());
            let left = give_up_at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            table =
                self.changed.wait_timeout(table, left.min(ASKING_INTERVAL)).unwrap_or_else(PoisonError::into_inner).0;
        }
        table
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // It is whole between any two changes.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Those that go on: copies to other servers, or all others.
    fn running(&self, are_copies: bool) -> impl Iterator<Item = &Entry> {
        self.jobs.values().filter(move |entry| entry.response.is_none() && entry.is_copy == are_copies)
    }

    /// Whether one more may begin.
    fn has_room(&mut self, owner: Option<ClientId>, is_copy: bool) -> bool {
        if !is_copy {
            return self.running(false).count() < RUNNING_MAX;
        }
        let running: Vec<Option<ClientId>> = self.running(true).map(|entry| entry.owner).collect();
        self.places.admits(&running, owner)
    }

    fn end(&mut self, id: u64, response: Response) {
        let Some(Entry { status, response: place, .. }) = self.jobs.get_mut(&id) else { return };
        status.progress = None;
        status.ended = Some(now());
        match &response {
            Response::Done(Answer::Changed(lines)) => (status.state, status.changed) = (JobState::Done, lines.clone()),
            Response::Done(_) => status.state = JobState::Done,
            Response::Refused(Refusal { code, reason }) => {
                status.state = JobState::Refused;
                (status.refused, status.code) = (Some(reason.clone()), Some(code.to_string()));
            }
        }
        *place = Some(response);
        let over = self.jobs.iter().filter(|(_, entry)| entry.response.is_some());
        let over: Vec<u64> = over.map(|(id, _)| *id).collect();
        let forgotten = over.len().saturating_sub(OVER_MAX);
        over.iter().take(forgotten).for_each(|id| drop(self.jobs.remove(id)));
    }
}

impl Job {
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// It does something else now.
    pub(super) fn set_progress(&self, progress: &str) {
        if let Some(entry) = self.jobs.lock().jobs.get_mut(&self.id) {
            entry.status.progress = Some(progress.to_owned());
        }
    }

    /// It tells how far it is by this.
    pub(super) fn set_course(&self, course: Arc<Course>) {
        if let Some(entry) = self.jobs.lock().jobs.get_mut(&self.id) {
            entry.course = Some(course);
        }
    }

    /// It ends before it is done by this; `None`: not any more.
    pub(super) fn set_cancellation(&self, cancellation: Option<Cancellation>) {
        if let Some(entry) = self.jobs.lock().jobs.get_mut(&self.id) {
            entry.cancellation = cancellation;
        }
    }

    /// It is over.
    pub(super) fn end(self, response: Response) {
        self.jobs.lock().end(self.id, response);
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let mut table = self.jobs.lock();
        if table.jobs.get(&self.id).is_some_and(|entry| entry.response.is_none()) {
            let reason = "it has failed, which is a defect of Sanwire: see the log, and please report it";
            table.end(self.id, Response::Refused(Refusal::new("defect", reason)));
        }
        drop(table);
        self.jobs.changed.notify_all();
    }
}

fn too_many_changes() -> Refusal {
    Refusal::new("jobs-too-many", "owners have made too many changes in the last minutes: ask again in a minute")
}

/// Why a copy does not begin now.
pub(super) fn too_many_copies() -> Refusal {
    Refusal::new("jobs-too-many", "too many copies to other servers go on: order it again when some are done")
}

fn now() -> String {
    written_millis(SystemTime::now())
}

#[cfg(test)]
mod tests;
