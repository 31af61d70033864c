//! iSER over iWARP in user space: our server and our client, between two hosts.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::harness::{
    AUTHORITY, Attached, Filesystem, Process, SERVER_ADDRESS, Server, World, pattern, run, run_ok, wait_until,
};

const TIMEOUT: Duration = Duration::from_secs(120);

const CONTENT_BYTES: usize = 3 << 20;

/// Serves these volumes to everybody by iSER.
fn serve(world: &World, volumes: &[&str], options: &[&str]) -> Server {
    let wire = format!("iser:{SERVER_ADDRESS}");
    Server::start_alone(world, volumes, &[&["--wire", &wire, "--allow", "any"], options].concat())
}

/// What `sanwire` says to this.
#[track_caller]
fn sanwire(world: &World, arguments: &[&str]) -> String {
    run_ok(world.sanwire(arguments), TIMEOUT)
}

fn url(volume: &str) -> String {
    format!("iser://{SERVER_ADDRESS}/{AUTHORITY}:{volume}/0")
}

/// Copies content to a volume and back, and compares.
#[track_caller]
fn copy_and_compare(world: &World, url: &str, seed: u64) {
    let (image, back) = (world.scratch.path("image"), world.scratch.path("back"));
    let content = pattern(seed, CONTENT_BYTES);
    fs::write(&image, &content).expect("an image");
    drop(fs::remove_file(&back));
    sanwire(world, &["cp", "--overwrite", "--verify", &image.display().to_string(), url]);
    sanwire(world, &["cp", url, &back.display().to_string()]);
    let read = fs::read(&back).expect("a copy");
    assert!(read[..CONTENT_BYTES] == content, "what was read is what was written");
}

#[test]
fn iser_volumes_are_found_copied_to_and_read() {
    let test = "iser_volumes_are_found_copied_to_and_read";
    for mtu in [1500, 9000] {
        let Some(world) = World::new(test, mtu, &[]) else { return };
        let store = world.scratch.path("disk.img");
        let volumes = [&format!("disk=file:{},size=16M", store.display())[..], "large=ram:4M,block=4096"];
        let mut server = serve(&world, &volumes, &["--shards", "2"]);
        let host = format!("iser://{SERVER_ADDRESS}");
        let listed = sanwire(&world, &["ls", &host]);
        assert!(["disk", "large"].iter().all(|name| listed.contains(&url(name))), "{listed}");
        let found = sanwire(&world, &["discover", &host, "--wide"]);
        assert!(found.contains("iSER") && found.contains(&format!("{AUTHORITY}:disk")), "{found}");
        for (seed, volume) in [(1, "disk"), (2, "large")] {
            copy_and_compare(&world, &url(volume), seed);
        }
        let stored = fs::read(&store).expect("the store");
        assert!(stored[..CONTENT_BYTES] == pattern(1, CONTENT_BYTES), "a copy is flushed");
        let told = sanwire(&world, &["info", &url("disk")]);
        assert!(told.contains("iSER") && told.contains("16 MiB"), "{told}");
        let segments = format!("FPDUs of up to 65544 bytes in segments of {}", mtu - 52);
        let told_of = ["STags", "zero-copy", " credits"];
        assert!(told.contains(&segments) && told_of.iter().all(|what| told.contains(what)), "{told}");
        let measured = sanwire(&world, &["bench", &url("large"), "--depth", "8", "--time", "0.3"]);
        assert!(measured.contains("IOPS") || measured.contains("MiB/s"), "{measured}");
        assert!(server.stop().success(), "{}", server.log());
    }
}

