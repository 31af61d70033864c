//! The description of the API.

use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{ContentBuilder, OpenApi, PathItem, Ref, ResponseBuilder};
use utoipa::{Modify, OpenApi as _};

use crate::app;
use crate::problem::WrittenProblem;
use crate::routes::Gap;

#[derive(utoipa::OpenApi)]
#[openapi(
    info(title = "Sanwire", description = "Managing a running Sanwire server.", license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")),
    servers((url = "/", description = "This server.")),
    components(schemas(WrittenProblem, Gap)),
    security(("token" = []), ("session" = [])),
    tags(
        (name = "server", description = "The server as a whole."),
        (name = "volumes", description = "What is served."),
        (name = "snapshots", description = "What volumes held at a moment."),
        (name = "pools", description = "Where volumes are that name no path."),
        (name = "targets", description = "iSCSI targets, their units and portal groups."),
        (name = "clients", description = "Who is served."),
        (name = "sessions", description = "Who is connected."),
        (name = "jobs", description = "Changes that take long."),
        (name = "accounts", description = "Who may use this API."),
        (name = "monitoring", description = "Numbers and events."),
    ),
    modifiers(&Security),
)]
struct Base;

struct Security;

impl Modify for Security {
    fn modify(&self, openapi: &mut OpenApi) {
        let token = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        let session = SecurityScheme::ApiKey(ApiKey::Cookie(ApiKeyValue::new("sanwire")));
        let components = openapi.components.get_or_insert_default();
        components.add_security_scheme("token", token);
        components.add_security_scheme("session", session);
    }
}

/// What stands beside the resources.
pub(crate) fn base() -> OpenApi {
    Base::openapi()
}

/// All of it, as JSON.
///
/// # Errors
/// Never, in fact.
pub(crate) fn document() -> Result<Vec<u8>, serde_json::Error> {
    let (_, mut openapi) = app::api().split_for_parts();
    openapi.paths.paths.values_mut().flat_map(operations).for_each(add_problems);
    let mut document = serde_json::to_vec_pretty(&openapi)?;
    document.push(b'\n');
    Ok(document)
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let PathItem { get, put, post, delete, patch, .. } = item;
    [get, put, post, delete, patch].into_iter().flatten()
}

/// What every operation may be answered.
fn add_problems(operation: &mut Operation) {
    for (range, description) in [
        ("4XX", "The request was refused: the problem says why."),
        ("5XX", "The server could not do it: the problem says why."),
    ] {
        let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
        let response =
            ResponseBuilder::new().description(description).content("application/problem+json", content).build();
        operation.responses.responses.insert(range.to_owned(), response.into());
    }
}
