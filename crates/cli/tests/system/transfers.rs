//! The longest transfers, on links of small and of large packets.

use std::time::Duration;

use sanwire_initiator::{Client, ClientOptions, Volume};
use serde_json::Value;

use crate::harness::{SERVER_ADDRESS, Server, Wire, World, expect_pattern, pattern, run_ok};

const TIMEOUT: Duration = Duration::from_secs(120);
const HYPERSCSI_BYTES: usize = 3 << 20;
const ISCSI_BYTES: usize = 16 << 20;
const VISA_BYTES: usize = 1 << 20;

#[test]
fn the_longest_transfers_come_whole_with_mtu_9000() {
    move_whole("the_longest_transfers_come_whole_with_mtu_9000", 9000);
}

#[test]
fn the_longest_transfers_come_whole_with_mtu_1500() {
    move_whole("the_longest_transfers_come_whole_with_mtu_1500", 1500);
}

fn move_whole(test: &str, mtu: u32) {
    let Some(world) = World::new(test, mtu, &[]) else { return };
    let volumes = [format!("disk=file:{},size=128M", world.scratch.text("disk.img")), "memory=ram:128M".to_owned()];
    let portals = ["iscsi", "visa"].map(|wire| format!("{wire}:{SERVER_ADDRESS}"));
    let options = ["--allow", "any", "--wire", &portals[0], "--wire", &portals[1]];
    let mut server = Server::start_with(&world, &[&volumes[0], &volumes[1]], &options);
    for (wire, longest) in [
        (Wire::Ethernet, HYPERSCSI_BYTES),
        (Wire::Ip, HYPERSCSI_BYTES),
        (Wire::Iscsi, ISCSI_BYTES),
        (Wire::Visa, VISA_BYTES),
        (Wire::VisaTcp, VISA_BYTES),
    ] {
        for name in ["disk", "memory"] {
            let url = wire.url(name);
            let info = run_ok(world.sanwire(&["info", "--json", &url]), TIMEOUT);
            let info: Value = serde_json::from_str(&info).expect("what it is");
            assert_eq!(info["transfer_max_bytes"].as_u64(), Some(longest as u64), "{url}: {info}");
            world.as_client(|| {
                let options = ClientOptions::anonymous().expect("options");
                let url = url.parse().expect("a URL");
                let mut client = Client::connect(&url, &options).expect("a connection");
                let volume = client.open(url.volume().expect("a volume")).expect("the volume");
                client.block_on(write_and_read(&volume, longest));
            });
        }
    }
    assert!(server.stop().success(), "{}", server.log());
}

/// Some at once.
async fn write_and_read(volume: &Volume, length: usize) {
    let each = |number: u64| async move {
        let offset = 512 + number * length as u64;
        let mut frame = volume.buffer(length).await.expect("memory");
        frame.copy_from_slice(&pattern(number, length));
        volume.write(offset, frame.freeze()).await.expect("it is written");
        let found = volume.read(offset, volume.buffer(length).await.expect("memory")).await.expect("it is read");
        expect_pattern("what was written", &found, number);
    };
    futures_util::future::join_all((0..6).map(each)).await;
}

#[test]
fn bench_moves_as_much_at_once_as_each_wire_takes() {
    let Some(world) = World::new("bench_moves_as_much_at_once_as_each_wire_takes", 9000, &[]) else { return };
    let volume = format!("disk=file:{},size=256M", world.scratch.text("disk.img"));
    let mut server = Server::start_for(&world, Wire::Iscsi, &[&volume]);
    for (wire, block, bytes) in
        [(Wire::Ethernet, "3M", 3 << 20), (Wire::Ip, "3M", 3 << 20), (Wire::Iscsi, "8M", 8 << 20)]
    {
        for reads in ["100", "0", "50"] {
            let url = wire.url("disk");
            let options = ["--block", block, "--depth", "16", "--reads", reads, "--time", "1", "--overwrite", "--json"];
            let told = run_ok(world.sanwire(&[&["bench", &url], &options[..]].concat()), TIMEOUT);
            let told: Value = serde_json::from_str(&told).expect("what was measured");
            let count = |what: &str| told[what].as_u64().unwrap_or(0);
            assert_eq!(count("block_bytes"), bytes, "{told}");
            let (is_read, is_written) = (count("reads") > 0, count("writes") > 0);
            assert_eq!((is_read, is_written), (reads != "0", reads != "100"), "{told}");
        }
    }
    assert!(server.stop().success(), "{}", server.log());
}
