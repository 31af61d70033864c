//! The vocabulary that every room of Sanwire shares: time, identifiers, limits and sizes.
//!
//! This crate depends on nothing and does nothing: it only gives things their names, so that a protocol and a
//! device can speak of the same logical unit without knowing each other.
#![forbid(unsafe_code)]

mod carried;
mod deadlines;
mod device_type;
mod durations;
mod headway;
mod id;
pub mod limits;
mod movement;
mod net;
mod outages;
mod principal;
mod protection;
pub mod quota;
pub mod read;
mod session_end;
mod size;
mod tally;
pub mod text;
mod time;
mod wall_clock;

pub use carried::Carried;
pub use deadlines::{Alarm, Deadlines};
pub use device_type::DeviceType;
pub use durations::Durations;
pub use headway::{HEADWAY_PERIOD, Headway};
pub use id::{ClientId, Lun, NexusId, ParseClientIdError};
pub use movement::{Movement, Rdma};
pub use net::{HostAddress, LinkId, MacAddress, ParseMacAddressError, Path, Peer, source};
pub use outages::Outages;
pub use principal::Principal;
pub use protection::{ParseProtectionError, Protection};
pub use session_end::SessionEnd;
pub use size::{ParseSizeError, Size};
pub use tally::Tally;
pub use time::Instant;
pub use wall_clock::WallClock;
