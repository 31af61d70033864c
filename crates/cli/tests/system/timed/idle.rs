//! What a server and a client take when nothing happens, and how much memory a server has.

use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::harness::{
    AUTHORITY, Attached, Initiator, SERVER_ADDRESS, Scratch, Server, Wire, World, cpu_time, port, run_ok,
};

const INITIATOR: &str = "iqn.2026-11.org.example:initiator";

const WATCH: Duration = Duration::from_secs(10);
/// 0.5 % of [`WATCH`].
const CPU_MAX: Duration = Duration::from_millis(50);
const MEMORY_MAX_KIB: u64 = 64 << 10;

#[test]
#[ignore = "judged by the clock"]
fn idle_is_idle_and_memory_is_bounded() {
    let Some(world) = World::new("idle_is_idle_and_memory_is_bounded", 9000, &["dd", "getconf"]) else { return };
    let volume = format!("disk=file:{},size=256M", world.scratch.text("disk.img"));
    // One port for both.
    let [iscsi, iser] = ["iscsi", "iser"].map(|scheme| format!("{scheme}:{SERVER_ADDRESS}"));
    let options = ["--allow", "any", "--wire", &iscsi, "--wire", &iser];
    let mut server = Server::start_with(&world, &[&volume], &options);
    let [ethernet, udp, iscsi] = [Wire::Ethernet, Wire::Ip, Wire::Iscsi].map(|wire| wire.url("disk"));
    let iser = iscsi.replace("iscsi://", "iser://");
    for (wire, url) in [("Ethernet", ethernet), ("UDP", udp), ("iSCSI", iscsi), ("iSER", iser)] {
        let attached = Attached::device(&world, &url);
        let device = attached.place.display().to_string();
        for (from, to, flag) in [("/dev/zero", device.as_str(), "oflag=direct"), (&device, "/dev/null", "iflag=direct")]
        {
            let mut dd = Command::new("dd");
            dd.args([&format!("if={from}"), &format!("of={to}"), "bs=512K", "count=512", flag]);
            run_ok(dd, Duration::from_secs(60));
        }
        let memory_kib = resident_kib(server.pid());
        println!("{wire}: the server has {memory_kib} KiB in memory");
        assert!(memory_kib < MEMORY_MAX_KIB, "the server has {memory_kib} KiB in memory over {wire}");
        thread::sleep(Duration::from_secs(1));
        let before = [server.pid(), attached.pid()].map(cpu_time);
        thread::sleep(WATCH);
        let after = [server.pid(), attached.pid()].map(cpu_time);
        for (who, index) in [("server", 0), ("client", 1)] {
            let used = after[index] - before[index];
            println!("{wire}: the idle {who} used {used:?} of {WATCH:?}");
            assert!(used < CPU_MAX, "the idle {who} used {used:?} of {WATCH:?} over {wire}");
        }
        attached.detach(&world);
    }
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
#[ignore = "judged by the clock"]
fn a_hundred_idle_sessions_take_no_time() {
    let scratch = Scratch::new();
    let port = port();
    let wire = format!("iscsi:127.0.0.1:{port}");
    let mut server = Server::start_on(&scratch, &[&wire], &["disk=ram:64M"], &[]);
    let (address, target) = (format!("127.0.0.1:{port}"), format!("{AUTHORITY}:disk"));
    let sessions: Vec<TcpStream> = (0..100)
        .map(|number| Initiator::log_in(&address, INITIATOR, &target, number).expect("a session").stream)
        .collect();
    thread::sleep(Duration::from_secs(1));
    let before = cpu_time(server.pid());
    thread::sleep(WATCH);
    let used = cpu_time(server.pid()) - before;
    println!("{} idle sessions took {used:?} of {WATCH:?}", sessions.len());
    assert!(used < CPU_MAX, "{} idle sessions took {used:?} of {WATCH:?}", sessions.len());
    for mut session in sessions {
        session.set_nonblocking(true).expect("a socket");
        let kind = session.read(&mut [0; 48]).map_err(|error| error.kind());
        assert_eq!(kind, Err(std::io::ErrorKind::WouldBlock), "the session is still there");
    }
    assert!(server.stop().success(), "{}", server.log());
}

fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}
