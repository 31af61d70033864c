//! Raw Ethernet whose packets come to the server by AF_XDP.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::harness::{
    Attached, Filesystem, SERVER_ADDRESS, Server, Wire, World, is_installed, pattern, run_ok, wait_until,
};

const TIMEOUT: Duration = Duration::from_secs(120);

const CONTENT_BYTES: usize = 3 << 20;

/// The value of a sample.
fn sample(metrics: &str, name: &str) -> u64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next());
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name}: {metrics}"))
}

/// How much of a file is in the page cache; `None` where that cannot be asked, or where the file is nowhere else.
fn cached_bytes(file: &Path) -> Option<usize> {
    // TMPFS_MAGIC of linux/magic.h.
    let is_in_memory = rustix::fs::statfs(file).ok()?.f_type == 0x0102_1994;
    if is_in_memory || !is_installed("fincore") {
        return None;
    }
    let mut fincore = Command::new("fincore");
    fincore.args(["--bytes", "--noheadings", "--output", "RES"]).arg(file);
    run_ok(fincore, TIMEOUT).trim().parse().ok()
}

/// After so many questions the hosts forget each other's MAC addresses, and ask for them by ARP.
const QUESTIONS_BEFORE_ARP: u64 = 20;

/// Other traffic between the two hosts: a question over TCP every few milliseconds, and one over UDP, of which none may be lost; and now and
/// then one by ARP.
struct Others {
    is_over: Arc<AtomicBool>,
    asking: JoinHandle<(u64, u64)>,
}

