//! Who uses a volume, and which commands are under way there.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use sanwire_server::{Answer, CommandStatus, Request, SessionStatus};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::sessions::sessions;
use super::unexpected;
use crate::app::App;
use crate::caller::Caller;
use crate::extract::{Path, Query};
use crate::page::{Page, PageQuery};
use crate::problem::Problem;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(clients)).routes(routes!(commands))
}

/// Commands that are under way.
#[derive(Serialize, ToSchema)]
struct Commands {
    /// Those that have been under way for longest, the oldest first: 64 at the most.
    items: Vec<CommandStatus>,
}

/// Who uses a volume
///
/// The sessions that have used it, and are there.
#[utoipa::path(get, path = "/volumes/{volume}/clients", operation_id = "list_sessions_of_volume", tag = "volumes", params(("volume" = String, Path, description = "Its name."), PageQuery), responses((status = 200, description = "The sessions.", body = Page<SessionStatus>)))]
async fn clients(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(name): Path<String>,
    Query(query): Query<PageQuery>,
) -> Result<Response, Problem> {
    let tell = |answer| Ok(axum::Json(query.cut(sessions(answer)?, |session| session.id.clone())?));
    app.show(&caller, Request::VolumeSessions { name }, tell).await
}

/// The commands of a volume that take longest now
///
/// What each does, for how long, for what it waits, and whose it is.
#[utoipa::path(get, path = "/volumes/{volume}/commands", tag = "volumes", params(("volume" = String, Path, description = "Its name.")), responses((status = 200, description = "The commands.", body = Commands)))]
async fn commands(State(app): State<Arc<App>>, caller: Caller, Path(name): Path<String>) -> Result<Response, Problem> {
    let tell = |answer| match answer {
        Answer::Commands(items) => Ok(axum::Json(Commands { items })),
        _ => Err(unexpected()),
    };
    app.show(&caller, Request::Commands { name }, tell).await
}
