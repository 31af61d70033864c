//! An array that a host has attached, where there is no server: what is done with its copies while it is in use.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use sanwire_core::Size;
use sanwire_store::{Cancellation, Store};

use super::busy::{Busy, Hold};
use super::copies::{compared, failed, layered, none, replaced};
use super::handle::{PATIENCE, WAITERS_MAX};
use super::jobs::Jobs;
use super::{
    Answer, ArrayGrowth, Asker, ManageError, MemberReplacement, Refusal, Request, Response, log_outcome, response_of,
};

/// How often is looked whether what goes on has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

const BEING_DETACHED: &str = "being detached";

/// Who is asked about an attached array: for what a server does with the copies of a volume, and for its jobs. Clones are the same one.
#[derive(Clone)]
pub struct AttachedArray(Arc<Attached>);

struct Attached {
    name: String,
    /// The attachment closes it at its end, whoever asks for something then.
    store: Weak<dyn Store>,
    /// Whether it has layers, which keep their length.
    has_layers: bool,
    jobs: Arc<Jobs>,
    busy: Busy,
    /// Of these, each that waits for what takes long has one.
    waiters: Arc<()>,
    /// It is being detached: nothing is begun any more.
    is_ending: AtomicBool,
}

/// What was asked for, and may take long.
struct Work {
    what: String,
    cancellation: Option<Cancellation>,
    work: Box<dyn FnOnce() -> Result<Answer, ManageError> + Send>,
}

impl Work {
    fn new(
        what: String,
        cancellation: Option<Cancellation>,
        work: impl FnOnce() -> Result<Answer, ManageError> + Send + 'static,
    ) -> Work {
        Work { what, cancellation, work: Box::new(work) }
    }
}

impl AttachedArray {
    /// `name`: the array's, by which it is asked for.
    #[must_use]
    pub fn new(name: String, store: &Arc<dyn Store>, has_layers: bool) -> AttachedArray {
        AttachedArray(Arc::new(Attached {
            name,
            store: Arc::downgrade(store),
            has_layers,
            jobs: Arc::default(),
            busy: Busy::default(),
            waiters: Arc::default(),
            is_ending: AtomicBool::new(false),
        }))
    }

    /// Does what is asked in JSON. What takes long is a job, which goes on when this has been answered.
    pub fn handle_json(&self, by: &Asker, json: &[u8]) -> Response {
        match Request::from_json(json) {
            Ok(request) => self.handle(by, request),
            Err(refusal) => Response::Refused(refusal),
        }
    }

    fn handle(&self, by: &Asker, request: Request) -> Response {
        match request {
            Request::Jobs => Response::Done(Answer::Jobs(self.0.jobs.list())),
            Request::Job { id, wait } => {
                let (patience, _waiter) = self.patience(wait);
                response_of(self.0.jobs.wait(id, patience).ok_or(ManageError::NoJob(id)).map(Answer::Job))
            }
            Request::CancelJob { id } => response_of(self.0.jobs.cancel_by_request(id)),
            Request::Start { request } => self.begin(by, *request, false),
            request => self.begin(by, request, true),
        }
    }

    /// Has what goes on end soon, and nothing begin any more; that is waited for so long at the most.
    pub fn end(&self, patience: Duration) {
        let give_up_at = Instant::now() + patience;
        self.0.is_ending.store(true, Ordering::SeqCst);
        while self.0.busy.hold(&self.0.name, BEING_DETACHED).is_err() && Instant::now() < give_up_at {
            // Again and again: what has the hold may not be a job yet.
            self.0.jobs.cancel_all();
            thread::sleep(LOOK_INTERVAL);
        }
    }

    /// How long somebody may wait who wants to, and what shows that.
    fn patience(&self, wants_to_wait: bool) -> (Duration, Option<Arc<()>>) {
        let may_wait = wants_to_wait && Arc::strong_count(&self.0.waiters) <= WAITERS_MAX;
        if may_wait { (PATIENCE, Some(Arc::clone(&self.0.waiters))) } else { (Duration::ZERO, None) }
    }

