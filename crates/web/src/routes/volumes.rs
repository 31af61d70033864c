//! The volumes.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use sanwire_server::{Answer, JobStatus, Request, VolumeStatus};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::new_volume::{NewVolume, VolumeInPool};
use super::{ChangeQuery, Changed, Changer, DryRunQuery, Made, Tagged, check_revision, status};
use crate::app::App;
use crate::caller::Caller;
use crate::extract::{Json, Path, Query};
use crate::management::Outcome;
use crate::page::{Page, PageQuery};
use crate::problem::Problem;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list_volumes, add_volume))
        .routes(routes!(volume, put_volume, change_volume, remove_volume))
        .routes(routes!(eject_volume))
        .routes(routes!(load_volume))
}

/// A change of a volume: one at a time.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(min_properties = 1, max_properties = 1)]
struct VolumeChange {
    /// Its new length, like `20G`: never less than it has.
    size: Option<String>,
    /// The protection level of its packets over HyperSCSI, HDSP and VISA: `none`, `hash`, `aes-128-gcm`, `aes-256-gcm` or `chacha20-poly1305`.
    security: Option<String>,
    /// Its HyperSCSI number.
    #[schema(maximum = 65535)]
    lun: Option<u16>,
    /// Whether its content is neither deleted nor rolled back.
    protected: Option<bool>,
    /// Who may derive volumes from it, in band, without managing the server; `[]`: nobody.
    owners: Option<Vec<String>>,
}

/// Another disc.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Disc {
    /// What is to be the disc, as the store of a volume; without it, the medium that was there.
    store: Option<String>,
}

/// The volumes
///
/// By their numbers. The ETag of a volume is its revision.
#[utoipa::path(get, path = "/volumes", tag = "volumes", params(PageQuery), responses((status = 200, description = "The volumes.", body = Page<VolumeStatus>)))]
async fn list_volumes(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(query): Query<PageQuery>,
) -> Result<Response, Problem> {
    let tell = |answer| Ok(axum::Json(query.cut(status(answer)?.volumes, |volume| u32::from(volume.lun))?));
    app.show(&caller, Request::Status, tell).await
}

/// Serve one more volume
///
/// With `store`, it takes the role administrator where that is no pool: it names a path of the host. With `source` it holds what a snapshot
/// does, in the pool of that.
#[utoipa::path(post, path = "/volumes", tag = "volumes", request_body = NewVolume,
    params(DryRunQuery, ("If-Match" = Option<String>, Header, description = "Only if `collections.volumes` of the server is still this, in quotes.")),
    responses(
        (status = 200, description = "It was only told.", body = Changed),
        (status = 201, description = "It is served.", body = Changed),
        (status = 202, description = "It goes on as a job.", body = JobStatus),
    ))]
async fn add_volume(
    changer: Changer,
    Query(DryRunQuery { dry_run }): Query<DryRunQuery>,
    Json(volume): Json<NewVolume>,
) -> Result<Made, Problem> {
    let name = volume.name.clone();
    let request = volume.request()?;
    changer.create(request, dry_run, "volumes", &name).await
}

/// A volume
#[utoipa::path(get, path = "/volumes/{volume}", tag = "volumes", params(("volume" = String, Path, description = "Its name.")), responses((status = 200, description = "The volume.", body = VolumeStatus)))]
async fn volume(State(app): State<Arc<App>>, caller: Caller, Path(name): Path<String>) -> Result<Response, Problem> {
    let find = move |answer| {
        let volume = find(answer, &name)?.ok_or_else(unknown)?;
        Ok(Tagged(volume.revision, volume))
    };
    app.show(&caller, Request::Status, find).await
}

/// Have a volume in a pool
///
/// It is made, or found to be as it is said here. One that is otherwise stays so (`volume-exists`).
#[utoipa::path(put, path = "/volumes/{volume}", tag = "volumes", request_body = VolumeInPool,
    params(
        ("volume" = String, Path, description = "Its name."),
        ("If-Match" = Option<String>, Header, description = "Only if the volume that is there still has this ETag; if there is none, only if `collections.volumes` of the server is still this, in quotes."),
        DryRunQuery,
    ),
    responses(
        (status = 200, description = "It was there.", body = Changed),
        (status = 201, description = "It is made, and served.", body = Changed),
        (status = 202, description = "It goes on as a job.", body = JobStatus),
    ))]
async fn put_volume(
    changer: Changer,
    Path(name): Path<String>,
    Query(DryRunQuery { dry_run }): Query<DryRunQuery>,
    Json(wanted): Json<VolumeInPool>,
) -> Result<Made, Problem> {
    let request = wanted.request(&name)?;
    changer.caller.check(&request)?;
    let known = name.clone();
    if let Some(volume) = changer.app.look(&changer.caller, Request::Status, move |answer| find(answer, &known)).await?
    {
        check_revision(&changer.terms, volume.revision, &format!("volume {name}"))?;
        wanted.check_equal(&volume)?;
        return Ok(Made::changed(Outcome::Changed(Vec::new())));
    }
    changer.create(request, dry_run, "volumes", &name).await
}

