//! The server: volumes, wires, access rules, and the shards that bring them together.
//!
//! [`Server::start`] opens everything and starts one thread for each shard; each thread owns its ports, its sessions and
//! its I/O engine, and they share the logical units only. One more thread, the login listener, takes TCP connections and hands
//! them to a shard when their login has passed.
#![forbid(unsafe_code)]

mod allow;
mod announce;
mod budget;
mod channel;
mod client_counts;
mod command;
mod config;
mod counting;
mod derived;
mod direct;
mod error;
mod events;
mod flushing;
mod free_number;
mod front;
mod kept;
mod latest_time;
mod link;
mod logging;
mod login_listener;
mod manage;
mod management_queue;
mod messages;
mod opener;
mod paged_map;
mod past_uses;
mod pattern;
mod persist;
mod pools;
mod programs;
mod protection_table;
mod pulse;
mod random;
mod records;
mod refusals;
mod registry;
mod removal;
mod reservations;
mod revisions;
mod server;
mod sessions;
mod shard;
mod slots;
mod streams;
#[cfg(test)]
mod visits;
mod volumes;
mod wall_time;
mod wire;
mod writes;

pub use allow::{AllowList, AllowRule, AllowRuleError, IpPrefix};
pub use announce::{AnnounceRule, AnnounceRuleError, Announced};
pub use budget::DESCRIPTORS_WANTED;
pub use config::{Origin, ServerConfig, VolumeConfig};
pub use derived::{DerivedError, chap_users_of, check_derived, program_of, register as register_dvd};
pub use direct::{CopyOrderers, CopyOrderersError, CopyPlace, CopyPlaceError, DirectCopies, ReadClientId};
pub use error::{StartError, listening_advice};
pub use events::{Event, EventFilter, EventResult, EventTopic, Events, Happening, PoolBound};
pub use front::hyperscsi::clients::{
    ChangeError, ClientConfig, ClientError, ClientSettings, Compression, NoCompression, NoSecret, Secret, WEIGHT_MAX,
};
pub use front::iscsi::redirection::{NoPortal, Redirection};
pub use front::iscsi::target_node::{TargetNodeConfig, TargetNodeError};
pub use front::iscsi::target_settings::{ChapUser, SetSecret, TargetSettings, TargetSettingsError, TargetTerms};
pub use front::visa::Wishes as VisaWishes;
pub use kept::{Keeps, StateError};
pub use manage::{
    AccessChange, Answer, AnswerPage, ArrayGrowth, Asker, AttachedArray, AuditLines, AuditQuery, AuditResult, Clearing,
    ClientStatus, Collections, CommandStatus, ConfigurationStatus, ConfiguredPool, ConfiguredTarget, ConfiguredUnit,
    ConfiguredVolume, ConnectionStatistics, CopyError, CopyOrder, CopyProgress, CopyTerms, DataStatistics,
    DerivedStatus, Deviation, DvdEnd, DvdStatus, GroupStatus, HostStatus, JobState, JobStatus, LinkFor, LinkStatus,
    ManageError, ManagementHandle, Manager, MemberReplacement, MetricsText, MissingStatus, NewDvd, NewDvds, PortState,
    PrincipalStatus, ProgramStatus, QuotaStatistics, REQUEST_MAX_BYTES, RdmaStatistics, Refusal, RegionStatus,
    RegistrantStatus, RemoteStatistics, Request, ReservationKind, ReservationsStatus, Response, RunStatus, SCHEMA,
    Source, Statistics, Status, SupportBundle, TargetStatus, VolumeStatistics, VolumeStatus, Waits, WebLinkError,
    without_values,
};
pub use pattern::{InitiatorPattern, NoPattern, VolumePattern};
pub use persist::replace_file;
pub use pools::{PoolConfig, PoolConfigError, PoolError, PoolStatus, SnapshotStatus, obstacles_of_layers};
pub use programs::check_module_file;
pub use pulse::Pulse;
pub use removal::Removal;
pub use server::Server;
pub use sessions::SessionStatus;
pub use wall_time::{written_millis, written_seconds};
pub use wire::{Wire, WireError};
