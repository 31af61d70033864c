//! Where requests come together: several may ask, and what takes long keeps none of the others waiting.

mod awaited;
mod in_band;

use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use arc_swap::ArcSwap;

use self::awaited::{Awaited, AwaitedPart};
use self::in_band::{Workers, work};
use super::dvds;
use super::filling;
use super::following::Follower;
use super::jobs::{self, Job, Jobs};
use super::lengths;
use super::look::Looker;
use super::metrics::RequestCounts;
use super::seeking::seek;
use super::slow::{Next, Slow, Step};
use super::told;
use super::{
    Answer, AnswerPage, Asker, AuditLog, ManageError, Manager, NOT_PERMITTED, Refusal, Request, Responded, Response,
    WebLinkError, WebLinks, read_audit, response_of,
};
use crate::events::{EventLog, Happening};
use crate::pulse::Pulse;
use crate::revisions::Revisions;

/// How long somebody waits at the most for what takes long, before the answer is that it goes on.
pub(super) const PATIENCE: Duration = Duration::from_secs(90);

/// Those who wait at a time, at the most: the others are answered at once how far it is, so that there is always room to ask.
pub(super) const WAITERS_MAX: usize = 8;

/// A server that several may manage, until it ends.
#[derive(Clone)]
pub struct ManagementHandle(Arc<Desk>);

pub(super) struct Desk {
    manager: Mutex<Option<Manager>>,
    /// For those who only look: as it was after the last change.
    looker: ArcSwap<Looker>,
    jobs: Arc<Jobs>,
    events: EventLog,
    revisions: Revisions,
    requests: RequestCounts,
    web_links: WebLinks,
    follower: Follower,
    audit: Option<AuditLog>,
    awaited: Awaited,
    /// Of these, each thread that works on a request of a client has one.
    workers: Workers,
    /// And of these, each that waits for what takes long.
    waiters: Arc<()>,
}

/// What is left of a request, without the manager.
struct Rest {
    slow: Slow,
    /// Whether the server waits for it.
    _awaited: Option<AwaitedPart>,
}

impl Rest {
    /// What a job does now, and how it tells how far that is.
    fn tell(&self, job: &Job) {
        job.set_progress(&self.slow.what);
        self.slow.course.clone().into_iter().for_each(|course| job.set_course(course));
        job.set_cancellation(self.slow.cancellation.clone());
    }
}

impl ManagementHandle {
    /// The desk of this manager.
    #[must_use]
    pub fn new(manager: Manager) -> Self {
        let mut manager = manager;
        let (letters, is_complete) =
            (manager.target().take_letters(), manager.sought().is_empty() && !manager.may_turn_back());
        let (expiry, has_pools) = (manager.expiry.take_waiting(), manager.target().pools().iter().next().is_some());
        let desk = ManagementHandle(Arc::new(Desk {
            looker: ArcSwap::from_pointee(manager.looker()),
            jobs: Arc::clone(manager.jobs()),
            events: manager.target().events().clone(),
            revisions: manager.target().revisions().clone(),
            requests: manager.requests.clone(),
            web_links: manager.web_links.clone(),
            follower: manager.follower.clone(),
            audit: manager.audit.clone(),
            manager: Mutex::new(Some(manager)),
            awaited: Awaited::default(),
            workers: Workers::default(),
            waiters: Arc::default(),
        }));
        if let Some(letters) = letters {
            let work = move |desk: &Weak<Desk>| work(&letters, desk);
            desk.go_on_beside("management", "the server cannot be managed by its clients", work);
        }
        if let Some(wake) = expiry {
            let watch = move |desk: &Weak<Desk>| dvds::watch(desk, &wake);
            desk.go_on_beside("expiry", "derived volumes stay in the list when their time is over", watch);
        }
        if has_pools {
            desk.go_on_beside("pools", "that pools fill up is not told", filling::watch);
        }
        if !is_complete {
            desk.go_on_beside("seeker", "volumes that are away are not sought", seek);
        }
        desk.go_on_beside("lengths", "that volumes become longer by themselves is not told", lengths::watch);
        desk
    }

