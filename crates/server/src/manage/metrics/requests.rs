//! What was asked of the management, however it came, and what other parts of the program add to the metrics.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Family, Labels, Placed, Sample};
use crate::manage::Response;
use crate::manage::audit::Asker;

/// Different requests, askers and results together: none of them is made up by those who ask.
type Key = (String, &'static str, &'static str);

/// What adds its own families to the metrics: whole ones, in the text of OpenMetrics, with names that nobody else has.
type Part = Box<dyn Fn() -> String + Send + Sync>;

/// Counts of requests, and the parts of others: shared by all who answer requests.
#[derive(Clone, Default)]
pub(in crate::manage) struct RequestCounts(Arc<Shared>);

#[derive(Default)]
struct Shared {
    counts: Mutex<BTreeMap<Key, u64>>,
    parts: Mutex<Vec<Part>>,
}

impl RequestCounts {
    /// A request was answered.
    pub(in crate::manage) fn note(&self, request: String, by: &Asker, response: &Response) {
        let result = if matches!(response, Response::Done(_)) { "done" } else { "refused" };
        *lock(&self.0.counts).entry((request, by.kind(), result)).or_default() += 1;
    }

    /// From now on this is asked for its families, too.
    pub(in crate::manage) fn add_part(&self, part: Part) {
        lock(&self.0.parts).push(part);
    }

    pub(super) fn parts(&self) -> Vec<String> {
        lock(&self.0.parts).iter().map(|part| part()).collect()
    }

    pub(super) fn family(&self) -> Family {
        let counts = lock(&self.0.counts);
        let samples = counts.iter().map(|((request, by, result), count)| {
            (0, Labels::of([("request", request), ("by", by), ("result", result)]), Sample::Counter(*count))
        });
        let samples: Vec<Placed> = samples.collect();
        Family { name: "sanwire_management_requests", help: "Requests to the management", samples }
    }
}

impl fmt::Debug for RequestCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestCounts").finish_non_exhaustive()
    }
}

/// Nothing panics while it is changed but a part of others, which changes nothing here.
fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
