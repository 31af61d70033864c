//! A load, the client that puts it on a server, and what came of it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::link::End;
use crate::process::{Finished, Host, Running};
use crate::sample::Sample;
use crate::servers::VOLUME_BYTES;

pub(crate) const MIB: f64 = 1_048_576.0;

/// The order and the size of the operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Load {
    pub(crate) block_bytes: u32,
    pub(crate) depth: u16,
    pub(crate) is_random: bool,
    pub(crate) is_write: bool,
}

impl Load {
    pub(crate) const fn random_read(block_bytes: u32, depth: u16) -> Self {
        Load { block_bytes, depth, is_random: true, is_write: false }
    }

    pub(crate) const fn random_write(block_bytes: u32, depth: u16) -> Self {
        Load { block_bytes, depth, is_random: true, is_write: true }
    }

    pub(crate) const fn sequential(block_bytes: u32, depth: u16, is_write: bool) -> Self {
        Load { block_bytes, depth, is_random: false, is_write }
    }

    pub(crate) fn name(&self) -> String {
        let size = match self.block_bytes {
            whole if whole.is_multiple_of(1024) => format!("{}K", whole / 1024),
            odd => format!("{odd}B"),
        };
        let order = if self.is_random { "random" } else { "sequential" };
        let direction = if self.is_write { "write" } else { "read" };
        format!("{size} {order} {direction} qd{}", self.depth)
    }
}

/// A program and its arguments.
pub(crate) type ClientCommand = (String, Vec<String>);

/// Splits a line into the words of a command.
pub(crate) fn words(line: &str) -> Vec<String> {
    line.split(' ').map(Into::into).collect()
}

/// libiscsi's client. It knows whole seconds only, and disks of blocks of 512 bytes.
pub(crate) fn iscsi_perf(load: &Load, seconds: f64, url: &str) -> ClientCommand {
    let (depth, blocks, whole_seconds) = (load.depth, load.block_bytes / 512, seconds.ceil());
    let random = if load.is_random { "-r " } else { "" };
    ("iscsi-perf".into(), words(&format!("-m {depth} -b {blocks} -t {whole_seconds} {random}{url}")))
}

/// `sanwire bench`, with more options at the end.
pub(crate) fn sanwire_bench(
    sanwire: &str,
    load: &Load,
    seconds: f64,
    url: &str,
    key: &str,
    more: &str,
) -> ClientCommand {
    let pattern = if load.is_random { "random" } else { "sequential" };
    let writes = if load.is_write { " --reads 0 --overwrite" } else { "" };
    let line = format!(
        "bench {url} --json --block {} --depth {} --pattern {pattern} --time {seconds} --key-file {key}{more}{writes}",
        load.block_bytes, load.depth
    );
    (sanwire.to_owned(), words(&line))
}

/// Our client for ATA over Ethernet: each block in a frame, of the disk with this shelf and slot on this interface.
pub(crate) fn aoe_client(this: &str, load: &Load, seconds: f64, interface: &str, disk: [&str; 2]) -> ClientCommand {
    let [shelf, slot] = disk;
    let pattern = if load.is_random { "random" } else { "sequential" };
    let write = if load.is_write { " --write" } else { "" };
    let line = format!(
        "aoe {interface} {shelf} {slot} --sectors {} --depth {} --pattern {pattern} --size-bytes {VOLUME_BYTES} \
         --seconds {seconds}{write}",
        load.block_bytes / 512,
        load.depth
    );
    (this.to_owned(), words(&line))
}

/// The command as a shell would take it.
pub(crate) fn line((program, arguments): &ClientCommand) -> String {
    format!("{program} {}", arguments.join(" "))
}

/// Runs a client to its end.
///
/// # Errors
/// When it cannot be started or fails.
pub(crate) fn run_client(host: &Host, (program, arguments): &ClientCommand) -> Result<Finished> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    host.run(End::Client, program, &arguments)
}

/// What a client says: operations done, and the sample without processor times.
pub(crate) type Read = Result<(f64, Sample)>;

/// Has a client put its load on a server, and counts the processor time of both.
///
/// # Errors
/// When one of them fails, or the client says nothing that can be read.
pub(crate) fn loaded(
    host: &Host,
    server: &Running,
    command: &ClientCommand,
    read: impl FnOnce(&str) -> Read,
) -> Result<Sample> {
    loaded_by(host, || server.cpu(), command, read)
}

/// The same of a server whose processor time is told by something else.
///
/// # Errors
/// As of [`loaded`].
pub(crate) fn loaded_by(
    host: &Host,
    server_cpu: impl Fn() -> Result<Duration>,
    command: &ClientCommand,
    read: impl FnOnce(&str) -> Read,
) -> Result<Sample> {
    let (before, start) = (server_cpu()?, Instant::now());
    let client = run_client(host, command)?;
    let (cpu, elapsed) = (server_cpu()?.saturating_sub(before), start.elapsed());
    let (operations, mut sample) =
        read(&client.output).with_context(|| format!("after {elapsed:?}: {}", client.output))?;
    sample.server_cpu_us = Some(cpu.as_secs_f64() * 1e6 / operations.max(1.0));
    sample.client_cpu_us = Some(client.cpu.as_secs_f64() * 1e6 / operations.max(1.0));
    Ok(sample)
}

