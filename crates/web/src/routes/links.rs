//! The wires by which clients come.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use sanwire_server::{Answer, LinkStatus, Request};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::unexpected;
use crate::app::App;
use crate::caller::Caller;
use crate::extract::Query;
use crate::page::{Page, PageQuery};
use crate::problem::Problem;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list_links))
}

/// The wires by which clients come
///
/// Whether each is there, and what has passed since the server started.
#[utoipa::path(get, path = "/links", tag = "server", params(PageQuery), responses((status = 200, description = "The wires.", body = Page<LinkStatus>)))]
async fn list_links(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(query): Query<PageQuery>,
) -> Result<Response, Problem> {
    let tell = |answer| match answer {
        Answer::Links(links) => Ok(axum::Json(query.cut(links, |link| link.link.clone())?)),
        _ => Err(unexpected()),
    };
    app.show(&caller, Request::Links, tell).await
}