    /// Begins with what goes on beside requests, on a thread of its own; `lack`: what there is without that. It does not keep the server: it
    /// ends with the shards.
    fn go_on_beside(&self, name: &str, lack: &str, work: impl FnOnce(&Weak<Desk>) + Send + 'static) {
        let desk = Arc::downgrade(&self.0);
        if let Err(error) = thread::Builder::new().name(name.into()).spawn(move || work(&desk)) {
            tracing::error!("{lack}: {error}");
        }
    }

    /// Does what is asked in JSON. Requests that take long keep no others waiting.
    pub fn handle_json(&self, by: &Asker, json: &[u8]) -> Response {
        self.handle_json_within(by, json, usize::MAX)
    }

    /// The same for who has room for so many bytes of a page.
    fn handle_json_within(&self, by: &Asker, json: &[u8], room_bytes: usize) -> Response {
        match Request::from_json(json) {
            Ok(Request::Page { request, from }) => self.page(by, *request, from, room_bytes),
            Ok(request) => self.handle(by, request),
            Err(refusal) => self.refuse(by, refusal),
        }
    }

    /// One page of the answer to what is asked.
    fn page(&self, by: &Asker, request: Request, from: u64, room_bytes: usize) -> Response {
        if request.is_change() || matches!(request, Request::Page { .. } | Request::Start { .. }) {
            return self.refuse(by, Refusal::new("request-invalid", "only what changes nothing is answered in pages"));
        }
        // It is read first: an answer may be newer than it says, never older.
        let revision = self.0.revisions.of_answer(&request);
        match self.handle(by, request) {
            Response::Done(answer) => AnswerPage::response(answer, revision, from, room_bytes),
            refused => refused,
        }
    }

    /// From now on metrics have what this gives, too: whole families in the text of OpenMetrics, with names that nobody else has.
    pub fn add_metrics(&self, part: impl Fn() -> String + Send + Sync + 'static) {
        self.0.requests.add_part(Box::new(part));
    }

    /// From now on this is done when the configuration was read again and holds; what it tells is told of the reload, too.
    pub fn follow_reloads_by(&self, follow: impl Fn() -> Vec<String> + Send + Sync + 'static) {
        self.0.follower.set(Box::new(follow));
    }

    /// From now on this makes the links by which somebody begins with the HTTP API: for a user by its name, or for the first
    /// administrator.
    pub fn make_web_links_by(
        &self,
        make: impl Fn(Option<&str>) -> Result<String, WebLinkError> + Send + Sync + 'static,
    ) {
        self.0.web_links.set(Box::new(make));
    }

    /// Does what is asked. A change that takes long is a job, which goes on when this has been answered.
    pub fn handle(&self, by: &Asker, request: Request) -> Response {
        let name = request.name();
        let response = self.answer(by, request);
        self.0.requests.note(name, by, &response);
        response
    }

    fn answer(&self, by: &Asker, request: Request) -> Response {
        if !request.is_change() {
            tracing::debug!("{by}: {}", told::what(&request));
        }
        if by.owner().is_some() && !request.is_for_owners() {
            return self.refuse(by, ManageError::NotForOwners(request.name()).into());
        }
        match request {
            // These never wait for a change.
            Request::Status if self.is_managed() => Response::Done(Answer::Status(self.0.looker.load().status())),
            Request::Jobs => Response::Done(Answer::Jobs(self.0.jobs.list())),
            Request::Job { id, .. } | Request::CancelJob { id }
                if by.owning_client().is_some_and(|owner| !self.0.jobs.is_of(id, owner)) =>
            {
                self.refuse(by, ManageError::NoJob(id).into())
            }
            Request::Job { id, wait } => {
                let (patience, _waiter) = self.patience(wait);
                let job = self.0.jobs.wait(id, patience).ok_or(ManageError::NoJob(id));
                response_of(job.map(Answer::Job))
            }
            Request::Events { since, filter, wait } if self.is_managed() => {
                let (patience, _waiter) = self.patience(wait);
                Response::Done(Answer::Events(self.0.events.read(since.as_deref(), &filter, patience)))
            }
            Request::Audit(query) if self.is_managed() => {
                response_of(read_audit(self.0.audit.as_ref(), &query).map(Answer::Audit))
            }
            Request::Start { request } if matches!(*request, Request::Start { .. } | Request::Page { .. }) => self
                .refuse(by, Refusal::new("request-invalid", "what is begun with is a change, not a start or a page")),
            Request::Start { request } => self.serve(by, *request, false),
            request => self.serve(by, request, true),
        }
    }

