//! What the thread of the logins is made of, and what it hands over.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use sanwire_io::Waker;

use super::LoginAccounts;
use crate::budget::Budget;
use crate::channel::{Channel, Listener};
use crate::front::{Admission, LoginService, Newcomer};
use crate::management_queue::ManagementQueue;
use crate::messages::Mailbox;
use crate::registry::{Registry, Seat};

/// A connection that has passed its login, on its way to a shard.
pub(crate) struct Arrival {
    pub(crate) channel: Channel,
    pub(crate) newcomer: Newcomer,
    pub(crate) admission: Admission,
    pub(crate) seat: Arc<Seat>,
}

/// Where connections are accepted.
pub(crate) struct Portal {
    /// None while its adapter is gone.
    pub(crate) listener: Option<Listener>,
    /// The tag of its portal group.
    pub(crate) group_tag: u16,
    pub(crate) logins: Arc<dyn LoginService>,
}

/// What the thread is made of.
pub(crate) struct FrontDeskParts {
    pub(crate) portals: Vec<Portal>,
    pub(crate) registry: Arc<Registry>,
    /// Where refusals go.
    pub(crate) inbox: ManagementQueue,
    pub(crate) budget: Budget,
    /// How many logins there may be.
    pub(crate) accounts: Arc<LoginAccounts>,
    pub(crate) shards: Arc<[Mailbox]>,
    pub(crate) waker: Waker,
    pub(crate) stop: Arc<AtomicBool>,
}

impl FrontDeskParts {
    /// What connections come to now, by the places of their portals.
    pub(super) fn listeners(&self) -> impl Iterator<Item = (u64, &Listener)> {
        let portals = (0..).zip(&self.portals);
        portals.filter_map(|(key, portal)| Some((key, portal.listener.as_ref()?)))
    }
}
