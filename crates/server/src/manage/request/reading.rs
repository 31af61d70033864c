//! What a request is, whatever stands in it.

use super::Request;
use crate::manage::refusal::Refusal;
use crate::manage::wrong_request::without_values;

impl Request {
    /// What somebody asks in JSON.
    pub(in crate::manage) fn from_json(json: &[u8]) -> Result<Request, Refusal> {
        serde_json::from_slice(json)
            .map_err(|error| Refusal::new("request-invalid", format!("this is no request: {}", without_values(&error))))
    }

    /// What it is called: `add-volume`. Of what has another request in it, that one's.
    pub(in crate::manage) fn name(&self) -> String {
        match self {
            Request::Start { request }
            | Request::Page { request, .. }
            | Request::IfRevision { request, .. }
            | Request::DryRun { request }
            | Request::InPools { request, .. } => request.name(),
            // Its name is what it begins with, however it is written.
            _ => match serde_json::to_value(self) {
                Ok(serde_json::Value::Object(mut fields)) => match fields.remove("do") {
                    Some(serde_json::Value::String(name)) => name,
                    _ => String::new(),
                },
                _ => String::new(),
            },
        }
    }

    /// Whether it is a copy to another server, whatever it stands in.
    pub(in crate::manage) fn is_copy_out(&self) -> bool {
        match self {
            Request::CopyOut(_) => true,
            Request::Start { request } | Request::IfRevision { request, .. } | Request::InPools { request, .. } => {
                request.is_copy_out()
            }
            _ => false,
        }
    }

    /// Whether it changes anything, if it is done.
    #[must_use]
    pub fn is_change(&self) -> bool {
        use Request::{
            Audit, Clients, Commands, Configuration, ConfigurationFile, CopyTerms, DryRun, Dvd, Dvds, Events,
            IfRevision, InPools, Job, Jobs, Links, Metrics, Page, Pools, Reload, Reservations, Sessions, Snapshots,
            Start, Statistics, Status, VolumeSessions,
        };
        match self {
            Reload { dry_run, .. } => !dry_run,
            Start { request } | Page { request, .. } | IfRevision { request, .. } | InPools { request, .. } => {
                request.is_change()
            }
            _ => !matches!(
                self,
                Status
                    | Sessions
                    | VolumeSessions { .. }
                    | Commands { .. }
                    | Links
                    | Configuration
                    | ConfigurationFile
                    | Reservations { .. }
                    | Clients
                    | Statistics
                    | Metrics
                    | Jobs
                    | Job { .. }
                    | Events { .. }
                    | Audit(_)
                    | Pools
                    | DryRun { .. }
                    | Snapshots { .. }
                    | Dvds { .. }
                    | Dvd { .. }
                    | CopyTerms
            ),
        }
    }
}
