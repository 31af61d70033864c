//! Where requests are answered: by the server's management, in a few threads beside that of HTTP, which never waits for it.

use std::sync::Arc;
use std::time::Duration;

use sanwire_server::{Answer, Asker, JobState, JobStatus, ManagementHandle, Request, Response};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

use crate::limits::{MANAGED_MAX, MANAGED_OF_SOCKET_MAX, MANAGED_OF_STRANGERS_MAX, MANAGED_WAIT};
use crate::problem::Problem;

/// So long a change is looked after before the answer is that it goes on.
const LOOKS: [Duration; 6] = [
    Duration::from_millis(10),
    Duration::from_millis(40),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(600),
    Duration::from_millis(1000),
];

/// Who answers requests: a running server.
pub trait Desk: Send + Sync {
    /// Does what is asked. It may take long.
    fn handle(&self, by: &Asker, request: Request) -> Response;

    /// Whether all of the server still runs.
    fn is_alive(&self) -> bool;

    /// Writes down a change that is none of the server: of accounts. Returns when that is stable.
    fn note_changed(&self, by: &Asker, line: String);

    /// Writes down that somebody was refused something.
    fn note_refused(&self, by: &Asker, what: &str);
}

impl Desk for ManagementHandle {
    fn handle(&self, by: &Asker, request: Request) -> Response {
        ManagementHandle::handle(self, by, request)
    }

    fn is_alive(&self) -> bool {
        ManagementHandle::is_alive(self)
    }

    fn note_changed(&self, by: &Asker, line: String) {
        ManagementHandle::note_changed(self, by, line);
    }

    fn note_refused(&self, by: &Asker, what: &str) {
        ManagementHandle::note_refused(self, by, what);
    }
}

/// The way to the desk.
pub(crate) struct Management {
    pub(crate) desk: Arc<dyn Desk>,
    places: Arc<Semaphore>,
    /// For those without an account, who leave the others to the others.
    of_strangers: Arc<Semaphore>,
    /// For the unix socket, when the others are taken.
    of_socket: Arc<Semaphore>,
    /// For reading the configuration, which stretches passwords.
    of_configuration: Semaphore,
}

/// How a change is to be made.
#[derive(Clone, Default, Debug)]
pub(crate) struct Terms {
    /// Only if what is changed still has this revision.
    pub(crate) revision: Option<u64>,
    /// The client does not wait for the end of what takes long.
    pub(crate) is_async: bool,
}

/// What has become of a change.
pub(crate) enum Outcome {
    /// It was made: a line for each thing.
    Changed(Vec<String>),
    /// It goes on.
    Running(Box<JobStatus>),
}

impl Management {
    pub(crate) fn new(desk: Arc<dyn Desk>) -> Self {
        let places = |count| Arc::new(Semaphore::new(count));
        Management {
            desk,
            places: places(MANAGED_MAX),
            of_strangers: places(MANAGED_OF_STRANGERS_MAX),
            of_socket: places(MANAGED_OF_SOCKET_MAX),
            of_configuration: Semaphore::new(1),
        }
    }

