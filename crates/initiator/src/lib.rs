//! The client: a [`Volume`] is one logical unit of a server, whatever the wire.
#![forbid(unsafe_code)]

mod client;
mod discover;
mod driver;
mod endpoint;
mod inventory;
mod keeper;
mod options;
mod pauser;
mod ports;
mod queue;
mod resolve;
mod session;
mod targets;
mod translate;
mod url;
mod volume;

pub use client::Client;
pub use discover::{Found, FoundLink, discover};
pub use driver::OptionChanges;
pub use endpoint::ConnectError;
pub use options::{ClientOptions, IscsiOptions, Links};
pub use pauser::Pauser;
pub use queue::{AllocatedRun, Completer, Notify, Op, OpKind, OpOutput, OpQueue, QUEUE_OPS_MAX};
pub use sanwire_hyperscsi::LinkStatus;
pub use session::Failure;
pub use targets::targets;
pub use url::{HS_IP_PORT, HyperScsiServer, IscsiServer, Server, Station, Url, UrlError};
pub use volume::{BufferPool, InfoCell, Volume, VolumeError, VolumeInfo, WireUnit};
