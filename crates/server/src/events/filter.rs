//! Which events somebody wants to be told of.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::happening::Happening;

/// Which events somebody wants to be told of: those that fit all that is said.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EventFilter {
    /// Of these topics; without any, of all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub topics: Vec<EventTopic>,
    /// Of clients whose id, name or address has this in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Of this volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// How it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<EventResult>,
}

/// What an event is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventTopic {
    /// Volumes, their stores, and pools.
    Volumes,
    /// Sessions of every wire.
    Sessions,
    /// What somebody was refused.
    Refusals,
    /// Wires that go and come back.
    Links,
    /// Changes that take long.
    Jobs,
    /// Reloads, and iSCSI targets that are made, set and removed.
    Configuration,
}

/// How something has ended that an event tells of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EventResult {
    /// As it should.
    Done,
    /// It was refused, has failed, or is away.
    Refused,
}

impl EventFilter {
    pub(super) fn admits(&self, what: &Happening) -> bool {
        (self.topics.is_empty() || self.topics.contains(&what.topic()))
            && self.client.as_ref().is_none_or(|client| what.who().is_some_and(|who| who.contains(client)))
            && self.volume.as_ref().is_none_or(|volume| what.volume() == Some(volume))
            && self.result.is_none_or(|result| what.result() == result)
    }
}

impl Happening {
    /// The topic of which it is.
    fn topic(&self) -> EventTopic {
        match self {
            Happening::VolumeAdded { .. }
            | Happening::VolumeRemoved { .. }
            | Happening::DvdCreated { .. }
            | Happening::DvdChanged { .. }
            | Happening::DvdRevoked { .. }
            | Happening::DvdExpired { .. }
            | Happening::VolumeResized { .. }
            | Happening::SnapshotTaken { .. }
            | Happening::SnapshotDeleted { .. }
            | Happening::RolledBack { .. }
            | Happening::Cloned { .. }
            | Happening::ContentDeleted { .. }
            | Happening::ReservationsCleared { .. }
            | Happening::StoreFailing { .. }
            | Happening::StoreWorking { .. }
            | Happening::PoolFilling { .. } => EventTopic::Volumes,
            Happening::SessionOpened { .. } | Happening::SessionClosed { .. } => EventTopic::Sessions,
            Happening::Refused { .. } | Happening::DvdRefused { .. } | Happening::DvdUseRefused { .. } => {
                EventTopic::Refusals
            }
            Happening::LinkLost { .. } | Happening::LinkBack { .. } => EventTopic::Links,
            Happening::JobBegun { .. } | Happening::JobEnded { .. } => EventTopic::Jobs,
            Happening::Reloaded { .. }
            | Happening::TargetAdded { .. }
            | Happening::TargetChanged { .. }
            | Happening::TargetRemoved { .. } => EventTopic::Configuration,
        }
    }

    fn who(&self) -> Option<&str> {
        match self {
            Happening::SessionOpened { who, .. }
            | Happening::SessionClosed { who, .. }
            | Happening::Refused { who, .. }
            | Happening::DvdRefused { who, .. }
            | Happening::DvdUseRefused { who, .. } => Some(who),
            _ => None,
        }
    }

    fn volume(&self) -> Option<&String> {
        match self {
            Happening::VolumeAdded { volume }
            | Happening::VolumeRemoved { volume }
            | Happening::DvdCreated { volume, .. }
            | Happening::DvdChanged { volume, .. }
            | Happening::DvdRevoked { volume, .. }
            | Happening::DvdExpired { volume, .. }
            | Happening::DvdRefused { volume, .. }
            | Happening::DvdUseRefused { volume, .. }
            | Happening::VolumeResized { volume, .. }
            | Happening::SnapshotTaken { volume, .. }
            | Happening::SnapshotDeleted { volume, .. }
            | Happening::RolledBack { volume, .. }
            | Happening::Cloned { volume, .. }
            | Happening::ContentDeleted { volume }
            | Happening::ReservationsCleared { volume, .. }
            | Happening::StoreFailing { volume, .. }
            | Happening::StoreWorking { volume, .. } => Some(volume),
            _ => None,
        }
    }

    fn result(&self) -> EventResult {
        match self {
            Happening::Refused { .. }
            | Happening::DvdRefused { .. }
            | Happening::DvdUseRefused { .. }
            | Happening::StoreFailing { .. }
            | Happening::LinkLost { .. }
            | Happening::JobEnded { refused: Some(_), .. } => EventResult::Refused,
            _ => EventResult::Done,
        }
    }
}
