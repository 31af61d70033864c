//! Copies from a volume here straight to one of another server: who orders one passes none of the data.
//!
//! The other volume is a store like that of any volume of another server, opened by how it is written. On it stands a logical unit that nobody
//! else finds, and a job copies from unit to unit by the commands that any initiator has for that ([`crate::front::copies`]).

mod copying;
mod error;
mod initiator;
mod order;

use std::sync::Arc;

use sanwire_core::limits::LUNS_MAX;
use sanwire_core::{HostAddress, Peer, Principal, Protection};
use sanwire_device::{LogicalUnit, LogicalUnits, UnitOptions, Volatility};
use sanwire_io::interface;
use sanwire_scsi::Identity;
use sanwire_store::{OpenError, VolumeSpec};

use self::copying::{Copying, Mode};
pub use self::error::CopyError;
use self::initiator::Pair;
pub use self::order::{CopyOrder, CopyTerms};
use super::course::Course;
use super::slow::{Next, Slow, Step};
use super::{Answer, Asker, ManageError, Manager};
use crate::direct::CopyOrderers;
use crate::front::copies::{Copiers, CopyTaker};
use crate::link;
use crate::wire::Wire;

/// The slowest copy, in bytes per second.
const CAP_MIN_BYTES: u64 = 1 << 20;

/// URLs of a destination, at the most.
const URLS_MAX: usize = 16;

/// The name of the far unit, which nobody but a copy finds.
const FAR_NAME: &str = "copy-destination";

/// Wires by which servers reach each other, the best first.
const WAYS: [&str; 4] = ["hs+eth", "hdsp", "hs+ip", "visa"];

/// Why a copy ended before it was done.
#[derive(Debug)]
enum Stop {
    Failed(String),
    Cancelled(&'static str),
}

/// What is to be copied, for whom, and how that is told.
struct DirectCopy {
    order: CopyOrder,
    source: Arc<LogicalUnit>,
    /// Where the source is as long as it is served.
    served: Arc<LogicalUnits>,
    copiers: Arc<Copiers>,
    principal: Principal,
    who: String,
    address: String,
    course: Arc<Course>,
}

impl Manager {
    /// Copies a volume to another server; without `by` for who may manage the server.
    ///
    /// # Errors
    /// [`CopyError::Refused`] when they may not, or it may not go there.
    pub(super) fn copy_out(&mut self, by: Option<&Asker>, order: CopyOrder) -> Result<Step, ManageError> {
        let volume = order.volume.clone();
        let refused = |reason: String| ManageError::from(CopyError::Refused { volume: volume.clone(), reason });
        if let Some(reason) = self.copies_refused(by) {
            return Err(refused(reason));
        }
        let (_, source) = self.find(&order.volume).ok_or_else(|| ManageError::NoVolume(order.volume.clone()))?;
        if !(1..=URLS_MAX).contains(&order.to.len()) {
            return Err(refused(format!("a destination has 1 to {URLS_MAX} URLs, and this one {}", order.to.len())));
        }
        if order.cap_bytes_per_second.is_some_and(|cap| cap < CAP_MIN_BYTES) {
            return Err(refused(format!(
                "a copy of less than {CAP_MIN_BYTES} bytes per second would hold its place for too long"
            )));
        }
        // How packets are protected between both servers is up to the other one, which need not demand as much.
        let own = self.volumes.get(&order.volume).and_then(|volume| volume.spec.security);
        let level = own.unwrap_or(self.kept.configured.protection);
        if level != Protection::Checksum {
            return Err(refused(format!("its packets are protected by {level}, which a direct copy does not promise")));
        }
        let direct = &self.kept.configured.direct_copies;
        order.to.iter().try_for_each(|url| direct.check_place(url)).map_err(&refused)?;
        let specs = order.to.iter().map(|url| far_spec(url, &order));
        let specs: Vec<VolumeSpec> = specs.collect::<Result<_, _>>().map_err(&refused)?;
        let length_bytes = source.store().geometry().length_bytes;
        let course = Arc::new(Course::new(length_bytes));
        let what = format!("copying volume {} straight to another server", order.volume);
        let copy = DirectCopy {
            source,
            served: Arc::clone(self.target.units()),
            copiers: Arc::clone(self.target.copiers()),
            principal: by.map(principal_of).unwrap_or_default(),
            who: by.map_or_else(|| "management".to_owned(), Asker::to_string),
            address: by.and_then(address_of).unwrap_or_default(),
            course: Arc::clone(&course),
            order,
        };
        let work = move || Next::Over(Box::new(copy.run(&specs)));
        Ok(Step::Slow(Slow { what, is_awaited: false, course: Some(course), work: Box::new(work) }))
    }

