//! The question who is there, and its answer.

use sanwire_buffer::Packet;
use sanwire_core::ClientId;

use crate::wire::Kind;
use crate::wire::header::{RawPacket, open_packet};
use crate::wire::offer::Found;
use crate::wire::setup::{Accept, Connect, steering_word};

/// Asks who is there, in the name of this client.
#[must_use]
pub fn discovery(client: ClientId, server_name: &str, attempt: u64) -> Packet {
    let noise = [0; 32];
    let connect = Connect { is_query: true, attempt, client, session: 0, server_name, noise, cookie: None };
    let head = open_packet(Kind::Connect, false, steering_word(client), &connect.write()).into();
    Packet::new(head, None)
}

/// The server that a packet tells of, if it answers the question with this number.
#[must_use]
pub fn found(packet: &[u8], asked: u64) -> Option<Found> {
    let raw = RawPacket::read(packet).ok().filter(|raw| raw.header.kind == Kind::Accept && raw.is_whole())?;
    match Accept::read(raw.payload) {
        Ok(Accept::Found { attempt, found }) if attempt == asked => Some(found),
        _ => None,
    }
}
