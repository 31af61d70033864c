//! What several links carry: when one is cut, replaced or moved, and when they are unequal.
//!
//! What they carry is counted by the client's kernel.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Process, SERVER_NAME, Server, Wire, World, run_ok, wait_until};

const TIMEOUT: Duration = Duration::from_secs(60);

/// What a link must carry to be said to carry data.
pub const ENOUGH_BYTES: u64 = 4 << 20;

/// Rate of a link where time is measured, in Mbit/s: what two of them carry is no burden.
pub const CALM: u32 = 100;

/// Two links, of which each carries less than a client wants: data goes where it comes soonest, and else one may do for it.
pub fn two_links(test: &str) -> Option<World> {
    let world = World::new(test, 1500, &["tc"])?;
    world.add_path(1, 1500);
    [0, 1].iter().for_each(|number| world.shape(*number, CALM));
    Some(world)
}

/// Serves a volume on the first two links.
pub fn serve(world: &World, volume: &str) -> Server {
    Server::start_with(world, &[volume], &["--allow", "any", "--wire", "hs-eth:lan1"])
}

/// A client that reads and writes without end.
fn load(world: &World) -> Process {
    let url = Wire::Ethernet.url("disk");
    let bench = world.sanwire(&[
        "bench",
        &url,
        "--overwrite",
        "--block",
        "64K",
        "--depth",
        "8",
        "--reads",
        "50",
        "--time",
        "3600",
        "--log",
        "info",
    ]);
    Process::spawn("bench", bench, world.scratch.path("bench.log"))
}

/// Waits until each of these links has carried data from now on.
#[track_caller]
fn wait_for_data(world: &World, load: &mut Process, what: &str, links: &[u8]) {
    for number in links {
        let before = world.carried_bytes(*number);
        wait_until(&format!("lan{number} carries data {what}"), TIMEOUT, || {
            assert!(load.is_alive(), "{}", load.log());
            world.carried_bytes(*number) > before + ENOUGH_BYTES
        });
    }
}

/// Nobody had to connect again.
#[track_caller]
fn end(mut load: Process, mut server: Server) {
    assert!(!load.log().contains("does not answer"), "the connection stayed: {}", load.log());
    load.kill();
    assert!(server.stop().success(), "{}", server.log());
}

