//! What a client is told when nothing is done: `application/problem+json` (RFC 9457) with the code of the refusal.

use std::borrow::Cow;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use sanwire_server::Refusal;
use serde::Serialize;
use utoipa::ToSchema;

/// The HTTP status of each code of a refusal.
const STATUSES: &[(&str, StatusCode)] = &[
    ("answer-too-long", StatusCode::INTERNAL_SERVER_ERROR),
    ("audit-failed", StatusCode::INTERNAL_SERVER_ERROR),
    ("audit-unknown", StatusCode::NOT_FOUND),
    ("busy", StatusCode::SERVICE_UNAVAILABLE),
    ("client-ambiguous", StatusCode::CONFLICT),
    ("client-exists", StatusCode::CONFLICT),
    ("client-invalid", StatusCode::UNPROCESSABLE_ENTITY),
    ("client-unknown", StatusCode::NOT_FOUND),
    ("configuration-invalid", StatusCode::UNPROCESSABLE_ENTITY),
    ("content-exists", StatusCode::CONFLICT),
    ("content-protected", StatusCode::CONFLICT),
    ("copies-refused", StatusCode::CONFLICT),
    ("copy-cancelled", StatusCode::CONFLICT),
    ("copy-failed", StatusCode::BAD_GATEWAY),
    ("copy-no-room", StatusCode::INSUFFICIENT_STORAGE),
    ("copy-refused", StatusCode::FORBIDDEN),
    ("defect", StatusCode::INTERNAL_SERVER_ERROR),
    ("derivation-invalid", StatusCode::UNPROCESSABLE_ENTITY),
    ("derived-too-many", StatusCode::CONFLICT),
    ("http-begun", StatusCode::CONFLICT),
    ("http-off", StatusCode::CONFLICT),
    ("http-user-unknown", StatusCode::NOT_FOUND),
    ("job-not-cancellable", StatusCode::CONFLICT),
    ("job-unknown", StatusCode::NOT_FOUND),
    ("jobs-too-many", StatusCode::SERVICE_UNAVAILABLE),
    ("lun-invalid", StatusCode::UNPROCESSABLE_ENTITY),
    ("lun-or-target-missing", StatusCode::UNPROCESSABLE_ENTITY),
    ("lun-taken", StatusCode::CONFLICT),
    ("mapping-unknown", StatusCode::NOT_FOUND),
    ("medium-refused", StatusCode::CONFLICT),
    ("not-kept", StatusCode::INSUFFICIENT_STORAGE),
    ("not-permitted", StatusCode::FORBIDDEN),
    ("paused-too-many", StatusCode::CONFLICT),
    ("pool-ambiguous", StatusCode::CONFLICT),
    ("pool-failed", StatusCode::INTERNAL_SERVER_ERROR),
    ("pool-full", StatusCode::INSUFFICIENT_STORAGE),
    ("pool-in-use", StatusCode::CONFLICT),
    ("pool-unknown", StatusCode::NOT_FOUND),
    ("pool-unusable", StatusCode::SERVICE_UNAVAILABLE),
    ("port-group-unknown", StatusCode::NOT_FOUND),
    ("registration-unknown", StatusCode::NOT_FOUND),
    ("reload-busy", StatusCode::CONFLICT),
    ("program-invalid", StatusCode::UNPROCESSABLE_ENTITY),
    ("renew-and-adopt", StatusCode::UNPROCESSABLE_ENTITY),
    ("request-invalid", StatusCode::BAD_REQUEST),
    ("list-invalid", StatusCode::UNPROCESSABLE_ENTITY),
    ("request-too-long", StatusCode::PAYLOAD_TOO_LARGE),
    ("reservation-key-invalid", StatusCode::UNPROCESSABLE_ENTITY),
    ("resize-refused", StatusCode::CONFLICT),
    ("revision-stale", StatusCode::PRECONDITION_FAILED),
    ("rollback-unfinished", StatusCode::INTERNAL_SERVER_ERROR),
    ("security-invalid", StatusCode::UNPROCESSABLE_ENTITY),
    ("session-unknown", StatusCode::NOT_FOUND),
    ("size-invalid", StatusCode::UNPROCESSABLE_ENTITY),
    ("snapshot-exists", StatusCode::CONFLICT),
    ("snapshot-in-use", StatusCode::CONFLICT),
    ("snapshot-longer", StatusCode::CONFLICT),
    ("snapshot-name-invalid", StatusCode::UNPROCESSABLE_ENTITY),
    ("snapshot-unknown", StatusCode::NOT_FOUND),
    ("snapshots-impossible", StatusCode::CONFLICT),
    ("snapshots-too-many", StatusCode::CONFLICT),
    ("state-unreadable", StatusCode::INTERNAL_SERVER_ERROR),
    ("stopping", StatusCode::SERVICE_UNAVAILABLE),
    ("store-silent", StatusCode::SERVICE_UNAVAILABLE),
    ("target-exists", StatusCode::CONFLICT),
    ("target-in-use", StatusCode::CONFLICT),
    ("target-invalid", StatusCode::UNPROCESSABLE_ENTITY),
    ("target-name-invalid", StatusCode::UNPROCESSABLE_ENTITY),
    ("target-open", StatusCode::CONFLICT),
    ("target-unknown", StatusCode::NOT_FOUND),
    ("targets-invalid", StatusCode::CONFLICT),
    ("targets-too-many", StatusCode::CONFLICT),
    ("users-unknown", StatusCode::SERVICE_UNAVAILABLE),
    ("volume-busy", StatusCode::CONFLICT),
    ("volume-exists", StatusCode::CONFLICT),
    ("volume-has-derived", StatusCode::CONFLICT),
    ("volume-has-snapshots", StatusCode::CONFLICT),
    ("volume-in-use", StatusCode::CONFLICT),
    ("volume-missing", StatusCode::CONFLICT),
    ("volume-not-derived", StatusCode::CONFLICT),
    ("volume-not-in-pool", StatusCode::CONFLICT),
    ("volume-not-opened", StatusCode::CONFLICT),
    ("volume-removed-unstable", StatusCode::INTERNAL_SERVER_ERROR),
    ("volume-text-invalid", StatusCode::UNPROCESSABLE_ENTITY),
    ("volume-unknown", StatusCode::NOT_FOUND),
    ("volumes-too-many", StatusCode::CONFLICT),
];

