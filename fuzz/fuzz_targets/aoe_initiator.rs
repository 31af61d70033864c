//! An AoE initiator and a target that keeps no rule: no panic, every order ends exactly once, no endless sending.
#![no_main]

use std::collections::BTreeSet;
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use sanwire_aoe::{Address, Client, ClientConfig, ClientEvent, Order};
use sanwire_ata::{Abilities, IdentifyDevice};
use sanwire_buffer::{Frame, Slice};
use sanwire_core::{Instant, LinkId, MacAddress, Path, Peer};
use sanwire_scsi::{Extent, build};

const ADDRESS: Address = Address { shelf: 7, slot: 3 };
const TARGET: Path = Path { link: LinkId(0), peer: Peer::Ethernet(MacAddress([2, 0, 0, 0, 0, 1])) };

struct World {
    client: Client,
    now: Instant,
    waiting: BTreeSet<u64>,
    /// Messages that were sent: answers to them are worth something.
    sent: Vec<Vec<u8>>,
}

impl World {
    fn drain(&mut self) {
        while let Some(event) = self.client.poll_event() {
            if let ClientEvent::Completed { number, .. } | ClientEvent::Failed { number, .. } = event {
                assert!(self.waiting.remove(&number), "{number} ends twice");
            }
        }
        let mut packets = 0;
        while let Some((_, packet)) = self.client.poll_transmit(self.now) {
            packets += 1;
            assert!(packets < 10_000, "it never stops sending");
            self.sent.push(packet.head.to_vec());
        }
        let surplus = self.sent.len().saturating_sub(64);
        self.sent.drain(..surplus);
    }

    /// An answer to something that was sent.
    fn answer(&mut self, u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
        let Some(sent) = self.sent.get(u.int_in_range(0..=63)?) else { return u.arbitrary() };
        let mut bytes = sent.clone();
        bytes[0] |= 0x08;
        bytes[2..5].copy_from_slice(&[0, 7, 3]);
        match bytes[5] {
            1 => bytes[10..18].copy_from_slice(&[0, u.arbitrary()?, 0, 0, u.arbitrary()?, 0x10, 0, 0]),
            _ if bytes[13] == 0xec => {
                (bytes[11], bytes[13]) = (0, 0x50);
                bytes.truncate(22);
                bytes.extend(disk(u)?.to_bytes());
            }
            _ => {
                let count = usize::from(bytes[12]);
                (bytes[11], bytes[13]) = if u.ratio(7, 8)? { (0, 0x50) } else { u.arbitrary()? };
                bytes.truncate(22);
                bytes.resize(22 + count * 512, u.arbitrary()?);
            }
        }
        if u.ratio(1, 8)? {
            let at = u.choose_index(bytes.len())?;
            bytes[at] ^= u.arbitrary::<u8>()?;
            bytes.truncate(u.int_in_range(0..=bytes.len())?);
        }
        Ok(bytes)
    }
}

fn disk(u: &mut Unstructured<'_>) -> Result<IdentifyDevice> {
    Ok(IdentifyDevice {
        serial: "1".to_owned(),
        firmware: "1".to_owned(),
        model: if u.ratio(9, 10)? { "a" } else { "b" }.to_owned(),
        sectors: 5000,
        sector_bytes: if u.ratio(9, 10)? { 512 } else { u.arbitrary()? },
        physical_sector_exponent: 0,
        rotation_rate: 0,
        world_wide_name: None,
        multiple: 0,
        dma_mode: None,
        abilities: Abilities { has_48_bit_addresses: true, has_flush: true, ..Abilities::default() },
        trim: None,
        run: if u.ratio(1, 2)? { Some(u.int_in_range(0..=1)?) } else { None },
    })
}

fn order(u: &mut Unstructured<'_>) -> Result<Order> {
    let extent = Extent { lba: u.int_in_range(0..=5010)?, blocks: u.int_in_range(0..=100)? };
    let bytes = extent.blocks as usize * 512;
    Ok(match u.int_in_range(0..=4)? {
        0 => Order { cdb: build::read_16(extent), data_out: None, data_in: Frame::zeroed(bytes) },
        1 => Order { cdb: build::write_16(extent, false), data_out: Some(Slice::from(vec![7; bytes])), data_in: None },
        2 => Order { cdb: build::synchronize_cache_16(extent), data_out: None, data_in: None },
        3 => Order { cdb: build::inquiry(Some(u.arbitrary()?), 512), data_out: None, data_in: Frame::zeroed(512) },
        _ => Order { cdb: u.arbitrary::<[u8; 16]>()?.into(), data_out: None, data_in: Frame::zeroed(64) },
    })
}

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let config = ClientConfig {
        address: ADDRESS,
        links: vec![(LinkId(0), 1500), (LinkId(1), 9000)],
        connect_patience: Duration::from_secs(60),
        reconnect_patience: u.arbitrary::<bool>()?.then_some(Duration::from_secs(20)),
        first_tag: u.arbitrary()?,
    };
    let client = Client::new(config, Instant::ZERO);
    let mut world = World { client, now: Instant::ZERO, waiting: BTreeSet::new(), sent: Vec::new() };
    world.client.handle_timeout(world.now);
    world.drain();
    while !u.is_empty() {
        match u.int_in_range(0..=9)? {
            0..=4 => {
                let bytes = world.answer(u)?;
                world.client.handle_input(TARGET, &bytes, world.now);
            }
            5 | 6 => {
                if let Ok(number) = world.client.order(order(u)?) {
                    world.waiting.insert(number);
                }
            }
            7 => {
                world.client.hold_after_restart();
                world.client.release();
            }
            8 => world.client.abandon(),
            _ => {
                world.now += Duration::from_millis(u.int_in_range(0..=3000)?);
                world.client.handle_timeout(world.now);
            }
        }
        world.drain();
    }
    world.client.disconnect();
    world.drain();
    assert!(world.waiting.is_empty(), "orders without an end");
    Ok(())
}

fuzz_target!(|bytes: &[u8]| {
    // It may run out of input.
    let _ = run(&mut Unstructured::new(bytes));
});
