//! The iSCSI targets, their units and their portal groups.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use sanwire_server::{
    AccessChange, Answer, GroupStatus, JobStatus, Request, TargetNodeConfig, TargetSettings, TargetStatus, TargetTerms,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::server::AccessState;
use super::{ChangeQuery, Changed, Changer, DryRunQuery, Made, Tagged, status};
use crate::app::App;
use crate::caller::Caller;
use crate::extract::{Json, Path, Query};
use crate::page::{Page, PageQuery};
use crate::problem::Problem;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list_targets, add_target))
        .routes(routes!(target, change_target, remove_target))
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
    /// What people call it; may be empty.
    alias: String,
    /// Who may use it; nobody named: who is on the server's host, or knows a secret of `chap`.
    allow: Vec<String>,
    /// The names of its CHAP users; none: nobody need show who they are.
    chap: Vec<String>,
    /// As whom the target answers.
    mutual_chap: Option<String>,
    /// The algorithms of CHAP that may be used; none: all.
    chap_algorithms: Vec<String>,
    /// The portal groups through which it may be reached; none: all.
    portal_groups: Vec<u16>,
    /// Whether initiators must agree to digests.
    require_digests: bool,
    /// Where initiators are sent instead.
    redirect: Option<String>,
    /// Whether that is for good.
    redirect_for_good: bool,
    /// Its logical units.
    units: Vec<Unit>,
    /// The portal groups through which it is reached.
    groups: Vec<GroupStatus>,
}

/// A new target.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewTarget {
    /// Its name: `iqn.YYYY-MM.domain:name`, or what is to follow `iqn.2026-11.org.sanwire:`.
    name: String,
    /// How it is set; by default, for whom the server's `allow` names.
    #[serde(default)]
    settings: TargetSettings,
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
        let TargetStatus { revision, name, terms, units, groups } = target;
        let units = units.into_iter().map(|(lun, volume)| Unit { lun, volume }).collect();
        let TargetTerms { alias, allow, chap, mutual_chap, chap_algorithms, portal_groups, .. } = terms;
        let (require_digests, redirect, redirect_for_good) =
            (terms.require_digests, terms.redirect, terms.redirect_for_good);
        Target {
            revision,
            name,
            alias,
            allow,
            chap,
            mutual_chap,
            chap_algorithms,
            portal_groups,
            require_digests,
            redirect,
            redirect_for_good,
            units,
            groups,
        }
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

/// Make a target
///
/// Without units; also one that is configured, and was removed.
#[utoipa::path(post, path = "/targets", tag = "targets", request_body = NewTarget,
    params(("If-Match" = Option<String>, Header, description = "Only if `collections.targets` of the server is still this, in quotes."), DryRunQuery),
    responses((status = 200, description = "It was only told.", body = Changed), (status = 201, description = "It is there.", body = Changed), (status = 202, description = "It goes on as a job.", body = JobStatus)))]
async fn add_target(
    changer: Changer,
    Query(DryRunQuery { dry_run }): Query<DryRunQuery>,
    Json(NewTarget { name, settings }): Json<NewTarget>,
) -> Result<Made, Problem> {
    let whole_name = TargetNodeConfig::name_of(&name).map_or_else(|_| name.clone(), |name| name.to_string());
    let request = Request::AddTarget { name, settings };
    changer.create(request, dry_run, "targets", &whole_name).await
}

/// Change who may use a target, and how
///
/// What is not said stays as it is. The sessions of those who may not use it any more end.
#[utoipa::path(patch, path = "/targets/{target}", tag = "targets", request_body = TargetSettings,
    params(
        ("target" = String, Path, description = "Its name."),
        ("If-Match" = Option<String>, Header, description = "Only if the target still has this ETag."),
        ChangeQuery,
    ),
    responses((status = 200, description = "It was changed.", body = Changed), (status = 202, description = "It goes on as a job.", body = JobStatus)))]
async fn change_target(
    changer: Changer,
    Path(name): Path<String>,
    Query(ChangeQuery { force, dry_run }): Query<ChangeQuery>,
    Json(settings): Json<TargetSettings>,
) -> Result<Made, Problem> {
    let request = Request::SetTarget { name, settings, force };
    changer.change(request, dry_run).await
}

