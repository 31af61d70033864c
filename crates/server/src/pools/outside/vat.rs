//! `vat:NAME`: a store elsewhere that tests look into, make longer and take away.

use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use sanwire_store::kind::{self, Backing, Likeness, Opened, Place, StoreKind};
use sanwire_store::{
    Capabilities, Completer, CompletionQueue, ErrorKind, Expectation, Geometry, OpenError, RamStore, Request,
    ResizeError, SpecError, Started, Store, StoreError, Written,
};

use sanwire_store_file::blocking;

use crate::pools::layered::tests::BLOCK;

static VATS: Mutex<BTreeMap<String, Arc<RamStore>>> = Mutex::new(BTreeMap::new());

struct VatKind;

#[derive(PartialEq, Debug)]
struct VatBacking {
    name: String,
    read_only: bool,
}

/// A disk that gives no space back and cannot be made longer from here.
#[derive(Debug)]
struct Vat {
    store: Arc<RamStore>,
    read_only: bool,
    name: String,
}

/// Vats of which block 0 cannot be read, and why.
static UNREADABLE: Mutex<BTreeMap<String, ErrorKind>> = Mutex::new(BTreeMap::new());

/// From now on reads of block 0 of a vat fail so; or do not any more.
pub(super) fn fail_reads(name: &str, kind: Option<ErrorKind>) {
    let mut unreadable = UNREADABLE.lock().unwrap();
    unreadable.remove(name);
    kind.into_iter().for_each(|kind| _ = unreadable.insert(name.to_owned(), kind));
}

/// How many writes fail that come next, by vats.
static FAILING: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());

/// From now on so many writes of a vat fail.
pub(super) fn fail_writes(name: &str, count: usize) {
    FAILING.lock().unwrap().insert(name.to_owned(), count);
}

/// How many of them are left.
pub(super) fn failing(name: &str) -> usize {
    FAILING.lock().unwrap().get(name).copied().unwrap_or(0)
}

/// What waits in vats that hang.
static HANGING: Mutex<BTreeMap<String, Vec<(Request, Completer)>>> = Mutex::new(BTreeMap::new());

/// A vat that hangs: what is written to it, and flushes, wait until this is dropped.
pub(super) struct Hang(String);

impl Hang {
    pub(super) fn of(name: &str) -> Hang {
        HANGING.lock().unwrap().insert(name.to_owned(), Vec::new());
        Hang(name.to_owned())
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        HANGING.lock().unwrap().get(&self.0).map_or(0, Vec::len)
    }
}

impl Drop for Hang {
    fn drop(&mut self) {
        let waiting = HANGING.lock().unwrap().remove(&self.0).unwrap_or_default();
        let vat = VATS.lock().unwrap().get(&self.0).cloned().unwrap();
        for (request, completer) in waiting {
            completer.complete(sanwire_store::run(&*vat, request, &mut blocking::perform));
        }
    }
}

impl Store for Vat {
    fn geometry(&self) -> Geometry {
        Geometry { discards: false, read_only: self.read_only, ..self.store.geometry() }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::of(self.geometry())
    }

    fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
        if request.is_write()
            && let Some(left @ 1..) = FAILING.lock().unwrap().get_mut(&self.name)
        {
            *left -= 1;
            return Started::Done(Err(StoreError::new(ErrorKind::Gone, 0)));
        }
        if (request.is_write() || matches!(request, Request::Flush))
            && let Some(waiting) = HANGING.lock().unwrap().get_mut(&self.name)
        {
            let (pending, completer) = completions.pend();
            waiting.push((request, completer));
            return Started::Pending(pending);
        }
        if let (Request::Read { offset_bytes: 0, .. }, Some(kind)) =
            (&request, UNREADABLE.lock().unwrap().get(&self.name))
        {
            return Started::Done(Err(StoreError::new(*kind, 0)));
        }
        match self.geometry().check(&request) {
            Ok(()) => self.store.start(request, completions),
            Err(error) => Started::Done(Err(error)),
        }
    }

    fn resize(&self, length_bytes: u64) -> Result<(), ResizeError> {
        match length_bytes <= self.geometry().length_bytes {
            true => Ok(()),
            false => Err(ResizeError::Fixed("its owner makes it longer")),
        }
    }
}

impl StoreKind for VatKind {
    fn words(&self) -> &'static [&'static str] {
        &["vat"]
    }

    fn form(&self) -> &'static str {
        "vat:NAME"
    }

    fn read(&self, written: &Written<'_>) -> Result<Arc<dyn Backing>, SpecError> {
        Ok(Arc::new(VatBacking { name: written.place().to_owned(), read_only: written.is_read_only() }))
    }
}

impl Backing for VatBacking {
    fn open(&self, _: Option<&Expectation<'_>>) -> Result<Opened, OpenError> {
        let away = || OpenError::Elsewhere {
            store: self.name.clone(),
            source: Box::new(io::Error::from(io::ErrorKind::ConnectionRefused)),
            is_away: true,
        };
        let vat = VATS.lock().unwrap().get(&self.name).cloned().ok_or_else(away)?;
        Ok((Arc::new(Vat { store: vat, read_only: self.read_only, name: self.name.clone() }), None))
    }

    fn place(&self) -> Place<'_> {
        Place::Elsewhere(&self.name)
    }

    /// A vat is made of others, if their names stand with a plus between them.
    fn places(&self) -> Vec<Place<'_>> {
        let parts = self.name.split('+').filter(|part| *part != self.name);
        [self.place()].into_iter().chain(parts.map(Place::Elsewhere)).collect()
    }

    fn compare(&self, other: &dyn Backing) -> Likeness {
        let is_same = (other as &dyn Any).downcast_ref() == Some(self);
        if is_same { Likeness::Same } else { Likeness::Other }
    }
}

/// A vat of so many blocks that hold this each.
pub(super) fn fill(name: &str, blocks: &[u8]) -> Arc<dyn Store> {
    kind::register(&VatKind);
    let vat = Arc::new(RamStore::new((blocks.len() * BLOCK) as u64, 4096));
    VATS.lock().unwrap().insert(name.to_owned(), Arc::clone(&vat));
    let store = vat as Arc<dyn Store>;
    (0..).zip(blocks).for_each(|(block, byte)| crate::pools::layered::tests::write(&store, block, *byte));
    store
}

/// A vat is there no more, until it is put back.
pub(super) fn take_away(name: &str) -> Arc<RamStore> {
    VATS.lock().unwrap().remove(name).unwrap()
}

pub(super) fn put_back(name: &str, vat: Arc<RamStore>) {
    VATS.lock().unwrap().insert(name.to_owned(), vat);
}
