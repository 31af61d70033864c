//! Processor time.

use std::fs;
use std::process::Command;
use std::time::Duration;

use super::run_ok;

/// Fields 14 and 15 of `/proc/PID/stat` (proc(5)): time in user mode and in the kernel, in ticks.
pub fn cpu_time(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process runs");
    let (_, fields) = stat.rsplit_once(')').expect("a process's name");
    let ticks: u64 =
        fields.split_ascii_whitespace().skip(11).take(2).map(|field| field.parse::<u64>().unwrap_or(0)).sum();
    let mut getconf = Command::new("getconf");
    getconf.arg("CLK_TCK");
    let second: u64 = run_ok(getconf, Duration::from_secs(10)).trim().parse().expect("ticks in a second");
    Duration::from_millis(ticks * 1000 / second)
}