/// The first example of a URL that people read.
#[test]
fn a_server_is_found_by_its_name_when_two_interfaces_lead_to_it() {
    let Some(world) = two_links("a_server_is_found_by_its_name_when_two_interfaces_lead_to_it") else { return };
    let mut server = serve(&world, "disk=ram:8M");
    for _ in 0..3 {
        let info = run_ok(world.sanwire(&["info", "--json", &format!("hs+eth:///{SERVER_NAME}/disk")]), TIMEOUT);
        let info: Value = serde_json::from_str(&info).expect("what it is");
        assert!(info.to_string().contains(SERVER_NAME), "{info}");
    }
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn a_link_that_returns_carries_data_again() {
    let Some(world) = two_links("a_link_that_returns_carries_data_again") else { return };
    let server = serve(&world, "disk=ram:64M");
    let mut load = load(&world);
    wait_for_data(&world, &mut load, "at first", &[0, 1]);
    for number in [0, 1] {
        world.set_server_link(number, "down");
        wait_for_data(&world, &mut load, "alone", &[1 - number]);
        let said = |load: &Process, end: &str| {
            let log = load.log();
            log.lines().any(|line| line.contains(&format!("link lan{number} (")) && line.ends_with(end))
        };
        wait_until("the loss is said", TIMEOUT, || said(&load, "lost, 1 of 2 left"));
        world.set_server_link(number, "up");
        wait_for_data(&world, &mut load, "again", &[number, 1 - number]);
        wait_until("the return is said", TIMEOUT, || said(&load, "is back, 2 of 2 live"));
    }
    end(load, server);
}

#[test]
fn links_whose_interfaces_are_replaced_carry_data_again_by_the_same_connection() {
    let Some(world) = two_links("links_whose_interfaces_are_replaced_carry_data_again") else { return };
    let server = serve(&world, "disk=ram:64M");
    let mut load = load(&world);
    wait_for_data(&world, &mut load, "at first", &[0, 1]);
    for number in [1, 0] {
        world.replace_path(number, 1500);
        world.shape(number, CALM);
        wait_for_data(&world, &mut load, "when it was replaced", &[number, 1 - number]);
    }
    end(load, server);
}

#[test]
fn a_server_that_has_another_address_on_a_link_is_found_there_whether_it_was_restarted_or_not() {
    let Some(world) = two_links("a_server_that_has_another_address_on_a_link") else { return };
    let mut server = serve(&world, &format!("disk=file:{},size=64M", world.scratch.text("disk.img")));
    let mut load = load(&world);
    wait_for_data(&world, &mut load, "at first", &[0, 1]);
    // Until the search for links is over, which would begin anew anyway.
    thread::sleep(Duration::from_secs(3));
    world.set_server_mac(1, "02:00:5e:77:01:76");
    wait_for_data(&world, &mut load, "at another address", &[0, 1]);
    assert!(!load.log().contains("is back"), "the connection stayed: {}", load.log());
    thread::sleep(Duration::from_secs(3));
    server.kill();
    world.set_server_mac(1, "02:00:5e:77:01:77");
    server.restart();
    wait_for_data(&world, &mut load, "at yet another address", &[0, 1]);
    assert!(load.is_alive(), "{}", load.log());
    load.kill();
    assert!(server.stop().success(), "{}", server.log());
}

/// The kernel gives the packets of shards whose ports are not there to others, which do not take them.
#[test]
fn a_replaced_interface_is_opened_again_for_all_shards_together() {
    const CLIENTS: usize = 8;
    let Some(world) = World::new("a_replaced_interface_is_opened_again_for_all_shards", 1500, &[]) else { return };
    world.add_path(1, 1500);
    let mut server =
        Server::start_beside(&world, "sharded", "lan1", &["disk=ram:8M"], &["--allow", "any", "--shards", "4"]);
    let mut clients: Vec<Process> = (0..CLIENTS)
        .map(|number| {
            let who = format!("client{number}");
            let arguments = ["bench", "hs+eth://lan1/sharded/disk", "--block", "4K", "--depth", "1", "--time", "3600"];
            Process::spawn(&who, world.sanwire_of(&who, &arguments), world.scratch.path(&format!("{who}.log")))
        })
        .collect();
    let told = || {
        let mut ctl = world.on_server(env!("CARGO_BIN_EXE_sanwire"));
        ctl.args(["ctl", "--socket"]).arg(world.scratch.path("beside.control")).args(["statistics", "--json"]);
        serde_json::from_str::<Value>(&run_ok(ctl, TIMEOUT)).expect("JSON")["statistics"].clone()
    };
    let at = |address: &str| {
        let connections = told()["connections"].as_array().expect("connections").clone();
        connections.into_iter().filter(|connection| connection["address"] == *address).collect::<Vec<_>>()
    };
    for round in 0..3 {
        if round > 0 {
            world.replace_path(1, 1500);
        }
        let address = world.client_path_mac(1);
        wait_until("all clients are there", TIMEOUT, || {
            let lost = clients.iter_mut().find_map(|client| (!client.is_alive()).then(|| client.log()));
            assert!(lost.is_none(), "{lost:?}");
            at(&address).len() == CLIENTS
        });
        let shards: BTreeSet<u64> = at(&address).iter().filter_map(|connection| connection["shard"].as_u64()).collect();
        assert!(shards.len() > 1, "one in 16,384 times they all have one shard");
    }
    let dropped = &told()["dropped"];
    assert_eq!(dropped["misdirected"].as_u64().unwrap_or(0), 0, "{dropped}");
    clients.iter_mut().for_each(Process::kill);
    assert!(server.stop().success(), "{}", server.log());
}

/// No packet comes any more that would wake the server, and it has none to send.
#[test]
fn an_idle_server_opens_an_interface_again_that_was_away() {
    let Some(world) = World::new("an_idle_server_opens_an_interface_again", 1500, &[]) else { return };
    world.add_path(1, 1500);
    let mut ethtool = world.on_server("ethtool");
    ethtool.args(["-K", "lan1", "rxvlan", "off"]);
    run_ok(ethtool, TIMEOUT);
    let options = ["--allow", "any", "--wire", "hdsp:lan1,path=xdp"];
    let mut server = Server::start_beside(&world, "idle", "lan1", &["disk=ram:8M"], &options);
    let by = |path: &str| {
        let mut ctl = world.on_server(env!("CARGO_BIN_EXE_sanwire"));
        ctl.args(["ctl", "--socket"]).arg(world.scratch.path("beside.control")).arg("status");
        let status = run_ok(ctl, TIMEOUT);
        assert!(status.contains(&format!("hdsp:lan1,path=xdp by {path}")), "{status}");
    };
    by("AF_XDP, copied");
    for round in 1..=2 {
        if round == 2 {
            // Then its end says nothing to who waits for packets.
            world.set_server_link(1, "down");
            thread::sleep(Duration::from_secs(5));
        }
        world.replace_path(1, 1500);
        wait_until("both wires are open again", TIMEOUT, || server.log().matches("is open again").count() == 2 * round);
        // It takes VLAN tags out, as it did not before.
        by("AF_PACKET");
        for scheme in ["hs+eth", "hdsp"] {
            run_ok(world.sanwire(&["info", &format!("{scheme}://lan1/idle/disk")]), TIMEOUT);
        }
    }
    assert!(server.stop().success(), "{}", server.log());
}

/// So it is with a VLAN and its card.
#[test]
fn interfaces_of_one_address_are_told_apart() {
    let Some(world) = World::new("interfaces_of_one_address_are_told_apart", 1500, &[]) else { return };
    world.add_path(1, 1500);
    world.share_client_mac(1);
    let mut server = serve(&world, "disk=ram:16M");
    let url = format!("hs+eth://lan1/{SERVER_NAME}/disk");
    // Whoever asks a server that is held up does not wait long for its other link.
    wait_until("both are told", TIMEOUT, || {
        let told = run_ok(world.sanwire(&["info", "--json", "--wait", "60", &url]), TIMEOUT);
        let info: Value = serde_json::from_str(&told).expect("JSON");
        let states: Vec<&Value> = info["links"].as_array().expect("links").iter().map(|link| &link["state"]).collect();
        assert!(states.len() <= 2, "{info}");
        states == ["live", "live"]
    });
    assert!(server.stop().success(), "{}", server.log());
}
