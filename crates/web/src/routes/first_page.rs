//! What a browser finds at the address of the API: a page that says what is here, and a form to which one-time links lead.

use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::app::App;

const PAGE: &str = include_str!("../first_page/page.html");

const SCRIPT: &str = include_str!("../first_page/page.js");

/// Their places. They need no account: there is nothing in them of this server.
pub(crate) const PLACES: [&str; 2] = ["/", "/first-page.js"];

/// The page runs its own script, which asks its own server, and nothing else.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// No part of the API, so that its description has nothing of them.
pub(crate) fn router() -> Router<Arc<App>> {
    let [page, script] = PLACES;
    Router::new()
        .route(page, get(async || told("text/html; charset=utf-8", PAGE)))
        .route(script, get(async || told("text/javascript; charset=utf-8", SCRIPT)))
}

fn told(content_type: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static(content_type)), (header::CONTENT_SECURITY_POLICY, POLICY)], text)
        .into_response()
}
