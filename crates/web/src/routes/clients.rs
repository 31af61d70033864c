//! The HyperSCSI clients that are known by their ids, and what holds of every client's sessions.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use sanwire_server::{Answer, ClientSettings, ClientStatus, JobStatus, Request};
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{ChangeQuery, Changed, Changer, DryRunQuery, Made, Tagged, unexpected};
use crate::app::App;
use crate::caller::Caller;
use crate::extract::{Json, Path, Query};
use crate::page::{Page, PageQuery};
use crate::problem::Problem;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list_clients, add_client))
        .routes(routes!(client, change_client, remove_client))
        .routes(routes!(reset_client))
        .routes(routes!(pause_client))
        .routes(routes!(resume_client))
        .routes(routes!(drop_client))
}

/// A new client.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewClient {
    /// Its id, as `sanwire id` prints it on its host.
    id: String,
    /// What it may do; by default, use all volumes.
    #[serde(default)]
    settings: ClientSettings,
}

/// The HyperSCSI clients that are known by their ids
///
/// The ETag of a client is its revision.
#[utoipa::path(get, path = "/clients", tag = "clients", params(PageQuery), responses((status = 200, description = "The clients.", body = Page<ClientStatus>)))]
async fn list_clients(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(query): Query<PageQuery>,
) -> Result<Response, Problem> {
    let tell = |answer| Ok(axum::Json(query.cut(clients(answer)?, |client| client.client.id.to_string())?));
    app.show(&caller, Request::Clients, tell).await
}

/// Serve one more client
///
/// From wherever it comes; also one that was removed. One that may manage the server takes the role administrator.
#[utoipa::path(post, path = "/clients", tag = "clients", request_body = NewClient,
    params(("If-Match" = Option<String>, Header, description = "Only if `collections.clients` of the server is still this, in quotes."), ChangeQuery),
    responses((status = 200, description = "It was only told.", body = Changed), (status = 201, description = "It is served.", body = Changed), (status = 202, description = "It goes on as a job.", body = JobStatus)))]
async fn add_client(
    changer: Changer,
    Query(ChangeQuery { force, dry_run }): Query<ChangeQuery>,
    Json(NewClient { id, settings }): Json<NewClient>,
) -> Result<Made, Problem> {
    let request = Request::AddClient { id: id.clone(), settings, force };
    changer.create(request, dry_run, "clients", &id).await
}

/// A client
#[utoipa::path(get, path = "/clients/{client}", tag = "clients", params(("client" = String, Path, description = "Its id or name.")), responses((status = 200, description = "The client.", body = ClientStatus)))]
async fn client(State(app): State<Arc<App>>, caller: Caller, Path(name): Path<String>) -> Result<Response, Problem> {
    let find = move |answer| {
        let mut clients = clients(answer)?.into_iter();
        let client = clients.find(|client| client.client.name == name || client.client.id.to_string() == name);
        let client = client.ok_or_else(|| Problem::new("client-unknown", "no client of this id or name is known"))?;
        Ok(Tagged(client.revision, client))
    };
    app.show(&caller, Request::Clients, find).await
}

/// Change what a client may do
///
/// What is not said stays as it is.
#[utoipa::path(patch, path = "/clients/{client}", tag = "clients", request_body = ClientSettings,
    params(
        ("client" = String, Path, description = "Its id or name."),
        ("If-Match" = Option<String>, Header, description = "Only if the client still has this ETag."),
        ChangeQuery,
    ),
    responses((status = 200, description = "It was changed.", body = Changed), (status = 202, description = "It goes on as a job.", body = JobStatus)))]
async fn change_client(
    changer: Changer,
    Path(client): Path<String>,
    Query(ChangeQuery { force, dry_run }): Query<ChangeQuery>,
    Json(settings): Json<ClientSettings>,
) -> Result<Made, Problem> {
    let request = Request::SetClient { client, settings, force };
    changer.change(request, dry_run).await
}