    /// Begins with a change; its end may be waited for.
    fn begin(&self, by: &Asker, request: Request, wants_to_wait: bool) -> Response {
        let refused = |refusal| {
            let response = Response::Refused(refusal);
            log_outcome(by, &request, &response);
            response
        };
        let Work { what, cancellation, work } = match self.order(&request) {
            Ok(work) => work,
            Err(refusal) => return refused(refusal),
        };
        let Some(job) = self.0.jobs.begin(by, &request, &what) else {
            return refused(Refusal::new("jobs-too-many", "too many changes go on: ask again when some are done"));
        };
        // Before anybody hears its number, by which it can be cancelled.
        job.set_cancellation(cancellation);
        let (by, id) = (by.clone(), job.id());
        let work = move || {
            let response = response_of(work());
            log_outcome(&by, &request, &response);
            job.end(response);
        };
        if let Err(error) = thread::Builder::new().name("job".into()).spawn(work) {
            return Response::Refused(Refusal::new("busy", format!("the system has no thread for that: {error}")));
        }
        let (patience, _waiter) = self.patience(wants_to_wait);
        let response = self.0.jobs.response(id, patience);
        response.unwrap_or_else(|| Response::Refused(ManageError::NoJob(id).into()))
    }

    fn order(&self, request: &Request) -> Result<Work, Refusal> {
        let work = match request {
            Request::ScrubVolume { name } => self.scrub(name),
            Request::ReplaceMember(new) => self.replace(new),
            Request::GrowArray(new) => self.grow(new),
            _ => {
                let reason = "an attached array is asked for scrub-volume, replace-member, grow-array, jobs, job and cancel-job only: for \
                              the rest there has to be a server";
                return Err(Refusal::new("request-invalid", reason));
            }
        };
        Ok(work?)
    }

    fn scrub(&self, name: &str) -> Result<Work, ManageError> {
        let (hold, store) = self.hold(name, "having its copies compared")?;
        let (name, cancellation) = (name.to_owned(), Cancellation::default());
        let what = format!("comparing the copies of {name}");
        Ok(Work::new(what, Some(cancellation.clone()), move || {
            // The store is let go first.
            let (_hold, store) = (hold, store);
            let scrub = || store.copies().ok_or_else(none)?.scrub(&cancellation);
            Ok(Answer::Changed(vec![compared(&name, scrub().map_err(failed(&name))?)]))
        }))
    }

    fn replace(&self, new: &MemberReplacement) -> Result<Work, ManageError> {
        let (hold, store) = self.hold(&new.name, "getting another member")?;
        let MemberReplacement { name, member, store: text } = new.clone();
        let what = format!("replacing member {member} of {name}");
        Ok(Work::new(what, None, move || {
            let (_hold, store) = (hold, store);
            let replace = || store.copies().ok_or_else(none)?.replace(member, &text);
            replace().map_err(failed(&name))?;
            Ok(Answer::Changed(vec![replaced(&name, member, &text)]))
        }))
    }

    fn grow(&self, new: &ArrayGrowth) -> Result<Work, ManageError> {
        let (hold, store) = self.hold(&new.name, "being made longer")?;
        let ArrayGrowth { name, add } = new.clone();
        if self.0.has_layers {
            return Err(failed(&name)(layered()));
        }
        let (what, cancellation) = (format!("making {name} longer"), Cancellation::default());
        Ok(Work::new(what, Some(cancellation.clone()), move || {
            let (_hold, store) = (hold, store);
            let length = || Size(store.geometry().length_bytes);
            let before = length();
            let grow = || store.copies().ok_or_else(none)?.grow(&add, &cancellation);
            grow().map_err(failed(&name))?;
            Ok(Answer::Changed(vec![format!("array {name} has {} now, {before} before", length())]))
        }))
    }

    /// The array, for this one change alone.
    fn hold(&self, name: &str, what: &'static str) -> Result<(Hold, Arc<dyn Store>), ManageError> {
        if name != self.0.name {
            return Err(ManageError::NoVolume(name.to_owned()));
        }
        let hold = self.0.busy.hold(name, what)?;
        // Asked behind the hold, which the end of the attachment waits for.
        let store = if self.0.is_ending.load(Ordering::SeqCst) { None } else { self.0.store.upgrade() };
        let gone = || ManageError::Busy { name: name.to_owned(), what: BEING_DETACHED };
        Ok((hold, store.ok_or_else(gone)?))
    }
}

#[cfg(test)]
mod tests;
