//! The sessions of all wires.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use sanwire_server::{Answer, JobStatus, Request, SessionStatus};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{Changed, Changer, DryRunQuery, Made, Tagged, unexpected};
use crate::app::App;
use crate::caller::Caller;
use crate::extract::{Path, Query};
use crate::page::{Page, PageQuery};
use crate::problem::Problem;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list_sessions)).routes(routes!(session, drop_session))
}

/// The sessions of all clients and iSCSI initiators
#[utoipa::path(get, path = "/sessions", tag = "sessions", params(PageQuery), responses((status = 200, description = "The sessions.", body = Page<SessionStatus>)))]
async fn list_sessions(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(query): Query<PageQuery>,
) -> Result<Response, Problem> {
    let tell = |answer| Ok(axum::Json(query.cut(sessions(answer)?, |session| session.id.clone())?));
    app.show(&caller, Request::Sessions, tell).await
}

/// A session
///
/// Its ETag is the revision of all sessions of its client.
#[utoipa::path(get, path = "/sessions/{session}", operation_id = "find_session", tag = "sessions", params(("session" = String, Path, description = "Its number, in hexadecimal digits.")), responses((status = 200, description = "The session.", body = SessionStatus)))]
async fn session(State(app): State<Arc<App>>, caller: Caller, Path(id): Path<String>) -> Result<Response, Problem> {
    let find = move |answer| {
        let session = sessions(answer)?.into_iter().find(|session| session.id == id);
        let session = session.ok_or_else(|| Problem::new("session-unknown", "there is no session of this number"))?;
        Ok(Tagged(session.revision, session))
    };
    app.show(&caller, Request::Sessions, find).await
}

/// End a session
///
/// Its client may come again.
#[utoipa::path(delete, path = "/sessions/{session}", tag = "sessions",
    params(
        ("session" = String, Path, description = "Its number, in hexadecimal digits."),
        ("If-Match" = Option<String>, Header, description = "Only if the sessions of its client still have this ETag."),
        DryRunQuery,
    ),
    responses((status = 200, description = "It is over.", body = Changed), (status = 202, description = "It goes on as a job.", body = JobStatus)))]
async fn drop_session(
    changer: Changer,
    Path(session): Path<String>,
    Query(DryRunQuery { dry_run }): Query<DryRunQuery>,
) -> Result<Made, Problem> {
    changer.change(Request::DropSession { session }, dry_run).await
}

pub(super) fn sessions(answer: Answer) -> Result<Vec<SessionStatus>, Problem> {
    match answer {
        Answer::Sessions(sessions) => Ok(sessions),
        _ => Err(unexpected()),
    }
}