    /// What is said of copies that go straight from one server to another.
    pub(super) fn copy_terms(&self, by: Option<&Asker>) -> Answer {
        let client = self.kept.configured.direct_copies.client_id.map(|read| read());
        let refused = self.copies_refused(by).or_else(|| match &client {
            Some(Err(reason)) => Some(reason.clone()),
            _ => None,
        });
        let client = client.and_then(Result::ok).map(|client| client.to_string());
        Answer::CopyTerms(CopyTerms { client, refused, urls: self.urls() })
    }

    /// Why who asks may not order copies to other servers, whatever the volume.
    fn copies_refused(&self, by: Option<&Asker>) -> Option<String> {
        let is_owner = by.is_some_and(|by| by.owner().is_some());
        match self.kept.configured.direct_copies.by {
            CopyOrderers::Off => Some("this server makes no direct copies (`direct-copies = \"off\"`)".to_owned()),
            CopyOrderers::Managers if is_owner => {
                Some("only who may manage this server orders direct copies (`direct-copies = \"managers\"`)".to_owned())
            }
            CopyOrderers::Managers | CopyOrderers::Owners => None,
        }
    }

    /// Where other servers reach this one, by wires whose clients have keys.
    fn urls(&self) -> Vec<String> {
        let known = interface::watch().known();
        let interfaces = known.as_ref().map(|known| known.as_slice()).unwrap_or_default();
        let announced = &self.kept.configured.announced;
        let of_wire = |wire: &Wire| -> Vec<String> {
            let scheme = wire.scheme();
            let Some(address) = wire.address() else { return vec![format!("{scheme}:///{}", self.name)] };
            let links = link::addresses_of(address, interfaces);
            let told = announced.of_links(&links, interfaces);
            told.into_iter().map(|link| format!("{scheme}://{}", link.peer)).collect()
        };
        let mut urls = Vec::new();
        for way in WAYS {
            urls.extend(self.target.wires().iter().filter(|wire| wire.scheme() == way).flat_map(of_wire));
        }
        urls.dedup();
        urls.truncate(URLS_MAX);
        urls
    }
}

/// How the other volume is written, as the store of one here.
fn far_spec(url: &str, order: &CopyOrder) -> Result<VolumeSpec, String> {
    let keys = [
        order.server_key.clone().map(|key| ("server-key", key)),
        order.patience_seconds.map(|seconds| ("reconnect", format!("{seconds}s"))),
    ];
    let keys: Vec<(&str, String)> = keys.into_iter().flatten().collect();
    let name = FAR_NAME.parse().map_err(|error| format!("{error}"))?;
    VolumeSpec::of_parts(&name, url, &keys).map_err(|error| error.to_string())
}

/// Who an asker is to volumes.
fn principal_of(by: &Asker) -> Principal {
    match by {
        Asker::Client { as_owner: Some(owner), .. } => owner.clone(),
        Asker::Client { client, address, .. } => {
            Principal { client: Some(*client), address: host_of(address), ..Principal::default() }
        }
        _ => Principal::default(),
    }
}

fn host_of(address: &str) -> Option<HostAddress> {
    let udp = address.parse().map(Peer::Udp).ok();
    udp.or_else(|| address.parse().map(Peer::Ethernet).ok()).map(HostAddress::from)
}

fn address_of(by: &Asker) -> Option<String> {
    match by {
        Asker::Client { address, .. } | Asker::User { address, .. } | Asker::Token { address, .. } => {
            Some(address.clone())
        }
        _ => None,
    }
}

impl DirectCopy {
    fn run(self, specs: &[VolumeSpec]) -> Result<Answer, ManageError> {
        let volume = self.order.volume.clone();
        let copied = self.copy(specs).map_err(|stop| match stop {
            Stop::Failed(reason) => CopyError::Failed { volume, reason },
            Stop::Cancelled(reason) => CopyError::Cancelled { volume, reason },
        });
        Ok(copied?)
    }

