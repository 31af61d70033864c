//! The resources: each handler makes a request for the server's management.

mod accounts;
mod audit;
mod clients;
mod copies;
mod dvds;
mod events;
pub(crate) use events::Gap;
pub(crate) mod first_page;
pub(crate) mod health;
mod jobs;
mod links;
mod new_volume;
mod pools;
mod reservations;
mod server;
mod session;
mod sessions;
mod snapshots;
mod statistics;
mod support_bundle;
mod targets;
mod tokens;
mod using;
mod volumes;

use std::sync::Arc;

use axum::Json;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use sanwire_server::{Answer, JobStatus, Request, Status};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;

use crate::app::App;
use crate::caller::Caller;
use crate::management::{Outcome, Terms};
use crate::problem::Problem;

/// What is below `/api/v1`.
pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    health::document_router()
        .merge(server::router())
        .merge(links::router())
        .merge(volumes::router())
        .merge(copies::router())
        .merge(dvds::router())
        .merge(reservations::router())
        .merge(using::router())
        .merge(snapshots::router())
        .merge(pools::router())
        .merge(targets::router())
        .merge(clients::router())
        .merge(sessions::router())
        .merge(statistics::router())
        .merge(support_bundle::router())
        .merge(jobs::router())
        .merge(events::router())
        .merge(audit::router())
        .merge(accounts::router())
        .merge(tokens::router())
        .merge(session::router())
}

/// What has changed.
#[derive(Serialize, ToSchema)]
pub(crate) struct Changed {
    /// One line for each thing, for people.
    changed: Vec<String>,
}

/// How something is changed.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[into_params(parameter_in = Query)]
pub(crate) struct ChangeQuery {
    /// Do it also while sessions use it, or when it takes from them what they use.
    #[serde(default)]
    force: bool,
    /// Only tell what it would do, or why it would be refused.
    #[serde(default)]
    dry_run: bool,
}

/// Whether it is only told what would be done.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[into_params(parameter_in = Query)]
pub(crate) struct DryRunQuery {
    /// Only tell what it would do, or why it would be refused.
    #[serde(default)]
    dry_run: bool,
}

/// Somebody who changes something, and on which terms.
pub(crate) struct Changer {
    app: Arc<App>,
    caller: Caller,
    terms: Terms,
}

impl FromRequestParts<Arc<App>> for Changer {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let caller = Caller::from_request_parts(parts, app).await?;
        let terms = Terms::from_request_parts(parts, app).await?;
        Ok(Changer { app: Arc::clone(app), caller, terms })
    }
}

impl Changer {
    /// Has the server do it, or only tell what it would do.
    async fn change(self, request: Request, dry_run: bool) -> Result<Made, Problem> {
        self.app.change(&self.caller, rehearsed(request, dry_run), self.terms).await.map(Made::changed)
    }

    /// The same of what makes a resource of this name in a collection.
    async fn create(self, request: Request, dry_run: bool, collection: &str, name: &str) -> Result<Made, Problem> {
        let made = self.change(request, dry_run).await?;
        Ok(if dry_run { made } else { Made::resource(made.outcome, collection, name) })
    }
}

/// The request, or that to tell only what it would do.
fn rehearsed(request: Request, dry_run: bool) -> Request {
    if dry_run { Request::DryRun { request: Box::new(request) } } else { request }
}

/// Refuses what is to be done only if something still has the revision that the client has seen.
fn check_revision(terms: &Terms, now: u64, what: &str) -> Result<(), Problem> {
    match terms.revision.filter(|revision| *revision != now) {
        None => Ok(()),
        Some(_) => Err(Problem::new(
            "revision-stale",
            format!("{what} was changed since it had this ETag: look at it again, and decide anew"),
        )),
    }
}

/// A resource with its revision as its ETag.
pub(crate) struct Tagged<T>(pub(crate) u64, pub(crate) T);

impl<T: Serialize> IntoResponse for Tagged<T> {
    fn into_response(self) -> Response {
        let Tagged(revision, resource) = self;
        let mut response = Json(resource).into_response();
        if let Ok(tag) = HeaderValue::try_from(format!("\"{revision}\"")) {
            response.headers_mut().insert(header::ETAG, tag);
        }
        response
    }
}

/// The answer to a change.
pub(crate) struct Made {
    outcome: Outcome,
    /// Where the new resource is, if it makes one.
    location: Option<String>,
}

impl Made {
    pub(crate) fn changed(outcome: Outcome) -> Self {
        Made { outcome, location: None }
    }

    /// A resource of this name in a collection.
    pub(crate) fn resource(outcome: Outcome, collection: &str, name: &str) -> Self {
        Made { outcome, location: Some(format!("/api/v1/{collection}/{}", in_path(name))) }
    }
}

impl IntoResponse for Made {
    fn into_response(self) -> Response {
        let (mut response, location) = match self.outcome {
            Outcome::Changed(changed) => {
                let status = if self.location.is_some() { StatusCode::CREATED } else { StatusCode::OK };
                ((status, Json(Changed { changed })).into_response(), self.location)
            }
            Outcome::Running(job) => {
                let location = format!("/api/v1/jobs/{}", job.id);
                ((StatusCode::ACCEPTED, Json::<JobStatus>(*job)).into_response(), Some(location))
            }
        };
        if let Some(location) = location.and_then(|location| HeaderValue::try_from(location).ok()) {
            response.headers_mut().insert(header::LOCATION, location);
        }
        response
    }
}

/// A name as a part of a path.
fn in_path(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte);
    let escaped = |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    name.bytes().map(escaped).collect()
}

impl App {
    /// Asks the server in the name of a caller, and answers with what is made of that.
    async fn show<T: IntoResponse>(
        &self,
        caller: &Caller,
        request: Request,
        tell: impl FnOnce(Answer) -> Result<T, Problem> + Send + 'static,
    ) -> Result<Response, Problem> {
        self.look(caller, request, move |answer| tell(answer).map(T::into_response)).await
    }
}

/// The server as it is now.
fn status(answer: Answer) -> Result<Status, Problem> {
    match answer {
        Answer::Status(status) => Ok(status),
        _ => Err(unexpected()),
    }
}

fn unexpected() -> Problem {
    Problem::defect("the answer is another one than was asked for")
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_name_in_a_path_is_escaped() {
        assert_eq!(super::in_path("iqn.2026-11.org.sanwire:disk1"), "iqn.2026-11.org.sanwire:disk1");
        assert_eq!(super::in_path("a/b?c ü"), "a%2Fb%3Fc%20%C3%BC");
    }
}
