//! Several shards behind one address: each takes what is its own, and draws ports that lead to it.

use std::time::Duration;

use sanwire_buffer::Region;
use sanwire_hdsp::ClientEvent;
use sanwire_hdsp::wire::{DiskType, Header};

use crate::world::{Habits, World, read, shard_of_server};

const SHARDS: u32 = 3;

#[test]
fn a_client_finds_one_shard_and_stays_there() {
    let mut at_home = 0;
    for shard in 0..SHARDS {
        let mut world = World::new(Habits::default());
        world.server = shard_of_server(&world.door, 1, &Region::new(8 << 20).unwrap(), (shard, SHARDS));
        let events = world.wait(Duration::from_secs(1));
        let headers: Vec<Header> = world.sent.iter().map(|packet| Header::read(packet).unwrap()).collect();
        let client_port = headers[0].client_port;
        if u32::from(client_port) % SHARDS != shard {
            assert!(headers.iter().all(|header| !header.from_server), "who is not meant is silent");
            assert!(world.server.counters().misdirected > 0 && !world.client.is_connected());
            continue;
        }
        at_home += 1;
        assert!(events.iter().any(|event| matches!(event, ClientEvent::Connected(_))), "{events:?}");
        world.executes = true;
        assert!(world.ends(read(DiskType::Sata, 8, 4)).1.is_some());
        let headers = world.sent.iter().map(|packet| Header::read(packet).unwrap());
        assert!(headers.into_iter().all(|header| header.connection() % SHARDS == shard), "all of it is steered there");
        assert_eq!(world.opened[0].0, 300 + u64::from(shard), "no other shard gives this number");
    }
    assert_eq!(at_home, 1);
}
