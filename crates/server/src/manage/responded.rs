//! What becomes of a request when it is over: a line of the log, a line of the audit log, and the response.

use sanwire_core::text::shortened;

use super::audit::Noted;
use super::{Answer, Asker, AuditLines, AuditLog, AuditQuery, ManageError, Refusal, Request, Response, told};

/// Of a refusal, so much stands in the log.
const LOGGED_MAX_BYTES: usize = 1024;

/// A line of the log: who wanted which change, and what came of it.
pub(super) fn log_outcome(by: &Asker, asked: &Request, response: &Response) {
    let what = told::what(asked);
    match response {
        Response::Done(_) => tracing::info!("{by}: {what}: done"),
        Response::Refused(Refusal { reason, .. }) => {
            tracing::info!("{by}: {what}: refused: {}", shortened(reason, LOGGED_MAX_BYTES));
        }
    }
}

/// A response, and the line of the audit log about it: who asked is answered when that is stable, and keeps nobody else waiting.
#[must_use]
pub(super) struct Responded {
    pub(super) response: Response,
    pub(super) noted: Option<Noted>,
}

impl Responded {
    /// The response. The manager is not to be locked meanwhile.
    pub(super) fn when_stable(self) -> Response {
        self.noted.into_iter().for_each(Noted::wait);
        self.response
    }
}

/// Reads a part of the audit log.
pub(super) fn read_audit(log: Option<&AuditLog>, query: &AuditQuery) -> Result<AuditLines, ManageError> {
    log.ok_or(ManageError::NoAudit)?.read(query).map_err(ManageError::Audit)
}

pub(super) fn response_of(result: Result<Answer, ManageError>) -> Response {
    match result {
        Ok(answer) => Response::Done(answer),
        Err(error) => Response::Refused(error.into()),
    }
}
