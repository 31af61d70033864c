//! How the data of answers comes to its place, and in which segments of TCP.

use sanwire_core::Movement;

use super::{Client, Stage};
use crate::ConnectionId;

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

    /// The segments of a connection's TCP have so many bytes: to be told once it is there.
    pub fn note_segment_bytes(&mut self, connection: ConnectionId, segment_bytes: usize) {
        match self.connections.iter_mut().find(|known| known.id == connection).map(|known| &mut known.stage) {
            Some(Stage::Login(entering)) => entering.note_segment_bytes(segment_bytes),
            Some(Stage::Full(link)) => link.mover.note_segment_bytes(segment_bytes),
            Some(Stage::Opening) | None => {}
        }
    }
}
