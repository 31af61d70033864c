//! What the process takes: the metrics that Prometheus has standard names for.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use sanwire_io::process_time;

use super::{Family, Labels, Sample};

/// Of this process, which began at this moment. What the system does not tell is not there.
pub(super) fn of_process(began: SystemTime) -> Vec<Family> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let number_after = |text: &str, key: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        line.split_ascii_whitespace().next()?.parse().ok()
    };
    let kib = |key: &str| number_after(&status, key).map(|kib| Sample::Gauge(kib << 10));
    let open = fs::read_dir("/proc/self/fd").ok().map(|entries| Sample::Gauge(entries.count() as u64));
    let of = |name, help, sample: Option<Sample>| Family {
        name,
        help,
        samples: sample.map(|sample| (0, Labels::none(), sample)).into_iter().collect(),
    };
    let began = began.duration_since(UNIX_EPOCH).map(|since| Sample::SecondsNow(since.as_secs_f64()));
    vec![
        of("process_cpu_seconds", "Processor time of all threads", Some(Sample::Seconds(process_time().as_secs_f64()))),
        of("process_start_time_seconds", "When it began, since 1970", began.ok()),
        of("process_resident_memory_bytes", "Memory that it has", kib("VmRSS:")),
        of("process_virtual_memory_bytes", "Addresses that it has", kib("VmSize:")),
        of("process_threads", "Its threads", number_after(&status, "Threads:").map(Sample::Gauge)),
        of("process_open_fds", "Descriptors that are open", open),
        of(
            "process_max_fds",
            "Descriptors that may be open",
            number_after(&limits, "Max open files").map(Sample::Gauge),
        ),
    ]
}