    /// How long somebody may wait who wants to, and what shows that.
    fn patience(&self, wants_to_wait: bool) -> (Duration, Option<Arc<()>>) {
        let may_wait = wants_to_wait && Arc::strong_count(&self.0.waiters) <= WAITERS_MAX;
        if may_wait { (PATIENCE, Some(Arc::clone(&self.0.waiters))) } else { (Duration::ZERO, None) }
    }

    /// Does what is asked; the end of a change that takes long may be waited for.
    fn serve(&self, by: &Asker, request: Request, wants_to_wait: bool) -> Response {
        if let Err(refusal) = self.0.jobs.check(by, &request) {
            return self.refuse(by, refusal);
        }
        let rest = match self.go_on(by, &request, |manager| manager.begin_by(by, request.clone())) {
            Ok(response) => return response,
            Err(rest) => rest,
        };
        if !request.is_change() {
            return self.finish(by, &request, rest, None);
        }
        let job = match self.0.jobs.begin(by, &request, &rest.slow.what) {
            Some(job) => job,
            // Nobody could ask about it, or have it end.
            None if rest.slow.course.is_some() => return self.refuse(by, jobs::too_many_copies()),
            // It is begun with: whoever asks for one too many waits for its end.
            None => return self.finish(by, &request, rest, None),
        };
        // Before anybody hears its number, by which it can be cancelled.
        rest.tell(&job);
        let (desk, by, id) = (self.clone(), by.clone(), job.id());
        let what = self.0.jobs.status(id).map(|status| status.what()).unwrap_or_default();
        self.0.events.note(Happening::JobBegun { job: id, what });
        let work = move || desk.finish(&by, &request, rest, Some(job));
        if let Err(error) = thread::Builder::new().name("job".into()).spawn(work) {
            return Response::Refused(no_thread(&error));
        }
        let (patience, _waiter) = self.patience(wants_to_wait);
        self.0.jobs.response(id, patience).unwrap_or_else(stopping)
    }

    /// Goes on with a request as far as that takes no time: its response, or what is left of it.
    fn go_on(
        &self,
        by: &Asker,
        request: &Request,
        step: impl FnOnce(&mut Manager) -> Result<Step, ManageError>,
    ) -> Result<Response, Rest> {
        let mut guard = self.lock();
        let Some(manager) = guard.as_mut() else { return Ok(stopping()) };
        let result = match step(manager) {
            Ok(Step::Slow(slow)) => {
                let awaited = slow.is_awaited.then(|| self.0.awaited.begin());
                self.publish(manager, request);
                return Err(Rest { slow, _awaited: awaited });
            }
            Ok(Step::Done(answer)) => Ok(answer),
            Err(error) => Err(error),
        };
        self.publish(manager, request);
        let responded = manager.respond(by, request, result);
        drop(guard);
        Ok(responded.when_stable())
    }

