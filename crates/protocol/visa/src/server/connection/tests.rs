//! Connections that keep memory.

use sanwire_core::Protection;
use sanwire_exchange::{Ask, RequestHead};
use sanwire_scsi::Cdb;

use super::*;
use crate::channel::testing::{START, end, message, terms};
use crate::wire::message::{PROLOGUE_BYTES, Prologue};
use crate::wire::{Guarding, Kind};

const TENTH: Duration = Duration::from_millis(100);

fn connection() -> Connection {
    Connection::new(end(true, terms(), false), NexusId(1), terms(), ([0; 32], Vec::new()))
}

/// After how many tenths of a second a connection is in the way that does this in each.
fn found(mut connection: Connection, mut each: impl FnMut(&mut Connection, u32, Instant)) -> Option<u32> {
    (0..60).find(|tenths| {
        let now = START + TENTH * *tenths;
        each(&mut connection, *tenths, now);
        connection.hoards(now)
    })
}

/// A WRITE of which so many bytes come in each tenth of a second.
fn trickling_write(bytes_each: usize) -> Option<u32> {
    let memory = Region::new(1 << 20).unwrap();
    let ask = Ask::Command(Cdb::new(&[0x2a, 0, 0, 0, 0, 0, 0, 4, 0, 0]).unwrap());
    let head = RequestHead { number: 0, settled_below: 0, receipts: 0, lun: [0; 8], data_in_max_bytes: 0, ask }.write();
    let prologue = Prologue { head_bytes: head.len() as u16, data_bytes: 512 << 10 }.write();
    let before = [&prologue[..], &head[..]].concat();
    let mut have = 0;
    found(connection(), |connection, tenths, now| {
        let payload = if tenths == 0 { before.clone() } else { vec![7; bytes_each] };
        let offset = if tenths == 0 { 0 } else { PROLOGUE_BYTES + head.len() + have };
        let guarding = Guarding::By(Protection::Hash);
        let header =
            Header { first: tenths == 0, offset: offset as u32, guarding, ..Header::single(Kind::Data, false, 9) };
        connection.intake.take(&header, &payload, (&memory, 1 << 20), now).unwrap();
        have += if tenths == 0 { 0 } else { bytes_each };
    })
}

#[test]
fn who_sends_a_request_byte_by_byte_is_in_the_way() {
    assert_eq!(trickling_write(1), Some(20));
    assert_eq!(trickling_write(4000), None, "a slow path is slow");
}

/// Answers of which the client acknowledges so many packets in each tenth of a second.
fn trickling_answer(packets_each: u32) -> Option<u32> {
    let mut connection = connection();
    connection.channel.send(message(200_000, Protection::Hash), START);
    let (mut client, mut sent) = (end(false, terms(), false), 0);
    found(connection, |connection, tenths, now| {
        sent += std::iter::from_fn(|| connection.channel.poll_transmit(now)).count() as u32;
        if tenths == 0 {
            return;
        }
        let next = sent.min(tenths * packets_each);
        let ack = crate::wire::flow::Ack { next, newest: next - 1, delay_us: 0, room_packets: 64, map: Vec::new() };
        let packet = client.seal(Kind::Ack, &ack.write()).unwrap().to_vec();
        connection.channel.handle_control(&RawPacket::read(&packet).unwrap(), now).unwrap();
        connection.channel.handle_timeout(now);
    })
}

#[test]
fn who_takes_answers_packet_by_packet_is_in_the_way() {
    assert_eq!(trickling_answer(1), Some(20));
    assert_eq!(trickling_answer(3), None);
}
