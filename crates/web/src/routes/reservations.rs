//! Who has reserved a volume, or is registered to.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use sanwire_server::{Answer, Request, ReservationsStatus};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::unexpected;
use crate::app::App;
use crate::caller::Caller;
use crate::extract::Path;
use crate::problem::Problem;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(reservations))
}

/// The reservations of a volume
///
/// Who is registered for persistent reservations, who holds one of which type, and which session has the volume by RESERVE. Initiators
/// make and end them.
#[utoipa::path(get, path = "/volumes/{volume}/reservations", tag = "volumes", params(("volume" = String, Path, description = "Its name.")), responses((status = 200, description = "The reservations.", body = ReservationsStatus)))]
async fn reservations(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let tell = |answer| match answer {
        Answer::Reservations(reservations) => Ok(axum::Json(reservations)),
        _ => Err(unexpected()),
    };
    app.show(&caller, Request::Reservations { name }, tell).await
}
