//! The description of the API.

use sanwire_server::Event;
use serde_json::{Value, json};
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
    components(schemas(WrittenProblem, Event, Gap)),
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
    let mut document = serde_json::to_value(&openapi)?;
    let parameters = operations_of(&mut document).flat_map(|(path, operation)| {
        let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut).into_iter().flatten();
        parameters.map(move |parameter| (path.clone(), parameter))
    });
    parameters.for_each(|(path, parameter)| narrow(&path, parameter));
    // The type of a list does not say what is in it.
    let tags = &mut document["components"]["schemas"]["TargetSettings"]["properties"]["portal_groups"]["items"];
    *tags = json!({ "type": "integer", "format": "int32", "minimum": 1, "maximum": 65535 });
    let mut document = serde_json::to_vec_pretty(&document)?;
    document.push(b'\n');
    Ok(document)
}

/// All operations, with their paths.
fn operations_of(document: &mut Value) -> impl Iterator<Item = (String, &mut Value)> {
    let paths = document["paths"].as_object_mut().into_iter().flatten();
    paths.flat_map(|(path, item)| {
        let operations = item.as_object_mut().into_iter().flatten();
        operations.map(move |(_, operation)| (path.clone(), operation))
    })
}

/// A moment of RFC 3339, in UTC.
const MOMENT: &str =
    "^(19[7-9][0-9]|2[0-9]{3})-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z$";

/// Says of a parameter what its type does not: none is null, and some are texts of one form.
fn narrow(path: &str, parameter: &mut Value) {
    let pattern = match (parameter["name"].as_str(), path) {
        // Lists that are in the order of numbers.
        (Some("after"), "/api/v1/volumes" | "/api/v1/dvds" | "/api/v1/volumes/{volume}/dvds") => Some("^[0-9]{1,9}$"),
        (Some("after"), "/api/v1/jobs") => Some("^[0-9]{1,19}$"),
        (Some("from"), "/api/v1/audit") => Some(MOMENT),
        _ => None,
    };
    let is_condition = parameter["name"] == "If-Match";
    let Some(schema) = parameter.get_mut("schema") else { return };
    if is_condition {
        let tag = json!({ "type": "string", "pattern": "^\"[0-9]{1,19}\"$", "minLength": 3, "maxLength": 21 });
        *schema = json!({ "anyOf": [{ "const": "*" }, tag] });
        return;
    }
    if let Some(types) = schema.get("type").and_then(Value::as_array) {
        let types: Vec<&Value> = types.iter().filter(|word| *word != "null").collect();
        schema["type"] = match &*types {
            [only] => (*only).clone(),
            several => several.iter().copied().cloned().collect(),
        };
    }
    if let Some(pattern) = pattern {
        schema["pattern"] = pattern.into();
        schema["minLength"] = 1.into();
    }
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
