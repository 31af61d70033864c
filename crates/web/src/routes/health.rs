//! What monitoring asks: whether the server lives and is ready, its metrics, and the description of the API.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use sanwire_server::{Answer, Asker, Request};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::unexpected;
use crate::answer::Shared;
use crate::app::App;
use crate::problem::Problem;

/// The media type of OpenMetrics.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(healthz)).routes(routes!(readyz)).routes(routes!(metrics))
}

pub(super) fn document_router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(openapi))
}

/// Whether the server lives
///
/// Needs no account.
#[utoipa::path(get, path = "/healthz", tag = "monitoring", security(()), responses((status = 200, description = "It does.", body = String, content_type = "text/plain")))]
async fn healthz() -> &'static str {
    "ok\n"
}

/// Whether the server serves its clients
///
/// Needs no account.
#[utoipa::path(get, path = "/readyz", tag = "monitoring", security(()), responses((status = 200, description = "It does.", body = String, content_type = "text/plain")))]
async fn readyz(State(app): State<Arc<App>>) -> Result<&'static str, Problem> {
    let desk = Arc::clone(&app.management.desk);
    let by = Asker::Signal { signal: "readyz" };
    match app.management.work(&by, move || desk.is_alive()).await? {
        true => Ok("ready\n"),
        false => Err(Problem::new("stopping", "the server is stopping, or a part of it has ended")),
    }
}

/// What was counted, as OpenMetrics
///
/// Needs no account on this host.
#[utoipa::path(get, path = "/metrics", tag = "monitoring", security((), ("token" = []), ("session" = [])), responses((status = 200, description = "The metrics.", body = String, content_type = "application/openmetrics-text")))]
async fn metrics(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    let by = Asker::Signal { signal: "scrape" };
    let tell = |answer| match answer {
        Answer::Metrics(metrics) => Ok(([(header::CONTENT_TYPE, OPEN_METRICS)], String::from(metrics)).into_response()),
        _ => Err(unexpected()),
    };
    app.management.look(&by, Request::Metrics, Ok, tell).await
}

/// The description of this API, as OpenAPI 3.1
///
/// Needs no account on this host.
#[utoipa::path(get, path = "/openapi.json", tag = "monitoring", security((), ("token" = []), ("session" = [])), responses((status = 200, description = "The description.", body = Object)))]
pub(crate) async fn openapi(State(app): State<Arc<App>>) -> Response {
    (Extension(Shared), [(header::CONTENT_TYPE, "application/json")], app.document.clone()).into_response()
}