/// The same of what only HTTP refuses.
const OWN_STATUSES: &[(&str, StatusCode)] = &[
    ("account-exists", StatusCode::CONFLICT),
    ("account-invalid", StatusCode::UNPROCESSABLE_ENTITY),
    ("account-last", StatusCode::CONFLICT),
    ("account-unknown", StatusCode::NOT_FOUND),
    ("content-type-unsupported", StatusCode::UNSUPPORTED_MEDIA_TYPE),
    ("host-unknown", StatusCode::MISDIRECTED_REQUEST),
    ("listeners-too-many", StatusCode::SERVICE_UNAVAILABLE),
    ("login-refused", StatusCode::UNAUTHORIZED),
    ("login-too-often", StatusCode::TOO_MANY_REQUESTS),
    ("method-unknown", StatusCode::METHOD_NOT_ALLOWED),
    ("origin-foreign", StatusCode::FORBIDDEN),
    ("request-too-slow", StatusCode::REQUEST_TIMEOUT),
    ("resource-unknown", StatusCode::NOT_FOUND),
    ("token-expired", StatusCode::UNAUTHORIZED),
    ("unauthenticated", StatusCode::UNAUTHORIZED),
];

/// After so many seconds a client may ask again that was refused because there is too much to do.
const RETRY_AFTER_SECONDS: &str = "1";

/// Why a request was not done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Problem {
    pub(crate) code: Cow<'static, str>,
    pub(crate) detail: String,
}

/// A problem as clients read it (RFC 9457).
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct WrittenProblem {
    /// What kind of problem it is: `urn:sanwire:problem:` and the code.
    r#type: String,
    /// The HTTP status in words.
    title: String,
    /// The HTTP status.
    status: u16,
    /// What happened and what to do, for people.
    detail: String,
    /// Which problem it is, for programs: stays the same from version to version.
    code: String,
}

impl Problem {
    pub(crate) fn new(code: &'static str, detail: impl Into<String>) -> Self {
        Problem { code: code.into(), detail: detail.into() }
    }

    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Problem::new("request-invalid", detail)
    }

    pub(crate) fn defect(what: &str) -> Self {
        Problem::new("defect", format!("{what}: the server's log says more"))
    }

    pub(crate) fn status(&self) -> StatusCode {
        let known = STATUSES.iter().chain(OWN_STATUSES).find(|(code, _)| *code == self.code);
        // Where the code is not known, at least nobody takes the request for done.
        known.map_or(StatusCode::CONFLICT, |(_, status)| *status)
    }
}

impl From<Refusal> for Problem {
    fn from(Refusal { code, reason }: Refusal) -> Self {
        Problem { code, detail: reason }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.status();
        let written = WrittenProblem {
            r#type: format!("urn:sanwire:problem:{}", self.code),
            title: status.canonical_reason().unwrap_or_default().to_owned(),
            status: status.as_u16(),
            detail: self.detail,
            code: self.code.into_owned(),
        };
        let mut response = (status, Json(written)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        match status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"sanwire\""));
            }
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_SECONDS));
            }
            _ => {}
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn documented(page: &str, heading: &str) -> BTreeSet<String> {
        let section = page.split("\n### ").find(|section| section.starts_with(heading)).unwrap();
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
        rows.filter_map(|row| row.split('`').next()).map(str::to_owned).collect()
    }

    #[test]
    fn each_code_of_a_refusal_has_a_status() {
        let known: BTreeSet<String> = STATUSES.iter().map(|(code, _)| (*code).to_owned()).collect();
        assert_eq!(documented(include_str!("../../../docs/configuration.md"), "Error codes\n"), known);
        assert_eq!(known.len(), STATUSES.len(), "each stands there once");
    }

    #[test]
    fn each_code_of_http_is_documented() {
        let known: BTreeSet<String> = OWN_STATUSES.iter().map(|(code, _)| (*code).to_owned()).collect();
        assert_eq!(documented(include_str!("../../../docs/http-api.md"), "Codes of HTTP alone\n"), known);
    }
}
