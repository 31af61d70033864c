//! One connection over several links.

use std::fs;
use std::time::Duration;

use crate::harness::{Process, Server, Wire, World, pattern, run_ok, wait_until};

const PATIENCE: Duration = Duration::from_secs(120);
const IMAGE_BYTES: usize = 128 << 20;

/// Copies an image there and back over so many links, while one is cut and comes again, then another. The copies are whole,
/// and no operation fails. `last`: what the server serves on the last link.
fn copies_survive(test: &str, links: u8, mtu: u32, last: &str) {
    let Some(world) = World::new(test, mtu, &[]) else { return };
    let mut wires = Vec::new();
    for number in 1..links {
        world.add_path(number, mtu);
        wires.extend(["--wire".to_owned(), format!("hs-eth:lan{number}")]);
    }
    if let Some(wire) = wires.last_mut() {
        *wire = last.to_owned();
    }
    let mut options = vec!["--allow", "any"];
    options.extend(wires.iter().map(String::as_str));
    // Slow enough to be caught in the middle.
    let mut server = Server::start_with(&world, &["disk=ram:128M,delay=write:250ms"], &options);
    let url = Wire::Ethernet.url("disk");
    let info = run_ok(world.sanwire(&["info", &url]), PATIENCE);
    let live = info.lines().filter(|line| line.starts_with("link ") && line.contains(", live, ")).count();
    assert_eq!(live, usize::from(links), "{info}");

    let (image, back) = (world.scratch.path("image.raw"), world.scratch.path("back.raw"));
    fs::write(&image, pattern(5, IMAGE_BYTES)).expect("an image");
    let arguments = ["cp", "--depth", "4", &image.display().to_string(), &url];
    let mut copy = Process::spawn("cp", world.sanwire(&arguments), world.scratch.path("cp.log"));
    let journals = world.state("client").join("sanwire/cp");
    wait_until("the copy has got somewhere", PATIENCE, || {
        assert!(copy.is_alive(), "it was too fast: {}", copy.log());
        fs::read_dir(&journals).is_ok_and(|mut entries| entries.next().is_some())
    });
    for number in [0, links - 1] {
        world.set_server_link(number, "down");
        std::thread::sleep(Duration::from_millis(500));
        assert!(copy.is_alive(), "it was too fast: {}", copy.log());
        world.set_server_link(number, "up");
        std::thread::sleep(Duration::from_millis(1500));
    }
    assert!(copy.wait(PATIENCE).success(), "{}", copy.log());
    assert!(!copy.log().contains("does not answer"), "the connection stayed: {}", copy.log());
    run_ok(world.sanwire(&["cp", &url, &back.display().to_string()]), PATIENCE);
    assert!(fs::read(&image).expect("the image") == fs::read(&back).expect("the copy"), "the copy differs");
    let alone = run_ok(world.sanwire(&["info", "--links", "1", &url]), PATIENCE);
    assert_eq!(alone.lines().filter(|line| line.starts_with("link ")).count(), 1, "{alone}");
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn two_links_carry_one_connection_and_may_die_in_turns() {
    copies_survive("two_links_carry_one_connection", 2, 1500, "hs-eth:lan1");
}

#[test]
fn four_links_with_jumbo_frames_carry_one_connection() {
    copies_survive("four_links_with_jumbo_frames", 4, 9000, "hs-eth:lan3");
}

#[test]
fn ethernet_and_ip_carry_one_connection_together() {
    copies_survive("ethernet_and_ip_carry_one_connection", 2, 1500, "hs-ip:10.77.1.1");
}

/// Packet sockets on HyperSCSI's Ethernet in the network of a process.
fn packet_sockets(pid: u32) -> usize {
    let list = fs::read_to_string(format!("/proc/{pid}/net/packet")).expect("the kernel's list");
    list.lines().filter(|line| line.split_whitespace().any(|field| field == "889a")).count()
}

#[test]
fn a_port_on_which_the_server_is_not_is_closed_when_the_search_is_over() {
    let Some(world) = World::new("a_port_on_which_the_server_is_not", 1500, &[]) else { return };
    [1, 2].iter().for_each(|number| world.add_path(*number, 1500));
    let options = ["--allow", "any", "--wire", "hs-eth:lan2"];
    let mut server = Server::start_with(&world, &["disk=ram:16M"], &options);
    let bench = world.sanwire(&["bench", &Wire::Ethernet.url("disk"), "--time", "60"]);
    let mut bench = Process::spawn("bench", bench, world.scratch.path("bench.log"));
    let pid = bench.pid();
    wait_until("the server is sought on all interfaces", PATIENCE, || packet_sockets(pid) == 3);
    wait_until("it was found on two", PATIENCE, || packet_sockets(pid) == 2);
    assert!(bench.is_alive(), "{}", bench.log());
    bench.kill();
    let info = run_ok(world.sanwire(&["info", &Wire::Ethernet.url("disk")]), PATIENCE);
    assert_eq!(info.lines().filter(|line| line.starts_with("link ")).count(), 2, "{info}");
    assert!(server.stop().success(), "{}", server.log());
}