impl Others {
    fn begin(world: &World) -> Others {
        let here = (SERVER_ADDRESS, 2222);
        let (listener, echo) = world.as_server(|| (TcpListener::bind(here).unwrap(), UdpSocket::bind(here).unwrap()));
        let (mut stream, datagrams) = world.as_client(|| {
            let datagrams = UdpSocket::bind("0.0.0.0:0").unwrap();
            datagrams.connect(here).unwrap();
            (TcpStream::connect(here).unwrap(), datagrams)
        });
        let (mut accepted, _) = listener.accept().unwrap();
        thread::spawn(move || std::io::copy(&mut accepted.try_clone().unwrap(), &mut accepted));
        thread::spawn(move || {
            let mut datagram = [0; 1024];
            while let Ok((length @ 1.., from)) = echo.recv_from(&mut datagram) {
                echo.send_to(&datagram[..length], from).unwrap();
            }
        });
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        datagrams.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        count_arp(world);
        let mut forgetting = [world.on_client("ip"), world.on_server("ip")];
        for ip in &mut forgetting {
            ip.args(["neigh", "flush", "dev", world.interface()]);
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let is_asked = Arc::clone(&is_over);
        let asking = thread::spawn(move || {
            let (mut asked, mut answered, mut answer) = (0u64, 0, [0; 1000]);
            while !is_asked.load(Ordering::Acquire) {
                if asked.is_multiple_of(QUESTIONS_BEFORE_ARP) {
                    for ip in &mut forgetting {
                        ip.status().unwrap();
                    }
                }
                let question = [asked as u8; 1000];
                stream.write_all(&question).unwrap();
                datagrams.send(&question).unwrap();
                stream.read_exact(&mut answer).unwrap();
                assert_eq!(answer, question);
                asked += 1;
                answered += u64::from(datagrams.recv(&mut answer).is_ok() && answer == question);
                thread::sleep(Duration::from_millis(2));
            }
            // It has no more to say: what answers ends.
            datagrams.send(&[]).unwrap();
            (asked, answered)
        });
        Others { is_over, asking }
    }

    fn end(self, world: &World) {
        self.is_over.store(true, Ordering::Release);
        let (asked, answered) = self.asking.join().expect("it goes on");
        assert!(asked > 20 && answered == asked, "{answered} of {asked} datagrams were answered");
        // What is lost is asked again after a second, so there would be more questions than answers for good. Sometimes the server asks
        // first, and this client then knows.
        wait_until("every question by ARP is answered", TIMEOUT, || {
            let [asked_by_arp, answered] = arp_counts(world);
            asked_by_arp >= asked / QUESTIONS_BEFORE_ARP / 2 && answered == asked_by_arp
        });
    }
}

/// Has the client count what it asks by ARP, and what it is answered.
fn count_arp(world: &World) {
    let chain = |name: &str, hook: &str, operation: &str| {
        let device = world.interface();
        format!(
            "chain {name} {{\n type filter hook {hook} device \"{device}\" priority 0;\n arp operation {operation} counter\n}}\n"
        )
    };
    let (asked, answered) = (chain("asked", "egress", "request"), chain("answered", "ingress", "reply"));
    let file = world.scratch.path("arp.nft");
    fs::write(&file, format!("table netdev arp-count {{\n{asked}{answered}}}\n")).expect("the rules can be written");
    let mut nft = world.on_client("nft");
    nft.arg("-f").arg(&file);
    run_ok(nft, TIMEOUT);
}

/// What it has counted: questions and answers.
fn arp_counts(world: &World) -> [u64; 2] {
    let mut nft = world.on_client("nft");
    nft.args(["list", "table", "netdev", "arp-count"]);
    let listed = run_ok(nft, TIMEOUT);
    let mut counts = listed.split("packets ").skip(1).map(|rest| {
        let count = rest.split_ascii_whitespace().next().and_then(|count| count.parse().ok());
        count.expect("a count")
    });
    [(); 2].map(|()| counts.next().expect("a counter"))
}

/// HDSP and HyperSCSI share an interface's memory and its one receive queue, among all shards, while the host's other traffic goes on. What
/// HDSP's writes bring goes to the disk from where it came.
#[test]
fn packets_come_by_af_xdp_and_writes_go_to_the_disk_from_where_they_came() {
    let test = "packets_come_by_af_xdp_and_writes_go_to_the_disk_from_where_they_came";
    for mtu in [1500, 9000] {
        let Some(world) = World::new(test, mtu, &[]) else { return };
        let (socket, store) = (world.scratch.text("control"), world.scratch.path("disk.img"));
        let (interface, volume) = (world.interface(), format!("disk=file:{},size=16M,direct", store.display()));
        let wires = ["hdsp", "hs-eth"].map(|wire| format!("{wire}:{interface},path=xdp"));
        // Threads would write from the same memory: that the ring does, too, is what is to be seen.
        let engine = ["--engine", "io-uring"];
        let options =
            ["--wire", &wires[0], "--wire", &wires[1], "--allow", "any", "--shards", "2", "--control", &socket];
        let options = [&options[..], &engine].concat();
        let mut server = Server::start_alone(&world, &[&volume, "secret=ram:8M,security=aes-128-gcm"], &options);
        let sanwire = |arguments: &[&str]| run_ok(world.sanwire(arguments), TIMEOUT);
        let ctl = |arguments: &[&str]| sanwire(&[&["ctl", "--socket", &socket], arguments].concat());
        let status = ctl(&["status"]);
        assert!(status.matches("by AF_XDP, copied").count() == 2, "{status}");
        let others = Others::begin(&world);
        let (image, back) = (world.scratch.text("image"), world.scratch.text("back"));
        for seed in 0..4 {
            let content = pattern(seed, CONTENT_BYTES);
            fs::write(&image, &content).expect("an image");
            let scheme = if seed % 2 == 0 { "hdsp" } else { "hs+eth" };
            for volume in ["disk", "secret"] {
                let url = format!("{scheme}://{interface}/box/{volume}");
                sanwire(&["cp", "--overwrite", &image, &url]);
                drop(fs::remove_file(&back));
                sanwire(&["cp", &url, &back]);
                assert!(fs::read(&back).expect("a copy")[..CONTENT_BYTES] == content, "{url}");
            }
            // Before this test reads the store itself.
            let cached = if seed == 0 { cached_bytes(&store) } else { None };
            assert!(cached.is_none_or(|bytes| bytes < CONTENT_BYTES / 10), "{cached:?} bytes are in the page cache");
            assert!(fs::read(&store).expect("the store")[..CONTENT_BYTES] == content, "{scheme}");
        }
        let metrics = ctl(&["metrics"]);
        let [kept, copied] = ["where they came", "copied"]
            .map(|memory| sample(&metrics, &format!("sanwire_hdsp_written_bytes_total{{memory=\"{memory}\"}} ")));
        // What is encrypted is copied as it is decrypted.
        let (disk, all) = (2 * CONTENT_BYTES as u64, 4 * CONTENT_BYTES as u64);
        assert!(kept > disk * 9 / 10 && kept <= disk && kept + copied == all, "{kept} + {copied}");
        others.end(&world);
        assert!(server.stop().success(), "{}", server.log());
    }
}

/// AoE, where its wire says so. Each shard has a target.
#[test]
fn aoe_comes_by_af_xdp_too_and_is_copied() {
    for mtu in [1500, 9000] {
        let Some(world) = World::new("aoe_comes_by_af_xdp_too_and_is_copied", mtu, &[]) else { return };
        let (socket, store) = (world.scratch.text("control"), world.scratch.path("disk.img"));
        let (wire, volume) = (
            format!("aoe:{},path=xdp", world.interface()),
            format!("disk=file:{},size=16M,shelf=7,slot=3", store.display()),
        );
        let options = ["--wire", &wire, "--allow", "any", "--shards", "2", "--control", &socket];
        let mut server = Server::start_alone(&world, &[&volume, "other=ram:8M,shelf=7,slot=4"], &options);
        let sanwire = |arguments: &[&str]| run_ok(world.sanwire(arguments), TIMEOUT);
        let status = sanwire(&["ctl", "--socket", &socket, "status"]);
        assert!(status.contains("by AF_XDP, copied"), "{status}");
        let others = Others::begin(&world);
        let (image, back) = (world.scratch.text("image"), world.scratch.text("back"));
        for (seed, slot) in [(31, 4), (32, 3)] {
            let (content, url) = (pattern(seed, CONTENT_BYTES), format!("aoe://{}/7.{slot}", world.interface()));
            fs::write(&image, &content).expect("an image");
            drop(fs::remove_file(&back));
            sanwire(&["cp", "--overwrite", &image, &url]);
            sanwire(&["cp", &url, &back]);
            assert!(fs::read(&back).expect("a copy")[..CONTENT_BYTES] == content, "{url}");
        }
        assert!(fs::read(&store).expect("the store")[..CONTENT_BYTES] == pattern(32, CONTENT_BYTES));
        others.end(&world);
        assert!(server.stop().success(), "{}", server.log());
    }
}

/// Why packets do not come by AF_XDP is said in a line, and they come all the same.
#[test]
fn where_af_xdp_cannot_be_had_it_is_said_why() {
    let Some(world) = World::new("where_af_xdp_cannot_be_had_it_is_said_why", 1500, &Filesystem::TOOLS) else { return };
    let mut first = Server::start_for(&world, Wire::HdspXdp, &["ext4=ram:64M"]);
    world.add_path(1, 1500);
    let options = ["--wire", "hdsp:lan0,path=xdp", "--wire", "hdsp:lan1", "--allow", "any"];
    let state = ["--control", &world.scratch.text("second-control")];
    let mut second =
        Server::start_beside(&world, "second", "lan0", &["other=ram:8M"], &[&options[..], &state].concat());
    let is_told = |line: &str| {
        line.contains("WARN wire hdsp:lan0,path=xdp: packets of lan0 come by AF_PACKET, not by AF_XDP")
            && line.ends_with("another program has the interface")
    };
    wait_until("it is said", TIMEOUT, || second.log().lines().any(is_told));
    // A wire that was left to choose.
    let told =
        "INFO wire hdsp:lan1: packets of lan1 come by AF_PACKET, not by AF_XDP: its driver has no zero-copy mode";
    wait_until("it is said", TIMEOUT, || second.log().contains(told));
    assert!(second.stop().success(), "{}", second.log());
    // What the first one has is not touched by that.
    let attached = Attached::device(&world, &Wire::HdspXdp.url("ext4"));
    Filesystem::Ext4.make(&attached.place);
    Filesystem::Ext4.check(&attached.place);
    attached.detach(&world);
    assert!(first.stop().success(), "{}", first.log());
}

/// Who may not load a program serves all the same.
#[test]
fn where_the_rights_do_not_allow_af_xdp_it_is_said_which_it_takes() {
    let test = "where_the_rights_do_not_allow_af_xdp_it_is_said_which_it_takes";
    let Some(world) = World::new(test, 1500, &["setpriv"]) else { return };
    let (socket, wire) = (world.scratch.text("control"), format!("hdsp:{},path=xdp", world.interface()));
    let options = ["--wire", &wire, "--allow", "any", "--control", &socket];
    let mut server = Server::start_without(&world, "-bpf,-sys_admin", &["disk=ram:8M"], &options);
    let begin = format!("WARN wire {wire}: packets of lan0 come by AF_PACKET, not by AF_XDP: the kernel refuses ");
    let end = ": it takes the capabilities CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF";
    let is_told = |line: &str| line.contains(&begin) && line.ends_with(end);
    wait_until("it is said", TIMEOUT, || server.log().lines().any(is_told));
    let status = run_ok(world.sanwire(&["ctl", "--socket", &socket, "status"]), TIMEOUT);
    assert!(status.contains("by AF_PACKET") && !status.contains("by AF_XDP"), "{status}");
    let (image, back) = (world.scratch.text("image"), world.scratch.text("back"));
    let (content, url) = (pattern(9, CONTENT_BYTES), Wire::Hdsp.url("disk"));
    fs::write(&image, &content).expect("an image");
    run_ok(world.sanwire(&["cp", "--overwrite", &image, &url]), TIMEOUT);
    run_ok(world.sanwire(&["cp", &url, &back]), TIMEOUT);
    assert!(fs::read(&back).expect("a copy")[..CONTENT_BYTES] == content, "{url}");
    assert!(server.stop().success(), "{}", server.log());
}
