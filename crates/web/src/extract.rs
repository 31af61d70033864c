//! What stands in a request: path, query, headers and body, each refused as a problem when it is not as documented.

use std::sync::Arc;

use axum::body::{Body, HttpBody};
use axum::extract::{FromRequest, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Request, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use sanwire_server::without_values;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::json::Strict;
use crate::limits::{BODY_MAX_BYTES, Times};
use crate::management::Terms;
use crate::places::Place;
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
            // An empty one was meant to be a condition.
            (None, _) if !parts.headers.contains_key(header::IF_MATCH) => None,
            (Some("*"), None) => None,
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
    let number = tag
        .strip_prefix('"')
        .and_then(|tag| tag.strip_suffix('"'))
        .filter(|tag| tag.bytes().all(|byte| byte.is_ascii_digit()));
    let number = number.and_then(|tag| tag.parse().ok());
    number.ok_or_else(|| Problem::invalid("If-Match: that is no ETag of this server: give one back as it was told"))
}

/// A body in JSON; what is not known there is refused.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Sync> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request<Body>, _: &S) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        check_encoding(&parts.headers)?;
        let (max, place) =
            (parts.extensions.get().map_or(BODY_MAX_BYTES, |BodyMax(max)| *max), parts.extensions.get::<Arc<Place>>());
        let times = parts.extensions.get::<Times>().copied().unwrap_or_default();
        let too_long = || Problem::new("request-too-long", format!("this request has at most {max} bytes"));
        let bytes = usize::try_from(body.size_hint().exact().unwrap_or(max as u64)).unwrap_or(usize::MAX);
        if bytes > max {
            return Err(too_long());
        }
        let _memory = place.map(|place| place.hold(bytes)).transpose()?;
        let bytes = timeout(times.body, Limited::new(body, max).collect()).await;
        let bytes =
            bytes.map_err(|_| Problem::new("request-too-slow", "the body of the request did not come in time"))?;
        let bytes = bytes.map_err(|error| match error.is::<LengthLimitError>() {
            true => too_long(),
            false => Problem::invalid("the body of the request was broken off"),
        })?;
        let value = serde_json::from_slice(&bytes.to_bytes()).map(|Strict(value)| value);
        let wrong = |error| Problem::invalid(format!("the body: {}", without_values(&error)));
        value.and_then(serde_json::from_value).map(Json).map_err(wrong)
    }
}

/// A body is JSON as it is: nothing here unpacks one, nor reads it by another set of characters.
fn check_encoding(headers: &HeaderMap) -> Result<(), Problem> {
    let refused = |detail: &str| Err(Problem::new("content-type-unsupported", detail));
    if !is_json(headers) {
        return refused("give a body with Content-Type: application/json");
    }
    let charset = content_type(headers).split(';').skip(1).filter_map(|parameter| parameter.split_once('='));
    let mut charset = charset.filter(|(key, _)| key.trim().eq_ignore_ascii_case("charset"));
    if !charset.all(|(_, set)| set.trim().trim_matches('"').eq_ignore_ascii_case("utf-8")) {
        return refused("give a body in UTF-8: JSON has no other charset");
    }
    if list(headers, &header::CONTENT_ENCODING).any(|coding| !coding.eq_ignore_ascii_case("identity")) {
        return refused("give a body without Content-Encoding: none is unpacked");
    }
    Ok(())
}

/// The most bytes that this request may have.
#[derive(Clone, Copy)]
pub(crate) struct BodyMax(pub(crate) usize);

/// Whether the body is said to be JSON.
pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    let media_type = content_type(headers).split(';').next().unwrap_or_default().trim();
    media_type.eq_ignore_ascii_case("application/json")
}

fn content_type(headers: &HeaderMap) -> &str {
    headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entity_tag_is_a_revision_in_quotes() {
        assert_eq!(revision_of("\"17\"").unwrap(), 17);
        for tag in ["17", "\"+17\"", "W/\"17\"", "\"x\"", "\"\"", "\""] {
            assert!(revision_of(tag).is_err(), "{tag}");
        }
    }
}
