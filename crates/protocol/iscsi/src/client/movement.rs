//! How the data of answers comes to its place.

use sanwire_core::Movement;

use super::{Client, Stage};

impl Client {
    /// How it has come on the connections that the session has now, together; `None` without a session.
    #[must_use]
    pub fn movement(&self) -> Option<Movement> {
        let mut sum: Option<Movement> = None;
        for known in &self.connections {
            if let Stage::Full(link) = &known.stage {
                sum.get_or_insert_default().add(&link.mover.movement());
            }
        }
        sum
    }
}
