//! The server as a whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::Response;
use sanwire_server::{
    AccessChange, Answer, Collections, ConfigurationStatus, Deviation, GroupStatus, JobStatus, MissingStatus,
    PortState, Request, Status,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{Changed, Changer, DryRunQuery, Made, Tagged, check_revision, status, unexpected};
use crate::app::App;
use crate::caller::Caller;
use crate::extract::{Json, Path, Query};
use crate::management::{Outcome, Terms};
use crate::problem::Problem;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(server))
        .routes(routes!(configuration))
        .routes(routes!(configuration_file))
        .routes(routes!(difference))
        .routes(routes!(reload))
        .routes(routes!(set_group))
}

/// The server.
#[derive(Serialize, ToSchema)]
struct Server {
    /// What clients call it.
    name: String,
    /// The version of the program.
    version: String,
    /// When it was started, as in RFC 3339.
    started: String,
    /// For how long it has run.
    uptime_seconds: u64,
    /// Rises with each change of what an administrator can change.
    revision: u64,
    /// The same of all resources of each type.
    collections: Collections,
    /// Where it listens.
    wires: Vec<String>,
    /// By raw Ethernet wires: by which socket of the kernel their packets come, and who copies them.
    receive_paths: BTreeMap<String, String>,
    /// How many volumes it serves.
    volumes: usize,
    /// How many iSCSI targets it has.
    targets: usize,
    /// The port groups through which HyperSCSI clients reach the volumes.
    groups: Vec<GroupStatus>,
    /// Volumes that should be served and could not be opened.
    missing: Vec<MissingStatus>,
}

/// What differs from the configuration.
#[derive(Serialize, ToSchema)]
struct Difference {
    /// What was changed while the server ran.
    deviations: Vec<Deviation>,
    /// What a reload would change, a line for each thing, for people.
    reload: Vec<String>,
}

/// How the configuration is read again.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Reload {
    /// Do it also when it takes volumes away from sessions that use them.
    #[serde(default)]
    force: bool,
    /// Forget what was changed while the server ran.
    #[serde(default)]
    reset: bool,
}

/// The server
#[utoipa::path(get, path = "/server", tag = "server", responses((status = 200, description = "The server as it is now.", body = Server)))]
async fn server(State(app): State<Arc<App>>, caller: Caller) -> Result<Response, Problem> {
    app.show(&caller, Request::Status, |answer| status(answer).map(Server::from).map(axum::Json)).await
}

impl From<Status> for Server {
    fn from(status: Status) -> Self {
        // Not everything in it has a revision.
        Server {
            name: status.name,
            version: status.run.version,
            started: status.run.started,
            uptime_seconds: status.run.uptime_seconds,
            revision: status.revision,
            collections: status.collections,
            wires: status.wires,
            receive_paths: status.run.receive_paths,
            volumes: status.volumes.len(),
            targets: status.targets.len(),
            groups: status.groups,
            missing: status.missing,
        }
    }
}

/// The configuration
///
/// What file and command line say, and what was changed while the server ran. No secret is told. Its ETag is the revision of the server.
#[utoipa::path(get, path = "/server/configuration", tag = "server", responses((status = 200, description = "What is configured.", body = ConfigurationStatus)))]
async fn configuration(State(app): State<Arc<App>>, caller: Caller) -> Result<Response, Problem> {
    let tell = |answer| match answer {
        Answer::Configuration(configuration) => Ok(Tagged(configuration.revision, *configuration)),
        _ => Err(unexpected()),
    };
    app.show(&caller, Request::Configuration, tell).await
}

/// What is served now as a configuration file
///
/// The tables `[[volume]]`, `[[target]]` and `[[client]]` of one, in TOML. In the place of secrets it says which are to be named.
#[utoipa::path(get, path = "/server/configuration/file", tag = "server", responses((status = 200, description = "The tables.", body = String, content_type = "application/toml")))]
async fn configuration_file(State(app): State<Arc<App>>, caller: Caller) -> Result<Response, Problem> {
    let tell = |answer| match answer {
        Answer::ConfigurationFile(tables) => Ok(([(header::CONTENT_TYPE, "application/toml")], tables.join("\n"))),
        _ => Err(unexpected()),
    };
    app.show(&caller, Request::ConfigurationFile, tell).await
}

/// What differs from the configuration
#[utoipa::path(get, path = "/server/configuration/difference", tag = "server", responses((status = 200, description = "What differs.", body = Difference)))]
async fn difference(State(app): State<Arc<App>>, caller: Caller) -> Result<Response, Problem> {
    let tell = |answer| status(answer).map(|status| (status.revision, status.deviations));
    let (revision, deviations) = app.look(&caller, Request::Status, tell).await?;
    let tell = move |answer| Ok(Tagged(revision, Difference { deviations, reload: changed(answer)? }));
    app.show(&caller, Request::Reload { force: false, dry_run: true, reset: false }, tell).await
}

/// Read the configuration again
#[utoipa::path(post, path = "/server/reload", tag = "server", params(DryRunQuery, ("If-Match" = Option<String>, Header, description = "Only if the server still has this ETag.")), request_body = Reload, responses(
    (status = 200, description = "It was read.", body = Changed),
    (status = 202, description = "It goes on as a job.", body = JobStatus),
))]
async fn reload(
    State(app): State<Arc<App>>,
    caller: Caller,
    terms: Terms,
    Query(query): Query<DryRunQuery>,
    Json(Reload { force, reset }): Json<Reload>,
) -> Result<Made, Problem> {
    let request = Request::Reload { force, dry_run: query.dry_run, reset };
    if !query.dry_run {
        return app.change(&caller, request, terms).await.map(Made::changed);
    }
    if terms.revision.is_some() {
        let now = app.look(&caller, Request::Status, |answer| Ok(status(answer)?.revision)).await?;
        check_revision(&terms, now, "the server")?;
    }
    app.look(&caller, request, |answer| Ok(Made::changed(Outcome::Changed(changed(answer)?)))).await
}

fn changed(answer: Answer) -> Result<Vec<String>, Problem> {
    match answer {
        Answer::Changed(lines) => Ok(lines),
        _ => Err(unexpected()),
    }
}

/// The state of ports.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AccessState {
    /// How they reach their units.
    pub(super) state: PortState,
}

/// Set the ALUA access state of a port group
///
/// Initiators of all targets that are reached through it are told.
#[utoipa::path(put, path = "/groups/{group}", tag = "targets", params(
    ("group" = u16, Path, maximum = 65535, description = "The portal group's tag."),
    ("If-Match" = Option<String>, Header, description = "Only if the server still has this revision, in quotes."),
    DryRunQuery,
), request_body = AccessState, responses(
    (status = 200, description = "It was done.", body = Changed),
    (status = 202, description = "It goes on as a job.", body = JobStatus),
))]
async fn set_group(
    changer: Changer,
    Path(group): Path<u16>,
    Query(DryRunQuery { dry_run }): Query<DryRunQuery>,
    Json(AccessState { state }): Json<AccessState>,
) -> Result<Made, Problem> {
    let request = Request::SetAccessState(AccessChange { group, state, target: None });
    changer.change(request, dry_run).await
}
