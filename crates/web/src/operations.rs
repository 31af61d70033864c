//! What each operation reads of a request, by the API's own description: what it does not read is refused, since it was meant to count.
//! So are the conditions of a change, which would be made whether they hold or not.

use std::collections::{BTreeMap, BTreeSet};

use axum::body::{Body, HttpBody};
use axum::extract::MatchedPath;
use axum::http::{HeaderName, Method, Request, header};
use serde_json::Value;

use crate::problem::Problem;

/// What is read beside the path and the headers that every operation reads.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Query,
    Body,
    /// A revision that what is changed must still have.
    Condition,
}

/// The other conditions of HTTP, which nothing here reads.
const UNREAD: [HeaderName; 3] = [header::IF_NONE_MATCH, header::IF_MODIFIED_SINCE, header::IF_UNMODIFIED_SINCE];

/// The parts that are read, by path and method.
pub(crate) struct Operations(BTreeMap<String, BTreeMap<String, BTreeSet<Part>>>);

impl Operations {
    /// Those of a description.
    pub(crate) fn of(document: &Value) -> Self {
        let paths = document["paths"].as_object().into_iter().flatten();
        let methods = |methods: &Value| {
            let methods = methods.as_object().into_iter().flatten();
            methods.map(|(method, operation)| (method.to_ascii_uppercase(), parts(operation))).collect()
        };
        Operations(paths.map(|(path, operations)| (path.clone(), methods(operations))).collect())
    }

    /// # Errors
    /// A problem when the request has what nobody would read.
    pub(crate) fn check(&self, request: &Request<Body>) -> Result<(), Problem> {
        let method = if *request.method() == Method::HEAD { &Method::GET } else { request.method() };
        let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
        let Some(parts) = path.and_then(|path| self.0.get(path)).and_then(|methods| methods.get(method.as_str()))
        else {
            // It leads nowhere, which is what its client is told.
            return Ok(());
        };
        let has_query = request.uri().query().is_some_and(|query| !query.is_empty());
        if has_query && !parts.contains(&Part::Query) {
            return Err(Problem::invalid("the query: this takes no parameters"));
        }
        if request.body().size_hint().lower() > 0 && !parts.contains(&Part::Body) {
            return Err(Problem::invalid("the body: this takes none"));
        }
        if *method == Method::GET {
            // Whoever looks is told what is there now, on whatever condition.
            return Ok(());
        }
        if request.headers().contains_key(header::IF_MATCH) && !parts.contains(&Part::Condition) {
            return Err(Problem::invalid("If-Match: this takes no condition"));
        }
        match UNREAD.iter().find(|name| request.headers().contains_key(*name)) {
            Some(name) => Err(Problem::invalid(format!("{name}: changes take If-Match as a condition, and no other"))),
            None => Ok(()),
        }
    }
}

fn parts(operation: &Value) -> BTreeSet<Part> {
    let parameters = || operation["parameters"].as_array().into_iter().flatten();
    let has_query = parameters().any(|parameter| parameter["in"] == "query");
    let has_condition = parameters().any(|parameter| parameter["in"] == "header" && parameter["name"] == "If-Match");
    let has_body = !operation["requestBody"].is_null();
    let parts = [(Part::Query, has_query), (Part::Body, has_body), (Part::Condition, has_condition)];
    parts.into_iter().filter(|(_, is_there)| *is_there).map(|(part, _)| part).collect()
}
