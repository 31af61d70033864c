//! Volumes that are derived from others.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use sanwire_server::{Answer, DvdEnd, DvdStatus, JobStatus, NewDvd, NewDvds, Request, VolumeStatus};
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{Changed, Changer, DryRunQuery, Made, Tagged, unexpected};
use crate::app::App;
use crate::caller::Caller;
use crate::extract::{Json, Path, Query};
use crate::page::{Page, PageQuery};
use crate::problem::Problem;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list_dvds))
        .routes(routes!(dvd, set_dvd, revoke_dvd))
        .routes(routes!(list_dvds_of_volume, create_dvd))
        .routes(routes!(create_dvds))
}

/// A change of a derived volume.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct DvdChange {
    /// When it ends: a time as in RFC 3339, or how long from now on, like `2h`, and never after that from which it is derived; null: when it is
    /// revoked, or with that.
    #[serde(deserialize_with = "Option::deserialize")]
    #[schema(required = true)]
    until: Option<String>,
}

/// The volumes that are derived from others
///
/// By their numbers. Each is a volume too, and the ETag is its revision.
#[utoipa::path(get, path = "/dvds", tag = "volumes", params(PageQuery), responses((status = 200, description = "The derived volumes.", body = Page<VolumeStatus>)))]
async fn list_dvds(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(query): Query<PageQuery>,
) -> Result<Response, Problem> {
    list(&app, &caller, query, None).await
}

/// The volumes that are derived from a volume, and from these
#[utoipa::path(get, path = "/volumes/{volume}/dvds", tag = "volumes",
    params(("volume" = String, Path, description = "The name of the volume."), PageQuery),
    responses((status = 200, description = "The derived volumes.", body = Page<VolumeStatus>)))]
async fn list_dvds_of_volume(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(parent): Path<String>,
    Query(query): Query<PageQuery>,
) -> Result<Response, Problem> {
    list(&app, &caller, query, Some(parent)).await
}

async fn list(app: &App, caller: &Caller, query: PageQuery, parent: Option<String>) -> Result<Response, Problem> {
    let tell = move |answer| match answer {
        Answer::Dvds(dvds) => Ok(axum::Json(query.cut(dvds, |volume| u32::from(volume.lun))?)),
        _ => Err(unexpected()),
    };
    app.show(caller, Request::Dvds { parent }, tell).await
}

/// Derive a volume from a volume
///
/// It is served like any other, over every wire, for its principals alone.
#[utoipa::path(post, path = "/volumes/{volume}/dvds", tag = "volumes", request_body = NewDvd,
    params(
        ("volume" = String, Path, description = "The name of the volume from which it is derived."),
        ("If-Match" = Option<String>, Header, description = "Only if `collections.volumes` of the server is still this, in quotes."),
        DryRunQuery,
    ),
    responses(
        (status = 200, description = "It was only told.", body = Changed),
        (status = 201, description = "It is served.", body = Changed),
        (status = 202, description = "It goes on as a job.", body = JobStatus),
    ))]
async fn create_dvd(
    changer: Changer,
    Path(parent): Path<String>,
    Query(DryRunQuery { dry_run }): Query<DryRunQuery>,
    Json(new): Json<NewDvd>,
) -> Result<Made, Problem> {
    let name = new.name.clone();
    let request = Request::CreateDvd(of_parent(&parent, new)?);
    changer.create(request, dry_run, "dvds", &name).await
}

/// Derive some volumes from a volume
///
/// All of them, as one change, or none: each as if it were derived by itself, but without a program.
#[utoipa::path(post, path = "/volumes/{volume}/dvds/batch", tag = "volumes", request_body = NewDvds,
    params(
        ("volume" = String, Path, description = "The name of the volume from which they are derived."),
        ("If-Match" = Option<String>, Header, description = "Only if `collections.volumes` of the server is still this, in quotes."),
        DryRunQuery,
    ),
    responses(
        (status = 200, description = "They are served, or it was only told.", body = Changed),
        (status = 202, description = "It goes on as a job.", body = JobStatus),
    ))]
async fn create_dvds(
    changer: Changer,
    Path(parent): Path<String>,
    Query(DryRunQuery { dry_run }): Query<DryRunQuery>,
    Json(NewDvds { dvds }): Json<NewDvds>,
) -> Result<Made, Problem> {
    let dvds = dvds.into_iter().map(|new| of_parent(&parent, new)).collect::<Result<_, _>>()?;
    changer.change(Request::CreateDvds(NewDvds { dvds }), dry_run).await
}

/// A volume that is derived from that of the path.
fn of_parent(parent: &str, new: NewDvd) -> Result<NewDvd, Problem> {
    if !new.parent.is_empty() && new.parent != parent {
        return Err(Problem::invalid("parent: it is the volume of the path, and need not be said"));
    }
    Ok(NewDvd { parent: parent.to_owned(), ..new })
}

/// A derived volume, with what was counted of those who use it
#[utoipa::path(get, path = "/dvds/{dvd}", tag = "volumes", params(("dvd" = String, Path, description = "Its name.")), responses((status = 200, description = "The derived volume.", body = DvdStatus)))]
async fn dvd(State(app): State<Arc<App>>, caller: Caller, Path(name): Path<String>) -> Result<Response, Problem> {
    let tell = |answer| match answer {
        Answer::Dvd(dvd) => Ok(Tagged(dvd.volume.revision, dvd)),
        _ => Err(unexpected()),
    };
    app.show(&caller, Request::Dvd { name }, tell).await
}

/// Have a derived volume end at another time
///
/// Earlier or later, while it is used. What is derived from it keeps its own end, and ends with it if not before.
#[utoipa::path(patch, path = "/dvds/{dvd}", tag = "volumes", request_body = DvdChange,
    params(
        ("dvd" = String, Path, description = "Its name."),
        ("If-Match" = Option<String>, Header, description = "Only if the volume still has this ETag."),
        DryRunQuery,
    ),
    responses(
        (status = 200, description = "It ends then.", body = Changed),
        (status = 202, description = "It goes on as a job.", body = JobStatus),
    ))]
async fn set_dvd(
    changer: Changer,
    Path(name): Path<String>,
    Query(DryRunQuery { dry_run }): Query<DryRunQuery>,
    Json(DvdChange { until }): Json<DvdChange>,
) -> Result<Made, Problem> {
    changer.change(Request::SetDvd(DvdEnd { name, until }), dry_run).await
}

/// Revoke a derived volume
///
/// At once, whoever uses it, with all that is derived from it.
#[utoipa::path(delete, path = "/dvds/{dvd}", tag = "volumes",
    params(
        ("dvd" = String, Path, description = "Its name."),
        ("If-Match" = Option<String>, Header, description = "Only if the volume still has this ETag."),
        DryRunQuery,
    ),
    responses(
        (status = 200, description = "It is revoked.", body = Changed),
        (status = 202, description = "It goes on as a job.", body = JobStatus),
    ))]
async fn revoke_dvd(
    changer: Changer,
    Path(name): Path<String>,
    Query(DryRunQuery { dry_run }): Query<DryRunQuery>,
) -> Result<Made, Problem> {
    changer.change(Request::RevokeDvd { name }, dry_run).await
}
