//! Where requests are answered: by the server's management, in a few threads beside that of HTTP, which never waits for it.

use std::sync::Arc;
use std::time::Duration;

use sanwire_server::{Answer, Asker, JobState, JobStatus, ManagementHandle, Request, Response};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::limits::{MANAGED_MAX, MANAGED_WAIT};
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
}

/// How a change is to be made.
#[derive(Clone, Copy, Default, Debug)]
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
        Management { desk, places: Arc::new(Semaphore::new(MANAGED_MAX)) }
    }

    /// Asks the server.
    pub(crate) async fn ask(&self, by: &Asker, request: Request) -> Result<Answer, Problem> {
        let (desk, by) = (Arc::clone(&self.desk), by.clone());
        match self.work(move || desk.handle(&by, request)).await? {
            Response::Done(answer) => Ok(answer),
            Response::Refused(refusal) => Err(refusal.into()),
        }
    }

    /// Does what may take long, in a thread where that keeps nobody waiting.
    pub(crate) async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let place = timeout(MANAGED_WAIT, Arc::clone(&self.places).acquire_owned()).await;
        let Ok(Ok(place)) = place else {
            return Err(Problem::new("busy", "too many requests are being done: ask again"));
        };
        let work = move || {
            let _place = place;
            work()
        };
        tokio::task::spawn_blocking(work).await.map_err(|_| Problem::defect("a request has failed"))
    }

    /// Changes something; what takes longer than a moment goes on as a job.
    pub(crate) async fn change(&self, by: &Asker, request: Request, terms: Terms) -> Result<Outcome, Problem> {
        let request = match terms.revision {
            Some(revision) => Request::IfRevision { revision, request: Box::new(request) },
            None => request,
        };
        let mut answer = self.ask(by, Request::Start { request: Box::new(request) }).await?;
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
                    answer = self.ask(by, Request::Job { id: job.id, wait: false }).await?;
                }
            }
        }
    }
}
