//! The round trip of the bare link: one small question, an answer of several frames.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use sanwire_buffer::{Frame, Head, Packet, Slice};
use sanwire_core::Peer;
use sanwire_io::{BATCH_PACKETS, Clock, PacketPort, Poller, Port, RING_BYTES_DEFAULT};

use crate::latency::Latencies;

/// The second EtherType for local experiments (IEEE 802).
const ETHERTYPE: u16 = 0x88b6;
const QUESTION_BYTES: usize = 64;
/// Round trips before the first that counts.
const WARM_UP: u64 = 200;

/// `sanwire-bench ping`.
#[derive(Args, Debug)]
pub(crate) struct PingArgs {
    interface: String,
    /// The MAC address of the other end, where `sanwire-bench pong` runs
    to: String,
    /// Bytes of the whole answer, without Ethernet headers
    #[arg(long)]
    answer_bytes: u32,
    #[arg(long, default_value = "1")]
    seconds: f64,
    /// How long to watch the ring before sleeping; 0 sleeps at once
    #[arg(long, default_value = "0")]
    spin_us: u64,
}

/// `sanwire-bench pong`.
#[derive(Args, Debug)]
pub(crate) struct PongArgs {
    interface: String,
    #[arg(long, default_value = "0")]
    spin_us: u64,
}

fn open(interface: &str, spin_us: u64) -> Result<(Port, Poller, Clock)> {
    let port = PacketPort::open(interface, ETHERTYPE, RING_BYTES_DEFAULT)?;
    Ok((Port::from(port), Poller::with_spin(Duration::from_micros(spin_us)), Clock::new()))
}

fn packet(bytes: &Slice) -> Packet {
    Packet::new(Head::new(), Some(bytes.clone()))
}

/// Measures and prints one line of JSON.
///
/// # Errors
/// When nothing answers.
pub(crate) fn ping(args: &PingArgs) -> Result<()> {
    let (mut port, mut poller, clock) = open(&args.interface, args.spin_us)?;
    let to = Peer::Ethernet(args.to.parse()?);
    let mut question = vec![0; QUESTION_BYTES];
    question[..4].copy_from_slice(&args.answer_bytes.to_be_bytes());
    let question = Frame::from(question).freeze();
    let (mut latencies, mut trips) = (Latencies::default(), 0u64);
    let begin = clock.now();
    let end = begin + Duration::from_secs_f64(args.seconds);
    while clock.now() < end {
        let start = clock.now();
        port.queue(to, packet(&question)).ok().context("an empty batch is full")?;
        port.flush()?;
        let mut missing = args.answer_bytes as usize;
        while missing > 0 {
            port.receive(BATCH_PACKETS, &mut |_, bytes| missing = missing.saturating_sub(bytes.len()))?;
            let deadline = Some(start + Duration::from_secs(1));
            if missing > 0 && poller.wait(std::slice::from_ref(&port), &[], None, deadline, &clock)?.is_timeout() {
                bail!("no answer within a second: is `sanwire-bench pong` running at the other end?");
            }
        }
        trips += 1;
        if trips > WARM_UP {
            latencies.record(clock.now().saturating_since(start));
        }
    }
    ensure!(latencies.count() > 0, "too few round trips in {} s", args.seconds);
    let us = |part| latencies.quantile(part).as_secs_f64() * 1e6;
    let iops = trips as f64 / clock.now().saturating_since(begin).as_secs_f64();
    println!("{}", serde_json::json!({ "latency_p50_us": us(0.5), "latency_p99_us": us(0.99), "iops": iops }));
    Ok(())
}

/// Answers until it is killed.
///
/// # Errors
/// When the interface is gone.
pub(crate) fn pong(args: &PongArgs) -> Result<()> {
    let (mut port, mut poller, clock) = open(&args.interface, args.spin_us)?;
    let full = Frame::from(vec![0x5a; port.payload_max_bytes()]).freeze();
    let mut questions = Vec::with_capacity(BATCH_PACKETS);
    loop {
        port.receive(BATCH_PACKETS, &mut |peer, bytes| {
            if let Some(size) = bytes.first_chunk() {
                questions.push((peer, u32::from_be_bytes(*size) as usize));
            }
        })?;
        for (peer, size) in questions.drain(..) {
            let mut left = size.min(full.len() * BATCH_PACKETS);
            while left > 0 {
                let length = left.min(full.len());
                if port.queue(peer, packet(&full.slice(0..length))).is_err() {
                    break;
                }
                left -= length;
            }
            port.flush()?;
        }
        poller.wait(std::slice::from_ref(&port), &[], None, None, &clock)?;
    }
}
