//! What HTTP tells of itself in the metrics.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::extract::{MatchedPath, State};
use axum::http::Request;
use axum::middleware::Next;
use axum::response::Response;
use sanwire_core::Durations;

use crate::app::App;

/// The methods that are told apart: strangers make up others.
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// How an attempt to log in may end.
const LOG_INS: [&str; 3] = ["done", "refused", "too-often"];

/// What stands for all that is none of the resources.
const NO_ROUTE: &str = "none";

/// Counts, whose keys are none that strangers make up.
#[derive(Default)]
pub(crate) struct Counts(Mutex<Counted>);

#[derive(Default)]
struct Counted {
    /// By route, method and status.
    requests: BTreeMap<(String, &'static str, u16), u64>,
    /// By route and method.
    durations: BTreeMap<(String, &'static str), Durations>,
    log_ins: BTreeMap<&'static str, u64>,
}

/// Counts a request, and how long it took until its answer began.
pub(crate) async fn count(State(app): State<Arc<App>>, request: Request<Body>, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map_or(NO_ROUTE, MatchedPath::as_str).to_owned();
    let method = METHODS.into_iter().find(|method| request.method().as_str() == *method).unwrap_or("other");
    let begun = Instant::now();
    let response = next.run(request).await;
    app.counts.note(route, method, response.status().as_u16(), begun.elapsed());
    response
}

impl Counts {
    fn note(&self, route: String, method: &'static str, status: u16, took: Duration) {
        let mut counts = self.lock();
        counts.durations.entry((route.clone(), method)).or_default().note(took);
        *counts.requests.entry((route, method, status)).or_default() += 1;
    }

    /// Somebody has tried to log in: `done`, `refused`, or `too-often`.
    pub(crate) fn note_log_in(&self, result: &'static str) {
        *self.lock().log_ins.entry(result).or_default() += 1;
    }

    /// All of it, in the text of OpenMetrics.
    pub(crate) fn text(&self, listeners: usize, certificate_end: Option<SystemTime>) -> String {
        let mut text = String::new();
        // Writing into a string does not fail.
        let _ = self.lock().write(&mut text, listeners);
        if let Some(end) = certificate_end.and_then(|end| end.duration_since(UNIX_EPOCH).ok()) {
            let name = "sanwire_http_certificate_expires_timestamp_seconds";
            let _ = family(&mut text, name, "gauge", "When the certificate of HTTP ends");
            let _ = writeln!(text, "{name} {}", end.as_secs());
        }
        text
    }

    fn lock(&self) -> MutexGuard<'_, Counted> {
        // It is whole between any two changes.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counted {
    fn write(&self, text: &mut String, listeners: usize) -> fmt::Result {
        if !self.requests.is_empty() {
            family(text, "sanwire_http_requests", "counter", "HTTP requests that were answered")?;
        }
        for ((route, method, code), count) in &self.requests {
            writeln!(
                text,
                "sanwire_http_requests_total{{route=\"{route}\",method=\"{method}\",code=\"{code}\"}} {count}"
            )?;
        }
        let name = "sanwire_http_request_duration_seconds";
        if !self.durations.is_empty() {
            family(text, name, "histogram", "Time until the answer to an HTTP request began")?;
        }
        for ((route, method), durations) in &self.durations {
            durations.write_histogram(text, name, &format!("route=\"{route}\",method=\"{method}\""))?;
        }
        family(text, "sanwire_http_logins", "counter", "Log-ins by HTTP")?;
        // From the first scrape on: a counter that appears later has lost its first increase.
        for result in LOG_INS {
            let count = self.log_ins.get(result).copied().unwrap_or_default();
            writeln!(text, "sanwire_http_logins_total{{result=\"{result}\"}} {count}")?;
        }
        family(text, "sanwire_http_event_listeners", "gauge", "Who listens to events by HTTP")?;
        writeln!(text, "sanwire_http_event_listeners {listeners}")
    }
}

fn family(text: &mut String, name: &str, kind: &str, help: &str) -> fmt::Result {
    writeln!(text, "# HELP {name} {help}.\n# TYPE {name} {kind}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_by_route_and_code_with_their_durations() {
        let counts = Counts::default();
        let note =
            |status, took| counts.note("/api/v1/volumes/{volume}".into(), "GET", status, Duration::from_millis(took));
        [(200, 1), (200, 50), (404, 20_000)].into_iter().for_each(|(status, took)| note(status, took));
        counts.note_log_in("refused");
        let text = counts.text(3, Some(UNIX_EPOCH + Duration::from_secs(1_900_000_000)));
        for line in [
            "sanwire_http_requests_total{route=\"/api/v1/volumes/{volume}\",method=\"GET\",code=\"200\"} 2",
            "sanwire_http_request_duration_seconds_bucket{le=\"0.001024\",route=\"/api/v1/volumes/{volume}\",method=\"GET\"} 1",
            "sanwire_http_request_duration_seconds_bucket{le=\"0.065536\",route=\"/api/v1/volumes/{volume}\",method=\"GET\"} 2",
            "sanwire_http_request_duration_seconds_bucket{le=\"+Inf\",route=\"/api/v1/volumes/{volume}\",method=\"GET\"} 3",
            "sanwire_http_request_duration_seconds_sum{route=\"/api/v1/volumes/{volume}\",method=\"GET\"} 20.051",
            "sanwire_http_logins_total{result=\"refused\"} 1",
            "sanwire_http_logins_total{result=\"done\"} 0",
            "sanwire_http_event_listeners 3",
            "sanwire_http_certificate_expires_timestamp_seconds 1900000000",
        ] {
            assert!(text.lines().any(|own| own == line), "{line}\n{text}");
        }
    }
}