#[test]
fn a_client_of_iser_that_finds_plain_iscsi_says_so() {
    let test = "a_client_of_iser_that_finds_plain_iscsi_says_so";
    let Some(world) = World::new(test, 1500, &[]) else { return };
    let wire = format!("iscsi:{SERVER_ADDRESS}");
    let mut server = Server::start_alone(&world, &["disk=ram:8M"], &["--wire", &wire, "--allow", "any"]);
    let told = run(world.sanwire(&["info", &url("disk")]), TIMEOUT);
    assert_eq!(told.code, Some(1), "{}", told.stderr);
    assert!(told.stderr.contains("try iscsi://"), "{}", told.stderr);
    assert!(server.log().contains("an iSER initiator has come to a portal of plain iSCSI"), "{}", server.log());
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn one_port_serves_iscsi_and_iser() {
    let test = "one_port_serves_iscsi_and_iser";
    let Some(world) = World::new(test, 1500, &[]) else { return };
    let wires = [format!("iser:{SERVER_ADDRESS}"), format!("iscsi:{SERVER_ADDRESS}")];
    let options = ["--wire", &wires[0], "--wire", &wires[1], "--allow", "any"];
    let mut server = Server::start_alone(&world, &["disk=ram:8M"], &options);
    let plain = |text: &str| text.replace("iser://", "iscsi://");
    for url in [url("disk"), plain(&url("disk"))] {
        copy_and_compare(&world, &url, 5);
    }
    let host = format!("iser://{SERVER_ADDRESS}");
    for (host, own, other) in
        [(plain(&host), plain(&url("disk")), url("disk")), (host, url("disk"), plain(&url("disk")))]
    {
        let listed = sanwire(&world, &["ls", &host]);
        assert!(listed.contains(&own), "{listed}");
        let found = sanwire(&world, &["discover", &host, "--wide"]);
        let lines: Vec<&str> = found.lines().collect();
        assert!(lines.len() == 3 && lines[1].contains(&own) && lines[2].contains(&other), "{found}");
        assert!(found.contains("iSCSI ") && found.contains("iSER "), "{found}");
    }
    assert!(!server.log().contains("has come to a portal"), "nothing is tried: {}", server.log());
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn an_iser_server_is_killed_under_load_without_an_error() {
    let test = "an_iser_server_is_killed_under_load_without_an_error";
    let Some(world) = World::new(test, 1500, &[]) else { return };
    let store = world.scratch.path("disk.img");
    let mut server = serve(&world, &[&format!("disk=file:{},size=64M", store.display())], &[]);
    let image = world.scratch.path("image");
    for seed in [3, 4] {
        let content = pattern(seed, 48 << 20);
        fs::write(&image, &content).expect("an image");
        let image = image.display().to_string();
        let before = server.log().matches("connected to").count();
        let copying = thread::scope(|scope| {
            let copy = || run(world.sanwire(&["cp", "--overwrite", "--wait", "60", &image, &url("disk")]), TIMEOUT);
            let copying = scope.spawn(copy);
            wait_until("the copy goes on", TIMEOUT, || server.log().matches("connected to").count() > before);
            thread::sleep(Duration::from_millis(50));
            server.kill();
            thread::sleep(Duration::from_millis(500));
            server.restart();
            copying.join().expect("a copy")
        });
        // A copy that was over before has not waited for the server.
        wait_until("the server is back", TIMEOUT, || {
            run(world.sanwire(&["info", "--wait", "60", &url("disk")]), TIMEOUT).code == Some(0)
        });
        assert_eq!(copying.code, Some(0), "{copying:?}");
        let stored = fs::read(&store).expect("the store");
        assert!(stored[..content.len()] == content, "what was copied is there");
    }
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn a_file_system_lives_on_an_iser_volume() {
    let test = "a_file_system_lives_on_an_iser_volume";
    let Some(world) = World::new(test, 9000, &Filesystem::TOOLS) else { return };
    let disk = format!("ext4=file:{},size=256M", world.scratch.path("disk.img").display());
    let socket = world.scratch.path("control").display().to_string();
    let mut server = serve(&world, &[&disk], &["--control", &socket]);
    let attached = Attached::device(&world, &url("ext4"));
    let device = attached.place.clone();
    Filesystem::Ext4.make(&device);
    let filler = Filesystem::Ext4.open(&device, &world.scratch.path("mount"));
    (0..20).for_each(|index| filler.write(index));
    server.kill();
    server.restart();
    (20..40).for_each(|index| filler.write(index));
    let ctl = |words: &[&str]| sanwire(&world, &[&["ctl", "--socket", &socket], words].concat());
    for (words, seen) in [
        (&["status"][..], &["iser:"][..]),
        (&["sessions"], &[" iser "]),
        (&["statistics"], &[" iser ", "BY RDMA", "STAGS", "CREDITS", "COPIED", " TCP ", "MSS"]),
        (&["metrics"], &["sanwire_session_credits{", "sanwire_session_memory_keys{", "{transport=\"RDMA\"} "]),
    ] {
        let told = ctl(words);
        assert!(seen.iter().all(|word| told.contains(word)), "{words:?} has no {seen:?}: {told}");
    }
    filler.verify(40);
    filler.close();
    Filesystem::Ext4.check(&device);
    attached.detach(&world);
    assert!(server.stop().success(), "{}", server.log());
}

/// Starts to capture what passes at the client.
fn capture(world: &World, file: &str) -> Process {
    let mut command = world.on_client("tcpdump");
    command.args(["-i", world.interface(), "-U", "-s", "0", "-w"]).arg(world.scratch.path(file)).arg("tcp port 3260");
    let mut tcpdump = Process::spawn("tcpdump", command, world.scratch.path("tcpdump.log"));
    tcpdump.wait_for("listening on", TIMEOUT);
    tcpdump
}

#[test]
fn wireshark_reads_iser() {
    let test = "wireshark_reads_iser";
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/wireshark/sanwire-iser.lua");
    let Some(world) = World::new(test, 1500, &["tcpdump", "tshark"]) else { return };
    let mut server = serve(&world, &["disk=ram:8M"], &[]);
    let mut tcpdump = capture(&world, "iser.pcap");
    copy_and_compare(&world, &url("disk"), 4);
    let size = || fs::metadata(world.scratch.path("iser.pcap")).map_or(0, |file| file.len());
    wait_until("what has passed is in the file", TIMEOUT, || size() > 2 * CONTENT_BYTES as u64);
    tcpdump.signal(Signal::INT);
    tcpdump.wait(TIMEOUT);
    let mut tshark = Command::new("tshark");
    tshark.arg("-X").arg(format!("lua_script:{}", script.display()));
    tshark.arg("-r").arg(world.scratch.path("iser.pcap")).args(["-T", "fields"]);
    let fields = [
        "iwarp_mpa.req",
        "iwarp_mpa.rep",
        "iwarp_rdma.opcode",
        "sanwire_iser.kind",
        "iscsi.opcode",
        "_ws.malformed",
        "_ws.lua.error",
    ];
    fields.iter().for_each(|field| _ = tshark.args(["-e", field]));
    let read = run_ok(tshark, TIMEOUT);
    let packets: Vec<Vec<&str>> = read.lines().map(|line| line.split('\t').collect()).collect();
    let count = |column: usize| packets.iter().filter(|packet| !packet[column].is_empty()).count();
    assert!(count(5) == 0 && count(6) == 0, "malformed: {:?}", packets.iter().find(|packet| !packet[5].is_empty()));
    assert!(count(0) >= 1 && count(0) == count(1), "a request and a reply for each connection");
    let operations: Vec<&str> = packets.iter().flat_map(|packet| packet[2].split(',')).collect();
    for operation in ["0x00", "0x01", "0x02"] {
        let number = operation.trim_start_matches("0x0");
        let is_there = operations.iter().any(|found| *found == operation || *found == number);
        assert!(is_there, "RDMAP operation {operation}: {operations:?}");
    }
    assert!(count(3) > 10 && count(4) > 10, "PDUs in Sends");
    assert!(server.stop().success(), "{}", server.log());
}
