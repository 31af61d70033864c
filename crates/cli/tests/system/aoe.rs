//! ATA over Ethernet: our target with the tools of others, our client with a target of another make, and both with each other.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::harness::{Attached, Process, Server, Wire, World, pattern, run, run_ok, wait_until};

const TIMEOUT: Duration = Duration::from_secs(120);

/// What both ends have on their files.
const CONTENT_BYTES: usize = 3 << 20;

/// Serves these volumes by AoE to the client's station.
fn serve(world: &World, volumes: &[&str]) -> Server {
    let wire = format!("aoe:{}", world.interface());
    Server::start_with(world, volumes, &["--wire", &wire, "--allow", world.client_mac()])
}

/// What `sanwire` says to this.
#[track_caller]
fn sanwire(world: &World, arguments: &[&str]) -> String {
    run_ok(world.sanwire(arguments), TIMEOUT)
}

fn url(world: &World, address: &str) -> String {
    format!("aoe://{}/{address}", world.interface())
}

/// Waits until the target 7.3 answers.
#[track_caller]
fn wait_for_target(world: &World) {
    tell(world, &["ls", &format!("aoe://{}", world.interface())], "7.3");
}

/// What `sanwire` says to this, asked until it has that.
#[track_caller]
fn tell(world: &World, arguments: &[&str], part: &str) -> String {
    let mut told = String::new();
    wait_until(&format!("{arguments:?} says {part}"), TIMEOUT, || {
        told = run(world.sanwire(arguments), TIMEOUT).stdout;
        told.contains(part)
    });
    told
}

/// Where programs for administrators are, whatever the path says.
fn tool(name: &str) -> String {
    let places = ["/usr/sbin", "/sbin", "/usr/bin"].map(|place| format!("{place}/{name}"));
    places.into_iter().find(|place| Path::new(place).exists()).unwrap_or_else(|| name.to_owned())
}

/// Copies content to a target and back, and compares.
fn copy_and_compare(world: &World, address: &str, seed: u64) {
    let (image, back) = (world.scratch.path("image"), world.scratch.path("back"));
    let content = pattern(seed, CONTENT_BYTES);
    fs::write(&image, &content).expect("an image");
    drop(fs::remove_file(&back));
    sanwire(world, &["cp", "--overwrite", &image.display().to_string(), &url(world, address)]);
    sanwire(world, &["cp", &url(world, address), &back.display().to_string()]);
    let read = fs::read(&back).expect("a copy");
    assert!(read[..CONTENT_BYTES] == content, "what was read is what was written");
}

/// What a tool on the client's host says.
#[track_caller]
fn ask(world: &World, program: &str, arguments: &[&str]) -> String {
    let mut command = world.on_client(tool(program));
    command.args(arguments);
    run_ok(command, TIMEOUT)
}

