//! What those who help want to know of a server, in one document.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use sanwire_server::{Refusal, Request, Response, SupportBundle};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::caller::{Caller, Role};
use crate::problem::Problem;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(support_bundle))
}

/// What those who help want to know
///
/// Status, configuration, sessions, numbers, events, the newest lines of the audit log and more, in one document, as `sanwire ctl
/// support-bundle` prints it. No secret is in it. It takes the role administrator.
#[utoipa::path(get, path = "/support-bundle", tag = "monitoring", responses((status = 200, description = "The document.", body = SupportBundle)))]
async fn support_bundle(State(app): State<Arc<App>>, caller: Caller) -> Result<Json<SupportBundle>, Problem> {
    caller.again(&app.accounts)?.needs(Role::Administrator)?;
    let (desk, accounts, by) = (Arc::clone(&app.management.desk), Arc::clone(&app.accounts), caller.clone());
    let ask = move |request: Request| {
        // It may take a while, in which an account may go.
        let admitted = by.again(&accounts).and_then(|by| by.check(&request));
        admitted.map_err(|problem| Refusal { code: problem.code, reason: problem.detail })?;
        match desk.handle(&by.asker, request) {
            Response::Done(answer) => Ok(answer),
            Response::Refused(refusal) => Err(refusal),
        }
    };
    let gathered = app.management.work(&caller.asker, || SupportBundle::gather(ask)).await?;
    Ok(Json(gathered.map_err(Problem::from)?))
}
