//! `none:`: no medium, for a drive that begins empty.

use std::any::Any;
use std::sync::Arc;

use super::{Backing, Likeness, Place, StoreKind};
use crate::spec::{SpecError, Written};
use crate::{Expectation, Known, OpenError, Store};

pub(super) struct NoneKind;

#[derive(Debug)]
struct NoneBacking;

impl StoreKind for NoneKind {
    fn words(&self) -> &'static [&'static str] {
        &["none"]
    }

    fn form(&self) -> &'static str {
        "none: (a drive without a disc)"
    }

    fn lacks(&self, _key: &str) -> &'static str {
        "there is no disc yet that it could be for"
    }

    fn read(&self, written: &Written<'_>) -> Result<Arc<dyn Backing>, SpecError> {
        if written.place().is_empty() { Ok(Arc::new(NoneBacking)) } else { Err(written.is_no_store()) }
    }
}

impl Backing for NoneBacking {
    fn open(&self, _: Option<&Expectation<'_>>) -> Result<(Arc<dyn Store>, Option<Known>), OpenError> {
        Err(OpenError::NoMedium)
    }

    fn place(&self) -> Place<'_> {
        Place::Nowhere
    }

    fn compare(&self, other: &dyn Backing) -> Likeness {
        if (other as &dyn Any).is::<Self>() { Likeness::Same } else { Likeness::Other }
    }
}