#[test]
fn tools_of_others_find_and_ask_an_aoe_target() {
    let test = "tools_of_others_find_and_ask_an_aoe_target";
    let Some(world) = World::new(test, 1500, &["aoeping", "aoecfg"]) else { return };
    let mut server = serve(&world, &["disk=ram:8M,shelf=7,slot=3", "other=ram:4M"]);
    let ask = |program: &str, arguments: &[&str]| ask(&world, program, arguments);
    let found = ask("aoeping", &["-v", "7", "3", world.interface()]);
    assert!(found.contains("found e7.3") && found.contains("config query response"), "{found}");
    // The second volume has the second number.
    ask("aoeping", &["1", "1", world.interface()]);
    ask("aoecfg", &["-c", "set", "-s", "ours", "7", "3", world.interface()]);
    let told = ask("aoecfg", &["7", "3", world.interface()]);
    assert!(told.contains("ours"), "{told}");
    let log = server.log();
    assert!(log.contains("AoE guards nothing") && log.contains("volume disk is the AoE target 7.3"), "{log}");
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn aoe_volumes_are_found_copied_to_and_read() {
    let test = "aoe_volumes_are_found_copied_to_and_read";
    for (mtu, packet) in [(1500, "1500"), (9000, "9000")] {
        let Some(world) = World::new(test, mtu, &[]) else { return };
        let store = world.scratch.path("disk.img");
        let disk = format!("disk=file:{},size=16M,shelf=7,slot=3", store.display());
        let mut server = serve(&world, &[&disk, "large=ram:4M,block=4096", "secret=ram:4M,security=aes-128-gcm"]);
        let everywhere = format!("aoe://{}", world.interface());
        // A target that is held up may answer later than is waited for.
        let listed = tell(&world, &["ls", &everywhere], &url(&world, "7.3"));
        assert_eq!(listed.lines().count(), 2, "only what may be served: {listed}");
        assert!(tell(&world, &["discover", &everywhere], "16 MiB").contains("7.3"));
        let told = sanwire(&world, &["info", "aoe:///7.3"]);
        assert!(told.contains(&format!("packets of up to {packet} bytes")) && told.contains("16 MiB"), "{told}");
        copy_and_compare(&world, "7.3", 1);
        let stored = fs::read(&store).expect("the store");
        assert!(stored[..CONTENT_BYTES] == pattern(1, CONTENT_BYTES), "a copy is flushed");
        let log = server.log();
        for name in ["large", "secret"] {
            assert!(log.contains(&format!("volume {name} is not served over AoE")), "{log}");
        }
        assert!(server.stop().success(), "{}", server.log());
    }
}

#[test]
fn frames_are_lost_and_an_aoe_server_killed_without_an_error() {
    let test = "frames_are_lost_and_an_aoe_server_killed_without_an_error";
    let Some(world) = World::new(test, 1500, &[]) else { return };
    let store = world.scratch.path("disk.img");
    let mut server = serve(&world, &[&format!("disk=file:{},size=16M,shelf=7,slot=3", store.display())]);
    world.lose(5);
    copy_and_compare(&world, "7.3", 2);
    let lost = world.lose_nothing();
    assert!(lost.iter().all(|lost| *lost > 20), "{lost:?} frames were lost");
    let image = world.scratch.path("image").display().to_string();
    let copying = thread::scope(|scope| {
        let copying = scope
            .spawn(|| run(world.sanwire(&["cp", "--overwrite", "--wait", "60", &image, &url(&world, "7.3")]), TIMEOUT));
        thread::sleep(Duration::from_millis(150));
        server.kill();
        thread::sleep(Duration::from_millis(500));
        server.restart();
        copying.join().expect("a copy")
    });
    assert_eq!(copying.code, Some(0), "{copying:?}");
    let stored = fs::read(&store).expect("the store");
    assert!(stored[..CONTENT_BYTES] == pattern(2, CONTENT_BYTES));
    // A copy that was over before has not waited for it.
    wait_for_target(&world);
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn who_is_not_allowed_finds_no_aoe_target() {
    let Some(world) = World::new("who_is_not_allowed_finds_no_aoe_target", 1500, &[]) else { return };
    let wire = format!("aoe:{}", world.interface());
    for rule in ["02:00:5e:77:00:99", "10.77.0.0/16"] {
        let mut server = Server::start_with(&world, &["disk=ram:8M"], &["--wire", &wire, "--allow", rule]);
        let ran = run(world.sanwire(&["info", &url(&world, "1.0"), "--wait", "1"]), TIMEOUT);
        assert_eq!(ran.code, Some(1));
        assert!(ran.stderr.contains("no AoE target answered"), "{}", ran.stderr);
        let told = "its MAC is in no rule of `allow`";
        wait_until("the server tells who asks", TIMEOUT, || server.log().contains(told));
        assert!(server.stop().success(), "{}", server.log());
    }
}

#[test]
fn aoe_addresses_that_were_chosen_are_kept_over_restarts() {
    let test = "aoe_addresses_that_were_chosen_are_kept_over_restarts";
    let Some(world) = World::new(test, 1500, &[]) else { return };
    let mut server = serve(&world, &["first=ram:4M", "second=ram:5M", "said=ram:6M,shelf=1,slot=2"]);
    assert!(sanwire(&world, &["info", &url(&world, "1.1")]).contains("5 MiB"));
    assert!(server.stop().success(), "{}", server.log());
    // Their numbers are others now, and a new one takes no address that was somebody's.
    let mut server = serve(&world, &["second=ram:5M", "new=ram:7M", "first=ram:4M"]);
    for (address, size) in [("1.0", "4 MiB"), ("1.1", "5 MiB"), ("1.2", "7 MiB")] {
        let told = sanwire(&world, &["info", &url(&world, address)]);
        assert!(told.contains(size), "{address}: {told}");
    }
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn what_is_set_of_an_aoe_target_is_kept_through_a_death_of_the_server() {
    let test = "what_is_set_of_an_aoe_target_is_kept_through_a_death_of_the_server";
    let Some(world) = World::new(test, 1500, &["aoecfg"]) else { return };
    let mut server = serve(&world, &["disk=ram:8M,shelf=7,slot=3", "other=ram:4M"]);
    ask(&world, "aoecfg", &["-c", "set", "-s", "ours", "7", "3", world.interface()]);
    // It was told that it is set, so it is. The tool asks once.
    server.kill();
    server.restart();
    wait_for_target(&world);
    let told = ask(&world, "aoecfg", &["7", "3", world.interface()]);
    assert!(told.contains("ours"), "{told}");
    assert!(server.stop().success(), "{}", server.log());
    // The settings of a volume that is not there any more are not those of the next one at its address.
    let mut server = serve(&world, &["another=ram:8M,shelf=7,slot=3"]);
    wait_for_target(&world);
    let told = ask(&world, "aoecfg", &["7", "3", world.interface()]);
    assert!(!told.contains("ours"), "{told}");
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn an_aoe_volume_is_attached_as_a_file() {
    let Some(world) = World::new("an_aoe_volume_is_attached_as_a_file", 9000, &["fusermount3"]) else { return };
    let mut server = serve(&world, &["disk=ram:8M,shelf=7,slot=3"]);
    let attached = Attached::file(&world, &url(&world, "7.3"));
    let content = pattern(9, 1 << 20);
    let file = fs::OpenOptions::new().read(true).write(true).open(&attached.place).expect("the attached file");
    file.write_all_at(&content, 4096).expect("it is written");
    file.sync_all().expect("it is flushed");
    let mut read = vec![0; content.len()];
    file.read_exact_at(&mut read, 4096).expect("it is read");
    assert!(read == content);
    // Both ends follow.
    world.set_mtu(1500);
    let content = pattern(10, 1 << 20);
    file.write_all_at(&content, 4096).expect("it is written in smaller frames");
    file.sync_all().expect("it is flushed");
    drop(file);
    let file = fs::File::open(&attached.place).expect("the attached file");
    file.read_exact_at(&mut read, 4096).expect("it is read in smaller frames");
    assert!(read == content);
    drop(file);
    attached.detach(&world);
    assert!(server.stop().success(), "{}", server.log());
}

/// The ways to a volume by ATA commands, each with what has to be said besides.
fn ata_ways(world: &World, address: &str, volume: &str) -> [(String, &'static [&'static str]); 2] {
    let hdsp = format!("hdsp://{}/box/{volume}", world.interface());
    [(url(world, address), &[]), (hdsp, &["--disk-type", "sata"])]
}

/// What is reserved or protected over one wire is so for ATA commands over the others: all meet at one unit.
#[test]
fn a_reserved_or_read_only_volume_takes_no_writes_by_ata_and_is_read() {
    let test = "a_reserved_or_read_only_volume_takes_no_writes_by_ata_and_is_read";
    let Some(world) = World::new(test, 1500, &["fusermount3"]) else { return };
    let store = world.scratch.path("disk.img");
    let disk = format!("disk=file:{},size=8M,shelf=7,slot=3", store.display());
    let wires = ["aoe", "hdsp"].map(|wire| format!("{wire}:{}", world.interface()));
    let options = ["--allow", "any", "--wire", &wires[0], "--wire", &wires[1]];
    let mut server = Server::start_with(&world, &[&disk, "wp=ram:4M,readonly,shelf=7,slot=4"], &options);
    copy_and_compare(&world, "7.3", 11);
    let (content, others) = (pattern(11, CONTENT_BYTES), pattern(12, CONTENT_BYTES));
    let (image, back) = (world.scratch.text("others-image"), world.scratch.text("others-back"));
    fs::write(&image, &others).expect("an image");
    let other =
        |arguments: &[&str], options: &[&str]| run(world.sanwire_of("other", &[arguments, options].concat()), TIMEOUT);
    let expect_refused = |address: &str, volume: &str, reason: &str, holds: &[u8]| {
        for (url, options) in ata_ways(&world, address, volume) {
            let told = other(&["cp", "--overwrite", &image, &url], options);
            assert!(told.code == Some(1) && told.stderr.contains(reason), "{url}: {told:?}");
            drop(fs::remove_file(&back));
            let told = other(&["cp", &url, &back], options);
            assert_eq!(told.code, Some(0), "{url}: {told:?}");
            assert!(fs::read(&back).expect("a copy").starts_with(holds), "{url} holds something else");
        }
    };
    let attached = Attached::fuse(&world, &Wire::Ip.url("disk"), &["--no-device", "--exclusive"]);
    expect_refused("7.3", "disk", "aborted command", &content);
    expect_refused("7.4", "wp", "the volume is read-only", &vec![0; CONTENT_BYTES]);
    // Who has it reserved goes on.
    let file = fs::OpenOptions::new().write(true).open(&attached.place).expect("the attached file");
    file.write_all_at(&content[..4096], 4 << 20).and_then(|()| file.sync_all()).expect("it is written");
    drop(file);
    let stored = fs::read(&store).expect("the store");
    assert!(stored.starts_with(&content) && stored[4 << 20..].starts_with(&content[..4096]));
    attached.detach(&world);
    for (seed, (url, options)) in (13..).zip(ata_ways(&world, "7.3", "disk")) {
        fs::write(&image, pattern(seed, CONTENT_BYTES)).expect("an image");
        let told = other(&["cp", "--overwrite", &image, &url], options);
        assert_eq!(told.code, Some(0), "{url}: {told:?}");
        assert!(fs::read(&store).expect("the store").starts_with(&pattern(seed, CONTENT_BYTES)), "{url}");
    }
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn our_client_uses_vblade() {
    let Some(world) = World::new("our_client_uses_vblade", 1500, &["vblade"]) else { return };
    let store = world.scratch.path("disk.img");
    fs::File::create(&store).and_then(|file| file.set_len(16 << 20)).expect("a store");
    let mut command: Command = world.on_server(tool("vblade"));
    command.args(["-m", world.client_mac(), "7", "3", world.interface()]).arg(&store);
    let mut vblade = Process::spawn("vblade", command, world.scratch.path("vblade.log"));
    wait_for_target(&world);
    copy_and_compare(&world, "7.3", 3);
    assert!(vblade.is_alive(), "{}", vblade.log());
    vblade.signal(Signal::TERM);
    vblade.wait(TIMEOUT);
}

#[test]
fn wireshark_reads_aoe() {
    let Some(world) = World::new("wireshark_reads_aoe", 1500, &["tcpdump", "tshark"]) else { return };
    let mut server = serve(&world, &["disk=ram:8M,shelf=7,slot=3"]);
    let file = world.scratch.path("aoe.pcap");
    let mut command = world.on_client("tcpdump");
    command.args(["-i", world.interface(), "-U", "-w"]).arg(&file).arg("ether proto 0x88a2");
    let mut tcpdump = Process::spawn("tcpdump", command, world.scratch.path("tcpdump.log"));
    tcpdump.wait_for("listening on", TIMEOUT);
    copy_and_compare(&world, "7.3", 4);
    tcpdump.signal(Signal::INT);
    tcpdump.wait(TIMEOUT);
    let mut tshark = Command::new("tshark");
    tshark.args(["-r"]).arg(&file).args(["-T", "fields"]);
    for field in ["aoe.cmd", "aoe.major", "aoe.minor", "_ws.malformed"] {
        tshark.args(["-e", field]);
    }
    let read = run_ok(tshark, TIMEOUT);
    let packets: Vec<Vec<&str>> = read.lines().map(|line| line.split('\t').collect()).collect();
    assert!(packets.len() > 2 * CONTENT_BYTES / 1024, "{} packets", packets.len());
    assert!(packets.iter().all(|packet| packet[3].is_empty()), "none is malformed");
    let is_command = |packet: &&Vec<&str>| matches!(packet[0], "0" | "0x00") && packet[2].ends_with('3');
    assert!(packets.iter().filter(is_command).count() > CONTENT_BYTES / 1024, "{:?}", packets.last());
    assert!(server.stop().success(), "{}", server.log());
}
