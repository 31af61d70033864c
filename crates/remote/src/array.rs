//! Arrays as stores: members are opened wherever they are, and kept the same while the array is in use.

mod copies;
mod discovery;
mod keeper;
mod kind;
mod looking;
mod members;
mod opening;
mod purpose;

pub use discovery::{Discover, Discovered, FoundVolume};
pub use kind::ArrayKind;
pub use members::{Members, drive, fresh, step};
pub use opening::{Assembled, Looked, assemble, look};
pub use purpose::{Opening, Purpose};
