//! A small client for ATA over Ethernet, to measure vblade with: N frames in flight, and nothing else.
//!
//! AoEr11 is the layout. Lost frames are asked for again under the same tag after [`RESEND_AFTER`].

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use sanwire_buffer::{Frame, Head, Packet, Slice};
use sanwire_core::{Instant, MacAddress, Peer};
use sanwire_io::{Clock, PacketPort, Poller, Port, RING_BYTES_DEFAULT};

use crate::latency::Latencies;
use crate::random::Random;

const ETHERTYPE: u16 = 0x88a2;
const SECTOR_BYTES: usize = 512;
/// Version, error, shelf, slot, command, tag (AoEr11 2), then the ATA arguments (3.1).
const HEADER_BYTES: usize = 10;
const ATA_BYTES: usize = 12;
const RESPONSE: u8 = 0x08;
const ERROR: u8 = 0x04;
/// BSY, DF, DRQ and ERR of the ATA status.
const STATUS_FAILED: u8 = 0xa9;
const RESEND_AFTER: Duration = Duration::from_millis(50);
/// Answers taken before the next questions leave: as many as can be in flight.
const BUDGET: usize = 64;

/// The order of the blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Pattern {
    Random,
    Sequential,
}

/// `sanwire-bench aoe`.
#[derive(Args, Debug)]
pub(crate) struct AoeArgs {
    interface: String,
    shelf: u16,
    slot: u8,
    /// Sectors of one frame
    #[arg(long, default_value = "2")]
    sectors: u8,
    /// Frames in flight
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u16).range(1..=64))]
    depth: u16,
    #[arg(long, default_value = "random")]
    pattern: Pattern,
    #[arg(long)]
    write: bool,
    /// Bytes of the disk to use
    #[arg(long)]
    size_bytes: u64,
    #[arg(long, default_value = "2")]
    seconds: f64,
}

/// Measures and prints one line of JSON.
///
/// # Errors
/// When the disk does not answer or refuses.
pub(crate) fn run(args: &AoeArgs) -> Result<()> {
    let blocks = args.size_bytes / (u64::from(args.sectors) * SECTOR_BYTES as u64);
    ensure!(blocks > 0, "the disk is smaller than one frame's data");
    let mut client = Client::open(args)?;
    let measured = client.measure(args, blocks)?;
    println!("{measured}");
    Ok(())
}

struct Client {
    port: Port,
    poller: Poller,
    clock: Clock,
    disk: Peer,
    shelf: u16,
    slot: u8,
}

/// One frame in flight.
#[derive(Clone, Copy)]
struct InFlight {
    lba: u64,
    tag: u32,
    first_sent: Instant,
    last_sent: Instant,
}

impl Client {
    fn open(args: &AoeArgs) -> Result<Self> {
        let port = Port::from(PacketPort::open(&args.interface, ETHERTYPE, RING_BYTES_DEFAULT)?);
        let disk = Peer::Ethernet(MacAddress::BROADCAST);
        let mut client =
            Client { port, poller: Poller::new(), clock: Clock::new(), disk, shelf: args.shelf, slot: args.slot };
        client.find()?;
        Ok(client)
    }

    /// Asks for the configuration until the disk answers, and notes where from.
    fn find(&mut self) -> Result<()> {
        for _ in 0..50 {
            // Command 1, CCmd 0: read the configuration string (AoEr11 3.2).
            let mut head = self.header(1, u32::MAX >> 1);
            head.extend(&[0; 46 - HEADER_BYTES]);
            self.put(Packet::new(head, None))?;
            self.port.flush()?;
            let deadline = self.clock.now() + Duration::from_millis(100);
            self.poller.wait(std::slice::from_ref(&self.port), &[], None, Some(deadline), &self.clock)?;
            let mut found = None;
            let expected = (self.shelf, self.slot);
            self.port.receive(BUDGET, &mut |peer, bytes| {
                if bytes.len() > HEADER_BYTES
                    && bytes[0] & RESPONSE != 0
                    && bytes[5] == 1
                    && (u16::from_be_bytes([bytes[2], bytes[3]]), bytes[4]) == expected
                {
                    found = Some(peer);
                }
            })?;
            if let Some(peer) = found {
                self.disk = peer;
                return Ok(());
            }
        }
        bail!("e{}.{} does not answer", self.shelf, self.slot)
    }

    fn header(&self, command: u8, tag: u32) -> Head {
        let mut head = Head::new();
        head.extend(&[0x10, 0]);
        head.extend(&self.shelf.to_be_bytes());
        head.extend(&[self.slot, command]);
        head.extend(&tag.to_be_bytes());
        head
    }

    /// Has the packet sent with the next flush, or now what is before it when that is as much as can be sent at once.
    fn put(&mut self, packet: Packet) -> Result<()> {
        if let Err(packet) = self.port.queue(self.disk, packet) {
            self.port.flush()?;
            self.port.queue(self.disk, packet).ok().context("an empty batch is full")?;
        }
        Ok(())
    }

    fn queue(&mut self, args: &AoeArgs, frame: &InFlight, data: &Slice) -> Result<()> {
        let mut head = self.header(0, frame.tag);
        let lba = frame.lba.to_le_bytes();
        let (flags, command) = if args.write { (0x41, 0x34) } else { (0x40, 0x24) };
        head.extend(&[flags, 0, args.sectors, command]);
        head.extend(&lba[..6]);
        head.extend(&[0; 2]);
        let packet = if args.write {
            Packet::new(head, Some(data.clone()))
        } else {
            head.extend(&[0; 46 - HEADER_BYTES - ATA_BYTES]);
            Packet::new(head, None)
        };
        self.put(packet)
    }

