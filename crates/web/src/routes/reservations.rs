//! Who has reserved a volume, or is registered to; and the end of that.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use sanwire_server::{Answer, Clearing, JobStatus, Request, ReservationsStatus};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{ChangeQuery, Changed, Changer, Made, unexpected};
use crate::app::App;
use crate::caller::Caller;
use crate::extract::{Path, Query};
use crate::problem::Problem;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(reservations, clear_reservations)).routes(routes!(clear_registration))
}

/// The reservations of a volume
///
/// Who is registered for persistent reservations, who holds one of which type, and which session has the volume by RESERVE. Initiators
/// make them, and end them.
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

/// End all reservations of a volume
///
/// Those of hosts that do not come again, with all that is registered for them; initiators that are connected are told. It is refused
/// while one of those is connected that have registered, unless it is forced.
#[utoipa::path(delete, path = "/volumes/{volume}/reservations", tag = "volumes",
    params(
        ("volume" = String, Path, description = "Its name."),
        ("If-Match" = Option<String>, Header, description = "Only if the volume still has this ETag."),
        ChangeQuery,
    ),
    responses((status = 200, description = "They are ended.", body = Changed), (status = 202, description = "It goes on as a job.", body = JobStatus)))]
async fn clear_reservations(
    changer: Changer,
    Path(name): Path<String>,
    Query(ChangeQuery { force, dry_run }): Query<ChangeQuery>,
) -> Result<Made, Problem> {
    let request = Request::ClearReservations(Clearing { name, key: None, force });
    changer.change(request, dry_run).await
}

/// End what is registered with a key
///
/// And the reservation, if its holder is among those. Others stay.
#[utoipa::path(delete, path = "/volumes/{volume}/reservations/{key}", tag = "volumes",
    params(
        ("volume" = String, Path, description = "Its name."),
        ("key" = String, Path, description = "The key, in hexadecimal digits.", pattern = "^[0-9a-f]{1,16}$"),
        ("If-Match" = Option<String>, Header, description = "Only if the volume still has this ETag."),
        ChangeQuery,
    ),
    responses((status = 200, description = "It is ended.", body = Changed), (status = 202, description = "It goes on as a job.", body = JobStatus)))]
async fn clear_registration(
    changer: Changer,
    Path((name, key)): Path<(String, String)>,
    Query(ChangeQuery { force, dry_run }): Query<ChangeQuery>,
) -> Result<Made, Problem> {
    let request = Request::ClearReservations(Clearing { name, key: Some(key), force });
    changer.change(request, dry_run).await
}
