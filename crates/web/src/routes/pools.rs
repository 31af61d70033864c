//! The pools.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use sanwire_server::{Answer, JobStatus, PoolStatus, Request};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{Changed, Changer, DryRunQuery, Made, Tagged, unexpected};
use crate::app::App;
use crate::caller::Caller;
use crate::extract::{Path, Query};
use crate::page::{Page, PageQuery};
use crate::problem::Problem;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list_pools)).routes(routes!(pool, forget_pool))
}

/// The pools
///
/// Directories in which volumes are without naming a path. They come from the configuration, and change with a restart.
#[utoipa::path(get, path = "/pools", tag = "pools", params(PageQuery), responses((status = 200, description = "The pools.", body = Page<PoolStatus>)))]
async fn list_pools(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(query): Query<PageQuery>,
) -> Result<Response, Problem> {
    let tell = |answer| Ok(axum::Json(query.cut(pools(answer)?, |pool| pool.name.clone())?));
    app.show(&caller, Request::Pools, tell).await
}

/// A pool
#[utoipa::path(get, path = "/pools/{pool}", tag = "pools", params(("pool" = String, Path, description = "Its name.")), responses((status = 200, description = "The pool.", body = PoolStatus)))]
async fn pool(State(app): State<Arc<App>>, caller: Caller, Path(name): Path<String>) -> Result<Response, Problem> {
    let find = move |answer| {
        let pool = pools(answer)?.into_iter().find(|pool| pool.name == name);
        pool.map(|pool| Tagged(pool.revision, pool))
            .ok_or_else(|| Problem::new("pool-unknown", "there is no pool of this name"))
    };
    app.show(&caller, Request::Pools, find).await
}

/// Forget a pool that the configuration does not name any more
///
/// Its directory stays as it is. As long as a pool of before is known and not configured, no volume that names no pool is made anew.
#[utoipa::path(delete, path = "/pools/{pool}", tag = "pools", 
    params(
        ("pool" = String, Path, description = "Its name."),
        ("If-Match" = Option<String>, Header, description = "Only if the pool still has this ETag: one that can be forgotten has none any more."),
        DryRunQuery,
    ),
    responses((status = 200, description = "It is forgotten.", body = Changed), (status = 202, description = "It goes on as a job.", body = JobStatus)))]
async fn forget_pool(
    changer: Changer,
    Path(name): Path<String>,
    Query(DryRunQuery { dry_run }): Query<DryRunQuery>,
) -> Result<Made, Problem> {
    changer.change(Request::ForgetPool { name }, dry_run).await
}

fn pools(answer: Answer) -> Result<Vec<PoolStatus>, Problem> {
    match answer {
        Answer::Pools(pools) => Ok(pools),
        _ => Err(unexpected()),
    }
}
