//! One connection over several links.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::filesystems;
use crate::harness::{Attached, Filesystem, Process, Server, Wire, World, pattern, run_ok, wait_until};

const TIMEOUT: Duration = Duration::from_secs(120);
const IMAGE_BYTES: usize = 128 << 20;

/// Serves a volume on so many links: on raw Ethernet but for the last, where it is this.
fn serve(world: &World, volume: &str, links: u8, mtu: u32, last: &str) -> Server {
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
    Server::start_with(world, &[volume], &options)
}

#[track_caller]
fn assert_links(world: &World, url: &str, links: u8) {
    // Whoever asks a server that is held up does not wait long for its other links.
    wait_until(&format!("it has {links} links that live"), TIMEOUT, || {
        let info = run_ok(world.sanwire(&["info", "--wait", "60", url]), TIMEOUT);
        let lines = info.lines().filter(|line| line.starts_with("link "));
        let live = lines.clone().filter(|line| line.contains(", live, ")).count();
        assert!(lines.count() <= usize::from(links), "{info}");
        live == usize::from(links)
    });
}

/// Copies an image there and back over so many links, while one is cut and comes again, then another. The copies are whole,
/// and no operation fails. `last`: what the server serves on the last link.
fn copies_survive(test: &str, links: u8, mtu: u32, last: &str) {
    let Some(world) = World::new(test, mtu, &[]) else { return };
    // Slow enough to be caught in the middle, also by who is held up for some seconds.
    let mut server = serve(&world, "disk=ram:128M,delay=write:750ms", links, mtu, last);
    let url = Wire::Ethernet.url("disk");
    assert_links(&world, &url, links);

    let (image, back) = (world.scratch.path("image.raw"), world.scratch.path("back.raw"));
    fs::write(&image, pattern(5, IMAGE_BYTES)).expect("an image");
    let arguments = ["cp", "--depth", "4", &image.display().to_string(), &url];
    let mut copy = Process::spawn("cp", world.sanwire(&arguments), world.scratch.path("cp.log"));
    let journals = world.state("client").join("sanwire/cp");
    wait_until("the copy has got somewhere", TIMEOUT, || {
        assert!(copy.is_alive(), "it was too fast: {}", copy.log());
        fs::read_dir(&journals).is_ok_and(|mut entries| entries.next().is_some())
    });
    for number in [0, links - 1] {
        world.set_server_link(number, "down");
        thread::sleep(Duration::from_millis(500));
        assert!(copy.is_alive(), "it was too fast: {}", copy.log());
        world.set_server_link(number, "up");
        thread::sleep(Duration::from_millis(1500));
    }
    assert!(copy.wait(TIMEOUT).success(), "{}", copy.log());
    assert!(!copy.log().contains("does not answer"), "the connection stayed: {}", copy.log());
    run_ok(world.sanwire(&["cp", &url, &back.display().to_string()]), TIMEOUT);
    assert!(fs::read(&image).expect("the image") == fs::read(&back).expect("the copy"), "the copy differs");
    let alone = run_ok(world.sanwire(&["info", "--links", "1", &url]), TIMEOUT);
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
    wait_until("the server is sought on all interfaces", TIMEOUT, || packet_sockets(pid) == 3);
    wait_until("it was found on two", TIMEOUT, || packet_sockets(pid) == 2);
    assert!(bench.is_alive(), "{}", bench.log());
    bench.kill();
    // Whoever asks a server that is held up does not wait long for its other link.
    wait_until("it is asked over two links", TIMEOUT, || {
        let info = run_ok(world.sanwire(&["info", "--wait", "60", &Wire::Ethernet.url("disk")]), TIMEOUT);
        let links = info.lines().filter(|line| line.starts_with("link ")).count();
        assert!(links <= 2, "{info}");
        links == 2
    });
    assert!(server.stop().success(), "{}", server.log());
}

/// Tells the writer that it is enough. When the test fails, what it waits for may never come.
struct Ends<'a>(&'a AtomicBool, &'a Attached);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        if thread::panicking() {
            self.1.abandon();
        }
    }
}

/// A file system is filled over so many links while each of them is cut, one after the other, and comes again. It goes on during every
/// cut, by the same connection, and is whole afterwards.
fn a_filesystem_survives(test: &str, links: u8, mtu: u32) {
    let Some(world) = World::new(test, mtu, &Filesystem::TOOLS) else { return };
    let kind = Filesystem::Ext4;
    let volume = filesystems::volume(&world, kind);
    let mut server = serve(&world, &volume, links, mtu, &format!("hs-eth:lan{}", links - 1));
    let (url, directory) = (Wire::Ethernet.url(kind.volume()), world.scratch.path("mnt"));
    assert_links(&world, &url, links);
    let attached = Attached::device(&world, &url);
    kind.make(&attached.place);
    let filler = kind.open(&attached.place, &directory);
    let (written, is_enough) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let _ends = Ends(&is_enough, &attached);
        scope.spawn(|| {
            while !is_enough.load(Ordering::Relaxed) {
                filler.write(written.fetch_add(1, Ordering::Relaxed));
            }
        });
        let goes_on = |what: &str| {
            let before = written.load(Ordering::Relaxed);
            wait_until(what, TIMEOUT, || written.load(Ordering::Relaxed) >= before + 5);
        };
        for number in 0..links {
            goes_on("files are written");
            world.set_server_link(number, "down");
            thread::sleep(Duration::from_millis(500));
            goes_on("files are written while a link is cut");
            world.set_server_link(number, "up");
            thread::sleep(Duration::from_millis(1500));
        }
    });
    filler.close();
    assert!(!attached.log().contains("does not answer"), "the connection stayed: {}", attached.log());
    attached.detach(&world);

    let attached = Attached::device(&world, &url);
    kind.check(&attached.place);
    let filler = kind.open(&attached.place, &directory);
    filler.verify(written.into_inner());
    filler.close();
    attached.detach(&world);
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn a_filesystem_on_two_links_is_whole_after_each_was_cut() {
    a_filesystem_survives("a_filesystem_on_two_links", 2, 1500);
}

#[test]
fn a_filesystem_on_two_links_with_jumbo_frames_is_whole_after_each_was_cut() {
    a_filesystem_survives("a_filesystem_on_two_links_with_jumbo_frames", 2, 9000);
}

#[test]
fn a_filesystem_on_four_links_is_whole_after_each_was_cut() {
    a_filesystem_survives("a_filesystem_on_four_links", 4, 1500);
}

#[test]
fn a_filesystem_on_four_links_with_jumbo_frames_is_whole_after_each_was_cut() {
    a_filesystem_survives("a_filesystem_on_four_links_with_jumbo_frames", 4, 9000);
}