pub(crate) fn read_sanwire(text: &str) -> Read {
    let json: Value = serde_json::from_str(text)?;
    let operations = number(&json, "reads")? + number(&json, "writes")?;
    // What comes to a client that writes is none of its data.
    let data = &json["data"];
    let copies_per_byte = match (number(data, "placed_bytes"), number(data, "copied_bytes")) {
        (Ok(placed), Ok(copied)) if number(&json, "reads")? > 0.0 && placed > 0.0 => Some(copied / placed),
        _ => None,
    };
    let sample = Sample {
        copies_per_byte,
        iops: Some(number(&json, "iops")?),
        mib_per_s: Some(number(&json, "bytes_per_second")? / MIB),
        latency_p50_us: Some(number(&json["latency_us"], "p50")?),
        ..Sample::default()
    };
    Ok((operations, sample))
}

pub(crate) fn read_aoe(text: &str) -> Read {
    let json: Value = serde_json::from_str(text)?;
    let sample = Sample {
        iops: Some(number(&json, "iops")?),
        mib_per_s: Some(number(&json, "mib_per_s")?),
        latency_p50_us: Some(number(&json, "latency_p50_us")?),
        ..Sample::default()
    };
    Ok((number(&json, "frames")?, sample))
}

pub(crate) fn read_stream(text: &str) -> Read {
    let json: Value = serde_json::from_str(text)?;
    let (iops, mib_per_s) = (number(&json, "iops")?, number(&json, "mib_per_s")?);
    let sample = Sample { iops: Some(iops), mib_per_s: Some(mib_per_s), ..Sample::default() };
    Ok((number(&json, "blocks")?, sample))
}

/// `iscsi-perf` writes over its own line and tells whole seconds: the last average counts.
pub(crate) fn read_iscsi_perf(text: &str, load: &Load) -> Read {
    let average = text.rsplit_once("iops average ").context("no average")?.1;
    let iops: f64 = average.split_whitespace().next().context("no number")?.parse()?;
    let seconds = text.split_once("will run for ").and_then(|(_, rest)| rest.split(' ').next()?.parse::<f64>().ok());
    let mib_per_s = iops * f64::from(load.block_bytes) / MIB;
    let sample = Sample { iops: Some(iops), mib_per_s: Some(mib_per_s), ..Sample::default() };
    Ok((iops * seconds.context("no duration")?, sample))
}

/// The MiB per second of what fio prints as JSON.
///
/// # Errors
/// When it is none of fio's.
pub(crate) fn read_fio(output: &str) -> Result<f64> {
    // Warnings stand before it.
    let json = output.find('{').and_then(|start| output.get(start..)).context("fio printed no JSON")?;
    let job = &serde_json::from_str::<Value>(json)?["jobs"][0];
    Ok((number(&job["read"], "bw_bytes")? + number(&job["write"], "bw_bytes")?) / MIB)
}

pub(crate) fn number(json: &Value, name: &str) -> Result<f64> {
    json[name].as_f64().with_context(|| format!("no number {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_iscsi_perf_prints_is_read() {
        let text = "will run for 2 seconds.\n\n\r00:00:01 - lba 1, iops current 7 (9 MB/s), iops average 23358 (91 MB/s), \
                    in_flight 32, busy 0        \riops average 25308 (98 MB/s)     \n\nfinished.\n";
        let load = Load::random_read(4096, 32);
        let (operations, sample) = read_iscsi_perf(text, &load).unwrap();
        assert_eq!((operations, sample.iops), (50616.0, Some(25308.0)));
        assert!(read_iscsi_perf("finished", &load).is_err());
    }

    #[test]
    fn what_fio_prints_is_read() {
        let text = r#"note
            { "jobs": [ { "read": { "bw_bytes": 0 }, "write": { "bw_bytes": 2097152 } } ] }"#;
        assert_eq!(read_fio(text).unwrap(), 2.0);
        assert!(read_fio("fio: no such file").is_err());
    }

    #[test]
    fn what_our_client_prints_is_read() {
        let text = |reads: u32, data: &str| {
            format!(
                r#"{{ "reads": {reads}, "writes": 1, "iops": 4.0, "bytes_per_second": 1048576, "latency_us": {{ "p50": 7 }},
                "data": {data} }}"#
            )
        };
        let data = r#"{ "placed_bytes": 4000, "copied_bytes": 1000, "direct_bytes": 3000 }"#;
        for (reads, data, copies_per_byte) in [(3, data, Some(0.25)), (0, data, None), (3, "null", None)] {
            let (operations, sample) = read_sanwire(&text(reads, data)).unwrap();
            assert_eq!((operations, sample.mib_per_s), (f64::from(reads) + 1.0, Some(1.0)));
            assert_eq!(sample.copies_per_byte, copies_per_byte);
        }
    }

    #[test]
    fn names_say_what_is_done() {
        assert_eq!(Load::random_read(4096, 32).name(), "4K random read qd32");
        assert_eq!(Load::sequential(8704, 8, true).name(), "8704B sequential write qd8");
    }
}
