//! The copies of volumes that have several: arrays. And copies of volumes to other servers.

use std::sync::Arc;

use sanwire_server::{ArrayGrowth, CopyOrder, JobStatus, MemberReplacement, Request};
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{Changed, Changer, DryRunQuery, Made};
use crate::app::App;
use crate::extract::{Json, Path, Query};
use crate::problem::Problem;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    let router = OpenApiRouter::new().routes(routes!(scrub_volume)).routes(routes!(replace_member));
    router.routes(routes!(grow_array)).routes(routes!(copy_volume))
}

/// What is to be a member.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewMember {
    /// Its store, as that of a volume: empty, and long enough.
    store: String,
}

/// Compare the copies of an array
///
/// What differs is made the same, beside all else that is done with the volume. It takes long: it goes on as a job.
#[utoipa::path(post, path = "/volumes/{volume}/scrub", tag = "volumes",
    params(
        ("volume" = String, Path, description = "Its name."),
        ("If-Match" = Option<String>, Header, description = "Only if the volume still has this ETag."),
        DryRunQuery,
    ),
    responses((status = 200, description = "They were compared.", body = Changed), (status = 202, description = "It goes on as a job.", body = JobStatus)))]
async fn scrub_volume(
    changer: Changer,
    Path(name): Path<String>,
    Query(DryRunQuery { dry_run }): Query<DryRunQuery>,
) -> Result<Made, Problem> {
    changer.change(Request::ScrubVolume { name }, dry_run).await
}

/// Have another store take the place of a member of an array
///
/// The member is gone: one that is there is not replaced. What the new one lacks is copied afterwards. It takes the role administrator: it
/// may name a path of the host.
#[utoipa::path(put, path = "/volumes/{volume}/members/{member}", tag = "volumes", request_body = NewMember,
    params(
        ("volume" = String, Path, description = "Its name."),
        ("member" = u16, Path, minimum = 1, maximum = 65535, description = "Which member, from 1 on."),
        ("If-Match" = Option<String>, Header, description = "Only if the volume still has this ETag."),
        DryRunQuery,
    ),
    responses((status = 200, description = "It is a member.", body = Changed), (status = 202, description = "It goes on as a job.", body = JobStatus)))]
async fn replace_member(
    changer: Changer,
    Path((name, member)): Path<(String, u16)>,
    Query(DryRunQuery { dry_run }): Query<DryRunQuery>,
    Json(NewMember { store }): Json<NewMember>,
) -> Result<Made, Problem> {
    let request = Request::ReplaceMember(MemberReplacement { name, member: usize::from(member), store });
    changer.change(request, dry_run).await
}

/// What comes behind the members of an array.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewMembers {
    /// Their stores, as those of volumes: empty; of copies as many as hold the same, or a multiple of that.
    #[serde(default)]
    add: Vec<String>,
}

/// Have an array take all that its members have room for
///
/// That is after they have become longer, and beside all else that is done with the volume. Of an array whose parts stand one behind the
/// other, other stores come behind the members: that takes the role administrator, for it may name paths of the host. Where copies are made
/// the same first it takes long, and goes on as a job.
#[utoipa::path(post, path = "/volumes/{volume}/grow", tag = "volumes", request_body = NewMembers,
    params(
        ("volume" = String, Path, description = "Its name."),
        ("If-Match" = Option<String>, Header, description = "Only if the volume still has this ETag."),
        DryRunQuery,
    ),
    responses((status = 200, description = "It is longer.", body = Changed), (status = 202, description = "It goes on as a job.", body = JobStatus)))]
async fn grow_array(
    changer: Changer,
    Path(name): Path<String>,
    Query(DryRunQuery { dry_run }): Query<DryRunQuery>,
    Json(NewMembers { add }): Json<NewMembers>,
) -> Result<Made, Problem> {
    changer.change(Request::GrowArray(ArrayGrowth { name, add }), dry_run).await
}

/// Copy a volume straight to one of another server
///
/// The other volume takes this server for a client that may write there, as one does that was derived for it. It goes on as a job, as long as
/// somebody asks about that at least every two minutes. It takes the role administrator: it has the server connect to another one.
#[utoipa::path(post, path = "/volumes/{volume}/copies", tag = "volumes", request_body = CopyOrder,
    params(("volume" = String, Path, description = "Its name.")),
    responses((status = 200, description = "It was copied.", body = Changed), (status = 202, description = "It goes on as a job.", body = JobStatus)))]
async fn copy_volume(
    changer: Changer,
    Path(volume): Path<String>,
    Json(order): Json<CopyOrder>,
) -> Result<Made, Problem> {
    if !order.volume.is_empty() && order.volume != volume {
        return Err(Problem::invalid("volume: it is that of the path, and need not be said"));
    }
    changer.change(Request::CopyOut(CopyOrder { volume, ..order }), false).await
}
