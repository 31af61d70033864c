//! What a link can carry at the most: `sendmmsg` into a receive ring, and the round trip of one packet.
//!
//! ```text
//! rawlink send IF DESTINATION-MAC SIZE SECONDS [--cold]
//! rawlink receive IF SECONDS
//! rawlink ping IF DESTINATION-MAC SIZE ANSWER-SIZE COUNT
//! rawlink pong IF SECONDS
//! ```
//!
//! `send` sends one packet again and again, out of the processor's cache; with `--cold` packets out of 1 GiB, which no cache holds.
//! Sizes are bytes after the Ethernet header. Each prints one line of JSON; Gbit/s count whole frames. Needs root.

use std::error::Error;
use std::time::Duration;

use sanwire_buffer::{Arena, Arrival, Frame, Head, Packet, Slice};
use sanwire_core::{Instant, Peer};
use sanwire_io::{BATCH_PACKETS, Clock, PacketPort, Poller, Port, RING_BYTES_DEFAULT};

/// The first EtherType for local experiments (IEEE 802).
const ETHERTYPE: u16 = 0x88b5;
const ETHERNET_HEADER_BYTES: u64 = 14;

/// What a head holds of a packet.
const HEAD_BYTES: usize = 32;

/// The memory that no cache holds, and its pieces, which lie in large pages as what RAM volumes hold does.
const COLD_BYTES: usize = 1 << 30;
const COLD_PIECE_BYTES: usize = 2 << 20;

/// Packets handled between two flushes.
const BUDGET: usize = 256;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["send", interface, to, size, seconds] => {
            let size = size.parse()?;
            send(interface, peer(to)?, size, &[payload(size)], whole_seconds(seconds)?)
        }
        ["send", interface, to, size, seconds, "--cold"] => {
            send(interface, peer(to)?, size.parse()?, &cold_memory()?, whole_seconds(seconds)?)
        }
        ["receive", interface, seconds] => receive(interface, whole_seconds(seconds)?),
        ["ping", interface, to, size, answer_size, count] => {
            ping(interface, peer(to)?, size.parse()?, answer_size.parse()?, count.parse()?)
        }
        ["pong", interface, seconds] => pong(interface, whole_seconds(seconds)?),
        _ => Err("usage: rawlink send IF MAC SIZE SECONDS [--cold] | receive IF SECONDS | \
                  ping IF MAC SIZE ANSWER-SIZE COUNT | pong IF SECONDS"
            .into()),
    }
}

fn peer(text: &str) -> Result<Peer> {
    Ok(Peer::Ethernet(text.parse()?))
}

fn whole_seconds(text: &str) -> Result<Duration> {
    Ok(Duration::from_secs_f64(text.parse()?))
}

fn open(interface: &str) -> Result<Port> {
    Ok(Port::from(PacketPort::open(interface, ETHERTYPE, RING_BYTES_DEFAULT)?))
}

/// A packet of the first `size` bytes.
fn packet(size: usize, bytes: &Slice) -> Packet {
    let mut head = Head::new();
    let head_bytes = size.min(HEAD_BYTES);
    head.extend(&bytes[..head_bytes]);
    Packet::new(head, Some(bytes.slice(head_bytes..size)))
}

/// Puts a packet into the batch, and sends the batch before when it is full.
fn queue(port: &mut Port, to: Peer, packet: Packet) -> Result<()> {
    if let Err(packet) = port.queue(to, packet) {
        port.flush()?;
        port.queue(to, packet).map_err(|_| "an empty batch is full")?;
    }
    Ok(())
}

fn payload(size: usize) -> Slice {
    Frame::from(vec![0x5a; size.max(HEAD_BYTES)]).freeze()
}

fn cold_memory() -> Result<Vec<Slice>> {
    let (arena, content) = (Arena::new(COLD_PIECE_BYTES, 0), vec![0x5a; COLD_PIECE_BYTES]);
    let pieces = (0..COLD_BYTES / COLD_PIECE_BYTES).map(|_| Some(arena.copied(&content)?.freeze()));
    Ok(pieces.collect::<Option<_>>().ok_or("no memory for 1 GiB")?)
}

