//! Sends first steps of handshakes that lead nowhere, of many clients in turn, each as another attempt.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use sanwire_buffer::{Head, Packet};
use sanwire_core::{ClientId, MacAddress, Path, Peer, Protection};
use sanwire_hyperscsi::wire::packet::put_checksum;
use sanwire_hyperscsi::wire::setup::steering_word;
use sanwire_hyperscsi::wire::{Prefix, RawPacket};
use sanwire_hyperscsi::{Client, ClientConfig, DesiredOptions, ETHERTYPE, Identity, LinkLimits, Recovery};
use sanwire_io::{PacketPort, Port, RING_BYTES_DEFAULT};

use crate::random::Random;

/// How often packets are sent, in lots.
const LOT: Duration = Duration::from_millis(1);

/// For any number of shards that divides this, the flood meets the shard that it is to meet.
const SHARDS: u32 = 64;

/// Clients that are forged.
const CLIENTS: usize = 64;

/// `sanwire-bench flood`.
#[derive(Args, Debug)]
pub(crate) struct FloodArgs {
    interface: String,
    /// The MAC address of the server
    to: MacAddress,
    /// Packets in a second
    #[arg(long, default_value = "20000")]
    rate: u32,
    /// The client whose shard is flooded
    #[arg(long)]
    shard_of: ClientId,
}

/// Sends until it is killed. Answers are not even read.
///
/// # Errors
/// When the interface refuses.
pub(crate) fn run(args: &FloodArgs) -> Result<()> {
    let mut port = Port::from(PacketPort::open(&args.interface, ETHERTYPE, RING_BYTES_DEFAULT)?);
    let to = Peer::Ethernet(args.to);
    let mut random = Random::new(11);
    let firsts = (0..CLIENTS).map(|_| first_step(to, args.shard_of, &mut random)).collect::<Result<Vec<_>>>()?;
    let raws = firsts.iter().map(|first| RawPacket::read(first).ok());
    let raws = raws.collect::<Option<Vec<_>>>().context("a first step of our own cannot be read")?;
    let (begun, mut sent) = (Instant::now(), 0u64);
    loop {
        let due = (begun.elapsed().as_secs_f64() * f64::from(args.rate)) as u64;
        while sent < due {
            let raw = &raws[sent as usize % CLIENTS];
            sent += 1;
            let packet = attempt(raw.prefix, raw.body, sent);
            if port.queue(to, packet).is_err() {
                port.flush()?;
            }
        }
        port.flush()?;
        thread::sleep(LOT);
    }
}

/// What a client sends first.
fn first_step(to: Peer, shard_of: ClientId, random: &mut Random) -> Result<Vec<u8>> {
    let shard = |client| steering_word(client) % SHARDS;
    let identity = loop {
        let mut private = [0; 32];
        private.chunks_mut(8).for_each(|part| part.copy_from_slice(&random.next().to_le_bytes()));
        let identity = Identity::from_private(private)?;
        if shard(identity.client_id()) == shard(shard_of) {
            break identity;
        }
    };
    let config = ClientConfig {
        name: "flood".into(),
        identity,
        psk: [0; 32],
        server_key: None,
        path: Path { link: Default::default(), peer: to },
        server_name: String::new(),
        link: LinkLimits { packet_max_bytes: 1500, receive_capacity_packets: 64 },
        commands_max: 1,
        transfer_max_bytes: 4096,
        protection_min: Protection::default(),
        wishes: DesiredOptions::default(),
        recovery: Recovery::default(),
        connect_patience: Duration::from_secs(1),
        reconnect_patience: None,
        seed: [11; 32],
    };
    let now = sanwire_core::Instant::ZERO;
    let (_, packet) = Client::new(config, now).poll_transmit(now).context("a client without a first step")?;
    Ok(packet.head.to_vec())
}

/// The same as another attempt.
fn attempt(prefix: Prefix, body: &[u8], number: u64) -> Packet {
    let mut head = Head::new();
    head.extend(&Prefix { number, ..prefix }.write(body.len()));
    head.extend(body);
    put_checksum(None, &mut head, &[]);
    Packet::new(head, None)
}
