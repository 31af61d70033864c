//! What stands in a request: path, query, headers and body, each refused as a problem when it is not as documented.

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Request, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::timeout;

use crate::limits::{BODY_MAX_BYTES, BODY_TIMEOUT};
use crate::management::Terms;
use crate::problem::Problem;

/// What stands in the path.
pub(crate) struct Path<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = axum::extract::Path::<T>::from_request_parts(parts, state).await;
        path.map(|path| Path(path.0)).map_err(|error| Problem::invalid(format!("the path: {}", error.body_text())))
    }
}

/// What stands in the query; what is not known there is refused.
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let query = axum::extract::Query::<T>::try_from_uri(&parts.uri);
        query.map(|query| Query(query.0)).map_err(|error| Problem::invalid(format!("the query: {}", error.body_text())))
    }
}

/// The terms of a change: `If-Match` and `Prefer`.
impl<S: Sync> FromRequestParts<S> for Terms {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let is_async =
            list(&parts.headers, &header::HeaderName::from_static("prefer")).any(|word| word == "respond-async");
        let mut tags = list(&parts.headers, &header::IF_MATCH);
        let revision = match (tags.next(), tags.next()) {
            (None | Some("*"), None) => None,
            (Some(tag), None) => Some(revision_of(tag)?),
            _ => return Err(Problem::invalid("If-Match: give one tag")),
        };
        Ok(Terms { revision, is_async })
    }
}

/// The words of a header that is a list.
fn list<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> impl Iterator<Item = &'a str> {
    let texts = headers.get_all(name).into_iter().map(|value| value.to_str().unwrap_or("?"));
    texts.flat_map(|text| text.split(',')).map(str::trim).filter(|word| !word.is_empty())
}

/// The revision of an entity tag.
fn revision_of(tag: &str) -> Result<u64, Problem> {
    let number = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')).and_then(|tag| tag.parse().ok());
    number.ok_or_else(|| Problem::invalid("If-Match: that is no ETag of this server: give one back as it was told"))
}

/// A body in JSON; what is not known there is refused.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Sync> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request<Body>, _: &S) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        if !is_json(&parts.headers) {
            return Err(Problem::new("content-type-unsupported", "give a body with Content-Type: application/json"));
        }
        let bytes = timeout(BODY_TIMEOUT, Limited::new(body, BODY_MAX_BYTES).collect()).await;
        let bytes =
            bytes.map_err(|_| Problem::new("request-too-slow", "the body of the request did not come in time"))?;
        let bytes = bytes.map_err(|error| match error.is::<LengthLimitError>() {
            true => Problem::new("request-too-long", format!("a request has at most {BODY_MAX_BYTES} bytes")),
            false => Problem::invalid("the body of the request was broken off"),
        })?;
        let value = serde_json::from_slice(&bytes.to_bytes()).map(with_integers);
        value.and_then(serde_json::from_value).map(Json).map_err(|error| Problem::invalid(format!("the body: {error}")))
    }
}

/// Whether the body is said to be JSON.
pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    let text = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = text.split(';').next().unwrap_or_default().trim();
    media_type.eq_ignore_ascii_case("application/json")
}

/// `4096.0` is an integer to JSON Schema, and 4096 here.
fn with_integers(value: Value) -> Value {
    /// From here on not every integer is a double.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            #[expect(clippy::cast_possible_truncation, reason = "it is an integer below 2^53")]
            Some(double) if double.fract() == 0.0 && double.abs() <= EXACT => Value::from(double as i64),
            _ => Value::Number(number),
        },
        Value::Array(values) => values.into_iter().map(with_integers).collect(),
        Value::Object(fields) => fields.into_iter().map(|(key, value)| (key, with_integers(value))).collect(),
        value => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_an_integer_may_be_written_with_a_fraction() {
        let read = |text: &str| with_integers(serde_json::from_str(text).unwrap()).to_string();
        assert_eq!(read(r#"{"a":[4096.0,-1.0,0.5,1e3],"b":1e300}"#), r#"{"a":[4096,-1,0.5,1000],"b":1e+300}"#);
        assert_eq!(serde_json::from_value::<u16>(with_integers(4096.0.into())).unwrap(), 4096);
    }

    #[test]
    fn an_entity_tag_is_a_revision_in_quotes() {
        assert_eq!(revision_of("\"17\"").unwrap(), 17);
        for tag in ["17", "W/\"17\"", "\"x\"", "\"\"", "\""] {
            assert!(revision_of(tag).is_err(), "{tag}");
        }
    }
}
