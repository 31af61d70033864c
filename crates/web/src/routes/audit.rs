//! The audit log.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use sanwire_server::{Answer, AuditLines, AuditQuery, AuditResult, Request};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::unexpected;
use crate::app::App;
use crate::caller::Caller;
use crate::extract::Query;
use crate::problem::Problem;

/// Lines of an answer, at the most: no more are given.
const LIMIT_MAX: u32 = 512;

/// The longest cursor, time or part of a name, in bytes.
const TEXT_MAX_BYTES: usize = 256;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(audit))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct LinesQuery {
    /// Those after this cursor: what `next` of an earlier answer says; without it, all that are kept, the oldest first.
    after: Option<String>,
    /// Those of this moment and later ones, as in RFC 3339, in UTC.
    from: Option<String>,
    /// Of those who have this in what is known of them: a user, a token, a client, an address.
    who: Option<String>,
    /// How it has ended: `done` or `refused`.
    #[param(inline)]
    result: Option<Ended>,
    /// As many lines at the most, 1 to 512.
    #[param(minimum = 1, maximum = 512)]
    limit: Option<u32>,
}

/// How something has ended.
#[derive(Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
enum Ended {
    /// It was done.
    Done,
    /// It was refused.
    Refused,
}

/// Lines of the audit log.
#[derive(Serialize, ToSchema)]
struct AuditPage {
    /// The lines, as they stand there: when, who, what, and what came of it.
    #[schema(value_type = Vec<Object>)]
    items: Vec<serde_json::Value>,
    /// Give this as `after` for what follows, also for what is not there yet.
    next: String,
    /// Whether there is more to be read now.
    more: bool,
    /// Whether what `after` has pointed at is not kept any more: this begins with the oldest line that is.
    gone: bool,
}

/// Lines of the audit log
///
/// Who has changed what, or was refused. It takes the role administrator.
#[utoipa::path(get, path = "/audit", tag = "monitoring", params(LinesQuery), responses((status = 200, description = "The lines.", body = AuditPage)))]
async fn audit(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(query): Query<LinesQuery>,
) -> Result<Response, Problem> {
    let tell = |answer| match answer {
        Answer::Audit(AuditLines { lines, cursor, more, gone }) => {
            Ok(axum::Json(AuditPage { items: lines, next: cursor, more, gone }))
        }
        _ => Err(unexpected()),
    };
    app.show(&caller, Request::Audit(query.wanted()?), tell).await
}

impl LinesQuery {
    fn wanted(self) -> Result<AuditQuery, Problem> {
        let LinesQuery { after, from, who, result, limit } = self;
        let texts = [("after", &after), ("from", &from), ("who", &who)];
        if let Some((name, _)) =
            texts.iter().find(|(_, text)| text.as_ref().is_some_and(|text| text.len() > TEXT_MAX_BYTES))
        {
            return Err(Problem::invalid(format!("{name}: it has at most {TEXT_MAX_BYTES} bytes")));
        }
        if let Some(text) = from.as_deref().filter(|text| humantime::parse_rfc3339_weak(text).is_err()) {
            return Err(Problem::invalid(format!("from: {text:?} is no time: write it like 2026-11-23T18:00:00Z")));
        }
        if limit.is_some_and(|limit| !(1..=LIMIT_MAX).contains(&limit)) {
            return Err(Problem::invalid(format!("limit: an answer has 1 to {LIMIT_MAX} lines")));
        }
        let result = result.map(|ended| match ended {
            Ended::Done => AuditResult::Done,
            Ended::Refused => AuditResult::Refused,
        });
        Ok(AuditQuery { since: after, from, who, result, limit, newest: false })
    }
}
