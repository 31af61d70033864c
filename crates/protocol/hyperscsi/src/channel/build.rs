//! A data packet from the piece of a message that it carries.

use sanwire_buffer::Packet;

use super::messages::Message;
use super::packet_protection::PacketProtection;
use super::send::Sent;
use crate::wire::command::Fragment;
use crate::wire::packet::guard_bytes;
use crate::wire::{Header, OVERHEAD_BYTES, Opcode, fragment_number};

/// What a packet says besides its data.
pub(super) struct Fields {
    pub(super) opcode: Opcode,
    pub(super) sequence: u64,
    pub(super) acknowledgement: u64,
    pub(super) answer_at_once: bool,
}

fn message_head<'a>(message: &'a Message, sent: &Sent) -> &'a [u8] {
    if sent.fragment == 0 { message.head() } else { &[] }
}

/// How large the packet will be.
pub(super) fn packet_bytes(message: &Message, sent: &Sent) -> u32 {
    let fixed = OVERHEAD_BYTES + guard_bytes(message.protection()) + message_head(message, sent).len();
    fixed as u32 + sent.data_bytes
}

/// Makes the packet anew, under a number that was never used.
pub(super) fn build(fields: &Fields, message: &Message, sent: &Sent, guard: &mut PacketProtection) -> Option<Packet> {
    let opcode = message.opcode(fields.opcode);
    let header = Header { tag: message.tag(), last: sent.last, fragment: fragment_number(sent.fragment), opcode };
    let message_head = message_head(message, sent);
    let fragment = Fragment {
        sequence: fields.sequence,
        data_offset: sent.data_offset,
        data_length: message.data_length(),
        acknowledgement: fields.acknowledgement as u32,
        head_length: message_head.len() as u16,
        answer_at_once: fields.answer_at_once,
        expanded_kib: message.expanded_kib(),
    };
    message.prefetch(sent.data_offset + sent.data_bytes);
    let payload = message.data(sent.data_offset, sent.data_bytes);
    guard.data(header, message.protection(), [&fragment.write(), message_head], payload)
}