    fn measure(&mut self, args: &AoeArgs, blocks: u64) -> Result<serde_json::Value> {
        let data = Frame::from(vec![0x5a; usize::from(args.sectors) * SECTOR_BYTES]).freeze();
        let mut order = Order { args, blocks, random: Random::new(1), next: 0 };
        let start = self.clock.now();
        let end = start + Duration::from_secs_f64(args.seconds);
        let mut tally = Tally { answers: Vec::with_capacity(BUDGET), resends: 0, latencies: Latencies::default() };
        let mut flight: Vec<InFlight> = (0..args.depth).map(|slot| order.next(u32::from(slot), start)).collect();
        for frame in &flight {
            self.queue(args, frame, &data)?;
        }
        self.port.flush()?;
        loop {
            let now = self.clock.now();
            if now >= end {
                break;
            }
            self.collect(args, &mut tally.answers)?;
            let arrived = self.clock.now();
            for tag in tally.answers.drain(..) {
                let slot = (tag & 0xff) as usize;
                let Some(frame) = flight.get_mut(slot).filter(|frame| frame.tag == tag) else { continue };
                tally.latencies.record(arrived.saturating_since(frame.first_sent));
                *frame = order.next(tag.wrapping_add(0x100) & 0x7fff_ffff, arrived);
                let frame = *frame;
                self.queue(args, &frame, &data)?;
            }
            self.port.flush()?;
            let deadline = Some(end.min(arrived + RESEND_AFTER));
            let ready = self.poller.wait(std::slice::from_ref(&self.port), &[], None, deadline, &self.clock)?;
            if ready.is_timeout() {
                tally.resends += self.resend(args, &mut flight, &data)?;
            }
        }
        let seconds = self.clock.now().saturating_since(start).as_secs_f64();
        let frames = tally.latencies.count();
        ensure!(frames > 0, "the disk answered nothing");
        Ok(serde_json::json!({
            "frames": frames, "seconds": seconds, "iops": frames as f64 / seconds,
            "mib_per_s": frames as f64 * data.len() as f64 / seconds / f64::from(1 << 20),
            "latency_p50_us": tally.latencies.quantile(0.5).as_secs_f64() * 1e6, "resends": tally.resends,
        }))
    }

    /// The tags of the answers that are there.
    fn collect(&mut self, args: &AoeArgs, answers: &mut Vec<u32>) -> Result<()> {
        let data_bytes = if args.write { 0 } else { usize::from(args.sectors) * SECTOR_BYTES };
        let mut failure = None;
        self.port.receive(BUDGET, &mut |_, packet| match answer(packet.bytes(), data_bytes) {
            Ok(Some(tag)) => answers.push(tag),
            Ok(None) => {}
            Err(error) => failure = Some(error),
        })?;
        failure.map_or(Ok(()), Err)
    }

    fn resend(&mut self, args: &AoeArgs, flight: &mut [InFlight], data: &Slice) -> Result<u64> {
        let now = self.clock.now();
        let mut resends = 0;
        for frame in flight.iter_mut().filter(|frame| now.saturating_since(frame.last_sent) >= RESEND_AFTER) {
            frame.last_sent = now;
            resends += 1;
            let frame = *frame;
            self.queue(args, &frame, data)?;
        }
        self.port.flush()?;
        Ok(resends)
    }
}

/// The tag of an answer to an ATA command; nothing for other frames.
fn answer(bytes: &[u8], data_bytes: usize) -> Result<Option<u32>> {
    let Some((header, arguments)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    if header[0] & RESPONSE == 0 || header[5] != 0 || arguments.len() < ATA_BYTES {
        return Ok(None);
    }
    ensure!(header[0] & ERROR == 0, "the disk answers AoE error {}", header[1]);
    ensure!(arguments[3] & STATUS_FAILED == 0, "the disk answers ATA status {:#04x}", arguments[3]);
    ensure!(arguments.len() >= ATA_BYTES + data_bytes, "the disk answers fewer data than were asked for");
    Ok(Some(u32::from_be_bytes([header[6], header[7], header[8], header[9]])))
}

struct Tally {
    answers: Vec<u32>,
    resends: u64,
    latencies: Latencies,
}

struct Order<'a> {
    args: &'a AoeArgs,
    blocks: u64,
    random: Random,
    next: u64,
}

impl Order<'_> {
    fn next(&mut self, tag: u32, now: Instant) -> InFlight {
        let block = match self.args.pattern {
            Pattern::Random => self.random.below(self.blocks),
            Pattern::Sequential => {
                self.next += 1;
                (self.next - 1) % self.blocks
            }
        };
        InFlight { lba: block * u64::from(self.args.sectors), tag, first_sent: now, last_sent: now }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_from_the_rest() {
        let mut frame = [0; HEADER_BYTES + ATA_BYTES + 512];
        assert_eq!(answer(&frame, 512).unwrap(), None, "a question");
        frame[0] = 0x18;
        frame[6..10].copy_from_slice(&0x0102_0304u32.to_be_bytes());
        assert_eq!(answer(&frame, 512).unwrap(), Some(0x0102_0304));
        assert!(answer(&frame, 1024).is_err(), "short");
        assert_eq!(answer(&frame[..12], 0).unwrap(), None);
        frame[HEADER_BYTES + 3] = 0x41;
        assert!(answer(&frame, 512).is_err(), "ATA error");
        frame[0] = 0x1c;
        assert!(answer(&frame, 512).is_err(), "AoE error");
        frame[5] = 1;
        assert_eq!(answer(&frame, 512).unwrap(), None, "a configuration answer");
    }
}
