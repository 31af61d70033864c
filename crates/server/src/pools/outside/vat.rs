//! `vat:NAME`: a store elsewhere that tests look into, make longer and take away.

use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use sanwire_store::kind::{self, Backing, Likeness, Opened, Place, StoreKind};
use sanwire_store::{
    Capabilities, CompletionQueue, Expectation, Geometry, OpenError, RamStore, Request, ResizeError, SpecError,
    Started, Store, Written,
};

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
struct Vat(Arc<RamStore>, bool);

impl Store for Vat {
    fn geometry(&self) -> Geometry {
        Geometry { discards: false, read_only: self.1, ..self.0.geometry() }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::of(self.geometry())
    }

    fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
        match self.geometry().check(&request) {
            Ok(()) => self.0.start(request, completions),
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
        Ok((Arc::new(Vat(vat, self.read_only)), None))
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
