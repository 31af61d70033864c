//! How an image is written as a store: `rbd:POOL/IMAGE`.

use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;

use sanwire_store::kind::{Backing, Likeness, Place, StoreKind};
use sanwire_store::{Expectation, Known, OpenError, SpecError, Store, Written};

use crate::image::{ImageName, Options};
use crate::store::RbdStore;

/// Ceph RBD images.
pub struct RbdKind;

#[derive(PartialEq, Debug)]
struct RbdBacking {
    /// As it is written: servers that fail over to each other write the same, and so give the volume the same identity.
    place: String,
    name: ImageName,
    options: Options,
}

impl StoreKind for RbdKind {
    fn words(&self) -> &'static [&'static str] {
        &["rbd"]
    }

    fn form(&self) -> &'static str {
        "rbd:POOL/IMAGE"
    }

    fn keys(&self) -> &'static [&'static str] {
        &["ceph-config", "ceph-user", "takeover"]
    }

    fn lacks(&self, key: &str) -> &'static str {
        match key {
            "size" | "grow" => "an RBD image has the size that the cluster gives it",
            _ => "stores of its kind have no such key",
        }
    }

    fn read(&self, written: &Written<'_>) -> Result<Arc<dyn Backing>, SpecError> {
        let name = written.place().parse().map_err(|()| written.is_no_store())?;
        let options = Options {
            config: written.value("ceph-config", "a file's path", |text| Some(PathBuf::from(text)))?,
            user: written.value("ceph-user", "a user without client.", |text| Some(text.to_owned()))?,
            block_bytes: written.block_bytes(),
            read_only: written.is_read_only(),
            takes_over: written.flag("takeover")?,
        };
        Ok(Arc::new(RbdBacking { place: written.store().to_owned(), name, options }))
    }
}

impl Backing for RbdBacking {
    fn open(&self, _: Option<&Expectation<'_>>) -> Result<(Arc<dyn Store>, Option<Known>), OpenError> {
        match RbdStore::open(&self.name, &self.options) {
            Ok(store) => Ok((Arc::new(store), None)),
            Err(error) => {
                let is_away = error.is_of_now();
                Err(OpenError::Elsewhere { store: self.place.clone(), source: Box::new(error), is_away })
            }
        }
    }

    fn place(&self) -> Place<'_> {
        Place::Elsewhere(&self.place)
    }

    fn compare(&self, other: &dyn Backing) -> Likeness {
        let is_same = (other as &dyn Any).downcast_ref() == Some(self);
        if is_same { Likeness::Same } else { Likeness::Other }
    }
}
