//! Arrays for who knows that what is written is one: to use it, or only to look at it.

use std::any::Any;
use std::sync::Arc;

use sanwire_array::{ArrayError, Table, View};
use sanwire_store::{OpenError, Store, StoreSpec};

use super::kind::ArrayBacking;
use super::members::drive;
use super::purpose::Purpose;

/// An array that this host has in use until the store is dropped.
#[derive(Debug)]
pub struct Assembled {
    /// The array, with the layers that are written over it.
    pub store: Arc<dyn Store>,
    /// What tells it from all other arrays, also of its name.
    pub identity: String,
}

/// An array that is only read.
#[derive(Debug)]
pub struct Looked {
    /// The array, with the layers that are written over it.
    pub store: Arc<dyn Store>,
    view: View,
}

impl Looked {
    /// What tells it from all other arrays, also of its name.
    #[must_use]
    pub fn identity(&self) -> String {
        identity(&self.view.table().array)
    }

    /// What its labels say.
    #[must_use]
    pub fn table(&self) -> &Table {
        self.view.table()
    }

    /// For each member, whether it was found.
    #[must_use]
    pub fn found(&self) -> &[bool] {
        self.view.found()
    }

    /// Whoever has read it looks whether nobody has used it meanwhile.
    ///
    /// # Errors
    /// As for [`View::check`].
    pub fn check(&self) -> Result<(), ArrayError> {
        self.view.check(&mut drive)
    }
}

/// Assembles the array that is written so; `None`: no array is.
#[must_use]
pub fn assemble(spec: &StoreSpec) -> Option<Result<Assembled, OpenError>> {
    let array = array_of(spec)?;
    Some(array.assemble().map(|kept| {
        let identity = identity(&kept.id());
        Assembled { store: spec.over(kept.into_store()), identity }
    }))
}

/// Looks at the array that is written so, without reserving anything; to read it, only while no other host has it. `None`: no array is.
#[must_use]
pub fn look(spec: &StoreSpec, purpose: Purpose) -> Option<Result<Looked, OpenError>> {
    let array = array_of(spec)?;
    Some(array.look(purpose).map(|view| Looked { store: spec.over(Arc::new(view.clone())), view }))
}

fn array_of(spec: &StoreSpec) -> Option<&ArrayBacking> {
    (&*spec.backing as &dyn Any).downcast_ref()
}

fn identity(id: &[u8; 16]) -> String {
    let digits: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("array.{digits}")
}