/// Remove a target
///
/// Its volumes stay. Its sessions end, which takes `force`.
#[utoipa::path(delete, path = "/targets/{target}", tag = "targets",
    params(
        ("target" = String, Path, description = "Its name."),
        ("If-Match" = Option<String>, Header, description = "Only if the target still has this ETag."),
        ChangeQuery,
    ),
    responses((status = 200, description = "It is gone.", body = Changed), (status = 202, description = "It goes on as a job.", body = JobStatus)))]
async fn remove_target(
    changer: Changer,
    Path(name): Path<String>,
    Query(ChangeQuery { force, dry_run }): Query<ChangeQuery>,
) -> Result<Made, Problem> {
    changer.change(Request::RemoveTarget { name, force }, dry_run).await
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
    changer: Changer,
    Path((target, lun)): Path<(String, u16)>,
    Query(ChangeQuery { force, dry_run }): Query<ChangeQuery>,
    Json(Mapping { volume }): Json<Mapping>,
) -> Result<Made, Problem> {
    let request = Request::MapVolume { name: volume, lun: Some(lun), target: Some(target), force };
    changer.change(request, dry_run).await
}

/// Take a logical unit out of a target
///
/// A target without units goes, unless it was made or changed by itself. The volume stays.
#[utoipa::path(delete, path = "/targets/{target}/units/{lun}", tag = "targets",
    params(
        ("target" = String, Path, description = "Its name."),
        ("lun" = u16, Path, maximum = 65535, description = "The number."),
        ("If-Match" = Option<String>, Header, description = "Only if the target still has this ETag."),
        ChangeQuery,
    ),
    responses((status = 200, description = "It is none any more.", body = Changed), (status = 202, description = "It goes on as a job.", body = JobStatus)))]
async fn unmap_unit(
    mut changer: Changer,
    Path((target, lun)): Path<(String, u16)>,
    Query(ChangeQuery { force, dry_run }): Query<ChangeQuery>,
) -> Result<Made, Problem> {
    let name = target.clone();
    let known = changer.app.look(&changer.caller, Request::Status, move |answer| find(answer, &name)).await?;
    // What is unmapped is what has this number now.
    changer.terms.revision = changer.terms.revision.or(Some(known.revision));
    let unit = known.units.into_iter().find(|unit| unit.lun == lun);
    let unit = unit.ok_or_else(|| Problem::new("mapping-unknown", "the target has no logical unit of this number"))?;
    let request = Request::UnmapVolume { name: unit.volume, target, force };
    changer.change(request, dry_run).await
}

/// Set the ALUA access state of a port group, for one target
#[utoipa::path(put, path = "/targets/{target}/groups/{group}", tag = "targets", request_body = AccessState,
    params(
        ("target" = String, Path, description = "Its name."),
        ("group" = u16, Path, maximum = 65535, description = "The portal group's tag."),
        ("If-Match" = Option<String>, Header, description = "Only if the server still has this revision, in quotes."),
        DryRunQuery,
    ),
    responses((status = 200, description = "It was done.", body = Changed), (status = 202, description = "It goes on as a job.", body = JobStatus)))]
async fn set_target_group(
    changer: Changer,
    Path((target, group)): Path<(String, u16)>,
    Query(DryRunQuery { dry_run }): Query<DryRunQuery>,
    Json(AccessState { state }): Json<AccessState>,
) -> Result<Made, Problem> {
    let request = Request::SetAccessState(AccessChange { group, state, target: Some(target) });
    changer.change(request, dry_run).await
}

fn find(answer: Answer, name: &str) -> Result<Target, Problem> {
    let whole_name = TargetNodeConfig::name_of(name).map_or_else(|_| name.to_owned(), |name| name.to_string());
    let target = status(answer)?.targets.into_iter().find(|target| target.name == whole_name);
    target.map(Target::from).ok_or_else(|| Problem::new("target-unknown", "there is no iSCSI target of this name"))
}
