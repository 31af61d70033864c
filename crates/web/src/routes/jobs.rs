//! The changes that take long.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use sanwire_server::{Answer, JobStatus, Request};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{Changed, Changer, Made, unexpected};
use crate::app::App;
use crate::caller::Caller;
use crate::extract::{Path, Query};
use crate::page::{Page, PageQuery};
use crate::problem::Problem;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list_jobs)).routes(routes!(job)).routes(routes!(cancel_job))
}

/// The changes that take long, and those that have taken long
#[utoipa::path(get, path = "/jobs", tag = "jobs", params(PageQuery), responses((status = 200, description = "The jobs.", body = Page<JobStatus>)))]
async fn list_jobs(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(query): Query<PageQuery>,
) -> Result<Response, Problem> {
    let tell = |answer| match answer {
        Answer::Jobs(jobs) => Ok(axum::Json(query.cut(jobs, |job| job.id)?)),
        _ => Err(unexpected()),
    };
    app.show(&caller, Request::Jobs, tell).await
}

/// A job
#[utoipa::path(get, path = "/jobs/{job}", tag = "jobs", params(("job" = u64, Path, description = "Its number.")), responses((status = 200, description = "The job.", body = JobStatus)))]
async fn job(State(app): State<Arc<App>>, caller: Caller, Path(id): Path<u64>) -> Result<Response, Problem> {
    let tell = |answer| match answer {
        Answer::Job(job) => Ok(axum::Json(job)),
        _ => Err(unexpected()),
    };
    app.show(&caller, Request::Job { id, wait: false }, tell).await
}

/// End a job before it is done
///
/// Copies to other servers can be ended; others go on to their ends.
#[utoipa::path(post, path = "/jobs/{job}/cancel", tag = "jobs", params(("job" = u64, Path, description = "Its number.")),
    responses((status = 200, description = "It ends soon.", body = Changed)))]
async fn cancel_job(changer: Changer, Path(id): Path<u64>) -> Result<Made, Problem> {
    changer.change(Request::CancelJob { id }, false).await
}
