//! Volumes that become longer by themselves: those of other servers, and arrays of which a growth comes to its end when a member is back. Who
//! uses them is told.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use sanwire_store::Store;
use sanwire_store::kind::Place;

use super::Manager;
use super::handle::Desk;
use super::resizing::Resized;
use crate::config::VolumeConfig;
use crate::pools::own_place;

/// How long after one look the next one is.
const PAUSE: Duration = Duration::from_secs(1);

/// How long volumes are as far as those know who use them.
#[derive(Default)]
pub(super) struct Lengths(BTreeMap<String, (Weak<dyn Store>, u64)>);

/// A volume that has become longer.
#[derive(Debug)]
struct Grown {
    name: String,
    before_bytes: u64,
    after_bytes: u64,
}

impl Lengths {
    /// From now on its length now is known. Gives the one that was, of the same store.
    pub(super) fn note(&mut self, name: &str, store: &Arc<dyn Store>, length_bytes: u64) -> Option<u64> {
        let (known, before_bytes) = self.0.insert(name.to_owned(), (Arc::downgrade(store), length_bytes))?;
        known.upgrade().filter(|known| Arc::ptr_eq(known, store)).map(|_| before_bytes)
    }
}

impl Manager {
    /// Those that have become longer since they were looked at last, or somebody was told.
    fn grown(&mut self) -> Vec<Grown> {
        let Manager { volumes, lengths, target, busy, .. } = self;
        lengths.0.retain(|name, _| volumes.contains_key(name));
        let mut grown = Vec::new();
        let may_grow = |volume: &VolumeConfig| matches!(own_place(&volume.spec), Place::Elsewhere(_));
        for (name, _) in volumes.iter().filter(|(_, volume)| may_grow(volume)) {
            let Some((_, unit)) = target.units().find_named(name) else { continue };
            // Whoever makes it longer tells of that. That its copies are compared, which may take hours, keeps nobody from being told.
            if busy.hold_for_snapshot(name, "being looked at").is_err() {
                continue;
            }
            let after_bytes = unit.store().geometry().length_bytes;
            if let Some(before_bytes) = lengths.note(name, unit.store(), after_bytes)
                && before_bytes < after_bytes
            {
                grown.push(Grown { name: name.clone(), before_bytes, after_bytes });
            }
        }
        grown
    }

    fn tell_grown(&mut self, grown: Vec<Grown>) {
        for Grown { name, before_bytes, after_bytes } in grown {
            match self.resized(&name, Resized::by_itself(before_bytes, after_bytes)) {
                Ok(lines) => {
                    lines.iter().for_each(|line| tracing::info!("{line}"));
                    self.revise_volume(&name);
                }
                Err(error) => tracing::warn!("volume {name} has become longer, and who uses it is not told: {error}"),
            }
        }
    }
}

/// Looks at them until the server ends.
pub(super) fn watch(desk: &Weak<Desk>) {
    loop {
        let Some(grown) = desk.upgrade().and_then(|desk| desk.peek(Manager::grown)) else { return };
        if !grown.is_empty() && desk.upgrade().and_then(|desk| desk.with(|manager| manager.tell_grown(grown))).is_none()
        {
            return;
        }
        thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::any::Any;
    use std::sync::atomic::{AtomicU64, Ordering};

    use sanwire_store::kind::{Backing, Likeness, StoreKind, register};
    use sanwire_store::{
        CompletionQueue, Expectation, Geometry, Known, OpenError, RamStore, Request, SpecError, Started, Written,
    };

    use super::super::testing::config;
    use super::*;
    use crate::events::EventFilter;

    /// Of a server on which its volume becomes longer.
    struct LengtheningKind;

    #[derive(Debug)]
    struct Lengthening(String);

    #[derive(Debug)]
    struct Lengthened(RamStore);

    static LENGTH_BYTES: AtomicU64 = AtomicU64::new(1 << 20);

    impl StoreKind for LengtheningKind {
        fn words(&self) -> &'static [&'static str] {
            &["lengthening"]
        }

        fn form(&self) -> &'static str {
            "lengthening:NAME"
        }

        fn read(&self, written: &Written<'_>) -> Result<Arc<dyn Backing>, SpecError> {
            Ok(Arc::new(Lengthening(written.store().to_owned())))
        }
    }

    impl Backing for Lengthening {
        fn open(&self, _: Option<&Expectation<'_>>) -> Result<(Arc<dyn Store>, Option<Known>), OpenError> {
            Ok((Arc::new(Lengthened(RamStore::new(8 << 20, 512))), None))
        }

        fn place(&self) -> Place<'_> {
            Place::Elsewhere(&self.0)
        }

        fn compare(&self, other: &dyn Backing) -> Likeness {
            let is_same = (other as &dyn Any).downcast_ref::<Self>().is_some_and(|other| other.0 == self.0);
            if is_same { Likeness::Same } else { Likeness::Other }
        }
    }

    impl Store for Lengthened {
        fn geometry(&self) -> Geometry {
            Geometry { length_bytes: LENGTH_BYTES.load(Ordering::Relaxed), ..self.0.geometry() }
        }

        fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
            self.0.start(request, completions)
        }
    }

    /// How often it was told that the volume is longer.
    fn told(manager: &Manager) -> usize {
        let events = manager.target.events().read(None, &EventFilter::default(), Duration::ZERO);
        serde_json::to_string(&events).unwrap().matches("volume-resized").count()
    }

    #[test]
    fn who_uses_a_volume_is_told_once_that_it_has_become_longer_by_itself() {
        register(&LengtheningKind);
        let mut manager =
            Manager::start(config(&["a=lengthening:x", "b=ram:1M"]), Box::new(|| Ok(config(&[])))).unwrap();
        assert!(manager.grown().is_empty(), "that is known");
        LENGTH_BYTES.store(2 << 20, Ordering::Relaxed);
        let hold = manager.busy.hold("a", "being made longer").unwrap();
        assert!(manager.grown().is_empty(), "who does that tells of it");
        drop(hold);
        let grown = manager.grown();
        assert!(matches!(&grown[..], [Grown { before_bytes: 0x10_0000, after_bytes: 0x20_0000, .. }]), "{grown:?}");
        manager.tell_grown(grown);
        assert_eq!((told(&manager), manager.grown().len()), (1, 0));
        // While its copies are compared.
        LENGTH_BYTES.store(3 << 20, Ordering::Relaxed);
        let compared = manager.busy.hold_compared("a").unwrap();
        let grown = manager.grown();
        drop(compared);
        manager.tell_grown(grown);
        assert_eq!((told(&manager), manager.grown().len()), (2, 0));
        // By a request.
        LENGTH_BYTES.store(4 << 20, Ordering::Relaxed);
        manager.resized("a", Resized::by_itself(3 << 20, 4 << 20)).unwrap();
        assert_eq!((told(&manager), manager.grown().len()), (3, 0));
        manager.into_target().stop().unwrap();
    }
}
