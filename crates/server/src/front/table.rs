//! The front ends that there are: the one place that names them all.

use std::sync::Arc;

use sanwire_buffer::Region;
use sanwire_io::Port;

use super::{FrontBuilder, LoginService, hyperscsi, iscsi};
use crate::clients::Clients;
use crate::config::ServerConfig;
use crate::directory::TargetNodes;
use crate::error::StartError;
use crate::management_queue::ManagementQueue;
use crate::messages::Mailbox;
use crate::protection_table::ProtectionTable;

/// What the front ends of a shard are made of.
pub(crate) struct FrontParts<'a> {
    pub(crate) config: &'a ServerConfig,
    /// The ports of the front end.
    pub(crate) ports: Vec<&'a Port>,
    pub(crate) shard: u32,
    /// The memory of the shard.
    pub(crate) memory: Region,
    pub(crate) clients: &'a Arc<Clients>,
    pub(crate) levels: &'a Arc<ProtectionTable>,
    pub(crate) targets: &'a Arc<TargetNodes>,
    /// Which run of the server this is.
    pub(crate) instance: u64,
    /// Where requests to manage the server go.
    pub(crate) inbox: &'a ManagementQueue,
    /// The way to the shard.
    pub(crate) home: &'a Mailbox,
}

type Open = fn(&FrontParts<'_>) -> Result<FrontBuilder, StartError>;

/// By their places in each shard.
const FRONTS: [Open; 2] = [hyperscsi::open, iscsi::open];

/// The place of HyperSCSI.
pub(crate) const HYPERSCSI: u8 = 0;
/// The place of iSCSI.
pub(crate) const ISCSI: u8 = 1;

/// Prepares the front ends of a shard; `ports` gives those of each.
pub(crate) fn builders<'a>(
    mut parts: FrontParts<'a>,
    ports: impl Fn(u8) -> Vec<&'a Port>,
) -> Result<Vec<FrontBuilder>, StartError> {
    let mut builders = Vec::new();
    for (place, open) in (0..).zip(FRONTS) {
        parts.ports = ports(place);
        builders.push(open(&parts)?);
    }
    Ok(builders)
}

/// The logins of a front end whose connections begin with one.
pub(crate) fn logins(front: u8, targets: &Arc<TargetNodes>) -> Option<Arc<dyn LoginService>> {
    (front == ISCSI).then(|| Arc::new(iscsi::Logins { front, targets: Arc::clone(targets) }) as _)
}
