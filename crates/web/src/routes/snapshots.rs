//! Snapshots of volumes of pools.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use sanwire_server::{Answer, JobStatus, Request, SnapshotStatus};
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{ChangeQuery, Changed, Changer, DryRunQuery, Made, Tagged, in_path, unexpected};
use crate::app::App;
use crate::caller::Caller;
use crate::extract::{Json, Path, Query};
use crate::page::{Page, PageQuery};
use crate::problem::Problem;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list_snapshots, take_snapshots))
        .routes(routes!(list_snapshots_of, take_snapshot))
        .routes(routes!(snapshot, change_snapshot, delete_snapshot))
        .routes(routes!(roll_back))
}

/// New snapshots of several volumes.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewSnapshots {
    /// Of these volumes.
    volumes: Vec<String>,
    /// What each of the snapshots is called.
    name: String,
    /// Whether they are not deleted until that is taken back.
    #[serde(default)]
    protected: bool,
}

/// A new snapshot.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewSnapshot {
    /// What it is called.
    name: String,
    /// Whether it is not deleted until that is taken back.
    #[serde(default)]
    protected: bool,
}

/// A change of a snapshot.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SnapshotChange {
    /// Whether it is not deleted.
    protected: bool,
}

/// What a volume is to hold again.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Rollback {
    /// Which snapshot of it.
    snapshot: String,
    /// The snapshot that what it holds becomes before.
    keep: Option<String>,
}

/// The snapshots
#[utoipa::path(get, path = "/snapshots", tag = "snapshots", params(PageQuery), responses((status = 200, description = "The snapshots of all volumes.", body = Page<SnapshotStatus>)))]
async fn list_snapshots(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(query): Query<PageQuery>,
) -> Result<Response, Problem> {
    let request = Request::Snapshots { volume: None };
    app.show(&caller, request, move |answer| Ok(axum::Json(query.cut(snapshots(answer)?, key)?))).await
}

/// Take snapshots of several volumes
///
/// All as they are at one moment.
#[utoipa::path(post, path = "/snapshots", tag = "snapshots", request_body = NewSnapshots, params(DryRunQuery), responses(
    (status = 200, description = "They are taken.", body = Changed),
    (status = 202, description = "It goes on as a job.", body = JobStatus),
))]
async fn take_snapshots(
    changer: Changer,
    Query(DryRunQuery { dry_run }): Query<DryRunQuery>,
    Json(NewSnapshots { volumes, name, protected }): Json<NewSnapshots>,
) -> Result<Made, Problem> {
    let request = Request::Snapshot { volumes, name, protected };
    changer.change(request, dry_run).await
}

/// The snapshots of a volume
#[utoipa::path(get, path = "/volumes/{volume}/snapshots", tag = "snapshots", params(("volume" = String, Path, description = "Its name."), PageQuery), responses((status = 200, description = "Its snapshots.", body = Page<SnapshotStatus>)))]
async fn list_snapshots_of(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(volume): Path<String>,
    Query(query): Query<PageQuery>,
) -> Result<Response, Problem> {
    let request = Request::Snapshots { volume: Some(volume) };
    app.show(&caller, request, move |answer| Ok(axum::Json(query.cut(snapshots(answer)?, key)?))).await
}

/// Take a snapshot of a volume
#[utoipa::path(post, path = "/volumes/{volume}/snapshots", tag = "snapshots", request_body = NewSnapshot,
    params(("volume" = String, Path, description = "Its name."), DryRunQuery),
    responses((status = 200, description = "It was only told.", body = Changed), (status = 201, description = "It is taken.", body = Changed), (status = 202, description = "It goes on as a job.", body = JobStatus)))]
async fn take_snapshot(
    changer: Changer,
    Path(volume): Path<String>,
    Query(DryRunQuery { dry_run }): Query<DryRunQuery>,
    Json(NewSnapshot { name, protected }): Json<NewSnapshot>,
) -> Result<Made, Problem> {
    let collection = format!("volumes/{}/snapshots", in_path(&volume));
    let request = Request::Snapshot { volumes: vec![volume], name: name.clone(), protected };
    changer.create(request, dry_run, &collection, &name).await
}

