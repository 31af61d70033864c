//! Encrypted reads beside somebody who sees each packet of an answer, and sends others before and after it that name the same place, or
//! another one. They are decrypted before anybody knows that they are forged.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use sanwire_core::Protection;
use sanwire_hdsp::ClientEvent;
use sanwire_hdsp::wire::pdu::PDU_BYTES;
use sanwire_hdsp::wire::{DiskType, Pdu};

use crate::world::{Habits, Sender, World, path, read, write};

/// Packets of which none is authentic: other data at the same place, another tag, other fields.
fn forgeries(seen: &[u8]) -> Vec<Vec<u8>> {
    let (flags, count, place, command, group, serial) = (8, 10, [12, 17], 19, 23, 27);
    let ends = [(PDU_BYTES, 1), (seen.len() - 17, 1), (seen.len() - 1, 0x80)];
    let places = place.into_iter().flat_map(|at| [1, 2, 3, 4, 8, 0x20].map(|bits| (at, bits)));
    let others = [(flags, 8), (count, 1), (count, 3), (command, 1), (group, 1), (serial, 1), (serial, 0x40)];
    let flipped = |(at, bits): (usize, u8)| {
        let mut forged = seen.to_vec();
        forged[at] ^= bits;
        forged
    };
    ends.into_iter().chain(places).chain(others).map(flipped).collect()
}

/// What is read when the packets of the answer come like this, and how many forged ones are refused.
fn read_beside_forgeries(
    protection: Protection,
    disk_type: DiskType,
    is_reversed: bool,
    data: &[u8],
) -> (Vec<u8>, u64) {
    let mut world = World::new(Habits { protection, disk_type, ..Habits::default() });
    world.ends(write(disk_type, 5, data));
    let seen: Rc<RefCell<Vec<Vec<u8>>>> = Rc::default();
    let sight = Rc::clone(&seen);
    world.loses = Box::new(move |sender, packet| {
        let is_answer = sender == Sender::Server && Pdu::read(packet).is_ok();
        if is_answer {
            sight.borrow_mut().push(packet.to_vec());
        }
        is_answer
    });
    world.client.order(read(disk_type, 5, data.len() as u64 / 512), world.now).unwrap();
    for _ in 0..10_000 {
        let ended = world.wait(Duration::from_millis(1)).into_iter().find_map(|event| match event {
            ClientEvent::Ended { data, data_bytes, .. } => data.map(|data| data[..data_bytes].to_vec()),
            _ => None,
        });
        if let Some(read) = ended {
            return (read, world.client.counters().not_authentic);
        }
        let mut packets = seen.take();
        if is_reversed {
            packets.reverse();
        }
        for packet in packets {
            let forged = forgeries(&packet);
            forged.iter().for_each(|forged| world.client.handle_input(path(0), forged, world.now));
            world.client.handle_input(path(0), &packet, world.now);
            forged.iter().for_each(|forged| world.client.handle_input(path(0), forged, world.now));
        }
    }
    panic!("the read does not end");
}

#[test]
fn forged_packets_change_no_data_that_comes_beside_them() {
    let data: Vec<u8> = (0..60 * 512usize).map(|at| (at * 7 + at / 512) as u8).collect();
    for protection in [Protection::Aes128Gcm, Protection::Aes256Gcm, Protection::ChaCha20Poly1305] {
        for (disk_type, is_reversed) in [(DiskType::Sata, false), (DiskType::Sata, true), (DiskType::Scsi, false)] {
            let (read, refused) = read_beside_forgeries(protection, disk_type, is_reversed, &data);
            assert!(read == data, "{protection} {disk_type:?} {is_reversed}");
            assert!(refused > 500, "{protection} {disk_type:?} {is_reversed}: {refused}");
        }
    }
}
