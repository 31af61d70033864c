//! How a copy comes to the unit over the other volume.

use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use sanwire_core::limits::LUNS_MAX;
use sanwire_device::{LogicalUnit, UnitOptions, Volatility};
use sanwire_scsi::Identity;
use sanwire_store::{OpenError, Store, VolumeSpec};

use super::{DirectCopy, Stop, check_goes_on};

/// How long all URLs together are tried: whoever waits may have the data go another way.
const CONNECT_MAX: Duration = Duration::from_secs(20);

/// How long one is tried alone; then the next one is, too.
const ALONE_MAX: Duration = Duration::from_secs(2);

/// How often it is looked whether the copy is to end.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The outcome of connecting to one URL, with its index in the list.
type Tried = (usize, Result<Arc<dyn Store>, OpenError>);

impl DirectCopy {
    /// The unit over the other volume, by the first of its URLs that leads there.
    pub(super) fn connect(&self, specs: &[VolumeSpec]) -> Result<(Arc<LogicalUnit>, String), Stop> {
        let (tell, tried) = mpsc::channel();
        let begun_at = Instant::now();
        let (mut next, mut next_at) = (0, begun_at);
        let mut reasons = Vec::new();
        while reasons.len() < specs.len() {
            check_goes_on(&self.course)?;
            if begun_at.elapsed() > CONNECT_MAX {
                reasons.push(format!("nothing was reached in {} s", CONNECT_MAX.as_secs()));
                break;
            }
            if let Some(spec) = specs.get(next).filter(|_| Instant::now() >= next_at) {
                begin(next, spec, &tell)?;
                (next, next_at) = (next + 1, Instant::now() + ALONE_MAX);
            }
            match tried.recv_timeout(LOOK_INTERVAL) {
                Ok((place, Ok(store))) => {
                    let (Some(spec), Some(url)) = (specs.get(place), self.order.to.get(place)) else { continue };
                    return Ok((unit(spec, store)?, url.clone()));
                }
                Ok((_, Err(error))) => {
                    reasons.push(told(&error));
                    next_at = Instant::now();
                }
                Err(_) => {}
            }
        }
        reasons.dedup();
        Err(Stop::Failed(format!("the other server cannot be reached from here: {}", reasons.join("; "))))
    }
}

/// Begins to open a volume. When nobody waits for it any more it is closed again.
fn begin(place: usize, spec: &VolumeSpec, tell: &Sender<Tried>) -> Result<(), Stop> {
    let (store, tell) = (spec.store.clone(), tell.clone());
    let work = move || drop(tell.send((place, store.open())));
    let thread = thread::Builder::new().name("copy".into()).spawn(work);
    thread.map(drop).map_err(|error| Stop::Failed(format!("the system has no thread for it: {error}")))
}

pub(super) fn unit(spec: &VolumeSpec, store: Arc<dyn Store>) -> Result<Arc<LogicalUnit>, Stop> {
    let failed = |what: &str| Stop::Failed(format!("its unit cannot be made: {what}"));
    let fresh = || crate::random::bytes().map_err(|error| failed(&error.to_string()));
    let identity = Identity::new(&spec.name, fresh()?).map_err(|error| failed(&error.to_string()))?;
    let verifier = crate::random::bytes().map_err(|error| failed(&error.to_string()))?;
    let options = UnitOptions {
        // It is counted with no volume of this server.
        slot: LUNS_MAX as u16,
        // What becomes there of writes that are not flushed nobody here knows.
        volatility: Some(Volatility { verifier, has_failed: false, tenure: None, keeper: None }),
        ..UnitOptions::default()
    };
    LogicalUnit::new(identity, store, options).map(Arc::new).map_err(|error| failed(&error.to_string()))
}

pub(super) fn told(error: &OpenError) -> String {
    let source = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    let text = error.to_string();
    if source.is_empty() || text.contains(&source) { text } else { format!("{text}: {source}") }
}
