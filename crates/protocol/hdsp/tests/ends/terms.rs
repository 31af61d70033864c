//! W and N are negotiated: whatever the ends offer, the smaller of both holds.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use sanwire_hdsp::wire::{DiskType, Pdu};

use crate::world::{Habits, Sender, World, read, write};

/// Sectors of a command that takes 20 packets.
const SECTORS: u64 = 40;

/// Counts the data packets that the client sends without having heard anything, and gives the most.
fn watch_bursts(world: &mut World) -> Rc<Cell<u32>> {
    let most = Rc::new(Cell::new(0));
    let (seen, mut burst) = (Rc::clone(&most), 0);
    world.loses = Box::new(move |sender, packet| {
        burst = if sender == Sender::Server { 0 } else { burst + u32::from(Pdu::read(packet).is_ok()) };
        seen.set(seen.get().max(burst));
        false
    });
    most
}

#[test]
fn of_two_offers_the_smaller_window_and_the_smaller_groups_hold() {
    for (server_terms, client_terms) in [
        ((65_535, 256), (10, 2)),
        ((10, 2), (65_535, 256)),
        ((65_535, 2), (10, 256)),
        ((10, 256), (65_535, 2)),
        ((1, 256), (u32::MAX, 1)),
        ((u32::MAX, 1), (1, 256)),
        ((u32::MAX, 2), (u32::MAX, 2)),
    ] {
        let mut world = World::new(Habits { server_terms, client_terms, ..Habits::default() });
        let burst = watch_bursts(&mut world);
        let (window, group) = (server_terms.0.min(client_terms.0), server_terms.1.min(client_terms.1));
        let case = format!("{server_terms:?} and {client_terms:?}");
        world.wait(Duration::from_millis(100));
        let windows: Vec<u32> = world.server.connections().map(|connection| connection.window_packets).collect();
        assert_eq!(windows, [window], "{case}");
        let data: Vec<u8> = (0..SECTORS * 512).map(|byte| (byte * 7) as u8).collect();
        assert!(world.ends(write(DiskType::Sata, 5, &data)).1.is_none());
        assert_eq!(world.ends(read(DiskType::Sata, 5, SECTORS)).1.as_deref(), Some(&data[..]), "{case}");
        assert!((1..=window).contains(&burst.get()), "{} packets at once: {case}", burst.get());
        // Neither end makes larger groups than that.
        let packets: Vec<Pdu> = world.sent.iter().filter_map(|packet| Pdu::read(packet).ok()).collect();
        for from_server in [false, true] {
            let of_end = packets.iter().filter(|packet| packet.header.from_server == from_server);
            assert_eq!(of_end.map(|packet| packet.serial + 1).max(), Some(group), "{case}");
        }
        assert_eq!((world.server.counters().violations, world.client.counters().violations), (0, 0), "{case}");
    }
}
