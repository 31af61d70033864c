//! Copies from a volume here straight to one of another server: who orders one passes none of the data.
//!
//! The other volume is a store like that of any volume of another server, opened by how it is written. On it stands a logical unit that nobody
//! else finds, and a job copies from unit to unit by the commands that any initiator has for that ([`crate::front::copies`]).

mod connecting;
mod copying;
mod error;
mod freezing;
mod initiator;
mod order;
mod permission;
mod room;

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sanwire_core::{HostAddress, Peer, Principal, Protection};
use sanwire_device::{LogicalUnit, LogicalUnits};
use sanwire_store::VolumeSpec;

use self::copying::{Copying, Mode};
pub use self::error::CopyError;
use self::freezing::Frozen;
use self::initiator::Pair;
pub use self::order::{CopyOrder, CopyTerms};
use self::room::RoomWatch;
use super::course::{Course, Ending, Ordered, UNASKED_MAX, UNASKED_MIN};
use super::slow::{Next, Slow, Step};
use super::{Answer, Asker, ManageError, Manager};
use crate::front::copies::{Copiers, CopyTaker};

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
    Cancelled(String),
    /// Its snapshot is to go.
    NoRoom(String),
}

impl Stop {
    /// The same, with more to say of it.
    fn and(self, more: &str) -> Stop {
        match self {
            Stop::Failed(reason) => Stop::Failed(reason + more),
            Stop::Cancelled(reason) => Stop::Cancelled(reason + more),
            Stop::NoRoom(reason) => Stop::NoRoom(reason + more),
        }
    }
}

/// Where a volume is copied to.
struct Reached {
    far: Arc<LogicalUnit>,
    /// By which URL.
    way: String,
    /// How much is copied.
    total_bytes: u64,
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
        let ordered = Ordered {
            volume: volume.clone(),
            to: order.to.clone(),
            protection: self.protection_of(&volume),
            owner: by.and_then(Asker::owner).cloned(),
            unasked_max: order.unasked_seconds.map_or(UNASKED_MAX, |seconds| Duration::from_secs(seconds.into())),
        };
        let (_, source) = self.find(&volume).ok_or_else(|| ManageError::NoVolume(volume.clone()))?;
        check_bounds(&order, &ordered).and_then(|()| self.check_copy(&ordered)).map_err(&refused)?;
        let specs = order.to.iter().map(|url| far_spec(url, &order, ordered.protection));
        let specs: Vec<VolumeSpec> = specs.collect::<Result<_, _>>().map_err(&refused)?;
        let length_bytes = source.store().geometry().length_bytes;
        let course = Arc::new(Course::new(length_bytes, ordered));
        let what = format!("reaching the volume that {volume} is copied to");
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
        let reach = move || {
            let reached = copy.reach(&specs);
            (copy, reached)
        };
        let step =
            Step::slow(what, reach, |manager, (copy, reached)| manager.copy_reached(copy, reached, Instant::now()));
        Ok(step.telling(course))
    }
}

/// # Errors
/// What of an order goes beyond what any may have.
fn check_bounds(order: &CopyOrder, ordered: &Ordered) -> Result<(), String> {
    if !(1..=URLS_MAX).contains(&order.to.len()) {
        return Err(format!("a destination has 1 to {URLS_MAX} URLs, and this one {}", order.to.len()));
    }
    if order.cap_bytes_per_second.is_some_and(|cap| cap < CAP_MIN_BYTES) {
        return Err(format!("a copy of less than {CAP_MIN_BYTES} bytes per second would hold its place for too long"));
    }
    if !(UNASKED_MIN..=UNASKED_MAX).contains(&ordered.unasked_max) {
        let (least, most) = (UNASKED_MIN.as_secs(), UNASKED_MAX.as_secs());
        return Err(format!("a copy goes on for {least} to {most} s while nobody asks about it"));
    }
    Ok(())
}