/// Change a volume
///
/// One property at a time, so that nothing is done in part.
#[utoipa::path(patch, path = "/volumes/{volume}", tag = "volumes", request_body = VolumeChange,
    params(
        ("volume" = String, Path, description = "Its name."),
        ("If-Match" = Option<String>, Header, description = "Only if the volume still has this ETag."),
        ChangeQuery,
    ),
    responses(
        (status = 200, description = "It was changed.", body = Changed),
        (status = 202, description = "It goes on as a job.", body = JobStatus),
    ))]
async fn change_volume(
    changer: Changer,
    Path(name): Path<String>,
    Query(ChangeQuery { force, dry_run }): Query<ChangeQuery>,
    Json(change): Json<VolumeChange>,
) -> Result<Made, Problem> {
    let request = match change {
        VolumeChange { size: Some(size), security: None, lun: None, protected: None, owners: None } => {
            Request::ResizeVolume { name, size }
        }
        VolumeChange { size: None, security: None, lun, protected: None, owners: None } if lun.is_some() => {
            Request::MapVolume { name, lun, target: None, force }
        }
        VolumeChange { size: None, security, lun: None, protected, owners } => {
            let given = [security.is_some(), protected.is_some(), owners.is_some()];
            if given.into_iter().filter(|is_given| *is_given).count() != 1 {
                return Err(one_change());
            }
            Request::SetVolume { name, security, protected, owners }
        }
        _ => return Err(one_change()),
    };
    changer.change(request, dry_run).await
}

/// What becomes of a volume.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[into_params(parameter_in = Query)]
struct RemovalQuery {
    /// Do it also while sessions use it.
    #[serde(default)]
    force: bool,
    /// What becomes of its content, which is in a pool when it is to be deleted: `keep` or `delete`.
    #[serde(default)]
    #[param(inline)]
    content: ContentFate,
    /// Delete its snapshots with its content; else that is refused when there are any.
    #[serde(default)]
    snapshots: bool,
    /// Only tell what it would do, or why it would be refused.
    #[serde(default)]
    dry_run: bool,
}

/// What becomes of the content of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Default, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
enum ContentFate {
    /// It stays where it is.
    #[default]
    Keep,
    /// It is deleted.
    Delete,
}

/// Serve a volume no longer
///
/// Its content stays where it is, unless it is said that it is deleted.
#[utoipa::path(delete, path = "/volumes/{volume}", tag = "volumes",
    params(
        ("volume" = String, Path, description = "Its name."),
        ("If-Match" = Option<String>, Header, description = "Only if the volume still has this ETag."),
        RemovalQuery,
    ),
    responses(
        (status = 200, description = "It is not served any more.", body = Changed),
        (status = 202, description = "It goes on as a job.", body = JobStatus),
    ))]
async fn remove_volume(
    changer: Changer,
    Path(name): Path<String>,
    Query(RemovalQuery { force, content, snapshots, dry_run }): Query<RemovalQuery>,
) -> Result<Made, Problem> {
    let request = match content {
        ContentFate::Delete => Request::DeleteVolume { name, force, snapshots },
        ContentFate::Keep if snapshots => {
            return Err(Problem::invalid("snapshots: they are deleted with the content only: give content=delete"));
        }
        ContentFate::Keep => Request::RemoveVolume { name, force },
    };
    changer.change(request, dry_run).await
}

/// Take the medium out of a drive or a removable volume
#[utoipa::path(post, path = "/volumes/{volume}/eject", tag = "volumes",
    params(
        ("volume" = String, Path, description = "Its name."),
        ("If-Match" = Option<String>, Header, description = "Only if the volume still has this ETag."),
        ChangeQuery,
    ),
    responses((status = 200, description = "It is out.", body = Changed), (status = 202, description = "It goes on as a job.", body = JobStatus)))]
async fn eject_volume(
    changer: Changer,
    Path(name): Path<String>,
    Query(ChangeQuery { force, dry_run }): Query<ChangeQuery>,
) -> Result<Made, Problem> {
    changer.change(Request::EjectVolume { name, force }, dry_run).await
}

/// Put the medium back, or another disc into a drive
#[utoipa::path(post, path = "/volumes/{volume}/load", tag = "volumes", request_body = Disc,
    params(
        ("volume" = String, Path, description = "Its name."),
        ("If-Match" = Option<String>, Header, description = "Only if the volume still has this ETag."),
        DryRunQuery,
    ),
    responses((status = 200, description = "It is in.", body = Changed), (status = 202, description = "It goes on as a job.", body = JobStatus)))]
async fn load_volume(
    changer: Changer,
    Path(name): Path<String>,
    Query(DryRunQuery { dry_run }): Query<DryRunQuery>,
    Json(Disc { store }): Json<Disc>,
) -> Result<Made, Problem> {
    changer.change(Request::LoadVolume { name, store }, dry_run).await
}

fn find(answer: Answer, name: &str) -> Result<Option<VolumeStatus>, Problem> {
    Ok(status(answer)?.volumes.into_iter().find(|volume| volume.name == name))
}

fn one_change() -> Problem {
    Problem::invalid("give one of size, security, lun, protected and owners")
}

fn unknown() -> Problem {
    Problem::new("volume-unknown", "no volume of this name is served")
}