    /// Does what is left of a request.
    fn finish(&self, by: &Asker, request: &Request, mut rest: Rest, job: Option<Job>) -> Response {
        let response = loop {
            if let Some(job) = &job {
                rest.tell(job);
            }
            let Rest { slow, _awaited } = rest;
            let next = match slow.run() {
                Next::Over(result) => break self.respond(by, request, *result),
                Next::Then(then) => self.go_on(by, request, then),
            };
            match next {
                Ok(response) => break response,
                Err(left) => rest = left,
            }
        };
        if let Some(job) = job {
            let id = job.id();
            job.end(response.clone());
            let refused = self.0.jobs.status(id).and_then(|status| status.refused);
            self.0.events.note(Happening::JobEnded { job: id, refused });
        }
        response
    }

    /// The response to what is over; also while the server ends, which waits for this.
    fn respond(&self, by: &Asker, request: &Request, result: Result<Answer, ManageError>) -> Response {
        let guard = self.lock();
        let Some(manager) = guard.as_ref() else { return response_of(result) };
        let responded = manager.respond(by, request, result);
        drop(guard);
        responded.when_stable()
    }

    /// Shows those who only look what has changed.
    fn publish(&self, manager: &Manager, request: &Request) {
        if request.is_change() {
            self.0.looker.store(Arc::new(manager.looker()));
        }
    }

    /// Refuses what is no request, or what somebody may not ask.
    fn refuse(&self, by: &Asker, refusal: Refusal) -> Response {
        let responded = self.lock().as_ref().map(|manager| manager.refuse(by, refusal));
        responded.map_or_else(stopping, Responded::when_stable)
    }

    /// The same for one that is not answered.
    fn note_attempt(&self, by: &Asker) {
        let refusal = Refusal::new("not-permitted", NOT_PERMITTED);
        drop(self.lock().as_ref().map(|manager| manager.refuse(by, refusal)));
    }

    fn note_offence(&self, by: &Asker, offence: &dyn Display, is_proven: bool, count: u64) {
        if let Some(manager) = self.lock().as_ref() {
            manager.note_offence(by, offence, is_proven, count);
        }
    }

    /// Writes down a change that is none of the server itself, like one of an account; returns when that is stable.
    pub fn note_changed(&self, by: &Asker, line: String) {
        let noted = self.lock().as_ref().map(|manager| manager.note_changed(by, line));
        noted.into_iter().for_each(|noted| drop(noted.when_stable()));
    }

    /// Writes down that somebody was refused something who has not shown who they are.
    pub fn note_refused(&self, by: &Asker, what: &str) {
        self.note_offence(by, &what, false, 1);
    }

    fn is_managed(&self) -> bool {
        // Somebody who just changes something has it.
        self.0.manager.try_lock().map_or(true, |manager| manager.is_some())
    }

    /// Whether all of the server still runs.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.lock().as_ref().is_some_and(|manager| manager.target().is_alive())
    }

    /// The way to ask the shards whether they turn; none when the server ends.
    #[must_use]
    pub fn pulse(&self) -> Option<Pulse> {
        self.lock().as_ref().map(|manager| manager.target().pulse())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Manager>> {
        self.0.lock()
    }
}

impl Desk {
    /// Looks at something of the manager, and changes nothing that is shown; nothing when the server ends.
    pub(super) fn peek<T>(&self, look: impl FnOnce(&mut Manager) -> T) -> Option<T> {
        self.lock().as_mut().map(look)
    }

    /// Does something with the manager, and shows what has changed; nothing when the server ends.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Manager) -> T) -> Option<T> {
        let mut guard = self.lock();
        let manager = guard.as_mut()?;
        let done = work(manager);
        self.looker.store(Arc::new(manager.looker()));
        Some(done)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Manager>> {
        // A request that has panicked has told so; the next one sees what is there.
        self.manager.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stopping() -> Response {
    Response::Refused(Refusal::new("stopping", "the server is stopping"))
}

fn no_thread(error: &std::io::Error) -> Refusal {
    Refusal::new("busy", format!("the system has no thread for that: {error}"))
}

#[cfg(test)]
mod tests;