    fn copy(&self, specs: &[VolumeSpec]) -> Result<Answer, Stop> {
        let (far, way) = self.connect(specs)?;
        let (here, there) = (self.source.store().geometry(), far.store().geometry());
        let not_fitting = |reason: String| Err(Stop::Failed(reason));
        if here.block_bytes != there.block_bytes {
            return not_fitting(format!(
                "its blocks have {} bytes, and those of the other volume {}: copy it through another host (`cp --no-direct`)",
                here.block_bytes, there.block_bytes
            ));
        }
        let total_bytes = self.course.look().total_bytes;
        if there.length_bytes < total_bytes {
            return not_fitting(format!("it has {total_bytes} bytes, and the other volume {}", there.length_bytes));
        }
        // Not before: who ordered it may still go another way.
        self.course.change(|progress| progress.way = Some(way.to_owned()));
        let defect = |error| Stop::Failed(format!("its units cannot be used: {error}"));
        let pair = Pair::new(&self.source, &far).map_err(defect)?;
        let session = self.copiers.open(CopyTaker {
            units: Arc::clone(&pair.units),
            principal: self.principal.clone(),
            who: self.who.clone(),
            address: self.address.clone(),
        });
        let session = session.ok_or_else(|| Stop::Failed("the server ends".to_owned()))?;
        let source = (&*self.order.volume, &self.source, &*self.served);
        let mut copying = Copying::new((&pair, session, &self.course), source, self.order.cap_bytes_per_second);
        let resumed = self.order.resume_bytes.min(total_bytes);
        // Whole blocks: the rest is copied again.
        let resumed = resumed - resumed % u64::from(here.block_bytes);
        copying.run(Mode::Update, 0..resumed)?;
        copying.run(Mode::Copy, resumed..total_bytes)?;
        if self.order.verify {
            copying.run(Mode::Verify, 0..total_bytes)?;
        }
        drop(copying);
        Ok(Answer::Changed(vec![format!("volume {} was copied to {way}", self.order.volume)]))
    }

    /// The unit over the other volume, by the first of its URLs that leads there.
    fn connect(&self, specs: &[VolumeSpec]) -> Result<(Arc<LogicalUnit>, &str), Stop> {
        let mut reasons = Vec::new();
        for (spec, url) in specs.iter().zip(&self.order.to) {
            if self.course.ending().is_some() {
                return Err(Stop::Cancelled("it was cancelled"));
            }
            match spec.store.open() {
                Ok(store) => return Ok((self.unit(spec, store)?, url)),
                Err(error) => reasons.push(told(&error)),
            }
        }
        reasons.dedup();
        Err(Stop::Failed(format!("the other server cannot be reached from here: {}", reasons.join("; "))))
    }

    fn unit(&self, spec: &VolumeSpec, store: Arc<dyn sanwire_store::Store>) -> Result<Arc<LogicalUnit>, Stop> {
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
}

fn told(error: &OpenError) -> String {
    let source = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    let text = error.to_string();
    if source.is_empty() || text.contains(&source) { text } else { format!("{text}: {source}") }
}

#[cfg(test)]
mod tests;