/// Serve a client no longer
///
/// Whatever else would permit it, until it is added again.
#[utoipa::path(delete, path = "/clients/{client}", tag = "clients",
    params(
        ("client" = String, Path, description = "Its id or name."),
        ("If-Match" = Option<String>, Header, description = "Only if the client still has this ETag."),
        ChangeQuery,
    ),
    responses((status = 200, description = "It is not served any more.", body = Changed), (status = 202, description = "It goes on as a job.", body = JobStatus)))]
async fn remove_client(
    changer: Changer,
    Path(client): Path<String>,
    Query(ChangeQuery { force, dry_run }): Query<ChangeQuery>,
) -> Result<Made, Problem> {
    let request = Request::RemoveClient { client, force };
    changer.change(request, dry_run).await
}

/// Discard runtime changes to a client and use its configured settings
#[utoipa::path(post, path = "/clients/{client}/reset", tag = "clients",
    params(
        ("client" = String, Path, description = "Its id or name."),
        ("If-Match" = Option<String>, Header, description = "Only if the client still has this ETag."),
        ChangeQuery,
    ),
    responses((status = 200, description = "The configuration holds again.", body = Changed), (status = 202, description = "It goes on as a job.", body = JobStatus)))]
async fn reset_client(
    changer: Changer,
    Path(client): Path<String>,
    Query(ChangeQuery { force, dry_run }): Query<ChangeQuery>,
) -> Result<Made, Problem> {
    let request = Request::ResetClient { client, force };
    changer.change(request, dry_run).await
}

/// Let a client or an iSCSI initiator wait
///
/// It stays connected, and its commands are not begun until it is resumed.
#[utoipa::path(post, path = "/clients/{client}/pause", tag = "clients",
    params(
        ("client" = String, Path, description = "Its id or name, or the name of an iSCSI initiator."),
        ("If-Match" = Option<String>, Header, description = "Only if the sessions of this client still have this ETag."),
        DryRunQuery,
    ),
    responses((status = 200, description = "It waits.", body = Changed), (status = 202, description = "It goes on as a job.", body = JobStatus)))]
async fn pause_client(
    changer: Changer,
    Path(client): Path<String>,
    Query(DryRunQuery { dry_run }): Query<DryRunQuery>,
) -> Result<Made, Problem> {
    changer.change(Request::PauseClient { client }, dry_run).await
}

/// Let a client or an iSCSI initiator go on
#[utoipa::path(post, path = "/clients/{client}/resume", tag = "clients",
    params(
        ("client" = String, Path, description = "Its id or name, or the name of an iSCSI initiator."),
        ("If-Match" = Option<String>, Header, description = "Only if the sessions of this client still have this ETag."),
        DryRunQuery,
    ),
    responses((status = 200, description = "It goes on.", body = Changed), (status = 202, description = "It goes on as a job.", body = JobStatus)))]
async fn resume_client(
    changer: Changer,
    Path(client): Path<String>,
    Query(DryRunQuery { dry_run }): Query<DryRunQuery>,
) -> Result<Made, Problem> {
    changer.change(Request::ResumeClient { client }, dry_run).await
}

/// End the sessions of a client or an iSCSI initiator
///
/// It may come again.
#[utoipa::path(post, path = "/clients/{client}/drop", tag = "clients",
    params(
        ("client" = String, Path, description = "Its id or name, or the name of an iSCSI initiator."),
        ("If-Match" = Option<String>, Header, description = "Only if the sessions of this client still have this ETag."),
        DryRunQuery,
    ),
    responses((status = 200, description = "They have ended.", body = Changed), (status = 202, description = "It goes on as a job.", body = JobStatus)))]
async fn drop_client(
    changer: Changer,
    Path(client): Path<String>,
    Query(DryRunQuery { dry_run }): Query<DryRunQuery>,
) -> Result<Made, Problem> {
    changer.change(Request::DropClient { client }, dry_run).await
}

fn clients(answer: Answer) -> Result<Vec<ClientStatus>, Problem> {
    match answer {
        Answer::Clients(clients) => Ok(clients),
        _ => Err(unexpected()),
    }
}