/// How the other volume is written, as the store of one here.
fn far_spec(url: &str, order: &CopyOrder, protection: Protection) -> Result<VolumeSpec, String> {
    let keys = [
        (protection > Protection::Checksum).then(|| ("server-security", protection.to_string())),
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

/// # Errors
/// When a copy is to end.
fn check_goes_on(course: &Course) -> Result<(), Stop> {
    match course.ending() {
        None => Ok(()),
        Some(Ending::Cancelled) => Err(Stop::Cancelled("it was cancelled".to_owned())),
        Some(Ending::Unasked(time)) => {
            Err(Stop::Cancelled(format!("nobody has asked about it for {} s", time.as_secs())))
        }
        Some(Ending::Forbidden(reason)) => Err(Stop::Failed(reason)),
    }
}

impl DirectCopy {
    /// The other volume, if there is room in it.
    fn reach(&self, specs: &[VolumeSpec]) -> Result<Reached, Stop> {
        let (far, way) = self.connect(specs)?;
        let total_bytes = self.check_fits(&far)?;
        Ok(Reached { far, way, total_bytes })
    }

    /// Copies, from a snapshot if there is one, which goes then.
    fn step(self, reached: Reached, frozen: Option<Frozen>) -> Step {
        let what = format!("copying volume {} straight to another server", self.order.volume);
        let course = Some(Arc::clone(&self.course));
        let work = move || {
            let mut frozen = frozen;
            let snapshot = frozen.as_mut().map(|frozen| self.open(frozen)).transpose();
            let room = frozen.as_ref().and_then(|frozen| self.room_of(frozen));
            let copied = snapshot.and_then(|snapshot| self.copy(&reached, snapshot.as_ref(), room));
            let copied = copied.map_err(|stop| self.ended(stop));
            drop((self, reached));
            match frozen {
                Some(frozen) => {
                    Next::Then(Box::new(move |manager: &mut Manager| manager.thaw(frozen, copied, Instant::now())))
                }
                None => Next::Over(Box::new(copied)),
            }
        };
        Step::Slow(Slow { what, is_awaited: false, course, cancellation: None, work: Box::new(work) })
    }

    /// Why it has ended before it was done.
    fn ended(&self, stop: Stop) -> ManageError {
        let (volume, went) = (self.order.volume.clone(), self.went());
        let error = match stop {
            Stop::Failed(reason) => CopyError::Failed { volume, went, reason },
            Stop::Cancelled(reason) => CopyError::Cancelled { volume, went, reason },
            Stop::NoRoom(reason) => CopyError::NoRoom { volume, went, reason },
        };
        error.into()
    }

    /// How much has gone where, for the audit log: the order may have many URLs.
    fn went(&self) -> String {
        let progress = self.course.look();
        let key = self.order.server_key.as_deref().unwrap_or("any that is pinned, or none");
        match progress.way {
            Some(way) => format!(" ({} bytes of data went to {way}, key {key})", progress.data_bytes),
            None => String::new(),
        }
    }

    fn copy(
        &self,
        reached: &Reached,
        snapshot: Option<&Arc<LogicalUnit>>,
        room: Option<RoomWatch>,
    ) -> Result<Answer, Stop> {
        let Reached { far, way, total_bytes } = reached;
        room.as_ref().map_or(Ok(()), RoomWatch::check)?;
        // Not before: who ordered it may still go another way.
        self.course.change(|progress| progress.way = Some(way.clone()));
        let defect = |error| Stop::Failed(format!("its units cannot be used: {error}"));
        let pair = match snapshot {
            Some(snapshot) => Pair::new(snapshot, far).and_then(|pair| pair.watching(&self.source)),
            None => Pair::new(&self.source, far),
        };
        let pair = pair.map_err(defect)?;
        let session = self.copiers.open(CopyTaker {
            units: Arc::clone(&pair.units),
            principal: self.principal.clone(),
            who: self.who.clone(),
            address: self.address.clone(),
        });
        let session = session.ok_or_else(|| Stop::Failed("the server ends".to_owned()))?;
        let source = (&*self.order.volume, &self.source, &*self.served);
        let mut copying = Copying::new((&pair, session, &self.course), source, self.order.cap_bytes_per_second);
        copying.room = room;
        let ended = self.go_through(&mut copying, 0..*total_bytes);
        if let Err(stop) = ended {
            // Whoever hears that it is over may use the other volume.
            return Err(match copying.settle() {
                0 => stop,
                left => stop.and(&format!("; {left} commands have not ended yet, and may still be done there")),
            });
        }
        drop(copying);
        let mut lines = vec![format!("volume {} was copied to {way}{}", self.order.volume, self.went())];
        if self.source.store().geometry().length_bytes > *total_bytes {
            let volume = &self.order.volume;
            lines.push(format!(
                "volume {volume} has grown meanwhile: nothing beyond its first {total_bytes} bytes was copied"
            ));
        }
        Ok(Answer::Changed(lines))
    }

    /// Whether the copy has room in the other volume; gives how much that is.
    fn check_fits(&self, far: &LogicalUnit) -> Result<u64, Stop> {
        let (here, there) = (self.source.store().geometry(), far.store().geometry());
        if here.block_bytes != there.block_bytes {
            return Err(Stop::Failed(format!(
                "its blocks have {} bytes, and those of the other volume {}: copy it through another host (`cp --no-direct`)",
                here.block_bytes, there.block_bytes
            )));
        }
        let total_bytes = self.course.look().total_bytes;
        if there.length_bytes < total_bytes {
            let reason = format!("it has {total_bytes} bytes, and the other volume {}", there.length_bytes);
            return Err(Stop::Failed(reason));
        }
        Ok(total_bytes)
    }

    fn go_through(&self, copying: &mut Copying<'_>, all: Range<u64>) -> Result<(), Stop> {
        let resumed = self.order.resume_bytes.min(all.end);
        // Whole blocks: the rest is copied again.
        let resumed = resumed - resumed % u64::from(copying.pair.block_bytes);
        copying.run(Mode::Update, all.start..resumed)?;
        copying.run(Mode::Copy, resumed..all.end)?;
        if self.order.verify { copying.run(Mode::Verify, all) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