/// Sends for that long what lies in the memory, packet by packet, and again from its beginning.
fn send(interface: &str, to: Peer, size: usize, memory: &[Slice], time: Duration) -> Result<()> {
    let (mut port, clock) = (open(interface)?, Clock::new());
    if size == 0 || memory.iter().all(|piece| piece.len() < size) {
        return Err("no such size".into());
    }
    let places = |piece: &Slice| (0..piece.len() / size).map(|number| number * size);
    let mut packets = memory
        .iter()
        .flat_map(|piece| places(piece).map(|start| packet(size, &piece.slice(start..start + size))))
        .cycle();
    let start = clock.now();
    while clock.now() < start + time {
        for packet in packets.by_ref().take(BATCH_PACKETS) {
            queue(&mut port, to, packet)?;
        }
        port.flush()?;
    }
    let counters = port.counters();
    report("send", counters.sent, counters.sent_bytes, start, &clock, &format!(r#""errors":{}"#, counters.send_errors));
    Ok(())
}

fn receive(interface: &str, time: Duration) -> Result<()> {
    let (mut port, mut poller, clock) = (open(interface)?, Poller::new(), Clock::new());
    let (mut first_bytes, mut waits) = (0u64, 0u64);
    poller.wait(std::slice::from_ref(&port), &[], None, Some(clock.now() + Duration::from_secs(10)), &clock)?;
    let start = clock.now();
    while clock.now() < start + time {
        let mut look = |_: Peer, bytes: Arrival<'_>| first_bytes += u64::from(bytes.first().copied().unwrap_or(0));
        if port.receive(BUDGET, &mut look)? < BUDGET {
            poller.wait(std::slice::from_ref(&port), &[], None, Some(start + time), &clock)?;
            waits += 1;
        }
    }
    let counters = port.counters();
    let more = format!(r#""drops":{},"waits":{waits},"checksum":{first_bytes}"#, counters.kernel_drops);
    report("receive", counters.received, counters.received_bytes, start, &clock, &more);
    Ok(())
}

fn ping(interface: &str, to: Peer, size: usize, answer_size: u32, count: usize) -> Result<()> {
    let (mut port, mut poller, clock, payload) = (open(interface)?, Poller::new(), Clock::new(), payload(size));
    let mut round_trips_ns = Vec::with_capacity(count);
    for _ in 0..count {
        let mut request = packet(size.max(32), &payload);
        request.head.as_mut_slice()[..4].copy_from_slice(&answer_size.to_be_bytes());
        let start = clock.now();
        queue(&mut port, to, request)?;
        port.flush()?;
        while port.receive(1, &mut |_, _| {})? == 0 {
            let deadline = Some(start + Duration::from_secs(1));
            if poller.wait(std::slice::from_ref(&port), &[], None, deadline, &clock)?.is_timeout() {
                return Err("no answer within a second: is `rawlink pong` running at the other end?".into());
            }
        }
        round_trips_ns.push(clock.now().saturating_since(start).as_nanos() as f64);
    }
    round_trips_ns.sort_by(f64::total_cmp);
    let at = |part: f64| round_trips_ns.get((count as f64 * part) as usize).copied().unwrap_or(0.0) / 1000.0;
    println!(
        r#"{{"mode":"ping","size":{size},"answer_size":{answer_size},"count":{count},"median_us":{:.2},"p10_us":{:.2},"p99_us":{:.2}}}"#,
        at(0.5),
        at(0.1),
        at(0.99)
    );
    Ok(())
}

fn pong(interface: &str, time: Duration) -> Result<()> {
    let (mut port, mut poller, clock) = (open(interface)?, Poller::new(), Clock::new());
    let (end, payload) = (clock.now() + time, payload(port.payload_max_bytes()));
    let mut requests = Vec::with_capacity(BATCH_PACKETS);
    while clock.now() < end {
        port.receive(BATCH_PACKETS, &mut |peer, bytes| {
            if let Some(size) = bytes.first_chunk() {
                requests.push((peer, u32::from_be_bytes(*size) as usize));
            }
        })?;
        for (peer, size) in requests.drain(..) {
            let size = size.min(payload.len());
            queue(&mut port, peer, packet(size, &payload))?;
        }
        port.flush()?;
        poller.wait(std::slice::from_ref(&port), &[], None, Some(end), &clock)?;
    }
    Ok(())
}

fn report(mode: &str, packets: u64, payload_bytes: u64, start: Instant, clock: &Clock, more: &str) {
    let seconds = clock.now().saturating_since(start).as_secs_f64();
    let frame_bytes = payload_bytes + packets * ETHERNET_HEADER_BYTES;
    println!(
        r#"{{"mode":"{mode}","packets":{packets},"seconds":{seconds:.3},"packets_per_s":{:.0},"gbit_per_s":{:.2},"cpu_s":{:.3},{more}}}"#,
        packets as f64 / seconds,
        frame_bytes as f64 * 8.0 / seconds / 1e9,
        processor_seconds()
    );
}

/// User and system time of this process so far.
fn processor_seconds() -> f64 {
    // SAFETY: an rusage of zeroes is a valid one, and the call fills in one rusage.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    [usage.ru_utime, usage.ru_stime].iter().map(|time| time.tv_sec as f64 + time.tv_usec as f64 / 1e6).sum()
}