    /// Asks the server, when the time has come and the request is admitted then, and makes of its answer what is told.
    pub(crate) async fn look<T: Send + 'static>(
        &self,
        by: &Asker,
        request: Request,
        admit: impl FnOnce(Request) -> Result<Request, Problem> + Send + 'static,
        tell: impl FnOnce(Answer) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let _reading = match &request {
            Request::Reload { .. } => Some(self.of_configuration.try_acquire().map_err(|_| busy())?),
            _ => None,
        };
        let place = self.place(by).await?;
        self.look_at(place, by, request, admit, tell).await
    }

    async fn look_at<T: Send + 'static>(
        &self,
        place: OwnedSemaphorePermit,
        by: &Asker,
        request: Request,
        admit: impl FnOnce(Request) -> Result<Request, Problem> + Send + 'static,
        tell: impl FnOnce(Answer) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let (desk, by) = (Arc::clone(&self.desk), by.clone());
        let look = move || match desk.handle(&by, admit(request)?) {
            Response::Done(answer) => tell(answer),
            Response::Refused(refusal) => Err(refusal.into()),
        };
        work_at(place, look).await?
    }

    /// A place for what this one wants done, when it is its turn.
    async fn place(&self, by: &Asker) -> Result<OwnedSemaphorePermit, Problem> {
        let places = match by {
            Asker::Stranger { .. } | Asker::Principal { .. } | Asker::Signal { .. } => &self.of_strangers,
            Asker::Process { .. } if self.places.available_permits() == 0 => &self.of_socket,
            _ => &self.places,
        };
        timeout(MANAGED_WAIT, Arc::clone(places).acquire_owned()).await.ok().and_then(Result::ok).ok_or_else(busy)
    }

    /// Does what may take long, in a thread where that keeps nobody waiting.
    pub(crate) async fn work<T: Send + 'static>(
        &self,
        by: &Asker,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let place = self.place(by).await?;
        work_at(place, work).await
    }

    /// Changes something; what takes longer than a moment goes on as a job.
    pub(crate) async fn change(
        &self,
        by: &Asker,
        request: Request,
        terms: Terms,
        admit: impl FnOnce(Request) -> Result<Request, Problem> + Send + 'static,
    ) -> Result<Outcome, Problem> {
        let request = match terms.revision {
            Some(revision) => Request::IfRevision { revision, request: Box::new(request) },
            None => request,
        };
        let begin = move |request| Ok(Request::Start { request: Box::new(admit(request)?) });
        let mut answer = self.look(by, request, begin, Ok).await?;
        let mut looks = LOOKS.iter().filter(|_| !terms.is_async);
        loop {
            let job = match answer {
                Answer::Changed(lines) => return Ok(Outcome::Changed(lines)),
                Answer::Job(job) => job,
                _ => return Err(Problem::defect("the answer is another one than was asked for")),
            };
            match (job.state, looks.next()) {
                (JobState::Done, _) => return Ok(Outcome::Changed(job.changed)),
                (JobState::Refused, _) => {
                    let code = job.code.map_or("defect".into(), Into::into);
                    return Err(Problem { code, detail: job.refused.unwrap_or_default() });
                }
                (JobState::Running, None) => return Ok(Outcome::Running(Box::new(job))),
                (JobState::Running, Some(look)) => {
                    sleep(*look).await;
                    // It goes on whether somebody looks or not: who cannot is told where to look later.
                    let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
                        return Ok(Outcome::Running(Box::new(job)));
                    };
                    let looked = self.look_at(place, by, Request::Job { id: job.id, wait: false }, Ok, Ok).await;
                    let Ok(looked) = looked else { return Ok(Outcome::Running(Box::new(job))) };
                    answer = looked;
                }
            }
        }
    }
}

async fn work_at<T: Send + 'static>(
    place: OwnedSemaphorePermit,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    let work = move || {
        let _place = place;
        work()
    };
    tokio::task::spawn_blocking(work).await.map_err(|_| Problem::defect("a request has failed"))
}

fn busy() -> Problem {
    Problem::new("busy", "too many requests are being done: ask again")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures_util::future::join3;

    use super::*;
    use crate::tests::FakeDesk;

    #[test]
    fn who_has_waited_for_a_turn_is_admitted_then() {
        let desk = Arc::new(FakeDesk::new(crate::tests::requests::answer));
        let management = Management::new(desk.clone());
        let by = Asker::User { user: "eve".into(), address: "192.0.2.1:1".into() };
        let has_role = Arc::new(AtomicBool::new(true));
        let admit = || {
            let has_role = Arc::clone(&has_role);
            move |request| match has_role.load(Ordering::Relaxed) {
                true => Ok(request),
                false => Err(Problem::new("not-permitted", "")),
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (looked, changed) = runtime.block_on(async {
            let count = u32::try_from(MANAGED_MAX).unwrap();
            let all = Arc::clone(&management.places).acquire_many_owned(count).await.unwrap();
            let take_away = async {
                // Both wait by now.
                tokio::task::yield_now().await;
                has_role.store(false, Ordering::Relaxed);
                drop(all);
            };
            let change = Request::ResumeClient { client: "c".into() };
            let (looked, changed, ()) = join3(
                management.look(&by, Request::Status, admit(), Ok),
                management.change(&by, change, Terms::default(), admit()),
                take_away,
            )
            .await;
            (looked.err(), changed.err())
        });
        let codes = [looked, changed].map(|problem| problem.unwrap().code);
        assert_eq!((codes, desk.asked.lock().unwrap().len()), (["not-permitted".into(), "not-permitted".into()], 0));
    }
}
