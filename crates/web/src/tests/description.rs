//! The description of the API: the committed one is the program's, and it keeps what it has promised.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

/// With this in the environment, the test writes the document.
const WRITE: &str = "SANWIRE_WRITE_OPENAPI";

fn keys(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn words(value: &Value) -> BTreeSet<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// What programs that know the one document may miss in the other.
fn broken(old: &Value, new: &Value) -> Vec<String> {
    let mut broken = Vec::new();
    for (path, methods) in keys(&old["paths"]) {
        for (method, operation) in keys(methods) {
            let (now, place) = (&new["paths"][path][method], format!("{method} {path}"));
            if now.is_null() {
                broken.push(format!("{place} is gone"));
            } else {
                of_operation(&place, operation, now, &mut broken);
            }
        }
    }
    for (name, schema) in keys(&old["components"]["schemas"]) {
        of_schema(name, schema, &new["components"]["schemas"][name], &mut broken);
    }
    broken
}

fn of_operation(place: &str, old: &Value, new: &Value, broken: &mut Vec<String>) {
    let names = |operation: &Value, is_needed: bool| -> BTreeSet<String> {
        let all = operation["parameters"].as_array().into_iter().flatten();
        let wanted = all.filter(|parameter| !is_needed || parameter["required"] == true);
        wanted.map(|parameter| format!("{} {}", parameter["in"], parameter["name"])).collect()
    };
    for name in names(old, false).difference(&names(new, false)) {
        broken.push(format!("{place}: the parameter {name} is gone"));
    }
    for name in names(new, true).difference(&names(old, true)) {
        broken.push(format!("{place}: the parameter {name} must be given now"));
    }
    for (status, _) in keys(&old["responses"]).filter(|(status, _)| new["responses"][*status].is_null()) {
        broken.push(format!("{place}: the response {status} is gone"));
    }
    if old["requestBody"].is_null() && new["requestBody"]["required"] == true {
        broken.push(format!("{place}: a body must be given now"));
    }
}

fn of_schema(place: &str, old: &Value, new: &Value, broken: &mut Vec<String>) {
    for (key, property) in keys(&old["properties"]) {
        of_schema(&format!("{place}.{key}"), property, &new["properties"][key], broken);
    }
    let was_type: BTreeSet<&str> = words(&old["type"]).into_iter().chain(old["type"].as_str()).collect();
    let is_type = words(&new["type"]).into_iter().chain(new["type"].as_str()).collect();
    if new.is_null() || !was_type.is_subset(&is_type) {
        broken.push(format!("{place} is gone, or something else"));
    }
    for word in words(&old["enum"]).difference(&words(&new["enum"])) {
        broken.push(format!("{place} is never {word:?} now"));
    }
    // What is asked refuses unknown fields; what is answered has none of that.
    let (was_needed, is_needed) = (words(&old["required"]), words(&new["required"]));
    let is_asked = old["additionalProperties"] == false;
    let differ: Vec<_> =
        if is_asked { is_needed.difference(&was_needed) } else { was_needed.difference(&is_needed) }.collect();
    for key in differ {
        let what = if is_asked { "must be given now" } else { "may be missing now" };
        broken.push(format!("{place}.{key} {what}"));
    }
}

#[test]
fn the_committed_description_is_that_of_the_program() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let own = String::from_utf8(crate::openapi::document().unwrap()).unwrap();
    let committed = fs::read_to_string(&path).unwrap_or_else(|_| "{}".into());
    let [old, new] = [&committed, &own].map(|text| serde_json::from_str::<Value>(text).unwrap());
    assert_eq!(broken(&old, &new), Vec::<String>::new(), "/api/v1 stays as it is: programs rely on it");
    if env::var_os(WRITE).is_some() {
        fs::write(&path, &own).unwrap();
    } else {
        assert!(committed == own, "docs/openapi.json is old: run this test with {WRITE}=1");
    }
}

/// A release leaves its description beside the one that is in the making, as `openapi-VERSION.json`.
#[test]
fn what_was_released_stays_as_it_is() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let new: Value = serde_json::from_slice(&crate::openapi::document().unwrap()).unwrap();
    let changes = fs::read_to_string(root.join("CHANGELOG.md")).unwrap();
    let releases = changes.lines().filter_map(|line| line.strip_prefix("## [")?.split_once(']').map(|(name, _)| name));
    for version in releases.filter(|name| *name != "Unreleased") {
        let path = root.join(format!("docs/openapi-{version}.json"));
        let released = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let old = serde_json::from_slice(&released).unwrap();
        assert_eq!(broken(&old, &new), Vec::<String>::new(), "programs rely on what {version} has promised");
    }
}

#[test]
fn each_resource_is_described_with_its_problems() {
    let document: Value = serde_json::from_slice(&crate::openapi::document().unwrap()).unwrap();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    for (path, methods) in keys(&document["paths"]) {
        for (method, operation) in keys(methods) {
            assert!(operation["summary"].is_string(), "{method} {path}");
            assert!(operation["responses"]["4XX"].is_object(), "{method} {path}");
        }
    }
}

#[test]
fn what_is_removed_or_narrowed_is_found() {
    let asked = |required: &[&str]| json!({ "type": "object", "additionalProperties": false, "required": required });
    let told = |required: &[&str]| json!({ "type": "object", "required": required, "properties": { "a": { "type": "string" } } });
    let document = |schemas: Value| {
        json!({
            "paths": { "/a": { "get": { "parameters": [{ "in": "query", "name": "x" }], "responses": { "200": {} } } } },
            "components": { "schemas": schemas },
        })
    };
    let old = document(
        json!({ "Asked": asked(&[]), "Told": told(&["a"]), "Word": { "type": "string", "enum": ["x", "y"] } }),
    );
    assert_eq!(broken(&old, &old), Vec::<String>::new());
    let new = document(
        json!({ "Asked": asked(&["b"]), "Told": told(&[]), "Word": { "type": "string", "enum": ["x", "z"] } }),
    );
    assert_eq!(
        broken(&old, &new),
        ["Asked.b must be given now", "Told.a may be missing now", "Word is never \"y\" now"]
    );
    let mut gone = old.clone();
    gone["paths"]["/a"]["get"] =
        json!({ "parameters": [{ "in": "query", "name": "y", "required": true }], "responses": { "204": {} } });
    gone["components"]["schemas"]["Told"]["properties"]["a"]["type"] = json!("integer");
    assert_eq!(
        broken(&old, &gone),
        [
            "get /a: the parameter \"query\" \"x\" is gone",
            "get /a: the parameter \"query\" \"y\" must be given now",
            "get /a: the response 200 is gone",
            "Told.a is gone, or something else",
        ]
    );
    assert!(broken(&old, &json!({})).contains(&"get /a is gone".to_owned()));
}
