//! What was counted since the server started.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use sanwire_server::{Answer, Request, Statistics};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::unexpected;
use crate::app::App;
use crate::caller::Caller;
use crate::problem::Problem;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(statistics))
}

/// What was counted since the server started
///
/// Of volumes, connections, refused packets and quotas.
#[utoipa::path(get, path = "/statistics", tag = "monitoring", responses((status = 200, description = "The numbers.", body = Statistics)))]
async fn statistics(State(app): State<Arc<App>>, caller: Caller) -> Result<Response, Problem> {
    let tell = |answer| match answer {
        Answer::Statistics(statistics) => Ok(axum::Json(statistics)),
        _ => Err(unexpected()),
    };
    app.show(&caller, Request::Statistics, tell).await
}
