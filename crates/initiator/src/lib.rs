//! The client: a [`Volume`] is one logical unit of a server, whatever the wire.
#![forbid(unsafe_code)]

mod client;
mod discover;
mod driver;
mod endpoint;
mod inventory;
mod queue;
mod session;
mod translate;
mod url;
mod volume;

pub use client::{Client, ClientOptions};
pub use discover::{Found, discover, everybody_on};
pub use endpoint::ConnectError;
pub use queue::{Completer, Notify, Op, OpKind, OpOutput, OpQueue, QUEUE_OPS_MAX};
pub use session::Failure;
pub use url::{HS_IP_PORT, Server, Station, Url, UrlError};
pub use volume::{BufferPool, InfoCell, Volume, VolumeError, VolumeInfo};