/// A snapshot
#[utoipa::path(get, path = "/volumes/{volume}/snapshots/{snapshot}", tag = "snapshots",
    params(("volume" = String, Path, description = "Its volume."), ("snapshot" = String, Path, description = "Its name.")),
    responses((status = 200, description = "The snapshot.", body = SnapshotStatus)))]
async fn snapshot(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((volume, name)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let find = move |answer| {
        let snapshot = snapshots(answer)?.into_iter().find(|snapshot| snapshot.name == name);
        let unknown = || Problem::new("snapshot-unknown", "the volume has no snapshot of this name");
        snapshot.map(|snapshot| Tagged(snapshot.revision, snapshot)).ok_or_else(unknown)
    };
    app.show(&caller, Request::Snapshots { volume: Some(volume) }, find).await
}

/// Protect a snapshot, or not any more
#[utoipa::path(patch, path = "/volumes/{volume}/snapshots/{snapshot}", tag = "snapshots", request_body = SnapshotChange,
    params(("volume" = String, Path, description = "Its volume."), ("snapshot" = String, Path, description = "Its name."),
        ("If-Match" = Option<String>, Header, description = "Only if the snapshot still has this ETag."), DryRunQuery),
    responses((status = 200, description = "It was changed.", body = Changed), (status = 202, description = "It goes on as a job.", body = JobStatus)))]
async fn change_snapshot(
    changer: Changer,
    Path((volume, name)): Path<(String, String)>,
    Query(DryRunQuery { dry_run }): Query<DryRunQuery>,
    Json(SnapshotChange { protected }): Json<SnapshotChange>,
) -> Result<Made, Problem> {
    let request = Request::SetSnapshot { snapshot: id(&volume, &name), protected };
    changer.change(request, dry_run).await
}

/// Delete a snapshot
#[utoipa::path(delete, path = "/volumes/{volume}/snapshots/{snapshot}", tag = "snapshots",
    params(("volume" = String, Path, description = "Its volume."), ("snapshot" = String, Path, description = "Its name."),
        ("If-Match" = Option<String>, Header, description = "Only if the snapshot still has this ETag."), DryRunQuery),
    responses((status = 200, description = "It is deleted.", body = Changed), (status = 202, description = "It goes on as a job.", body = JobStatus)))]
async fn delete_snapshot(
    changer: Changer,
    Path((volume, name)): Path<(String, String)>,
    Query(DryRunQuery { dry_run }): Query<DryRunQuery>,
) -> Result<Made, Problem> {
    let request = Request::DeleteSnapshot { snapshot: id(&volume, &name) };
    changer.change(request, dry_run).await
}

/// Have a volume hold again what its snapshot does
#[utoipa::path(post, path = "/volumes/{volume}/rollback", tag = "snapshots", request_body = Rollback,
    params(
        ("volume" = String, Path, description = "Its name."),
        ("If-Match" = Option<String>, Header, description = "Only if the volume still has this ETag."),
        ChangeQuery,
    ),
    responses((status = 200, description = "It does.", body = Changed), (status = 202, description = "It goes on as a job.", body = JobStatus)))]
async fn roll_back(
    changer: Changer,
    Path(volume): Path<String>,
    Query(ChangeQuery { force, dry_run }): Query<ChangeQuery>,
    Json(Rollback { snapshot, keep }): Json<Rollback>,
) -> Result<Made, Problem> {
    let request = Request::Rollback { snapshot: id(&volume, &snapshot), force, keep };
    changer.change(request, dry_run).await
}

/// What the management calls a snapshot. No name has an `@`, which is refused there.
pub(super) fn id(volume: &str, name: &str) -> String {
    format!("{volume}@{name}")
}

/// The place of a snapshot in lists: two pools may have one of the same name.
fn key(SnapshotStatus { volume, name, pool, .. }: &SnapshotStatus) -> String {
    format!("{volume}@{name}@{pool}")
}

fn snapshots(answer: Answer) -> Result<Vec<SnapshotStatus>, Problem> {
    match answer {
        Answer::Snapshots(snapshots) => Ok(snapshots),
        _ => Err(unexpected()),
    }
}
