//! What a server and a client take when nothing happens, and how much memory a server has.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::harness::{Attached, Server, Wire, World, run_ok};

const WATCH: Duration = Duration::from_secs(10);
/// 0.5 % of [`WATCH`].
const CPU_MAX: Duration = Duration::from_millis(50);
const MEMORY_MAX_KIB: u64 = 64 << 10;

#[test]
fn idle_is_idle_and_memory_is_bounded() {
    let Some(world) = World::new("idle_is_idle_and_memory_is_bounded", 9000, &["dd", "getconf"]) else { return };
    let volume = format!("disk=file:{},size=256M", world.scratch.text("disk.img"));
    let mut server = Server::start_for(&world, Wire::Iscsi, &[&volume]);
    for wire in [Wire::Ethernet, Wire::Ip, Wire::Iscsi] {
        let attached = Attached::device(&world, &wire.url("disk"));
        let device = attached.place.display().to_string();
        for (from, to, flag) in [("/dev/zero", device.as_str(), "oflag=direct"), (&device, "/dev/null", "iflag=direct")]
        {
            let mut dd = Command::new("dd");
            dd.args([&format!("if={from}"), &format!("of={to}"), "bs=512K", "count=512", flag]);
            run_ok(dd, Duration::from_secs(60));
        }
        let memory_kib = resident_kib(server.pid());
        println!("{wire:?}: the server has {memory_kib} KiB in memory");
        assert!(memory_kib < MEMORY_MAX_KIB, "the server has {memory_kib} KiB in memory over {wire:?}");
        thread::sleep(Duration::from_secs(1));
        let before = [server.pid(), attached.pid()].map(cpu_time);
        thread::sleep(WATCH);
        let after = [server.pid(), attached.pid()].map(cpu_time);
        for (who, index) in [("server", 0), ("client", 1)] {
            let used = after[index] - before[index];
            println!("{wire:?}: the idle {who} used {used:?} of {WATCH:?}");
            assert!(used < CPU_MAX, "the idle {who} used {used:?} of {WATCH:?} over {wire:?}");
        }
        attached.detach(&world);
    }
    assert!(server.stop().success(), "{}", server.log());
}

/// Fields 14 and 15 of `/proc/PID/stat` (proc(5)): time in user mode and in the kernel, in ticks.
pub fn cpu_time(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process runs");
    let (_, fields) = stat.rsplit_once(')').expect("a process's name");
    let ticks: u64 =
        fields.split_ascii_whitespace().skip(11).take(2).map(|field| field.parse::<u64>().unwrap_or(0)).sum();
    let mut getconf = Command::new("getconf");
    getconf.arg("CLK_TCK");
    let second: u64 = run_ok(getconf, WATCH).trim().parse().expect("ticks in a second");
    Duration::from_millis(ticks * 1000 / second)
}

fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}
