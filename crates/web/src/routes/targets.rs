//! The iSCSI targets, their units and their portal groups.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use sanwire_server::{Answer, GroupStatus, JobStatus, Request, TargetStatus};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::server::AccessState;
use super::{ChangeQuery, Changed, DryRunQuery, Made, Tagged, rehearsed, status};
use crate::app::App;
use crate::caller::Caller;
use crate::extract::{Json, Path, Query};
use crate::management::Terms;
use crate::page::{Page, PageQuery};
use crate::problem::Problem;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list_targets))
        .routes(routes!(target))
        .routes(routes!(map_unit, unmap_unit))
        .routes(routes!(set_target_group))
}

/// An iSCSI target.
#[derive(Serialize, ToSchema)]
struct Target {
    /// Rises when it changes: its volumes, who may use it, where it is, or the states of its portal groups.
    revision: u64,
    /// Its name.
    name: String,
    /// Its logical units.
    units: Vec<Unit>,
    /// The portal groups through which it is reached.
    groups: Vec<GroupStatus>,
}

/// A logical unit of a target.
#[derive(Serialize, ToSchema)]
struct Unit {
    /// Its number there.
    lun: u16,
    /// The volume.
    volume: String,
}

/// What is to be a logical unit.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Mapping {
    /// The volume.
    volume: String,
}

impl From<TargetStatus> for Target {
    fn from(target: TargetStatus) -> Self {
        let TargetStatus { revision, name, units, groups } = target;
        let units = units.into_iter().map(|(lun, volume)| Unit { lun, volume });
        Target { revision, name, units: units.collect(), groups }
    }
}

/// The iSCSI targets
///
/// By their names. The ETag of a target is its revision.
#[utoipa::path(get, path = "/targets", tag = "targets", params(PageQuery), responses((status = 200, description = "The targets.", body = Page<Target>)))]
async fn list_targets(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(query): Query<PageQuery>,
) -> Result<Response, Problem> {
    let tell = |answer| {
        let targets = status(answer)?.targets.into_iter().map(Target::from).collect();
        Ok(axum::Json(query.cut(targets, |target: &Target| target.name.clone())?))
    };
    app.show(&caller, Request::Status, tell).await
}

/// An iSCSI target
#[utoipa::path(get, path = "/targets/{target}", tag = "targets", params(("target" = String, Path, description = "Its name.")), responses((status = 200, description = "The target.", body = Target)))]
async fn target(State(app): State<Arc<App>>, caller: Caller, Path(name): Path<String>) -> Result<Response, Problem> {
    let find = move |answer| {
        let target = find(answer, &name)?;
        Ok(Tagged(target.revision, target))
    };
    app.show(&caller, Request::Status, find).await
}

/// Make a volume a logical unit of a target
///
/// A target that is not there is made.
#[utoipa::path(put, path = "/targets/{target}/units/{lun}", tag = "targets", request_body = Mapping,
    params(
        ("target" = String, Path, description = "Its name."),
        ("lun" = u16, Path, maximum = 65535, description = "The number."),
        ("If-Match" = Option<String>, Header, description = "Only if the target still has this ETag."),
        ChangeQuery,
    ),
    responses((status = 200, description = "It is one.", body = Changed), (status = 202, description = "It goes on as a job.", body = JobStatus)))]
async fn map_unit(
    State(app): State<Arc<App>>,
    caller: Caller,
    terms: Terms,
    Path((target, lun)): Path<(String, u16)>,
    Query(ChangeQuery { force, dry_run }): Query<ChangeQuery>,
    Json(Mapping { volume }): Json<Mapping>,
) -> Result<Made, Problem> {
    let request = Request::MapVolume { name: volume, lun: Some(lun), target: Some(target), force };
    app.change(&caller, rehearsed(request, dry_run), terms).await.map(Made::changed)
}

/// Take a logical unit out of a target
///
/// A target without units goes. The volume stays.
#[utoipa::path(delete, path = "/targets/{target}/units/{lun}", tag = "targets",
    params(
        ("target" = String, Path, description = "Its name."),
        ("lun" = u16, Path, maximum = 65535, description = "The number."),
        ("If-Match" = Option<String>, Header, description = "Only if the target still has this ETag."),
        ChangeQuery,
    ),
    responses((status = 200, description = "It is none any more.", body = Changed), (status = 202, description = "It goes on as a job.", body = JobStatus)))]
async fn unmap_unit(
    State(app): State<Arc<App>>,
    caller: Caller,
    mut terms: Terms,
    Path((target, lun)): Path<(String, u16)>,
    Query(ChangeQuery { force, dry_run }): Query<ChangeQuery>,
) -> Result<Made, Problem> {
    let name = target.clone();
    let known = app.look(&caller, Request::Status, move |answer| find(answer, &name)).await?;
    // What is unmapped is what has this number now.
    terms.revision = terms.revision.or(Some(known.revision));
    let unit = known.units.into_iter().find(|unit| unit.lun == lun);
    let unit = unit.ok_or_else(|| Problem::new("mapping-unknown", "the target has no logical unit of this number"))?;
    let request = Request::UnmapVolume { name: unit.volume, target, force };
    app.change(&caller, rehearsed(request, dry_run), terms).await.map(Made::changed)
}

/// Put the ports of a group into another state, for one target
#[utoipa::path(put, path = "/targets/{target}/groups/{group}", tag = "targets", request_body = AccessState,
    params(
        ("target" = String, Path, description = "Its name."),
        ("group" = u16, Path, maximum = 65535, description = "The portal group's tag."),
        ("If-Match" = Option<String>, Header, description = "Only if the server still has this revision, in quotes."),
        DryRunQuery,
    ),
    responses((status = 200, description = "It was done.", body = Changed), (status = 202, description = "It goes on as a job.", body = JobStatus)))]
async fn set_target_group(
    State(app): State<Arc<App>>,
    caller: Caller,
    terms: Terms,
    Path((target, group)): Path<(String, u16)>,
    Query(DryRunQuery { dry_run }): Query<DryRunQuery>,
    Json(AccessState { state }): Json<AccessState>,
) -> Result<Made, Problem> {
    let request = Request::SetAccessState { group, state, target: Some(target) };
    app.change(&caller, rehearsed(request, dry_run), terms).await.map(Made::changed)
}

fn find(answer: Answer, name: &str) -> Result<Target, Problem> {
    let target = status(answer)?.targets.into_iter().find(|target| target.name == name);
    target.map(Target::from).ok_or_else(|| Problem::new("target-unknown", "there is no iSCSI target of this name"))
}
