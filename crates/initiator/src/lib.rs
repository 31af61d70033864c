//! The client: a [`Volume`] is one logical unit of a server, whatever the wire.
#![forbid(unsafe_code)]

mod claim;
mod claims;
mod client;
mod driver;
mod endpoint;
mod inventory;
mod keeper;
mod looker;
mod options;
mod pauser;
mod ports;
mod queue;
mod random;
mod resolve;
mod session;
mod translate;
mod url;
mod volume;

pub use claim::{Claim, Unclaimed};
pub use claims::Claims;
pub use client::Client;
pub use driver::OptionChanges;
pub use endpoint::ConnectError;
pub use looker::{ConnectionLook, Looker};
pub use options::{ClientOptions, IscsiOptions, IserPath, Links, ParseIserPathError};
pub use pauser::Pauser;
pub use queue::{
    AllocatedRun, Completer, Notify, Op, OpClass, OpCounts, OpDurations, OpKind, OpOutput, OpQueue, QUEUE_OPS_MAX,
    VolumeLooker,
};
pub use session::table::{AoeAddress, HS_IP_PORT, VISA_PORT};
pub use session::{
    AoeTarget, DiskType, Failure, Found, FoundLink, HdspFound, LinkStatus, VisaFound, VisaWishes, aoe_targets,
    discover, hdsp_servers, targets, visa_servers,
};
pub use url::{AoeServer, HdspServer, HyperScsiServer, IscsiServer, Server, Station, Url, UrlError, VisaServer};
pub use volume::{BufferPool, InfoCell, Volume, VolumeError, VolumeInfo, WireUnit};
