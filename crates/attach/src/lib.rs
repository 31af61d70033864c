//! A [`Volume`](sanwire_initiator::Volume) as a local block device: over NBD, or as a file (FUSE) with a loop device.
#![forbid(unsafe_code)]

mod attachment;
mod bytes;
mod device_name;
mod executor;
mod filesystem;
mod growth;
mod latch;
mod loop_device;
mod nbd;
mod range_lock;
mod record;
mod registry;
mod remains;
mod telling;
#[cfg(test)]
mod test_volume;

pub use attachment::{AttachError, Attachment, Ended, FuseOptions, LoopError, attach_fuse};
pub use device_name::DeviceName;
pub use latch::Latch;
pub use loop_device::{DeviceJob, Helper, perform};
pub use nbd::{NbdAddress, NbdClients, NbdError, NbdServer, serve_nbd};
pub use record::{Kind, Record};
pub use registry::{Detached, Listing, Registry, RegistryError};
pub use telling::Telling;
